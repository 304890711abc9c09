/* Host lists and task counts as SLURM writes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "team/slurm.h"

#include <string.h>

static void hosts(const char *list, const char *all)
{
    char text[400] = "", host[64];
    uint64_t count = slurm_hosts(list);

    for (uint64_t i = 0; i < count; i++) {
        assert_true(slurm_host(list, i, host, sizeof host));
        strncat(text, i ? " " : "", sizeof text - strlen(text) - 1);
        strncat(text, host, sizeof text - strlen(text) - 1);
    }
    assert_string_equal(text, all);
    assert_false(slurm_host(list, count, host, sizeof host));
}

static void lists(void **state)
{
    (void)state;
    hosts("login", "login");
    hosts("a,b-1,c.d", "a b-1 c.d");
    hosts("n[1-3]", "n1 n2 n3");
    hosts("n[01-03,7,010]", "n01 n02 n03 n7 n010");
    hosts("n[098-101]", "n098 n099 n100 n101");
    hosts("n[9-11],m", "n9 n10 n11 m");
    hosts("r[1-2]n[0-1],x", "r1n0 r1n1 r2n0 r2n1 x");
    hosts("r[1-2]n[0-1]-ib", "r1n0-ib r1n1-ib r2n0-ib r2n1-ib");
    hosts("tux[0-4,6]", "tux0 tux1 tux2 tux3 tux4 tux6");
}

static void malformed(void **state)
{
    static const char *const wrong[] = {"",
                                        ",",
                                        "a,",
                                        ",a",
                                        "n[",
                                        "n[1",
                                        "n[]",
                                        "n]",
                                        "n[1-]",
                                        "n[-1]",
                                        "n[3-1]",
                                        "n[1,,2]",
                                        "n[1,]",
                                        "n[a]",
                                        "n[1-2",
                                        "n[[1]]",
                                        "a b",
                                        "n[1 2]",
                                        "a\n",
                                        "n[1-2]]",
                                        "n[1-9999999999]",
                                        "n[0-99999]",
                                        "n[0-999]m[0-999]",
                                        "a,,b"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char host[64];
        if (slurm_hosts(wrong[i]) || slurm_host(wrong[i], 0, host, sizeof host))
            fail_msg("\"%s\" was taken for a list", wrong[i]);
    }
    char small[4];
    assert_false(slurm_host("node17", 0, small, sizeof small));
}

static void tasks(void **state)
{
    static const uint64_t expected[] = {2, 2, 2, 1, 16};
    static const char *const wrong[] = {"", "x", "2(x3", "2(3)", "2(x0)", "2,", ",2", "2(x3)1", "-1", "2 ", "(x2)"};
    uint64_t one = 0, all = 0;

    (void)state;
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(slurm_tasks("2(x3),1,16", i, &one, &all));
        assert_int_equal(one, expected[i]);
        assert_int_equal(all, 23);
    }
    assert_false(slurm_tasks("2(x3),1,16", 5, &one, &all));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (slurm_tasks(wrong[i], 0, &one, &all))
            fail_msg("\"%s\" was taken for numbers of tasks", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists), cmocka_unit_test(malformed), cmocka_unit_test(tasks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
