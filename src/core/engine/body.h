/*
 * The engine's own structures, private to this room: the body of a communicator, its world, the engine they share. A body is touched under
 * its face's lock; the engine's tables are atomics or under the lock named beside them.
 */
#ifndef ENGINE_BODY_H
#define ENGINE_BODY_H

#include "engine/express.h"

#include "algo/algo.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/option.h"
#include "base/result.h"
#include "message/message.h"
#include "program/program.h"
#include "team/team.h"
#include "wire/table.h"

enum {
    ENGINE_COMMUNICATORS = 16384,
    ENGINE_WORLDS = 64,
    ENGINE_EVENTS = 64,          /* taken from a channel in one go: a pass is bounded */
    ENGINE_CACHED_PROGRAMS = 32, /* per communicator, a power of two */
    ENGINE_RECORDS = 2048,       /* operations that describe_request knows: at least 2,000 */
    ENGINE_READY_WORDS = 1024 / 64,
    ENGINE_SCRATCH_KEPT = 4 << 20, /* bytes that a window place keeps from one operation to the next */
    BODY_VECTORS = 4,              /* of a v form: counts and displs, of both buffers */
    ENGINE_NAP_LEAST_NS = 50000,   /* sleepers look so soon at what wakes nobody, then less often */
    NOTE_FAILED = 0,               /* sorts of notes */
    NOTE_REFUSED = 1,
    NOTE_CLOSED = 2,
    NOTE_FENCE = 3,
    NOTE_RECOVERY = WIRE_NOTE_LONG,
    DEADLOCK_WAITS = 64, /* open queue waits that are looked at together */
    FENCE_HALVES = 4,    /* of a group that waits for messages of more ranks some are not told */
    FENCE_RECEIVE = COLLECTIVE_END,
    FENCE_SEND,
    CHECK_CALLS = 1, /* option `check` */
    CHECK_BUFFERS = 2,
    CHECK_RENDEZVOUS = 4,
};
/* What "not yet" and "none" mean in an int64_t of nanoseconds. */
#define ENGINE_NEVER INT64_MAX

struct engine;
struct body;
struct pack;
struct user_op;
struct user_op_row;
struct comm_window;
struct window_link;
struct world_memory;
struct recovery;
struct trace;

/* ------------------------------------------------------------------------------------------------------------ failure */
/* The one cause, as it travels in a note. */
struct cause {
    uint64_t number;    /* collective sequence number; 0: none */
    int32_t rank, peer; /* who failed, who found out; -1 unknown; ranks of the communicator */
    int32_t result, system_errno;
    uint32_t collective; /* of rank's call; 0: none */
    int32_t code;        /* of comm_abort; the reason of a refusal; the last number of a rank that closed; ms of silence, 0: it
                            ended, less: of its host too */
    uint32_t point;      /* DEPENDENCY: the first cause's result; CLOSED, 1: what it sent was lost */
    uint32_t reserved;
};
_Static_assert(sizeof(struct cause) <= WIRE_NOTE_BYTES, "a cause is a note");

/* An open queue wait, as its rank tells it (deadlock.c). */
struct fence_note {
    uint64_t of;        /* the identity of its communicator */
    uint64_t waits_for; /* and of the one whose request it waits for; 0: not certain yet */
    uint32_t started;   /* the last collective of its own communicator that stands before it */
    uint32_t round;     /* for how many looks it has been so; 0: not, or no more */
    uint32_t head;      /* the collective at the head there; 0: a queue wait */
    uint8_t collective; /* of the head; or FENCE_RECEIVE, FENCE_SEND: it waits for messages, none of which may be missing, ... */
    uint8_t halves;     /* ... of which so many have their other halves at other ranks, ... */
    uint8_t behind;     /* ... and 1: one stands behind a queue wait of its own communicator */
    uint8_t quiet;      /* 1: none of its rank's messages in `of` is on its way: peers get nothing more of it before this wait ends */
    union {
        int32_t root; /* of the collective */
        uint16_t half[FENCE_HALVES];
    };
    int32_t rank;   /* who tells it, in its communicator */
    uint32_t which; /* of the wait and of how far the other one was: another number for another wait */
};
_Static_assert(sizeof(struct fence_note) <= WIRE_NOTE_BYTES, "it is a note");
/* One of a communicator that the teller's world knows and this rank perhaps not. */
struct far_wait {
    struct fence_note note;
    int64_t heard_ns;
    int32_t peer;
};
struct fence_watch {
    uint64_t ticket, done; /* at the last look: the wait, and how far the other communicator was */
    struct fence_note mine, *theirs;
    struct far_wait *far; /* [DEADLOCK_WAITS] of a world's communicator */
    uint32_t next_far, turn;
};

/* The newest call that a rank refused, and which of the 32 before it: what its note carries, and what is kept of every member's, since the
 * calls that it publishes may be written over long before another rank comes to them. */
struct refusals {
    uint64_t last;
    uint32_t before; /* bit i: call last - 1 - i */
    int32_t reason;  /* of the last */
};

/* ------------------------------------------------------------------------------------------------------------ entries */
/* ENDED: its work is done, and what is returned is its result; then RETIRED, just before its request says so. Either may be DROPPED
 * instead, and nothing comes after that: the communicator failed. */
enum entry_phase { ENTRY_ENDED, ENTRY_RETIRED, ENTRY_DROPPED };
typedef enum comm_result entry_ended_fn(struct body *body, enum entry_phase phase, void *arg);

/* What describe_request and traces tell of an operation. One cache line, so that keeping it is one copy. */
struct record {
    uint64_t ticket, bytes;
    int64_t queued_ns, started_ns, completed_ns;
    const char *algorithm;
    uint32_t sequence;
    uint16_t collective;
    uint16_t waited; /* 1 + the rank whose part came last of what was not there when it was looked for; 0: nobody's */
    int32_t result;
    uint32_t flags; /* COMM_INFO_* */
};
_Static_assert(sizeof(struct record) == 64, "one cache line");

/* Who does it: a program of ours, the communicator's native, or (a queue wait) the native's stream. */
enum entry_by { ENTRY_BY_PROGRAM = 0, ENTRY_BY_NATIVE, ENTRY_BY_STREAM };

struct entry {
    struct timeline_entry head;
    struct run_call call;
    struct comm_program *program; /* a reference */
    size_t *vectors;              /* copied counts and displs, of the body's pool; NULL: none */
    entry_ended_fn *ended;        /* a creating call's next stage */
    void *ended_arg;
    struct timeline_point point; /* of a fence */
    struct user_op *user;        /* of the caller's own: a reference */
    struct pack *pack;           /* a group's small members as one: a reference */
    struct comm_window *window;  /* a fence of it */
    struct express_form *form;   /* the small exchange's */
    uint32_t seq;
    uint8_t unshown, unread;     /* the small exchange's: spans not shown yet, and such that the wire has not read yet */
    bool spill;                  /* what comes does not fit: it is taken into memory of ours and thrown away */
    uint32_t fingerprint, chain; /* of this call alone; of this and all before it */
    int32_t root;
    uint64_t sum;         /* with check=buffers: of the input, when it started */
    uint8_t by;           /* enum entry_by */
    uint8_t flags;        /* ENGINE_CALL_* */
    bool joining;         /* `ended` said PENDING: it is asked again in each pass */
    bool parked;          /* ENTRY_BY_STREAM: its point has not been reached */
    struct record record; /* as it will be kept; ticket, result and completed_ns at the end */
};

/* One window place: a run and the memory it needs, which only grows. */
struct place {
    struct run run;
    struct wire_view *views;
    uint32_t views_room;
    size_t scratch_room;
};

/* ------------------------------------------------------------------------------------------------------------ messages and markers */
/* MEETING: a subset in the making. ONE: a call on a window, under way. RECOVERY: agree or shrink, for which neither line waits. Of a part
 * that is apart: BEHIND others to it, whose end starts it; ASKED for, or as much of it as there is room for. */
enum talk_state { TALK_FREE, TALK_HELD, TALK_POSTED, TALK_MARKER, TALK_MEETING, TALK_ONE, TALK_RECOVERY, TALK_BEHIND, TALK_ASKED };
struct talk {
    uint8_t state;
    bool is_send;
    uint16_t reserved;
    uint32_t before, after; /* list of unfinished messages, or of free slots (after) */
    uint64_t ticket;        /* of the message line */
    uint64_t work;          /* messages: first work ticket issued after it; markers: last issued before it */
    uint32_t remaining;     /* markers: messages that they still wait for */
    uint32_t member_of;     /* a plan's message: its marker; a plan's marker: itself; otherwise TALK_NONE */
    int32_t error;          /* a group's marker: the first of its members' */
    bool carries;           /* a group's marker: it ends with that error, which is nobody else's */
    uint64_t first_work;    /* a group's marker: of the group */
    struct timeline_hull read, write;
    struct message_call call;
    int64_t queued_ns;
    uint64_t sum;   /* with check=buffers: of what is sent */
    uint64_t fence; /* of a window: it waits for this ticket */
    struct one_sided one;
};
#define TALK_NONE UINT32_MAX

struct notice {
    struct notice *next;
    struct comm_request request;
    comm_notify_fn *fn;
    void *arg;
};

/* ------------------------------------------------------------------------------------------------------------ worlds, bodies, the engine
 */
/* What rank 0 found under option machine; sent to all when they meet. */
struct machine_given {
    struct cost_machine figures;
    uint32_t measured, failed;
    char error[224];
};
void machine_read(const struct comm_env *env, const char *path, struct machine_given *given);

/* Which ranks share a host: equal on all ranks, found when the world opens. */
struct world_hosts {
    int32_t *of;      /* by world rank: its host's number, from 0 in the order of their lowest ranks */
    char (*name)[64]; /* by number */
    int32_t count, ranks;
};

struct world {
    struct engine *engine;
    const struct wire_backend *backend;
    struct wire *wire;
    struct native *native; /* NULL: none */
    uint64_t id;
    struct wire_limits limits;   /* agreed: rank 0's */
    char forced[256];            /* option algorithm, rank 0's */
    struct cost_machine machine; /* rank 0's: of its file when measured, else built in */
    bool measured;
    bool free_order, fixed_order; /* as asked for; neither: fixed, but free for a native */
    int64_t timeout_ns, peer_timeout_ns, link_timeout_ns;
    _Atomic uint32_t references; /* its communicators */
    _Atomic uint64_t aborted;    /* 0, or 1 + the rank that called comm_abort, and its code in the upper half */
    int32_t rank, ranks;         /* rank -1: all are here */
    struct world_hosts hosts;
    struct base_lock operator_lock; /* a leaf: of the next two */
    struct user_op_row *operators;
    uint32_t operator_room;
    struct base_lock memory_lock; /* a leaf: of the next one */
    struct world_memory *memories;
    uint32_t check;      /* CHECK_*, rank 0's */
    int32_t order_block; /* rank 0's; 0 where it is T's order anyway */
    char launcher[16];
    _Atomic uint8_t *down; /* [ranks], for ever: its wire said that it is gone */
};
static inline bool world_down(const struct world *w, int32_t rank)
{
    return atomic_load_explicit(&w->down[rank], memory_order_acquire) != 0;
}

/* The row chosen last for a collective, and the length it was chosen for. */
struct chosen {
    const struct algo_row *row;
    size_t bytes;
};

/* Rows that prices chose, by lengths up to a quarter of an octave apart: pricing takes longer than a small operation. */
enum { BUCKETS_EACH = 4, BUCKETS = 64 * BUCKETS_EACH };

struct cached_program {
    uint64_t key;
    struct comm_program *program;
    const char *algorithm;
};

struct body {
    struct timeline line; /* first */
    struct engine *engine;
    struct world *world;
    struct comm_communicator *face;
    struct team team;
    struct program_hosts hosts;
    const struct program_hosts *several_hosts; /* the same; NULL where there is but one */
    const struct wire_class *wire;
    struct wire_channel *channel;
    struct native_channel *native; /* NULL: none */
    uint64_t native_alone;         /* the operation there that went the short way; 0: none */
    struct call_form native_form;
    uint32_t native_flags, native_pending, native_parked;
    uint32_t held;              /* failed: operations whose buffers the native may still touch */
    uint32_t joining;           /* creating calls whose child's native is not connected yet */
    bool native_counted;        /* in the engine's `natives` */
    bool unpacked;              /* a group's calls go into a stream one by one: nobody of ours reads a device's memory */
    bool fence_naps;            /* the open queue wait is for a device's word */
    struct CUstream_st *stream; /* in-stream: the caller's own; children inherit it */
    bool fixed_order, guest;    /* guest: the thread that holds the lock is none of the program's */
    bool programs_only;         /* no native: a shrunk communicator, and its children */
    bool recovering;            /* an agree or shrink is under way */
    struct recovery *recovery;  /* NULL: too many ranks */
    void *offers;               /* room for connecting, given back then */
    struct message_room *messages;
    struct place *places; /* window of them */
    struct run_ways ways; /* of their runs */
    struct cached_program cache[ENGINE_CACHED_PROGRAMS];
    struct chosen chosen[COLLECTIVE_END];
    uint8_t *bucket; /* [COLLECTIVE_END][BUCKETS] of 1 + a row; NULL where thresholds choose */
    struct express express;
    uint16_t *others;                   /* the other members, from rank + 1 on */
    uint64_t ready[ENGINE_READY_WORDS]; /* runs that may move, a bit per place */
    bool any_ready, closing, failed, left;
    bool gave_way; /* a run of this pass could go on at once */
    bool is_active, told_failed, talk_finished;
    bool free_order;
    struct fence_watch fence_watch;
    int32_t priority;
    uint64_t fence;   /* ticket of the open queue wait; 0: none */
    int64_t fence_ns; /* since when all earlier work has started */
    uint64_t told_done;
    uint64_t sequence;                /* collectives issued */
    uint32_t chain;                   /* of the last call */
    uint32_t calls_mask;              /* of the channel's rings of calls */
    uint64_t unpublished;             /* the first ticket that is not in there yet; 0: none */
    uint64_t compared;                /* up to here this rank's calls were compared with every member's */
    uint64_t refused_until;           /* a member announced a refusal up to this number */
    struct refusals refusals, *heard; /* this rank's; per member */
    struct cause cause, proposal;     /* adopted; ours, not adopted yet (result 0: none) */
    int64_t proposed_ns;              /* since when there is one; counts without a board alone */
    uint64_t *closed_at;              /* per member: 0, or 1 + the last number it made before it closed */
    int64_t closed_ns;                /* when one of them was heard last */
    struct comm_error last_refused;
    int64_t timeout_ns;
    int64_t now;        /* of the call being made, so that it is read once; 0: nobody is in one */
    uint32_t index;     /* in the engine's table */
    uint32_t late_step; /* how many warnings the oldest operation has had */
    uint64_t late_ticket;
    /* messages */
    struct talk *talks;
    uint32_t talk_room, talk_free, talk_first, talk_last;      /* list of unfinished messages in order */
    uint32_t talk_pending, talk_markers, talk_held, talk_ones; /* ones: of talk_pending, under way on windows */
    struct comm_window *windows;                               /* made, and in the making */
    struct window_link *links; /* by rank: windows' parts that are no memory here; NULL: there never was one */
    uint32_t windows_apart;    /* of the windows: peers may ask of them at any time */
    bool links_busy;           /* something may move though nothing came */
    struct timeline_hull talk_read, talk_write;
    uint64_t talk_sent;
    struct subset *subsets; /* in the making, in the order of their calls */
    struct letter *letters; /* of theirs: on their way, or not read yet */
    uint64_t subsets_begun;
    uint32_t letter_slots, letters_sending; /* sending: not gone yet; whoever they are for needs them, also when we have our subset */
    /* callbacks */
    struct notice *notices, *notices_free; /* sorted by ticket; under the face's lock */
    _Atomic uint32_t notice_count;
    /* describing */
    struct record *records;
    uint32_t record_room, reserved;
    uint64_t record_count;
    bool dumped;             /* its records went to option trace_dir: once */
    struct comm_stats stats; /* bytes: of messages alone; work counts its own */
    size_t *vector_pool;
    char name[32];
    char forced[256]; /* option algorithm of this communicator; empty: the world's */
    /* recording */
    struct comm_plan *recording;
};

/* A stream that stands until a point of the host's is reached. */
enum { ENGINE_PARKS = 16 };
struct engine_park {
    struct timeline_point point;
    struct device_place place;
    bool taken;
};

struct engine {
    const struct comm_env *env;
    struct base_log log;
    struct base_options options;
    struct env_bell bell;                                 /* sleepers and the caller's loop */
    struct env_bell watch;                                /* the watcher's: death notices */
    struct base_lock table_lock;                          /* of the three tables' changes */
    struct base_lock poll_lock;                           /* of the wires' poll and arm: a world is not closed meanwhile */
    _Atomic(struct comm_communicator *) *faces;           /* ENGINE_COMMUNICATORS of them */
    _Atomic uint64_t active[ENGINE_COMMUNICATORS / 64];   /* communicators with something unfinished */
    _Atomic uint32_t words;                               /* of `active` in use */
    _Atomic uint32_t ranked;                              /* communicators of another priority than 0 */
    _Atomic uint64_t urgent[ENGINE_COMMUNICATORS / 64];   /* of priority 1 */
    _Atomic uint64_t yielding[ENGINE_COMMUNICATORS / 64]; /* of priority -1 */
    _Atomic uint32_t passes;                              /* counted while there are ranked ones */
    _Atomic(struct world *) worlds[ENGINE_WORLDS];
    _Atomic uint32_t references;
    _Atomic uint32_t baton; /* held by the one who sleeps on the bell */
    bool loud;              /* his: the bell woke him, and stays rung until the loop comes that armed it */
    _Atomic uint32_t risen; /* how often one has left it: a loop may wait for that */
    _Atomic uint32_t epoch; /* the others park on it */
    _Atomic uint32_t parked, waiters, asleep, armed, stopping, helper_parked, callbacks;
    _Atomic uint32_t work;        /* the helper parks on it while nothing is to do */
    _Atomic uint32_t patience;    /* how much longer to yield before sleeping: learned from sleeps that were too short */
    _Atomic int64_t sleep_until;  /* yielding was seen to cost a slice: sleep instead until then */
    _Atomic int64_t yielded_long; /* when one did last */
    _Atomic int64_t long_since;   /* since when long yields are summed up, .. */
    _Atomic int64_t long_ns;      /* .. to this */
    _Atomic int64_t tick_ns;      /* the watcher's */
    uint64_t knot_signature;      /* the watcher's: what waits for itself, as last seen, and in which round each of it was then */
    uint32_t knot_round[DEADLOCK_WAITS];
    int64_t knot_ns;          /* since when it is as it is */
    _Atomic uint32_t natives; /* communicators with something in a native, which wakes nobody: sleepers look every nap_ns */
    _Atomic int64_t nap_ns;
    struct env_thread watcher, helper, scribe;
    struct base_lock trace_lock; /* a leaf: of the list of traces that the scribe has to write */
    struct trace *traces;
    _Atomic uint32_t traces_given, traces_written; /* counted; the scribe parks on the first, who waits for a file on the second */
    _Atomic(struct device *) device;               /* opened when a stream is first named; NULL: not yet */
    char device_name[32];                          /* as the program named it; empty: by local_rank */
    int32_t local_rank;
    _Atomic uint32_t parks;       /* of park[] that are taken */
    _Atomic uint32_t heard_abort; /* the watcher carries it to the other communicators */
    struct base_lock park_lock;
    struct engine_park park[ENGINE_PARKS];
    bool scribe_runs;
    bool watcher_runs, helper_runs, crowded; /* crowded: more ranks than CPUs */
    bool caller_only;                        /* a native may be entered by the program's threads alone */
    enum comm_notify_mode notify;
    enum data_isa isa;
    int64_t spin_ns, yield_ns;
    uint32_t cpus, local_ranks;
    struct env_identity identity;
};

/* engine.c: the engine's life and tables */
enum comm_result engine_create(const struct comm_env *env, const struct base_options *options, const struct base_log *log,
                               const struct comm_config *config, char *text, size_t text_bytes, struct engine **engine);
void engine_hold(struct engine *e);
void engine_drop(struct engine *e);
enum comm_result engine_enlist(struct engine *e, struct comm_communicator *face, uint32_t *index);
void engine_activate(struct engine *e, uint32_t index, bool active);
void engine_rank_queue(struct engine *e, uint32_t index, int32_t priority); /* 0: as any other */
enum comm_result engine_start_helper(struct engine *e);
/* For a stream that waits for the host: UNSUPPORTED where only the caller's threads may move work. Any thread. */
enum comm_result engine_need_helper(struct engine *e);
void engine_note_timeout(struct engine *e, int64_t timeout_ns);

/* pass.c: moving and sleeping */
enum pass { PASS_IDLE = 0, PASS_MOVED = 1, PASS_BUSY = 2 /* somebody else holds a communicator that may have work */ };
enum pass engine_step(struct engine *e, struct comm_communicator *face);
enum pass engine_pass(struct engine *e, bool callbacks);
typedef bool engine_until_fn(void *arg);
/* Moves the engine until fn says true (true) or deadline (false). own: the communicator most likely to matter, or NULL. */
bool engine_move_until(struct engine *e, struct comm_communicator *own, engine_until_fn *fn, void *arg, int64_t deadline);
void engine_told_unlocked(struct engine *e); /* the same from outside a communicator's lock */
void engine_told(struct engine *e);          /* something retired, failed, was set or is due: sleepers must look */
/* The same, where there mostly are none. */
static inline void engine_tell(struct engine *e)
{
    if (BASE_UNLIKELY(atomic_load_explicit(&e->parks, memory_order_relaxed) | atomic_load_explicit(&e->asleep, memory_order_relaxed) |
                      atomic_load_explicit(&e->armed, memory_order_relaxed) | atomic_load_explicit(&e->parked, memory_order_relaxed)))
        engine_told(e);
}
/* Gives the CPU away once; false: yielding is dear now, and nothing was done. now: when the caller last looked (0: it did not), and after.
 */
bool engine_yield(struct engine *e, int64_t *now);
int64_t engine_deadline(const struct engine *e, int64_t timeout_ns);
bool engine_in_callback(struct engine *e);
void engine_helper(void *arg);
void engine_disarm(struct engine *e);
enum pass engine_arm_bell(struct engine *e);
bool engine_callback_due(struct engine *e);
enum comm_result engine_wait_on(struct engine *e, const struct timeline_point *point, int64_t timeout_ns);

/* watch.c */
void engine_watcher(void *arg);
void engine_poll(struct engine *e);
void body_check(struct body *b, int64_t now);
void body_lost(struct body *b, const struct wire_event *event);
/* It has closed, and no message of it is still to come. */
bool body_has_left(const struct body *b, int32_t rank);
void body_hear_down(struct body *b); /* of members that went while it was made */

/* deadlock.c */
bool deadlock_tell(struct body *b);
void deadlock_heard(struct body *b, int32_t peer, const void *note);
void deadlock_forget(struct body *b);
void deadlock_look(struct engine *e);

/* body.c */
struct body_config {
    struct world *world;
    struct team team; /* taken over */
    int64_t timeout_ns;
    const char *name;
    const char *forced; /* NULL: none but the world's */
    int32_t priority;
    bool free_order, fixed_order, programs_only;
    struct CUstream_st *stream; /* the caller's, for device work; NULL: one of its own */
};
enum comm_result body_create(struct engine *e, const struct body_config *config, struct team_offer *offer, struct body **body);
/* offers: of all members, by rank. With a native: body_joined is asked until it does not say PENDING. */
enum comm_result body_connect(struct body *b, const struct team_offer *offers);
enum comm_result body_joined(struct body *b);
void body_destroy(struct body *b);
struct body *body_recorder(struct body *of); /* no channel, no queue: only records; NULL: no memory */
enum comm_result plan_record(struct body *recorder, const struct engine_call *call);
void plan_refused(struct body *recorder, enum comm_result reason); /* a call on it was: a group is, then, whole */
enum comm_result plan_record_message(struct body *recorder, const struct message_call *message);
/* PENDING: c is no recorder. event NULL: the point, of a request. */
enum comm_result plan_record_wait(struct comm_communicator *c, struct comm_event *event, const struct timeline_point *point);
struct timeline_point event_point(struct comm_event *event); /* a copy of the one it holds now */
enum comm_result body_program(struct body *b, const struct run_call *call, uint32_t collective, int32_t root, size_t longest,
                              struct comm_program **program, const char **algorithm);
/* The row for this length, the same on every rank, or NULL and why: UNSUPPORTED, or MEMORY. */
const struct algo_row *body_choose(struct body *b, uint32_t collective, size_t bytes, enum comm_result *why);
/* What prices need, valid while b is. */
struct algo_prices body_prices(const struct body *b);
void body_release_program(struct body *b, struct comm_program *program);
/* What one element of a pair is; false: the pair has no kernel. */
bool body_element(const struct body *b, enum comm_type type, comm_op op, struct run_element *element);
/* NULL: not locked, why */
static inline struct body *body_lock(struct comm_communicator *c, enum comm_result *why)
{
    *why = engine_alive(c);
    if (*why != COMM_OK)
        return NULL;
    base_home_lock(&c->lock, c->env);
    struct body *b = atomic_load_explicit(&c->body, memory_order_relaxed);
    if (b && !b->closing)
        return b;
    base_home_unlock(&c->lock, c->env);
    *why = COMM_ERR_CLOSED;
    return NULL;
}
static inline void body_unlock(struct body *b)
{
    struct comm_communicator *face = b->face;
    base_home_unlock(&face->lock, face->env);
}
void world_drop(struct world *w);

/* issue.c, step.c */
enum comm_result body_issue(struct body *b, const struct engine_call *call, entry_ended_fn *ended, void *ended_arg,
                            struct comm_request *req);
enum comm_result body_ready_for_calls(struct body *b); /* COMM_OK, or what the communicator failed with */
enum comm_result body_refuse(struct body *b, const struct engine_call *call, enum comm_result reason);
enum comm_result body_refuse_device(struct body *b, const struct engine_call *call); /* only the host's memory will do */
enum comm_result body_queue_wait(struct body *b, const struct timeline_point *point, struct comm_request *req);
static inline void body_end_nap(struct body *b);
bool body_step(struct body *b); /* one bounded pass; true: something moved */
/* Rotate, mix in, multiply: a few cycles, since it stands between an operation and its first store. */
static inline uint32_t body_chain(uint32_t chain, uint32_t fingerprint)
{
    return ((chain << 7 | chain >> 25) ^ fingerprint) * UINT32_C(0x9e3779b1) + 1;
}
uint32_t body_fingerprint(const struct body *b, const struct engine_call *call);
static inline void body_publish(struct body *b, uint32_t seq, uint32_t fingerprint, uint32_t chain, const struct engine_call *call,
                                enum comm_result refused)
{
    struct wire_call *mine = &b->channel->calls[seq & b->calls_mask];

    atomic_store_explicit(&mine->seq, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&mine->fingerprint, fingerprint, memory_order_relaxed);
    atomic_store_explicit(&mine->collective, (uint8_t)call->collective, memory_order_relaxed);
    atomic_store_explicit(&mine->type, (uint8_t)call->type, memory_order_relaxed);
    atomic_store_explicit(&mine->flags, (uint8_t)call->flags, memory_order_relaxed);
    atomic_store_explicit(&mine->refused, (int8_t)refused, memory_order_relaxed);
    atomic_store_explicit(&mine->chain, chain, memory_order_relaxed);
    atomic_store_explicit(&mine->op, call->op, memory_order_relaxed);
    atomic_store_explicit(&mine->root, call->root, memory_order_relaxed);
    atomic_store_explicit(&mine->n, call->n, memory_order_relaxed);
    atomic_store_explicit(&mine->seq, seq, memory_order_release);
}
static inline void body_publish_call(struct body *b, const struct entry *e, const struct engine_call *call, enum comm_result refused)
{
    body_publish(b, e->seq, e->fingerprint, e->chain, call, refused);
}
struct body *body_at(struct engine *e, uint32_t index); /* locked; NULL: none, closed, another engine's, or a recorder */
/* The end of a call that makes something: with a request it says how it was issued, without one it waits. */
enum comm_result engine_answer(enum comm_result issued, struct comm_request own, struct comm_request *req);
void engine_spread_abort(struct engine *e);    /* fails every communicator of a world in which comm_abort was called */
bool body_is_aborted(const struct body *b);    /* its world is */
void body_hear_abort(struct body *b);          /* fails it, if so */
void body_publish_more(struct body *b);        /* calls that have come near enough */
uint64_t body_published(const struct body *b); /* the number of the newest call that is published */
void body_fill_entry(struct entry *e, const struct engine_call *call, uint32_t fingerprint, struct body *b);
void body_run_queue(struct body *b); /* starts and retires what can be */
void body_settle(struct body *b);    /* after a change made by a call: flush, tell, active or not */
void body_activate(struct body *b);
enum comm_result body_copy_vectors(struct body *b, const struct engine_call *call, struct entry *e);
void body_forget_entry(struct body *b, struct entry *e);
bool body_room_for_record(struct body *b);
static inline struct record *body_next_record(struct body *b)
{
    if (BASE_UNLIKELY(b->record_count >= b->record_room && b->record_room < ENGINE_RECORDS) && !body_room_for_record(b))
        return NULL;
    return &b->records[b->record_count++ & (b->record_room - 1)];
}
static inline void body_record(struct body *b, const struct record *made, uint64_t ticket, int64_t now, enum comm_result result)
{
    struct record *record = body_next_record(b);
    if (!record)
        return;
    *record = *made;
    record->ticket = ticket;
    record->completed_ns = now;
    record->result = result;
}
static inline struct entry *body_entry(const struct body *b, uint64_t ticket)
{
    return (struct entry *)(void *)timeline_entry(&b->line, ticket);
}

/* check.c */
bool check_parse(const char *text, uint32_t *bits);
uint32_t check_site(const void *address);
uint64_t check_sum(const void *at, size_t bytes);
void check_freeze(struct body *b, struct entry *e);                 /* it starts */
enum comm_result check_thaw(struct body *b, const struct entry *e); /* it ended: OK, or CORRUPT */

/* operator.c */
struct user_op *operator_hold(const struct body *b, comm_op op); /* NULL: none of that number */
void operator_drop(struct user_op *own);
struct run_element operator_element(const struct user_op *own);
uint32_t operator_identity(const struct body *b, comm_op op); /* what ranks compare */
void operators_close(struct world *w, const struct comm_env *env);

/* memory.c */
void memory_close(struct world *w);

/* bytes.c: call->in is where the caller keeps the length, call->out its buffer */
enum comm_result bytes_issue(struct body *b, const struct engine_call *call, struct comm_request *req);
/* native.c: collectives of a library beside the wire */
enum comm_result native_join(struct body *b, struct team_offer *offer);
enum comm_result native_connect(struct body *b, const struct team_offer *offers);
/* OK: the native does it. UNSUPPORTED: a program does. Anything else refuses the call; the text is in last_refused. */
enum comm_result native_takes(struct body *b, const struct engine_call *call);
bool native_is_device_memory(struct body *b, const void *memory);
bool native_issue(struct body *b, const struct engine_call *call, struct comm_request *req); /* the short way; false: not taken */
bool native_wait_short(struct comm_request request);
void native_start(struct body *b, uint64_t ticket, struct entry *e);
bool native_may_not_start(const struct body *b, uint64_t ticket);
bool native_look(struct body *b); /* what ended; true: something did */
void native_count(struct body *b, bool pending);
bool native_step(struct body *b); /* what ended, and stream waits whose points were reached; true: something did */
enum comm_result native_wait(struct body *b, struct entry *e, const struct timeline_point *point);
void native_fail(struct body *b);  /* the communicator failed */
bool native_holds(struct body *b); /* failed, and buffers are still in use */
void native_leave(struct body *b);
void native_nap(struct engine *e, int64_t now, int64_t *until); /* natives wake nobody: lowers `until` while something is pending there */

/* stream.c: the engine's device */
void engine_drop_device(struct engine *e);
void engine_release_parks(struct engine *e); /* streams whose points were reached go on */
/* Words that a device writes wake nobody: while one is waited for, sleepers look from time to time. */
void engine_await_word(struct engine *e, bool on);
struct engine *event_engine(const struct comm_event *event);
void event_replace(struct comm_event *event, struct timeline_point point);
/* What a recorded event of a communicator with a stream holds beside its marker. */
void stream_place(struct comm_communicator *c, struct timeline_point *point);
/* For a queue wait of `c`: puts it on c's stream here and now where the point is an operation of another stream; *point says so then. */
enum comm_result stream_join(struct comm_communicator *c, struct timeline_point *point);

/* express.c: its calls are in express.h */
static inline bool express_pending(const struct body *b)
{
    return b->line.done < b->express.last;
}
static inline void express_flush(struct body *b)
{
    b->express.owes = false;
    b->wire->flush(b->channel);
}

/* Algorithms by name, or NULL. */
static inline const char *body_forced(const struct body *b)
{
    if (b->forced[0])
        return b->forced;
    return b->world->forced[0] ? b->world->forced : NULL;
}

/* A published call, read whole. */
struct made_call {
    uint64_t n;
    uint32_t fingerprint, chain, op;
    int32_t root, refused;
    uint8_t collective, type, flags;
};

/* fail.c */
bool body_check_peers(struct body *b, const struct entry *e);                                  /* false: it proposed a failure */
bool body_read_call(const struct body *b, int32_t rank, uint32_t seq, struct made_call *call); /* false: not made, not seen, or long ago */
void body_propose(struct body *b, const struct cause *cause);
void body_lacks_memory(struct body *b, const struct entry *e); /* that this rank needs for its call: proposes so */
void hosts_close(struct world *w);
bool body_find_hosts(struct body *b); /* false: no memory */
void body_free_hosts(struct body *b);
int32_t body_host_ranks(const struct body *b); /* of a host, about; 0: all are on one */
static inline int32_t body_host(const struct body *b, int32_t rank)
{
    return b->world->hosts.of[b->team.world[rank]];
}
void body_attend(struct body *b); /* adopts what the board says, if it is known here */
void body_note(struct body *b, const struct wire_event *event);
void body_mismatch(struct body *b, uint32_t seq, int32_t peer);
void body_compare(struct body *b); /* the members' published calls with ours, as far as all have made them */
void body_send_note(struct body *b, uint32_t sort, const void *bytes, size_t count);
void body_tell_close(struct body *b);
void body_tell_refusal(struct body *b, uint64_t number, enum comm_result reason);
bool body_knows_refused(const struct body *b, int32_t rank, uint64_t number); /* heard so, and in the order of its calls */
void cause_describe(const struct body *b, const struct cause *cause, struct comm_error *error);

/* Nobody wakes for what joins on a thread of its native's own: sleepers look from time to time. */
static inline void body_count_joining(struct body *b, int32_t more)
{
    b->joining += (uint32_t)more;
    for (; more > 0; more--)
        engine_await_word(b->engine, true);
    for (; more < 0; more++)
        engine_await_word(b->engine, false);
}

static inline void body_end_nap(struct body *b)
{
    if (b->fence_naps)
        engine_await_word(b->engine, false);
    b->fence_naps = false;
}

/* trace.c */
uint16_t trace_waits_for(const struct body *b, const struct entry *e); /* of an unfinished one; as record.waited */
void trace_failure(struct body *b, const struct comm_error *error);    /* where option trace_dir names a folder */
void trace_settle(struct engine *e);                                   /* a wait ends: for a moment, until what failed is written */
bool trace_stop(struct engine *e); /* false: the file system does not answer, and the scribe is left to it */

/* notify.c */
void notify_run(struct engine *e, struct comm_communicator *face);
bool notify_due(struct body *b);

static inline int64_t body_now(const struct body *b)
{
    return b->now ? b->now : b->engine->env->now(b->engine->env);
}

static inline bool body_idle(const struct body *b)
{
    bool sending = b->letters_sending && !b->failed;

    return b->line.done + 1 == b->line.next && !b->talk_pending && !b->talk_markers && !b->proposal.result && !b->recovering && !sending;
}

#endif
