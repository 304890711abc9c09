/* The ways of shm_floor.c: who moves which bytes of an allreduce, a broadcast or an allgather of two processes, by hand. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE = 64, LINE_DATA = 48, LINES = 8, WINDOW = 1 << 20, METHODS = 16, COLLECTIVES = 3 };

/* How a method moves lines. */
enum {
    DIRTY = 1, /* who has read a line of the window writes a word of it */
    PAST = 2   /* what goes to the caller's memory bypasses the cache, if the processor has AVX-512 */
};

struct line {
    _Alignas(LINE) _Atomic uint32_t number;
    char data[LINE_DATA];
};
struct counter {
    _Alignas(2 * LINE) _Atomic uint64_t value;
};
/* What one rank writes first. The other writes into its window, too, if it makes lines dirty or answers in place. */
struct side {
    struct line line[LINES];
    struct counter staged, done;
    _Alignas(4096) char window[WINDOW];
};
struct rank {
    struct side *mine, *theirs;
    size_t index;    /* 0 or 1 */
    uint64_t chunks; /* of the calls before this one */
    uint32_t lines;
};

/* One way to do one of the collectives. */
struct method {
    void (*run)(struct rank *, const struct method *, const char *in, char *out, size_t bytes);
    size_t least, most; /* bytes that it is for */
    size_t chunk;       /* bytes */
    size_t slots;       /* chunks in the window */
    unsigned how;
};
struct collective {
    const char *name;
    size_t outs; /* vectors in the output */
    struct method methods[METHODS];
};
extern const struct collective collectives[COLLECTIVES]; /* allreduce, broadcast, allgather */

/* Sends up to LINE_DATA bytes to the other, and returns what it sent. Neither rank returns before the other has called. */
const char *exchange(struct rank *rank, const char *in, size_t bytes);
