/*
 * What the parts of the simulator share: the run, its ranks and threads, the scheduler, the network's ports. Tests use
 * only sim.h.
 *
 * One run at a time. Everything that may influence it lies in `sim`, in arenas at fixed addresses, or on stacks of its
 * own; all of it is reset before each run.
 */
#ifndef TESTS_SIM_INSIDE_H
#define TESTS_SIM_INSIDE_H

#include "sim/sim.h"

#include "base/env.h"
#include "wire/boot.h"
#include "wire/wire.h"

enum {
    SIM_THREADS_MAX = 4 * SIM_RANKS_MAX + 64,
    SIM_BELLS_MAX = 2 * SIM_RANKS_MAX + 64,
    SIM_BELL_BASE = 100, /* the first of the numbers that represent descriptors */
    SIM_OPTIONS_MAX = 24,
    SIM_PORTS_MAX = 8, /* wires that one rank can have open at a time */
};

/* ------------------------------------------------------------------------------------------------------------ randomness */
/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). One stream per purpose. */
static inline uint64_t sim_draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static inline uint64_t sim_below(uint64_t *state, uint64_t limit)
{
    return (sim_draw(state) >> 32) * limit >> 32; /* limits are below 2^32 */
}
static inline int64_t sim_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(sim_draw(state) % (uint64_t)(high - low + 1));
}

/* ------------------------------------------------------------------------------------------------------------ threads */
enum sim_state { THREAD_READY, THREAD_WAITS, THREAD_ENDED, THREAD_STOPPED /* its rank ended */ };

struct sim_thread {
    void *sp; /* saved stack pointer; see switch.c */
    char *stack;
    size_t stack_bytes;
    void (*fn)(void *arg);
    void *arg;
    int32_t rank;
    uint32_t id;
    enum sim_state state;
    uint32_t ready_at; /* index among the ready threads */
    uint32_t priority;
    bool application, in_handle;
    const void *waits_for; /* a word, a bell, a thread, or NULL: only time */
    const char *place;     /* where it waits, for reports */
    int64_t until;         /* deadline of the wait */
    uint64_t waits;        /* number of the wait: a timer of an earlier wait is void */
    const char *doing;
    uint64_t sequence;
    struct sim_thread *next; /* next thread of this rank */
    void *asan;              /* fake stack */
};

/* The scheduling points of the core: every atomic operation counts down; see points.h. */
extern int32_t sim_budget;
void sim_preempt(void);
static inline void sim_point(void)
{
    if (__builtin_expect(--sim_budget < 0, 0))
        sim_preempt();
}

struct sim_thread *sim_thread_start(int32_t rank, void (*fn)(void *arg), void *arg, bool application);
/* The running thread waits for something, or until a deadline in true time (INT64_MAX: none). Returns when woken or
 * past the deadline. */
void sim_wait(const void *what, int64_t until, const char *place);
/* Wakes up to `count` threads of a rank (-1: of any rank) that wait for this. */
void sim_wake(int32_t rank, const void *what, uint32_t count);
/* The running thread sleeps for this long. */
void sim_sleep(int64_t ns, const char *place);
typedef void sim_timer_fn(void *arg, uint64_t what);
/* The scheduler calls fn at that time; fn must not wait. */
void sim_at(int64_t ns, sim_timer_fn *fn, void *arg, uint64_t what);
void sim_mix(uint64_t value); /* into the run's hash */
void sim_stop_rank(int32_t rank);
void sim_leave(void) __attribute__((noreturn));                                 /* the running thread was stopped: another one continues */
void sim_finish(void) __attribute__((noreturn));                                /* the run is over: never returns to this thread */
void sim_failed(const char *format, ...) __attribute__((format(printf, 1, 2))); /* from anywhere; the run ends soon */
void sim_tell_threads(char *text, size_t bytes);

/* switch.c: saves the running context at *from and continues the one saved as `to`. */
void sim_switch(void **from, void *to);
void *sim_context(char *stack, size_t bytes, void (*entry)(void));

/* ------------------------------------------------------------------------------------------------------------ ranks */
struct sim_port;
struct sim_member {
    struct comm_env env; /* first: used by this rank's library */
    _Atomic uint32_t alive;
    int32_t rank;
    bool dead, ended; /* killed; its main function returned */
    int64_t died_ns, paused_until, paused_most, slow_until, clock_ahead;
    uint32_t slow;
    struct sim_denial {
        uint32_t calls, after, count; /* calls so far; how many more succeed, and how many then fail */
    } memory, room;
    uint64_t random; /* the application's random stream */
    uint64_t entropy;
    struct sim_thread *threads;
    struct sim_port *port[SIM_PORTS_MAX];
    int64_t held, held_blocks; /* memory, without that of the handles */
};

struct sim_bell {
    int32_t rank;
    bool open, rung;
};

struct sim_option {
    char name[40], value[64];
};

/* What the seed decides for one run. */
struct sim_mood {
    enum sim_order order;
    int64_t step_ns;    /* virtual time per scheduling choice */
    int32_t budget;     /* average number of atomic operations between choices */
    int64_t relax_ns;   /* at most, for one turn of a waiting loop */
    uint32_t change;    /* priorities: one in this many choices gives the running thread the lowest one */
    bool barrier;       /* the machine has membarrier */
    int64_t death_ns;   /* at most, until a death is reported */
    uint32_t refuse;    /* frames: one in this many calls finds no room; 0: none */
    uint32_t hold;      /* frames: one in this many exposures stays pending; 0: none */
    int64_t latency_ns; /* frames: at least */
    int64_t spread_ns;  /* frames: additional, at most, occasionally a thousand times as much */
    int64_t byte_ps;    /* frames: picoseconds per byte */
    uint32_t tail;      /* frames: one in this many takes a hundred times as long; 0: none */
};

struct sim {
    struct sim_config config;
    struct sim_mood mood;
    struct sim_result *result;
    sim_rank_fn *rank_main;
    void *arg;
    struct sim_thread *current;
    void *outside; /* context of sim_run */
    uint64_t hash, events, limit_events;
    int64_t clock, limit_ns, heal_ns, last_fault_ns;
    uint64_t schedule, network, chance; /* random streams */
    uint64_t ties;                      /* metered: events at the same time happen in the order of their requests */
    uint32_t thread_count, ready_count;
    uint32_t lowest; /* the last priority assigned */
    struct sim_option option[SIM_OPTIONS_MAX];
    uint32_t options, bells;
    int32_t running; /* ranks that have neither ended nor died */
    size_t fault_next;
    uint64_t fault_event; /* of the next fault; UINT64_MAX: none */
    uint64_t fault_count[SIM_FAULT_KINDS];
    uint32_t worlds;
    bool keeps;        /* sent frames may come again */
    bool active, held; /* held: no preemption for the moment */
    /* Long tables; a run clears what the one before it has used of them. */
    struct sim_member member[SIM_RANKS_MAX];
    struct sim_bell bell[SIM_BELLS_MAX];
    struct sim_thread threads[SIM_THREADS_MAX];
    struct sim_thread *ready[SIM_THREADS_MAX];
};
extern struct sim sim;

static inline struct sim_member *sim_self(void)
{
    return &sim.member[sim.current->rank];
}

/* ------------------------------------------------------------------------------------------------------------ the parts */
/* memory.c */
void sim_memory_reset(void);
void *sim_memory_take(size_t bytes, size_t align); /* zeroed; NULL: the arenas are full */
void sim_memory_give(void *memory, size_t bytes, bool poison);

/* env_sim.c */
void sim_env_fill(struct sim_member *member);
void sim_ring(uint32_t bell);
const char *sim_option_value(const char *name);
int32_t sim_host_of(int32_t rank);

/* handle_sim.c */
void sim_forget_handles(void);

/* faults.c */
void sim_faults_plan(void);
void sim_faults_due(void);
void sim_kill(int32_t rank);

/* port.c: what members of a world share apart from data: which sleep, which live, which have closed. */
struct sim_peer {
    uint32_t beat;
    int64_t silent_ns;
    bool down, warned;
    int32_t notice; /* not reported yet: a comm_result */
};
/* self: the rank in the simulator; rank: the rank in the wire, which may contain only one host. across: another wire
 * serves ranks of its own host. */
struct sim_port {
    const struct comm_env *env;
    const struct base_log *log;
    int32_t self, rank, ranks;
    bool across;
    uint32_t bell, watch;
    bool sleeping, closed, told_again;
    bool heeding, came; /* heeding: the next arrival wakes the monitor once; came: something has arrived since the last query */
    uint32_t beat;
    int64_t polled_ns, timeout_ns;
    struct sim_port **all;
    struct sim_peer *peer;
};
enum comm_result sim_port_open(const struct wire_config *config, struct sim_port **port);
void sim_port_close(struct sim_port *port);
void sim_port_arm(struct sim_port *port, bool on);
void sim_port_ring(struct sim_port *port); /* if it sleeps, and also its monitor if that heeds */
bool sim_port_heed(struct sim_port *port, bool on);
uint32_t sim_port_poll(struct sim_port *port, struct wire_event *events, uint32_t max);
void sim_port_notice(int32_t rank, int32_t about, enum comm_result result, int64_t ns); /* reports it to rank at that time */
void sim_port_rank_gone(int32_t rank);
/* frames_net.c: when the last frame on its way from one rank to the other arrives; 0 on lines. */
int64_t frames_net_last(int32_t from, int32_t to);
int64_t frames_net_clear(int32_t from, int32_t to); /* until when that stream is, or was, clogged */
bool frames_net_broken(int32_t from, int32_t to);   /* nothing arrives by that stream any more */
/* Whether a fault makes this allocation fail, or this call find no room. */
bool sim_denied_memory(struct sim_member *member);
bool sim_denied_room(void);
void sim_again_later(void);

#endif
