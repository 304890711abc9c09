/* env: the operating system interface on Linux: time, sleeping, bells, memory, threads and files. It must not know ranks, communicators or
 * wires. Its only state is the fork word, which belongs to the process and not to an engine, and the clock's scale. */
#define _GNU_SOURCE
#include "net/posix/posix.h"

#include "base/check.h"
#include "base/edge.h"
#include "base/format.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NS_PER_SECOND = 1000000000, NS_PER_MS = 1000000, PAGE_BYTES = 4096 };

/* ------------------------------------------------------------------------------------------------------------ the fork word */
/* A whole page, since the kernel wipes whole pages in a forked child. */
static _Alignas(PAGE_BYTES) union {
    _Atomic uint32_t word;
    char page[PAGE_BYTES];
} fork_page;

/* 0: never started. A process id: that process is starting. STARTED: done. Unlike the word, it survives a fork. */
static _Atomic int32_t start_state;
enum { STARTED = -1 };

static void clear_fork_word(void)
{
    atomic_store_explicit(&fork_page.word, 0, memory_order_relaxed);
}

static int guard_fork_word(void)
{
    if (madvise(&fork_page, sizeof fork_page, MADV_WIPEONFORK) == 0)
        return 0;
    /* For kernels before 4.14, and pages larger than ours: the C library's hook sees fork(), though not a bare clone(). */
    return pthread_atfork(NULL, NULL, clear_fork_word);
}

static void register_barrier(void);

static int start(const struct comm_env *env)
{
    int32_t pid = (int32_t)getpid(), seen = 0;

    (void)env;
    while (!atomic_compare_exchange_strong_explicit(&start_state, &seen, pid, memory_order_acq_rel, memory_order_acquire)) {
        if (seen == STARTED)
            return atomic_load_explicit(&fork_page.word, memory_order_acquire) ? 0 : ENV_FORKED;
        if (seen != pid)
            return ENV_FORKED; /* the process was forked while another thread of the parent was starting */
        sched_yield();
        seen = 0;
    }
    int error = guard_fork_word();
    if (error == 0)
        error = posix_fork_start();
    if (error == 0) {
        posix_clock_start();
        register_barrier();
        atomic_store_explicit(&fork_page.word, 1, memory_order_release);
    }
    atomic_store_explicit(&start_state, error ? 0 : STARTED, memory_order_release);
    return error;
}

/* ------------------------------------------------------------------------------------------------------------ barriers */
/* membarrier(2), expedited: it interrupts each CPU that runs a registered process. Not used with ThreadSanitizer, which cannot see it. */
static _Atomic uint32_t barrier_registered;

/* Registers only if a first barrier works too, because locks and sleepers rely on it from then on. */
static void register_barrier(void)
{
#if !defined(__SANITIZE_THREAD__)
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0)
        atomic_store_explicit(&barrier_registered, 1, memory_order_release);
#endif
}

/*
 * Once the kernel's barrier has worked it cannot fail, so a failure means that a seccomp filter was installed later. The other side of each
 * handshake has no fence because of this barrier. There is no fallback, and two threads inside one lock would be worse than the end of the
 * process.
 */
static bool barrier(const struct comm_env *env)
{
    char text[256];

    if (!atomic_load_explicit(&barrier_registered, memory_order_relaxed))
        return false;
    if (BASE_LIKELY(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0))
        return true;
    base_format(
        text, sizeof text,
        "commstream: membarrier(2) fails with errno %d though it worked when the library was started: a seccomp filter was installed "
        "since. Allow membarrier in it, or install it before the first world is opened.",
        errno);
    posix_panic(env, text);
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ waiting */
static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_SECOND), .tv_nsec = (long)(ns % NS_PER_SECOND)};
}

static void relax(const struct comm_env *env, bool yield)
{
    (void)env;
    if (yield)
        sched_yield();
    else
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb" ::: "memory");
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* FUTEX_WAIT_BITSET takes an absolute deadline on CLOCK_MONOTONIC. After every return (woken, changed, interrupted, timed out) the caller
 * checks again. */
static void park(const struct comm_env *env, _Atomic uint32_t *word, uint32_t seen, int64_t deadline)
{
    struct timespec until = timespec_of(deadline > 0 ? deadline : 0);

    (void)env;
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, deadline == ENV_FOREVER ? NULL : &until, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

static void wake(const struct comm_env *env, _Atomic uint32_t *word, uint32_t count)
{
    (void)env;
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count > INT32_MAX ? INT32_MAX : count, NULL, NULL, 0);
}

/* ------------------------------------------------------------------------------------------------------------ bells */
static int watch(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

static void bell_close(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    if (bell->wait_fd >= 0)
        close(bell->wait_fd);
    if (bell->ring_fd >= 0)
        close(bell->ring_fd);
    *bell = (struct env_bell){-1, -1};
}

static int bell_open(const struct comm_env *env, struct env_bell *bell)
{
    int error = 0;

    *bell = (struct env_bell){-1, -1};
    bell->ring_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (bell->ring_fd < 0)
        return errno;
    bell->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    error = bell->wait_fd < 0 ? errno : watch(bell->wait_fd, bell->ring_fd);
    if (error)
        bell_close(env, bell);
    return error;
}

/* EAGAIN: the counter is full, so the bell is rung already. */
static void bell_ring(const struct comm_env *env, struct env_bell *bell)
{
    uint64_t one = 1;

    (void)env;
    while (posix_write_bytes(bell->ring_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static bool bell_clear(const struct comm_env *env, struct env_bell *bell)
{
    uint64_t rung;
    ssize_t got;

    (void)env;
    do
        got = posix_read_bytes(bell->ring_fd, &rung, sizeof rung);
    while (got < 0 && errno == EINTR);
    return got > 0;
}

static int bell_watch(const struct comm_env *env, struct env_bell *bell, int fd)
{
    (void)env;
    return watch(bell->wait_fd, fd);
}

/* For kernels before 5.11, which only know milliseconds. Rounds up, so that a sleeper does not spin during the last fraction of one. */
static void wait_coarse(int set, int64_t left)
{
    struct epoll_event event;
    int64_t ms = left < 0 ? -1 : left / NS_PER_MS + (left % NS_PER_MS != 0);
    (void)posix_epoll_wait(set, &event, 1, ms > INT32_MAX ? INT32_MAX : (int)ms);
}

static void bell_wait(const struct comm_env *env, struct env_bell *bell, int64_t deadline)
{
    struct epoll_event event;
    int64_t left = -1; /* for ever */

    if (deadline != ENV_FOREVER) {
        left = deadline - posix_now(env);
        left = left < 0 ? 0 : left;
    }
#ifdef SYS_epoll_pwait2
    struct timespec relative = timespec_of(left < 0 ? 0 : left);
    if (syscall(SYS_epoll_pwait2, bell->wait_fd, &event, 1, left < 0 ? NULL : &relative, NULL, (size_t)0) >= 0 || errno != ENOSYS)
        return;
#endif
    (void)event;
    wait_coarse(bell->wait_fd, left);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static int fill_random(const struct comm_env *env, void *memory, size_t bytes)
{
    char *at = memory;

    (void)env;
    while (bytes) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno != EINTR)
            return errno;
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------ threads */
struct birth {
    env_thread_fn *fn;
    void *arg;
    struct env_thread *thread;
};

static void *live(void *given)
{
    struct birth birth = *(struct birth *)given;

    free(given);
    birth.fn(birth.arg);
    /* The record exists until pthread_join has returned, which is after this thread's last instruction, so it can be woken through. */
    atomic_store_explicit(&birth.thread->ended, 1, memory_order_release);
    wake(NULL, &birth.thread->ended, INT32_MAX);
    return NULL;
}

/* Threads of the library block all signals of the program. */
static int spawn(const struct comm_env *env, env_thread_fn *fn, void *arg, struct env_thread *thread)
{
    struct birth *birth = malloc(sizeof *birth);
    sigset_t all, before;
    pthread_t handle;

    (void)env;
    if (!birth)
        return ENOMEM;
    *birth = (struct birth){fn, arg, thread};
    atomic_init(&thread->ended, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&handle, NULL, live, birth);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        free(birth);
    else
        thread->handle = (uint64_t)handle;
    return error;
}

static bool join(const struct comm_env *env, struct env_thread *thread, int64_t deadline)
{
    while (!atomic_load_explicit(&thread->ended, memory_order_acquire)) {
        if (deadline != ENV_FOREVER && posix_now(env) >= deadline)
            return false;
        park(env, &thread->ended, 0, deadline);
    }
    return pthread_join((pthread_t)thread->handle, NULL) == 0;
}

static int cancel(const struct comm_env *env, int state)
{
    int was = PTHREAD_CANCEL_ENABLE;

    (void)env;
    pthread_setcancelstate(state == ENV_CANCEL_ON ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE, &was);
    return was == PTHREAD_CANCEL_ENABLE ? ENV_CANCEL_ON : ENV_CANCEL_OFF;
}

/* The address of a thread-local variable identifies the thread: never 0, and no call is needed. */
static uint64_t self(const struct comm_env *env)
{
    static _Thread_local char own __attribute__((tls_model("initial-exec")));

    (void)env;
    return (uint64_t)(uintptr_t)&own;
}

/* ------------------------------------------------------------------------------------------------------------ text and files */
static const char *lookup(const struct comm_env *env, const char *name)
{
    (void)env;
    return getenv(name);
}

static const char *variable(const struct comm_env *env, size_t index)
{
    (void)env;
    return environ ? environ[index] : NULL;
}

static int file_open(const struct comm_env *env, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    (void)env;
    return file < 0 ? -errno : file;
}

static int64_t file_write(const struct comm_env *env, int file, const void *bytes, size_t count)
{
    ssize_t wrote;

    (void)env;
    do
        wrote = write(file, bytes, count);
    while (wrote < 0 && errno == EINTR);
    return wrote < 0 ? -errno : wrote;
}

static void file_close(const struct comm_env *env, int file)
{
    (void)env;
    close(file);
}

static int64_t file_read(const struct comm_env *env, const char *path, void *to, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nonblocking, since a pipe without a writer would block the whole world */
    size_t at = 0;
    int failed = 0;

    (void)env;
    if (file < 0)
        return -errno;
    while (at < room && !failed) {
        ssize_t got = read(file, (char *)to + at, room - at);
        if (got < 0 && errno != EINTR)
            failed = errno;
        if (got == 0)
            break;
        at += got > 0 ? (size_t)got : 0;
    }
    close(file);
    return failed ? -failed : (int64_t)at;
}

static void charge(const struct comm_env *env, int64_t ns)
{
    (void)env;
    (void)ns;
}

const struct comm_env env_posix = {
    .name = "posix",
    .alive = &fork_page.word,
    .start = start,
    .now = posix_now,
    .relax = relax,
    .park = park,
    .wake = wake,
    .bell_open = bell_open,
    .bell_ring = bell_ring,
    .bell_clear = bell_clear,
    .bell_watch = bell_watch,
    .bell_wait = bell_wait,
    .bell_close = bell_close,
    .take = posix_take,
    .give = posix_give,
    .random = fill_random,
    .spawn = spawn,
    .join = join,
    .self = self,
    .cancel = cancel,
    .barrier = barrier,
    .devices = &posix_devices,
    .find_devices = posix_find_devices,
    .on_device = posix_on_device,
    .own = posix_own,
    .farewell.add = posix_farewell_add,
    .farewell.drop = posix_farewell_drop,
    .lookup = lookup,
    .variable = variable,
    .cpus = posix_cpus,
    .identity = posix_identity,
    .module = posix_module,
    .file.open = file_open,
    .file.write = file_write,
    .file.close = file_close,
    .file.read = file_read,
    .log.start = posix_log_start,
    .log.stop = posix_log_stop,
    .log.write = posix_write,
    .log.drain = posix_drain,
    .log.forget = posix_forget,
    .panic = posix_panic,
    .charge = charge,
};
