/*
 * The state ("body") of a communicator, `b` in all files. The lock of its handle protects it. It consists of structs, each of which names
 * the file or room that uses it. Related headers: the engine (progress/engine.h), the world (common/world.h), entries of the queue
 * (entry.h), causes of failure (cause.h), and the library next to the wire (collective_library.h).
 */
#ifndef COMM_STATE_H
#define COMM_STATE_H

#include "comm/cause.h"
#include "progress/engine.h"
#include "comm/entry.h"
#include "comm/collective_library.h"
#include "common/check.h"
#include "common/operator.h"
#include "common/world.h"

#include "select/select.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/option.h"
#include "base/result.h"
#include "program/cache.h"
#include "program/program.h"
#include "team/team.h"
#include "wire/table.h"

enum {
    ENGINE_EVENTS = 64,    /* events taken from a channel at once, so that a pass is bounded */
    ENGINE_RECORDS = 2048, /* operations that describe_request remembers: at least 2,000 */
    ENGINE_READY_WORDS = 1024 / 64,
    ENGINE_SCRATCH_KEPT = 4 << 20, /* scratch memory up to this size is kept for a later operation */
    STATE_VECTORS = 4,             /* counts and displs of both buffers */
};
#define P2P_NONE UINT32_MAX

struct comm_window;
struct staging;
struct fastpath;
struct p2p_op;
struct message_room;
struct collective_library;
struct call_recorder;
struct recovery;
struct trace;

/* The row that was last chosen for a collective, and the length of that call. */
struct chosen {
    const struct algo_row *row;
    size_t bytes;
};

/* A cache of rows chosen by price, by length in buckets of a quarter of an octave, because pricing takes longer than a small operation. */
enum { BUCKETS_EACH = 4, BUCKETS = 64 * BUCKETS_EACH };

/* The algorithms and programs for this communicator's calls (choose.c). */
struct program_choice {
    struct program_cache cache;
    struct chosen chosen[COLLECTIVE_END];
    uint8_t *bucket; /* [COLLECTIVE_END][BUCKETS] of 1 + a row; NULL if thresholds choose */
};

/* Operations that run as programs, and their memory (step.c). */
struct run_places {
    struct run_slot *places; /* one for each operation of the window */
    struct store_policy store_policy;
    struct spare *spare_views, *spare_scratch; /* the most recently returned one is first */
    uint64_t ready[ENGINE_READY_WORDS];        /* a bit for each place whose run may move */
    size_t *vectors;                           /* counts and displacements of calls that ended, for reuse */
    bool any_ready;
    bool gave_way; /* a run of this pass yielded and can continue at once */
};

/* An operation that the library reported as failed, while it is not known yet whether the ranks' calls differ. */
struct library_suspect {
    uint64_t ticket; /* 0: none */
    int64_t until_ns;
    enum comm_result result;
    int32_t code;
};

/* Operations of the native library (native/). */
struct library_work {
    struct library_suspect suspect;
    uint64_t alone; /* the operation issued by the short path; 0: none */
    struct call_shape form;
    struct repeated *repeated; /* the last call of the short path; NULL: none yet */
    /* flags: NATIVE_*. pending: operations that have started and not ended. parked: waits of a stream whose point is not reached yet. */
    uint32_t flags, pending, parked;
    uint32_t held, joining; /* after a failure: operations whose buffers the library may still access; calls whose child's native joins */
    bool counted, served;   /* in the engine's `must_poll`; the library has worked here, and may owe something to peers */
    bool told;              /* that the communicator failed */
    uint32_t turns, plans;  /* passes in which nothing was pending; with NATIVE_STANDS: plans started, numbered alike on all ranks */
    struct standing *standing; /* the list of what is kept for them */
    uint64_t turn;             /* of a device: the oldest call at the last check of deadlines */
    int64_t turn_ns, ended_ns; /* from when on its deadline counts, at least; when calls ended last while others waited */
};

/* Operations on device buffers (staged/). */
struct staged_work {
    const struct staged_calls *calls;
    struct staging *pool;       /* NULL: not created yet */
    uint32_t copying;           /* operations and messages with a copy in progress */
    uint32_t running, fetching; /* operations that have a stage; those of them that a library will get */
    size_t bytes;               /* total size of those stages */
    int64_t asked_ns;           /* when it was asked whether the device still runs */
    bool likely;                /* the last call had a device's buffer, so the next may have one */
};

/* Messages and markers, which are in a line of their own next to the queue (p2p/). */
struct p2p_queue {
    struct p2p_op *ops;
    uint32_t room, free, first, last; /* first, last: the list of unfinished messages, in order */
    /* How many: unfinished messages and other requests; markers; held messages. */
    uint32_t pending, markers, held;
    uint32_t looks; /* of short waits */
    uint32_t whole; /* messages that ended in their call */
    /* How many receives in a row have found their message at once, and how many must have, for the next one to look in its call. */
    uint32_t prompt, needed;
    uint32_t ones;       /* part of `pending`: calls on windows that are in progress */
    uint64_t follows;    /* the entry of the stream that staged messages follow which are posted now; 0: one of their own */
    struct stage *longs; /* of messages that are copied from or to a device in pieces, in the order of their starts */
    bool finished;       /* a request has ended since sleepers were last woken */
    /* These cover the memory of all unfinished messages, and maybe more. */
    struct timeline_range read, write;
};

/* Windows (rma/). */
struct window_list {
    struct comm_window *windows; /* complete ones, and those being created */
    struct window_link *links;   /* by rank: for window parts that this rank cannot address; NULL: never needed */
    uint32_t apart;              /* windows whose parts peers may request at any time */
    bool busy;                   /* something may move although nothing has arrived */
};

/* Communicators of a subset of the members that are being created (world/subset.c). */
struct subset_list {
    struct subset *subsets;         /* in the order of their calls */
    struct setup_message *messages; /* setup messages for them that are in flight or not read yet */
    uint64_t begun;
    uint32_t slots, sending; /* sending: messages not sent yet; other ranks need them, even if this rank has its subset */
};

/* The open queue wait (step.c, failure/deadlock.c). */
struct queue_wait {
    uint64_t ticket;  /* 0: none */
    int64_t since_ns; /* since when all earlier work has started */
    int64_t asked_ns; /* when it was asked whether that device still runs */
    bool naps;        /* the first unreached one waits for a device's word, which wakes no thread */
    struct wait_watch watch;
};

/* Finished operations, for descriptions and traces. */
struct record_log {
    struct record *at;
    uint32_t room;
    uint64_t count;
    bool dumped; /* written once for option trace_dir */
};

/* How this communicator fails, and what peers reported of their calls (fail.c, differ.c). */
struct failure_state {
    uint64_t refused_until;           /* a member announced a refusal up to this number */
    struct refusals refusals, *heard; /* this rank's own; one per member */
    struct cause cause, proposal;     /* the adopted cause; this rank's proposal (result 0: none) */
    int64_t proposed_ns;              /* when the proposal was made or received, or chosen; used only without a board */
    bool chosen;                      /* without a board: the proposal is the choice of all, and waits for the calls that it names */
    uint64_t *closed_at;              /* per member: 0, or 1 + the number of its last call before it closed */
    int64_t closed_ns;                /* when the last close was noticed */
    struct comm_error last_refused;
};

/* Terms that the creating call or its options set. */
struct state_terms {
    int32_t priority;
    bool free_order, fixed_order;
    bool programs_only;         /* no native: for a shrunk communicator and its children */
    bool unpacked;              /* a group's calls go into a stream one by one, because the CPU cannot read device memory */
    struct CUstream_st *stream; /* the program's own stream; children inherit it */
    char forced[256];           /* option algorithm of this communicator; empty: use the world's */
};

/* Which members share a host. */
struct state_hosts {
    struct program_hosts all;
    const struct program_hosts *several; /* equal to `all`; NULL if there is only one host */
};

/* This rank's calls, as its peers can read them. */
struct published_calls {
    uint32_t mask;        /* of the channel's rings of calls */
    uint64_t unpublished; /* the first ticket that is not published yet; 0: none */
    uint64_t compared;    /* this rank's calls up to this number were compared with every member's */
};

/* agree and shrink (failure/recover.c). */
struct recovery_slot {
    bool running;
    struct recovery *state; /* NULL: too many ranks */
};

/* What sleepers already know. */
struct reported {
    uint64_t done;
    bool failed;
};

/* Warnings about the oldest operation (deadline.c). */
struct late_warning {
    uint64_t ticket;
    uint32_t step; /* how many warnings were logged */
};

/* A recorder: its calls become steps of a plan. plan NULL: this is not a recorder. */
struct recording {
    struct comm_plan *plan;
    const struct call_recorder *calls;
    bool for_library; /* its target has a library */
};

struct comm_state {
    struct progress_unit unit; /* must be first */
    struct timeline line;
    struct world *world;
    struct team team;
    struct state_hosts hosts;
    const struct wire_class *wire;
    struct wire_channel *channel;
    struct native_channel *native;            /* NULL: none */
    const struct collective_library *library; /* the interface to the native; NULL: none */
    struct library_work library_work;
    struct state_terms terms;
    bool guest; /* the thread that holds the lock does not belong to the program */
    struct recovery_slot recovery;
    void *offers; /* memory for connecting, freed afterwards */
    struct message_room *messages;
    struct run_places runs;
    struct program_choice choice;
    struct fastpath *fastpath; /* fastpath/ */
    uint16_t *others;          /* the other members, starting at rank + 1 */
    bool failed, is_active;
    struct queue_wait queue_wait;
    struct reported reported;
    uint64_t sequence; /* collectives issued */
    uint32_t chain;    /* up to the last call */
    struct published_calls calls;
    struct failure_state failure;
    int64_t timeout_ns;
    int64_t now;    /* time of the current call, so that the clock is read once; 0: no call is in progress */
    uint32_t index; /* in the engine's table */
    struct late_warning late;
    struct staged_work staged;
    struct p2p_queue p2p;
    struct window_list rma;
    struct subset_list setup;
    struct record_log records;
    struct comm_stats stats; /* byte counts of messages only; collectives are counted elsewhere */
    char name[32];
    const _Atomic uint32_t *devices; /* from env */
    struct recording recording;
};

/* Can a buffer be memory of a device? If no driver is loaded, this costs one load and one branch. */
static inline bool state_sees_devices(const struct comm_state *b)
{
    return BASE_UNLIKELY(b->devices && atomic_load_explicit(b->devices, memory_order_relaxed));
}

/* True if `at` is device memory and this communicator can access only host memory. */
static inline bool state_is_foreign(const struct comm_state *b, const void *at)
{
    if (!state_sees_devices(b))
        return false;
    return !(b->native && b->library_work.flags & NATIVE_STREAM) && b->unit.engine->env->on_device(b->unit.engine->env, at);
}

/* Is this memory of the device that the library of this communicator uses? */
static inline bool state_is_device_memory(struct comm_state *b, const void *memory)
{
    return b->library && b->library->is_device_memory(b, memory);
}

/* PENDING: the library has not connected to its other members yet; call again. */
static inline enum comm_result state_library_joined(struct comm_state *b)
{
    return b->library ? b->library->joined(b) : COMM_OK;
}

/* state.c */
struct state_config {
    struct world *world;
    struct team team; /* taken over */
    int64_t timeout_ns;
    const char *name;
    const char *forced; /* NULL: only the world's */
    int32_t priority;
    bool free_order, fixed_order, programs_only;
    struct CUstream_st *stream; /* the caller's stream for device work; NULL: one of the library's own */
};
enum comm_result state_create(struct engine *e, const struct state_config *config, struct team_offer *offer, struct comm_state **body);
/* offers: of all members, by rank. With a library, the caller must call `joined` until it does not return PENDING. */
enum comm_result state_connect(struct comm_state *b, const struct team_offer *offers);
void state_destroy(struct comm_state *b);
struct comm_state *state_recorder(struct comm_state *of); /* has no channel and no queue, only records; NULL: no memory */
enum comm_result state_program(struct comm_state *b, const struct run_call *call, uint32_t collective, int32_t root, size_t longest,
                               struct comm_program **program, const char **algorithm);
/* The algorithm for this length, the same on every rank. NULL: *why is UNSUPPORTED or MEMORY. */
const struct algo_row *state_choose(struct comm_state *b, uint32_t collective, size_t bytes, enum comm_result *why);
/* What pricing needs; valid as long as b exists. */
struct algo_prices state_prices(const struct comm_state *b);
void state_release_program(struct comm_state *b, struct comm_program *program);
/* Describes one element of this type and operator; false: there is no kernel for the pair. */
bool state_element(const struct comm_state *b, enum comm_type type, comm_op op, struct run_element *element);
/* Locks the communicator. NULL: it is not locked, and *why says why. */
static inline struct comm_state *state_lock(struct comm_communicator *c, enum comm_result *why)
{
    return (struct comm_state *)(void *)unit_lock(c, why);
}
static inline void state_unlock(struct comm_state *b)
{
    unit_unlock(&b->unit);
}

/* Ends a call that may have started or found something, and serves what peers have requested meanwhile. */
static inline void state_leave(struct comm_state *b)
{
    unit_leave(&b->unit);
}
/* The state of a communicator; the caller holds the lock of its handle. NULL: closed. */
static inline struct comm_state *state_of(const struct comm_communicator *handle)
{
    return atomic_load_explicit(&handle->state, memory_order_relaxed);
}

/* queue_wait.c */
void state_look_at_waits(struct comm_state *b); /* ends, or lets messages pass, those whose points are reached */
void state_end_nap(struct comm_state *b);
/* issue.c, step.c */
enum comm_result state_issue(struct comm_state *b, const struct engine_call *call, entry_ended_fn *ended, void *ended_arg,
                             struct comm_request *req);
/* On a stream: FULL if something before the call has not started, or what b has failed with; call NULL: one that the stream does. */
enum comm_result state_held_back(struct comm_state *b, const struct engine_call *call);
enum comm_result state_ready_for_calls(struct comm_state *b); /* COMM_OK, or the cause of the failure */
enum comm_result state_refuse(struct comm_state *b, const struct engine_call *call, enum comm_result reason);
void state_keep_refusal(struct comm_state *b, uint32_t collective, enum comm_result reason); /* for comm_error_detail; its text is there */
enum comm_result state_refuse_device(struct comm_state *b, const struct engine_call *call);  /* for calls that need host memory */
/* Puts messages of device memory into the stream of the library. */
enum comm_result state_stream_messages(struct comm_state *b, const struct native_message *messages, uint32_t count,
                                       struct comm_request *req);
/* The entry of the next ticket, for work that is no collective; timeline_issue issues it. NULL: no room, and *why is FULL. */
struct entry *state_room(struct comm_state *b, enum comm_result *why);
void state_begin_work(struct comm_state *b, uint64_t ticket, struct entry *e); /* its buffers can be read now */
void state_end_work(struct comm_state *b, uint64_t ticket, struct entry *e);   /* its output must be where the caller wants it */
bool state_step(struct comm_state *b);                                         /* one bounded pass; true: something moved */
bool state_glance(struct comm_state *b); /* the same, if the wire has anything new; for wires without system calls */
/* Rotate, xor, multiply: a few cycles only, because it comes between an operation and its first store. */
static inline uint32_t state_chain(uint32_t chain, uint32_t fingerprint)
{
    return ((chain << 7 | chain >> 25) ^ fingerprint) * UINT32_C(0x9e3779b1) + 1;
}
uint32_t state_fingerprint(const struct comm_state *b, const struct engine_call *call);
static inline void state_publish(struct comm_state *b, uint32_t seq, uint32_t fingerprint, uint32_t chain, const struct engine_call *call,
                                 uint32_t op, enum comm_result refused)
{
    struct wire_call *mine = &b->channel->calls[seq & b->calls.mask];

    atomic_store_explicit(&mine->seq, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&mine->fingerprint, fingerprint, memory_order_relaxed);
    atomic_store_explicit(&mine->collective, (uint8_t)call->collective, memory_order_relaxed);
    atomic_store_explicit(&mine->type, (uint8_t)call->type, memory_order_relaxed);
    atomic_store_explicit(&mine->flags, (uint8_t)call->flags, memory_order_relaxed);
    atomic_store_explicit(&mine->refused, (int8_t)refused, memory_order_relaxed);
    atomic_store_explicit(&mine->chain, chain, memory_order_relaxed);
    atomic_store_explicit(&mine->op, op, memory_order_relaxed);
    atomic_store_explicit(&mine->root, call->root, memory_order_relaxed);
    atomic_store_explicit(&mine->n, call->n, memory_order_relaxed);
    atomic_store_explicit(&mine->seq, seq, memory_order_release);
}
/* For a ragged library call: hashes of what this rank sends to others, minus hashes of what it receives. The sum over all ranks is 0 if
 * both ends of each edge have the same length. */
uint32_t state_balance(const struct comm_state *b, const struct engine_call *call);
static inline void state_publish_call(struct comm_state *b, const struct entry *e, const struct engine_call *call, enum comm_result refused)
{
    uint32_t op = BASE_UNLIKELY(collective_is_ragged(call->collective)) ? e->by == ENTRY_BY_NATIVE ? state_balance(b, call) : 0 : call->op;

    state_publish(b, e->seq, e->fingerprint, e->chain, call, op, refused);
}
struct comm_state *state_at(struct engine *e, uint32_t index); /* locked, also while it closes; NULL: none, of another engine, a recorder */
bool state_is_aborted(const struct comm_state *b);             /* true: its world was aborted */
void state_hear_abort(struct comm_state *b);                   /* fails b if its world was aborted */
void state_publish_more(struct comm_state *b);                 /* publishes calls that are now within a window */
uint64_t state_published(const struct comm_state *b);          /* number of the newest published call */
void state_fill_entry(struct entry *e, const struct engine_call *call, uint32_t fingerprint, struct comm_state *b);
void state_run_queue(struct comm_state *b); /* starts and retires what can be */
void state_settle(struct comm_state *b);    /* after a change by a call: runs the queue, flushes, wakes sleepers, updates is_active */
void state_activate(struct comm_state *b);
enum comm_result state_copy_vectors(struct comm_state *b, const struct engine_call *call, struct entry *e);
size_t *state_take_vectors(struct comm_state *b); /* room for STATE_VECTORS vectors behind its first word; NULL: no memory */
void state_give_vectors(struct comm_state *b, size_t *v);
void state_forget_entry(struct comm_state *b, struct entry *e);
bool state_room_for_record(struct comm_state *b);
static inline struct record *state_next_record(struct comm_state *b)
{
    if (BASE_UNLIKELY(b->records.count >= b->records.room && b->records.room < ENGINE_RECORDS) && !state_room_for_record(b))
        return NULL;
    return &b->records.at[b->records.count++ & (b->records.room - 1)];
}
static inline void state_record(struct comm_state *b, const struct record *made, uint64_t ticket, int64_t now, enum comm_result result)
{
    struct record *record = state_next_record(b);
    if (!record)
        return;
    *record = *made;
    record->ticket = ticket;
    record->completed_ns = now;
    record->result = result;
}
static inline struct entry *state_entry(const struct comm_state *b, uint64_t ticket)
{
    return (struct entry *)(void *)timeline_entry(&b->line, ticket);
}

/* check.c */
void check_freeze(struct comm_state *b, struct entry *e);                 /* the entry starts */
enum comm_result check_thaw(struct comm_state *b, const struct entry *e); /* the entry ended: OK, or CORRUPT */

/* The forced algorithms by name, or NULL. */
static inline const char *state_forced(const struct comm_state *b)
{
    if (b->terms.forced[0])
        return b->terms.forced;
    return b->world->forced[0] ? b->world->forced : NULL;
}

/* hosts.c */
bool state_find_hosts(struct comm_state *b); /* false: no memory */
void state_free_hosts(struct comm_state *b);
int32_t state_host_ranks(const struct comm_state *b); /* ranks per host, on average; 0: all are on one host */
static inline int32_t state_host(const struct comm_state *b, int32_t rank)
{
    return b->world->hosts.of[b->team.world[rank]];
}

/* A native that joins on a thread of its own wakes no thread, so sleepers must poll. */
static inline void state_count_joining(struct comm_state *b, int32_t more)
{
    b->library_work.joining += (uint32_t)more;
    for (; more > 0; more--)
        engine_need_polls(b->unit.engine, true);
    for (; more < 0; more++)
        engine_need_polls(b->unit.engine, false);
}

static inline int64_t state_now(const struct comm_state *b)
{
    return b->now ? b->now : b->unit.engine->env->now(b->unit.engine->env);
}

static inline bool state_idle(const struct comm_state *b)
{
    bool sending = b->setup.sending && !b->failed;

    return b->line.done + 1 == b->line.next && !b->p2p.pending && !b->p2p.markers && !b->failure.proposal.result && !b->recovery.running &&
           !sending;
}

#endif
