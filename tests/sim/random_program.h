/*
 * A random program: one list of actions in one order; each rank runs its own actions in that order. It is data: made
 * from a seed, printed and read as text, reduced action by action. Peers, roots and targets are named so that a shorter
 * list stays meaningful: by ranks of the world, and by the number of the statement that all actions of one collective,
 * message or gate share.
 */
#ifndef SIM_RANDOM_PROGRAM_H
#define SIM_RANDOM_PROGRAM_H

#include <commstream/comm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    RANDOM_RANKS = 8,
    RANDOM_COMMS = 12,
    RANDOM_EVENTS = 4, /* of each rank */
    RANDOM_PLANS = 4,
    RANDOM_GROUPS = 100, /* numbers of plans from here on are groups, each used once */
    RANDOM_FAULTS = 32,
    RANDOM_ACTIONS = 4096,
    RANDOM_OWN = 1024, /* actions of one rank */
    RANDOM_ARENAS = 5, /* of each rank: one for each element type, and one for data that is never read */
    RANDOM_TRASH = 4,  /* the index of that one */
    RANDOM_SLACK = 64, /* bytes of canary on both sides of an arena */
    RANDOM_TRASH_TAG = 1 << 20,
};

enum random_verb {
    RANDOM_BARRIER,
    RANDOM_BROADCAST,
    RANDOM_REDUCE,
    RANDOM_ALLREDUCE,
    RANDOM_ALLGATHER,
    RANDOM_SCATTERED,
    RANDOM_SCAN,
    RANDOM_EXSCAN,
    RANDOM_GATHER,
    RANDOM_SCATTER,
    RANDOM_ALLTOALL,
    RANDOM_REFUSED, /* all ranks make a call that each of them refuses */
    RANDOM_WINDOW,
    RANDOM_WINDOW_FENCE,
    RANDOM_BUCKETS, /* begins a step: gradients become ready; none of the calls that it issues has a request */
    RANDOM_SPLIT,
    RANDOM_DUP,        /* the last of the collectives */
    RANDOM_PLAN_START, /* several collectives */
    RANDOM_GROUP,      /* the same as one batch: its contents come before it in the list, under its number */
    RANDOM_SUBSET,     /* these five are outside the queue */
    RANDOM_SHRINK,
    RANDOM_ATOMIC, /* a call on one word of a window */
    RANDOM_SEND,
    RANDOM_RECV, /* the last with a request */
    RANDOM_AGREE,
    RANDOM_BUCKETS_WAIT, /* for the step of the same statement */
    RANDOM_WINDOW_FREE,
    RANDOM_PLAN_BEGIN,
    RANDOM_PLAN_END,
    RANDOM_PLAN_FREE,
    RANDOM_RECORD,
    RANDOM_RESET,
    RANDOM_SET,
    RANDOM_RENEW, /* destroys an event and creates another */
    RANDOM_WAIT_EVENT,
    RANDOM_WAIT_REQUEST,
    RANDOM_HOST_WAIT,
    RANDOM_HOST_ANY,  /* wait_any or wait_some over the last requests */
    RANDOM_HOST_LAST, /* comm_wait(comm_last) */
    RANDOM_EVENT_SYNC,
    RANDOM_SYNC,
    RANDOM_TEST,
    RANDOM_CANCEL,
    RANDOM_PROBE,
    RANDOM_FILL, /* the host writes a range that it owns again */
    RANDOM_PROGRESS,
    RANDOM_SPEND, /* computes */
    RANDOM_CLOSE,
    RANDOM_REVOKE,
    RANDOM_ABORT,
    RANDOM_VERBS
};

/* What a rank does instead of the action as written, which would have been right. */
enum random_misuse {
    RANDOM_RIGHT,
    RANDOM_OTHER_OP,
    RANDOM_OTHER_COUNT,
    RANDOM_OTHER_TYPE,
    RANDOM_OTHER_ROOT,
    RANDOM_OTHER_VERB,
    RANDOM_SKIPPED,  /* the call is missing */
    RANDOM_EXTRA,    /* another call, of a form that no other rank makes, comes before it */
    RANDOM_LATER,    /* made after the rank's next collective of that communicator */
    RANDOM_REFUSES,  /* this rank's call has an invalid argument */
    RANDOM_CLOSES,   /* this rank closes the communicator instead, and makes no more calls on it */
    RANDOM_DESTROYS, /* the event is destroyed before its manual point was set */
    RANDOM_REVOKES,  /* not a mistake: before the call this rank revokes the communicator, or (the next one) aborts the world */
    RANDOM_ABORTS,
    RANDOM_MISUSES
};

enum random_flag {
    RANDOM_ANY_PEER = 1,
    RANDOM_ANY_TAG = 2,
    RANDOM_NO_REQUEST = 4, /* req is NULL: nobody waits for this one; subset and shrink: the call itself waits */
    RANDOM_NOTIFY = 8,
    RANDOM_DOOMED = 16,  /* an unmatched receive, which is cancelled */
    RANDOM_SHORT = 32,   /* a receive that is shorter than its message */
    RANDOM_SOME = 64,    /* HOST_ANY: comm_wait_some */
    RANDOM_RAGGED = 128, /* the v form, with blocks of up to n elements; for a broadcast: broadcast_bytes */
    RANDOM_ALL = 256,    /* HOST_ANY: comm_wait_all; SYNC: comm_sync_all */
    RANDOM_LOOP = 512,   /* HOST_WAIT: an event loop that sleeps on comm_fd */
    RANDOM_NOBODYS =
        1024, /* not made: the request that it would have had is null; SYNC: replaces a wait for such a request (random_run_end) */
};

struct random_action {
    int32_t verb, id, rank,
        comm;                 /* id: the statement; one rank has at most one action per statement, except begin, end and set of an object */
    int32_t type;             /* an arena */
    int32_t op, root, n;      /* root: a rank of the world */
    int32_t in, out;          /* first element; in -1: in place */
    int32_t peer, tag, flags; /* peer: a rank of the world */
    int32_t event, target;    /* target: a statement of which this rank has an action */
    int32_t child, color, key; /* key: for a v form, the lengths of the blocks; child: the communicator that this rank gets; -1: none */
    int32_t plan;              /* >= 0: recorded into that plan, or an action on the plan */
    int32_t misuse;
};

enum random_fault_kind { RANDOM_FAULT_KINDS = 16 }; /* numbered as in sim.h */
struct random_fault {
    uint64_t event;
    int64_t ns;
    int32_t kind, victim, peer, amount;
};

struct random_program {
    uint64_t seed, schedule; /* of its data; of the run in which it failed */
    int32_t swarm;           /* kinds of faults that the schedule may sample, numbered as in sim.h */
    int32_t ranks, bytes;    /* bytes of an arena */
    int32_t window, queue, minimal;
    int32_t progress, notify; /* comm_progress_mode, comm_notify_mode */
    int32_t wire, hosts;      /* numbered as in sim.h */
    int32_t timeout_ms;
    struct random_fault fault[RANDOM_FAULTS];
    int32_t faults;
    struct random_action action[RANDOM_ACTIONS];
    int32_t actions;
};

/* The members of a communicator: they follow from the actions that create it and, for a shrunk one, from the ranks left
 * out. */
struct random_comm {
    int32_t parent, members, maker; /* maker: the verb */
    int32_t world[RANDOM_RANKS];    /* by rank of the communicator */
    int32_t rank_of[RANDOM_RANKS];  /* by rank of the world; -1: no member */
};
struct random_comms {
    struct random_comm comm[RANDOM_COMMS];
    uint32_t lacks[RANDOM_COMMS]; /* the ranks left out when it was shrunk, one bit per rank of the world; never set here */
};

/* The bytes of an arena that an action reads and writes. */
struct random_range {
    int32_t from, to;
};
struct random_touch {
    struct random_range read, write;
};

extern const enum comm_type random_types[RANDOM_ARENAS];
extern const char *const random_verb_names[RANDOM_VERBS];
extern const char *const random_misuse_names[RANDOM_MISUSES];

int32_t random_unit(int32_t type);       /* bytes of an element */
bool random_is_collective(int32_t verb); /* has a number in the communicator, plans aside */
bool random_has_request(int32_t verb);
bool random_creates(int32_t verb);             /* a communicator */
static inline bool random_beside(int32_t verb) /* its request is outside the queue */
{
    return verb >= RANDOM_SUBSET && verb <= RANDOM_RECV;
}
static inline bool random_meets(int32_t verb) /* ends when all ranks that make it have called */
{
    return verb == RANDOM_SUBSET || verb == RANDOM_SHRINK || verb == RANDOM_AGREE;
}
static inline bool random_recovers(int32_t verb) /* only one of these at a time */
{
    return verb == RANDOM_SHRINK || verb == RANDOM_AGREE;
}
static inline bool random_starts(int32_t verb) /* starts something recorded */
{
    return verb == RANDOM_PLAN_START || verb == RANDOM_GROUP;
}
static inline bool random_orders(int32_t verb) /* the host or a queue continues behind it */
{
    return verb == RANDOM_WAIT_EVENT || verb == RANDOM_WAIT_REQUEST || verb == RANDOM_HOST_WAIT || verb == RANDOM_EVENT_SYNC ||
           verb == RANDOM_SYNC || verb == RANDOM_HOST_LAST || verb == RANDOM_CLOSE;
}
static inline bool random_by_host(int32_t verb) /* the host accesses the memory when it gets there */
{
    return verb == RANDOM_FILL || verb == RANDOM_BUCKETS;
}
bool random_issues(const struct random_action *a); /* adds something to a communicator's lines: has a request, and is not recorded */
bool random_reduces(int32_t verb);
bool random_rooted(int32_t verb);
int32_t random_blocks_in(int32_t verb, int32_t members);
int32_t random_blocks_out(int32_t verb, int32_t members);
/* Elements that one member sends another, and where they lie in the sender's `in` and the receiver's `out`; with i =
 * members: all of them. */
int32_t random_block(const struct random_action *a, int32_t from, int32_t to);
int32_t random_in_at(const struct random_action *a, int32_t members, int32_t me, int32_t to);
int32_t random_out_at(const struct random_action *a, int32_t members, int32_t me, int32_t from);
/* Reads comms->lacks, and writes everything else. */
void random_comms_of(const struct random_program *p, struct random_comms *comms);
/* Whether the call is not made: its rank, root or peer is not in the communicator as it was created. */
bool random_absent(const struct random_action *a, const struct random_comms *comms);
/* Whether it starts a plan or group that is empty, because all its contents name ranks that were left out: then its
 * request is null. */
bool random_emptied(const struct random_program *p, int32_t index, const struct random_comms *comms);
/* A rank's contribution to an agreement: all bits except its own. */
static inline uint64_t random_gives(int32_t rank)
{
    return ~(UINT64_C(1) << rank);
}
struct random_touch random_touched(const struct random_action *a, const struct random_comms *comms);
static inline bool random_overlap(struct random_range a, struct random_range b)
{
    return a.from < b.to && b.from < a.to;
}
bool random_conflict(const struct random_action *a, const struct random_action *b, const struct random_comms *comms);
/* random_bucket.c. A step of gradient buckets: n elements from `out` on, cut into gradients, some of which a rank never
 * makes ready. */
enum { RANDOM_GRADIENTS = 8 };
int32_t random_gradients(const struct random_action *a);
int32_t random_gradient_at(const struct random_action *a, int32_t i); /* its first element; with i = the number of gradients: the end */
bool random_is_ready(const struct random_action *a, int32_t i);
int32_t random_bucket_calls(const struct random_action *a); /* the largest number of reductions that result from it */
/* random_window.c. A call on a window: on word `tag` of the part of `peer`, adding the bit `key`. */
enum random_atomic_sort {
    RANDOM_FETCH_SUM,
    RANDOM_FETCH_BOR, /* for floating-point words: a sum */
    RANDOM_FETCH_BXOR,
    RANDOM_ACCUMULATE, /* without the old value */
    RANDOM_COMPARE_SWAP,
    RANDOM_FETCH, /* adds nothing */
    RANDOM_ATOMIC_SORTS
};
enum { RANDOM_WORDS = 9, RANDOM_WORD_BYTES = 8, RANDOM_PART_BYTES = 80 };
enum comm_type random_word_type(int32_t word);
int32_t random_word_bits(int32_t word); /* this many calls can each add a bit of their own to it */
bool random_adds(const struct random_action *a);
/* The action with which this rank made the window of index; -1: none. */
int32_t random_window_of(const struct random_program *p, int32_t index);
/* The action of statement id that this rank runs and that has a request, before `before`; -1: none. */
int32_t random_find(const struct random_program *p, int32_t id, int32_t rank, int32_t before);

/* random_make.c. The kind of program; the same seed and sort give the same program. Every third has windows and
 * buckets. */
static inline bool random_has_objects(const struct random_program *p)
{
    return p->seed % 3 == 0;
}
enum random_sort { RANDOM_SORT_CORRECT, RANDOM_SORT_WRONG, RANDOM_SORT_FAULTS, RANDOM_SORTS };
void random_make(struct random_program *p, uint64_t seed, enum random_sort sort);
/* random_wrong.c. Whether some rank can notice the change that one rank makes. */
bool random_is_mistake(const struct random_program *p);

/* random_text.c. read: 0, or the number of the first invalid line. */
void random_print_action(FILE *to, const struct random_action *a);
void random_print(FILE *to, const struct random_program *p);
int random_read(FILE *from, struct random_program *p);

#endif
