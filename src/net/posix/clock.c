/*
 * The clock. CLOCK_MONOTONIC is the reference, also for the kernel's deadlines. To read it costs about 21 ns, the time stamp counter 9 ns,
 * and every wait reads the clock. So if the kernel itself uses that counter, each thread extrapolates linearly from its last two readings
 * of the reference, for as long as the two were apart, at most 10 ms. Threads share nothing: no locks, and no stores that other threads
 * see.
 *
 * Invariants: within a thread time never runs backwards. Between threads, and compared with the kernel, it is off by the error of two
 * readings (about 0.1 us; at worst a microsecond), and by up to 5 us more while the kernel slews its clock.
 */
#define _GNU_SOURCE
#include "net/posix/posix.h"

#include <time.h>

static int64_t kernel_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#if defined(__x86_64__)
#    include <cpuid.h>
#    include <fcntl.h>
#    include <string.h>
#    include <unistd.h>

__extension__ typedef unsigned __int128 wide;

enum {
    FIRST_NS = 500000, /* two readings this far apart extrapolate with an error as small as their own; a longer time delays every start */
    FOLLOW_NS_MAX = 10000000, /* the kernel may slew its clock by 500 ppm (adjtimex(2)), and start at any time */
    BRACKET_TICKS_MAX = 1000, /* a reading that took longer was interrupted and is not trusted */
    SLEW_SHIFT = 9,           /* if the rate changed by more than 1/512, the counter has jumped (suspend) */
};

struct line {
    uint64_t ticks;  /* counter at the last reading, and ... */
    int64_t ns;      /* ... CLOCK_MONOTONIC then */
    uint64_t rate;   /* ns per tick, with 32 fractional bits */
    uint64_t follow; /* ticks for which the line is valid; 0: no line yet, or nothing agrees with it */
    int64_t last;    /* the highest time returned */
};

/* initial-exec: accessed without a call, because every operation reads the clock. */
static _Thread_local struct line line __attribute__((tls_model("initial-exec")));
static _Atomic uint32_t counter_is_trusted;

static bool kernel_uses_counter(void)
{
    char name[8] = {0};
    int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return false;
    ssize_t got = read(file, name, sizeof name - 1);
    close(file);
    return got == 4 && strcmp(name, "tsc\n") == 0;
}

static bool counter_is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}

void posix_clock_start(void)
{
    atomic_store_explicit(&counter_is_trusted, kernel_uses_counter() && counter_is_invariant(), memory_order_relaxed);
}

static int64_t tell(int64_t ns)
{
    line.last = ns > line.last ? ns : line.last;
    return line.last;
}

/* Computes a new line from the last reading and this one, if they are far enough apart. It is followed if it agrees with the one before: if
 * the machine was suspended between two readings, the counter may have gone on without the clock. */
static void draw(uint64_t ticks, int64_t ns)
{
    uint64_t elapsed = (uint64_t)(ns - line.ns), passed = ticks - line.ticks, before = line.rate;
    uint64_t follow_ns = elapsed < FOLLOW_NS_MAX ? elapsed : FOLLOW_NS_MAX;

    if (line.ns && elapsed < FIRST_NS)
        return;
    uint64_t rate = line.ns && passed ? (uint64_t)(((wide)elapsed << 32) / passed) : 0;
    uint64_t change = rate > before ? rate - before : before - rate;
    bool jumped = before && change > before >> SLEW_SHIFT;
    line.ticks = ticks;
    line.ns = ns;
    line.rate = jumped ? 0 : rate;
    line.follow = before && line.rate ? (uint64_t)(((wide)follow_ns << 32) / line.rate) : 0;
}

__attribute__((noinline)) static int64_t read_truth(void)
{
    uint64_t before = __builtin_ia32_rdtsc();
    int64_t ns = kernel_now();
    uint64_t after = __builtin_ia32_rdtsc();

    if (!atomic_load_explicit(&counter_is_trusted, memory_order_relaxed))
        return ns;
    if (after - before < BRACKET_TICKS_MAX)
        draw(before + (after - before) / 2, ns);
    else
        line.follow = 0;
    return tell(ns);
}

int64_t posix_now(const struct comm_env *env)
{
    uint64_t passed = __builtin_ia32_rdtsc() - line.ticks;

    (void)env;
    if (passed >= line.follow)
        return read_truth();
    return tell(line.ns + (int64_t)((wide)passed * line.rate >> 32));
}

#else

void posix_clock_start(void) {}

int64_t posix_now(const struct comm_env *env)
{
    (void)env;
    return kernel_now();
}

#endif
