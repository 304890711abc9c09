#include "sides.h"

#include "clean.h"

#include <commstream/cuda.h>

#include <string.h>

struct side sides[SIDES];
struct rig sides_rig;

static void open_side(int rank, size_t words, struct comm_request *dup)
{
    struct side *s = &sides[rank];

    bench_open(&s->bench, rank);
    s->stream = bench_stream(&s->bench);
    s->in = bench_memory(&s->bench, words);
    s->out = bench_memory(&s->bench, words);
    struct comm_options with = {.size = sizeof with, .stream = s->stream};
    MUST(comm_dup(sides_rig.world[rank], &with, &s->comm, dup));
}

static void check_side(int rank)
{
    struct comm_info info = {.size = sizeof info}, plain = {.size = sizeof plain};
    struct CUstream_st *stream = NULL;

    MUST(comm_describe(sides[rank].comm, &info));
    MUST(comm_describe(sides_rig.world[rank], &plain));
    CHECK(info.graph_capture && !plain.graph_capture);
    MUST(comm_stream_of(sides[rank].comm, &stream));
    CHECK(stream == sides[rank].stream);
}

void sides_open(const struct mock_options *options, const struct comm_config *config, size_t words)
{
    struct comm_request dup[SIDES];

    mock_reset(options);
    mock_run(true);
    rig_open(&sides_rig, SIDES, config);
    for (int r = 0; r < SIDES; r++)
        open_side(r, words, &dup[r]);
    rig_wait_all(dup, SIDES);
    for (int r = 0; r < SIDES; r++)
        check_side(r);
}

void sides_drop_graphs(void)
{
    for (int r = 0; r < SIDES; r++)
        bench_drop_graph(&sides[r].bench, &sides[r].graph);
}

void sides_close(bool failed)
{
    sides_drop_graphs();
    for (int r = 0; r < SIDES; r++) {
        enum comm_result closed = comm_close(sides[r].comm, 5 * RIG_S);
        CHECK(closed == COMM_OK || failed);
    }
    rig_close(&sides_rig);
    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        bench_free(&s->bench, s->in);
        bench_free(&s->bench, s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
    }
    clean_end();
}

/* ------------------------------------------------------------------------------------------------------------ memory */
void sides_fill(uint32_t value, size_t words)
{
    for (int r = 0; r < SIDES; r++)
        bench_fill(&sides[r].bench, sides[r].stream, sides[r].in, value, words);
}

uint32_t sides_word(int rank, const uint32_t *of)
{
    uint32_t word;

    bench_read(&sides[rank].bench, sides[rank].stream, &word, of, 1);
    return word;
}

/* ------------------------------------------------------------------------------------------------------------ calls */
void sides_sum(size_t words)
{
    struct comm_request requests[SIDES];

    for (int r = 0; r < SIDES; r++)
        MUST(comm_allreduce(sides[r].comm, COMM_IN_PLACE, sides[r].in, words, COMM_U32, COMM_SUM, &requests[r]));
    rig_wait_all(requests, SIDES);
}

void sides_capture_sum(size_t words)
{
    for (int r = 0; r < SIDES; r++) {
        struct side *s = &sides[r];
        struct comm_request request;
        bench_capture(&s->bench, s->stream);
        MUST(comm_allreduce(s->comm, s->in, s->out, words, COMM_U32, COMM_SUM, &request));
        MUST(comm_wait(request, RIG_S)); /* it is in the graph; its peers have not called yet */
        bench_copy(&s->bench, s->stream, s->in, s->out, words * sizeof *s->in);
        bench_end_capture(&s->bench, s->stream, &s->graph);
    }
}

void sides_launch(void)
{
    for (int r = 0; r < SIDES; r++)
        bench_launch(&sides[r].bench, &sides[r].graph, sides[r].stream);
}

void sides_refused(struct side *s, enum comm_result result, enum comm_result expected, const char *text)
{
    struct comm_error error = {.size = sizeof error};

    IS(result, expected);
    MUST(comm_error_detail(s->comm, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", error.text, text);
}
