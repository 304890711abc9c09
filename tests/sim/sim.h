/*
 * The simulator: all ranks of a world in this process, in virtual time, under one seeded scheduler. The production
 * library runs: api, timeline, programs, engine, monitor; only env, wire and boot are replaced. A run is a pure
 * function of its config and the build.
 *
 * A test supplies what one rank does: a function that calls comm_* as any program would, from comm_open (with sim_open)
 * to comm_close. It must use no clock, randomness, thread or lock of the machine; sim_* provides one of each. Memory:
 * sim_take, or the stack; what a rank got from malloc is leaked when that rank is killed.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <commstream/comm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------------------------------------------------ one run */
enum { SIM_RANKS_MAX = 4096, SIM_FAULTS_MAX = 64 };

enum sim_wire {
    SIM_WIRE_ANY,    /* chosen by the seed */
    SIM_WIRE_LINES,  /* the production lines of shared memory; at each atomic operation the scheduler may switch threads */
    SIM_WIRE_FRAMES, /* byte streams between ranks, with latency, bandwidth, credits, acknowledgements */
    SIM_WIRE_MIXED,  /* lines inside hosts, streams between them: the production wire over both */
};

enum sim_fault_kind {
    SIM_KILL,    /* victim ends at this point; others are notified after a delay */
    SIM_PAUSE,   /* victim stands still for ns */
    SIM_SLOW,    /* victim takes `amount` times as long from here on, for ns */
    SIM_MEMORY,  /* victim's next `amount` allocations fail; UINT32_MAX: all further ones */
    SIM_AGAIN,   /* victim's next `amount` wire calls find no room */
    SIM_CLOG,    /* frames: nothing arrives from victim at peer for ns; then it arrives */
    SIM_CUT,     /* frames: nothing arrives from victim at peer any more; the other direction works */
    SIM_RESET,   /* frames: the connection between victim and peer breaks; both are notified */
    SIM_CORRUPT, /* frames: the next bytes from victim to peer are changed, which their checksum shows */
    SIM_JUMP,    /* victim's clock jumps ahead by ns */
    SIM_STALE,   /* frames: an earlier frame of victim comes to its peer once more, in its turn, after its time: for a communicator that is
                  * closed or failed there, room that was released, or an operation that is over */
    SIM_REPLAY,  /* frames: bytes that victim sent before come once more unchanged, as from an earlier connection */
    SIM_FAULT_KINDS,
};
#define SIM_FAULT_BIT(kind) (UINT32_C(1) << (kind))
/* Faults that must not make any operation fail: those that delay, or deny for a while. */
#define SIM_FAULTS_HARMLESS                                                                                                                \
    (SIM_FAULT_BIT(SIM_PAUSE) | SIM_FAULT_BIT(SIM_SLOW) | SIM_FAULT_BIT(SIM_AGAIN) | SIM_FAULT_BIT(SIM_CLOG) | SIM_FAULT_BIT(SIM_JUMP) |   \
     SIM_FAULT_BIT(SIM_STALE))
#define SIM_FAULTS_ALL (SIM_FAULT_BIT(SIM_FAULT_KINDS) - 1)

/* Every message takes latency_ns; a host's card sends and receives one message after the other, each in byte_ns per
 * byte, and gap_ns to send. */
struct sim_meter {
    int64_t latency_ns, gap_ns, byte_ns;
};

/* A fault is data, so that lists of faults can be swept and shrunk. */
struct sim_fault {
    uint64_t event; /* it occurs at this event of the run, or at the first possible one after it */
    int32_t victim;
    int32_t peer; /* for kinds that have one */
    uint32_t kind;
    uint32_t amount;
    int64_t ns;
    uint32_t after; /* MEMORY, AGAIN: number of calls that succeed before it */
};

enum sim_order { SIM_ORDER_ANY, SIM_ORDER_UNIFORM, SIM_ORDER_PRIORITY, SIM_ORDER_TURNS, SIM_ORDER_SCRIPT };

struct sim_config {
    uint64_t seed;
    int32_t ranks; /* 1 .. SIM_RANKS_MAX */
    int32_t hosts; /* frames, mixed: ranks are on this many hosts, in blocks; 0 or 1: one */
    bool turns;    /* one rank to each host in turn, instead of blocks */
    enum sim_wire wire;
    enum sim_order order;
    int32_t budget; /* average number of atomic operations between two choices; 0: chosen by the seed */
    bool calm;      /* no library option is chosen by the seed: defaults, moderate scheduling */
    bool minimal;   /* every limit at its minimum: COMM_MINIMAL, COMM_WINDOW=4, the smallest chunk. Otherwise chosen by the seed, unless
                     * calm */
    /* Kinds that the seed may sample, one bit each. 0: only the faults of the list. */
    uint32_t swarm;
    uint64_t swarm_events; /* they occur within this many events; 0: 20,000 */
    const struct sim_fault *faults;
    size_t fault_count;
    int64_t heal_ns;       /* from this virtual time on everything is healed (clogs end, pauses end, speeds are equal); 0: 20 s */
    int64_t limit_ns;      /* a run that takes longer has failed as stuck; 0: 4,000 s */
    uint64_t limit_events; /* the same; 0: 200 million */
    const char *options;   /* more environment variables, for all ranks: "COMM_WINDOW=8 COMM_ALGORITHM=allreduce:slices"; NULL: none */
    uint32_t first_number; /* first number of every communicator's collectives: near 2^32 to test wrapping; 0: 1 */
    int trace;             /* a descriptor to which every event is written as a line; 0: none */
    /* SIM_ORDER_SCRIPT: chooses the next of `count` deliveries, for exhaustive exploration. Returns an index into
     * connections (sender * ranks + receiver); any other value ends the run. Threads run in turns. */
    uint32_t (*choose)(void *arg, const uint32_t *connections, uint32_t count);
    void *choose_arg;
    /* Frames only: only the network takes time, exactly as the cost model says; for a comparison with it. */
    const struct sim_meter *meter;
    void (*watch)(void *arg); /* called before each event at which a fault can occur; NULL: none */
    void *watch_arg;
};

struct sim_result {
    bool failed;
    uint64_t hash;   /* of all choices, deliveries and notes; equal for equal runs */
    uint64_t events; /* scheduling choices, deliveries, completions */
    uint64_t faults; /* number that occurred */
    int64_t ns;      /* virtual */
    enum sim_wire wire;
    struct sim_fault fault[SIM_FAULTS_MAX]; /* planned faults, also sampled ones: a list for the next run */
    size_t fault_count;
    char text[4096]; /* why it failed: names seed, rank, operation, sequence, and where every thread is */
};

typedef void sim_rank_fn(int32_t rank, void *arg);

/* Runs one world: rank_main on each rank. True: no failure. All ranks share arg and must keep what they write there
 * apart. */
bool sim_run(const struct sim_config *config, sim_rank_fn *rank_main, void *arg, struct sim_result *result);

/* ------------------------------------------------------------------------------------------------------------ inside a rank */
int32_t sim_rank(void);
int32_t sim_ranks(void);
int64_t sim_now(void);       /* the true virtual time; a rank's own clock may be ahead of it */
uint64_t sim_random(void);   /* the application's own stream, one per rank; faults and scheduling do not affect it */
void sim_spend(int64_t ns);  /* the application computes for this long */
void *sim_take(size_t size); /* zeroed, aligned to 64; freed when the run ends */

/* Opens this world with the options of the run; config: further ones, or NULL. */
enum comm_result sim_open(const struct comm_config *config, struct comm_communicator **world);

/* Starts another application thread of this rank. join waits for its end. */
struct sim_thread;
struct sim_thread *sim_spawn(void (*fn)(void *arg), void *arg);
void sim_join(struct sim_thread *thread);
/* Waits until a descriptor of comm_fd is readable; returns whether it is. */
bool sim_poll(int fd, int64_t timeout_ns);

/* What this rank is doing, for the text of a failure: the operation's name (kept, not copied) and its number. */
void sim_doing(const char *operation, uint64_t sequence);
/* Ends the run as failed. Does not return. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define SIM_CHECK(condition, ...)                                                                                                          \
    do {                                                                                                                                   \
        if (!(condition))                                                                                                                  \
            sim_fail(__VA_ARGS__);                                                                                                         \
    } while (0)
/* Makes a value part of the run's hash: results, bytes. */
void sim_note(uint64_t value);
void sim_note_bytes(const void *bytes, size_t count);

/* The true state, for oracles. */
bool sim_is_dead(int32_t rank);                      /* killed */
int64_t sim_died_ns(int32_t rank);                   /* time of its death */
int64_t sim_stood_still_ns(int32_t rank);            /* longest pause so far */
bool sim_link_broken(int32_t a, int32_t b);          /* cut, reset or corrupted, either way */
int64_t sim_link_clear_ns(int32_t from, int32_t to); /* until when nothing came from one to the other because of a clog; 0: never clogged */
uint64_t sim_faults_of(uint32_t kinds);              /* how many faults of these kinds have occurred; kinds: SIM_FAULT_BIT */
int64_t sim_last_fault_ns(void);                     /* time of the last one; 0: none */
int64_t sim_memory_held(int32_t rank);               /* bytes that the rank's library holds now; 0 after its last close */
uint64_t sim_event(void);                            /* the number of the current event, for a fault */
uint32_t sim_calls_of(int32_t rank, uint32_t kind);  /* how often it could have been denied memory, or room, so far */

/* ------------------------------------------------------------------------------------------------------------ probes */
/* A rare path that runs should reach sometimes: a report lists those that were never reached. Identified by name;
 * counted per process. */
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
/* Names that a report must list even if no run reached them. */
void sim_probe_expect(const char *const *names, size_t count);
/* Prints "probe NAME: HITS" lines; returns how many expected ones were never reached. */
size_t sim_probe_report(bool all);

/* ------------------------------------------------------------------------------------------------------------ workloads of `sim` */
/* One row of workloads.c, which `./dev sim` runs. Returns whether it passed; prints nothing unless it failed. */
struct sim_options {
    bool faults;
    bool verbose;
    int32_t ranks; /* 0: chosen by the seed */
};
struct sim_workload {
    const char *name, *help;
    bool (*run)(uint64_t seed, const struct sim_options *options, struct sim_result *result);
};
extern const struct sim_workload sim_workloads[];
extern const size_t sim_workload_count;

#endif
