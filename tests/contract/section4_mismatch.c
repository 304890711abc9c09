/* Rule 4.5: a rank that makes another call than its peers, or does not make it at all, is found and named. */
#define _GNU_SOURCE
#include "contract/cases.h"

#include "conform/rig.h"

#include <string.h>

typedef enum comm_result differing_call(struct comm_communicator *c, int32_t rank, struct comm_request *request);
static int32_t mismatch_in[256], mismatch_out[RIG_RANKS_MAX][1024];

static enum comm_result other_operator(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    return comm_allreduce(c, mismatch_in, mismatch_out[rank], 4, COMM_I32, rank == 1 ? COMM_MAX : COMM_SUM, request);
}

static enum comm_result other_count(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    return comm_allreduce(c, mismatch_in, mismatch_out[rank], rank == 1 ? 5 : 4, COMM_I32, COMM_SUM, request);
}

static enum comm_result other_type(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    return comm_allreduce(c, mismatch_in, mismatch_out[rank], 4, rank == 1 ? COMM_U32 : COMM_I32, COMM_SUM, request);
}

static enum comm_result other_root(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    return comm_broadcast(c, mismatch_out[rank], 4, COMM_I32, rank == 1 ? 1 : 0, request);
}

static enum comm_result other_collective(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    if (rank == 1)
        return comm_allgather(c, mismatch_in, mismatch_out[rank], 4, COMM_I32, request);
    return comm_allreduce(c, mismatch_in, mismatch_out[rank], 4, COMM_I32, COMM_SUM, request);
}

static enum comm_result other_order(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    if (rank != 1)
        (void)!comm_allreduce(c, mismatch_in, mismatch_out[rank], 4, COMM_I32, COMM_SUM, request); /* may learn of the mismatch at once */
    (void)!comm_barrier(c, request);
    if (rank == 1)
        (void)!comm_allreduce(c, mismatch_in, mismatch_out[rank], 4, COMM_I32, COMM_SUM, request); /* may learn of the mismatch at once */
    return COMM_OK;
}

static enum comm_result other_counts(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    size_t counts[3] = {4, 4, rank == 1 ? 5 : 4};
    return comm_allgather_v(c, mismatch_in, mismatch_out[rank], counts, NULL, COMM_I32, request);
}

static enum comm_result other_large_count(struct comm_communicator *c, int32_t rank, struct comm_request *request)
{
    static char in[400000], out[3][400000];
    return comm_allreduce(c, in, out[rank], rank == 1 ? 90001 : 90000, COMM_I32, COMM_SUM, request);
}

/* Rank 1 makes a different call. Within two seconds all three ranks have the same cause, which names a pair that
 * differs, and a text. */
static void mismatch(differing_call *call)
{
    enum { RANKS = 3 };
    struct rig rig;
    struct comm_request request;
    struct comm_error error[RANKS];
    rig_open(&rig, RANKS, NULL);
    rig_proves_alive(rig.world, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        enum comm_result called = call(rig.world[r], r, &request); /* the last rank may learn of it inside its call */
        CHECK(called == COMM_OK || called == COMM_ERR_MISMATCH);
    }
    int64_t start = rig_now();
    for (int32_t r = 0; r < RANKS; r++)
        rig_fails_within(rig.world[r], COMM_ERR_MISMATCH, 2 * RIG_S, &error[r]);
    CHECK(rig_now() - start < 2 * RIG_S);
    for (int32_t r = 0; r < RANKS; r++) {
        CHECK(error[r].operation[0]);
        EQUAL(error[r].rank, error[0].rank);
        CHECK(error[r].rank >= 0 && strlen(error[r].text) > 0);
        EQUAL(error[r].sequence, error[0].sequence);
        MUST(comm_close(rig.world[r], RIG_PATIENCE));
    }
}

RIG_CASE(contract_4_5_mismatch_of_operator)
{
    mismatch(other_operator);
}
RIG_CASE(contract_4_5_mismatch_of_count)
{
    mismatch(other_count);
}
RIG_CASE(contract_4_5_mismatch_of_type)
{
    mismatch(other_type);
}
RIG_CASE(contract_4_5_mismatch_of_root)
{
    mismatch(other_root);
}
RIG_CASE(contract_4_5_mismatch_of_collective)
{
    mismatch(other_collective);
}
RIG_CASE(contract_4_5_mismatch_of_order)
{
    mismatch(other_order);
}
RIG_CASE(contract_4_5_mismatch_of_counts)
{
    mismatch(other_counts);
}
RIG_CASE(contract_4_5_mismatch_of_large_count)
{
    mismatch(other_large_count);
}

/* The text names both calls. */
RIG_CASE(contract_4_5_the_text_names_both_calls)
{
    struct rig rig;
    struct comm_error error;
    struct comm_request request;
    rig_open(&rig, 3, NULL);
    for (int32_t r = 0; r < 3; r++)
        (void)!other_collective(rig.world[r], r, &request); /* may learn of the mismatch at once */
    for (int32_t r = 0; r < 3; r++) {
        rig_fails_within(rig.world[r], COMM_ERR_MISMATCH, 2 * RIG_S, &error);
        if (!strstr(error.text, "allgather") || !strstr(error.text, "allreduce"))
            rig_die(__FILE__, __LINE__, "rank %d: the text names not both calls: %s", r, error.text);
    }
    rig_close(&rig);
}

/* A rank that closes without making a call that others make is named at once. */
RIG_CASE(contract_4_5_a_missing_call_is_known_at_the_close)
{
    struct rig rig;
    struct comm_request request[2];
    struct comm_error error;
    int32_t in = 1, out[2];
    rig_open(&rig, 3, NULL);
    rig_proves_alive(rig.world, 3);
    for (int32_t r = 0; r < 2; r++)
        MUST(comm_allreduce(rig.world[r], &in, &out[r], 1, COMM_I32, COMM_SUM, &request[r]));
    MUST(comm_close(rig.world[2], RIG_PATIENCE));
    rig.world[2] = NULL;
    int64_t start = rig_now();
    for (int32_t r = 0; r < 2; r++) {
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_CLOSED);
        rig_fails_within(rig.world[r], COMM_ERR_CLOSED, RIG_S, &error);
        EQUAL(error.rank, 2);
    }
    CHECK(rig_now() - start < 2 * RIG_S);
    rig_close(&rig);
}

RIG_CASE(contract_4_5_a_call_after_a_peer_closed)
{
    struct rig rig;
    struct comm_request request;
    struct comm_error error;
    rig_open(&rig, 2, NULL);
    rig_proves_alive(rig.world, 2);
    MUST(comm_close(rig.world[1], RIG_PATIENCE));
    rig.world[1] = NULL;
    enum comm_result result = comm_barrier(rig.world[0], &request);
    CHECK(result == COMM_OK || result == COMM_ERR_CLOSED);
    IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_CLOSED);
    rig_fails_within(rig.world[0], COMM_ERR_CLOSED, RIG_S, &error);
    EQUAL(error.rank, 1);
    rig_close(&rig);
}
