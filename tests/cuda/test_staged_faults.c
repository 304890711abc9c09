/* Staging that fails: a fault at every call of the driver, and a device that stops while the communicator fails. */
#include "staged.h"

#include "mock_everywhere.h"

#include <stdlib.h>
#include <string.h>

/* What fails: a sum, or in parts an allgather, or an allgather_v or reduce_scatter_v of uneven blocks. */
enum what { SUM, GATHER, GATHER_V, SCATTER_V };
struct subject {
    size_t elements; /* of the input; of the allgather's output RANKS times as many */
    enum what what;
};
static const struct subject a_sum = {N, SUM};

/* Rank 0 has the most, rank 1 nothing. */
static size_t count_of(const struct subject *s, int r)
{
    return r == 0 ? s->elements - s->elements / 5 : r == 2 ? s->elements / 5 : 0;
}

static enum comm_result issue(const struct subject *s, int r, struct comm_request *q)
{
    const size_t counts[RANKS] = {count_of(s, 0), count_of(s, 1), count_of(s, 2)}, displs[RANKS] = {counts[2], 0, 0};
    struct comm_communicator *c = staged_rig.world[r];

    switch (s->what) {
    case SUM:
        return comm_allreduce(c, staged_in[r], staged_out[r], s->elements, COMM_F32, COMM_SUM, q);
    case GATHER:
        return comm_allgather(c, staged_in[r], staged_out[r], s->elements, COMM_F32, q);
    case GATHER_V:
        return comm_allgather_v(c, staged_in[r], staged_out[r], counts, displs, COMM_F32, q);
    default:
        return comm_reduce_scatter_v(c, staged_in[r], staged_out[r], counts, COMM_F32, COMM_SUM, q);
    }
}

/* Elements of a rank's output. */
static size_t output(const struct subject *s, int r)
{
    return s->what == GATHER ? s->elements * RANKS : s->what == SCATTER_V ? count_of(s, r) : s->elements;
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
            staged_same(staged_out[i], want + (s->what == SCATTER_V && i ? count_of(s, 0) : 0), output(s, i) * sizeof(float));
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

/* Rank 2's block, then rank 0's. */
static float *gathered_uneven(const struct subject *s)
{
    float *all = malloc(s->elements * sizeof *all);

    CHECK(all);
    memcpy(all, mock_peek(staged_in[2]), count_of(s, 2) * sizeof *all);
    memcpy(all + count_of(s, 2), mock_peek(staged_in[0]), count_of(s, 0) * sizeof *all);
    return all;
}

static float *wanted(const struct subject *s)
{
    return s->what == GATHER ? gathered(s->elements) : s->what == GATHER_V ? gathered_uneven(s) : staged_host_sum(s->elements);
}

static void faults(uint64_t apart, const struct subject *s)
{
    uint64_t n = 1;

    staged_take(s->elements * RANKS);
    staged_fill(s->elements);
    rig_open(&staged_rig, RANKS, NULL);
    float *want = wanted(s);
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
    faults(12, &(struct subject){.elements = (3 << 20) / RANKS / sizeof(float) + 100, .what = GATHER});
}

RIG_CASE(faults_of_uneven_blocks_in_parts)
{
    faults(12, &(struct subject){.elements = (3 << 20) / sizeof(float) + 100, .what = GATHER_V});
    faults(12, &(struct subject){.elements = (3 << 20) / sizeof(float) + 100, .what = SCATTER_V});
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

    staged_take(s->elements * RANKS);
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
        bool copies = s->what != GATHER_V || count_of(s, r);
        EQUAL(staged_flags(q[r]), COMM_INFO_STAGED | (copies ? COMM_INFO_BUFFERS_HELD : 0));
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
static const struct subject a_gather_of_many_parts = {.elements = (36 << 20) / RANKS / sizeof(float), .what = GATHER};

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

/* Rank 1 gives nothing in the allgather_v, so its device copies nothing yet. */
RIG_CASE(an_abort_in_the_middle_of_uneven_blocks)
{
    stands(COMM_ERR_ABORTED, &(struct subject){.elements = (20 << 20) / sizeof(float), .what = GATHER_V}, NULL);
    stands(COMM_ERR_ABORTED, &(struct subject){.elements = (20 << 20) / sizeof(float), .what = SCATTER_V}, NULL);
}
