/*
 * verify: all ranks of a team in one place, run by the real interpreter over a wire that has ONE place per edge and ONE credit, with
 * a kernel that computes which contributions met in which order instead of numbers.
 */
#ifndef PROGRAM_VERIFY_H
#define PROGRAM_VERIFY_H

#include "program/program.h"

enum {
    CHECK_RANKS_MAX = 400,
    CHECK_RAW_BYTES = 8, /* unlike each other, so that a mixed-up kind shows */
    CHECK_PARTIAL_BYTES = 16,
    CHECK_CREDITS = 4,
};

/* ------------------------------------------------------------------------------------------------------------ symbols */
/* What an element's bytes hold: contributions lo .. hi - 1 of a team of `size` to `element`, in T's order. */
enum check_kind { CHECK_RAW = 1, CHECK_PARTIAL = 2, CHECK_FINAL = 3 };
struct check_symbol {
    uint32_t element, size, lo, hi;
    enum check_kind kind;
};
uint64_t check_pack(struct check_symbol symbol);
data_reduce_fn check_reduce;

/* ------------------------------------------------------------------------------------------------------------ the wire */
/* KEEP: an exposure completes as late as may be; otherwise at once. PADS: reserve gives
 * places. ONE: a rank may ask for one view of an edge at a time. DEEP: several credits, so
 * that exposers run far ahead of readers. */
enum check_mode { CHECK_KEEP = 1, CHECK_PADS = 2, CHECK_ONE = 4, CHECK_DEEP = 8 };
enum check_reader { READER_NONE = 0, READER_WAITS, READER_VIEWS, READER_BACK };

struct check_place {
    wire_key key, last; /* key 0: free */
    const void *kept;   /* the exposer's bytes, which it must not touch while the exposure is pending */
    char *copy;         /* the place's own bytes, where readers read */
    size_t bytes;
    uint64_t cookie;
    uint32_t fingerprint, left; /* left: readers that have not given it back */
    int32_t source;
    bool pending;
    uint8_t kind;    /* enum wire_edge */
    uint8_t *reader; /* by rank; of a private edge one */
};

struct check_rank {
    struct wire_channel channel; /* first: the wire's functions find the rank by it */
    struct check *check;
    struct comm_program *program;
    struct run run;
    size_t *counts, *displs, *in_counts, *in_displs; /* of its call; NULL: blocks of `elements` */
    struct wire_look *look;                          /* pending */
    uint64_t *done;                                  /* cookies of completed exposures */
    uint32_t looks, dones;
    int32_t rank;
    bool started, ended;
    char *memory, *image;            /* all that this rank may write, and what must be there at the end */
    size_t memory_bytes, keep_bytes; /* the whole, and as far as the image goes */
};

struct check {
    const struct comm_env *env;
    struct check_block *blocks; /* memory to give back */
    program_build_fn *build;
    uint32_t collective, mode, edges;
    int32_t size, root;
    const struct program_hosts *hosts;
    size_t elements, chunk_bytes, once_bytes;
    struct check_rank *rank;
    struct check_place *place[PROGRAM_EDGES_MAX];
    uint64_t moves; /* what happened on the wire: a sweep over all ranks without one is a deadlock */
    char *text;
    size_t text_bytes;
    bool broken, no_memory;
};

void *check_take(struct check *check, size_t bytes); /* zeroed, NULL remembered in no_memory */
/* The first broken rule, with the rank and what it was at. */
void check_fail(struct check *check, const struct check_rank *rank, const char *rule);
bool check_wire_open(struct check *check); /* places and channels, once the programs are there */
void check_wire_events(struct check_rank *rank);
bool check_wire_send(struct check *check); /* all pending lines complete: for when nothing else moves */
void check_wire_end(struct check *check);  /* every exposure was viewed and given back */

/* ------------------------------------------------------------------------------------------------------------ the whole */
/* COMM_OK, or ERR_CORRUPT with the rank, step and rule in text: each expose has its view and back; no cyclic wait; each output element
 * holds each contribution once, in the order of T; nothing outside the outputs is written. */
enum comm_result program_check(const struct comm_env *env, program_build_fn *build, uint32_t collective, int32_t size, int32_t root,
                               size_t elements, char *text, size_t text_bytes);
/* The same of ranks that lie so. */
enum comm_result program_check_hosts(const struct comm_env *env, program_build_fn *build, uint32_t collective, int32_t size, int32_t root,
                                     size_t elements, const struct program_hosts *hosts, char *text, size_t text_bytes);

#endif
