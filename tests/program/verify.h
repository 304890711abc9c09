/*
 * verify: runs all ranks of a team in one place with the real interpreter, over a wire with ONE place per edge and ONE
 * credit. Its kernel computes which contributions were combined in which order, instead of numbers.
 */
#ifndef PROGRAM_VERIFY_H
#define PROGRAM_VERIFY_H

#include "program/program.h"

enum {
    CHECK_RANKS_MAX = 400,
    CHECK_RAW_BYTES = 8, /* different, so that a confusion of kinds is detected */
    CHECK_PARTIAL_BYTES = 16,
    CHECK_CREDITS = 4,
};

/* ------------------------------------------------------------------------------------------------------------ symbols */
/* The content of an element's bytes: contributions lo .. hi - 1 of a team of `size` to `element`, in T's order. */
enum check_kind { CHECK_RAW = 1, CHECK_PARTIAL = 2, CHECK_FINAL = 3 };
struct check_symbol {
    uint32_t element, size, lo, hi;
    enum check_kind kind;
};
uint64_t check_pack(struct check_symbol symbol);
data_reduce_fn check_reduce;

/* ------------------------------------------------------------------------------------------------------------ the wire */
/* KEEP: an exposure completes as late as possible; otherwise at once. PADS: reserve returns places, and without KEEP the
 * places of what is answered. ONE: a rank may request one view of an edge at a time. DEEP: several credits, so that
 * exposers run far ahead of readers. */
enum check_mode { CHECK_KEEP = 1, CHECK_PADS = 2, CHECK_ONE = 4, CHECK_DEEP = 8 };
enum check_reader { READER_NONE = 0, READER_WAITS, READER_VIEWS, READER_ANSWERS, READER_BACK };

struct check_place {
    wire_key key, last; /* key 0: free */
    const void *kept;   /* the exposer's bytes, which it must not change while the exposure is pending */
    char *copy;         /* the place's own bytes, which readers read */
    size_t bytes;
    uint64_t cookie;
    uint32_t fingerprint, left; /* left: readers that have not released it */
    int32_t source;
    struct check_place *asked; /* NULL, or the place where this exposure's bytes are, in answer to what was exposed there */
    bool pending;
    uint8_t kind;    /* enum wire_edge */
    uint8_t *reader; /* by rank; for a private edge one */
};

struct check_rank {
    struct wire_channel channel; /* first: the wire's functions find the rank by it */
    struct check *check;
    struct comm_program *program;
    struct run run;
    size_t *counts, *displs, *in_counts, *in_displs; /* of its call; NULL: blocks of `elements` */
    struct wire_look *look;                          /* pending views */
    uint64_t *done;                                  /* cookies of completed exposures */
    uint32_t looks, dones;
    int32_t rank;
    bool started, ended;
    char *memory, *image;            /* all memory that this rank may write, and its expected contents at the end */
    size_t memory_bytes, keep_bytes; /* the size of all, and of the part that is compared */
};

struct check {
    const struct comm_env *env;
    struct check_block *blocks; /* memory to free */
    program_build_fn *build;
    uint32_t collective, mode, edges;
    int32_t size, root;
    const struct program_hosts *hosts;
    size_t elements, chunk_bytes, once_bytes;
    struct check_rank *rank;
    struct check_place *place[PROGRAM_EDGES_MAX];
    uint64_t moves; /* number of moves on the wire: a sweep over all ranks without a move is a deadlock */
    char *text;
    size_t text_bytes;
    bool broken, no_memory;
};

void *check_take(struct check *check, size_t bytes); /* zeroed; a failure is remembered in no_memory */
/* Records the first violation, with the rank and its position. */
void check_fail(struct check *check, const struct check_rank *rank, const char *rule);
bool check_wire_open(struct check *check); /* makes places and channels, once the programs exist */
void check_wire_events(struct check_rank *rank);
bool check_wire_send(struct check *check); /* completes all pending lines: for when nothing else moves */
void check_wire_end(struct check *check);  /* checks that every exposure was viewed and released */

/* ------------------------------------------------------------------------------------------------------------ the whole */
/* COMM_OK, or ERR_CORRUPT with the rank, step and rule in text. Checks that each exposure is viewed and released, that
 * there is no cyclic wait, that each output element contains each contribution once in the order of T, and that nothing
 * outside the outputs is written. */
enum comm_result program_check(const struct comm_env *env, program_build_fn *build, uint32_t collective, int32_t size, int32_t root,
                               size_t elements, char *text, size_t text_bytes);
/* The same for this placement of ranks. */
enum comm_result program_check_hosts(const struct comm_env *env, program_build_fn *build, uint32_t collective, int32_t size, int32_t root,
                                     size_t elements, const struct program_hosts *hosts, char *text, size_t text_bytes);

#endif
