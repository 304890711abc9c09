#define _GNU_SOURCE
#include "group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GROUP_CASES = 256, GROUP_SKIP = 77 };

static struct CMUnitTest group_cases[GROUP_CASES]; /* as the program named them; cmocka gets case_setup and case_body in their places */
static size_t group_at;                            /* one behind the case that runs */
static unsigned group_entered, group_skipped;
static const char *group_filter;

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown);
_Noreturn void __real__skip(const char *file, int line);
_Noreturn void __wrap__skip(const char *file, int line);
void __wrap_cmocka_set_test_filter(const char *pattern);

/* ------------------------------------------------------------------------------------------------------------ skips */
static void say_skipped(const char *format, va_list list)
{
    char text[512];

    vsnprintf(text, sizeof text, format, list);
    fprintf(stderr, "skipped: %s: %s\n", group_at ? group_cases[group_at - 1].name : "all cases", text);
    fflush(stderr);
}

void group_skip(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    say_skipped(format, list);
    va_end(list);
    group_skipped++;
    __real__skip(__FILE__, __LINE__);
}

void group_skip_part(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    say_skipped(format, list);
    va_end(list);
}

/* cmocka's skip() has no reason, which no list can allow. */
void __wrap__skip(const char *file, int line)
{
    group_skip("no reason given at %s:%d", file, line);
}

/* ------------------------------------------------------------------------------------------------------------ the cases */
static int case_setup(void **state)
{
    CMFixtureFunction setup = group_cases[group_at++].setup_func;

    return setup ? setup(state) : 0;
}

static void case_body(void **state)
{
    group_entered++;
    group_cases[group_at - 1].test_func(state);
}

void __wrap_cmocka_set_test_filter(const char *pattern)
{
    group_filter = pattern;
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                   CMFixtureFunction teardown)
{
    static struct CMUnitTest wrapped[GROUP_CASES];
    const char *poller = getenv("COMM_TCP_POLLER");
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        if (group_filter && fnmatch(group_filter, tests[i].name, 0) != 0)
            continue;
        if (n == GROUP_CASES) {
            fprintf(stderr, "%s: more than %d cases\n", name, GROUP_CASES);
            return 1;
        }
        group_cases[n] = wrapped[n] = tests[i];
        wrapped[n].setup_func = case_setup;
        wrapped[n++].test_func = case_body;
    }
    if (n == 0) {
        fprintf(stderr, "%s: no case is called %s\n", name, group_filter ? group_filter : "anything");
        return 1;
    }
    if (poller && strcmp(poller, "io_uring") == 0 && group_ring_missing()) {
        group_skip_part("%s", group_ring_missing());
        return GROUP_SKIP;
    }
    int failed = __real__cmocka_run_group_tests(name, wrapped, n, setup, teardown);
    group_at = 0;
    if (failed || group_entered < n) /* cases that a broken set-up kept from running */
        return 1;
    return group_skipped == n ? GROUP_SKIP : 0;
}

/* ------------------------------------------------------------------------------------------------------------ rings */
const char *group_ring_missing(void)
{
#ifdef COMM_HAVE_URING
    static char text[128];
    struct io_uring_params params = {0};
    char disabled[16] = "absent";
    long fd = syscall(SYS_io_uring_setup, 1, &params);

    if (fd >= 0) {
        close((int)fd);
        return NULL;
    }
    int error = errno;
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "r");
    if (file && fgets(disabled, sizeof disabled, file))
        disabled[strcspn(disabled, "\n")] = 0;
    if (file)
        fclose(file);
    snprintf(text, sizeof text, "no ring can be made here: %s, kernel.io_uring_disabled is %s", strerror(error), disabled);
    return text;
#else
    return "this library was built without liburing";
#endif
}

bool group_poller(const char *name)
{
    const char *missing = strcmp(name, "io_uring") == 0 ? group_ring_missing() : NULL;

    if (missing)
        group_skip_part("%s", missing);
    setenv("COMM_TCP_POLLER", name, 1);
    return !missing;
}

bool group_holds_ring(void)
{
    DIR *directory = opendir("/proc/self/fd");
    bool holds = false;

    for (struct dirent *entry; directory && !holds && (entry = readdir(directory));) {
        char path[300], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        holds = readlink(path, to, sizeof to - 1) > 0 && strcmp(to, "anon_inode:[io_uring]") == 0;
    }
    if (directory)
        closedir(directory);
    return holds;
}
