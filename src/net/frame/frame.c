/* The codec of frames. Pure: the only data is a constant table. */
#include "net/frame/frame.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ CRC-32C */
/* The table for one nibble at a time (64 bytes), for machines without the CRC instruction. */
static const uint32_t nibble[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t frame_crc32c_table(uint32_t crc, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;

    crc = ~crc;
    for (size_t i = 0; i < count; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_instruction(uint32_t crc, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t wide = (uint32_t)~crc;

    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    uint32_t narrow = (uint32_t)wide;
    for (; count; count--)
        narrow = __builtin_ia32_crc32qi(narrow, *at++);
    return ~narrow;
}

uint32_t frame_crc32c(uint32_t crc, const void *bytes, size_t count)
{
    return __builtin_cpu_supports("sse4.2") ? crc32c_instruction(crc, bytes, count) : frame_crc32c_table(crc, bytes, count);
}
#else
uint32_t frame_crc32c(uint32_t crc, const void *bytes, size_t count)
{
    return frame_crc32c_table(crc, bytes, count);
}
#endif

/* ------------------------------------------------------------------------------------------------------------ headers */
void frame_encode(const struct frame *f, unsigned char head[FRAME_HEAD])
{
    head[0] = f->kind;
    head[1] = f->edge;
    head[2] = (unsigned char)f->from;
    head[3] = (unsigned char)(f->from >> 8);
    base_put32(head + 4, f->channel);
    base_put64(head + 8, f->key);
    base_put32(head + 16, f->tag);
    base_put32(head + 20, f->bytes);
    base_put32(head + 24, f->number);
    base_put32(head + 28, frame_crc32c(0, head, 28));
}

struct bound {
    uint32_t least, most;
};
/* The bounds of the payload's length for each kind. */
static const struct bound bounds[FRAME_KINDS] = {
    [FRAME_EXPOSE] = {0, FRAME_PAYLOAD_MAX},
    [FRAME_ACK] = {0, 0},
    [FRAME_RETIRED] = {0, 0},
    [FRAME_NOTE] = {0, 512},
    [FRAME_ANNOUNCE] = {8, 8},
    [FRAME_EAGER] = {0, FRAME_CONTROL_MAX},
    [FRAME_GRANT] = {8, 8},
    [FRAME_CONSUMED] = {0, 0},
    [FRAME_DATA] = {1, FRAME_PAYLOAD_MAX},
    [FRAME_ASK] = {0, 0},
    [FRAME_CALLS] = {0, FRAME_CONTROL_MAX},
    [FRAME_GOODBYE] = {0, 0},
    [FRAME_WANT] = {0, 0},
    [FRAME_PASS] = {FRAME_PASS_HEAD, FRAME_CONTROL_MAX},
};

enum frame_fault frame_decode(const unsigned char head[FRAME_HEAD], uint32_t number, struct frame *frame)
{
    struct frame f;

    if (base_get32(head + 28) != frame_crc32c(0, head, 28))
        return FRAME_BAD_CRC;
    f.kind = head[0];
    f.edge = head[1];
    f.from = (uint16_t)(head[2] | head[3] << 8);
    f.channel = base_get32(head + 4);
    f.key = base_get64(head + 8);
    f.tag = base_get32(head + 16);
    f.bytes = base_get32(head + 20);
    f.number = base_get32(head + 24);
    if (f.number != number)
        return FRAME_BAD_NUMBER;
    if (!f.kind || f.kind >= FRAME_KINDS)
        return FRAME_BAD_KIND;
    if (f.edge > 3)
        return FRAME_BAD_EDGE;
    if (f.bytes < bounds[f.kind].least || f.bytes > bounds[f.kind].most)
        return FRAME_BAD_LENGTH;
    *frame = f;
    return FRAME_SOUND;
}

const char *frame_fault_text(enum frame_fault fault)
{
    static const char *const text[] = {"nothing is wrong with it",       "its checksum is wrong",
                                       "its number is not the next one", "its kind is not known here",
                                       "its edge is not valid",          "its length is not one that this kind may have"};

    return text[fault];
}
