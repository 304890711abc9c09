#define _GNU_SOURCE
#include "oneshot.h"

#include "../conform/oracle.h"
#include "clean.h"

#include <commstream/cuda.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct side sides[RANKS_MOST];
struct rig device, host;
int32_t ranks;
size_t room = ROOM;

void open_sides(int32_t n, const int *devices)
{
    ranks = n;
    for (int32_t r = 0; r < n; r++) {
        struct side *s = &sides[r];
        bench_open(&s->bench, devices ? devices[r] : r);
        s->stream = bench_stream(&s->bench);
        s->in = (char *)bench_memory(&s->bench, room / 4);
        s->out = (char *)bench_memory(&s->bench, room / 4);
        s->host_in = calloc(1, room);
        s->host_out = calloc(1, room);
        s->got = calloc(1, room);
    }
}

void close_sides(void)
{
    for (int32_t r = 0; r < ranks; r++) {
        struct side *s = &sides[r];
        bench_free(&s->bench, (uint32_t *)(void *)s->in);
        bench_free(&s->bench, (uint32_t *)(void *)s->out);
        bench_drop_stream(&s->bench, s->stream);
        bench_close(&s->bench);
        free(s->host_in);
        free(s->host_out);
        free(s->got);
    }
    clean_end();
}

static struct comm_config config_of(void)
{
    return (struct comm_config){.size = sizeof(struct comm_config), .backend = "cuda", .operation_timeout_ns = 20 * RIG_S};
}

void open_all(int32_t n, const struct mock_options *options)
{
    struct comm_config config = config_of();

    mock_reset(options);
    mock_run(true);
    rig_open(&device, n, &config);
    rig_open(&host, n, COMM_CONFIG(.engine_of = device.world[0], .backend = "local", .operation_timeout_ns = 20 * RIG_S));
    open_sides(n, NULL);
}

void open_sharing(int32_t n, int count, const struct mock_options *options)
{
    static const char *const all[] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"};
    struct comm_config config = config_of();
    const char *names[RANKS_MOST];
    int devices[RANKS_MOST];

    for (int32_t r = 0; r < n; r++) {
        devices[r] = r % count;
        names[r] = all[devices[r]];
    }
    mock_reset(options);
    mock_run(true);
    MUST(comm_open_local(&config, n, names, device.world));
    device.ranks = n;
    rig_open(&host, n, COMM_CONFIG(.engine_of = device.world[0], .backend = "local"));
    open_sides(n, devices);
}

void close_all(void)
{
    rig_close(&host);
    rig_close(&device);
    close_sides();
}

/* ------------------------------------------------------------------------------------------------------------ one sum */
void put_inputs(const struct sum *s, uint64_t seed)
{
    size_t bytes = s->n * fold_bytes((uint32_t)s->type);

    for (int32_t r = 0; r < ranks; r++) {
        struct side *side = &sides[r];
        oracle_fill(side->host_in, s->n, s->type, s->op, seed, r);
        bench_copy(&side->bench, side->stream, side->in + s->shift, side->host_in, bytes);
    }
}

void issue(const struct sum *s, struct comm_communicator *const *c, struct comm_request *q)
{
    for (int32_t r = 0; r < ranks; r++) {
        struct side *side = &sides[r];
        char *out = (s->in_place ? side->in : side->out) + s->shift;
        MUST(comm_queue_wait_stream(c[r], side->stream));
        MUST(comm_allreduce(c[r], s->in_place ? COMM_IN_PLACE : side->in + s->shift, out, s->n, s->type, s->op, &q[r]));
    }
}

struct comm_request_info describe(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    return info;
}

void check_way(struct comm_request q, bool is_staged)
{
    struct comm_request_info info = describe(q);

    EQUAL(info.flags & COMM_INFO_STAGED, is_staged ? COMM_INFO_STAGED : 0);
    EQUAL(strcmp(info.algorithm, "cuda") == 0, !is_staged);
}

void compare(const struct sum *s)
{
    size_t bytes = s->n * fold_bytes((uint32_t)s->type);

    for (int32_t r = 0; r < ranks; r++) {
        struct side *side = &sides[r];
        const char *from = (s->in_place ? side->in : side->out) + s->shift;
        for (size_t piece = 0; piece < bytes; piece += BENCH_READ_BYTES) {
            size_t some = bytes - piece < BENCH_READ_BYTES ? bytes - piece : BENCH_READ_BYTES;
            bench_read(&side->bench, side->stream, (uint32_t *)(void *)(side->got + piece), (const uint32_t *)(const void *)(from + piece),
                       (some + 3) / 4);
        }
        size_t at = oracle_differ(side->got, side->host_out, s->n, s->type);
        if (at < s->n)
            rig_die(__FILE__, __LINE__, "%s of %s, %d ranks, n=%zu: rank %d, element %zu differs from the host's", oracle_op_name(s->op),
                    oracle_type_name(s->type), ranks, s->n, r, at);
    }
}

void sum_and_compare(const struct sum *s, uint64_t seed, bool is_staged)
{
    struct comm_request q[RANKS_MOST], h[RANKS_MOST];

    rig_note("%s of %s, %d ranks, n=%zu, shift %zu", oracle_op_name(s->op), oracle_type_name(s->type), ranks, s->n, s->shift);
    put_inputs(s, seed);
    issue(s, device.world, q);
    for (int32_t r = 0; r < ranks; r++)
        MUST(comm_allreduce(host.world[r], sides[r].host_in, sides[r].host_out, s->n, s->type, s->op, &h[r]));
    rig_wait_all(h, (size_t)ranks);
    rig_wait_all(q, (size_t)ranks);
    for (int32_t r = 0; r < ranks; r++)
        check_way(q[r], is_staged);
    compare(s);
}

void count_one(void *count)
{
    atomic_fetch_add((_Atomic int *)count, 1);
}

void sum_on_dups(const struct sum *s, int turns)
{
    struct comm_communicator *made[RANKS];
    struct comm_request q[RANKS];
    _Atomic int pinned = 0;

    for (int turn = 0; turn < turns; turn++) {
        rig_dup(device.world, ranks, made);
        put_inputs(s, (uint64_t)turn);
        issue(s, made, q);
        rig_wait_all(q, (size_t)ranks);
        check_way(q[0], false);
        for (int32_t r = 0; r < ranks; r++)
            MUST(comm_close(made[r], COMM_DEFAULT_TIMEOUT));
        if (turn == 1)
            mock_at("cuMemHostRegister", count_one, &pinned);
    }
    mock_at(NULL, NULL, NULL);
    EQUAL(pinned, 0);
}

/* ------------------------------------------------------------------------------------------------------------ failures */
void open_failing(int32_t n, int64_t timeout_ns)
{
    mock_reset(&(struct mock_options){.seed = 3, .queues = 32});
    mock_run(true);
    rig_open(&device, n, COMM_CONFIG(.backend = "cuda", .operation_timeout_ns = timeout_ns));
    open_sides(n, NULL);
}

/* Closes within its bound, whatever the result of the close is. */
void close_failed(void)
{
    for (int32_t r = 0; r < ranks; r++) {
        int64_t start = rig_now();
        (void)!comm_close(device.world[r], 2 * RIG_S);
        CHECK(rig_now() - start < 4 * RIG_S);
    }
    close_sides();
}

uint32_t first_word(int32_t r, const char *at)
{
    uint32_t word;

    bench_read(&sides[r].bench, sides[r].stream, &word, (const uint32_t *)(const void *)at, 1);
    return word;
}

void call_on(int32_t r, size_t n, struct comm_request *q)
{
    MUST(comm_allreduce(device.world[r], sides[r].in, sides[r].out, n, COMM_F32, COMM_SUM, q));
}

void is_mismatch(const struct comm_request *q, const char *text)
{
    struct comm_error error = {.size = sizeof error};

    for (int32_t r = 0; r < ranks; r++)
        IS(comm_wait(q[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    MUST(comm_error_detail(device.world[0], &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", error.text, text);
}

void fill(int32_t r, uint32_t value, size_t words)
{
    bench_fill(&sides[r].bench, sides[r].stream, (uint32_t *)(void *)sides[r].in, value, words);
    (void)first_word(r, sides[r].in);
}

bool sums_with_a_fault(uint64_t n, size_t words)
{
    struct comm_request q[RANKS];
    enum comm_result r[RANKS];

    rig_note("call %llu fails, in sums of %zu words", (unsigned long long)n, words);
    open_failing(2, 20 * RIG_S);
    for (int32_t i = 0; i < ranks; i++)
        fill(i, 5, words);
    mock_fail(n, false);
    for (int turn = 0; turn < 2; turn++) {
        for (int32_t i = 0; i < ranks; i++)
            r[i] = comm_allreduce(device.world[i], sides[i].in, sides[i].out, words, COMM_U32, COMM_SUM, &q[i]);
        for (int32_t i = 0; i < ranks; i++)
            r[i] = r[i] == COMM_OK ? comm_wait(q[i], RIG_PATIENCE) : r[i];
        if (r[0] != COMM_OK || r[1] != COMM_OK)
            break;
    }
    bool failed = mock_failed() != NULL;
    mock_fail(0, false);
    for (int32_t i = 0; i < ranks; i++) {
        CHECK(r[i] != COMM_ERR_TIMEOUT && r[i] != COMM_PENDING);
        if (r[i] == COMM_OK)
            EQUAL(first_word(i, sides[i].out), 10);
        if (r[i] == COMM_OK)
            EQUAL(first_word(i, sides[i].out + 4 * (words - 1)), 10);
    }
    close_failed();
    return failed;
}
