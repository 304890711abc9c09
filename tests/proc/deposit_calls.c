/*
 * Results that a peer stores in this rank's memory are correct together with any other operations: random calls in groups, plans and
 * communicators of two ranks, of any length. They are also complete when the line says so, which stores past the cache do not guarantee by
 * themselves.
 */
#define _GNU_SOURCE
#include "data/data.h"
#include "proc/proc.h"
#include "channel/shmchan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, RANKS = 2, WORDS = 1 << 19, PATTERN = 0x5a };

static int64_t stores; /* stores for which a place was given */

enum wire_result __real_shmchan_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad);
enum wire_result __wrap_shmchan_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad);

enum wire_result __wrap_shmchan_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    enum wire_result r = __real_shmchan_reserve(channel, e, bytes, pad);

    stores += r == WIRE_LANDING;
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ stores past the cache */
/* One rank stores half a line past the cache and announces it by an ordinary store, many times. The other rank looks as soon as it sees the
 * announcement. An incomplete line waits in the CPU's write-combining buffer. If the writer does not drain it, the other rank finds stale
 * data as soon as both run at the same time. A thread switch would drain it, so each rank has a CPU of its own. */
enum { HALF_LINE = 16, TURNS = 1 << 20, TURNS_LEAST = 1500, NO_TURN_MORE = INT32_MAX };
struct drain {
    data_reduce_fn *reduce;
    _Alignas(64) _Atomic int32_t said;
    _Alignas(64) _Atomic int32_t seen;
    _Alignas(64) uint16_t line[2 * HALF_LINE]; /* bf16 is the only type whose vectors leave a line half full with every instruction set */
};
#ifndef DRAIN_SECONDS
static const int64_t DRAIN_NS = 300 * RIG_MS;
#else
/* for a planted fault, the test runs longer: on a busy machine the two ranks seldom run at the same time */
static const int64_t DRAIN_NS = DRAIN_SECONDS * RIG_S;
#endif

static void take_cpu(int32_t rank)
{
    cpu_set_t all, one;

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (size_t cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || seen++ != (size_t)(rank % CPU_COUNT(&all)))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    }
}

/* Seldom yields: the CPU is not the other rank's, and next to other work the two would run at the same time even less often. */
static int32_t await_turn(const _Atomic int32_t *turn, int32_t wanted)
{
    int32_t there;

    for (uint32_t i = 1; (there = atomic_load_explicit(turn, memory_order_acquire)) < wanted; i++)
        if (i % 1000000 == 0)
            sched_yield();
    return there;
}

/* A number below 256, which bf16 represents exactly. Consecutive turns have different numbers. */
static uint16_t word_of(int32_t turn)
{
    float number = (float)(turn % 251 + 1);
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void store_lines(struct drain *d)
{
    uint16_t in[HALF_LINE];
    const void *from[] = {in};
    struct data_reduce reduce = {.from = from, .ways = 1, .to = d->line, .elements = HALF_LINE, .final = true, .nontemporal = true};
    int64_t end = rig_now() + DRAIN_NS;

    for (int32_t i = 1; i <= TURNS && (i <= TURNS_LEAST || i % 64 || rig_now() < end); i++) {
        for (int k = 0; k < HALF_LINE; k++)
            in[k] = word_of(i);
        await_turn(&d->seen, i - 1);
        d->reduce(&reduce);
        atomic_store_explicit(&d->said, i, memory_order_release);
    }
    atomic_store_explicit(&d->said, NO_TURN_MORE, memory_order_release);
}

static void look_at_lines(struct drain *d)
{
    for (int32_t i = 1; await_turn(&d->said, i) != NO_TURN_MORE; i++) {
        if (d->line[0] != word_of(i) || d->line[HALF_LINE - 1] != word_of(i))
            rig_die(__FILE__, __LINE__, "store %d past the cache is not there when it is said to be", i);
        atomic_store_explicit(&d->seen, i, memory_order_release);
    }
}

static void drain_of(void *arg, int32_t rank)
{
    take_cpu(rank);
    if (rank == 0)
        store_lines(arg);
    else
        look_at_lines(arg);
}

RIG_TEST(stores_past_the_cache_are_there_when_told)
{
    static struct drain drain;
    cpu_set_t cpus;

    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    if (CPU_COUNT(&cpus) < 2)
        rig_skip("one CPU, whose changes of threads drain its stores");
    for (int isa = DATA_SCALAR; isa <= (int)data_isa_best(); isa++) {
        drain.reduce = data_reducer(COMM_BF16, COMM_SUM, (enum data_isa)isa);
        atomic_store(&drain.said, 0);
        atomic_store(&drain.seen, 0);
        rig_note("%s", data_isa_name((enum data_isa)isa));
        rig_threads(2, drain_of, &drain);
    }
}

/* ------------------------------------------------------------------------------------------------------------ random calls */
enum { SLOTS = 5, MOST = (1 << 20) + 2 * PAGE, LINES = 4, MODES = 3 };
enum { WORLD, COPY, PAIR, PAIR_COPY };
enum mode { MODE_PLAIN, MODE_GROUP, MODE_PLAN };

struct slot {
    char *memory[2][2]; /* [in, out][from malloc, from comm_mem_alloc] */
    char *in, *out;
    struct comm_communicator *c;
    struct comm_request req;
    enum comm_type type;
    size_t n;
};
struct caller {
    struct comm_communicator *line[LINES];
    struct slot slot[SLOTS];
    uint32_t alike, own; /* seeds of the values that all ranks draw alike, and of those that each draws itself */
    int32_t rank;
};

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*seed * below >> 32);
}

static size_t width_of(enum comm_type type)
{
    return type == COMM_U8 ? 1 : type == COMM_BF16 ? 2 : type == COMM_I64 ? 8 : 4;
}

/* Sums of these values are exact in all types. */
static uint64_t value(const struct caller *s, size_t i, uint32_t round)
{
    return (i * 7 + round * 3 + (uint64_t)(s->rank % 2)) % 61;
}

static void store_value(const struct slot *slot, char *at, size_t i, uint64_t value)
{
    bool real = slot->type == COMM_F32 || slot->type == COMM_BF16;
    float number = (float)value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    if (real)
        value = slot->type == COMM_BF16 ? bits >> 16 : bits;
    memcpy(at + i * width_of(slot->type), &value, width_of(slot->type));
}

static uint64_t stored_value(const struct slot *slot, size_t i)
{
    bool real = slot->type == COMM_F32 || slot->type == COMM_BF16;
    uint64_t value = 0;
    float number;

    memcpy(&value, slot->out + i * width_of(slot->type), width_of(slot->type));
    uint32_t bits = (uint32_t)(slot->type == COMM_BF16 ? value << 16 : value);
    memcpy(&number, &bits, sizeof number);
    return real ? (uint64_t)number : value;
}

/* Whole pages, pages plus a rest, or few bytes. */
static size_t length_of(struct caller *s, enum comm_type type)
{
    size_t pages = (size_t)(1 + draw(&s->alike, MOST / PAGE - 2)) * PAGE, rest = draw(&s->alike, PAGE);
    uint32_t what = draw(&s->alike, 4);

    return (what == 0                         ? rest + 8
            : what == 1                       ? pages + rest
            : pages & ~(size_t)(4 * PAGE - 1) ? pages & ~(size_t)(4 * PAGE - 1)
                                              : pages) /
           width_of(type);
}

/* Each rank draws the addresses of its buffers itself; some are not at the start of a page. */
static void draw_slot(struct caller *s, struct slot *slot, struct comm_communicator *c)
{
    static const enum comm_type types[] = {COMM_U8, COMM_I32, COMM_I64, COMM_F32, COMM_BF16};

    slot->type = types[draw(&s->alike, sizeof types / sizeof *types)];
    slot->n = length_of(s, slot->type);
    slot->c = c;
    bool in_place = draw(&s->alike, 3) == 0;
    slot->in = slot->memory[0][draw(&s->own, 4) != 0] + (draw(&s->own, 8) == 0 ? 64 : 0);
    slot->out = slot->memory[1][draw(&s->own, 4) != 0] + (draw(&s->own, 8) == 0 ? 64 : draw(&s->own, 2) * PAGE);
    slot->in = in_place ? slot->out : slot->in;
}

static void fill(const struct caller *s, struct slot *slot, uint32_t round)
{
    if (slot->in != slot->out)
        memset(slot->out, PATTERN, slot->n * width_of(slot->type));
    for (size_t i = 0; i < slot->n; i++)
        store_value(slot, slot->in, i, value(s, i, round));
}

/* On every line, even and odd ranks alternate. */
static void check(const struct caller *s, const struct slot *slot, uint32_t round)
{
    uint64_t ranks = (uint64_t)comm_size(slot->c), odd = ranks / 2;

    for (size_t i = 0; i < slot->n; i++) {
        uint64_t sum = 0;
        for (int32_t r = 0; r < 2; r++)
            sum += (r ? odd : ranks - odd) * ((i * 7 + round * 3 + (uint64_t)r) % 61);
        if (stored_value(slot, i) != sum)
            rig_die(__FILE__, __LINE__, "rank %d, round %u: element %zu of %zu is %llu, must be %llu", s->rank, round, i, slot->n,
                    (unsigned long long)stored_value(slot, i), (unsigned long long)sum);
    }
}

static enum comm_result call(const struct slot *slot, struct comm_communicator *on, struct comm_request *req)
{
    return comm_allreduce(on, slot->in == slot->out ? COMM_IN_PLACE : slot->in, slot->out, slot->n, slot->type, COMM_SUM, req);
}

static void run_plain(struct caller *s, uint32_t round)
{
    for (int k = 0; k < SLOTS; k++) {
        draw_slot(s, &s->slot[k], s->line[draw(&s->alike, LINES)]);
        fill(s, &s->slot[k], round);
        MUST(call(&s->slot[k], s->slot[k].c, &s->slot[k].req));
    }
    for (int k = 0; k < SLOTS; k++)
        MUST(comm_wait(s->slot[k].req, RIG_PATIENCE));
}

static void record(struct caller *s, uint32_t round, struct comm_communicator *c, struct comm_communicator *recorder)
{
    for (int k = 0; k < SLOTS; k++) {
        draw_slot(s, &s->slot[k], c);
        fill(s, &s->slot[k], round);
        MUST(call(&s->slot[k], recorder, NULL));
    }
}

static void run_group(struct caller *s, uint32_t round)
{
    struct comm_communicator *c = s->line[draw(&s->alike, LINES)], *recorder;
    struct comm_request req;

    MUST(comm_group_begin(c, &recorder));
    record(s, round, c, recorder);
    MUST(comm_group_end(recorder, &req));
    MUST(comm_wait(req, RIG_PATIENCE));
}

static void run_plan(struct caller *s, uint32_t round)
{
    struct comm_communicator *c = s->line[draw(&s->alike, LINES)], *recorder;
    struct comm_request req;
    struct comm_plan *plan;

    MUST(comm_plan_begin(c, &recorder));
    record(s, round, c, recorder);
    MUST(comm_plan_end(recorder, &plan));
    for (int start = 0; start < 2; start++) {
        for (int k = 0; k < SLOTS; k++)
            fill(s, &s->slot[k], round);
        MUST(comm_plan_start(plan, &req));
        MUST(comm_wait(req, RIG_PATIENCE));
        for (int k = 0; k < SLOTS; k++)
            check(s, &s->slot[k], round);
    }
    comm_plan_free(plan);
}

static void open_lines(struct caller *s, struct comm_communicator *world)
{
    struct comm_request req[3];
    int32_t pair[2] = {s->rank & ~1, s->rank | 1}; /* with an odd number of ranks, the last one is alone */

    s->line[WORLD] = world;
    MUST(comm_dup(world, NULL, &s->line[COPY], &req[0]));
    MUST(comm_subset(world, pair, pair[1] < comm_size(world) ? 2 : 1, 5, &s->line[PAIR], &req[1]));
    MUST(comm_wait(req[1], RIG_PATIENCE));
    MUST(comm_dup(s->line[PAIR], NULL, &s->line[PAIR_COPY], &req[2]));
    MUST(comm_wait(req[0], RIG_PATIENCE));
    MUST(comm_wait(req[2], RIG_PATIENCE));
}

static void programs_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static void (*const run[MODES])(struct caller *, uint32_t) = {run_plain, run_group, run_plan};
    uint32_t seed = (uint32_t)(uintptr_t)proc->place;
    struct caller s = {.alike = seed, .own = seed * 31u + (uint32_t)rank, .rank = rank};

    open_lines(&s, world);
    for (int k = 0; k < 2 * SLOTS; k++) {
        void *at;
        MUST(comm_mem_alloc(world, MOST, &at));
        s.slot[k / 2].memory[k % 2][1] = at;
        CHECK((s.slot[k / 2].memory[k % 2][0] = malloc(MOST)) != NULL);
    }
    for (uint32_t round = 0; round < (selected(30, 12, 6)); round++) {
        run[draw(&s.alike, MODES)](&s, round);
        for (int k = 0; k < SLOTS; k++)
            check(&s, &s.slot[k], round);
    }
    for (int k = 0; k < 2 * SLOTS; k++)
        free(s.slot[k / 2].memory[k % 2][0]);
    atomic_store(&proc->page[rank].number[0], stores);
    for (int i = LINES - 1; i >= 0; i--)
        MUST(comm_close(s.line[i], RIG_PATIENCE));
}

RIG_TEST(random_calls_beside_stored_results)
{
    static const char *const options[] = {"", "minimal=1,window=4", "chunk=8192"};
    enum { OPTIONS = sizeof options / sizeof *options };

    proc_needs_shm();
    for (uint32_t i = 0; i < (selected(9, 5, 3)); i++) {
        struct proc proc = {.options = options[i % OPTIONS], .place = (void *)(uintptr_t)(i + 1)};
        rig_note("seed %u, options \"%s\"", i + 1, options[i % OPTIONS]);
        proc_start(&proc, 2 + (int32_t)(i / 3 % 3), programs_main);
        proc_finish(&proc, -1, 5 * RIG_PATIENCE);
        CHECK(atomic_load(&proc.page[0].number[0]) > 0); /* the peer stored some results */
    }
}

/* ------------------------------------------------------------------------------------------------------------ lengths */
/* Odd lengths work too: slices begin where pages may. */
static void odd_main(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static const int32_t lengths[] = {300001, 200003, 100019}; /* no half of them is near the end of a page */
    struct comm_request req;
    void *at;

    MUST(comm_mem_alloc(world, WORDS * sizeof(int32_t), &at));
    for (int k = 0; k < 9; k++) {
        int32_t n = lengths[k % 3], *x = at;
        for (int32_t i = 0; i < n; i++)
            x[i] = i + rank;
        MUST(comm_allreduce(world, COMM_IN_PLACE, x, (size_t)n, COMM_I32, COMM_SUM, &req));
        MUST(comm_wait(req, RIG_PATIENCE));
        for (int32_t i = 0; i < n; i++)
            EQUAL(x[i], 2 * i + 1);
    }
    atomic_store(&proc->page[rank].number[0], stores);
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(odd_lengths_are_stored_too)
{
    struct proc proc = {.options = ""};

    proc_needs_shm();
    proc_start(&proc, RANKS, odd_main);
    proc_finish(&proc, -1, RIG_PATIENCE);
    for (int32_t r = 0; r < RANKS; r++)
        CHECK(atomic_load(&proc.page[r].number[0]) > 0);
}

/* With a name (or a pattern) as argument: runs only that test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_past_the_cache_are_there_when_told),
        cmocka_unit_test(random_calls_beside_stored_results),
        cmocka_unit_test(odd_lengths_are_stored_too),
    };
    return cmocka_run_group_tests_name("proc_deposit_calls", tests, NULL, NULL);
}
