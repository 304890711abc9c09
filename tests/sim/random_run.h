/*
 * random_run: runs a program. Every rank is a function that makes its calls in order, on any stage (threads of this
 * process, or the simulator's ranks), and records what it saw: the first known result of every request, a hash of the
 * memory that the request left, and each communicator's final error. Almost nothing is judged here; oracle_check and
 * invariant do that afterwards.
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

/* Where ranks run. fail does not return. */
struct random_stage {
    enum comm_result (*open)(struct random_run *run, int32_t rank, struct comm_communicator **world);
    int64_t (*now)(void);
    void (*spend)(int64_t ns);
    /* Whether the descriptor is readable. NULL: ranks share an engine, whose descriptor is for one loop, and
     * comm_sync_all waits for all ranks. */
    bool (*poll)(int fd, int64_t timeout_ns);
    void (*fail)(const char *text);
    bool (*dead)(int32_t rank);    /* killed */
    bool (*suspect)(int32_t rank); /* killed, or stood still for so long that others may give it up */
    void (*doing)(const char *operation, uint64_t number);
};

struct random_note {
    struct random_run *run;
    int32_t action, count, result;
};

/* The buffers of one call on a window. */
struct random_atomic {
    unsigned char from[16], expected[16], old[16];
    uint64_t expects; /* the set of calls that `expected` represents */
};

struct random_run {
    const struct random_program *p;
    const struct random_stage *stage;
    struct random_comms view[RANDOM_RANKS]; /* members of communicators, as each rank knows them */
    struct random_comms comms;              /* and as they were at the end */
    bool met[RANDOM_COMMS][RANDOM_RANKS];   /* this rank has looked up the members of that shrunk communicator */
    struct random_program *left;            /* random_run_end: the program without calls that were not made; NULL: there are none */
    bool strict;                            /* nothing may fail: no misuse, and no fault that can cause a failure */
    bool faults;                            /* some faults may end ranks or operations */
    int32_t misused;                        /* the action with misuse, -1: none */
    unsigned char *block[RANDOM_RANKS][RANDOM_ARENAS],
        *final[RANDOM_RANKS][RANDOM_ARENAS]; /* with canaries; and contents after the last close */
    /* for every action */
    struct comm_request request[RANDOM_ACTIONS];
    struct comm_status status[RANDOM_ACTIONS];
    size_t length[RANDOM_ACTIONS];   /* for a broadcast_bytes */
    uint64_t agreed[RANDOM_ACTIONS]; /* the result of an agreement */
    bool entered[RANDOM_ACTIONS];    /* the call was made */
    struct random_note note[RANDOM_ACTIONS];
    int32_t outcome[RANDOM_ACTIONS], waited[RANDOM_ACTIONS]; /* comm_result, PENDING: not seen yet; waited: what blocking calls and calls
                                                              * without a request returned */
    uint64_t seen[RANDOM_ACTIONS];
    bool looked[RANDOM_ACTIONS];                               /* seen is a hash of what its request left */
    struct comm_buckets *buckets[RANDOM_ACTIONS];              /* at the action that began the step */
    unsigned char *gradient[RANDOM_ACTIONS][RANDOM_GRADIENTS]; /* their memory */
    struct comm_window *window[RANDOM_ACTIONS];                /* at the action that made it */
    struct random_atomic atomic[RANDOM_ACTIONS];
    unsigned char part[RANDOM_ACTIONS][RANDOM_PART_BYTES]; /* at a window's end: what this rank's own part contained then */
    /* for every rank */
    struct comm_communicator *comm[RANDOM_COMMS][RANDOM_RANKS];
    struct comm_event *event[RANDOM_RANKS][RANDOM_EVENTS];
    struct comm_plan *plan[RANDOM_PLANS][RANDOM_RANKS];
    struct comm_communicator *recorder[RANDOM_PLANS][RANDOM_RANKS];
    struct comm_error early[RANDOM_COMMS][RANDOM_RANKS]; /* when all lists were finished and some time had passed; size 0: not asked */
    struct comm_error error[RANDOM_COMMS][RANDOM_RANKS]; /* before its close */
    uint64_t sequence[RANDOM_ACTIONS];                   /* of a collective, from describe; 0: unknown */
    uint64_t deepest[RANDOM_COMMS][RANDOM_RANKS];        /* largest length of its queue */
    int32_t closed[RANDOM_COMMS][RANDOM_RANKS];          /* what close returned, PENDING: not closed */
    uint64_t told_ticket[RANDOM_COMMS][RANDOM_RANKS];    /* of its last callback for work */
    _Atomic bool told_wrongly;                           /* callbacks for work came out of order */
    _Atomic bool stuck;   /* a rank that found a broken order waited for long: others may have exceeded their deadlines */
    _Atomic bool no_room; /* a rank waited for long for room in its queue */
    _Atomic bool racy;    /* a rank stopped waiting for its order: the contents of memory are left to chance */
    enum random_lost { LOST_NOT, LOST, LOST_OF_NOBODY } lost[RANDOM_RANKS][RANDOM_EVENTS]; /* the event does not hold its point */
    struct comm_communicator *nobody[RANDOM_RANKS];                                        /* what a rank without a color gets */
    bool extra_made;
    struct comm_request extra[RANDOM_RANKS];
    int64_t extra_memory[RANDOM_RANKS][4];
    int32_t late[RANDOM_RANKS];                               /* a call that is made later, -1: none */
    _Atomic int32_t listed[RANDOM_RANKS], gone[RANDOM_RANKS]; /* its list is finished; it has closed everything */
    int64_t early_ns[RANDOM_RANKS];                           /* when `early` was asked */
    int64_t fault_ns;                                         /* time of the last fault; 0: none */
    bool prompt;                                              /* no rank stood still or was slow; at most, ranks were killed */
    int32_t opened[RANDOM_RANKS];                             /* what open returned */
    int64_t longest_ns[RANDOM_RANKS];                         /* the longest time of one call */
};

bool random_run_make(struct random_run *run, const struct random_program *p, const struct random_stage *stage);
void random_run_free(struct random_run *run);
/* Called when all ranks have ended, before anything is judged: changes the program to what the remaining ranks ran. */
void random_run_end(struct random_run *run);
/* What a rank does, from open to close. */
void random_rank(struct random_run *run, int32_t rank);

/* random_wait.c. Records what a test or wait returned for action index when this rank was before action `now`. */
void random_saw(struct random_run *run, int32_t index, int32_t now, enum comm_result result);
void random_wait_for(struct random_run *run, int32_t target, int32_t now);
void random_wait_any(struct random_run *run, int32_t index);
void random_note_end(struct comm_request request, enum comm_result result, void *arg); /* a callback; arg: struct random_note */

/* random_order.c. The action whose request is meant; -1: none, because its call was not made or was refused. */
int32_t random_target(const struct random_run *run, int32_t index);
/* After an action, made or not: if it should have ordered and did not, the host waits instead. */
void random_keep_order(struct random_run *run, int32_t index, bool made);
/* The communicator's error; size 0: none. */
void random_ask_error(const struct random_run *run, int32_t comm, int32_t rank, struct comm_error *error);

/* random_bucket.c */
enum comm_result random_bucket_begin(struct random_run *run, int32_t index);
void random_bucket_wait(struct random_run *run, int32_t index);
void random_bucket_drop(struct random_run *run, int32_t comm, int32_t rank); /* drops steps that were not waited for */

/* random_window.c */
enum comm_result random_window_call(struct random_run *run, int32_t index, struct comm_request *req);
void random_window_free(struct random_run *run, int32_t index);
void random_window_drop(struct random_run *run, int32_t rank);           /* drops windows that were not freed: their communicators are
                                                                          * closed */
bool random_window_missing(const struct random_run *run, int32_t index); /* whether it uses a window that was never created */
uint64_t random_word_get(int32_t word, const unsigned char *at);         /* the set of bits in a word; all bits: it is not valid */

/* random_call.c */
enum comm_result random_call(struct random_run *run, int32_t index);
void random_fail(struct random_run *run, int32_t index, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Nothing takes this long. */
static inline int64_t random_patience(const struct random_run *run)
{
    return 3 * run->p->timeout_ms * RANDOM_MS + 50 * RANDOM_S;
}
static inline unsigned char *random_arena(const struct random_run *run, int32_t rank, int32_t type)
{
    return run->block[rank][type] + RANDOM_SLACK;
}
#endif
