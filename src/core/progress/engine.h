/*
 * The engine decides which thread moves work, which one sleeps, and which one is woken. It has the tables of communicators and worlds,
 * makes passes over them, runs the progress thread, and calls callbacks. It knows a communicator as a unit with a way to step it (struct
 * progress_class), and a world as a wire. Table entries are atomics, or belong to the lock named next to them.
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
    ENGINE_NAP_LEAST_NS = 50000, /* the first interval at which sleepers poll what wakes no thread; later intervals are longer */
    ENGINE_PARKS = 16,
    ENGINE_DEADLOCK_WAITS = 64, /* open queue waits that are examined together */
};
/* In an int64_t of nanoseconds: "not yet", or "none". */
#define ENGINE_NEVER INT64_MAX

/* A callback that comm_notify registered for a request. */
struct notice {
    struct notice *next;
    struct comm_request request;
    comm_notify_fn *fn;
    void *arg;
};

/* What progress knows of a communicator: the first member of its state (comm/state.h). The lock of the handle protects it. */
struct progress_unit {
    struct engine *engine;
    struct comm_communicator *handle;
    _Atomic uint32_t *asks;                /* a word of its wire; WIRE_ASKED: a peer requests something */
    bool closing;                          /* new calls are refused */
    struct notice *notices, *notices_free; /* callbacks, sorted by ticket */
    _Atomic uint32_t notice_count;
};
/* How progress calls a communicator (comm/unit.c). */
struct progress_class {
    bool (*step)(struct progress_unit *unit);                /* one bounded pass; true: something moved */
    void (*check)(struct progress_unit *unit, int64_t now);  /* deadlines */
    bool (*serve)(struct progress_unit *unit, bool monitor); /* serves what peers request from it; true: there may be more */
    void (*activate)(struct progress_unit *unit);            /* its work may have changed: marks it active or not active */
};

/* What progress knows of a world: the first member of struct world. */
struct progress_wire {
    const struct wire_class *class;
    struct wire *wire;
    _Atomic uint32_t *asks;
};

/* A device stream that is blocked until a point on the host is reached. */
struct engine_park {
    struct timeline_point point;
    struct device_place place;
    bool taken;
};

/* All communicators and worlds of the engine. The bit sets have one bit for each communicator, by its index. */
struct engine_table {
    struct base_lock lock;                                /* protects changes of handles, words and worlds */
    _Atomic(struct comm_communicator *) *handles;         /* ENGINE_COMMUNICATORS of them */
    _Atomic uint64_t active[ENGINE_COMMUNICATORS / 64];   /* communicators that have unfinished work */
    _Atomic uint32_t words;                               /* words of `active` that are in use */
    _Atomic uint32_t prioritized;                         /* how many communicators have a priority other than 0 */
    _Atomic uint64_t urgent[ENGINE_COMMUNICATORS / 64];   /* communicators of priority 1 */
    _Atomic uint64_t yielding[ENGINE_COMMUNICATORS / 64]; /* communicators of priority -1 */
    /* communicators with windows whose memory only the owner can reach, so that peers send requests */
    _Atomic uint64_t apart[ENGINE_COMMUNICATORS / 64];
    _Atomic uint32_t aparts; /* how many bits are set in `apart` */
    _Atomic uint32_t passes; /* counted while `prioritized` is not 0 */
    _Atomic(struct progress_wire *) worlds[ENGINE_WORLDS];
};

/* Which threads sleep, and on what (pass.c). */
struct engine_sleepers {
    _Atomic uint32_t poll_owner; /* 1: a thread holds the right to sleep on the bell */
    bool loud;                   /* belongs to the owner: the bell woke it, and stays rung until the loop that armed it comes */
    _Atomic uint32_t risen;      /* how often a thread has stopped sleeping on the bell; a loop may wait for a change */
    _Atomic uint32_t epoch;      /* the other threads park on it */
    /* parked: threads that park on epoch. waiters: threads in engine_move_until. asleep: threads that sleep on the bell. armed: 1 while an
     * event loop may sleep on the descriptor of the bell. */
    _Atomic uint32_t parked, waiters, asleep, armed;
    /* The progress thread (thread.c). thread_moves: 1 while it moves work. thread_rests: 1 while it rests until it is woken. It naps and
     * rests on `work`. */
    _Atomic uint32_t thread_moves, thread_rests, work;
    /* what is waited for that wakes no thread (natives, copies, words of a device, silent wires): sleepers poll every nap_ns */
    _Atomic uint32_t must_poll;
    _Atomic int64_t nap_ns;
    _Atomic uint32_t silents; /* wires that wake no thread; also counted in must_poll, for the naps */
};

/* How long a waiting thread spins and yields before it sleeps (pass.c). */
struct engine_waiting {
    int64_t spin_ns, yield_ns;
    uint32_t looks;               /* of the progress thread that find nothing to do, before it rests */
    _Atomic uint32_t patience;    /* how much longer to yield before sleeping; learned from sleeps that were too short */
    _Atomic int64_t sleep_until;  /* yielding cost a whole time slice: sleep instead until this time */
    _Atomic int64_t yielded_long; /* when a long yield last ended */
    _Atomic int64_t long_since;   /* start of the interval over which long yields are summed */
    _Atomic int64_t long_ns;      /* sum of the long yields in that interval */
};

/* The thread that watches for deaths and deadlines (failure/watch.c). */
struct engine_monitor {
    struct env_bell bell; /* death notices ring it */
    struct env_thread thread;
    bool runs;
    _Atomic int64_t tick_ns;
    _Atomic uint32_t heard_abort; /* the monitor must carry an abort to the other communicators */
    _Atomic uint32_t waits;       /* the monitor waits for a communicator that another thread takes again and again */
    _Atomic uint32_t found;       /* another thread made the monitor's checks, and found what the monitor must look at soon */
    bool (*check)(struct progress_unit *unit, int64_t now); /* engine_monitor_check (failure/failure.h) */
};

/* Queue waits that wait for each other, as the monitor last saw them (failure/deadlock.c). */
struct seen_cycle {
    uint64_t signature;                    /* of the cycle as last seen */
    uint32_t round[ENGINE_DEADLOCK_WAITS]; /* the round of each wait at that time */
    int64_t since_ns;                      /* since when the cycle has not changed */
};

/* Traces that failed communicators must write (inspect/trace.c). */
struct trace_queue {
    struct base_lock lock; /* protects the list; no other lock is taken under it */
    struct trace *list;
    _Atomic uint32_t given, written; /* counters: the writer parks on the first, a thread that waits for a file parks on the second */
    struct env_thread writer;
    bool writer_runs;
};

/* The streams of a device (event/stream.c). */
struct engine_streams {
    _Atomic(struct device *) device; /* opened when a stream is first used; NULL: not yet */
    char device_name[32];            /* as the program named it; empty: chosen by local_rank */
    int32_t local_rank;
    _Atomic uint32_t parks; /* how many entries of park[] are taken */
    struct base_lock park_lock;
    struct engine_park park[ENGINE_PARKS];
};

struct engine {
    const struct comm_env *env;
    const struct progress_class *class;
    const struct comm_part *const *parts; /* ends with NULL */
    struct comm_part_calls calls;
    struct base_log log;
    struct base_options options;
    struct env_bell bell;       /* wakes the sleeper and the caller's event loop */
    struct base_lock poll_lock; /* held while wires are polled or armed, so that no world closes meanwhile */
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
    struct {
        struct base_lock lock;
        struct comm_event *first;
    } events; /* all events of this engine */
    bool logs;
    _Atomic bool progress_thread_runs; /* written under table.lock; see engine_has_thread */
    bool oversubscribed;               /* more ranks than CPUs */
    bool caller_only;                  /* only the program's threads may enter a native */
    enum comm_notify_mode notify;
    enum data_isa isa;
    uint32_t cpus, local_ranks;
    struct env_identity identity;
};

/* engine.c: creation, destruction and tables */
/* For a thread that waits for the place: BACKEND if its device has stopped for good. Asks the device, but only if the last time, which the
 * caller keeps in *asked_ns (0 at first), was a tenth of a second ago. */
enum comm_result engine_ask_device(const struct engine *e, const struct device_place *place, int64_t *asked_ns);
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
void engine_set_priority(struct engine *e, uint32_t index, int32_t priority); /* 0: the default */
void engine_note_apart(struct engine *e, uint32_t index, bool on);
enum comm_result engine_start_progress_thread(struct engine *e);
/* For a stream that waits for the host. Returns UNSUPPORTED if only the caller's threads may move work. Any thread. */
enum comm_result engine_need_progress_thread(struct engine *e);
void engine_note_silent(struct engine *e, int32_t change); /* a wire that wakes no thread opened (1) or closes (-1) */
void engine_note_timeout(struct engine *e, int64_t timeout_ns);
void engine_forget_wire(struct engine *e, struct progress_wire *wire); /* after it returns, no thread polls that wire */
/* on: the caller waits for something that wakes no thread, so sleepers must poll from time to time; off: it no longer does. Any thread. */
void engine_need_polls(struct engine *e, bool on);

/* The unit of this handle if it belongs to that engine, otherwise NULL. The handle's lock is held. */
static inline struct progress_unit *unit_of(const struct engine *e, const struct comm_communicator *handle)
{
    struct progress_unit *unit = atomic_load_explicit(&handle->state, memory_order_relaxed);

    return unit && unit->engine == e ? unit : NULL;
}

/* pass.c: passes, waiting and sleeping */
/* What a pass found; the values are bits. */
enum pass { PASS_IDLE = 0, PASS_MOVED = 1, PASS_BUSY = 2 /* another thread holds the lock of a communicator that may have work */ };
enum pass engine_step(struct engine *e, struct comm_communicator *handle);
enum pass engine_pass(struct engine *e, bool callbacks);
typedef bool engine_until_fn(void *arg);
/* Makes passes until fn returns true (returns true) or until the deadline (returns false). own: the communicator that most likely matters,
 * or NULL. */
bool engine_move_until(struct engine *e, struct comm_communicator *own, engine_until_fn *fn, void *arg, int64_t deadline);
/* The same without counting as a waiting thread, as the progress thread needs it. */
struct mover {
    engine_until_fn *reached;
    void *arg;
    int64_t deadline;
    bool callbacks;      /* runs callbacks */
    bool sleeps_at_once; /* when nothing moves: no spinning, no yielding */
};
bool engine_move(struct engine *e, struct comm_communicator *own, const struct mover *m);
void engine_wake_unlocked(struct engine *e); /* engine_wake for callers outside a communicator's lock */
void engine_wake(struct engine *e);          /* something retired, failed, was set or is due: wakes the sleepers */
static inline bool engine_has_thread(const struct engine *e)
{
    return atomic_load_explicit(&e->progress_thread_runs, memory_order_relaxed);
}
static inline bool engine_has_sleepers(const struct engine *e)
{
    return BASE_UNLIKELY(
        atomic_load_explicit(&e->streams.parks, memory_order_relaxed) | atomic_load_explicit(&e->sleepers.asleep, memory_order_relaxed) |
        atomic_load_explicit(&e->sleepers.armed, memory_order_relaxed) | atomic_load_explicit(&e->sleepers.parked, memory_order_relaxed));
}
/* engine_wake with a quick check first, since there are usually no sleepers. */
static inline void engine_wake_if_asleep(struct engine *e)
{
    if (engine_has_sleepers(e))
        engine_wake(e);
}
/* Yields the CPU once. Returns false, without a yield, if yielding is expensive at present. now: the time when the caller last read the
 * clock (0: it did not); on return, the time after the yield. */
bool engine_yield(struct engine *e, int64_t *now);
int64_t engine_deadline(const struct engine *e, int64_t timeout_ns);
bool engine_in_callback(struct engine *e);
void engine_disarm(struct engine *e);
/* lowers `until` to the time when a sleeper must look without being woken */
void engine_lower_deadline(struct engine *e, int64_t now, int64_t *until);
enum pass engine_arm_bell(struct engine *e);
bool engine_callback_due(struct engine *e);

/* thread.c: the progress thread */
void engine_progress_thread(void *arg);
bool engine_nothing_active(const struct engine *e);
/* A pause of the progress thread after passes that moved something or found a lock held, when it has no CPU of its own. */
void engine_pause_thread(struct engine *e);
/* Wakes the progress thread if it rests. Called after there is something for it to do. */
void engine_wake_thread(struct engine *e);

/* serve.c: serves what peers request of windows while no thread here waits */
struct serve_round {
    int64_t nap_ns; /* until the monitor looks again; 0: it sleeps until it is rung */
    uint32_t quiet; /* how many rounds in a row found nothing */
    /* heeds: the wires ring the monitor for requests. owed: a request may not be served yet. */
    bool heeds, owed;
};
bool engine_heed(struct engine *e, struct serve_round *round); /* before the monitor sleeps; true: it must not sleep */
bool engine_rise(struct engine *e, struct serve_round *round); /* after the monitor wakes up; true: a peer requested something */
void engine_serve_round(struct engine *e, struct serve_round *round, bool came);

/* notify.c: callbacks */
enum comm_result engine_notify(struct comm_request request, comm_notify_fn *fn, void *arg);
void notify_run(struct engine *e, struct comm_communicator *handle);
bool notify_due(struct progress_unit *unit);
void notify_free(struct progress_unit *unit);

/* ------------------------------------------------------------------------------------------------------------ the lock of a communicator
 */
/* OK, ARGUMENT or FORKED. A closed communicator is detected only under its lock. */
static inline enum comm_result engine_alive(const struct comm_communicator *c)
{
    if (BASE_UNLIKELY(!c))
        return COMM_ERR_ARGUMENT;
    return BASE_LIKELY(atomic_load_explicit(c->alive, memory_order_relaxed)) ? COMM_OK : COMM_ERR_FORKED;
}
/* False in a forked child: what belongs to the engine is the parent's, its threads are missing, and its locks may be held for ever. */
static inline bool engine_is_own(const struct engine *e)
{
    return atomic_load_explicit(e->env->alive, memory_order_relaxed) != 0;
}
/* Locks the communicator. NULL: it is not locked, and *why says why. */
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
/* Ends a call: unlocks as unit_unlock does, and serves what peers have requested meanwhile. */
void unit_leave_asked(struct progress_unit *unit);
static inline void unit_leave(struct progress_unit *unit)
{
    if (BASE_UNLIKELY(atomic_load_explicit(unit->asks, memory_order_relaxed) & WIRE_ASKED))
        unit_leave_asked(unit);
    else
        unit_unlock(unit);
}
/* For calls that find everything complete and take no lock: one call in GLANCES takes the lock and serves peers, as other calls do. */
void engine_glance(struct comm_communicator *handle);
int32_t engine_rank(const struct comm_communicator *c); /* -1: closed */
int32_t engine_size(const struct comm_communicator *c);

#endif
