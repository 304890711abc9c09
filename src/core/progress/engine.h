/*
 * The engine decides which thread moves work, which one sleeps, and which one is woken. It has the tables of communicators and worlds,
 * makes passes over them, runs the progress thread, and calls callbacks. It knows a communicator as a unit and a way to step it (struct
 * progress_class), and a world as a wire. Table entries are atomics, or belong to the lock named beside them.
 */
#ifndef PROGRESS_ENGINE_H
#define PROGRESS_ENGINE_H

#include "progress/part.h"

#include <commstream/open.h>

#include "base/log.h"
#include "base/option.h"
#include "base/result.h"
#include "data/data.h"
#include "timeline/timeline.h"
#include "wire/device.h"
#include "wire/table.h"

struct trace;

enum {
    ENGINE_COMMUNICATORS = 16384,
    ENGINE_WORLDS = 64,
    ENGINE_NAP_LEAST_NS = 50000, /* sleepers look so soon at what wakes nobody, then less often */
    ENGINE_PARKS = 16,
    ENGINE_DEADLOCK_WAITS = 64, /* open queue waits that are looked at together */
};
/* What "not yet" and "none" mean in an int64_t of nanoseconds. */
#define ENGINE_NEVER INT64_MAX

struct notice {
    struct notice *next;
    struct comm_request request;
    comm_notify_fn *fn;
    void *arg;
};

/* A communicator as progress knows it: the first member of its state (comm/state.h), under its handle's lock. */
struct progress_unit {
    struct engine *engine;
    struct comm_communicator *handle;
    _Atomic uint32_t *asks;                /* its wire's: WIRE_ASKED, a peer asks for something */
    bool closing;                          /* new calls are refused */
    struct notice *notices, *notices_free; /* callbacks, sorted by ticket */
    _Atomic uint32_t notice_count;
};
struct progress_class {
    bool (*step)(struct progress_unit *unit);                /* one bounded pass; true: something moved */
    void (*check)(struct progress_unit *unit, int64_t now);  /* deadlines */
    bool (*serve)(struct progress_unit *unit, bool monitor); /* what peers ask of it; true: there may be more */
    void (*activate)(struct progress_unit *unit);            /* it may have got, or lost, what a pass could move */
};

/* A world as progress knows it: the first member of struct world. */
struct progress_wire {
    const struct wire_class *class;
    struct wire *wire;
    _Atomic uint32_t *asks;
};

/* A stream that stands until a point of the host's is reached. */
struct engine_park {
    struct timeline_point point;
    struct device_place place;
    bool taken;
};

/* Which communicators and worlds there are. A bit for each communicator, by its index. */
struct engine_table {
    struct base_lock lock;                                /* of changes of handles, words and worlds */
    _Atomic(struct comm_communicator *) *handles;         /* ENGINE_COMMUNICATORS of them */
    _Atomic uint64_t active[ENGINE_COMMUNICATORS / 64];   /* with something unfinished */
    _Atomic uint32_t words;                               /* of `active` in use */
    _Atomic uint32_t ranked;                              /* communicators of another priority than 0 */
    _Atomic uint64_t urgent[ENGINE_COMMUNICATORS / 64];   /* of priority 1 */
    _Atomic uint64_t yielding[ENGINE_COMMUNICATORS / 64]; /* of priority -1 */
    _Atomic uint64_t apart[ENGINE_COMMUNICATORS / 64];    /* with windows of whose parts peers may ask */
    _Atomic uint32_t aparts;                              /* how many those are */
    _Atomic uint32_t passes;                              /* counted while there are ranked ones */
    _Atomic(struct progress_wire *) worlds[ENGINE_WORLDS];
};

/* Who sleeps, and on what (pass.c). */
struct engine_sleepers {
    _Atomic uint32_t poll_owner; /* taken by the thread that sleeps on the bell */
    bool loud;                   /* the owner's: the bell woke it, and stays rung until the loop comes that armed it */
    _Atomic uint32_t risen;      /* how often a thread has left the bell: a loop may wait for that */
    _Atomic uint32_t epoch;      /* the other threads park on it */
    _Atomic uint32_t parked, waiters, asleep, armed, progress_thread_parked;
    _Atomic uint32_t work;    /* the progress thread parks on it while nothing is to do */
    _Atomic uint32_t natives; /* communicators with work in a native, which wakes nobody: sleepers look every nap_ns */
    _Atomic int64_t nap_ns;
    _Atomic uint32_t silents; /* wires that ring nobody; counted in natives too, for the naps */
};

/* How long a waiting thread spins and yields before it sleeps (pass.c). */
struct engine_waiting {
    int64_t spin_ns, yield_ns;
    _Atomic uint32_t patience;    /* how much longer to yield before sleeping: learned from sleeps that were too short */
    _Atomic int64_t sleep_until;  /* yielding was seen to cost a slice: sleep instead until then */
    _Atomic int64_t yielded_long; /* when one did last */
    _Atomic int64_t long_since;   /* since when long yields are summed up, .. */
    _Atomic int64_t long_ns;      /* .. to this */
};

/* The thread that watches for deaths and deadlines (failure/watch.c). */
struct engine_monitor {
    struct env_bell bell; /* death notices */
    struct env_thread thread;
    bool runs;
    _Atomic int64_t tick_ns;
    _Atomic uint32_t heard_abort; /* it carries an abort to the other communicators */
};

/* The monitor's: queue waits that wait for each other (failure/deadlock.c). */
struct seen_cycle {
    uint64_t signature;                    /* as last seen, .. */
    uint32_t round[ENGINE_DEADLOCK_WAITS]; /* .. and in which round each wait was then */
    int64_t since_ns;                      /* since when it is as it is */
};

/* Traces that failed communicators have to write (inspect/trace.c). */
struct trace_queue {
    struct base_lock lock; /* a leaf: of the list */
    struct trace *list;
    _Atomic uint32_t given, written; /* counted; the writer parks on the first, a thread that waits for a file on the second */
    struct env_thread writer;
    bool writer_runs;
};

/* Streams of a device (event/stream.c). */
struct engine_streams {
    _Atomic(struct device *) device; /* opened when a stream is first named; NULL: not yet */
    char device_name[32];            /* as the program named it; empty: by local_rank */
    int32_t local_rank;
    _Atomic uint32_t parks; /* of park[] that are taken */
    struct base_lock park_lock;
    struct engine_park park[ENGINE_PARKS];
};

struct engine {
    const struct comm_env *env;
    const struct progress_class *class;
    const struct comm_part *const *parts; /* up to a NULL */
    struct comm_part_calls calls;
    struct base_log log;
    struct base_options options;
    struct env_bell bell;       /* sleepers and the caller's loop */
    struct base_lock poll_lock; /* of the wires' poll and arm: a world is not closed meanwhile */
    struct engine_table table;
    _Atomic uint32_t references;
    struct engine_sleepers sleepers;
    _Atomic uint32_t stopping, callbacks;
    struct engine_waiting waiting;
    struct engine_monitor monitor;
    struct seen_cycle cycle;
    struct env_thread progress_thread;
    struct trace_queue trace;
    struct engine_streams streams;
    bool logs, progress_thread_runs;
    bool oversubscribed; /* more ranks than CPUs */
    bool caller_only;    /* only the program's threads may enter a native */
    enum comm_notify_mode notify;
    enum data_isa isa;
    uint32_t cpus, local_ranks;
    struct env_identity identity;
};

/* engine.c: the engine's life and tables */
struct engine_config {
    const struct comm_env *env;
    const struct base_options *options;
    const struct base_log *log;
    const struct progress_class *class;
    const struct comm_part *const *parts;
    enum comm_notify_mode notify;
};
enum comm_result engine_create(const struct engine_config *config, char *text, size_t text_bytes, struct engine **engine);
void engine_hold(struct engine *e);
void engine_drop(struct engine *e);
enum comm_result engine_enlist(struct engine *e, struct comm_communicator *handle, uint32_t *index);
void engine_activate(struct engine *e, uint32_t index, bool active);
void engine_rank_queue(struct engine *e, uint32_t index, int32_t priority); /* 0: as any other */
void engine_note_apart(struct engine *e, uint32_t index, bool on);
enum comm_result engine_start_progress_thread(struct engine *e);
/* For a stream that waits for the host: UNSUPPORTED where only the caller's threads may move work. Any thread. */
enum comm_result engine_need_progress_thread(struct engine *e);
void engine_note_silent(struct engine *e, int32_t change); /* a wire that rings nobody opened (1), or closes (-1) */
void engine_note_timeout(struct engine *e, int64_t timeout_ns);
void engine_forget_wire(struct engine *e, struct progress_wire *wire); /* when it returns no thread polls that wire, nor will */
/* Something that nobody is woken for is, or is no longer, waited for: sleepers look from time to time. Any thread. */
void engine_await_word(struct engine *e, bool on);

/* What this handle holds of that engine; NULL: nothing, or another engine's. Its lock is held. */
static inline struct progress_unit *unit_of(const struct engine *e, const struct comm_communicator *handle)
{
    struct progress_unit *unit = atomic_load_explicit(&handle->state, memory_order_relaxed);

    return unit && unit->engine == e ? unit : NULL;
}

/* pass.c: moving and sleeping */
enum pass { PASS_IDLE = 0, PASS_MOVED = 1, PASS_BUSY = 2 /* somebody else holds a communicator that may have work */ };
enum pass engine_step(struct engine *e, struct comm_communicator *handle);
enum pass engine_pass(struct engine *e, bool callbacks);
typedef bool engine_until_fn(void *arg);
/* Moves the engine until fn says true (true) or deadline (false). own: the communicator most likely to matter, or NULL. */
bool engine_move_until(struct engine *e, struct comm_communicator *own, engine_until_fn *fn, void *arg, int64_t deadline);
void engine_told_unlocked(struct engine *e); /* the same from outside a communicator's lock */
void engine_told(struct engine *e);          /* something retired, failed, was set or is due: sleepers must look */
/* The same, where there mostly are none. */
static inline void engine_tell(struct engine *e)
{
    if (BASE_UNLIKELY(atomic_load_explicit(&e->streams.parks, memory_order_relaxed) |
                      atomic_load_explicit(&e->sleepers.asleep, memory_order_relaxed) |
                      atomic_load_explicit(&e->sleepers.armed, memory_order_relaxed) |
                      atomic_load_explicit(&e->sleepers.parked, memory_order_relaxed)))
        engine_told(e);
}
/* Gives the CPU away once; false: yielding is dear now, and nothing was done. now: when the caller last looked (0: it did not), and after.
 */
bool engine_yield(struct engine *e, int64_t *now);
int64_t engine_deadline(const struct engine *e, int64_t timeout_ns);
bool engine_in_callback(struct engine *e);
void engine_progress_thread(void *arg);
void engine_disarm(struct engine *e);
void engine_nap_until(struct engine *e, int64_t now, int64_t *until); /* lowers `until` to when a sleeper must look without being woken */
enum pass engine_arm_bell(struct engine *e);
bool engine_callback_due(struct engine *e);

/* serve.c: what peers ask of windows, where nobody here waits */
struct serve_round {
    int64_t nap_ns; /* until the monitor looks again; 0: until it is rung */
    uint32_t quiet; /* such looks in a row that found nothing */
    bool heeds, owed;
};
bool engine_heed(struct engine *e, struct serve_round *round); /* before it sleeps; true: it need not */
bool engine_rise(struct engine *e, struct serve_round *round); /* it is up; true: something was asked */
void engine_serve_round(struct engine *e, struct serve_round *round, bool came);

/* notify.c: callbacks */
enum comm_result engine_notify(struct comm_request request, comm_notify_fn *fn, void *arg);
void notify_run(struct engine *e, struct comm_communicator *handle);
bool notify_due(struct progress_unit *unit);
void notify_free(struct progress_unit *unit);

/* ------------------------------------------------------------------------------------------------------------ a communicator's lock */
/* OK, or ARGUMENT, FORKED; a closed one is found under its lock. */
static inline enum comm_result engine_alive(const struct comm_communicator *c)
{
    if (BASE_UNLIKELY(!c))
        return COMM_ERR_ARGUMENT;
    return BASE_LIKELY(atomic_load_explicit(c->alive, memory_order_relaxed)) ? COMM_OK : COMM_ERR_FORKED;
}
/* NULL: not locked, why */
static inline struct progress_unit *unit_lock(struct comm_communicator *c, enum comm_result *why)
{
    *why = engine_alive(c);
    if (*why != COMM_OK)
        return NULL;
    base_home_lock(&c->lock, c->env);
    struct progress_unit *unit = atomic_load_explicit(&c->state, memory_order_relaxed);
    if (unit && !unit->closing)
        return unit;
    base_home_unlock(&c->lock, c->env);
    *why = COMM_ERR_CLOSED;
    return NULL;
}
static inline void unit_unlock(struct progress_unit *unit)
{
    struct comm_communicator *handle = unit->handle;
    base_home_unlock(&handle->lock, handle->env);
}
/* The end of a call: as unit_unlock, and what peers ask for meanwhile is done. */
void unit_leave_asked(struct progress_unit *unit);
static inline void unit_leave(struct progress_unit *unit)
{
    if (BASE_UNLIKELY(atomic_load_explicit(unit->asks, memory_order_relaxed) & WIRE_ASKED))
        unit_leave_asked(unit);
    else
        unit_unlock(unit);
}
/* A call that found all complete, and takes no lock: now and then it looks as the others do. */
void engine_glance(struct comm_communicator *handle);
int32_t engine_rank(const struct comm_communicator *c); /* -1: closed */
int32_t engine_size(const struct comm_communicator *c);

#endif
