/*
 * Windows in random programs, and what can be known of them though ranks update the same word at once. Each call adds a
 * bit of its own to its word, so a word contains the set of the calls that were done before: of any two calls one must
 * have seen the other, and everything that the other saw (oracle_window.c). A compare_swap expects what its rank saw
 * there last, and so may or may not take effect.
 */
#include "sim/random_make.h"
#include "sim/random_run.h"

#include <commstream/window.h>

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ words */
static const struct {
    enum comm_type type;
    int32_t bits, bytes;
} words[RANDOM_WORDS] = {{COMM_I64, 62, 8}, {COMM_U32, 31, 4}, {COMM_F64, 52, 8}, {COMM_U8, 8, 1},    {COMM_I32, 30, 4},
                         {COMM_U64, 63, 8}, {COMM_I16, 14, 2}, {COMM_F32, 23, 4}, {COMM_C128, 40, 16}};

enum comm_type random_word_type(int32_t word)
{
    return words[word].type;
}

int32_t random_word_bits(int32_t word)
{
    return words[word].bits;
}

static void put(int32_t word, uint64_t set, unsigned char at[16])
{
    double wide = (double)set;
    float narrow = (float)set;
    memset(at, 0, 16);
    if (words[word].type == COMM_F64 || words[word].type == COMM_C128)
        memcpy(at, &wide, sizeof wide);
    else if (words[word].type == COMM_F32)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &set, (size_t)words[word].bytes);
}

uint64_t random_word_get(int32_t word, const unsigned char *at)
{
    unsigned char again[16];
    uint64_t set = 0;
    double wide;
    float narrow;
    memcpy(&narrow, at, sizeof narrow);
    if (words[word].type == COMM_F64 || words[word].type == COMM_C128)
        memcpy(&wide, at, sizeof wide);
    else
        wide = (double)narrow;
    if (words[word].type == COMM_F64 || words[word].type == COMM_C128 || words[word].type == COMM_F32)
        set = wide >= 0 && wide < 9e15 ? (uint64_t)wide : UINT64_MAX;
    else
        memcpy(&set, at, (size_t)words[word].bytes);
    put(word, set, again);
    return memcmp(again, at, (size_t)words[word].bytes) == 0 ? set : UINT64_MAX;
}

static bool is_integer(int32_t word)
{
    return words[word].type < COMM_F32;
}

bool random_adds(const struct random_action *a)
{
    return a->op != RANDOM_FETCH;
}

int32_t random_window_of(const struct random_program *p, int32_t index)
{
    int32_t made = random_find(p, p->action[index].target, p->action[index].rank, index);
    return made >= 0 && p->action[made].verb == RANDOM_WINDOW ? made : -1;
}

/* ------------------------------------------------------------------------------------------------------------ made */
static void for_all(struct maker *m, int32_t verb, int32_t comm, int32_t id, int32_t target, int32_t later)
{
    for (int32_t i = 0; i < m->comms.comm[comm].members; i++) {
        struct random_action a = make_action(m, verb, id, m->comms.comm[comm].world[i], comm);
        a.target = target;
        if (later)
            make_later(m, a, later);
        else
            make_add(m, a);
    }
}

/* A new window, which all ranks have before any uses it, and its end. */
static void make_new(struct maker *m)
{
    int32_t comm = make_comm(m), id = make_id(m), w = m->state.windows;
    if (comm < 0 || w == MAKE_WINDOWS)
        return;
    for_all(m, RANDOM_WINDOW, comm, id, -1, 0);
    for_all(m, RANDOM_HOST_WAIT, comm, make_id(m), id, 0);
    m->state.window_comm[w] = comm;
    m->state.window_maker[w] = id;
    m->state.window_left[w] = m->comms.comm[comm].members;
    m->state.windows++;
    for_all(m, RANDOM_WINDOW_FREE, comm, make_id(m), id, m->step + 4 + (int32_t)make_chance(m, 20));
}

static void make_atomic(struct maker *m, int32_t w, int32_t peer, int32_t word)
{
    int32_t comm = m->state.window_comm[w];
    struct random_action a = make_action(m, RANDOM_ATOMIC, make_id(m), make_member(m, comm), comm);
    uint8_t *bits = &m->state.bits[w][peer][word];
    a.target = m->state.window_maker[w];
    a.peer = peer;
    a.tag = word;
    a.op = (int32_t)make_chance(m, RANDOM_ATOMIC_SORTS);
    if (*bits == words[word].bits || (a.op == RANDOM_COMPARE_SWAP && !is_integer(word)))
        a.op = RANDOM_FETCH;
    if (random_adds(&a))
        a.key = (*bits)++;
    a.flags = a.op == RANDOM_ACCUMULATE && make_chance(m, 2) ? RANDOM_NO_REQUEST : make_chance(m, 8) == 0 ? RANDOM_NOTIFY : 0;
    make_add(m, a);
    if (a.op == RANDOM_COMPARE_SWAP || make_chance(m, 4))
        return;
    struct random_action wait = make_action(m, RANDOM_HOST_WAIT, make_id(m), a.rank, comm);
    wait.target = a.id;
    if (!(a.flags & RANDOM_NO_REQUEST))
        make_add(m, wait);
}

void make_window(struct maker *m)
{
    int32_t open[MAKE_WINDOWS], count = 0;
    for (int32_t w = 0; w < m->state.windows; w++) {
        if (m->state.window_left[w] == m->comms.comm[m->state.window_comm[w]].members)
            open[count++] = w;
    }
    if (count == 0 || make_chance(m, 12) == 0) {
        make_new(m);
        return;
    }
    int32_t w = open[make_chance(m, (uint32_t)count)], comm = m->state.window_comm[w], id = make_id(m);
    if (comm < m->state.floor || m->state.life[comm] != MAKE_LIVE || m->state.steps[comm])
        return;
    if (make_chance(m, 4) == 0) {
        for_all(m, RANDOM_WINDOW_FENCE, comm, id, m->state.window_maker[w], 0);
        if (make_chance(m, 4))
            for_all(m, RANDOM_HOST_WAIT, comm, make_id(m), id, 0);
        return;
    }
    int32_t peer = make_member(m, comm), word = (int32_t)make_chance(m, RANDOM_WORDS);
    for (int32_t calls = 1 + (int32_t)make_chance(m, 10); calls > 0; calls--)
        make_atomic(m, w, make_chance(m, 6) ? peer : make_member(m, comm), make_chance(m, 6) ? word : 0);
}

/* ------------------------------------------------------------------------------------------------------------ run */
static struct comm_window *window_of(const struct random_run *run, int32_t index)
{
    int32_t made = random_window_of(run->p, index);
    return made >= 0 && run->outcome[made] == COMM_OK ? run->window[made] : NULL;
}

bool random_window_missing(const struct random_run *run, int32_t index)
{
    int32_t verb = run->p->action[index].verb;
    return (verb == RANDOM_ATOMIC || verb == RANDOM_WINDOW_FENCE || verb == RANDOM_WINDOW_FREE) && !window_of(run, index);
}

/* What this rank knows of the word: the set that its latest call there returned, and that call. */
static uint64_t last_seen(const struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    for (int32_t i = index - 1; i >= 0; i--) {
        const struct random_action *b = &run->p->action[i];
        if (b->verb != RANDOM_ATOMIC || b->rank != a->rank || b->target != a->target || b->peer != a->peer || b->tag != a->tag ||
            b->op == RANDOM_ACCUMULATE || run->outcome[i] != COMM_OK)
            continue;
        uint64_t old = random_word_get(a->tag, run->atomic[i].old);
        bool added = random_adds(b) && (b->op != RANDOM_COMPARE_SWAP || old == run->atomic[i].expects);
        return old == UINT64_MAX ? 0 : added ? old | UINT64_C(1) << b->key : old;
    }
    return 0;
}

static enum comm_result call_atomic(struct random_run *run, int32_t index, struct comm_request *req)
{
    static const comm_op operators[RANDOM_ATOMIC_SORTS] = {COMM_SUM, COMM_BOR, COMM_BXOR, COMM_SUM, COMM_SUM, COMM_NOOP};
    const struct random_action *a = &run->p->action[index];
    const struct random_comm *comm = &run->view[a->rank].comm[a->comm];
    struct random_atomic *at = &run->atomic[index];
    struct comm_window *w = window_of(run, index);
    enum comm_type type = words[a->tag].type;
    int32_t peer = comm->rank_of[a->peer];
    size_t offset = (size_t)a->tag * RANDOM_WORD_BYTES;
    comm_op op = is_integer(a->tag) || a->op == RANDOM_FETCH ? operators[a->op] : COMM_SUM;
    put(a->tag, UINT64_C(1) << a->key, at->from);
    memset(at->old, RANDOM_POISON, sizeof at->old);
    switch (a->op) {
    case RANDOM_ACCUMULATE:
        return comm_accumulate(w, at->from, 1, type, op, peer, offset, req);
    case RANDOM_COMPARE_SWAP:
        at->expects = last_seen(run, index);
        put(a->tag, at->expects, at->expected);
        put(a->tag, at->expects | UINT64_C(1) << a->key, at->from);
        return comm_compare_swap(w, at->expected, at->from, at->old, type, peer, offset, req);
    default:
        return comm_fetch_op(w, at->from, at->old, 1, type, op, peer, offset, req);
    }
}

enum comm_result random_window_call(struct random_run *run, int32_t index, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    if (a->verb == RANDOM_WINDOW)
        return comm_window_create(run->comm[a->comm][a->rank], RANDOM_PART_BYTES, NULL, &run->window[index], req);
    return a->verb == RANDOM_WINDOW_FENCE ? comm_window_fence(window_of(run, index), req) : call_atomic(run, index, req);
}

/* Behind the last fence no rank accesses this rank's part any more. */
static enum comm_result last_look(struct random_run *run, int32_t index, struct comm_window *w)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_request fence = {NULL, 0};
    enum comm_result result = COMM_ERR_FULL;
    void *own = NULL;
    for (int64_t end = run->stage->now() + random_patience(run); result == COMM_ERR_FULL && run->stage->now() < end;) {
        result = comm_window_fence(w, &fence);
        if (result == COMM_ERR_FULL && comm_progress(run->comm[a->comm][a->rank]) == COMM_OK)
            run->stage->spend(20000);
    }
    result = result == COMM_OK ? comm_wait(fence, random_patience(run)) : result;
    if (result == COMM_PENDING)
        random_fail(run, index, "I4: its fence is not complete after %d s", (int)(random_patience(run) / RANDOM_S));
    if (result != COMM_OK)
        return result;
    result = comm_window_pointer(w, run->view[a->rank].comm[a->comm].rank_of[a->rank], &own, NULL);
    if (result == COMM_OK)
        memcpy(run->part[index], own, RANDOM_PART_BYTES);
    return result;
}

void random_window_free(struct random_run *run, int32_t index)
{
    struct comm_window *w = window_of(run, index);
    run->outcome[index] = last_look(run, index, w);
    run->window[random_window_of(run->p, index)] = NULL;
    run->waited[index] = comm_window_free(w);
    if (run->waited[index] == COMM_OK)
        run->waited[index] = run->outcome[index];
}

void random_window_drop(struct random_run *run, int32_t rank)
{
    for (int32_t i = 0; i < run->p->actions; i++) {
        if (run->p->action[i].verb != RANDOM_WINDOW || run->p->action[i].rank != rank)
            continue;
        (void)!comm_window_free(run->window[i]);
        run->window[i] = NULL;
    }
}
