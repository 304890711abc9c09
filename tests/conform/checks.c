/* Checks, and the limit of a test's time. They need no test framework: programs that run where none is have them too. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RIG_CALLS = 48 };
static char rig_context[256]; /* rig_note writes it before the case runs; read when a test ends */
static unsigned rig_limit;    /* seconds that a case of this child may take; 0 outside */

int64_t rig_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * RIG_S + t.tv_nsec;
}

void rig_nap(int64_t ns)
{
    struct timespec t = {ns / RIG_S, ns % RIG_S};
    while (nanosleep(&t, &t) && errno == EINTR)
        continue;
}

bool rig_quick(void)
{
    return selection_few();
}

void rig_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(rig_context, sizeof rig_context, format, list);
    va_end(list);
    if (rig_limit)
        alarm(rig_limit);
}

_Noreturn void rig_die(const char *file, int line, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "%s:%d: %s%s%s\n", file, line, text, *rig_context ? "\n    in " : "", rig_context);
    fflush(stderr);
    _exit(1);
}

void rig_is(enum comm_result got, enum comm_result want, const char *what, const char *file, int line)
{
    if (got != want)
        rig_die(file, line, "%s: %s, expected %s", what, comm_result_name(got), comm_result_name(want));
}

void rig_equal(long long a, long long b, const char *what, const char *file, int line)
{
    if (a != b)
        rig_die(file, line, "%s: %lld and %lld", what, a, b);
}

/* Prints the calls that the test's thread is in; the library's threads take no signals. */
static void rig_hung(int number)
{
    static const char text[] = "hung: no end within the test's time\n    in ";
    void *calls[RIG_CALLS];
    (void)number;
    ssize_t done = write(2, text, sizeof text - 1);
    done += write(2, rig_context, strlen(rig_context));
    done += write(2, "\n", 1);
    backtrace_symbols_fd(calls, backtrace(calls, RIG_CALLS), 2);
    sleep(1); /* a launcher may kill the other ranks at this one's end, and they have something to print too */
    _exit(done > 0 ? 1 : 2);
}

void rig_end_after(unsigned seconds)
{
    void *calls[RIG_CALLS];
    (void)!backtrace(calls, RIG_CALLS); /* its first call allocates, which a signal handler must not */
    signal(SIGALRM, rig_hung);
    rig_limit = seconds;
    alarm(rig_limit);
}

unsigned rig_thin(unsigned all, unsigned usual, unsigned few)
{
    const char *thin = getenv("COMM_TEST_THIN");
    unsigned long n = thin && !selection_all() ? strtoul(thin, NULL, 10) : 0;
    return n ? (unsigned)n : selected(all, usual, few);
}
