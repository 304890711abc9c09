/*
 * env: the core's only acceptor to the machine. Everything that a simulator must control comes in through this table: time, sleeping,
 * memory, randomness, threads, the environment. One table per engine, constant for its life. Sockets, segments and death notices are the
 * wires'.
 *
 * park, bell_wait, join, log_start, log_stop, drain, forget and the file functions may block and are never called with a lock held or by
 * the monitor; all the rest may be.
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENV_FOREVER INT64_MAX
enum { ENV_FORKED = 10 }; /* of start: called in a forked child (Linux calls it ECHILD) */

/* Something that sleepers of any kind can see: threads of this process, peers, a caller's event loop. Filled by bell_open. */
struct env_bell {
    int32_t ring_fd; /* writing eight bytes here rings it; a wire hands it to its peers; -1: none */
    int32_t wait_fd; /* readable while rung, or while a watched descriptor is readable; comm_fd gives this one */
};

struct env_thread {
    uint64_t handle;
    _Atomic uint32_t ended;
    uint32_t reserved;
};
typedef void env_thread_fn(void *arg);
enum { ENV_CANCEL_OFF = 0, ENV_CANCEL_ON = 1 };
typedef void env_sink_fn(void *arg, int level, const char *line);

/* What launchers and limits say about this process; asked once, when a world opens. */
enum { ENV_CPU_WORDS = 16 };
struct env_identity {
    char host[64];
    uint64_t host_id;  /* equal for processes that run on one kernel, different otherwise (boot id) */
    uint64_t place_id; /* equal for those of them that can meet without a network too (network namespace) */
    uint32_t pid, uid;
    uint32_t parent;             /* process id of whoever started this process */
    int32_t numa;                /* the NUMA node that all its CPUs are of; -1: they are of several */
    uint64_t cpu[ENV_CPU_WORDS]; /* the first 1,024 CPUs, a bit for each that this process may run on */
};

/* What is open and would say so before the process ends. Its owner's, from farewell_add to farewell_drop. */
struct env_farewell {
    struct env_farewell *next; /* env's own */
    void (*say)(struct env_farewell *farewell);
};

struct comm_env {
    const char *name;
    /* 1 in the process that opened the library, 0 in a forked child: a word on a wipe-on-fork page. Loaded by every public call. */
    const _Atomic uint32_t *alive;
    /* Called first by everything that opens a world or an engine: makes *alive 1 and the clock ready. Idempotent, any thread. 0, or an
       errno: ENV_FORKED in a forked child of a process that had called it. */
    int (*start)(const struct comm_env *env);
    /* Nanoseconds, monotonic in each thread; what two threads read may disagree by up to a microsecond, or 6 while
       the kernel slews its clock. */
    int64_t (*now)(const struct comm_env *env);
    /* One turn of a waiting loop: give the core a hint (yield false), or give the CPU away (yield true). */
    void (*relax)(const struct comm_env *env, bool yield);
    /* Sleep while *word == seen, until woken or deadline (absolute, ns). May return early. */
    void (*park)(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline);
    void (*wake)(const struct comm_env *env, _Atomic uint32_t *word, uint32_t count);

    /* Orders the stores and loads of every running thread of this process, and of others that started the library and share memory with it,
       as if each had executed a full fence now. False: there is no such thing here, and nothing was done. Answers alike for the life of the
       process; one that worked before and fails ends the process. A few microseconds. */
    bool (*barrier)(const struct comm_env *env);

    struct {
        /* Where the process ends by exit() meanwhile, say() is called by the thread that ends it, while others may go on: it takes a second
           or two at most. Not in a forked child. Both may be NULL: there is no such end. On return from drop it is not called, now or
           later. */
        void (*add)(const struct comm_env *env, struct env_farewell *farewell);
        void (*drop)(const struct comm_env *env, struct env_farewell *farewell);
    } farewell;

    /* 0, or an errno. */
    int (*bell_open)(const struct comm_env *env, struct env_bell *bell);
    void (*bell_ring)(const struct comm_env *env, struct env_bell *bell);
    /* Whether it was rung. */
    bool (*bell_clear)(const struct comm_env *env, struct env_bell *bell);
    /* Also wakes when fd is readable, from now on; 0 or an errno. The wire that owns fd clears its readiness in poll. */
    int (*bell_watch)(const struct comm_env *env, struct env_bell *bell, int fd);
    /* Until rung or deadline (absolute, ns). May return early; does not clear. */
    void (*bell_wait)(const struct comm_env *env, struct env_bell *bell, int64_t deadline);
    void (*bell_close)(const struct comm_env *env, struct env_bell *bell);

    /* Zeroed memory, or NULL. align is a power of two. */
    void *(*take)(const struct comm_env *env, size_t bytes, size_t align);
    void (*give)(const struct comm_env *env, void *memory, size_t bytes);
    /* Fills memory with unpredictable bytes. 0, or an errno. */
    int (*random)(const struct comm_env *env, void *memory, size_t bytes);

    int (*spawn)(const struct comm_env *env, env_thread_fn *fn, void *arg, struct env_thread *thread); /* 0, or an errno */
    bool (*join)(const struct comm_env *env, struct env_thread *thread, int64_t deadline);             /* false: still running */
    uint64_t (*self)(const struct comm_env *env);                                                      /* this thread, never 0 */
    /* Whether the program may cancel this thread from now on (ENV_CANCEL_*), and what was until now. What may make system calls that are
       cancellation points runs between two of these; where operations are short it makes no such calls. */
    int (*cancel)(const struct comm_env *env, int state);

    /* Not 0 where this process has a driver whose memory the CPU cannot touch, as of the last find_devices; loaded by every call that is
       given a buffer. NULL: never. */
    const _Atomic uint32_t *devices;
    /* Looks for one that was loaded, and loads none. May wait for whoever is loading a library. */
    void (*find_devices)(const struct comm_env *env);
    /* Whether at is such memory, or may be: the driver is asked, which cannot always tell. */
    bool (*on_device)(const struct comm_env *env, const void *at);

    /* fd is from now on one that a forked child of this process must not keep, since others would not see this process end as long as the
       child lives: it is closed there. owns false: no longer; said before it is closed. Any thread, no lock. */
    void (*own)(const struct comm_env *env, int32_t fd, bool owns);

    /* An environment variable, or NULL. Only while a world opens. */
    const char *(*lookup)(const struct comm_env *env, const char *name);
    /* CPUs that this process may use: affinity and cgroup quota, at least 1. */
    uint32_t (*cpus)(const struct comm_env *env);
    void (*identity)(const struct comm_env *env, struct env_identity *identity);
    /* The entry of an optional module ("mpi", "cuda"), or NULL with the reason in why. */
    void *(*module)(const struct comm_env *env, const char *name, char *why, size_t why_bytes);

    struct {
        /* A file of ours to write (traces). Descriptor or -errno; bytes written or -errno. */
        int (*open)(const struct comm_env *env, const char *path);
        int64_t (*write)(const struct comm_env *env, int file, const void *bytes, size_t count);
        void (*close)(const struct comm_env *env, int file);
        /* The first `room` bytes of a file that is there; how many they are, or -errno. Only while a world opens. */
        int64_t (*read)(const struct comm_env *env, const char *path, void *to, size_t room);
    } file;

    struct {
        /* Before anything that logs under a lock or from a monitor, and when that is over; counted. Makes the thread that lines are told
           by, and ends it when its last line is told or when it is stuck for 200 ms. 0, or an errno. */
        int (*start)(const struct comm_env *env);
        void (*stop)(const struct comm_env *env);
        /* A line of the log for a function, or where that is NULL for standard error. Never blocks, whatever becomes of the line, and so
           may be called by the monitor and with locks held. Lines are told in their order, by a thread that holds nothing; those for which
           there is no room are dropped, counted, and the count is told in their place. The text is copied. While the log is not started it
           is told at once.
         */
        void (*write)(const struct comm_env *env, env_sink_fn *sink, void *arg, int level, const char *line);
        /* Sleeps until all lines that were written before are told, or the deadline (absolute, ns); not at all where the oldest of them has
           been waited for in vain already. False: not all are told. */
        bool (*drain)(const struct comm_env *env, int64_t deadline);
        /* The same, and then lines for this function that are still not told never will be. Sleeps for twice patience_ns at most; only
           where a call of the function takes longer than that is it still being called on return. */
        void (*forget)(const struct comm_env *env, env_sink_fn *sink, void *arg, int64_t patience_ns);
    } log;
    /* The last line of a process that cannot go on. Does not return. */
    void (*panic)(const struct comm_env *env, const char *text);
    /* Computing that took ns of virtual time; nothing outside the simulator. */
    void (*charge)(const struct comm_env *env, int64_t ns);
};

#endif
