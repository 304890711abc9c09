/*
 * Explores every case, completely or, unless all cases are selected (selection.h), up to RUNS_USUAL runs, and it must be correct; then each
 * of its planted faults must be found. `test_model NAME` runs the cases whose names contain NAME; `test_model --weaken NAME` tells for each
 * place in the code whether its memory order is needed.
 */
#include "model/cases.h"
#include "selection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MOST = 5000000, RUNS_USUAL = 10000, RUNS_FAULT = 26000 }; /* a planted fault ends the search, so it may be long */

static const struct model_case *const cases[] = {
    &case_lock_three,
    &case_lock_twice,
    &case_lock_claimed,
    &case_lock_claimed_three,
    &case_home,
    &case_home_try,
    &case_home_leaving,
    &case_home_unclaimed,
    &case_home_no_barrier,
    &case_line,
    &case_line_pending,
    &case_line_again,
    &case_exchange,
    &case_place,
    &case_place_first,
    &case_each,
    &case_each_first,
    &case_stream,
    &case_stream_landing,
    &case_stream_next,
    &case_answers,
    &case_stored,
    &case_notes,
    &case_message,
    &case_message_full,
    &case_message_eager,
    &case_message_large,
    &case_message_chunks,
    &case_message_room,
    &case_message_accepted,
    &case_message_eager_accepted,
    &case_sleep_light,
    &case_sleep_fenced,
    &case_sleep_twice,
    &case_sleep_both,
    &case_sleep_both_fenced,
    &case_told_home,
    &case_told_ordinary,
    &case_told_by_hand,
    &case_told_posted,
    &case_told_two,
    &case_progress_thread,
    &case_leave,
    &case_leave_both,
    &case_handle_failed,
    &case_handle_failed_twice,
    &case_handle_alone,
};
enum { CASES = sizeof cases / sizeof *cases };

static void explore_case(void **state)
{
    const struct model_case *c = *state;
    struct model_report report;
    uint64_t all = c->most ? c->most : RUNS_MOST, usual = selected(RUNS_MOST, RUNS_USUAL, RUNS_USUAL);
    uint64_t most = all < usual ? all : usual, to_find = selected(RUNS_MOST, RUNS_FAULT, RUNS_FAULT);
    to_find = all < to_find ? all : to_find;
    model_explore(c, NULL, most, &report);
    print_message("%s: %llu runs, %llu cut short%s\n", c->name, (unsigned long long)report.runs, (unsigned long long)report.pruned,
                  report.complete ? ""
                  : report.found  ? ""
                                  : "; not all");
    if (report.found != c->wrong)
        print_message("%s\n", report.found ? report.text : "nothing found");
    assert_int_equal(report.found, c->wrong);
    assert_true(report.complete || c->wrong || c->most || most == usual);
    int missed = 0;
    for (const struct model_fault *f = c->faults; f && f->what; f++) {
        model_explore(c, f, to_find, &report);
        print_message("  %s: %s after %llu runs: %.*s\n", f->what, report.found ? "found" : "NOT FOUND",
                      (unsigned long long)(report.runs + report.pruned), (int)strcspn(report.text, "\n"), report.text);
        missed += !report.found;
    }
    assert_int_equal(missed, 0);
}

static struct CMUnitTest test_of(const struct model_case *c)
{
    return (struct CMUnitTest){.name = c->name, .test_func = explore_case, .initial_state = (void *)(uintptr_t)c};
}

int main(int argc, char **argv)
{
    struct CMUnitTest *tests = calloc(CASES + litmus_count, sizeof *tests);
    size_t count = 0;
    if (argc > 1 && strcmp(argv[1], "--weaken") == 0) {
        for (size_t i = 0; i < CASES; i++)
            if (argc < 3 || strstr(cases[i]->name, argv[2]))
                model_weaken_each(cases[i], RUNS_MOST);
        return 0;
    }
    for (size_t i = 0; i < CASES; i++)
        if (argc < 2 || strstr(cases[i]->name, argv[1]))
            tests[count++] = test_of(cases[i]);
    for (size_t i = 0; i < litmus_count; i++)
        if (argc < 2 || strstr(litmus_cases[i].name, argv[1]))
            tests[count++] = test_of(&litmus_cases[i]);
    return _cmocka_run_group_tests("model", tests, count, NULL, NULL);
}
