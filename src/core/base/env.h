/*
 * env: the core's only access to the operating system. Everything that a simulator must control goes through this
 * table: time, sleeping, memory, randomness, threads, environment variables. There is one table per engine, constant
 * for the engine's life. Sockets, shared segments and the detection of dead peers belong to the wires.
 *
 * park, bell_wait, join, the log functions except write, and the file functions may block: they are never called
 * with a lock held or by the monitor. All other functions may be.
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV_FOREVER INT64_MAX
enum { ENV_FORKED = 10 }; /* start returns it in a forked child (Linux: ECHILD) */

/* A wake-up signal for any kind of sleeper: threads of this process, peers, a caller's event loop. Filled in by
 * bell_open. */
struct env_bell {
    int32_t ring_fd; /* writing eight bytes here rings the bell; a wire passes it to its peers; -1: none */
    int32_t wait_fd; /* readable while the bell is rung or a watched descriptor is readable; comm_fd returns it */
};

struct env_thread {
    uint64_t handle;
    _Atomic uint32_t ended;
    uint32_t reserved;
};
typedef void env_thread_fn(void *arg);
enum { ENV_CANCEL_OFF = 0, ENV_CANCEL_ON = 1 };
typedef void env_sink_fn(void *arg, int level, const char *line);

/* What the system says about this process; read once, when a world opens. */
enum { ENV_CPU_WORDS = 16 };
struct env_identity {
    char host[64];
    uint64_t host_id;  /* equal for processes on the same running kernel, otherwise different (boot id) */
    uint64_t place_id; /* equal for those that can also connect without a network (network namespace) */
    uint32_t pid, uid;
    uint32_t parent;             /* process id of this process's parent */
    int32_t numa;                /* the NUMA node of all CPUs of this process; -1: they are on several nodes */
    uint64_t cpu[ENV_CPU_WORDS]; /* the first 1,024 CPUs, one bit for each that this process may run on */
    bool only_reads;             /* these CPUs gain nothing if a reader of shared memory writes to the lines that it has read */
};

/* Something open that must notify its peers before the process ends. Its owner keeps it from farewell.add to
 * farewell.drop. */
struct env_farewell {
    struct env_farewell *next; /* used by env alone */
    void (*say)(struct env_farewell *farewell);
};

struct comm_env {
    const char *name;
    /* 1 in the process that opened the library, 0 in a forked child: a word on a wipe-on-fork page. Every public call
     * loads it. */
    const _Atomic uint32_t *alive;
    /* Everything that opens a world or an engine calls this first: it sets *alive to 1 and prepares the clock.
     * Idempotent; any thread. Returns 0 or an errno: ENV_FORKED in a forked child of a process that has called it. */
    int (*start)(const struct comm_env *env);
    /* Nanoseconds, monotonic in each thread. Readings of two threads may differ by up to 1 microsecond, or 6 while the
     * kernel slews its clock. */
    int64_t (*now)(const struct comm_env *env);
    /* One turn of a waiting loop: a pause instruction (yield false), or a yield of the CPU to other threads (yield
     * true). */
    void (*relax)(const struct comm_env *env, bool yield);
    /* Sleeps while *word == seen, until woken or until the deadline (absolute, ns). May return early. */
    void (*park)(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline);
    void (*wake)(const struct comm_env *env, _Atomic uint32_t *word, uint32_t count);

    /* A process-wide memory barrier. It acts as if each running thread of this process had executed a full fence now;
     * so do the threads of other processes that started the library and share memory with this one. False: the system
     * has no such barrier, and nothing was done. The answer is the same for the life of the process; if a barrier fails
     * after one has worked, the process is ended. Takes a few microseconds. */
    bool (*barrier)(const struct comm_env *env);

    struct {
        /* If the process ends by exit() between add and drop, the thread that ends it calls say(), while other threads
         * may still run. say() may take a second or two at most. A forked child does not call it. Both functions may be
         * NULL where there is no such end of a process. Once drop has returned, say() is not running and will not be
         * called. */
        void (*add)(const struct comm_env *env, struct env_farewell *farewell);
        void (*drop)(const struct comm_env *env, struct env_farewell *farewell);
    } farewell;

    /* Returns 0 or an errno. */
    int (*bell_open)(const struct comm_env *env, struct env_bell *bell);
    void (*bell_ring)(const struct comm_env *env, struct env_bell *bell);
    /* Clears the bell; returns whether it was rung. */
    bool (*bell_clear)(const struct comm_env *env, struct env_bell *bell);
    /* From now on the bell also wakes sleepers when fd is readable. Returns 0 or an errno. The wire that owns fd clears
     * its readiness in poll. */
    int (*bell_watch)(const struct comm_env *env, struct env_bell *bell, int fd);
    /* Sleeps until the bell is rung or until the deadline (absolute, ns). May return early; does not clear the bell. */
    void (*bell_wait)(const struct comm_env *env, struct env_bell *bell, int64_t deadline);
    void (*bell_close)(const struct comm_env *env, struct env_bell *bell);

    /* Returns zeroed memory, or NULL. align is a power of two. */
    void *(*take)(const struct comm_env *env, size_t bytes, size_t align);
    void (*give)(const struct comm_env *env, void *memory, size_t bytes);
    /* Fills memory with unpredictable bytes. Returns 0 or an errno. */
    int (*random)(const struct comm_env *env, void *memory, size_t bytes);

    int (*spawn)(const struct comm_env *env, env_thread_fn *fn, void *arg, struct env_thread *thread); /* returns 0 or an errno */
    bool (*join)(const struct comm_env *env, struct env_thread *thread, int64_t deadline);             /* false: still running */
    uint64_t (*self)(const struct comm_env *env);                                                      /* an id of this thread, never 0 */
    /* Sets whether the program may cancel this thread (ENV_CANCEL_*); returns the previous setting. Code that may make
     * system calls that are cancellation points runs between two of these calls. The path of short operations makes no
     * such system calls. */
    int (*cancel)(const struct comm_env *env, int state);

    /* Not 0 if find_devices has found a driver in this process for memory that the CPU cannot access. Every call that
     * takes a buffer loads it. NULL: never any such driver. */
    const _Atomic uint32_t *devices;
    /* Looks for a loaded driver of devices; loads none. May wait for a thread that is loading a library. */
    void (*find_devices)(const struct comm_env *env);
    /* Whether the memory at `at` is, or may be, device memory. This asks the driver, which cannot always tell. */
    bool (*on_device)(const struct comm_env *env, const void *at);

    /* owns true: a forked child of this process must not keep fd, so it is closed there; otherwise the peers would not
     * see the end of this process while the child lives. owns false: cancels that, and is called before fd is closed.
     * Any thread, no lock. */
    void (*own)(const struct comm_env *env, int32_t fd, bool owns);

    /* The value of an environment variable, or NULL. Called only while a world opens. */
    const char *(*lookup)(const struct comm_env *env, const char *name);
    /* "NAME=value" by number: 0, 1, and so on until NULL. Called as lookup. NULL: nobody knows them. */
    const char *(*variable)(const struct comm_env *env, size_t index);
    /* Number of CPUs that this process may use, from affinity and cgroup quota; at least 1. */
    uint32_t (*cpus)(const struct comm_env *env);
    void (*identity)(const struct comm_env *env, struct env_identity *identity);
    /* The entry point of an optional module ("mpi", "cuda"), or NULL with the reason in why. */
    void *(*module)(const struct comm_env *env, const char *name, char *why, size_t why_bytes);

    struct {
        /* A file of the library's own to write (traces). open returns a descriptor or -errno; write the bytes written
         * or -errno. */
        int (*open)(const struct comm_env *env, const char *path);
        int64_t (*write)(const struct comm_env *env, int file, const void *bytes, size_t count);
        void (*close)(const struct comm_env *env, int file);
        /* Reads the first `room` bytes of an existing file; returns their number or -errno. Called only while a world
         * opens. */
        int64_t (*read)(const struct comm_env *env, const char *path, void *to, size_t room);
    } file;

    struct {
        /* start comes before anything that logs under a lock or from a monitor, stop when that is over; the calls are
         * counted. start creates the thread that writes log lines. stop ends it when its last line is written, or when
         * it has been stuck for 200 ms. start returns 0 or an errno. */
        int (*start)(const struct comm_env *env);
        void (*stop)(const struct comm_env *env);
        /* Queues a line of the log for the function `sink`, or for standard error where `sink` is NULL. Never blocks,
         * so the monitor and code with locks held may call it. A thread that holds no lock writes the lines in order.
         * Lines that do not fit are dropped and counted, and the count is written in their place. The text is copied.
         * While the log is not started, the line is written at once. */
        void (*write)(const struct comm_env *env, env_sink_fn *sink, void *arg, int level, const char *line);
        /* Sleeps until all lines queued so far are written, or until the deadline (absolute, ns). Does not sleep if an
         * earlier call has already waited in vain for the oldest of them. False: some lines are not written. */
        bool (*drain)(const struct comm_env *env, int64_t deadline);
        /* Waits as drain does, then discards the lines for this function that are still not written. Sleeps for at most
         * 2 * patience_ns. On return the function is still running only if one call of it takes longer than that. */
        void (*forget)(const struct comm_env *env, env_sink_fn *sink, void *arg, int64_t patience_ns);
    } log;
    /* Writes the last line of a process that cannot continue. Does not return. */
    void (*panic)(const struct comm_env *env, const char *text);
    /* Reports computation that takes ns of virtual time; does nothing outside the simulator. */
    void (*charge)(const struct comm_env *env, int64_t ns);
};

/* NULL: nothing to give back. */
static inline void env_give_back(const struct comm_env *env, void *memory, size_t bytes)
{
    if (memory)
        env->give(env, memory, bytes);
}

#endif
