/* What must hold for any bytes: a header is refused, or it is one that encodes to the very same bytes and is within every bound. */
#include "net/fuzz_frame.h"

#include "base/hold.h"
#include "net/frame.h"

#include <string.h>

int fuzz_frame_one(const unsigned char *bytes, size_t count)
{
    unsigned char head[FRAME_HEAD] = {0}, again[FRAME_HEAD];
    struct frame f = {.kind = 0xee};

    memcpy(head, bytes, count < sizeof head ? count : sizeof head);
    enum frame_fault fault = frame_decode(head, 0, &f);
    if (fault) {
        HOLD(f.kind == 0xee); /* nothing was written */
        return 0;
    }
    HOLD(f.kind && f.kind < FRAME_KINDS && f.edge <= 3 && f.bytes <= FRAME_PAYLOAD_MAX && f.number == 0);
    HOLD(f.kind == FRAME_EXPOSE || f.kind == FRAME_DATA || f.bytes <= FRAME_CONTROL_MAX);
    frame_encode(&f, again);
    HOLD(!memcmp(head, again, sizeof head));
    return 1;
}

#ifdef COMM_LIBFUZZER
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    unsigned char head[FRAME_HEAD] = {0};
    uint32_t crc;

    fuzz_frame_one(bytes, count);
    memcpy(head, bytes, count < 28 ? count : 28); /* and once more with the checksum made right */
    crc = frame_crc32c(0, head, 28);
    for (int i = 0; i < 4; i++)
        head[28 + i] = (unsigned char)(crc >> 8 * i);
    fuzz_frame_one(head, sizeof head);
    return 0;
}
#endif
