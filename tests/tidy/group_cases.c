/* Cases that pass, fail and are skipped, for group.sh: group_cases PATTERN runs those whose names match it. */
#include "conform/rig.h"
#include "group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

static void ok_plain(void **state)
{
    (void)state;
}

static void bad_plain(void **state)
{
    (void)state;
    assert_true(false);
}

static void skip_plain(void **state)
{
    (void)state;
    group_skip("plain reason %d", 1);
}

static void skip_bare(void **state)
{
    (void)state;
    skip();
}

static void part_plain(void **state)
{
    (void)state;
    group_skip_part("half a reason");
}

RIG_TEST(ok_isolated) {}

RIG_TEST(skip_isolated)
{
    rig_skip("isolated reason");
}

/* 77 by accident, as of a program that it runs. */
RIG_TEST(bad_77)
{
    exit(77);
}

RIG_TEST(bad_isolated)
{
    CHECK(false);
}

static void broken_setup(void **state)
{
    (void)state;
}

static int no_setup(void **state)
{
    (void)state;
    return -1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ok_plain),     cmocka_unit_test(bad_plain),
        cmocka_unit_test(skip_plain),   cmocka_unit_test(skip_bare),
        cmocka_unit_test(part_plain),   cmocka_unit_test(ok_isolated),
        cmocka_unit_test(bad_77),       cmocka_unit_test(skip_isolated),
        cmocka_unit_test(bad_isolated), cmocka_unit_test_setup(broken_setup, no_setup),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("group_cases", tests, NULL, NULL);
}
