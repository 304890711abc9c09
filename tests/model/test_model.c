/*
 * Every case is explored to the end and must be right; then each of its planted faults must be found. `test_model NAME` runs the cases
 * whose names contain NAME; `test_model --weaken NAME` tells for each place in the code whether its order is needed.
 */
#include "model/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { RUNS_MOST = 5000000 };

static const struct model_case *const cases[] = {
    &case_lock_three, &case_lock_twice, &case_home, &case_home_try, &case_home_leaving, &case_home_unclaimed, &case_home_no_barrier,
};
enum { CASES = sizeof cases / sizeof *cases };

static void explore_case(void **state)
{
    const struct model_case *c = *state;
    struct model_report report;
    model_explore(c, NULL, RUNS_MOST, &report);
    print_message("%s: %llu runs, %llu cut short\n", c->name, (unsigned long long)report.runs, (unsigned long long)report.pruned);
    if (report.found)
        print_message("%s\n", report.text);
    assert_false(report.found);
    assert_true(report.complete);
    int missed = 0;
    for (const struct model_fault *f = c->faults; f && f->what; f++) {
        model_explore(c, f, RUNS_MOST, &report);
        print_message("  %s: %s after %llu runs\n", f->what, report.found ? "found" : "NOT FOUND",
                      (unsigned long long)(report.runs + report.pruned));
        missed += !report.found;
    }
    assert_int_equal(missed, 0);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[CASES];
    size_t count = 0;
    if (argc > 1 && strcmp(argv[1], "--weaken") == 0) {
        for (size_t i = 0; i < CASES; i++)
            if (argc < 3 || strstr(cases[i]->name, argv[2]))
                model_weaken_each(cases[i], RUNS_MOST);
        return 0;
    }
    for (size_t i = 0; i < CASES; i++)
        if (argc < 2 || strstr(cases[i]->name, argv[1]))
            tests[count++] =
                (struct CMUnitTest){.name = cases[i]->name, .test_func = explore_case, .initial_state = (void *)(uintptr_t)cases[i]};
    return _cmocka_run_group_tests("model", tests, count, NULL, NULL);
}
