/*
 * The simulator: all ranks of a world in this process, in virtual time, under one seeded scheduler. What runs is the production library:
 * api, timeline, programs, engine, monitor; only env, wire and boot are others. A run is a pure function of its config and the build.
 *
 * A test gives what one rank does, a function that calls comm_* as any program would, from comm_open (sim_open says with what) to
 * comm_close. It must use no clock, randomness, thread or lock of the machine; sim_* has one of each. Memory: sim_take, or the stack; what
 * a rank got from malloc is lost when that rank is killed.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <commstream/comm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------------------------------------------------ a run */
enum { SIM_RANKS_MAX = 128, SIM_FAULTS_MAX = 64 };

enum sim_wire {
    SIM_WIRE_ANY,    /* the seed says */
    SIM_WIRE_LINES,  /* the production lines of shared memory, each atomic operation a point where the scheduler may go elsewhere */
    SIM_WIRE_FRAMES, /* byte streams between ranks: latency, bandwidth, credits, acknowledgements */
    SIM_WIRE_MIXED,  /* lines inside hosts, streams across: the production wire over both */
};

enum sim_fault_kind {
    SIM_KILL,    /* victim ends at this very point; others are told after a delay */
    SIM_PAUSE,   /* victim stands still for ns */
    SIM_SLOW,    /* victim takes amount times as long from here on, for ns */
    SIM_MEMORY,  /* victim's next `amount` allocations have none; UINT32_MAX: none has any more */
    SIM_AGAIN,   /* victim's next `amount` wire calls find no room */
    SIM_CLOG,    /* frames: nothing arrives from victim at peer for ns; then it does */
    SIM_CUT,     /* frames: nothing arrives from victim at peer any more; the other way all does */
    SIM_RESET,   /* frames: the connection between victim and peer breaks; both are told */
    SIM_CORRUPT, /* frames: the next bytes from victim to peer are not what was sent, and their checksum shows it */
    SIM_JUMP,    /* victim's clock goes ahead by ns at once */
    SIM_STALE,   /* frames: something that victim said before, and that has had its time, comes to its peer once more, in its turn: of a
                    communicator that is closed or failed there, of room given back, of an operation that is over */
    SIM_REPLAY,  /* frames: bytes that victim sent before come once more as they were, as from a connection before this one */
    SIM_FAULT_KINDS,
};
#define SIM_FAULT_BIT(kind) (UINT32_C(1) << (kind))
/* Those that no operation may fail of: everything that delays, or denies for a while. */
#define SIM_FAULTS_HARMLESS                                                                                                                \
    (SIM_FAULT_BIT(SIM_PAUSE) | SIM_FAULT_BIT(SIM_SLOW) | SIM_FAULT_BIT(SIM_AGAIN) | SIM_FAULT_BIT(SIM_CLOG) | SIM_FAULT_BIT(SIM_JUMP) |   \
     SIM_FAULT_BIT(SIM_STALE))
#define SIM_FAULTS_ALL (SIM_FAULT_BIT(SIM_FAULT_KINDS) - 1)

/* Every message takes latency_ns; a host's card sends and receives one after the other, each in byte_ns a byte, and gap_ns to send. */
struct sim_meter {
    int64_t latency_ns, gap_ns, byte_ns;
};

/* A fault is data, so that lists of them can be swept and shrunk. */
struct sim_fault {
    uint64_t event; /* it comes with this event of the run, or the first after it */
    int32_t victim;
    int32_t peer; /* of those that have one */
    uint32_t kind;
    uint32_t amount;
    int64_t ns;
    uint32_t after; /* MEMORY, AGAIN: so many calls go well before it */
};

enum sim_order { SIM_ORDER_ANY, SIM_ORDER_UNIFORM, SIM_ORDER_PRIORITY, SIM_ORDER_TURNS, SIM_ORDER_SCRIPT };

struct sim_config {
    uint64_t seed;
    int32_t ranks; /* 1 .. SIM_RANKS_MAX */
    int32_t hosts; /* frames, mixed: ranks are spread over so many, in blocks; 0 or 1: one */
    bool turns;    /* not in blocks, but one rank to each host in turn */
    enum sim_wire wire;
    enum sim_order order;
    int32_t budget; /* atomic operations between two choices, on average; 0: the seed says */
    bool calm;      /* nothing of the library's options is left to the seed: its defaults, moderate scheduling */
    bool minimal;   /* every limit at its minimum: COMM_MINIMAL, COMM_WINDOW=4, the smallest chunk. Otherwise the seed says, unless calm */
    /* Kinds that the seed may sample, a bit each. 0: no faults but those of the list. */
    uint32_t swarm;
    uint64_t swarm_events; /* they come within so many events; 0: 20,000 */
    const struct sim_fault *faults;
    size_t fault_count;
    int64_t heal_ns;       /* from this virtual time on everything is healed (clogs end, pauses end, speeds are even); 0: 20 s */
    int64_t limit_ns;      /* a run that takes longer has failed: stuck; 0: 4,000 s */
    uint64_t limit_events; /* the same; 0: 50 million */
    const char *options;   /* more of the environment, for all ranks: "COMM_WINDOW=8 COMM_ALGORITHM=allreduce:slices"; NULL: none */
    uint32_t first_number; /* of every communicator's collectives: near 2^32 to see them wrap; 0: 1 */
    int trace;             /* a descriptor to which every event is written as a line; 0: none */
    /* SIM_ORDER_SCRIPT: which of `count` deliveries is next, for exhaustive exploration: an index into connections (sender * ranks +
       receiver); another value ends the run. Threads run in turns. */
    uint32_t (*choose)(void *arg, const uint32_t *connections, uint32_t count);
    void *choose_arg;
    /* Frames alone: nothing takes time but the network, which does it exactly as the cost model says; for a comparison with that. */
    const struct sim_meter *meter;
    void (*watch)(void *arg); /* called at each event at which a fault can come, before it; NULL: nobody watches */
    void *watch_arg;
};

struct sim_result {
    bool failed;
    uint64_t hash;   /* of all choices, deliveries and notes: equal for equal runs */
    uint64_t events; /* scheduling choices, deliveries, completions */
    uint64_t faults; /* how many came */
    int64_t ns;      /* virtual */
    enum sim_wire wire;
    struct sim_fault fault[SIM_FAULTS_MAX]; /* those that were planned, sampled ones too: a list for the next run */
    size_t fault_count;
    char text[4096]; /* why it failed: names seed, rank, operation, sequence, and where every thread stands */
};

typedef void sim_rank_fn(int32_t rank, void *arg);

/* Runs one world: rank_main on each rank. True: no failure. arg is shared by all ranks; what they write there is theirs to keep apart. */
bool sim_run(const struct sim_config *config, sim_rank_fn *rank_main, void *arg, struct sim_result *result);

/* ------------------------------------------------------------------------------------------------------------ inside a rank */
int32_t sim_rank(void);
int32_t sim_ranks(void);
int64_t sim_now(void);       /* the true virtual time; a rank's own clock may be ahead of it */
uint64_t sim_random(void);   /* the application's own stream: faults and scheduling do not move it; one stream per rank */
void sim_spend(int64_t ns);  /* the application computes for so long */
void *sim_take(size_t size); /* zeroed, aligned to 64; given back when the run ends */

/* comm_open of this world with the options of the run; config: more, or NULL. */
enum comm_result sim_open(const struct comm_config *config, struct comm_communicator **world);

/* Another application thread of this rank. join waits for its end. */
struct sim_thread;
struct sim_thread *sim_spawn(void (*fn)(void *arg), void *arg);
void sim_join(struct sim_thread *thread);
/* Whether a descriptor of comm_fd is readable; waits for it. */
bool sim_poll(int fd, int64_t timeout_ns);

/* What this rank is at, for the text of a failure: the operation's name (kept, not copied) and its number. */
void sim_doing(const char *operation, uint64_t sequence);
/* Ends the run: failed. Does not return. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define SIM_CHECK(condition, ...)                                                                                                          \
    do {                                                                                                                                   \
        if (!(condition))                                                                                                                  \
            sim_fail(__VA_ARGS__);                                                                                                         \
    } while (0)
/* Makes a value part of the run's hash: results, bytes. */
void sim_note(uint64_t value);
void sim_note_bytes(const void *bytes, size_t count);

/* The truth, for oracles. */
bool sim_is_dead(int32_t rank);                      /* killed */
int64_t sim_died_ns(int32_t rank);                   /* when */
int64_t sim_stood_still_ns(int32_t rank);            /* longest pause so far */
bool sim_link_broken(int32_t a, int32_t b);          /* cut, reset or corrupted, either way */
int64_t sim_link_clear_ns(int32_t from, int32_t to); /* until when nothing came from one to the other, clogged; 0: it never was */
uint64_t sim_faults_of(uint32_t kinds);              /* how many of these kinds came so far; kinds: SIM_FAULT_BIT */
int64_t sim_last_fault_ns(void);                     /* when the last one came; 0: none */
int64_t sim_memory_held(int32_t rank);               /* bytes that rank's library holds now: 0 after its last close */
uint64_t sim_event(void);                            /* the number of this event: a fault's */
uint32_t sim_calls_of(int32_t rank, uint32_t kind);  /* how often it could have been denied memory, or room, so far */

/* ------------------------------------------------------------------------------------------------------------ probes */
/* A rare path that runs should come by now and then: a report tells those that were never hit. Known by name; counted per process. */
struct sim_probe {
    const char *name;
    uint64_t hits;
    struct sim_probe *next;
    bool listed;
};
void sim_probe_hit(struct sim_probe *probe);
#define SIM_PROBE(text)                                                                                                                    \
    do {                                                                                                                                   \
        static struct sim_probe probe_ = {.name = (text)};                                                                                 \
        sim_probe_hit(&probe_);                                                                                                            \
    } while (0)
/* Names that a report must list even if no run came by. */
void sim_probe_expect(const char *const *names, size_t count);
/* Prints "probe NAME: HITS" lines, and returns how many expected ones were never hit. */
size_t sim_probe_report(bool all);

/* ------------------------------------------------------------------------------------------------------------ workloads of `sim` */
/* One row of workloads.c each: what `./dev sim` runs. Returns whether it passed; prints nothing unless it failed. */
struct sim_options {
    bool faults;
    bool verbose;
    int32_t ranks; /* 0: the seed says */
};
struct sim_workload {
    const char *name, *help;
    bool (*run)(uint64_t seed, const struct sim_options *options, struct sim_result *result);
};
extern const struct sim_workload sim_workloads[];
extern const size_t sim_workload_count;

#endif
