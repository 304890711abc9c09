/* COMM_CHECK: calls from different places, inputs that change in flight, sends that would wait for ever without their
 * receive. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };

/* Not inlined, so that a compiler cannot make two calls of one. */
static __attribute__((noinline)) enum comm_result from_here(struct rig *rig, int32_t r, int32_t *in, int32_t *out,
                                                            struct comm_request *request)
{
    enum comm_result result = comm_allreduce(rig->world[r], in, out, 1, COMM_I32, COMM_SUM, request);
    CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    return result;
}

/* Rank 1 makes the same call as the others, but from another place. */
static void from_two_places(struct rig *rig, enum comm_result want)
{
    struct comm_request request[RANKS];
    int32_t in[RANKS] = {1, 2, 3}, out[RANKS];
    enum comm_result result;
    for (int32_t r = 0; r < RANKS; r++) {
        if (r == 1)
            result = from_here(rig, r, &in[r], &out[r], &request[r]);
        else
            result = comm_allreduce(rig->world[r], &in[r], &out[r], 1, COMM_I32, COMM_SUM, &request[r]);
        CHECK(result == COMM_OK || result == want);
    }
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), want);
}

RIG_TEST(contract_6_9_calls_from_different_places)
{
    struct rig rig;
    struct comm_error error = {.size = sizeof error};
    rig_open(&rig, RANKS, NULL);
    from_two_places(&rig, COMM_OK);
    rig_close(&rig);
    rig_open_options(&rig, RANKS, "check=calls");
    for (int i = 0; i < 50; i++)
        rig_proves_alive(rig.world, RANKS);
    from_two_places(&rig, COMM_ERR_MISMATCH);
    MUST(comm_error_detail(rig.world[0], &error));
    CHECK(strstr(error.text, "different places"));
    rig_close(&rig);
}

/* Not inlined, for the same reason. */
static __attribute__((noinline)) enum comm_result name_from_here(struct rig *rig, int32_t r, char *name, size_t *bytes,
                                                                 struct comm_request *request)
{
    enum comm_result result = comm_broadcast_bytes(rig->world[r], name, bytes, 0, request);
    CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    return result;
}

/* Rank 0 sends a title and a name; rank 1 leaves the title out. Only the root states lengths, so the two calls look
 * alike. */
static void leave_out_the_title(struct rig *rig, bool told)
{
    struct comm_error error = {.size = sizeof error};
    struct comm_request sent[2], came, barrier[2];
    char title[8] = "a title", name[5] = "name", got[8] = "";
    size_t bytes[2] = {sizeof title, sizeof name}, length = sizeof got;
    MUST(comm_broadcast_bytes(rig->world[0], title, &bytes[0], 0, &sent[0]));
    MUST(name_from_here(rig, 0, name, &bytes[1], &sent[1]));
    enum comm_result result = name_from_here(rig, 1, got, &length, &came);
    IS(result == COMM_OK ? comm_wait(came, RIG_PATIENCE) : result, told ? COMM_ERR_MISMATCH : COMM_OK);
    CHECK(strcmp(got, told ? "" : "a title") == 0);
    for (int32_t r = 0; r < 2; r++) {
        result = comm_barrier(rig->world[r], &barrier[r]);
        CHECK(result == COMM_OK || result == COMM_ERR_MISMATCH);
    }
    for (int32_t r = 0; r < 2; r++) { /* without the check, the missing call is found now */
        IS(comm_wait(barrier[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
        MUST(comm_error_detail(rig->world[r], &error));
        CHECK((strstr(error.text, "different places") != NULL) == told);
    }
}

RIG_TEST(contract_6_9_lengths_and_bytes_from_different_places)
{
    for (int told = 0; told < 2; told++) {
        struct rig rig;
        rig_open_options(&rig, 2, told ? "check=calls" : "");
        leave_out_the_title(&rig, told);
        rig_close(&rig);
    }
}

/* Buffers in flight belong to the library: a write into an input is reported by the request that it affects, and by no
 * other. */
static void write_in_flight(size_t n, bool writes)
{
    struct rig rig;
    struct comm_request request[RANKS], send, receive;
    unsigned char *in[RANKS], *out[RANKS];
    rig_note("%zu bytes", n);
    rig_open_options(&rig, RANKS, "check=buffers,window=8");
    for (int32_t r = 0; r < RANKS; r++) {
        in[r] = calloc(1, n);
        out[r] = calloc(1, n);
        CHECK(in[r] && out[r]);
    }
    MUST(comm_allreduce(rig.world[0], in[0], out[0], n, COMM_BYTE, COMM_BOR, &request[0]));
    in[0][n / 2] = writes;
    for (int32_t r = 1; r < RANKS; r++)
        MUST(comm_allreduce(rig.world[r], in[r], out[r], n, COMM_BYTE, COMM_BOR, &request[r]));
    for (int32_t r = 0; r < RANKS; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), writes && r == 0 ? COMM_ERR_CORRUPT : COMM_OK);
    MUST(comm_send(rig.world[0], in[0], n, COMM_BYTE, 1, 0, &send));
    bool pending = comm_test(send) == COMM_PENDING; /* short ones are sent at once, and their buffer is free */
    in[0][0] = writes;
    MUST(comm_recv(rig.world[1], out[1], n, COMM_BYTE, 0, 0, NULL, &receive));
    MUST(comm_wait(receive, RIG_PATIENCE));
    IS(comm_wait(send, RIG_PATIENCE), writes && pending ? COMM_ERR_CORRUPT : COMM_OK);
    rig_proves_alive(rig.world, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        free(in[r]);
        free(out[r]);
    }
    rig_close(&rig);
}

RIG_TEST(contract_6_9_inputs_that_change_in_flight)
{
    static const size_t lengths[] = {1, 8, 100, 5000, 300001};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_in_flight(lengths[i], false);
        write_in_flight(lengths[i], true);
    }
}

/* A point behind that request is reached all the same, and the error is still to be reported. */
RIG_TEST(contract_6_9_a_point_behind_an_input_that_changed)
{
    struct rig rig;
    struct comm_event *event;
    struct comm_request last;
    int32_t in[2] = {1, 2}, out[2];
    rig_open_options(&rig, 2, "check=buffers");
    MUST(comm_event_create(rig.world[0], &event));
    MUST(comm_allreduce(rig.world[0], &in[0], &out[0], 1, COMM_I32, COMM_SUM, NULL));
    last = comm_last(rig.world[0]);
    MUST(comm_event_record(event, rig.world[0]));
    in[0] = 5;
    MUST(comm_allreduce(rig.world[1], &in[1], &out[1], 1, COMM_I32, COMM_SUM, NULL));
    MUST(comm_wait(last, RIG_PATIENCE));
    MUST(comm_event_sync(event, RIG_PATIENCE));
    IS(comm_sync(rig.world[0], RIG_PATIENCE), COMM_ERR_CORRUPT);
    MUST(comm_sync(rig.world[0], RIG_PATIENCE));
    comm_event_free(event);
    rig_proves_alive(rig.world, 2);
    rig_close(&rig);
}

/* Two operations on one buffer, in order: the later one's input is what the earlier one wrote, which is correct. */
RIG_TEST(contract_6_9_what_the_queue_writes_is_no_offence)
{
    struct rig rig;
    struct comm_request request[2 * RANKS];
    int32_t a[RANKS], b[RANKS];
    rig_open_options(&rig, RANKS, "check=buffers");
    for (int round = 0; round < 100; round++) {
        for (int32_t r = 0; r < RANKS; r++) {
            a[r] = r;
            MUST(comm_allreduce(rig.world[r], COMM_IN_PLACE, &a[r], 1, COMM_I32, COMM_SUM, &request[2 * r]));
            MUST(comm_allreduce(rig.world[r], &a[r], &b[r], 1, COMM_I32, COMM_SUM, &request[2 * r + 1]));
        }
        rig_wait_all(request, 2 * RANKS);
        EQUAL(b[0], 9);
    }
    rig_close(&rig);
}

RIG_TEST(contract_6_9_sends_wait_for_their_receive)
{
    static const size_t lengths[] = {0, 1, 30, 4000, 5000, 100000};
    struct rig rig;
    static unsigned char from[100000], to[100000];
    rig_open_options(&rig, 2, "check=rendezvous");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct comm_request send, receive;
        struct comm_status status = {0};
        memset(from, (int)i + 1, sizeof from);
        MUST(comm_send(rig.world[0], from, lengths[i], COMM_BYTE, 1, 5, &send));
        rig_progress_for(rig.world[0], RIG_MS);
        IS(comm_test(send), COMM_PENDING);
        MUST(comm_recv(rig.world[1], to, lengths[i], COMM_BYTE, 0, 5, &status, &receive));
        MUST(comm_wait(receive, RIG_PATIENCE));
        MUST(comm_wait(send, RIG_PATIENCE));
        EQUAL(status.bytes, lengths[i]);
        CHECK(memcmp(from, to, lengths[i]) == 0);
        /* A message that is too long also releases its sender. */
        MUST(comm_send(rig.world[0], from, lengths[i] + 1 < sizeof from ? lengths[i] + 1 : lengths[i], COMM_BYTE, 1, 6, &send));
        MUST(comm_recv(rig.world[1], to, 0, COMM_BYTE, 0, 6, NULL, &receive));
        IS(comm_wait(receive, RIG_PATIENCE), COMM_ERR_TRUNCATED);
        MUST(comm_wait(send, RIG_PATIENCE));
    }
    rig_close(&rig);
}

RIG_TEST(contract_6_9_a_word_that_is_no_check)
{
    char text[256] = "";
    struct comm_communicator *world[1];
    IS(comm_open_local(COMM_CONFIG(.options = "check=calls,bufers", .error_text = text, .error_text_bytes = sizeof text), 1, NULL, world),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "bufers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_6_9_calls_from_different_places),
        cmocka_unit_test(contract_6_9_lengths_and_bytes_from_different_places),
        cmocka_unit_test(contract_6_9_inputs_that_change_in_flight),
        cmocka_unit_test(contract_6_9_a_point_behind_an_input_that_changed),
        cmocka_unit_test(contract_6_9_what_the_queue_writes_is_no_offence),
        cmocka_unit_test(contract_6_9_sends_wait_for_their_receive),
        cmocka_unit_test(contract_6_9_a_word_that_is_no_check),
    };
    return cmocka_run_group_tests_name("contract_6_check", tests, NULL, NULL);
}
