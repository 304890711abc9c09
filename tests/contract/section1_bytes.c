/* Whose bytes go first: those of the oldest operation, while younger ones only fill gaps. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 8, WORDS = 200000, STRIDE = 500 };

static int64_t *words(int64_t value)
{
    int64_t *at = malloc(WORDS * sizeof *at);
    CHECK(at != NULL);
    for (size_t i = 0; i < WORDS; i++)
        at[i] = value;
    return at;
}

static long landed(const int64_t *at, int64_t poison)
{
    long count = 0;
    for (size_t i = 0; i < WORDS; i += STRIDE)
        count += at[i] != poison;
    return count;
}

/* When the oldest has arrived, most bytes of the younger ones have not: served in turn, all would arrive at nearly the
 * same time. */
static void oldest_is_first(struct comm_communicator *any, const struct comm_request *request, int64_t *const *out, int64_t poison)
{
    const long whole = WORDS / STRIDE;
    for (int k = 0; k < MANY - 1; k++) {
        int64_t start = rig_now();
        while (comm_test(request[k]) == COMM_PENDING) {
            enum comm_result moved = comm_progress(any);
            CHECK(moved == COMM_OK || moved == COMM_PENDING);
            CHECK(rig_now() - start < RIG_PATIENCE);
        }
        MUST(comm_test(request[k]));
        EQUAL(landed(out[k], poison), whole);
        long younger = 0;
        for (int i = k + 1; i < MANY; i++)
            younger += landed(out[i], poison);
        if (younger * 2 > (MANY - 1 - k) * whole + whole)
            rig_die(__FILE__, __LINE__, "operation %d is there, and of the younger ones' %ld parts %ld", k, (MANY - 1 - k) * whole,
                    younger);
    }
}

RIG_TEST(contract_1_10_the_oldest_collective_first)
{
    rig_not_over("tcp", "a socket keeps the order in which bytes were given to it");
    struct rig rig;
    struct comm_request request[2][MANY];
    int64_t *in = words(5), *out[MANY];
    rig_open(&rig, 2, NULL);
    for (int k = 0; k < MANY; k++)
        out[k] = words(-1);
    for (int k = 0; k < MANY; k++) {
        MUST(comm_broadcast(rig.world[0], in, WORDS, COMM_I64, 0, &request[0][k]));
        MUST(comm_broadcast(rig.world[1], out[k], WORDS, COMM_I64, 0, &request[1][k]));
    }
    oldest_is_first(rig.world[1], request[1], out, -1);
    rig_wait_all(request[0], MANY);
    rig_wait_all(request[1], MANY);
    rig_close(&rig);
    for (int k = 0; k < MANY; k++)
        free(out[k]);
    free(in);
}

RIG_TEST(contract_1_10_the_oldest_message_first)
{
    rig_not_over("tcp", "a socket keeps the order in which bytes were given to it");
    struct rig rig;
    struct comm_request request[2][MANY];
    int64_t *in = words(5), *out[MANY];
    rig_open(&rig, 2, NULL);
    for (int k = 0; k < MANY; k++) {
        out[k] = words(-1);
        MUST(comm_recv(rig.world[1], out[k], WORDS, COMM_I64, 0, 0, NULL, &request[1][k]));
    }
    for (int k = 0; k < MANY; k++)
        MUST(comm_send(rig.world[0], in, WORDS, COMM_I64, 1, 0, &request[0][k]));
    oldest_is_first(rig.world[1], request[1], out, -1);
    rig_wait_all(request[0], MANY);
    rig_wait_all(request[1], MANY);
    rig_close(&rig);
    for (int k = 0; k < MANY; k++)
        free(out[k]);
    free(in);
}

/* A small operation behind a large one in its queue arrives before the large one of another queue that was issued after
 * both. */
RIG_TEST(contract_1_10_younger_ones_fill_the_gaps)
{
    struct rig rig;
    struct comm_request request[2][2];
    int64_t *in = words(5), *out = words(-1), small[2] = {7, -1};
    rig_open(&rig, 2, NULL);
    MUST(comm_broadcast(rig.world[0], in, WORDS, COMM_I64, 0, &request[0][0])); /* its reader is late, which makes a gap */
    MUST(comm_send(rig.world[0], &small[0], 1, COMM_I64, 1, 3, &request[0][1]));
    MUST(comm_recv(rig.world[1], &small[1], 1, COMM_I64, 0, 3, NULL, &request[1][1]));
    rig_wait_all((struct comm_request[]){request[0][1], request[1][1]}, 2);
    EQUAL(small[1], 7);
    IS(comm_test(request[0][0]), COMM_PENDING);
    MUST(comm_broadcast(rig.world[1], out, WORDS, COMM_I64, 0, &request[1][0]));
    rig_wait_all((struct comm_request[]){request[0][0], request[1][0]}, 2);
    EQUAL(landed(out, -1), WORDS / STRIDE);
    rig_close(&rig);
    free(in);
    free(out);
}

/* A message without bytes conflicts with nothing, wherever its buffer is: it tells the peer that it may make the call
 * it waits for. */
RIG_TEST(contract_1_4_no_bytes_conflict_with_nothing)
{
    struct rig rig;
    struct comm_request reduce[2], word[2];
    int32_t in[2][8] = {{1}, {2}}, out[2][8] = {{0}};
    rig_open(&rig, 2, NULL);
    MUST(comm_allreduce(rig.world[0], in[0], out[0], 8, COMM_I32, COMM_SUM, &reduce[0]));
    MUST(comm_send(rig.world[0], &out[0][4], 0, COMM_I32, 1, 0, &word[0]));
    MUST(comm_recv(rig.world[1], &out[1][4], 0, COMM_I32, 0, 0, NULL, &word[1]));
    rig_wait_all(word, 2);
    MUST(comm_allreduce(rig.world[1], in[1], out[1], 8, COMM_I32, COMM_SUM, &reduce[1]));
    rig_wait_all(reduce, 2);
    EQUAL(out[0][0], 3);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_1_10_the_oldest_collective_first),
        cmocka_unit_test(contract_1_10_the_oldest_message_first),
        cmocka_unit_test(contract_1_10_younger_ones_fill_the_gaps),
        cmocka_unit_test(contract_1_4_no_bytes_conflict_with_nothing),
    };
    return cmocka_run_group_tests_name("contract_1_bytes", tests, NULL, NULL);
}
