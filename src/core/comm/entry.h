/*
 * What is in a communicator's queue: collectives and waits in one line, messages and markers in another. Also the place of a running
 * operation, and the record kept for descriptions and traces.
 */
#ifndef COMM_ENTRY_H
#define COMM_ENTRY_H

#include "comm/call.h"
#include "program/program.h"

struct comm_state;
struct stage;
struct call_template;
struct pack;
struct user_op;

/* ENDED: the work is done; the function returns the result. RETIRED comes next, just before the request completes. DROPPED comes instead of
 * either one if the communicator failed, and nothing comes after it. */
enum entry_phase { ENTRY_ENDED, ENTRY_RETIRED, ENTRY_DROPPED };
typedef enum comm_result entry_ended_fn(struct comm_state *state, enum entry_phase phase, void *arg);

/* What describe_request and traces report of an operation. It has one cache line, so that storing it is one copy. */
struct record {
    uint64_t ticket, bytes;
    int64_t queued_ns, started_ns, completed_ns;
    const char *algorithm;
    uint32_t sequence;
    uint16_t collective;
    uint16_t waited; /* 1 + the last rank whose data were missing when looked for; 0: none */
    int32_t result;
    uint32_t flags; /* COMM_INFO_* */
};
_Static_assert(sizeof(struct record) == 64, "one cache line");

/* What executes the entry: a program, the communicator's native, or, for a queue wait, the native's stream. */
enum entry_by { ENTRY_BY_PROGRAM = 0, ENTRY_BY_NATIVE, ENTRY_BY_STREAM };

struct entry {
    struct timeline_entry head;
    struct run_call call;
    struct comm_program *program; /* a reference */
    size_t *vectors;              /* copied counts and displs, from the state's pool; NULL: none */
    entry_ended_fn *ended;        /* next stage of a call that creates something */
    void *ended_arg;
    struct timeline_point point;    /* of a queue wait */
    struct user_op *user;           /* user-defined operator: a reference */
    struct pack *pack;              /* small members of a group in one exchange: a reference */
    struct standing *standing;      /* of a call that the library keeps between the starts of its plan: a reference */
    struct stage *stage;            /* of an operation on device buffers, after it has started */
    struct comm_window *window;     /* for a fence of a window */
    struct call_template *template; /* of a small exchange */
    uint32_t seq;
    uint8_t unshown, unread;     /* small exchange: spans not shown yet, and shown spans that the wire has not read yet */
    bool spill;                  /* the data do not fit: they go to memory of the library and are dropped */
    uint32_t fingerprint, chain; /* of this call; of this call and all before it */
    int32_t root;
    uint64_t sum;         /* with check=buffers: checksum of the input at the start */
    size_t pitch;         /* as in struct engine_call; in a stage the blocks are dense */
    const size_t *places; /* the same; NULL: not a part of a call with counts */
    size_t packed;        /* with places: bytes of all blocks together */
    uint8_t by;           /* enum entry_by */
    uint8_t flags;        /* ENGINE_CALL_* */
    uint8_t on_device;    /* CALL_*_ON_DEVICE, CALL_*_BY_CPU */
    bool joining;         /* `ended` returned PENDING: each pass calls it again */
    bool parked;          /* ENTRY_BY_STREAM: its point has not been reached */
    struct record record; /* as it will be stored; ticket, result and completed_ns are set at the end */
};

/* A part of a call in blocks, which are apart in the caller's buffers and dense in a stage. */
static inline bool entry_in_blocks(const struct entry *e)
{
    return e->pitch || e->places;
}

/* With places: the address range that has a block of each rank. The other one has one block. */
static inline const struct timeline_range *entry_blocks(const struct entry *e)
{
    return e->record.collective == COLLECTIVE_ALLGATHER_V ? &e->head.write : &e->head.read;
}

/* The bytes of an address range of the entry that are its own. Those between two blocks of a part are not. */
static inline size_t entry_bytes(const struct entry *e, const struct timeline_range *range)
{
    size_t bytes = range->to - range->from;

    if (BASE_UNLIKELY(e->places != NULL))
        return range == entry_blocks(e) ? e->packed : bytes;
    if (BASE_LIKELY(!e->pitch || !bytes))
        return bytes;
    size_t block = e->call.n * data_type_bytes(e->call.type);
    return ((bytes - block) / e->pitch + 1) * block;
}

/* The start of memory that no run uses at present. */
struct spare {
    struct spare *next;
    size_t bytes;
};

/* Memory that a run has of its communicator until it ends. */
struct loan {
    char *at;
    size_t bytes; /* 0: none */
};

/* One place of the window: a run and what it has borrowed. */
struct run_slot {
    struct run run;
    struct loan views, scratch;
};

#endif
