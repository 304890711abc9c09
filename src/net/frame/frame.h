/*
 * frame: what travels between two ranks on a connection of the tcp wire, as bytes. 32 bytes of header in little-endian order, then `bytes`
 * of payload: behind the header where 32 bytes hold it, else from the next line of 64 on. Each frame is whole such lines, the rest zeros:
 * kernels copy to and from their buffers a fifth faster where both ends begin at such a line, and theirs go on where the last send ended,
 * over all connections of a thread. This room does no input or output and allocates nothing: it turns a header into bytes and back, and
 * believes nothing.
 *
 *   0 kind   1 edge   2 from (rank of the team)   4 channel (the receiver's name of it)   8 key   16 tag   20 bytes   24 number   28 crc
 *
 * `number` counts the frames of one connection and direction from 0; crc is CRC-32C of the 28 bytes before it. So a byte that was lost,
 * added or changed in a header is found at the next frame.
 */
#ifndef NET_TCP_FRAME_H
#define NET_TCP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_VERSION = 6,
    FRAME_HEAD = 32,
    FRAME_LINE = 64,
    FRAME_PASS_HEAD = 32,
    FRAME_CONTROL_MAX = 4096 + 64,
    FRAME_PAYLOAD_MAX = 1 << 20
};

enum frame_kind {
    FRAME_EXPOSE = 1, /* an exposure: key, edge, fingerprint as tag */
    FRAME_ACK,        /* of a stream's exposure: its place is free */
    FRAME_RETIRED,    /* operation key and all before it */
    FRAME_NOTE,       /* tag, and up to 512 bytes: of what sort, says the key's edge */
    FRAME_EAGER,      /* a whole message */
    FRAME_ANNOUNCE,   /* a message whose bytes wait to be granted; 8 bytes: how many they are */
    FRAME_GRANT,      /* 8 bytes: how many of them are wanted */
    FRAME_DATA,       /* the next bytes of a granted message */
    FRAME_CONSUMED,   /* key: messages taken notice of; tag: eager ones taken */
    FRAME_ASK,        /* for the calls that this rank has published */
    FRAME_CALLS,      /* published calls, 32 bytes each; tag 1: all that were asked for have come */
    FRAME_GOODBYE,    /* of nobody's channel: nothing comes any more, and its end is no death */
    FRAME_PASS,       /* of nobody's channel: what some rank says to all, on its way; relay.c has what it begins with */
    FRAME_KINDS,
};

struct frame {
    uint8_t kind, edge;
    uint16_t from;
    uint32_t channel;
    uint64_t key;
    uint32_t tag, bytes, number;
};

/* Where the payload of so many bytes begins, and how long the frame is. */
static inline uint32_t frame_payload_at(uint32_t bytes)
{
    return bytes <= FRAME_LINE - FRAME_HEAD ? FRAME_HEAD : FRAME_LINE;
}
static inline uint32_t frame_span(uint32_t bytes)
{
    return (frame_payload_at(bytes) + bytes + FRAME_LINE - 1) / FRAME_LINE * FRAME_LINE;
}

enum frame_fault { FRAME_SOUND = 0, FRAME_BAD_CRC, FRAME_BAD_NUMBER, FRAME_BAD_KIND, FRAME_BAD_EDGE, FRAME_BAD_LENGTH };

void frame_encode(const struct frame *frame, unsigned char head[FRAME_HEAD]);
/* *frame is set when the header is sound: checksum, number, a known kind, and a length that this kind may have. */
enum frame_fault frame_decode(const unsigned char head[FRAME_HEAD], uint32_t number, struct frame *frame);
const char *frame_fault_text(enum frame_fault fault);

/* CRC-32C (Castagnoli), as in RFC 3720; crc: of what came before, 0 at first. */
uint32_t frame_crc32c(uint32_t crc, const void *bytes, size_t count);
uint32_t frame_crc32c_table(uint32_t crc, const void *bytes, size_t count); /* the same without the instruction */

/* Little-endian numbers at any address. */
static inline void frame_put64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}
static inline uint64_t frame_get64(const unsigned char *at)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

#endif
