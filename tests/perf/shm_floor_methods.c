/*
 * A vector goes through a window of a few chunks, which stay in the caches because they are used again at once. Where a method is DIRTY,
 * who has read a line of the window writes a word of it before it gives the line back: some processors hand a modified line to its next
 * writer several times faster than one that two caches share. In place, and by swapping, the answer is written over the question, which
 * does the same for nothing. Counters only grow, and both ranks count alike, so there is no barrier.
 */
#include "shm_floor_methods.h"
#include <string.h>
#if defined(__x86_64__)
#    include <immintrin.h>
#endif

static void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static void await(const struct counter *counter, uint64_t least)
{
    while (atomic_load_explicit(&counter->value, memory_order_acquire) < least)
        relax();
}

static void show(struct counter *counter, uint64_t value)
{
    atomic_store_explicit(&counter->value, value, memory_order_release);
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ------------------------------------------------------------------------------------------------------------ lines */
/* Lengths above a line's are multiples of two lines. The conditions of `how` do not change within a loop, so the compiler takes them out.
 */
typedef float vector __attribute__((vector_size(LINE), aligned(4), may_alias));
#define AT(address) (*(vector *)(uintptr_t)(address))
#define EACH_LINE(i, bytes) for (size_t i = 0; i < (bytes); i += LINE)

static inline void put(char *at, const vector *v, unsigned how)
{
#if defined(__AVX512F__)
    if (how & PAST) {
        _mm512_stream_ps((float *)(void *)at, (__m512)*v);
        return;
    }
#else
    (void)how;
#endif
    AT(at) = *v;
}

static inline void dirty(char *line, unsigned how)
{
    if (how & DIRTY)
        *(volatile uint32_t *)(void *)line = 0;
}

/* Stores past the cache are seen after those that follow, unless there is a fence. */
static void settle(unsigned how)
{
#if defined(__AVX512F__)
    if (how & PAST)
        _mm_sfence();
#else
    (void)how;
#endif
}

static void stage(char *to, const char *from, size_t bytes)
{
    EACH_LINE(i, bytes)
    AT(to + i) = AT(from + i);
}

static void take(char *to, char *from, size_t bytes, unsigned how)
{
    EACH_LINE(i, bytes)
    {
        vector v = AT(from + i);
        put(to + i, &v, how);
        dirty(from + i, how);
    }
    settle(how);
}

/* to = x + slot */
static void add(char *to, const char *x, char *slot, size_t bytes, unsigned how)
{
    EACH_LINE(i, bytes)
    {
        vector sum = AT(x + i) + AT(slot + i);
        put(to + i, &sum, how);
        dirty(slot + i, how);
    }
    settle(how);
}

/* to = slot = x + slot */
static void add_in_place(char *to, const char *x, char *slot, size_t bytes, unsigned how)
{
    EACH_LINE(i, bytes)
    {
        vector sum = AT(x + i) + AT(slot + i);
        AT(slot + i) = sum;
        put(to + i, &sum, how);
    }
    settle(how);
}

/* mine = slot = in */
static void stage_and_keep(char *mine, char *slot, const char *in, size_t bytes, unsigned how)
{
    EACH_LINE(i, bytes)
    {
        vector v = AT(in + i);
        AT(slot + i) = v;
        put(mine + i, &v, how);
    }
    settle(how);
}

/* theirs = slot, slot = mine = in */
static void swap(char *theirs, char *slot, char *mine, const char *in, size_t bytes, unsigned how)
{
    EACH_LINE(i, bytes)
    {
        vector was = AT(slot + i), v = AT(in + i);
        AT(slot + i) = v;
        put(theirs + i, &was, how);
        put(mine + i, &v, how);
    }
    settle(how);
}

/* ------------------------------------------------------------------------------------------------------------ methods: one line */
/* Number and data in one line, in each direction that has data: the other waits for the number. */
const char *exchange(struct rank *rank, const char *in, size_t bytes)
{
    uint32_t number = ++rank->lines;
    struct line *mine = &rank->mine->line[number % LINES];
    const struct line *theirs = &rank->theirs->line[number % LINES];
    memcpy(mine->data, in, bytes);
    atomic_store_explicit(&mine->number, number, memory_order_release);
    while (atomic_load_explicit(&theirs->number, memory_order_acquire) != number)
        relax();
    return theirs->data;
}

static void sum_of_lines(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    (void)method;
    const char *theirs = exchange(rank, in, bytes);
    for (size_t i = 0; i < bytes; i += sizeof(float)) {
        float x, y;
        memcpy(&x, in + i, sizeof x);
        memcpy(&y, theirs + i, sizeof y);
        x += y;
        memcpy(out + i, &x, sizeof x);
    }
}

static void both_lines(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    (void)method;
    memcpy(out + rank->index * bytes, in, bytes);
    memcpy(out + !rank->index * bytes, exchange(rank, in, bytes), bytes);
}

/* The root does not wait, except for a line to become free: the other shows in `done` how many it has read. One line more is free then,
 * for an exchange that may follow. */
static void line_of_root(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    (void)method;
    uint32_t number = ++rank->lines;
    struct line *line = &(rank->index ? rank->theirs : rank->mine)->line[number % LINES];
    if (rank->index == 0) {
        await(&rank->theirs->done, rank->chunks + 2 > LINES ? rank->chunks + 2 - LINES : 0);
        memcpy(line->data, in, bytes);
        atomic_store_explicit(&line->number, number, memory_order_release);
    } else {
        while (atomic_load_explicit(&line->number, memory_order_acquire) != number)
            relax();
        memcpy(out, line->data, bytes);
    }
    show(&rank->mine->done, ++rank->chunks);
}

/* ------------------------------------------------------------------------------------------------------------ methods: chunks */
/* A vector, or the part of it that goes through one rank's window. */
struct part {
    size_t at, bytes, chunk, count;
};

static struct part part_of(size_t at, size_t bytes, const struct method *method)
{
    size_t chunk = least_of(method->chunk, bytes);
    return (struct part){.at = at, .bytes = bytes, .chunk = chunk, .count = (bytes + chunk - 1) / chunk};
}

static size_t begin_of(const struct part *part, size_t k)
{
    return part->at + k * part->chunk;
}

static size_t length_of(const struct part *part, size_t k)
{
    return least_of(part->chunk, part->bytes - k * part->chunk);
}

static char *slot_of(const struct rank *rank, struct side *side, const struct method *method, size_t k)
{
    return side->window + (rank->chunks + k) % method->slots * method->chunk;
}

/* Chunk k may be staged when the peer is done with the one that had its slot. */
static void await_slot(const struct rank *rank, const struct method *method, size_t k)
{
    uint64_t number = rank->chunks + k;
    await(&rank->theirs->done, number < method->slots ? 0 : number - method->slots + 1);
}

static void give_chunk(struct rank *rank, const struct method *method, const struct part *part, const char *in, size_t k)
{
    await_slot(rank, method, k);
    stage(slot_of(rank, rank->mine, method, k), in + begin_of(part, k), length_of(part, k));
    show(&rank->mine->staged, rank->chunks + k + 1);
}

static void take_chunk(struct rank *rank, const struct method *method, const struct part *part, char *out, size_t k)
{
    await(&rank->theirs->staged, rank->chunks + k + 1);
    take(out + begin_of(part, k), slot_of(rank, rank->theirs, method, k), length_of(part, k), method->how);
    show(&rank->mine->done, rank->chunks + k + 1);
}

static void broadcast_chunks(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    struct part part = part_of(0, bytes, method);
    for (size_t k = 0; k < part.count; k++) {
        if (rank->index == 0)
            give_chunk(rank, method, &part, in, k);
        else
            take_chunk(rank, method, &part, out, k);
    }
    rank->chunks += part.count;
}

/* Each reads all of the other's, one chunk behind what it has staged. */
static void allreduce_chunks(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    struct part part = part_of(0, bytes, method);
    for (size_t k = 0, staged = 0; k < part.count; k++) {
        for (; staged < part.count && staged < k + 2; staged++)
            give_chunk(rank, method, &part, in, staged);
        await(&rank->theirs->staged, rank->chunks + k + 1);
        add(out + begin_of(&part, k), in + begin_of(&part, k), slot_of(rank, rank->theirs, method, k), length_of(&part, k), method->how);
        show(&rank->mine->done, rank->chunks + k + 1);
    }
    rank->chunks += part.count;
}

static void allgather_chunks(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    struct part part = part_of(0, bytes, method);
    char *mine = out + rank->index * bytes, *theirs = out + !rank->index * bytes;
    for (size_t k = 0, staged = 0; k < part.count; k++) {
        for (; staged < part.count && staged < k + 2; staged++) {
            await_slot(rank, method, staged);
            size_t at = begin_of(&part, staged);
            stage_and_keep(mine + at, slot_of(rank, rank->mine, method, staged), in + at, length_of(&part, staged), method->how & PAST);
            show(&rank->mine->staged, rank->chunks + staged + 1);
        }
        take_chunk(rank, method, &part, theirs, k);
    }
    rank->chunks += part.count;
}

/* Half of the vector in each direction. `stage` puts a chunk into this rank's window, `answer` reads it from the other's and leaves an
 * answer in its place, and `fetch` reads the answer, one chunk behind: the slot is free by then, so nobody waits for one. */
struct halves {
    void (*stage)(const struct halves *, size_t at, char *slot, size_t bytes);
    void (*answer)(const struct halves *, size_t at, char *slot, size_t bytes);
    void (*fetch)(const struct halves *, size_t at, char *slot, size_t bytes);
    const char *in;
    char *mine, *theirs; /* where what is this rank's goes in the output, and what is the other's */
    size_t gives, takes; /* where the half begins that goes through this rank's window, and the other */
    unsigned how;
};

static void by_halves(struct rank *rank, const struct method *method, const struct halves *halves, size_t half)
{
    struct part part = part_of(0, half, method);
    for (size_t staged = 0, answered = 0, fetched = 0; fetched < part.count; fetched++) {
        for (; answered < part.count && answered < fetched + 2; answered++) {
            for (; staged < part.count && staged < answered + 2 && staged < fetched + method->slots; staged++) {
                halves->stage(halves, halves->gives + begin_of(&part, staged), slot_of(rank, rank->mine, method, staged),
                              length_of(&part, staged));
                show(&rank->mine->staged, rank->chunks + staged + 1);
            }
            await(&rank->theirs->staged, rank->chunks + answered + 1);
            halves->answer(halves, halves->takes + begin_of(&part, answered), slot_of(rank, rank->theirs, method, answered),
                           length_of(&part, answered));
            show(&rank->mine->done, rank->chunks + answered + 1);
        }
        await(&rank->theirs->done, rank->chunks + fetched + 1);
        halves->fetch(halves, halves->gives + begin_of(&part, fetched), slot_of(rank, rank->mine, method, fetched),
                      length_of(&part, fetched));
    }
    rank->chunks += part.count;
}

static void stage_half(const struct halves *halves, size_t at, char *slot, size_t bytes)
{
    stage(slot, halves->in + at, bytes);
}

static void sum_half(const struct halves *halves, size_t at, char *slot, size_t bytes)
{
    add_in_place(halves->mine + at, halves->in + at, slot, bytes, halves->how);
}

static void stage_and_keep_half(const struct halves *halves, size_t at, char *slot, size_t bytes)
{
    stage_and_keep(halves->mine + at, slot, halves->in + at, bytes, halves->how);
}

static void swap_half(const struct halves *halves, size_t at, char *slot, size_t bytes)
{
    swap(halves->theirs + at, slot, halves->mine + at, halves->in + at, bytes, halves->how);
}

static void fetch_half(const struct halves *halves, size_t at, char *slot, size_t bytes)
{
    take(halves->theirs + at, slot, bytes, halves->how);
}

static void allreduce_in_place(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    size_t half = bytes / 2;
    struct halves halves = {stage_half, sum_half, fetch_half, in, out, out, !rank->index * half, rank->index * half, method->how};
    by_halves(rank, method, &halves, half);
}

static void allgather_swap(struct rank *rank, const struct method *method, const char *in, char *out, size_t bytes)
{
    size_t half = bytes / 2;
    char *mine = out + rank->index * bytes, *theirs = out + !rank->index * bytes;
    struct halves halves = {stage_and_keep_half, swap_half,           fetch_half, in, mine, theirs,
                            rank->index * half,  !rank->index * half, method->how};
    by_halves(rank, method, &halves, half);
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
#define SHORT LINE + 1, 64u << 10
#define ANY LINE + 1, SIZE_MAX
#define LONG 512u << 10, SIZE_MAX

const struct collective collectives[COLLECTIVES] = {
    {"allreduce",
     1,
     {{sum_of_lines, 0, LINE_DATA, 0, 0, 0},
      {allreduce_chunks, SHORT, 4096, 4, 0},
      {allreduce_chunks, SHORT, 4096, 4, DIRTY},
      {allreduce_chunks, SHORT, 65536, 8, 0},
      {allreduce_chunks, ANY, 16384, 4, DIRTY},
      {allreduce_in_place, ANY, 4096, 4, 0},
      {allreduce_in_place, ANY, 32768, 4, 0},
      {allreduce_in_place, LONG, 32768, 4, PAST},
      {allreduce_in_place, LONG, 131072, 4, 0},
      {allreduce_in_place, LONG, 131072, 4, PAST}}},
    {"broadcast",
     1,
     {{line_of_root, 0, LINE_DATA, 0, 0, 0},
      {broadcast_chunks, ANY, 4096, 8, DIRTY},
      {broadcast_chunks, ANY, 16384, 8, DIRTY},
      {broadcast_chunks, ANY, 65536, 8, 0},
      {broadcast_chunks, ANY, 65536, 8, DIRTY},
      {broadcast_chunks, LONG, 32768, 4, DIRTY | PAST},
      {broadcast_chunks, LONG, 65536, 8, DIRTY | PAST}}},
    {"allgather",
     2,
     {{both_lines, 0, LINE_DATA, 0, 0, 0},
      {allgather_chunks, SHORT, 4096, 4, DIRTY},
      {allgather_chunks, ANY, 32768, 4, DIRTY},
      {allgather_chunks, SHORT, 65536, 8, 0},
      {allgather_swap, ANY, 4096, 4, 0},
      {allgather_swap, ANY, 32768, 4, 0},
      {allgather_swap, LONG, 65536, 4, PAST},
      {allgather_swap, LONG, 32768, 4, PAST}}},
};
