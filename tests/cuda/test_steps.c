/*
 * The allreduce, reduce_scatter, allgather, broadcast and barrier in one kernel, compiled for the CPU and run one thread of one block at a
 * time, in an order that a seed chooses. Ordinary stores into a mailbox become visible late, in any order, unless a release forces them.
 * Several ranks, several operations one after the other, launched with the same arguments as a graph launches them; few blocks at once;
 * aborts; calls that differ.
 * Results must have the bits of the host's kernels.
 *
 * A fault that is planted must be found: one slot for all operations, a flag that does not wait for the data, parts that belong to fixed
 * blocks, reads that hit a cache, and an abort word that nobody looks at.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault { NO_FAULT, ONE_SLOT, NO_RELEASE, FIXED_PARTS, WEAK_READS, NO_ABORT, FAULTS };
static enum fault fault;
static void write_late(void *to, const void *from, size_t bytes);
static void release(uint64_t *at, uint64_t value);
static uint32_t count(uint32_t *at, uint32_t more);
static uint64_t look(const uint64_t *at);
static uint64_t ticks_now(void);

#define ONESHOT_PART_BYTES 32
#define ONESHOT_SLOT(number) (fault == ONE_SLOT ? 0 : ((number)&1))
#define ONESHOT_WRITE(to, value)                                                                                                           \
    do {                                                                                                                                   \
        __typeof__(value) late = (value);                                                                                                  \
        write_late((to), &late, sizeof late);                                                                                              \
    } while (0)
#define ONESHOT_READ_PIECE(at) read_piece(at)
#define ONESHOT_READ_BYTE(at) read_byte(at)
#define ONESHOT_NOW() ticks_now()
#define ONESHOT_LOAD(at) look(at)
#define ONESHOT_STORE(at, value) release((at), (value))
#define ONESHOT_ADD(at, more) count((at), (more))
#define ONESHOT_MAX(at, value) (void)(*(at) = *(at) > (value) ? *(at) : (value))
#define ONESHOT_FENCE() (void)0
#define ONESHOT_SEEN(variable) (variable)

struct oneshot_piece;
static struct oneshot_piece read_piece(const struct oneshot_piece *at);
static char read_byte(const char *at);
#include "cuda/oneshot_kernel.h"

#include "../data/oracle.h"
#include "data/data.h"
#include "selection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "steps.h"

static uint64_t ticks_now(void)
{
    return ticks;
}

/* ------------------------------------------------------------------------------------------------------------ values */
/* The input of a rank, which is drawn anew for each operation. */
static void fill(uint32_t r, uint32_t operation, uint64_t seed, void *to)
{
    uint64_t mine = seed * 1000 + operation * RANKS + r + 1;
    size_t blocks = rank[r].args.kind == ONESHOT_SCATTER ? ranks : 1;

    oracle_fill((enum comm_type)rank[r].args.type, false, to, blocks * (size_t)rank[r].args.elements, &mine);
}

/* Of a gather every rank's input is at its place, of a broadcast the root's. */
static bool is_moved(const struct oneshot_args *a, char inputs[RANKS][RANKS * MOST_BYTES + 64])
{
    for (uint32_t k = 0; k < ranks; k++)
        if ((a->kind == ONESHOT_GATHER || k == a->root) && memcmp((char *)a->out + k * a->stride, inputs[k], (size_t)a->elements) != 0)
            return false;
    return true;
}

/* Of a barrier: it has begun on each rank. */
static bool all_began(uint32_t operation)
{
    for (uint32_t k = 0; k < ranks; k++)
        if (rank[k].launched <= operation || (rank[k].launched == operation + 1 && !rank[k].begun))
            return false;
    return true;
}

static bool is_right(uint32_t r, uint32_t operation, uint64_t seed)
{
    static _Alignas(64) char inputs[RANKS][RANKS * MOST_BYTES + 64], want[MOST_BYTES + 64];
    const struct oneshot_args *a = &rank[r].args;
    const void *from[RANKS];
    size_t n = (size_t)a->elements;

    for (uint32_t k = 0; k < ranks; k++) {
        fill(k, operation, seed, inputs[k]);
        from[k] = inputs[k] + (a->kind == ONESHOT_SCATTER ? r * a->stride : 0);
    }
    if (a->kind == ONESHOT_BARRIER)
        return all_began(operation);
    if (a->kind == ONESHOT_GATHER || a->kind == ONESHOT_BROADCAST)
        return is_moved(a, inputs);
    data_reducer((enum comm_type)a->type, a->op, DATA_SCALAR)(
        &(struct data_reduce){.from = from, .ways = ranks, .divisor = ranks, .to = want, .elements = n, .final = true});
    for (size_t i = 0; i < n; i++)
        if (!oracle_same((enum comm_type)a->type, false, want, a->out, i))
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ operations in a row */
/* Something happens on the device; the host looks at its word. Returns what went wrong, or NULL. *ended: an operation has. */
static const char *happen_and_look(struct rank *k, uint64_t seed, bool *ended)
{
    uint64_t before = k->done;
    bool ran = runs(k);

    happen(k);
    *ended = ran && !runs(k);
    if (k->done == before)
        return NULL;
    if (k->wrong || k->done != k->args.base + k->first + k->launched)
        return "it did not end well";
    return is_right((uint32_t)(k - rank), k->launched - 1, seed) ? NULL : "a result is wrong";
}

/* Runs so many operations on all ranks, each rank as far ahead as the protocol lets it. */
static const char *run(uint32_t operations, uint64_t seed)
{
    uint32_t slow = draw(ranks + 1), left = ranks, idle = 0;
    bool ended;

    while (left) {
        uint32_t r = draw(ranks);
        struct rank *k = &rank[r];
        if (++idle == PATIENCE)
            return "it stands";
        if (r == slow && draw(16))
            continue;
        if (!runs(k) && k->launched < operations) {
            fill(r, k->launched, seed, k->in);
            launch(k, 1 + draw(k->args.parts));
        }
        const char *wrong = happen_and_look(k, seed, &ended);
        if (wrong)
            return wrong;
        idle = ended ? 0 : idle;
        left -= ended && k->launched == operations;
    }
    return NULL;
}

static void make(enum oneshot_kind kind, uint32_t root)
{
    for (uint32_t r = 0; r < ranks; r++) {
        rank[r].args.kind = kind;
        rank[r].args.root = kind == ONESHOT_BROADCAST ? root : 0;
        rank[r].args.stride = kind == ONESHOT_BROADCAST ? 0 : rank[r].args.elements; /* of bytes */
        if (kind == ONESHOT_BARRIER) {
            rank[r].args.in = rank[r].args.out = NULL;
            rank[r].args.elements = rank[r].args.stride = 0;
            rank[r].args.parts = 1;
        }
    }
}

/* What is not an allreduce. */
static const char *play_others(uint64_t seed, uint32_t n, uint32_t operations)
{
    chance = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    open_ranks(n, 1 + draw(MOST_BYTES), COMM_U8, COMM_SUM);
    make(ONESHOT_GATHER + (enum oneshot_kind)draw(4), draw(n));
    return run(operations, seed);
}

static const char *play(uint64_t seed, uint32_t n, uint32_t operations)
{
    static const enum comm_type types[] = {COMM_I32, COMM_F64, COMM_U8, COMM_BF16};
    enum comm_type type = types[seed % 4];
    uint32_t bytes = (uint32_t)fold_bytes((uint32_t)type);

    chance = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    open_ranks(n, 1 + draw(MOST_BYTES / bytes), type, type == COMM_U8 ? COMM_BXOR : COMM_MAX);
    return run(operations, seed);
}

static void every_order_gives_the_result(void **state)
{
    uint32_t seeds = selected(4000, 1000, 200);

    (void)state;
    fault = NO_FAULT;
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        const char *wrong = play(seed, 2 + seed % 3, 4);
        if (!wrong)
            wrong = play_others(seed, 2 + seed % 3, 4);
        if (wrong)
            fail_msg("seed %u: %s", seed, wrong);
    }
}

static void planted_faults_are_found(void **state)
{
    static const char *const names[FAULTS] = {NULL,          "one slot",           "no release",
                                              "fixed parts", "reads of old lines", "the abort word is not looked at"};

    (void)state;
    for (fault = ONE_SLOT; fault <= WEAK_READS; fault++) {
        uint32_t seed = 1;
        while (seed <= 300 && !play(seed, 2 + seed % 3, 4))
            seed++;
        if (seed > 300)
            fail_msg("not found: %s", names[fault]);
        printf("%s: found by seed %u\n", names[fault], seed);
        for (seed = 1; seed <= 300 && !play_others(seed, 2 + seed % 3, 4);)
            seed++;
        if (seed > 300)
            fail_msg("not found, in others: %s", names[fault]);
    }
    fault = NO_FAULT;
}

/* ------------------------------------------------------------------------------------------------------------ ends */
/* At some moment every host tells its kernel to end. An operation then either has its result or says that it was aborted, and after the
 * word nothing is written. */
static const char *abort_at(uint64_t seed, uint32_t moment)
{
    uint32_t turns = 0, left = ranks;

    for (uint32_t r = 0; r < ranks; r++) {
        fill(r, 0, seed, rank[r].in);
        if (r + 1 < ranks || seed % 2) /* the last rank may never call */
            launch(&rank[r], 1 + draw(rank[r].args.parts));
        else
            left--;
    }
    while (left) {
        struct rank *k = &rank[draw(ranks)];
        bool before = runs(k);
        if (turns++ == moment)
            for (uint32_t r = 0; r < ranks; r++)
                rank[r].abort = 1;
        if (turns == PATIENCE)
            return "it stands";
        happen(k);
        if (!before || runs(k))
            continue;
        left--;
        if (k->done != k->args.base + 1 || (k->wrong != 0 && k->wrong != ONESHOT_ABORTED))
            return "it did not end well";
        if (!k->wrong && !is_right((uint32_t)(k - rank), 0, seed))
            return "a result is wrong";
    }
    return NULL;
}

static const char *play_abort(uint64_t seed)
{
    chance = seed * 0x9e3779b97f4a7c15u + 1;
    open_ranks(2 + (uint32_t)(seed % 3), 30, COMM_I32, COMM_SUM);
    return abort_at(seed, draw(600));
}

/* Whatever is launched after an abort ends at once, and writes nothing. */
static void launch_again(struct rank *k)
{
    memset(k->out, 0x5a, sizeof k->out);
    launch(k, 1);
    for (uint32_t turns = 0; runs(k); turns++) {
        assert_true(turns < 10000);
        happen(k);
    }
    for (size_t i = 0; i < sizeof k->out; i++)
        assert_int_equal(k->out[i], 0x5a);
}

static void an_abort_ends_every_kernel(void **state)
{
    uint32_t seeds = selected(2000, 500, 100), seed;

    (void)state;
    fault = NO_FAULT;
    for (seed = 1; seed <= seeds; seed++) {
        const char *wrong = play_abort(seed);
        if (wrong)
            fail_msg("seed %u: %s", seed, wrong);
        for (uint32_t r = 0; r < ranks; r++)
            if (rank[r].wrong)
                launch_again(&rank[r]);
    }
    fault = NO_ABORT;
    for (seed = 1; seed < 100 && !play_abort(seed); seed++)
        continue;
    fault = NO_FAULT;
    assert_true(seed < 100);
    printf("an abort word that is not looked at: found by seed %u\n", seed);
}

/* ------------------------------------------------------------------------------------------------------------ trials */
enum { ROUNDS = 4 };

/* What the host does behind a trial: all ranks go on with the same number, whatever the trial came to. */
static const char *go_on(uint32_t n, uint64_t number, uint64_t seed)
{
    uint32_t elements = 1 + draw(MOST_BYTES);

    for (uint32_t r = 0; r < n; r++) {
        struct rank *k = &rank[r];
        k->state = (struct oneshot_state){.number = number};
        k->wrong = k->abort = 0;
        k->rounds = k->launched = k->begun = k->over = 0;
        k->first = number;
        k->done = k->args.base + number;
        k->args.elements = elements;
        k->args.parts = (elements + ONESHOT_PART_BYTES - 1) / ONESHOT_PART_BYTES;
    }
    return run(3, seed);
}

/* moment: when all hosts end it; more than PATIENCE: never. number: the one that operations behind it count on from. */
static const char *play_trial(uint64_t seed, uint32_t moment, uint64_t number)
{
    uint32_t n = 2 + (uint32_t)(seed % 3), left = n;

    chance = seed * 0x9e3779b97f4a7c15u + 1;
    open_ranks(n, 1 + draw(ONESHOT_PART_BYTES), COMM_U8, COMM_SUM);
    for (uint32_t r = 0; r < n; r++) {
        rank[r].rounds = ROUNDS;
        fill(r, 0, seed, rank[r].in);
        launch(&rank[r], 1);
    }
    for (uint32_t turns = 0; left; turns++) {
        struct rank *k = &rank[draw(n)];
        bool before = runs(k);
        if (turns == PATIENCE)
            return "a trial stands";
        for (uint32_t r = 0; r < n && turns == moment; r++)
            rank[r].abort = 1;
        happen(k);
        if (!before || runs(k))
            continue;
        left--;
        if (k->done != k->args.base + ROUNDS || k->state.number != ROUNDS)
            return "a trial did not count its rounds";
        if (!k->wrong && (!is_right((uint32_t)(k - rank), 0, seed) || !k->took || k->took >= ticks))
            return "a trial's sum or time is wrong";
        if (k->wrong && moment > PATIENCE)
            return "a trial did not end well";
    }
    return go_on(n, number, seed);
}

static void trials_leave_nothing_behind(void **state)
{
    uint32_t seeds = selected(2000, 500, 100), seed;

    (void)state;
    fault = NO_FAULT;
    for (seed = 1; seed <= seeds; seed++) {
        const char *wrong = play_trial(seed, PATIENCE + 1, ROUNDS);
        if (!wrong)
            wrong = play_trial(seed, seed * 37 % 3000, ROUNDS);
        if (wrong)
            fail_msg("seed %u: %s", seed, wrong);
    }
    for (seed = 1; seed < 100 && !play_trial(seed, seed * 37 % 600, 0); seed++)
        continue;
    assert_true(seed < 100);
    printf("numbers that begin anew behind a trial: found by seed %u\n", seed);
}

/* ------------------------------------------------------------------------------------------------------------ calls that differ */
/* Two ranks with different lengths: neither may say that it has a result. */
static void calls_that_differ_are_found(void **state)
{
    (void)state;
    fault = NO_FAULT;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        chance = seed * 0x9e3779b97f4a7c15u + 1;
        open_ranks(2, 1 + draw(30), COMM_I32, COMM_SUM);
        rank[1].args.elements += 1;
        rank[1].args.fingerprint += 1;
        rank[1].args.parts = (uint32_t)((rank[1].args.elements * 4 + ONESHOT_PART_BYTES - 1) / ONESHOT_PART_BYTES);
        launch(&rank[0], 4);
        launch(&rank[1], 4);
        for (uint32_t turns = 0; runs(&rank[0]) || runs(&rank[1]); turns++) {
            assert_true(turns < PATIENCE);
            happen(&rank[draw(2)]);
            if (rank[0].state.error || rank[1].state.error) /* the host is told by the word of either, or sees the calls */
                rank[0].abort = rank[1].abort = 1;
        }
        assert_true(rank[0].wrong && rank[1].wrong);
        assert_true(rank[0].wrong == ONESHOT_DIFFERS || rank[1].wrong == ONESHOT_DIFFERS);
    }
}

/* ------------------------------------------------------------------------------------------------------------ arithmetic */
/* One operation. odd: its inputs are not at the addresses of whole pieces. in_place: they get the result. */
static void sum_once(uint32_t n, uint32_t elements, enum comm_type type, comm_op op, bool odd, bool in_place)
{
    open_ranks(n, elements, type, op);
    for (uint32_t r = 0; r < n; r++) {
        char *in = rank[r].in + (odd ? data_type_bytes(type) : 0);
        fill(r, 0, 1, in);
        rank[r].args.in = in;
        rank[r].args.out = in_place ? in : rank[r].out;
        launch(&rank[r], BLOCKS);
    }
    for (uint32_t r = 0, left = n; left; r = (r + 1) % n) {
        bool ran = runs(&rank[r]);
        happen(&rank[r]);
        left -= ran && !runs(&rank[r]);
    }
    for (uint32_t r = 0; r < n; r++)
        if (rank[r].wrong || !is_right(r, 0, 1))
            fail_msg("%s of %s, %u ranks, %u elements", data_op_name(op), data_type_name(type), n, elements);
}

/* Every type and operator that the kernel has, on 1 to 8 ranks, with lengths around the ends of parts. */
static void every_pair_has_the_hosts_bits(void **state)
{
    uint32_t pairs = 0;

    (void)state;
    fault = NO_FAULT;
    for (int type = 0; type < 64; type++) {
        for (comm_op op = COMM_SUM; op <= COMM_LXOR; op++) {
            if (!fold_has((enum comm_type)type, op))
                continue;
            uint32_t part = ONESHOT_PART_BYTES / (uint32_t)fold_bytes((uint32_t)type);
            uint32_t lengths[] = {1, part - 1, part, part + 1, 3 * part + 1};
            pairs++;
            for (uint32_t n = 1; n <= RANKS; n++) {
                chance = pairs * 64 + n;
                sum_once(n, lengths[(pairs + n) % 5], (enum comm_type)type, op, (pairs ^ n) % 2, (pairs + n) % 3 == 0);
            }
        }
    }
    assert_int_equal(pairs, 8 * 10 + 4 * 5 + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_gives_the_result), cmocka_unit_test(planted_faults_are_found),
        cmocka_unit_test(an_abort_ends_every_kernel),   cmocka_unit_test(calls_that_differ_are_found),
        cmocka_unit_test(trials_leave_nothing_behind),  cmocka_unit_test(every_pair_has_the_hosts_bits),
    };
    return cmocka_run_group_tests_name("cuda_steps", tests, NULL, NULL);
}
