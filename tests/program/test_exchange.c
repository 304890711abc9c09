/* Compares the rows of select/exchange.c with the programs: which rank exposes what to whom, which ranks view, and what
 * the result is. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "select/select.h"
#include "program/test_env.h"

#include <stdbool.h>
#include <string.h>

/* A rank's program seen as an exchange: one bit per rank. */
struct seen {
    uint32_t shown_to, looked_at, own, copied;
    uint32_t ways;
    bool whole, spread, reduces;
};

static void see_span(struct seen *seen, const struct comm_ref *ref)
{
    seen->whole = (ref->unit & ~UNIT_PARTIAL) == UNIT_WHOLE;
    assert_false(ref->unit & UNIT_PARTIAL);
}

static void see_view(struct seen *seen, const struct comm_program *p, const struct comm_step *s, int32_t rank, int32_t size)
{
    const struct comm_ref *span = s->flags & STEP_LAND ? &s->dst : &s->src;

    for (uint32_t j = 0; j < s->npeers; j++) {
        uint32_t peer = program_peer(p, s->peer + j);
        *((int32_t)peer == rank ? &seen->own : &seen->looked_at) |= 1u << peer;
        if (s->flags & STEP_LAND)
            seen->copied |= 1u << peer;
        if (s->flags & STEP_LAND && p->own_in) /* each goes to its own block */
            assert_int_equal((span->first + (uint32_t)span->step * j) % (uint32_t)size, peer);
    }
    if (s->flags & STEP_LAND)
        seen->spread = p->own_in;
    else
        see_span(seen, &s->src);
}

static struct seen look_at(const struct comm_program *p, int32_t rank, int32_t size)
{
    struct seen seen = {0};

    for (uint32_t i = 0; i < p->steps; i++) {
        const struct comm_step *s = &p->step[i];
        switch (s->code) {
        case STEP_EXPOSE:
            assert_int_equal(s->edge, 0);
            assert_int_equal(p->edge[0], WIRE_ONCE | WIRE_TO_ALL);
            assert_int_equal(seen.shown_to, 0);
            for (uint32_t j = 0; j < s->npeers; j++)
                seen.shown_to |= 1u << program_peer(p, s->peer + j);
            see_span(&seen, &s->src);
            break;
        case STEP_VIEW:
            see_view(&seen, p, s, rank, size);
            break;
        case STEP_REDUCE:
            assert_true(s->flags & STEP_FINAL);
            seen.reduces = true;
            seen.ways = s->src.count;
            break;
        case STEP_COPY:
            if (s->src.buf != BUF_VIEW)
                seen.own |= 1u << rank;
            else
                seen.copied |= (s->src.count == 1 ? seen.looked_at : seen.looked_at | 1u << rank);
            if (s->src.buf == BUF_VIEW)
                seen.spread = s->src.count > 1;
            break;
        default:
            assert_true(s->code == STEP_RELEASE || (s->code == STEP_END && !s->aside));
        }
    }
    return seen;
}

static void compare(const struct algo_row *row, const struct algo_exchange *x, int32_t size, int32_t rank, int32_t root)
{
    struct program_spec spec = {row->collective, rank, size, root, 0, NULL};
    struct comm_program *p = row->build(&test_env, &spec);
    struct seen seen;
    uint32_t shown_to = 0, looked_at = 0, own = algo_exchange_own(x, rank, root) ? 1u << rank : 0;

    assert_non_null(p);
    seen = look_at(p, rank, size);
    for (int32_t r = 0; r < size; r++) {
        shown_to |= algo_exchange_shown(x, rank, r, root) ? 1u << r : 0;
        looked_at |= algo_exchange_shown(x, r, rank, root) ? 1u << r : 0;
    }
    assert_int_equal(seen.shown_to, shown_to);
    assert_int_equal(seen.looked_at, looked_at);
    assert_int_equal(seen.own, own);
    assert_int_equal(algo_exchange_makes(x, rank, root), (looked_at | own) != 0);
    if (looked_at | shown_to)
        assert_int_equal(seen.whole, (x->flags & ALGO_UNCUT) != 0);
    if (x->flags & ALGO_REDUCES) /* of ranks 0, 1, ..: as many as there are up to the last that contributes */
        assert_int_equal(seen.ways, looked_at | own ? 32 - __builtin_clz(looked_at | own) : 0);
    else
        assert_int_equal(seen.copied & looked_at, looked_at);
    if (looked_at && !(x->flags & ALGO_REDUCES))
        assert_int_equal(seen.spread, (x->flags & ALGO_SPREADS) != 0);
    assert_int_equal(seen.reduces, (x->flags & ALGO_REDUCES) && (looked_at | own));
    program_free(&test_env, p);
}

static void exchanges_are_what_their_programs_are(void **state)
{
    int found = 0;

    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_exchange *x = algo_exchange_of(&algo_table[i]);
        if (!x || x->flags & (ALGO_PAIRS | ALGO_TOTALS))
            continue;
        found++;
        for (int32_t size = 1; size <= ALGO_EXPRESS_RANKS; size++)
            for (int32_t root = 0; root<size; root += size> 4 ? size - 1 : 1)
                for (int32_t rank = 0; rank < size; rank++)
                    compare(&algo_table[i], x, size, rank, root);
    }
    assert_true(found >= 13);
    assert_int_equal(test_env_taken, 0);
}

/* Pairs without streams: a separate line for each other rank that is exposed to, and a place in `out` for each that
 * exposes. */
static void compare_pairs(const struct algo_row *row, const struct algo_exchange *x, int32_t size, int32_t rank, int32_t root)
{
    struct program_spec spec = {row->collective, rank, size, root, 0, NULL};
    struct comm_program *p = row->build(&test_env, &spec);
    uint32_t shown_to = 0, looked_at = 0, shown = 0, looked = 0;
    uint8_t kind;

    assert_non_null(p);
    for (uint32_t i = 0; i < p->steps; i++) {
        const struct comm_step *s = &p->step[i];
        if (s->code != STEP_EXPOSE && s->code != STEP_VIEW)
            continue;
        bool shows = s->code == STEP_EXPOSE;
        int32_t peer = (int32_t)program_peer(p, s->peer);
        assert_int_equal(s->npeers, 1);
        assert_int_equal(s->edge, shows ? algo_exchange_edge(x, rank, peer, size, &kind) : algo_exchange_edge(x, peer, rank, size, &kind));
        assert_int_equal(p->edge[s->edge], kind);
        assert_int_equal(s->src.unit, UNIT_BLOCK);
        assert_int_equal(shows || x->flags & ALGO_SPREADS ? (int32_t)s->src.first : peer, peer);
        *(shows ? &shown : &looked) |= 1u << peer;
    }
    for (int32_t r = 0; r < size; r++) {
        shown_to |= algo_exchange_shown(x, rank, r, root) ? 1u << r : 0;
        looked_at |= algo_exchange_shown(x, r, rank, root) ? 1u << r : 0;
    }
    assert_int_equal(shown, shown_to);
    assert_int_equal(looked, looked_at);
    assert_true(p->ragged); /* the engine's own lines carry the mark of a block's length */
    program_free(&test_env, p);
}

static void pairs_are_what_their_programs_are(void **state)
{
    int found = 0;

    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_exchange *x = algo_exchange_of(&algo_table[i]);
        if (!x || !(x->flags & ALGO_PAIRS) || (x->flags & ALGO_STREAMS))
            continue;
        found++;
        for (int32_t size = 1; size <= algo_table[i].ranks_max; size++)
            for (int32_t root = 0; root < size; root++)
                for (int32_t rank = 0; rank < size; rank++)
                    compare_pairs(&algo_table[i], x, size, rank, root);
    }
    assert_int_equal(found, 2);
    assert_int_equal(test_env_taken, 0);
}

/* The parts of T that a rank combines, in the order of its REDUCE steps, as numbers: l + 1 for the left block of 2^l
 * ranks, OWN for its input, HAD for the result of the step before. */
enum { SUMS_MOST = 32, OWN = 8, HAD = 9 };
struct sums {
    uint8_t part[SUMS_MOST][3]; /* left, right, whether it is the result */
    uint32_t count, shown_after, shown_to, looked_at;
    uint32_t shown_partial;
};

static uint32_t left_level(int32_t rank, uint32_t peer)
{
    uint32_t level = 0;

    while (!(rank >> level & 1) || (int32_t)peer != algo_exchange_left(rank, level))
        level++;
    return level;
}

/* For blocks: the left blocks that the reductions use, and when the rank exposes what to whom. */
static struct sums sums_of(const struct comm_program *p, int32_t rank)
{
    struct sums sums = {0};
    uint8_t slot[64] = {0};

    for (uint32_t i = 0; i < p->steps; i++) {
        const struct comm_step *s = &p->step[i];
        uint32_t peer = s->npeers ? program_peer(p, s->peer) : 0;
        if (s->code == STEP_VIEW && (int32_t)peer == rank) {
            slot[s->dst.first] = s->src.buf == BUF_IN ? OWN : s->src.buf == BUF_VIEW ? slot[s->src.first] : HAD;
        } else if (s->code == STEP_VIEW) {
            uint32_t level = left_level(rank, peer);
            assert_int_equal(s->edge, 0);
            assert_int_equal((s->src.unit & UNIT_PARTIAL) != 0, level > 0);
            sums.looked_at |= 1u << peer;
            slot[s->dst.first] = (uint8_t)(level + 1);
        } else if (s->code == STEP_EXPOSE) {
            for (uint32_t j = 0; j < s->npeers; j++)
                sums.shown_to |= 1u << program_peer(p, s->peer + j);
            sums.shown_after = sums.count;
            sums.shown_partial = (s->src.unit & UNIT_PARTIAL) != 0;
        } else if (s->code == STEP_REDUCE) {
            uint8_t *part = sums.part[sums.count++];
            part[0] = slot[s->src.first];
            part[1] = s->src.count > 1 ? slot[s->src.first + 1] : 0;
            part[2] = (s->flags & STEP_FINAL) != 0;
        }
    }
    return sums;
}

/* The same as the engine computes it: first the blocks that end with this rank, which are exposed, then the result from
 * all, the lowest first. */
static struct sums sums_by_hand(const struct algo_exchange *x, int32_t rank, int32_t size, int32_t root)
{
    struct sums sums = {0};
    uint32_t levels = (uint32_t)rank;
    uint8_t has = OWN;

    for (int32_t r = 0; r < size; r++) {
        sums.shown_to |= algo_exchange_shown(x, rank, r, root) ? 1u << r : 0;
        sums.looked_at |= algo_exchange_shown(x, r, rank, root) ? 1u << r : 0;
    }
    for (uint32_t level = 0; sums.shown_to && levels >> level & 1; level++, has = HAD)
        memcpy(sums.part[sums.count++], (uint8_t[3]){(uint8_t)(level + 1), has, 0}, 3);
    sums.shown_after = sums.count;
    sums.shown_partial = sums.count != 0;
    if (algo_exchange_own(x, rank, root)) {
        levels &= sums.shown_to ? levels + 1 : levels; /* the trailing bits are part of what was exposed */
        if (!levels)
            memcpy(sums.part[sums.count++], (uint8_t[3]){has, 0, 1}, 3);
    } else {
        has = (uint8_t)(__builtin_ctz(levels | 1u << 31) + 1);
        levels &= levels - 1;
        if (!levels && rank)
            memcpy(sums.part[sums.count++], (uint8_t[3]){has, 0, 1}, 3);
    }
    for (; levels; levels &= levels - 1, has = HAD)
        memcpy(sums.part[sums.count++], (uint8_t[3]){(uint8_t)(__builtin_ctz(levels) + 1), has, !(levels & (levels - 1))}, 3);
    return sums;
}

static void totals_are_what_their_programs_are(void **state)
{
    int found = 0;

    (void)state;
    for (uint32_t i = 0; i < algo_count; i++) {
        const struct algo_exchange *x = algo_exchange_of(&algo_table[i]);
        if (!x || !(x->flags & ALGO_TOTALS))
            continue;
        found++;
        for (int32_t size = 1; size <= ALGO_EXPRESS_RANKS; size++) {
            for (int32_t rank = 0; rank < size; rank++) {
                struct program_spec spec = {algo_table[i].collective, rank, size, 0, 0, NULL};
                struct comm_program *p = algo_table[i].build(&test_env, &spec);
                assert_non_null(p);
                struct sums program = sums_of(p, rank), hand = sums_by_hand(x, rank, size, 0);
                assert_memory_equal(&program, &hand, sizeof program);
                program_free(&test_env, p);
            }
        }
    }
    assert_int_equal(found, 2);
    assert_int_equal(test_env_taken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exchanges_are_what_their_programs_are),
                                       cmocka_unit_test(pairs_are_what_their_programs_are),
                                       cmocka_unit_test(totals_are_what_their_programs_are)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
