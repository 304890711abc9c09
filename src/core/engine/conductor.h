/*
 * The engine itself: its tables, who sleeps and who is woken, the watcher and the helper. Its tables are atomics or under the lock named
 * beside them.
 */
#ifndef ENGINE_CONDUCTOR_H
#define ENGINE_CONDUCTOR_H

#include "engine/cause.h"
#include "engine/engine.h"
#include "base/log.h"
#include "base/option.h"
#include "wire/device.h"

struct world;

enum {
    ENGINE_COMMUNICATORS = 16384,
    ENGINE_WORLDS = 64,
    ENGINE_NAP_LEAST_NS = 50000, /* sleepers look so soon at what wakes nobody, then less often */
    ENGINE_PARKS = 16,
};

/* A stream that stands until a point of the host's is reached. */
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
    _Atomic uint64_t apart[ENGINE_COMMUNICATORS / 64];    /* with windows of whose parts peers may ask */
    _Atomic uint32_t aparts;                              /* how many those are */
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
    bool logs, watcher_runs, helper_runs, crowded; /* crowded: more ranks than CPUs */
    bool caller_only;                              /* a native may be entered by the program's threads alone */
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
void engine_note_apart(struct engine *e, uint32_t index, bool on);
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

/* serve.c: what peers ask of windows, where nobody here waits */
struct serve_round {
    int64_t nap_ns; /* until the watcher looks again; 0: until it is rung */
    uint32_t quiet; /* such looks in a row that found nothing */
    bool heeds, owed;
};
bool engine_heed(struct engine *e, struct serve_round *round); /* before it sleeps; true: it need not */
bool engine_rise(struct engine *e, struct serve_round *round); /* it is up; true: something was asked */
void engine_serve_round(struct engine *e, struct serve_round *round, bool came);

/* watch.c */
void engine_watcher(void *arg);
void engine_poll(struct engine *e);

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

#endif
