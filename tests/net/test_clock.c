/* The clock on a machine whose time the test makes: with the counter that it extrapolates from, and over a suspend, in which the counter
 * goes on and CLOCK_MONOTONIC does not. Only x86-64 has such a counter. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <time.h>

static uint64_t made_ticks;
static int64_t made_ns;
static int readings;

static int read_clock(struct timespec *to)
{
    readings++;
    *to = (struct timespec){.tv_sec = (time_t)(made_ns / 1000000000), .tv_nsec = (long)(made_ns % 1000000000)};
    return 0;
}

#define __builtin_ia32_rdtsc() made_ticks
#define clock_gettime(clock, to) read_clock(to)
#define posix_now told
#define posix_clock_start start_told
#include "net/posix/clock.c"

enum { TICKS_A_NS = 3, STEP_NS = 1000000 };

static void pass(int64_t passed_ns, int64_t suspended_ns)
{
    made_ns += passed_ns;
    made_ticks += (uint64_t)(passed_ns + suspended_ns) * TICKS_A_NS;
}

static void begin(void)
{
    made_ns = INT64_C(5000000000);
    made_ticks = UINT64_C(77000000000);
    line = (struct line){0};
    atomic_store(&counter_is_trusted, 1);
}

static void is_right(void)
{
    assert_in_range(told(NULL), made_ns - 100, made_ns + 100);
}

/* Most reads need no call, and all are right. */
static void follows_the_counter(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 10; i++, pass(STEP_NS, 0))
        is_right();
    readings = 0;
    for (int i = 0; i < 100; i++, pass(STEP_NS / 20, 0))
        is_right();
    assert_in_range(readings, 1, 10);
}

/* After any number of readings. */
static void is_right_after_a_suspend(void **state)
{
    static const int64_t suspended[] = {STEP_NS, INT64_C(60000000000), INT64_C(3600000000000)};

    (void)state;
    for (int before = 0; before < 6; before++)
        for (size_t i = 0; i < sizeof suspended / sizeof *suspended; i++) {
            begin();
            for (int k = 0; k < before; k++, pass(STEP_NS, 0))
                is_right();
            pass(STEP_NS, suspended[i]);
            for (int k = 0; k < 100; k++, pass(STEP_NS, 0))
                is_right();
            pass(INT64_C(1000000000), 0);
            is_right();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_counter),
        cmocka_unit_test(is_right_after_a_suspend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
