/* Rule 1.4: operations that use the same memory are in the order of their calls, whichever of the two lines each of them is in. */
#define _GNU_SOURCE
#include "contract/cases.h"

#include "conform/rig.h"

#include <string.h>

/* Each sum reads what the one before it wrote, without a wait in between. */
RIG_CASE(contract_1_4_conflicting_work_is_ordered)
{
    enum { LENGTH = 50, N = 600 };
    struct rig rig;
    static int64_t buffer[2][2][N];
    struct comm_request last[2];
    rig_open(&rig, 2, NULL);
    for (int32_t r = 0; r < 2; r++) {
        for (size_t i = 0; i < N; i++)
            buffer[r][0][i] = (int64_t)i + r;
        for (int k = 0; k < LENGTH; k++)
            MUST(comm_allreduce(rig.world[r], buffer[r][k % 2], buffer[r][1 - k % 2], N, COMM_I64, COMM_SUM, &last[r]));
    }
    rig_wait_all(last, 2);
    for (size_t i = 0; i < N; i++) {
        EQUAL(buffer[0][LENGTH % 2][i], (2 * (uint64_t)i + 1) << (LENGTH - 1)); /* every sum after the first doubles it */
        EQUAL(buffer[1][LENGTH % 2][i], (2 * (uint64_t)i + 1) << (LENGTH - 1));
    }
    rig_close(&rig);
}

/* A collective that reads what a pending receive will write waits for it; a send of a result waits for the result. */
RIG_CASE(contract_1_4_work_and_messages_conflict)
{
    struct rig rig;
    struct comm_request request[6];
    int32_t slot[2] = {-1, 10}, sum[2] = {0, 0}, word = 32, back = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], &slot[0], 1, COMM_I32, 1, 1, NULL, &request[0]));
    MUST(comm_allreduce(rig.world[0], &slot[0], &sum[0], 1, COMM_I32, COMM_SUM, &request[1]));
    MUST(comm_send(rig.world[0], &sum[0], 1, COMM_I32, 1, 2, &request[2]));
    MUST(comm_allreduce(rig.world[1], &slot[1], &sum[1], 1, COMM_I32, COMM_SUM, &request[3]));
    MUST(comm_recv(rig.world[1], &back, 1, COMM_I32, 0, 2, NULL, &request[4]));
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    for (int i = 0; i < 5; i++)
        IS(comm_test(request[i]), COMM_PENDING);
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 1, &request[5]));
    rig_wait_all(request, 6);
    EQUAL(sum[0], 42);
    EQUAL(sum[1], 42);
    EQUAL(back, 42);
    rig_close(&rig);
}

/* A receive into memory that an earlier send still reads waits for the send. */
RIG_CASE(contract_1_4_a_receive_waits_for_the_send_before_it)
{
    enum { LONG = 100000 };
    static unsigned char shared[LONG], got[LONG], small[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    struct rig rig;
    struct comm_request request[4];
    rig_open(&rig, 2, NULL);
    memset(shared, 1, LONG);
    MUST(comm_send(rig.world[1], shared, LONG, COMM_BYTE, 0, 1, &request[0]));
    MUST(comm_recv(rig.world[1], shared, 8, COMM_BYTE, 0, 2, NULL, &request[1]));
    MUST(comm_send(rig.world[0], small, 8, COMM_BYTE, 1, 2, &request[2]));
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    MUST(comm_recv(rig.world[0], got, LONG, COMM_BYTE, 1, 1, NULL, &request[3]));
    rig_wait_all(request, 4);
    EQUAL(got[0], 1);
    EQUAL(shared[0], 9);
    rig_close(&rig);
}

/* A relay: it sends on what it received, without a wait in between. */
RIG_CASE(contract_1_4_a_send_waits_for_the_receive_before_it)
{
    struct rig rig;
    struct comm_request request[4];
    int32_t word = 5, relay = -1, got = 0;
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], &relay, 1, COMM_I32, 1, 1, NULL, &request[0]));
    MUST(comm_send(rig.world[0], &relay, 1, COMM_I32, 1, 2, &request[1]));
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 1, &request[2]));
    MUST(comm_recv(rig.world[1], &got, 1, COMM_I32, 0, 2, NULL, &request[3]));
    rig_wait_all(request, 4);
    EQUAL(got, 5);
    rig_close(&rig);
}
