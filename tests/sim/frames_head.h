/* The header of a frame, by the codec of the network backend (src/net/frame/frame.h). */
#ifndef TESTS_SIM_FRAMES_HEAD_H
#define TESTS_SIM_FRAMES_HEAD_H

#include <stdbool.h>
#include <stdint.h>

enum { FRAMES_HEAD = 32 };
/* Numbered as the kinds in frames.h. */
enum head_kind {
    HEAD_BYTES,
    HEAD_ACK,
    HEAD_RETIRED,
    HEAD_NOTE,
    HEAD_EAGER,
    HEAD_ANNOUNCE,
    HEAD_GRANT,
    HEAD_DATA,
    HEAD_CONSUMED,
    HEAD_KINDS,
};
struct head_said {
    uint32_t kind, edge, from, channel, tag, number;
    uint64_t key, bytes;
};
void head_write(const struct head_said *said, unsigned char head[FRAMES_HEAD]);
/* number: the connection's next frame. False: the header is invalid, and the connection ends. */
bool head_read(const unsigned char head[FRAMES_HEAD], uint32_t number, struct head_said *said);

#endif
