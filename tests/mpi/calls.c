/*
 * The calls of the library that no other test over MPI makes: groups, buckets, a broadcast of a length, communicators made by subset,
 * place and mesh, accumulates, swaps and signals of windows, symmetric memory, and at the end agree, revoke, shrink and abort. The results
 * follow from the ranks. From two ranks on.
 */
#define _GNU_SOURCE
#include "mpi/rank.h"
#include "now.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 70000, MEMBERS = 6, CODE = 77 };

static int32_t sum_of_ranks(int32_t ranks)
{
    return ranks * (ranks - 1) / 2;
}

/* The sum of the ranks of the world that are in c. */
static int32_t summed(struct comm_communicator *c)
{
    int32_t sum = -1, mine = me.rank;
    struct comm_request q;
    MUST(comm_allreduce(c, &mine, &sum, 1, COMM_I32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    return sum;
}

static void barrier(struct comm_communicator *c)
{
    struct comm_request q;
    MUST(comm_barrier(c, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
}

/* Short sums, which become one exchange, a long sum, a broadcast, and a message to the next rank. */
static void a_group(struct comm_communicator *world)
{
    static float in[LONG], out[LONG];
    struct comm_communicator *group;
    struct comm_request q;
    int64_t word[MEMBERS], sum[MEMBERS];
    int32_t told = me.rank == 0 ? 55 : 0, sent = 200 + me.rank, got = -1, before = (me.rank + me.ranks - 1) % me.ranks;
    for (int i = 0; i < LONG; i++)
        in[i] = (float)(me.rank + i % 5);
    MUST(comm_group_begin(world, &group));
    for (int i = 0; i < MEMBERS; i++) {
        word[i] = me.rank + 10 * i;
        MUST(comm_allreduce(group, &word[i], &sum[i], 1, COMM_I64, COMM_SUM, NULL));
    }
    MUST(comm_allreduce(group, in, out, LONG, COMM_F32, COMM_SUM, NULL));
    MUST(comm_broadcast(group, &told, 1, COMM_I32, 0, NULL));
    MUST(comm_send(group, &sent, 1, COMM_I32, (me.rank + 1) % me.ranks, 3, NULL));
    MUST(comm_recv(group, &got, 1, COMM_I32, before, 3, NULL, NULL));
    MUST(comm_group_end(group, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    for (int i = 0; i < MEMBERS; i++)
        EQUAL(sum[i], sum_of_ranks(me.ranks) + 10 * i * me.ranks);
    for (int i = 0; i < LONG; i++)
        CHECK(out[i] == (float)(sum_of_ranks(me.ranks) + me.ranks * (i % 5)));
    EQUAL(told, 55);
    EQUAL(got, 200 + before);
}

/* Ranks report their gradients in different orders, and rank 0 leaves one out in the second step. */
static void steps_of_buckets(struct comm_communicator *world)
{
    static float first[100], second[LONG], third[7];
    struct comm_gradient list[] = {{first, 100, COMM_F32, 0}, {second, LONG, COMM_F32, 0}, {third, 7, COMM_F32, 0}};
    struct comm_bucket_options options = {.size = sizeof options, .bytes = 1 << 16, .op = COMM_SUM};
    struct comm_communicator *alone;
    struct comm_buckets *b;
    MUST(NOW(comm_dup, world, NULL, &alone));
    MUST(comm_buckets_create(alone, list, 3, &options, &b));
    for (int step = 0; step < 2; step++) {
        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < list[i].count; k++)
                ((float *)list[i].data)[k] = (float)(me.rank + (int)(k % 3));
        for (size_t i = 0; i < 3; i++)
            if (step == 0 || me.rank != 0 || i != 1)
                MUST(comm_buckets_ready(b, me.rank % 2 ? i : 2 - i));
        MUST(comm_buckets_wait(b, RIG_PATIENCE));
        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < list[i].count; k++) {
                int32_t in_it = me.ranks - (step == 1 && i == 1);
                CHECK(((float *)list[i].data)[k] == (float)(sum_of_ranks(me.ranks) + in_it * (int)(k % 3)));
            }
    }
    comm_buckets_free(b);
    MUST(comm_close(alone, RIG_PATIENCE));
}

static void bytes_of_the_last_rank(struct comm_communicator *world)
{
    enum { BYTES = 12345, SHORT = 20 };
    static unsigned char buffer[BYTES];
    int32_t root = me.ranks - 1;
    struct comm_request q;
    size_t bytes = BYTES;
    for (size_t i = 0; i < BYTES; i++)
        buffer[i] = me.rank == root ? (unsigned char)(i * 7) : 0;
    if (me.rank == 0)
        bytes = SHORT;
    MUST(comm_broadcast_bytes(world, buffer, &bytes, root, &q));
    IS(comm_wait(q, RIG_PATIENCE), me.rank == 0 ? COMM_ERR_TRUNCATED : COMM_OK);
    EQUAL(bytes, BYTES);
    for (size_t i = 0; me.rank != 0 && i < BYTES; i++)
        EQUAL(buffer[i], (unsigned char)(i * 7));
    bytes = me.rank == root ? COMM_ROOT_FAILED : BYTES;
    MUST(comm_broadcast_bytes(world, buffer, &bytes, root, &q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_ABORTED);
}

static void communicators(struct comm_communicator *world)
{
    struct comm_communicator *made = NULL, *axis[2] = {NULL, NULL};
    const int32_t pair[] = {me.ranks - 1, 0}, shape[] = {me.ranks % 2 ? 1 : 2, me.ranks % 2 ? me.ranks : me.ranks / 2};
    struct comm_info info = {.size = sizeof info};
    int32_t on_host = 0, row = me.rank / shape[1], column = me.rank % shape[1];
    if (me.rank == pair[0] || me.rank == pair[1]) {
        MUST(NOW(comm_subset, world, pair, 2, 4, &made));
        EQUAL(comm_rank(made), me.rank == 0);
        EQUAL(summed(made), me.ranks - 1);
        MUST(comm_close(made, RIG_PATIENCE));
    }
    made = NULL;
    MUST(NOW(comm_split, world, me.rank == 0 ? COMM_NO_COLOR : 5, -me.rank, &made));
    CHECK(!made == (me.rank == 0));
    if (made) {
        EQUAL(comm_rank(made), me.ranks - 1 - me.rank);
        EQUAL(summed(made), sum_of_ranks(me.ranks));
        MUST(comm_close(made, RIG_PATIENCE));
    }
    MUST(NOW(comm_split_place, world, COMM_PLACE_NODE, &made));
    for (int32_t r = 0; r < me.ranks; r++) {
        struct comm_peer_info peer = {.size = sizeof peer};
        MUST(comm_describe_peer(world, r, &peer));
        on_host += peer.local != 0;
    }
    EQUAL(comm_size(made), on_host);
    MUST(comm_describe(made, &info));
    EQUAL(info.nodes, 1);
    (void)summed(made);
    MUST(comm_close(made, RIG_PATIENCE));
    MUST(NOW(comm_split_mesh, world, shape, 2, axis));
    EQUAL(comm_size(axis[0]), shape[0]);
    EQUAL(comm_size(axis[1]), shape[1]);
    EQUAL(summed(axis[0]), shape[0] == 2 ? 2 * column + shape[1] : me.rank);
    EQUAL(summed(axis[1]), shape[1] * row * shape[1] + sum_of_ranks(shape[1]));
    MUST(comm_close(axis[0], RIG_PATIENCE));
    MUST(comm_close(axis[1], RIG_PATIENCE));
}

static void wait_for(struct comm_request q)
{
    MUST(comm_wait(q, RIG_PATIENCE));
}

/* Each rank adds to a word of each rank, one of all takes a word of each rank, and each puts a word at the next rank and signals it. */
static void windows(struct comm_communicator *world)
{
    enum { SUM, TAKEN, GIVEN, WORDS };
    struct comm_window_options options = {.size = sizeof options, .signals = 2};
    int64_t one[2] = {me.rank + 1, 1}, free_word = 0, old = -1, mine = me.rank + 1, *word, given = 300 + me.rank, read = -1;
    int64_t wins = 0, won = 0, before = (me.rank + me.ranks - 1) % me.ranks;
    struct comm_window *w;
    struct comm_request q;
    size_t bytes;
    void *memory;
    MUST(NOW(comm_window_create, world, WORDS * 8, &options, &w));
    MUST(comm_window_pointer(w, me.rank, &memory, &bytes));
    word = memory;
    for (int32_t r = 0; r < me.ranks; r++) {
        MUST(comm_accumulate(w, one, 1, COMM_I64, COMM_SUM, r, SUM * 8, &q));
        wait_for(q);
        MUST(comm_compare_swap(w, &free_word, &mine, &old, COMM_I64, r, TAKEN * 8, &q));
        wait_for(q);
        CHECK(old >= 0 && old <= me.ranks);
        won += old == 0;
    }
    int32_t next = (me.rank + 1) % me.ranks;
    MUST(comm_put(w, &given, 1, COMM_I64, next, GIVEN * 8, NULL));
    MUST(comm_window_signal(w, next, 1, 3, NULL));
    MUST(comm_window_wait_signal(w, 1, 3, &q));
    wait_for(q);
    EQUAL(__atomic_load_n(&word[GIVEN], __ATOMIC_ACQUIRE), 300 + before);
    MUST(comm_window_fence(w, &q));
    wait_for(q);
    EQUAL(word[SUM], sum_of_ranks(me.ranks) + me.ranks);
    CHECK(word[TAKEN] > 0 && word[TAKEN] <= me.ranks);
    MUST(comm_allreduce(world, &won, &wins, 1, COMM_I64, COMM_SUM, &q));
    wait_for(q);
    EQUAL(wins, me.ranks); /* each word was taken once */
    MUST(comm_get(w, &read, 1, COMM_I64, next, GIVEN * 8, &q));
    wait_for(q);
    EQUAL(read, 300 + me.rank);
    MUST(comm_window_fence(w, &q));
    wait_for(q);
    MUST(comm_window_free(w));
}

static void symmetric_memory(struct comm_communicator *world)
{
    void *memory = NULL;
    struct comm_request q;
    MUST(NOW(comm_mem_alloc_symmetric, world, LONG * sizeof(int32_t), &memory));
    int32_t *words = memory;
    for (int32_t i = 0; i < LONG; i++)
        words[i] = me.rank + i;
    MUST(comm_allreduce(world, COMM_IN_PLACE, words, LONG, COMM_I32, COMM_SUM, &q));
    wait_for(q);
    for (int32_t i = 0; i < LONG; i++)
        EQUAL(words[i], sum_of_ranks(me.ranks) + me.ranks * i);
    comm_mem_free(world, memory);
}

/* Rank 1 revokes a communicator in which the others wait. They agree and go on without it. */
static void revoked(struct comm_communicator *world)
{
    static int32_t one = 1, never; /* MPI may keep them */
    struct comm_communicator *copy, *rest;
    uint64_t flags = ~(UINT64_C(1) << me.rank);
    struct comm_request q;
    MUST(NOW(comm_dup, world, NULL, &copy));
    MUST(NOW(comm_agree, copy, &flags));
    CHECK(flags == ~((UINT64_C(1) << me.ranks) - 1));
    enum comm_result r = me.rank == 1 ? comm_revoke(copy) : comm_allreduce(copy, &one, &never, 1, COMM_I32, COMM_SUM, &q);
    if (r == COMM_OK && me.rank != 1)
        r = comm_wait(q, RIG_PATIENCE);
    IS(r, me.rank == 1 ? COMM_OK : COMM_ERR_REVOKED);
    flags = 6 + (uint64_t)(me.rank == 0);
    MUST(NOW(comm_agree, copy, &flags));
    EQUAL(flags, 6);
    MUST(NOW(comm_shrink, copy, &rest));
    EQUAL(comm_size(rest), me.ranks);
    EQUAL(summed(rest), sum_of_ranks(me.ranks));
    EQUAL(summed(world), sum_of_ranks(me.ranks));
    MUST(comm_close(rest, RIG_PATIENCE));
    r = comm_close(copy, RIG_S / 5);
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

/* The last rank aborts a world in which the others wait. It must know that they have ended everything before. */
static void aborted(struct comm_communicator *world)
{
    static int32_t one = 1, never;
    struct comm_error error = {.size = sizeof error};
    struct comm_request q;
    enum comm_result r;
    printf("rank %d: is ready\n", me.rank);
    fflush(stdout);
    for (int32_t other = 0; me.rank == me.ranks - 1 && other < me.ranks; other++)
        rank_await(other, "is ready");
    if (me.rank == me.ranks - 1)
        MUST(comm_abort(world, CODE));
    r = comm_allreduce(world, &one, &never, 1, COMM_I32, COMM_SUM, &q);
    if (r == COMM_OK)
        r = comm_wait(q, RIG_PATIENCE);
    IS(r, COMM_ERR_ABORTED);
    MUST(comm_error_detail(world, &error));
    EQUAL(error.rank, me.ranks - 1);
    CHECK(strstr(error.text, "77"));
    printf("rank %d: %s: %s\n", me.rank, comm_result_name(r), error.text);
    fflush(stdout);
    for (int32_t other = 0; other < me.ranks; other++)
        rank_await(other, "COMM_ERR_ABORTED");
    r = comm_close(world, RIG_S / 5);
    CHECK(r == COMM_OK || r == COMM_ERR_TIMEOUT);
}

/* A rank that gets nothing may pass any output, here its input; also in a call like the one before. */
static void outputs_that_are_ignored(struct comm_communicator *world)
{
    enum { MOST = 64 };
    int32_t all[MOST], root = me.ranks - 1;
    CHECK(me.ranks <= MOST);
    for (int32_t turn = 0; turn < 3; turn++) {
        int32_t mine = me.rank + turn;
        struct comm_request q;
        MUST(comm_gather(world, &mine, me.rank == root ? all : &mine, 1, COMM_I32, root, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        for (int32_t r = 0; me.rank == root && r < me.ranks; r++)
            EQUAL(all[r], r + turn);
    }
}

void rank_calls(void)
{
    struct comm_communicator *world = rank_open(NULL);
    a_group(world);
    steps_of_buckets(world);
    bytes_of_the_last_rank(world);
    communicators(world);
    windows(world);
    symmetric_memory(world);
    outputs_that_are_ignored(world);
    barrier(world);
    revoked(world);
    aborted(world);
}
