/* Contract 1.8 and 1.9: refused calls, and a full queue. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ 1.8 */
/* Rank 0's first call is refused; its second must not match rank 1's first, though they look alike. */
RIG_TEST(contract_1_8_a_refused_call_keeps_ranks_in_step)
{
    struct rig rig;
    struct comm_request refused, after, request[4];
    struct comm_error error;
    int32_t in[3] = {1, 2, 4}, x[3] = {0, 0, 0}, y[3] = {0, 0, 0};
    rig_open(&rig, 3, NULL);
    enum comm_result told = comm_allreduce(rig.world[0], &in[0], &x[0], 1, (enum comm_type)99, COMM_SUM, &refused);
    CHECK(told < 0);
    IS(comm_test(refused), told);
    MUST(comm_allreduce(rig.world[0], &in[0], &y[0], 1, COMM_I32, COMM_SUM, &after));
    for (int32_t r = 1; r < 3; r++) {
        (void)!comm_allreduce(rig.world[r], &in[r], &x[r], 1, COMM_I32, COMM_SUM, &request[2 * r - 2]); /* it may learn of the refusal
                                                                                                         * inside the call */
        (void)!comm_allreduce(rig.world[r], &in[r], &y[r], 1, COMM_I32, COMM_SUM, &request[2 * r - 1]);
    }
    int64_t start = rig_now();
    for (int i = 0; i < 4; i++)
        IS(comm_wait(request[i], RIG_PATIENCE), COMM_ERR_REFUSED);
    enum comm_result later =
        comm_wait(after, RIG_PATIENCE); /* success is local: its own second call may have met theirs before the failure */
    CHECK(later == COMM_ERR_REFUSED || (later == COMM_OK && y[0] == 7));
    CHECK(rig_now() - start < 2 * RIG_S);
    for (int32_t r = 0; r < 3; r++) {
        rig_fails_within(rig.world[r], COMM_ERR_REFUSED, RIG_S, &error);
        EQUAL(error.rank, 0);
        CHECK(strlen(error.text) > 0);
    }
    rig_close(&rig);
}

/* Rank 1 refuses the number of the second of the two pieces of work that rank 0's call is. */
RIG_TEST(contract_1_8_a_broadcast_of_bytes_half_of_which_is_refused)
{
    struct rig rig;
    struct comm_request request, other;
    char data[100] = {1};
    size_t bytes = sizeof data;
    rig_open(&rig, 2, NULL);
    MUST(comm_barrier(rig.world[1], &other));
    CHECK(comm_allreduce(rig.world[1], data, data, 1, (enum comm_type)99, COMM_SUM, NULL) < 0);
    for (int64_t end = rig_now() + 50 * RIG_MS; rig_now() < end;)
        (void)!comm_progress(rig.world[0]); /* hears of it */
    (void)!comm_broadcast_bytes(rig.world[0], data, &bytes, 0, &request);
    CHECK(comm_wait(request, RIG_PATIENCE) < 0);
    CHECK(comm_wait(other, RIG_PATIENCE) < 0);
    rig_close(&rig);
}

RIG_TEST(contract_1_8_refused_by_all_goes_on)
{
    struct rig rig;
    int32_t word = 0;
    rig_open(&rig, 3, NULL);
    for (int i = 0; i < 200; i++) {
        for (int32_t r = 0; r < 3; r++) {
            struct comm_request request;
            enum comm_result told = comm_broadcast(rig.world[r], &word, 1, COMM_I32, 3, &request);
            IS(told, COMM_ERR_ARGUMENT);
            IS(comm_test(request), COMM_ERR_ARGUMENT);
        }
        if (i % 50 == 0)
            rig_proves_alive(rig.world, 3);
    }
    rig_proves_alive(rig.world, 3);
    rig_close(&rig);
}

/* Every refusal names its call, in the detail's text and in a field of its own. */
static void names(struct comm_communicator *c, enum comm_result told, const char *call)
{
    struct comm_error error = {.size = sizeof error};
    char head[64];

    CHECK(told < 0);
    MUST(comm_error_detail(c, &error));
    IS(error.result, told);
    snprintf(head, sizeof head, "%s: ", call);
    const char *text = strncmp(error.text, "comm_", 5) == 0 ? error.text + 5 : error.text;
    if (strncmp(text, head, strlen(head)) != 0 || strcmp(error.operation, call) != 0)
        rig_die(__FILE__, __LINE__, "expected %s, got operation=%s text=%s", call, error.operation, error.text);
}

RIG_TEST(contract_1_8_a_refusal_names_its_call)
{
    struct rig rig;
    struct comm_window *w = NULL;
    struct comm_request q;
    comm_op op;
    double x = 0;
    void *address;
    rig_open(&rig, 1, NULL);
    struct comm_communicator *c = rig.world[0], *part = NULL;
    MUST(NOW(comm_window_create, c, 64, NULL, &w));
    names(c, comm_broadcast(c, &x, 1, COMM_F64, 7, &q), "broadcast");
    names(c, comm_send(c, &x, 1, COMM_F64, 9, 0, &q), "send");
    names(c, comm_send(c, &x, 1, COMM_F64, 0, COMM_ANY_TAG, &q), "send");
    names(c, comm_recv(c, &x, 1, (enum comm_type)99, 0, 0, NULL, &q), "recv");
    names(c, comm_recv(c, NULL, 1, COMM_F64, 0, 0, NULL, &q), "recv");
    names(c, comm_probe(c, 9, 0, 0, NULL), "probe");
    names(c, comm_op_create(c, NULL, NULL, NULL, &op), "op_create");
    names(c, comm_subset(c, NULL, 1, 0, &part, &q), "subset");
    names(c, comm_shrink(c, NULL, &q), "shrink");
    char text[64];
    names(c, comm_explain(c, &(struct comm_call){.size = sizeof(struct comm_call), .collective = "alreduce"}, text, sizeof text),
          "explain");
    struct comm_communicator *other;
    struct comm_event *event;
    MUST(comm_open_local(NULL, 1, NULL, &other));
    MUST(comm_event_create(other, &event));
    names(c, comm_queue_wait_event(c, event), "queue_wait_event");
    comm_event_free(event);
    MUST(comm_close(other, RIG_PATIENCE));
    names(c, comm_mem_alloc(c, 0, &address), "mem_alloc");
    names(c, comm_mem_alloc_symmetric(c, 0, &address, &q), "mem_alloc_symmetric");
    names(c, comm_mem_register(c, &x, 0), "mem_register");
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    CHECK(strstr(error.text, "ptr=0x") && strstr(error.text, " bytes=0;"));
    names(c, comm_window_pointer(w, 9, &address, NULL), "window_pointer");
    names(c, comm_put(w, &x, 1, COMM_F64, 0, 4711, &q), "put");
    IS(comm_test(q), COMM_ERR_ARGUMENT);
    (void)comm_window_free(w);
    rig_close(&rig);
}

static void says(struct comm_communicator *c, enum comm_result told, const char *call, const char *text)
{
    struct comm_error error = {.size = sizeof error};

    names(c, told, call);
    MUST(comm_error_detail(c, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.text, text);
}

/* The argument that is wrong, and its value as the caller gave it. */
RIG_TEST(contract_1_8_a_refusal_names_the_argument)
{
    const size_t one[1] = {1}, huge[1] = {SIZE_MAX};
    const int32_t mesh[2] = {1, 0};
    const struct comm_op_options no_name = {.size = sizeof no_name, .element_bytes = 4};
    struct rig rig;
    struct comm_communicator *axes[2];
    struct comm_window *w;
    struct comm_request q;
    comm_op op;
    int32_t a[2] = {0}, b[2] = {0};
    rig_open(&rig, 1, NULL);
    struct comm_communicator *c = rig.world[0];
    says(c, comm_reduce(c, COMM_IN_PLACE, NULL, 1, COMM_I32, COMM_SUM, 0, &q), "reduce", " out=0; expected a buffer");
    says(c, comm_reduce(c, NULL, a, 1, COMM_I32, COMM_SUM, 0, &q), "reduce", " in=0; expected a buffer");
    says(c, comm_allreduce(c, COMM_IN_PLACE, NULL, 1, COMM_I32, COMM_SUM, &q), "allreduce", " out=0;");
    says(c, comm_reduce_scatter(c, COMM_IN_PLACE, NULL, 1, COMM_I32, COMM_SUM, &q), "reduce_scatter", " out=0;");
    says(c, comm_scan(c, COMM_IN_PLACE, NULL, 1, COMM_I32, COMM_SUM, &q), "scan", " out=0;");
    says(c, comm_gather(c, COMM_IN_PLACE, NULL, 1, COMM_I32, 0, &q), "gather", " out=0;");
    says(c, comm_gather_v(c, COMM_IN_PLACE, 1, NULL, one, NULL, COMM_I32, 0, &q), "gather_v", " out=0;");
    says(c, comm_scatter(c, NULL, COMM_IN_PLACE, 1, COMM_I32, 0, &q), "scatter", " in=0;");
    says(c, comm_scatter_v(c, NULL, one, NULL, COMM_IN_PLACE, 1, COMM_I32, 0, &q), "scatter_v", " in=0;");
    says(c, comm_allgather(c, COMM_IN_PLACE, NULL, 1, COMM_I32, &q), "allgather", " out=0;");
    says(c, comm_allgather_v(c, COMM_IN_PLACE, NULL, one, NULL, COMM_I32, &q), "allgather_v", " out=0;");
    says(c, comm_alltoall(c, COMM_IN_PLACE, NULL, 1, COMM_I32, &q), "alltoall", " out=0;");
    says(c, comm_alltoall_v(c, COMM_IN_PLACE, NULL, NULL, NULL, one, NULL, COMM_I32, &q), "alltoall_v", " out=0;");
    says(c, comm_allreduce(c, a, b, SIZE_MAX, COMM_I32, COMM_SUM, &q), "allreduce", " n=18446744073709551615; expected a length");
    says(c, comm_allgather_v(c, a, b, huge, NULL, COMM_I32, &q), "allgather_v", " counts=18446744073709551615; expected blocks");
    says(c, comm_reduce_scatter_v(c, a, b, huge, COMM_I32, COMM_SUM, &q), "reduce_scatter_v", " counts=18446744073709551615;");
    says(c, comm_alltoall_v(c, a, huge, NULL, b, huge, NULL, COMM_I32, &q), "alltoall_v", "_counts=18446744073709551615;");
    says(c, comm_window_create(c, SIZE_MAX, NULL, &w, &q), "window_create", " bytes=18446744073709551615;");
    says(c, comm_split_mesh(c, mesh, 2, axes, &q), "split_mesh", " shape[1]=0;");
    says(c, comm_split_place(c, (enum comm_place)9, axes, &q), "split_place", " place=9;");
    says(c, comm_op_create(c, (comm_op_fn *)(uintptr_t)1, NULL, &no_name, &op), "op_create", " options.name=NULL;");
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ 1.9 */
RIG_TEST(contract_1_9_a_call_never_blocks_for_room)
{
    enum { MANY = 5000 };
    struct rig rig;
    static int32_t out[2][MANY], in[2][MANY];
    struct comm_request last[2];
    rig_open(&rig, 2, NULL);
    for (int32_t r = 0; r < 2; r++) {
        for (int i = 0; i < MANY; i++) {
            in[r][i] = i * (r + 1);
            MUST(comm_allreduce(rig.world[r], &in[r][i], &out[r][i], 1, COMM_I32, COMM_SUM, &last[r]));
        }
    }
    rig_wait_all(last, 2);
    for (int i = 0; i < MANY; i++) {
        EQUAL(out[0][i], 3 * i);
        EQUAL(out[1][i], 3 * i);
    }
    rig_close(&rig);
}

static long fill_queue(struct comm_communicator *c, long most)
{
    for (long i = 0; i < most; i++) {
        enum comm_result result = comm_barrier(c, NULL);
        if (result == COMM_ERR_FULL)
            return i;
        MUST(result);
    }
    return most;
}

RIG_TEST(contract_1_9_full_takes_nothing)
{
    struct rig rig;
    rig_open(&rig, 2, NULL);
    long held = fill_queue(rig.world[0], 70000);
    CHECK(held > 60000 && held <= 65536);
    IS(comm_barrier(rig.world[0], NULL), COMM_ERR_FULL);
    for (long i = 0; i < held; i++) {
        enum comm_result result = comm_barrier(rig.world[1], NULL);
        if (result == COMM_ERR_FULL) {
            result = comm_progress(rig.world[1]);
            CHECK(result == COMM_OK || result == COMM_PENDING);
            i--;
        } else {
            MUST(result);
        }
    }
    MUST(comm_sync(rig.world[0], COMM_FOREVER));
    MUST(comm_sync(rig.world[1], COMM_FOREVER));
    rig_proves_alive(rig.world, 2); /* calls refused as FULL took no number */
    rig_close(&rig);
}

/* However short the queue, as many messages may be pending as it holds pieces of work. */
RIG_TEST(contract_1_9_room_for_messages)
{
    static const char *const queue[] = {"queue=16", "queue=33", "queue=64", "queue=100"};
    static const int length[] = {16, 64, 64, 128}; /* rounded up to a power of two */
    static int32_t in[129], out[128];
    for (int k = 0; k < 4; k++) {
        struct rig rig;
        struct comm_request received[128];
        struct comm_info info = {.size = sizeof info};
        rig_open_options(&rig, 2, queue[k]);
        MUST(comm_describe(rig.world[0], &info));
        EQUAL(info.queue_max, length[k]);
        for (int i = 0; i < length[k]; i++)
            MUST(comm_recv(rig.world[0], &in[i], 1, COMM_I32, 1, (uint32_t)i, NULL, &received[i]));
        IS(comm_recv(rig.world[0], &in[128], 1, COMM_I32, 1, 200, NULL, NULL), COMM_ERR_FULL);
        for (int i = 0; i < length[k]; i++) {
            out[i] = i;
            MUST(comm_send(rig.world[1], &out[i], 1, COMM_I32, 0, (uint32_t)i, NULL));
        }
        rig_wait_all(received, (size_t)length[k]);
        for (int i = 0; i < length[k]; i++)
            EQUAL(in[i], i);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_8_a_refused_call_keeps_ranks_in_step),
        cmocka_unit_test(contract_1_8_a_broadcast_of_bytes_half_of_which_is_refused),
        cmocka_unit_test(contract_1_8_refused_by_all_goes_on),
        cmocka_unit_test(contract_1_8_a_refusal_names_its_call),
        cmocka_unit_test(contract_1_8_a_refusal_names_the_argument),
        cmocka_unit_test(contract_1_9_a_call_never_blocks_for_room),
        cmocka_unit_test(contract_1_9_full_takes_nothing),
        cmocka_unit_test(contract_1_9_room_for_messages),
    };
    return cmocka_run_group_tests_name("contract_1_refused", tests, NULL, NULL);
}
