/* A world over the mock NCCL, all of whose ranks are in this process, each with a device of its own. */
#include "real.h"

void real_open(struct real *set, int ranks, const struct mock_options *options)
{
    mock_reset(options);
    mock_run(true);
    set->ranks = ranks;
    rig_open(
        &set->rig, ranks,
        COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER, .open_timeout_ns = 5 * RIG_S, .operation_timeout_ns = 10 * RIG_S));
    for (int r = 0; r < ranks; r++) {
        struct real_side *s = &set->side[r];
        bench_open(&s->bench, r);
        s->stream = bench_stream(&s->bench);
        s->in = bench_memory(&s->bench, WORDS);
        s->out = bench_memory(&s->bench, WORDS);
    }
}

void real_free(struct real *set)
{
    for (int r = 0; r < set->ranks; r++) {
        struct real_side *s = &set->side[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
    }
    if (mock_misused())
        rig_die(__FILE__, __LINE__, "%s", mock_misused());
    mock_run(false);
    if (mock_live())
        mock_list_live();
    EQUAL(mock_live(), 0);
}

void real_close(struct real *set)
{
    rig_close(&set->rig);
    real_free(set);
}

void real_sums(struct comm_communicator *const *c, struct real *set)
{
    static const size_t words[] = {1, 8, WORDS};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct comm_request q[RIG_RANKS_MAX];
        for (int r = 0; r < set->ranks; r++) {
            struct real_side *s = &set->side[r];
            bench_fill(&s->bench, s->stream, s->in, (uint32_t)r + 1, WORDS);
            MUST(comm_queue_wait_stream(c[r], s->stream));
            MUST(comm_allreduce(c[r], s->in, s->out, words[i], COMM_U32, COMM_SUM, &q[r]));
        }
        rig_wait_all(q, (size_t)set->ranks);
        for (int r = 0; r < set->ranks; r++) {
            uint32_t got[WORDS];
            bench_read(&set->side[r].bench, set->side[r].stream, got, set->side[r].out, words[i]);
            for (size_t k = 0; k < words[i]; k++)
                EQUAL(got[k], set->ranks * (set->ranks + 1) / 2);
        }
    }
}
