/* Staging that fails: a fault at every call of the driver, and a device that stops while the communicator fails. */
#include "staged.h"

#include "mock_everywhere.h"

/* Every driver call fails once. Either all ranks get an error, or all results are right. */
static bool with_fault(uint64_t n, const float *want)
{
    struct comm_request q[RANKS];
    enum comm_result r[RANKS];
    uint64_t before;
    bool well = true;

    rig_open(&staged_rig, RANKS, NULL);
    before = mock_calls();
    mock_fail(n);
    for (int i = 0; i < RANKS; i++)
        r[i] = comm_allreduce(staged_rig.world[i], staged_in[i], staged_out[i], N, COMM_F32, COMM_SUM, &q[i]);
    for (int i = 0; i < RANKS; i++) {
        r[i] = r[i] == COMM_OK ? comm_wait(q[i], RIG_PATIENCE) : r[i];
        CHECK(r[i] != COMM_PENDING);
        well &= r[i] == COMM_OK;
        if (r[i] == COMM_OK)
            staged_same(staged_out[i], want, N * sizeof(float));
    }
    bool over = mock_calls() - before < n;
    mock_fail(0);
    for (int i = 0; i < RANKS; i++)
        (void)!comm_close(staged_rig.world[i], RIG_PATIENCE);
    CHECK(!over || well);
    return over;
}

static void faults(uint64_t apart)
{
    uint64_t n = 1;

    staged_take(N);
    staged_fill(N);
    rig_open(&staged_rig, RANKS, NULL);
    float *want = staged_host_sum(N);
    rig_close(&staged_rig);
    while (!with_fault(n, want))
        rig_note("a fault at call %llu", (unsigned long long)(n += 1 + n / apart));
    CHECK(n > 15);
    free(want);
    staged_give();
}

RIG_CASE(a_fault_at_every_call)
{
    faults(UINT64_MAX);
}

/* Most calls of a late device are event queries. So the distance between the calls that fail grows. */
RIG_CASE(faults_of_a_device_that_is_late)
{
    mock_late(2);
    faults(4);
}

/* The device stops, so no copy ends. The requests end nevertheless, and report that the buffers are held. */
static void stands(enum comm_result want, const struct comm_config *config)
{
    struct comm_request q[RANKS], message;
    struct comm_error error;

    staged_take(N);
    staged_fill(N);
    rig_open(&staged_rig, RANKS, config);
    mock_stand(true);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], N, COMM_F32, COMM_SUM, &q[r]));
    MUST(comm_send(staged_rig.world[0], staged_in[0], N, COMM_F32, 1, 1, &message));
    IS(comm_wait(q[0], 20 * RIG_MS), COMM_PENDING);
    if (want == COMM_ERR_ABORTED)
        MUST(comm_abort(staged_rig.world[1], 3));
    for (int r = 0; r < RANKS; r++) {
        rig_fails_within(staged_rig.world[r], want, 10 * RIG_S, &error);
        IS(comm_wait(q[r], RIG_PATIENCE), want);
        EQUAL(staged_flags(q[r]), COMM_INFO_STAGED | COMM_INFO_BUFFERS_HELD);
    }
    IS(comm_wait(message, RIG_PATIENCE), want);
    CHECK(staged_flags(message) & COMM_INFO_BUFFERS_HELD);
    IS(comm_close(staged_rig.world[2], 50 * RIG_MS), COMM_ERR_TIMEOUT);
    mock_stand(false);
    for (int r = 0; r < RANKS - 1; r++)
        IS(comm_close(staged_rig.world[r], RIG_PATIENCE), COMM_OK);
    staged_give();
}

RIG_CASE(an_abort_while_the_device_stands)
{
    stands(COMM_ERR_ABORTED, NULL);
}

RIG_CASE(a_deadline_while_the_device_stands)
{
    stands(COMM_ERR_TIMEOUT, COMM_CONFIG(.operation_timeout_ns = 300 * RIG_MS, .progress = COMM_PROGRESS_CALLER));
}
