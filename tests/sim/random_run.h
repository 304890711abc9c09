/*
 * random_run: a program, run. Every rank is a function that makes its calls in order, on whatever the stage is (threads of this process, or
 * the simulator's ranks), and writes down what it saw: the result of every request when it first had one, a hash of the memory that the
 * request left, each communicator's last words. Nothing is judged here but what cannot wait; oracle_check and invariant do that afterwards.
 */
#ifndef SIM_RANDOM_RUN_H
#define SIM_RANDOM_RUN_H

#include "sim/random_program.h"

#include <stdatomic.h>

#define RANDOM_MS INT64_C(1000000)
#define RANDOM_S INT64_C(1000000000)
enum {
    RANDOM_SKIP = -1000, /* an outcome: the call was not made */
    RANDOM_POISON = 0xa5,
    RANDOM_CANARY = 0x5c,
};

struct random_run;

/* Where ranks live. fail does not return. */
struct random_stage {
    enum comm_result (*open)(struct random_run *run, int32_t rank, struct comm_communicator **world);
    int64_t (*now)(void);
    void (*spend)(int64_t ns);
    /* Whether it is readable. NULL: ranks share an engine, whose descriptor is for one loop, and which comm_sync_all waits for all of. */
    bool (*poll)(int fd, int64_t timeout_ns);
    void (*fail)(const char *text);
    bool (*dead)(int32_t rank);    /* killed */
    bool (*suspect)(int32_t rank); /* that, or it stood still for so long that others may give it up */
    void (*doing)(const char *operation, uint64_t number);
};

struct random_note {
    struct random_run *run;
    int32_t action, count, result;
};

/* Buffers of one call on a window. */
struct random_atomic {
    unsigned char from[16], expected[16], old[16];
    uint64_t expects; /* the set that `expected` says */
};

struct random_run {
    const struct random_program *p;
    const struct random_stage *stage;
    struct random_comms view[RANDOM_RANKS]; /* who is where, as each rank knows it */
    struct random_comms comms;              /* and as it was in the end */
    bool met[RANDOM_COMMS][RANDOM_RANKS];   /* this rank has looked who is in that shrunk communicator */
    struct random_program *left;            /* random_run_end: the program without what nobody called; NULL: there is nothing of that */
    bool strict;                            /* nothing may fail: no wrong use, no fault that can */
    bool faults;                            /* some that may end ranks or operations */
    int32_t misused;                        /* the action, -1: none */
    unsigned char *block[RANDOM_RANKS][RANDOM_ARENAS],
        *final[RANDOM_RANKS][RANDOM_ARENAS]; /* with canaries; as it was after the last close */
    /* of every action */
    struct comm_request request[RANDOM_ACTIONS];
    struct comm_status status[RANDOM_ACTIONS];
    size_t length[RANDOM_ACTIONS];   /* of a broadcast_bytes */
    uint64_t agreed[RANDOM_ACTIONS]; /* what an agreement came to */
    bool entered[RANDOM_ACTIONS];    /* that the call was made */
    struct random_note note[RANDOM_ACTIONS];
    int32_t outcome[RANDOM_ACTIONS], waited[RANDOM_ACTIONS]; /* comm_result, PENDING: not seen yet; what blocking and plain calls said */
    uint64_t seen[RANDOM_ACTIONS];
    bool looked[RANDOM_ACTIONS];                               /* seen is a hash of what its request left */
    struct comm_buckets *buckets[RANDOM_ACTIONS];              /* by the action that began the step */
    unsigned char *gradient[RANDOM_ACTIONS][RANDOM_GRADIENTS]; /* where they live */
    struct comm_window *window[RANDOM_ACTIONS];                /* by the action that made it */
    struct random_atomic atomic[RANDOM_ACTIONS];
    unsigned char part[RANDOM_ACTIONS][RANDOM_PART_BYTES]; /* of a window's end: what this rank's own held then */
    /* of every rank */
    struct comm_communicator *comm[RANDOM_COMMS][RANDOM_RANKS];
    struct comm_event *event[RANDOM_RANKS][RANDOM_EVENTS];
    struct comm_plan *plan[RANDOM_PLANS][RANDOM_RANKS];
    struct comm_communicator *recorder[RANDOM_PLANS][RANDOM_RANKS];
    struct comm_error early[RANDOM_COMMS][RANDOM_RANKS]; /* when all lists were through and some time had passed; size 0: not asked */
    struct comm_error error[RANDOM_COMMS][RANDOM_RANKS]; /* before its close */
    uint64_t sequence[RANDOM_ACTIONS];                   /* of a collective, as describe tells it; 0: not told */
    uint64_t deepest[RANDOM_COMMS][RANDOM_RANKS];        /* its queue was */
    int32_t closed[RANDOM_COMMS][RANDOM_RANKS];          /* what close said, PENDING: not closed */
    uint64_t told_ticket[RANDOM_COMMS][RANDOM_RANKS];    /* of its last callback of work */
    _Atomic bool told_wrongly;                           /* callbacks of work out of order */
    _Atomic bool stuck;   /* a rank that found an order broken waited for long: others may have run into their deadlines */
    _Atomic bool no_room; /* a rank waited for long for a place in its queue */
    _Atomic bool racy;    /* and one that it gave up to wait for its order: what memory holds is left to chance */
    enum random_lost { LOST_NOT, LOST, LOST_OF_NOBODY } lost[RANDOM_RANKS][RANDOM_EVENTS]; /* the event does not hold its point */
    struct comm_communicator *nobody[RANDOM_RANKS];                                        /* what a rank without a color gets */
    bool extra_made;
    struct comm_request extra[RANDOM_RANKS];
    int64_t extra_memory[RANDOM_RANKS][4];
    int32_t late[RANDOM_RANKS];                               /* a call that is made later, -1: none */
    _Atomic int32_t listed[RANDOM_RANKS], gone[RANDOM_RANKS]; /* its list is through; it closed everything */
    int64_t early_ns[RANDOM_RANKS];                           /* when `early` was asked */
    int64_t fault_ns;                                         /* when the last fault came; 0: none */
    bool prompt;                                              /* nobody stood still or was slow: at most, ranks were killed */
    int32_t opened[RANDOM_RANKS];                             /* what open said */
    int64_t longest_ns[RANDOM_RANKS];                         /* that one call took */
};

bool random_run_make(struct random_run *run, const struct random_program *p, const struct random_stage *stage);
void random_run_free(struct random_run *run);
/* When all ranks have ended, before anything is judged: the program becomes the one that those who were left ran. */
void random_run_end(struct random_run *run);
/* What rank does, from open to close. */
void random_rank(struct random_run *run, int32_t rank);

/* random_wait.c. What a test or wait said of action index when this rank stood before action `now`. */
void random_saw(struct random_run *run, int32_t index, int32_t now, enum comm_result result);
void random_wait_for(struct random_run *run, int32_t target, int32_t now);
void random_wait_any(struct random_run *run, int32_t index);
void random_note_end(struct comm_request request, enum comm_result result, void *arg); /* a callback; arg: struct random_note */

/* random_order.c. The action whose request is meant, -1: there is none, for its call was not made or not granted. */
int32_t random_target(const struct random_run *run, int32_t index);
/* After an action, made or not: where it should have ordered and did not, the host waits instead. */
void random_keep_order(struct random_run *run, int32_t index, bool made);
/* What a communicator says of its failure; size 0: nothing. */
void random_ask_error(const struct random_run *run, int32_t comm, int32_t rank, struct comm_error *error);

/* random_bucket.c */
enum comm_result random_bucket_begin(struct random_run *run, int32_t index);
void random_bucket_wait(struct random_run *run, int32_t index);
void random_bucket_drop(struct random_run *run, int32_t comm, int32_t rank); /* steps that nobody waited for */

/* random_window.c */
enum comm_result random_window_call(struct random_run *run, int32_t index, struct comm_request *req);
void random_window_free(struct random_run *run, int32_t index);
void random_window_drop(struct random_run *run, int32_t rank);           /* windows that were not freed: their communicators are closed */
bool random_window_missing(const struct random_run *run, int32_t index); /* it is of a window that never came */
uint64_t random_word_get(int32_t word, const unsigned char *at);         /* the set of bits that a word says; all of them: it says none */

/* random_call.c */
enum comm_result random_call(struct random_run *run, int32_t index);
void random_fail(struct random_run *run, int32_t index, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Nothing takes as long as that. */
static inline int64_t random_patience(const struct random_run *run)
{
    return 3 * run->p->timeout_ms * RANDOM_MS + 50 * RANDOM_S;
}
static inline unsigned char *random_arena(const struct random_run *run, int32_t rank, int32_t type)
{
    return run->block[rank][type] + RANDOM_SLACK;
}
#endif
