/*
 * log: writes the lines of the log without blocking the caller, which may be the monitor or hold a lock. Standard error may be a pipe that
 * nobody reads, a stopped terminal, or a file on a hanging file system. The program's own log function may wait for a lock of the program.
 * So a line goes into a ring, which never blocks, and a dedicated thread writes the lines in order. If the ring is full, lines are dropped
 * and counted. The count is logged before the next line that fits, or after the last one.
 *
 * The ring is a bounded queue for many writers and one reader (Vyukov). A slot's turn says for which lap it is free (even) or holds a line
 * (odd). Apart from the slots, writers and the reader share only counters. The thread runs while the log has users, one per engine. Without
 * the thread, as in a forked child, there is no monitor and no lock either, so lines are written directly.
 */
#define _GNU_SOURCE
#include "net/posix/posix.h"

#include "base/format.h"
#include "base/lock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINES = 256, NOTICE_BYTES = 128, NS_PER_MS = 1000000, EXIT_MS = 200, PANIC_MS = 200 };

struct slot {
    _Atomic uint64_t turn; /* 2 * lap: free for that lap; 2 * lap + 1: holds a line of it */
    _Atomic(env_sink_fn *) sink;
    _Atomic(void *) arg;
    int32_t level;
    uint32_t dropped; /* number of lines dropped before this one */
    char text[LOG_LINE_BYTES];
};

static struct {
    _Alignas(64) _Atomic uint64_t next; /* number of lines that got a slot */
    _Atomic uint32_t dropped;           /* number of dropped lines that were not reported yet */
    _Alignas(64) _Atomic uint64_t told; /* number of lines that were written */
    _Atomic uint64_t stuck;             /* 1 + told, if a thread waited for the next line in vain */
    _Atomic uint32_t beat;              /* changes with told; drainers sleep on it ... */
    _Atomic uint32_t awaited;           /* ... and this is their number */
    _Atomic uint32_t asleep;            /* the thread sleeps on this word */
    struct base_lock lock;              /* protects changes of the next four */
    pthread_t thread;
    bool unjoined; /* the thread was created and not joined yet */
    _Atomic uint32_t users;
    _Atomic uint32_t runs;         /* the thread is running */
    _Atomic uint64_t writer;       /* identity of the thread */
    _Atomic(env_sink_fn *) inside; /* the log function that it calls or is about to call */
    _Atomic(void *) inside_arg;
    struct slot slot[LINES];
} ring;

static uint64_t turn_free(uint64_t at)
{
    return at / LINES * 2;
}

static uint64_t turn_full(uint64_t at)
{
    return turn_free(at) + 1;
}

/* ------------------------------------------------------------------------------------------------------------ where lines go */
/* One system call per line, so that lines of several ranks do not mix. Writes from *at on and advances it. Returns 0 or an errno. */
static int write_rest(const char *line, size_t *at, int flags)
{
    struct iovec parts[2] = {{.iov_base = (void *)(uintptr_t)line, .iov_len = strlen(line)}, {.iov_base = "\n", .iov_len = 1}};
    int first = *at < parts[0].iov_len ? 0 : 1;

    if (first == 0) {
        parts[0].iov_base = (char *)parts[0].iov_base + *at;
        parts[0].iov_len -= *at;
    }
    ssize_t wrote = flags ? pwritev2(STDERR_FILENO, parts + first, 2 - first, -1, flags) : writev(STDERR_FILENO, parts + first, 2 - first);
    if (wrote < 0)
        return errno;
    *at += (size_t)wrote;
    return wrote ? 0 : EIO;
}

/* May block, so only the thread calls it. Gives up if no process can ever read the line (no such descriptor, no reader). */
static void write_standard_error(const char *line)
{
    for (size_t at = 0, end = strlen(line) + 1; at < end;) {
        int error = write_rest(line, &at, 0);
        if (error == EAGAIN)
            (void)poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1); /* it was made nonblocking */
        else if (error && error != EINTR)
            return;
    }
}

static bool await_room(const struct comm_env *env, int64_t deadline)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    int ready;

    do {
        int64_t left = deadline - env->now(env);
        ready = poll(&out, 1, left > 0 ? (int)(left / NS_PER_MS) : 0);
    } while (ready < 0 && errno == EINTR);
    return ready == 1 && out.revents & POLLOUT;
}

/* For other threads: writes only what is accepted within `ms` milliseconds. Another process may use the room that poll found, so the write
 * must not wait either (RWF_NOWAIT, pwritev2(2)). A file that does not support the flag is written without it, as poll permits. */
static void write_if_taken(const struct comm_env *env, const char *line, int ms)
{
    int64_t deadline = env->now(env) + (int64_t)ms * NS_PER_MS;
    int flags = RWF_NOWAIT;

    for (size_t at = 0, end = strlen(line) + 1; at < end && await_room(env, deadline);) {
        int error = write_rest(line, &at, flags);
        if (error == EAGAIN && env->now(env) >= deadline)
            return;
        if (!error || error == EAGAIN || error == EINTR)
            continue;
        if (!flags)
            return;
        flags = 0;
    }
}

/* Replaces the function of a line that was written, or taken back by posix_forget. */
static void nobody(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static void hand_on(env_sink_fn *sink, void *arg, int level, const char *line)
{
    if (sink)
        sink(arg, level, line);
    else
        write_standard_error(line);
}

static void tell_dropped(env_sink_fn *sink, void *arg, uint32_t dropped)
{
    char notice[NOTICE_BYTES];

    if (!dropped)
        return;
    base_format(notice, sizeof notice, "commstream: %u lines dropped here: the reader did not take them in time", dropped);
    hand_on(sink, arg, LOG_WARNING, notice);
}

/* ------------------------------------------------------------------------------------------------------------ the thread */
static void tell(struct slot *slot, uint64_t at)
{
    env_sink_fn *sink = atomic_load_explicit(&slot->sink, memory_order_relaxed);
    void *arg = atomic_load_explicit(&slot->arg, memory_order_relaxed);

    /* posix_forget takes a line back first and then looks at `inside`; here the order is reversed, so one of the two sees the other. */
    atomic_store_explicit(&ring.inside_arg, arg, memory_order_relaxed);
    atomic_store_explicit(&ring.inside, sink, memory_order_seq_cst);
    if (atomic_compare_exchange_strong_explicit(&slot->sink, &sink, nobody, memory_order_seq_cst, memory_order_relaxed)) {
        tell_dropped(sink, arg, slot->dropped);
        hand_on(sink, arg, slot->level, slot->text);
        if (atomic_load_explicit(&ring.next, memory_order_acquire) == at + 1)
            tell_dropped(sink, arg, atomic_exchange_explicit(&ring.dropped, 0, memory_order_relaxed));
    } else {
        atomic_fetch_add_explicit(&ring.dropped, slot->dropped, memory_order_relaxed);
    }
    atomic_store_explicit(&ring.inside, NULL, memory_order_release);
}

static bool used(void)
{
    return atomic_load_explicit(&ring.users, memory_order_seq_cst) != 0;
}

static void sleep_until_full(struct slot *slot, uint64_t at)
{
    atomic_store_explicit(&ring.asleep, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&slot->turn, memory_order_seq_cst) != turn_full(at) && used())
        env_posix.park(&env_posix, &ring.asleep, 1, ENV_FOREVER);
    atomic_store_explicit(&ring.asleep, 0, memory_order_relaxed);
}

static void tell_drainers(void)
{
    atomic_fetch_add_explicit(&ring.beat, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&ring.awaited, memory_order_seq_cst))
        env_posix.wake(&env_posix, &ring.beat, UINT32_MAX);
}

/* The log has no users any more. The next user either finds this thread still running, or makes another. */
static bool has_ended(void)
{
    base_lock(&ring.lock, &env_posix);
    bool end = !used();
    if (end) {
        atomic_store_explicit(&ring.writer, 0, memory_order_relaxed); /* another thread may get the same identity */
        atomic_store_explicit(&ring.runs, 0, memory_order_seq_cst);
    }
    base_unlock(&ring.lock, &env_posix);
    return end;
}

static void *write_lines(void *none)
{
    atomic_store_explicit(&ring.writer, env_posix.self(&env_posix), memory_order_relaxed);
    for (uint64_t at = atomic_load_explicit(&ring.told, memory_order_relaxed);; at++) {
        struct slot *slot = &ring.slot[at % LINES];
        while (atomic_load_explicit(&slot->turn, memory_order_acquire) != turn_full(at)) {
            if (!used() && has_ended()) {
                tell_drainers();
                return none;
            }
            sleep_until_full(slot, at);
        }
        tell(slot, at);
        atomic_store_explicit(&slot->turn, turn_free(at + LINES), memory_order_release);
        atomic_store_explicit(&ring.told, at + 1, memory_order_release);
        tell_drainers();
    }
}

/* Joins the thread after it has announced its end. A thread that is stuck in a write is not joined; make_thread detaches it. */
static void join_ended(const struct comm_env *env)
{
    base_lock(&ring.lock, env);
    pthread_t thread = ring.thread;
    bool join = ring.unjoined && !atomic_load_explicit(&ring.runs, memory_order_relaxed);
    if (join)
        ring.unjoined = false;
    base_unlock(&ring.lock, env);
    if (join)
        pthread_join(thread, NULL);
}

/* The thread blocks all signals. Called under the lock. */
static int make_thread(void)
{
    sigset_t all, before;

    if (ring.unjoined)
        pthread_detach(ring.thread);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&ring.thread, NULL, write_lines, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ring.unjoined = !error;
    return error;
}

int posix_log_start(const struct comm_env *env)
{
    int error = 0;

    base_lock(&ring.lock, env);
    if (!atomic_load_explicit(&ring.runs, memory_order_relaxed)) {
        atomic_store_explicit(&ring.runs, 1, memory_order_seq_cst);
        atomic_fetch_add_explicit(&ring.users, 1, memory_order_seq_cst);
        error = make_thread();
        if (error) {
            atomic_store_explicit(&ring.runs, 0, memory_order_seq_cst);
            atomic_fetch_sub_explicit(&ring.users, 1, memory_order_seq_cst);
        }
    } else {
        atomic_fetch_add_explicit(&ring.users, 1, memory_order_seq_cst);
    }
    base_unlock(&ring.lock, env);
    return error;
}

static bool runs_here(void)
{
    return atomic_load_explicit(env_posix.alive, memory_order_acquire) && atomic_load_explicit(&ring.runs, memory_order_acquire);
}

/* ------------------------------------------------------------------------------------------------------------ a line */
/* NULL: the ring is full. */
static struct slot *claim(uint64_t *place)
{
    uint64_t at = atomic_load_explicit(&ring.next, memory_order_relaxed);

    for (;;) {
        struct slot *slot = &ring.slot[at % LINES];
        uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        *place = at;
        if (turn < turn_free(at))
            return NULL;
        if (turn > turn_free(at)) /* another writer has taken the slot */
            at = atomic_load_explicit(&ring.next, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&ring.next, &at, at + 1, memory_order_acq_rel, memory_order_relaxed))
            return slot;
    }
}

void posix_write(const struct comm_env *env, env_sink_fn *sink, void *arg, int level, const char *line)
{
    uint64_t at;

    if (!runs_here()) {
        if (sink)
            sink(arg, level, line);
        else
            write_if_taken(env, line, EXIT_MS);
        return;
    }
    struct slot *slot = claim(&at);
    if (!slot) {
        atomic_fetch_add_explicit(&ring.dropped, 1, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&slot->sink, sink, memory_order_relaxed);
    atomic_store_explicit(&slot->arg, arg, memory_order_relaxed);
    slot->level = level;
    slot->dropped = 0;
    if (atomic_load_explicit(&ring.dropped, memory_order_relaxed))
        slot->dropped = atomic_exchange_explicit(&ring.dropped, 0, memory_order_relaxed);
    base_copy_text(slot->text, sizeof slot->text, line);
    atomic_store_explicit(&slot->turn, turn_full(at), memory_order_seq_cst);
    if (atomic_exchange_explicit(&ring.asleep, 0, memory_order_seq_cst))
        env->wake(env, &ring.asleep, 1);
}

/* ------------------------------------------------------------------------------------------------------------ until they are told */
bool posix_drain(const struct comm_env *env, int64_t deadline)
{
    uint64_t told = atomic_load_explicit(&ring.told, memory_order_acquire), until = atomic_load_explicit(&ring.next, memory_order_acquire);

    if (told >= until || !runs_here())
        return true;
    if (atomic_load_explicit(&ring.writer, memory_order_relaxed) == env->self(env)) /* called from the program's log function */
        return false;
    if (atomic_load_explicit(&ring.stuck, memory_order_relaxed) == told + 1)
        return false;
    atomic_fetch_add_explicit(&ring.awaited, 1, memory_order_seq_cst);
    for (;;) {
        uint32_t beat = atomic_load_explicit(&ring.beat, memory_order_seq_cst);
        told = atomic_load_explicit(&ring.told, memory_order_acquire);
        if (told >= until || env->now(env) >= deadline)
            break;
        env->park(env, &ring.beat, beat, deadline);
    }
    atomic_fetch_sub_explicit(&ring.awaited, 1, memory_order_relaxed);
    if (told < until)
        atomic_store_explicit(&ring.stuck, told + 1, memory_order_relaxed);
    return told >= until;
}

/* Waits until the thread has ended, unless it is stuck; then it ends when its write returns. */
void posix_log_stop(const struct comm_env *env)
{
    int64_t deadline = env->now(env) + (int64_t)EXIT_MS * NS_PER_MS;

    base_lock(&ring.lock, env);
    bool last = atomic_fetch_sub_explicit(&ring.users, 1, memory_order_seq_cst) == 1;
    base_unlock(&ring.lock, env);
    if (!last || atomic_load_explicit(&ring.writer, memory_order_relaxed) == env->self(env))
        return;
    if (atomic_exchange_explicit(&ring.asleep, 0, memory_order_seq_cst))
        env->wake(env, &ring.asleep, 1);
    if (!posix_drain(env, deadline))
        return;
    atomic_fetch_add_explicit(&ring.awaited, 1, memory_order_seq_cst);
    for (;;) {
        uint32_t beat = atomic_load_explicit(&ring.beat, memory_order_seq_cst);
        if (used() || !atomic_load_explicit(&ring.runs, memory_order_seq_cst) || env->now(env) >= deadline)
            break;
        env->park(env, &ring.beat, beat, deadline);
    }
    atomic_fetch_sub_explicit(&ring.awaited, 1, memory_order_relaxed);
    join_ended(env);
}

static void take_back(env_sink_fn *sink, const void *arg)
{
    uint64_t next = atomic_load_explicit(&ring.next, memory_order_acquire);

    for (uint64_t at = atomic_load_explicit(&ring.told, memory_order_acquire); at < next; at++) {
        struct slot *slot = &ring.slot[at % LINES];
        env_sink_fn *expected = sink;
        if (atomic_load_explicit(&slot->turn, memory_order_acquire) != turn_full(at) ||
            atomic_load_explicit(&slot->arg, memory_order_relaxed) != arg)
            continue;
        atomic_compare_exchange_strong_explicit(&slot->sink, &expected, nobody, memory_order_seq_cst, memory_order_relaxed);
    }
}

void posix_forget(const struct comm_env *env, env_sink_fn *sink, void *arg, int64_t patience_ns)
{
    if (posix_drain(env, env->now(env) + patience_ns) || !sink || !runs_here() ||
        atomic_load_explicit(&ring.writer, memory_order_relaxed) == env->self(env))
        return;
    take_back(sink, arg);
    int64_t deadline = env->now(env) + patience_ns;
    atomic_fetch_add_explicit(&ring.awaited, 1, memory_order_seq_cst);
    for (;;) {
        uint32_t beat = atomic_load_explicit(&ring.beat, memory_order_seq_cst);
        if (atomic_load_explicit(&ring.inside, memory_order_seq_cst) != sink ||
            atomic_load_explicit(&ring.inside_arg, memory_order_relaxed) != arg || env->now(env) >= deadline)
            break;
        env->park(env, &ring.beat, beat, deadline);
    }
    atomic_fetch_sub_explicit(&ring.awaited, 1, memory_order_relaxed);
}

/* A program that exits normally waits briefly for its last lines. */
__attribute__((destructor)) static void drain_at_exit(void)
{
    if (runs_here())
        (void)posix_drain(&env_posix, posix_now(&env_posix) + (int64_t)EXIT_MS * NS_PER_MS);
}

/* The dying thread writes its line itself, after the earlier lines, but waits only briefly, because the process must end. */
void posix_panic(const struct comm_env *env, const char *text)
{
    if (runs_here())
        (void)posix_drain(env, posix_now(env) + (int64_t)PANIC_MS * NS_PER_MS);
    write_if_taken(env, text, PANIC_MS);
    abort();
}
