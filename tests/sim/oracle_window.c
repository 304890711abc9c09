/*
 * What calls on a word of a window must have seen, in whatever order they took effect, because there was one order. A
 * word is the set of the calls that took effect on it, with one bit for each (random_window.c), so the order need not
 * be searched: of two calls one saw the other and everything that it saw; a rank's later call saw its earlier ones;
 * behind a fence of all members everything before it was seen; and in the end the word contains every call that took
 * effect.
 */
#include "sim/oracle_check.h"

enum { CALLS = 256 };

struct seen {
    int32_t action;
    uint64_t old, bit; /* bit: what it added; 0: nothing */
    bool told;         /* old is valid */
};
struct word {
    const struct random_run *run;
    struct oracle_verdict *v;
    int32_t target, peer, word, count;
    uint64_t may; /* calls that may have taken effect */
    struct seen call[CALLS];
};

static const struct random_action *action_of(const struct word *w, const struct seen *s)
{
    return &w->run->p->action[s->action];
}

/* Whether this rank had waited for the fence when it made the later call. */
static bool was_waited_for(const struct random_run *run, int32_t fence, int32_t before)
{
    const struct random_program *p = run->p;
    for (int32_t i = fence + 1; i < before && run->outcome[fence] == COMM_OK; i++) {
        if (p->action[i].rank == p->action[fence].rank && p->action[i].verb == RANDOM_HOST_WAIT &&
            p->action[i].target == p->action[fence].id)
            return true;
    }
    return false;
}

/* Whether the call on action `later` came behind a fence that the rank of `earlier` made after that one. */
static bool fence_between(const struct word *w, const struct seen *earlier, const struct seen *later)
{
    const struct random_program *p = w->run->p;
    const struct random_action *a = action_of(w, earlier), *b = action_of(w, later);
    for (int32_t i = 0; i < later->action; i++) {
        const struct random_action *fence = &p->action[i];
        if (fence->verb != RANDOM_WINDOW_FENCE || fence->rank != b->rank || fence->target != w->target ||
            !was_waited_for(w->run, i, later->action))
            continue;
        if (random_find(p, fence->id, a->rank, p->actions) > earlier->action)
            return true;
    }
    return false;
}

static void collect(struct word *w)
{
    const struct random_run *run = w->run;
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        if (a->verb != RANDOM_ATOMIC || a->target != w->target || a->peer != w->peer || a->tag != w->word || !run->entered[i])
            continue;
        uint64_t bit = random_adds(a) ? UINT64_C(1) << a->key : 0;
        bool told = run->outcome[i] == COMM_OK && !(a->flags & RANDOM_NO_REQUEST) && a->op != RANDOM_ACCUMULATE;
        uint64_t old = told ? random_word_get(w->word, run->atomic[i].old) : 0;
        if (told && a->op == RANDOM_COMPARE_SWAP && old != run->atomic[i].expects)
            bit = 0;
        w->may |= bit;
        if (w->count < CALLS)
            w->call[w->count++] = (struct seen){i, old, bit, told};
    }
}

static void judge_one(struct word *w, const struct seen *s)
{
    if (s->old & ~w->may)
        oracle_say(w->v, w->run, s->action, "I2: word %d of rank %d held %llx, but only %llx can have been added", w->word, w->peer,
                   (unsigned long long)s->old, (unsigned long long)w->may);
    else if (s->old & s->bit)
        oracle_say(w->v, w->run, s->action, "I2: word %d of rank %d held %llx, in which the call itself is", w->word, w->peer,
                   (unsigned long long)s->old);
}

/* Whether the second saw everything that the first saw and did. */
static bool saw(const struct seen *first, const struct seen *second)
{
    return !((first->old | first->bit) & ~second->old);
}

static void judge_two(struct word *w, const struct seen *first, const struct seen *second)
{
    bool same = action_of(w, first)->rank == action_of(w, second)->rank;
    if (!saw(first, second) && !saw(second, first))
        oracle_say(w->v, w->run, second->action, "I2: word %d of rank %d held %llx, and %llx at statement %d: neither came first", w->word,
                   w->peer, (unsigned long long)second->old, (unsigned long long)first->old, action_of(w, first)->id);
    if ((same || fence_between(w, first, second)) && !saw(first, second))
        oracle_say(w->v, w->run, second->action, "I2: word %d of rank %d held %llx, without statement %d, which came before", w->word,
                   w->peer, (unsigned long long)second->old, action_of(w, first)->id);
}

/* What it saw and did or, if that is unknown, what it did in any case: nothing is known of a compare_swap whose result
 * was requested too late. */
static uint64_t must_hold(const struct word *w, const struct seen *s)
{
    if (s->told)
        return s->old | s->bit;
    return w->run->strict && action_of(w, s)->op != RANDOM_COMPARE_SWAP ? s->bit : 0;
}

/* The word at the end, as its owner saw it behind the last fence: in a run without failures, all calls that took effect
 * and no more. */
static void judge_end(struct word *w)
{
    const struct random_run *run = w->run;
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        if (a->verb != RANDOM_WINDOW_FREE || a->rank != w->peer || a->target != w->target || run->outcome[i] != COMM_OK)
            continue;
        uint64_t end = random_word_get(w->word, run->part[i] + w->word * RANDOM_WORD_BYTES), must = 0;
        for (int32_t k = 0; k < w->count; k++)
            must |= must_hold(w, &w->call[k]);
        if ((end & must) != must || (end & ~w->may))
            oracle_say(w->v, run, i, "I2: in the end word %d holds %llx, must hold %llx and may %llx", w->word, (unsigned long long)end,
                       (unsigned long long)must, (unsigned long long)w->may);
    }
}

static void judge_word(struct word *w)
{
    collect(w);
    for (int32_t i = 0; i < w->count && !w->v->failed; i++) {
        if (!w->call[i].told)
            continue;
        judge_one(w, &w->call[i]);
        for (int32_t k = 0; k < i && !w->v->failed; k++) {
            if (w->call[k].told)
                judge_two(w, &w->call[k], &w->call[i]);
        }
    }
    judge_end(w);
}

void window_check(const struct random_run *run, struct oracle_verdict *v)
{
    static struct word w;
    for (int32_t i = 0; i < run->p->actions && !v->failed; i++) {
        const struct random_action *a = &run->p->action[i];
        bool first = a->verb == RANDOM_WINDOW;
        for (int32_t k = 0; k < i && first; k++)
            first = run->p->action[k].verb != RANDOM_WINDOW || run->p->action[k].id != a->id;
        for (int32_t peer = 0; first && peer < run->p->ranks; peer++) {
            for (int32_t word = 0; word < RANDOM_WORDS && !v->failed; word++) {
                w = (struct word){.run = run, .v = v, .target = a->id, .peer = peer, .word = word};
                judge_word(&w);
            }
        }
    }
}
