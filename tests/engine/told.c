/* What a brief wait finds is told to the threads and loops that sleep (reported), as what a pass finds is. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "engine/told.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Two ranks call different sums, which the wait of one of them finds before any pass does. With `cpus` below the ranks, waits come in
 * turns. */
static void differ(const char *options)
{
    struct rig rig;
    struct comm_request request[2];
    int32_t in[2] = {1, 2}, out[2][2];
    rig_note("%s", options);
    rig_open_options(&rig, 2, options);
    rig_proves_alive(rig.world, 2);
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(rig.world[r], in, out[r], 1 + (size_t)r, COMM_I32, COMM_SUM, &request[r]));
    IS(comm_wait(request[0], RIG_PATIENCE), COMM_ERR_MISMATCH);
    CHECK(is_told(rig.world[0]));
    IS(comm_wait(request[1], RIG_PATIENCE), COMM_ERR_MISMATCH);
    rig_close(&rig);
}

RIG_TEST(a_failure_that_a_brief_wait_finds)
{
    differ("cpus=8,progress=caller");
    differ("cpus=1,progress=caller");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_that_a_brief_wait_finds),
    };
    return cmocka_run_group_tests_name("engine_told", tests, NULL, NULL);
}
