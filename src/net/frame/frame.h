/*
 * frame: the format of what two ranks send each other on a connection of the tcp wire. A frame has a header of 32 bytes in little-endian
 * order and `bytes` of payload. A payload of up to 32 bytes follows the header directly; a longer one begins at the next line of 64 bytes.
 * A frame is a whole number of such lines and is filled with zeros: kernels copy a fifth faster if source and destination begin at a line
 * of 64 bytes, and their socket buffers continue where the last send ended. This module does no input or output and allocates nothing. It
 * converts headers and trusts no field.
 *
 *   0 kind   1 edge   2 from (rank of the team)   4 channel (the receiver's name of it)   8 key   16 tag   20 bytes   24 number   28 crc
 *
 * `number` counts the frames of one direction of a connection from 0. crc is the CRC-32C of the 28 bytes before it. So a lost, added or
 * changed byte in the stream is detected at the next header.
 */
#ifndef NET_FRAME_FRAME_H
#define NET_FRAME_FRAME_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_VERSION = 8,
    FRAME_HEAD = 32,
    FRAME_LINE = 64,
    FRAME_PASS_HEAD = 32,
    FRAME_CONTROL_MAX = 4096 + 64,
    FRAME_PAYLOAD_MAX = 1 << 20
};

enum frame_kind {
    FRAME_EXPOSE = 1, /* an exposure: key, edge; tag: fingerprint */
    FRAME_ACK,        /* acknowledges an exposure of a stream: its slot is free */
    FRAME_RETIRED,    /* the operation `key` and all before it are retired */
    FRAME_NOTE,       /* tag, and up to 512 bytes; the key's edge is the kind of note */
    FRAME_EAGER,      /* a whole message */
    FRAME_ANNOUNCE,   /* a message that waits for a grant; payload: its length in 8 bytes */
    FRAME_GRANT,      /* payload: the number of bytes to send, in 8 bytes */
    FRAME_DATA,       /* the next bytes of a granted message */
    FRAME_CONSUMED,   /* key: number of messages seen; tag: bytes of eager ones taken */
    FRAME_ASK,        /* requests the calls that the receiver has published */
    FRAME_CALLS,      /* published calls, 32 bytes each; tag 1: the last frame of the reply */
    FRAME_GOODBYE,    /* no channel: nothing follows, and the end of the connection is not a death */
    FRAME_WANT,       /* the sender lacks room for an exposure of operation `key`; the key's edge is the kind of room */
    FRAME_PASS,       /* no channel: a note of some rank to all, forwarded; relay.c has the format */
    FRAME_KINDS,
};

struct frame {
    uint8_t kind, edge;
    uint16_t from;
    uint32_t channel;
    uint64_t key;
    uint32_t tag, bytes, number;
};

/* The offset of a payload of this length, and the length of the whole frame. */
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
/* Sets *frame if the header is valid: checksum, number, a known kind, and a length that this kind may have. */
enum frame_fault frame_decode(const unsigned char head[FRAME_HEAD], uint32_t number, struct frame *frame);
const char *frame_fault_text(enum frame_fault fault);

/* CRC-32C (Castagnoli) as in RFC 3720. crc: the result for the bytes before these, at first 0. */
uint32_t frame_crc32c(uint32_t crc, const void *bytes, size_t count);
uint32_t frame_crc32c_table(uint32_t crc, const void *bytes, size_t count); /* the same without the CPU instruction */

#endif
