/* The memory that C11 promises, and nothing stronger: every word keeps its old values, and every thread the values that
 * it can no longer miss. */
#include "model/memory.h"

#include <stdio.h>
#include <string.h>

enum {
    RELAXED = __ATOMIC_RELAXED,
    ACQUIRE = __ATOMIC_ACQUIRE,
    RELEASE = __ATOMIC_RELEASE,
    SC = __ATOMIC_SEQ_CST,
    GRAIN = 4,
    SAMPLED = 64,
    SAMPLED_FROM = 1024,
    PAGE = 4096
};

struct knower {
    struct view now;      /* what this thread cannot miss */
    struct view read;     /* what an acquire fence would add: everything that it has read */
    struct view released; /* at its last release fence */
    struct view light;    /* at its last signal fence: what another thread's barrier sees of it */
    struct view due;      /* learned from other threads' barriers; known from the next signal fence on */
    struct {
        uint16_t word, value;
    } reads[MEMORY_READS];
    uint32_t read_count;
};

/* For GRAIN bytes: when each thread last read or wrote them, plainly or atomically. */
struct shadow {
    uint32_t run;
    uint16_t plain_read[MODEL_THREADS], plain_write[MODEL_THREADS], read[MODEL_THREADS], write[MODEL_THREADS];
};

static _Alignas(4096) char arena[MEMORY_ARENA];
static char kept[MEMORY_ARENA];
static size_t used, used_first;
static bool dirty[MEMORY_ARENA / PAGE]; /* written in this run */
static struct shadow shadows[MEMORY_ARENA / GRAIN];
static struct word words[MEMORY_WORDS];
static struct knower knowers[MODEL_THREADS];
static struct view fences; /* of all seq_cst fences so far */
static uint32_t word_count, threads, run_number;

/* ------------------------------------------------------------------------------------------------------------ the arena */
bool memory_owns(uintptr_t address)
{
    return address >= (uintptr_t)arena && address < (uintptr_t)arena + sizeof arena;
}

void *memory_take(size_t bytes, size_t align)
{
    size_t start = (used + align - 1) & ~(align - 1);
    if (start + bytes > sizeof arena)
        return NULL;
    used = start + bytes;
    memset(dirty + start / PAGE, 1, (used - 1) / PAGE - start / PAGE + 1);
    return memset(arena + start, 0, bytes);
}

void memory_keep(void)
{
    memcpy(kept, arena, used);
    used_first = used;
}

void memory_restore(void)
{
    for (size_t page = 0; page * PAGE < used; page++)
        if (dirty[page])
            memcpy(arena + page * PAGE, kept + page * PAGE, PAGE);
    memset(dirty, 0, used / PAGE + 1);
    used = used_first;
}

void memory_reset(uint32_t count)
{
    word_count = 0;
    threads = count;
    run_number++;
    memset(&fences, 0, sizeof fences);
    memset(knowers, 0, sizeof knowers);
    for (uint32_t t = 0; t < count; t++)
        knowers[t].now.clock[t] = 1;
}

/* ------------------------------------------------------------------------------------------------------------ views */
static void join(struct view *to, const struct view *from)
{
    for (uint32_t i = 0; i < word_count; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
    for (uint32_t i = 0; i < threads; i++)
        to->clock[i] = to->clock[i] > from->clock[i] ? to->clock[i] : from->clock[i];
}

/* Only coherence: an earlier fence alone makes no happens-before. */
static void join_values(struct view *to, const struct view *from)
{
    for (uint32_t i = 0; i < word_count; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
}

/* ------------------------------------------------------------------------------------------------------------ words */
static uint64_t fetch(uintptr_t address, uint32_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, (const void *)address, bytes);
    return value;
}

static void put(uintptr_t address, uint32_t bytes, uint64_t value)
{
    memcpy((void *)address, &value, bytes);
    if (memory_owns(address))
        dirty[(address - (uintptr_t)arena) / PAGE] = true;
}

static uint32_t word_of(uintptr_t address, uint32_t bytes)
{
    uint32_t i = 0;
    while (i < word_count && words[i].address != address)
        i++;
    struct word *w = &words[i];
    if (i == word_count) {
        if (i == MEMORY_WORDS)
            model_fail("more than %d atomic words", MEMORY_WORDS);
        word_count++;
        w->address = address;
        w->bytes = bytes;
        w->count = 1;
        w->first = w->last_sc = 0;
        w->written = false;
        w->values[0] = (struct value){.value = fetch(address, bytes)};
        for (uint32_t k = 0; k < MODEL_THREADS; k++)
            knowers[k].now.at[i] = knowers[k].read.at[i] = knowers[k].released.at[i] = knowers[k].light.at[i] = knowers[k].due.at[i] = 0;
        fences.at[i] = 0;
    } else if (w->bytes != bytes) {
        model_fail("a word of %u bytes is accessed as one of %u", w->bytes, bytes);
    } else if (w->written) { /* races were checked; an access here comes after the plain write */
        w->written = false;
        w->first = w->count;
        w->values[w->count++] = (struct value){.value = fetch(address, bytes)};
        w->values[w->first].released.at[i] = (uint16_t)w->first;
    }
    if (w->count >= MEMORY_VALUES - 1)
        model_fail("more than %d values of one word", MEMORY_VALUES);
    return i;
}

/* ------------------------------------------------------------------------------------------------------------ races */
static void check_shadow(uint32_t thread, uintptr_t address, bool write, bool plain)
{
    struct shadow *s = &shadows[(address - (uintptr_t)arena) / GRAIN];
    const struct view *now = &knowers[thread].now;
    bool first = s->run != run_number; /* the first use in this run, which most are of long copies */
    if (first)
        *s = (struct shadow){.run = run_number};
    for (uint32_t t = 0; !first && t < threads; t++) {
        bool races = s->plain_write[t] > now->clock[t] || (write && s->plain_read[t] > now->clock[t]) ||
                     (plain && s->write[t] > now->clock[t]) || (plain && write && s->read[t] > now->clock[t]);
        if (t != thread && races)
            model_fail("a race: thread %u %s %s%s, which thread %u used with nothing between", thread, write ? "writes" : "reads",
                       memory_name(address), plain ? "" : " atomically", t);
    }
    uint16_t *mine = plain ? (write ? s->plain_write : s->plain_read) : (write ? s->write : s->read);
    mine[thread] = now->clock[thread];
}

void memory_plain(uint32_t thread, uintptr_t address, size_t bytes, bool write)
{
    if (!bytes || !memory_owns(address))
        return;
    size_t step = bytes > SAMPLED_FROM ? SAMPLED : GRAIN; /* for a long copy, one grain per line: the rest is in the same state */
    for (uintptr_t at = address & ~(uintptr_t)(step - 1); at < address + bytes; at += step)
        check_shadow(thread, at, write, true);
    for (uintptr_t at = address - (uintptr_t)arena; write && at < address - (uintptr_t)arena + bytes + PAGE - 1; at += PAGE)
        dirty[(at < address - (uintptr_t)arena + bytes ? at : address - (uintptr_t)arena + bytes - 1) / PAGE] = true;
    for (uint32_t i = 0; write && i < word_count; i++)
        words[i].written |= words[i].address < address + bytes && words[i].address + words[i].bytes > address;
}

/* ------------------------------------------------------------------------------------------------------------ loads and stores */
static void learn(struct knower *k, uint32_t w, uint32_t value, int order)
{
    const struct view *released = &words[w].values[value].released;
    join(&k->read, released);
    if (order != RELAXED && order != RELEASE)
        join(&k->now, released);
    if (k->now.at[w] < value)
        k->now.at[w] = (uint16_t)value;
}

static uint32_t oldest_for(const struct knower *k, uint32_t w, bool sc)
{
    uint32_t oldest = k->now.at[w];
    if (sc && fences.at[w] > oldest)
        oldest = fences.at[w];
    if (sc && words[w].last_sc > oldest)
        oldest = words[w].last_sc;
    return oldest < words[w].first ? words[w].first : oldest;
}

static void remember_read(struct knower *k, uint32_t w, uint32_t value)
{
    uint32_t i = 0;
    while (i < k->read_count && k->reads[i].word != w)
        i++;
    if (i == MEMORY_READS)
        model_fail("a loop that waits reads more than %d words", MEMORY_READS);
    k->reads[i].word = (uint16_t)w;
    k->reads[i].value = (uint16_t)value;
    k->read_count = i == k->read_count ? i + 1 : k->read_count;
}

static uint64_t load(uint32_t thread, uint32_t w, int order, bool sc)
{
    struct knower *k = &knowers[thread];
    uint32_t newest = words[w].count - 1, value = newest - explore_choose(newest - oldest_for(k, w, sc) + 1);
    learn(k, w, value, order);
    remember_read(k, w, value);
    return words[w].values[value].value;
}

static void store(uint32_t thread, uint32_t w, uint64_t new, int order, bool sc, const struct view *sequence)
{
    struct knower *k = &knowers[thread];
    struct word *word = &words[w];
    uint16_t number = (uint16_t)word->count++;
    struct value *v = &word->values[number];
    k->now.at[w] = k->read.at[w] = number;
    v->value = new;
    v->released = order == RELAXED || order == ACQUIRE ? k->released : k->now;
    if (sequence) /* a read-modify-write continues the release sequence of what it read */
        join(&v->released, sequence);
    v->released.at[w] = number;
    if (sc)
        word->last_sc = number;
    for (uint32_t i = 0; i < k->read_count; i++) /* own stores are not new */
        k->reads[i].value = k->reads[i].word == w ? number : k->reads[i].value;
    put(word->address, word->bytes, new);
}

static uint64_t changed(const struct op *op, uint64_t old)
{
    switch (op->change) {
    case CHANGE_ADD:
        return old + op->operand;
    case CHANGE_SUB:
        return old - op->operand;
    case CHANGE_AND:
        return old & op->operand;
    case CHANGE_OR:
        return old | op->operand;
    case CHANGE_XOR:
        return old ^ op->operand;
    default:
        return op->operand;
    }
}

static uint64_t cut(uint64_t value, uint32_t bytes)
{
    return bytes >= 8 ? value : value & ((UINT64_C(1) << 8 * bytes) - 1);
}

/* Reads the newest value, because nothing may come in between. A failed comparison is a load. */
static uint64_t change(uint32_t thread, uint32_t w, struct op *op)
{
    struct knower *k = &knowers[thread];
    uint32_t newest = words[w].count - 1;
    uint64_t old = words[w].values[newest].value;
    if (op->change == CHANGE_COMPARE && old != cut(op->expected, op->bytes)) {
        learn(k, w, newest, op->order_failed);
        remember_read(k, w, newest);
        return old;
    }
    op->succeeded = true;
    learn(k, w, newest, op->order);
    remember_read(k, w, newest + 1);
    struct view sequence = words[w].values[newest].released;
    store(thread, w, cut(changed(op, old), op->bytes), op->order, op->sc, &sequence);
    return old;
}

uint64_t memory_atomic(uint32_t thread, struct op *op)
{
    struct knower *k = &knowers[thread];
    uint64_t old = 0;
    bool writes = op->kind != MODEL_LOAD;
    uint32_t w = word_of(op->address, op->bytes);
    if (op->kind == MODEL_LOAD)
        old = load(thread, w, op->order, op->sc);
    else if (op->kind == MODEL_CHANGE)
        old = change(thread, w, op);
    if (memory_owns(op->address)) /* after what a load has acquired */
        check_shadow(thread, op->address & ~(uintptr_t)(GRAIN - 1), writes, false);
    if (op->kind == MODEL_STORE)
        store(thread, w, cut(op->operand, op->bytes), op->order, op->sc, NULL);
    k->now.clock[thread]++;
    k->read.clock[thread] = k->now.clock[thread];
    return old;
}

uint64_t memory_constant(const struct op *op)
{
    return fetch(op->address, op->bytes);
}

/* ------------------------------------------------------------------------------------------------------------ fences */
void memory_signal_fence(uint32_t thread)
{
    struct knower *k = &knowers[thread];
    join_values(&k->now, &k->due);
    k->light = k->now;
}

void memory_fence(uint32_t thread, int order)
{
    struct knower *k = &knowers[thread];
    if (order != RELAXED && order != RELEASE)
        join(&k->now, &k->read);
    if (order == SC) {
        join_values(&k->now, &fences);
        for (uint32_t i = 0; i < word_count; i++)
            k->now.at[i] = k->now.at[i] > words[i].last_sc ? k->now.at[i] : words[i].last_sc;
        join_values(&fences, &k->now);
    }
    if (order != RELAXED && order != ACQUIRE)
        k->released = k->now;
    memory_signal_fence(thread);
    k->now.clock[thread]++;
}

/* Each other thread is interrupted between two of its instructions: everything before its last signal fence has been
 * done by then, and everything after its next one is done later. */
void memory_barrier(uint32_t thread)
{
    struct knower *k = &knowers[thread];
    memory_fence(thread, SC);
    for (uint32_t t = 0; t < threads; t++)
        if (t != thread)
            join_values(&knowers[t].due, &k->now);
    for (uint32_t t = 0; t < threads; t++)
        if (t != thread)
            join_values(&k->now, &knowers[t].light);
    memory_fence(thread, SC);
}

/* ------------------------------------------------------------------------------------------------------------ waiting */
bool memory_changed(uint32_t thread)
{
    const struct knower *k = &knowers[thread];
    for (uint32_t i = 0; i < k->read_count; i++)
        if (words[k->reads[i].word].count - 1 > k->reads[i].value || words[k->reads[i].word].written)
            return true;
    return false;
}

/* Stores become visible eventually. */
void memory_refresh(uint32_t thread)
{
    struct knower *k = &knowers[thread];
    for (uint32_t i = 0; i < k->read_count; i++)
        k->now.at[k->reads[i].word] = (uint16_t)(words[k->reads[i].word].count - 1);
    k->read_count = 0;
}

void memory_meet(uint32_t thread, struct view *at, bool give)
{
    struct knower *k = &knowers[thread];
    join(&k->now, at);
    if (give)
        join(at, &k->now);
    k->now.clock[thread]++;
}
