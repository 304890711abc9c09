/* For any bytes: a header is refused, or it encodes to exactly the same bytes and is within every bound. */
#include "fuzz/fuzz.h"

#include "net/frame/frame.h"

#include <string.h>

enum { CHECKED = 28 }; /* number of header bytes that the checksum covers */

static int decode(const unsigned char head[FRAME_HEAD])
{
    unsigned char again[FRAME_HEAD];
    struct frame f = {.kind = 0xee};
    enum frame_fault fault = frame_decode(head, 0, &f);
    if (fault) {
        HOLD(f.kind == 0xee); /* nothing was written */
        return 0;
    }
    HOLD(f.kind && f.kind < FRAME_KINDS && f.edge <= 3 && f.bytes <= FRAME_PAYLOAD_MAX && f.number == 0);
    HOLD(f.kind == FRAME_EXPOSE || f.kind == FRAME_DATA || f.bytes <= FRAME_CONTROL_MAX);
    frame_encode(&f, again);
    HOLD(!memcmp(head, again, FRAME_HEAD));
    return 1;
}

/* Decodes the bytes as they are, and again with a correct checksum. */
int fuzz_frame(const unsigned char *bytes, size_t count)
{
    unsigned char head[FRAME_HEAD] = {0};

    memcpy(head, bytes, count < sizeof head ? count : sizeof head);
    int sound = decode(head);
    uint32_t crc = frame_crc32c(0, head, CHECKED);
    for (int i = 0; i < FRAME_HEAD - CHECKED; i++)
        head[CHECKED + i] = (unsigned char)(crc >> 8 * i);
    return decode(head) | sound;
}
