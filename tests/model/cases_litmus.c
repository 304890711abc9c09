/* Tests of the explorer itself: the well-known litmus tests, where C11 allows or forbids each odd outcome. */
#include "model/cases.h"

#include <stdatomic.h>

#define RELAXED memory_order_relaxed
#define SET(word, order) atomic_store_explicit(&l->word, 1, order)
#define GET(word, order) atomic_load_explicit(&l->word, order)

static struct litmus {
    _Atomic uint32_t x, y, z;
    uint32_t plain, seen[MODEL_THREADS][2];
} * l;

static void setup(void)
{
    model_has_barrier = true;
    l = model_env.take(&model_env, sizeof *l, 64);
    model_name(&l->x, 4, "x");
    model_name(&l->y, 4, "y");
    model_name(&l->z, 4, "z");
    model_name(&l->plain, 4, "plain");
}

static void odd(bool outcome)
{
    if (outcome)
        model_fail("the odd outcome");
}

/* ------------------------------------------------------------------------------------------------------------ store buffering */
static void buffering_end(void)
{
    odd(!l->seen[0][0] && !l->seen[1][0]);
}
#define BUFFERING(name, order, between)                                                                                                    \
    static void name(uint32_t t)                                                                                                           \
    {                                                                                                                                      \
        if (t) {                                                                                                                           \
            SET(y, order);                                                                                                                 \
            between;                                                                                                                       \
            l->seen[1][0] = GET(x, order == memory_order_release ? memory_order_acquire : order);                                          \
        } else {                                                                                                                           \
            SET(x, order);                                                                                                                 \
            between;                                                                                                                       \
            l->seen[0][0] = GET(y, order == memory_order_release ? memory_order_acquire : order);                                          \
        }                                                                                                                                  \
    }
BUFFERING(buffering_released, memory_order_release, (void)0)
BUFFERING(buffering_sc, memory_order_seq_cst, (void)0)
BUFFERING(buffering_fences, RELAXED, atomic_thread_fence(memory_order_seq_cst))
BUFFERING(buffering_weak_fences, RELAXED, atomic_thread_fence(memory_order_acq_rel))

/* One side with a barrier for all threads, the other with a compiler barrier. */
static void asymmetric(uint32_t t)
{
    if (t) {
        SET(y, RELAXED);
        model_env.barrier(&model_env);
        l->seen[1][0] = GET(x, RELAXED);
    } else {
        SET(x, RELAXED);
        atomic_signal_fence(memory_order_seq_cst);
        l->seen[0][0] = GET(y, RELAXED);
    }
}
static void asymmetric_open(uint32_t t)
{
    if (t) {
        asymmetric(t);
    } else {
        SET(x, RELAXED);
        l->seen[0][0] = GET(y, RELAXED);
    }
}
static void asymmetric_twice_light(uint32_t t)
{
    if (t) {
        SET(y, RELAXED);
        atomic_signal_fence(memory_order_seq_cst);
        l->seen[1][0] = GET(x, RELAXED);
    } else {
        asymmetric(t);
    }
}

/* ------------------------------------------------------------------------------------------------------------ message passing */
static void passing_end(void)
{
    odd(l->seen[1][0] && !l->seen[1][1]);
}
#define PASSING(name, first, store, load, last)                                                                                            \
    static void name(uint32_t t)                                                                                                           \
    {                                                                                                                                      \
        if (t) {                                                                                                                           \
            l->seen[1][0] = GET(y, load);                                                                                                  \
            last;                                                                                                                          \
            l->seen[1][1] = GET(x, RELAXED);                                                                                               \
        } else {                                                                                                                           \
            SET(x, RELAXED);                                                                                                               \
            first;                                                                                                                         \
            SET(y, store);                                                                                                                 \
        }                                                                                                                                  \
    }
PASSING(passing, (void)0, memory_order_release, memory_order_acquire, (void)0)
PASSING(passing_relaxed_store, (void)0, RELAXED, memory_order_acquire, (void)0)
PASSING(passing_relaxed_load, (void)0, memory_order_release, RELAXED, (void)0)
PASSING(passing_fences, atomic_thread_fence(memory_order_release), RELAXED, RELAXED, atomic_thread_fence(memory_order_acquire))

static void passing_plain(uint32_t t)
{
    if (!t) {
        l->plain = 7;
        SET(y, memory_order_release);
    } else if (GET(y, memory_order_acquire)) {
        MODEL_CHECK(l->plain == 7);
    }
}
static void passing_plain_race(uint32_t t)
{
    if (!t) {
        l->plain = 7;
        SET(y, RELAXED);
    } else if (GET(y, memory_order_acquire)) {
        l->seen[1][0] = l->plain;
    }
}
/* A read-modify-write in between continues the release sequence of what it changed. */
static void passing_through_a_change(uint32_t t)
{
    if (t == 0) {
        l->plain = 7;
        SET(y, memory_order_release);
    } else if (t == 1) {
        atomic_fetch_add_explicit(&l->y, 1, RELAXED);
    } else if (GET(y, memory_order_acquire) == 2) {
        MODEL_CHECK(l->plain == 7);
    }
}

/* ------------------------------------------------------------------------------------------------------------ coherence, many readers */
static void coherence(uint32_t t)
{
    if (!t) {
        SET(x, RELAXED);
    } else {
        l->seen[1][0] = GET(x, RELAXED);
        l->seen[1][1] = GET(x, RELAXED);
    }
}
static void two_readers_end(void)
{
    odd(l->seen[2][0] && !l->seen[2][1] && l->seen[3][0] && !l->seen[3][1]);
}
#define TWO_READERS(name, store, load)                                                                                                     \
    static void name(uint32_t t)                                                                                                           \
    {                                                                                                                                      \
        if (t == 0)                                                                                                                        \
            SET(x, store);                                                                                                                 \
        else if (t == 1)                                                                                                                   \
            SET(y, store);                                                                                                                 \
        if (t < 2)                                                                                                                         \
            return;                                                                                                                        \
        l->seen[t][0] = t == 2 ? GET(x, load) : GET(y, load);                                                                              \
        l->seen[t][1] = t == 2 ? GET(y, load) : GET(x, load);                                                                              \
    }
TWO_READERS(two_readers, memory_order_release, memory_order_acquire)
TWO_READERS(two_readers_sc, memory_order_seq_cst, memory_order_seq_cst)

/* ------------------------------------------------------------------------------------------------------------ sleeping */
static void sleeps(uint32_t t)
{
    if (t)
        while (!GET(x, memory_order_acquire))
            model_env.park(&model_env, &l->x, 0, ENV_FOREVER);
    else
        SET(x, memory_order_release);
}
static void sleeps_and_is_woken(uint32_t t)
{
    sleeps(t);
    if (!t)
        model_env.wake(&model_env, &l->x, 1);
}
static void spins(uint32_t t)
{
    if (t)
        while (!GET(x, memory_order_acquire))
            model_env.relax(&model_env, false);
    else
        SET(x, memory_order_release);
}
static void spins_for_ever(uint32_t t)
{
    if (t)
        spins(t);
}

#define ALLOWED(text, count, body, end)                                                                                                    \
    {                                                                                                                                      \
        .name = text, .threads = count, .setup = setup, .run = body, .finish = end, .wrong = true                                          \
    }
#define FORBIDDEN(text, count, body, end)                                                                                                  \
    {                                                                                                                                      \
        .name = text, .threads = count, .setup = setup, .run = body, .finish = end                                                         \
    }
const struct model_case litmus_cases[] = {
    ALLOWED("store buffering, release and acquire", 2, buffering_released, buffering_end),
    ALLOWED("store buffering, weak fences", 2, buffering_weak_fences, buffering_end),
    FORBIDDEN("store buffering, seq_cst", 2, buffering_sc, buffering_end),
    FORBIDDEN("store buffering, seq_cst fences", 2, buffering_fences, buffering_end),
    FORBIDDEN("store buffering, barrier and signal fence", 2, asymmetric, buffering_end),
    ALLOWED("store buffering, barrier alone", 2, asymmetric_open, buffering_end),
    ALLOWED("store buffering, signal fences alone", 2, asymmetric_twice_light, buffering_end),
    FORBIDDEN("message passing", 2, passing, passing_end),
    ALLOWED("message passing, relaxed store", 2, passing_relaxed_store, passing_end),
    ALLOWED("message passing, relaxed load", 2, passing_relaxed_load, passing_end),
    FORBIDDEN("message passing, fences", 2, passing_fences, passing_end),
    FORBIDDEN("message passing, plain", 2, passing_plain, NULL),
    ALLOWED("message passing, plain and relaxed", 2, passing_plain_race, NULL),
    FORBIDDEN("message passing, through a change", 3, passing_through_a_change, NULL),
    FORBIDDEN("coherence", 2, coherence, passing_end),
    ALLOWED("two readers, release and acquire", 4, two_readers, two_readers_end),
    FORBIDDEN("two readers, seq_cst", 4, two_readers_sc, two_readers_end),
    ALLOWED("a sleeper that nobody wakes", 2, sleeps, NULL),
    FORBIDDEN("a sleeper that is woken", 2, sleeps_and_is_woken, NULL),
    FORBIDDEN("a loop that ends", 2, spins, NULL),
    ALLOWED("a loop that does not", 2, spins_for_ever, NULL),
};
const size_t litmus_count = sizeof litmus_cases / sizeof *litmus_cases;
