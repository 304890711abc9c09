/* Every collective without elements, and without buffers: any pointer may be NULL then. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef enum comm_result nothing_call(struct comm_communicator *c, void *in, struct comm_request *request);
static const size_t no_elements[RIG_RANKS_MAX];

#define NOTHING(name, ...)                                                                                                                 \
    static enum comm_result nothing_##name(struct comm_communicator *c, void *in, struct comm_request *request)                            \
    {                                                                                                                                      \
        return comm_##name(c, __VA_ARGS__, request);                                                                                       \
    }
NOTHING(reduce, in, NULL, 0, COMM_F32, COMM_SUM, 0)
NOTHING(allreduce, in, NULL, 0, COMM_F32, COMM_SUM)
NOTHING(scan, in, NULL, 0, COMM_F32, COMM_SUM)
NOTHING(exscan, in, NULL, 0, COMM_F32, COMM_SUM)
NOTHING(reduce_scatter, in, NULL, 0, COMM_F32, COMM_SUM)
NOTHING(reduce_scatter_v, in, NULL, no_elements, COMM_F32, COMM_SUM)
NOTHING(gather, in, NULL, 0, COMM_F32, 0)
NOTHING(gather_v, in, 0, NULL, no_elements, NULL, COMM_F32, 0)
NOTHING(allgather, in, NULL, 0, COMM_F32)
NOTHING(allgather_v, in, NULL, no_elements, NULL, COMM_F32)
NOTHING(alltoall, in, NULL, 0, COMM_F32)
NOTHING(alltoall_v, in, no_elements, NULL, NULL, no_elements, NULL, COMM_F32)
NOTHING(scatter, NULL, in, 0, COMM_F32, 0)
NOTHING(scatter_v, NULL, no_elements, NULL, in, 0, COMM_F32, 0)

/* root: only the root may say that its input is in place. */
static const struct {
    nothing_call *call;
    bool root;
} calls[] = {
    {nothing_reduce, true},          {nothing_allreduce, false},        {nothing_scan, false},     {nothing_exscan, false},
    {nothing_reduce_scatter, false}, {nothing_reduce_scatter_v, false}, {nothing_gather, true},    {nothing_gather_v, true},
    {nothing_allgather, false},      {nothing_allgather_v, false},      {nothing_alltoall, false}, {nothing_alltoall_v, false},
    {nothing_scatter, true},         {nothing_scatter_v, true},
};

static void of_nothing(int32_t ranks, bool in_place)
{
    struct rig rig;
    rig_open(&rig, ranks, NULL);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct comm_request request[RIG_RANKS_MAX];
        for (int32_t r = 0; r < ranks; r++)
            MUST(calls[i].call(rig.world[r], in_place && (r == 0 || !calls[i].root) ? COMM_IN_PLACE : NULL, &request[r]));
        rig_wait_all(request, (size_t)ranks);
    }
    rig_close(&rig);
}

RIG_TEST(nothing_needs_no_buffers)
{
    for (int32_t ranks = 1; ranks <= 4; ranks++)
        of_nothing(ranks, false);
}

RIG_TEST(nothing_may_be_in_place)
{
    for (int32_t ranks = 1; ranks <= 4; ranks++)
        of_nothing(ranks, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_needs_no_buffers),
        cmocka_unit_test(nothing_may_be_in_place),
    };
    return cmocka_run_group_tests_name("conform_nothing", tests, NULL, NULL);
}
