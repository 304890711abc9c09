/* Staging that fails: a fault at every call of the driver, and a device that stops while the communicator fails. */
#include "staged.h"

#include "mock_everywhere.h"

#include <stdlib.h>
#include <string.h>

/* What fails: a sum, or an allgather in parts. */
struct subject {
    size_t elements; /* of the input; of the allgather's output RANKS times as many */
    bool is_gather;
};
static const struct subject a_sum = {N, false};

static enum comm_result issue(const struct subject *s, int r, struct comm_request *q)
{
    return s->is_gather ? comm_allgather(staged_rig.world[r], staged_in[r], staged_out[r], s->elements, COMM_F32, q)
                        : comm_allreduce(staged_rig.world[r], staged_in[r], staged_out[r], s->elements, COMM_F32, COMM_SUM, q);
}

static size_t output(const struct subject *s)
{
    return s->elements * (s->is_gather ? RANKS : 1);
}

/* Every driver call fails once. Either all ranks get an error, or all results are right. */
static bool with_fault(uint64_t n, const struct subject *s, const float *want)
{
    struct comm_request q[RANKS];
    enum comm_result r[RANKS];
    uint64_t before;
    bool well = true;

    rig_open(&staged_rig, RANKS, NULL);
    before = mock_calls();
    mock_fail(n);
    for (int i = 0; i < RANKS; i++)
        r[i] = issue(s, i, &q[i]);
    for (int i = 0; i < RANKS; i++) {
        r[i] = r[i] == COMM_OK ? comm_wait(q[i], RIG_PATIENCE) : r[i];
        CHECK(r[i] != COMM_PENDING);
        well &= r[i] == COMM_OK;
        if (r[i] == COMM_OK)
            staged_same(staged_out[i], want, output(s) * sizeof(float));
    }
    bool over = mock_calls() - before < n;
    mock_fail(0);
    for (int i = 0; i < RANKS; i++)
        (void)!comm_close(staged_rig.world[i], RIG_PATIENCE);
    CHECK(!over || well);
    return over;
}

/* The inputs one behind the other. */
static float *gathered(size_t n)
{
    float *all = malloc(RANKS * n * sizeof *all);

    CHECK(all);
    for (size_t r = 0; r < RANKS; r++)
        memcpy(all + r * n, mock_peek(staged_in[r]), n * sizeof *all);
    return all;
}

static void faults(uint64_t apart, const struct subject *s)
{
    uint64_t n = 1;

    staged_take(output(s));
    staged_fill(s->elements);
    rig_open(&staged_rig, RANKS, NULL);
    float *want = s->is_gather ? gathered(s->elements) : staged_host_sum(s->elements);
    rig_close(&staged_rig);
    while (!with_fault(n, s, want))
        rig_note("a fault at call %llu", (unsigned long long)(n += 1 + n / apart));
    CHECK(n > 15);
    free(want);
    staged_give();
}

RIG_CASE(a_fault_at_every_call)
{
    faults(UINT64_MAX, &a_sum);
}

/* Most calls of a late device are event queries. So the distance between the calls that fail grows. */
RIG_CASE(faults_of_a_device_that_is_late)
{
    mock_late(2);
    faults(4, &a_sum);
}

/* Three parts: of many calls of the driver, in all parts, one fails. */
RIG_CASE(faults_of_an_allgather_in_parts)
{
    faults(12, &(struct subject){.elements = (3 << 20) / RANKS / sizeof(float) + 100, .is_gather = true});
}

/* A call that fails alone, for want of memory, is made again. Then both requests end, with OK only if the bytes are right. */
static bool message_with_fault(uint64_t n)
{
    struct comm_request send, recv;
    uint64_t before;

    rig_open(&staged_rig, RANKS, NULL);
    memset(mock_peek(staged_out[1]), 0, N * sizeof(float));
    before = mock_calls();
    mock_fail(n);
    enum comm_result r = comm_recv(staged_rig.world[1], staged_out[1], N, COMM_F32, 0, 1, NULL, &recv), s;
    if (r != COMM_OK)
        r = comm_recv(staged_rig.world[1], staged_out[1], N, COMM_F32, 0, 1, NULL, &recv);
    s = comm_send(staged_rig.world[0], staged_in[0], N, COMM_F32, 1, 1, &send);
    if (s != COMM_OK)
        s = comm_send(staged_rig.world[0], staged_in[0], N, COMM_F32, 1, 1, &send);
    r = r == COMM_OK ? comm_wait(recv, RIG_PATIENCE) : r;
    s = s == COMM_OK ? comm_wait(send, RIG_PATIENCE) : s;
    CHECK(r != COMM_PENDING && s != COMM_PENDING);
    if (r == COMM_OK)
        staged_same(staged_out[1], mock_peek(staged_in[0]), N * sizeof(float));
    bool over = mock_calls() - before < n;
    mock_fail(0);
    for (int i = 0; i < RANKS; i++)
        (void)!comm_close(staged_rig.world[i], RIG_PATIENCE);
    CHECK(!over || (r == COMM_OK && s == COMM_OK));
    return over;
}

RIG_CASE(a_fault_at_every_call_of_a_message)
{
    uint64_t n = 1;

    staged_take(N);
    staged_fill(N);
    while (!message_with_fault(n))
        rig_note("a fault at call %llu", (unsigned long long)++n);
    CHECK(n > 10);
    staged_give();
}

/* The device stops, so no copy ends. The requests end nevertheless, and report that the buffers are held. */
static void stands(enum comm_result want, const struct subject *s, const struct comm_config *config)
{
    struct comm_request q[RANKS], message;
    struct comm_error error;

    staged_take(output(s));
    staged_fill(N);
    rig_open(&staged_rig, RANKS, config);
    mock_stand(true);
    for (int r = 0; r < RANKS; r++)
        MUST(issue(s, r, &q[r]));
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
    stands(COMM_ERR_ABORTED, &a_sum, NULL);
}

RIG_CASE(a_deadline_while_the_device_stands)
{
    stands(COMM_ERR_TIMEOUT, &a_sum, COMM_CONFIG(.operation_timeout_ns = 300 * RIG_MS, .progress = COMM_PROGRESS_CALLER));
}

/* More parts than run at once. So the last one, whose request the program has, has not begun, and others hold the buffers. */
static const struct subject a_gather_of_many_parts = {.elements = (36 << 20) / RANKS / sizeof(float), .is_gather = true};

RIG_CASE(an_abort_in_the_middle_of_a_sum)
{
    stands(COMM_ERR_ABORTED, &(struct subject){.elements = (20 << 20) / sizeof(float)}, NULL);
}

RIG_CASE(an_abort_in_the_middle_of_an_allgather)
{
    stands(COMM_ERR_ABORTED, &a_gather_of_many_parts, NULL);
}

RIG_CASE(a_deadline_in_the_middle_of_an_allgather)
{
    stands(COMM_ERR_TIMEOUT, &a_gather_of_many_parts, COMM_CONFIG(.operation_timeout_ns = 300 * RIG_MS, .progress = COMM_PROGRESS_CALLER));
}
