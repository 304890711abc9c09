/*
 * The machine of test_steps.c, which includes this once, behind the kernel: ranks with a mailbox and a device each, whose blocks run one
 * thread at a time in an order that `chance` gives, and whose stores into a mailbox become visible late.
 */
#ifndef STEPS_H
#define STEPS_H

enum { RANKS = 8, THREADS = 8, BLOCKS = 4, LATE = 64, MOST_BYTES = BLOCKS * ONESHOT_PART_BYTES, PATIENCE = 200000, CACHED = 256 };

/* A store that is not visible yet. */
struct late {
    char *to;
    size_t bytes;
    char value[16];
};
struct block {
    struct oneshot_trial_block memory;
    bool begun;
    uint32_t phase, index;
    bool done[THREADS];
    struct late late[LATE];
    uint32_t lates;
};
struct rank {
    struct oneshot_args args;
    struct oneshot_state state;
    uint64_t done, wrong, abort, first;                                 /* first: operations before those that were launched */
    _Alignas(64) char box[ONESHOT_BOX_BYTES], there[ONESHOT_BOX_BYTES]; /* there: memory of its device, for the slots */
    uint32_t rounds;                                                    /* of a trial; 0: it is none */
    uint64_t took;
    struct cached {
        const void *at;
        struct oneshot_piece value;
    } cache[CACHED]; /* what its device has read, if reads may hit its cache */
    uint32_t cached;
    _Alignas(16) char in[RANKS * MOST_BYTES + 16], out[RANKS * MOST_BYTES + 16];
    uint32_t launched, begun, over, room;
    struct block block[BLOCKS];
};
static struct rank rank[RANKS];
static uint32_t ranks;
static struct block *now; /* the block that runs */
static uint64_t chance, ticks;

static uint32_t draw(uint32_t below)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (uint32_t)(chance % below);
}

/* ------------------------------------------------------------------------------------------------------------ the memory */
static void show(struct block *b, uint32_t i)
{
    memcpy(b->late[i].to, b->late[i].value, b->late[i].bytes);
    b->late[i] = b->late[--b->lates];
}

static void show_all(struct block *b)
{
    while (b->lates)
        show(b, draw(b->lates));
}

static void write_late(void *to, const void *from, size_t bytes)
{
    if (now->lates == LATE)
        show(now, draw(LATE));
    struct late *l = &now->late[now->lates++];
    l->to = to;
    l->bytes = bytes;
    memcpy(l->value, from, bytes);
}

static void release(uint64_t *at, uint64_t value)
{
    if (fault == NO_RELEASE) {
        write_late(at, &value, sizeof value);
        return;
    }
    show_all(now);
    *at = value;
}

static uint32_t count(uint32_t *at, uint32_t more)
{
    uint32_t before = *at;

    *at += more;
    for (uint32_t r = 0; fault == FIXED_PARTS && r < ranks; r++)
        if (at == &rank[r].state.ticket)
            return now->index;
    return before;
}

static uint64_t look(const uint64_t *at)
{
    for (uint32_t r = 0; fault == NO_ABORT && r < ranks; r++)
        if (at == &rank[r].abort)
            return 0;
    return *at;
}

static struct cached *cached(const void *at)
{
    struct rank *k = rank;
    uint32_t i = 0;

    while (now < k->block || now >= k->block + BLOCKS)
        k++;
    while (i < k->cached && k->cache[i].at != at)
        i++;
    if (i < k->cached)
        return &k->cache[i];
    k->cached = k->cached == CACHED ? 0 : k->cached;
    k->cache[k->cached] = (struct cached){.at = at};
    return &k->cache[k->cached++];
}

/* With the fault, a read finds what the device has read there before, until other reads take its place. */
static struct oneshot_piece read_piece(const struct oneshot_piece *at)
{
    struct cached *line = fault == WEAK_READS ? cached(at) : NULL;

    if (!line)
        return *at;
    if (!line->value.high && !line->value.low)
        line->value = *at;
    return line->value;
}

static char read_byte(const char *at)
{
    struct cached *line = fault == WEAK_READS ? cached(at) : NULL;

    if (!line)
        return *at;
    if (!line->value.high)
        line->value = (struct oneshot_piece){(unsigned char)*at, 1};
    return (char)line->value.low;
}

/* ------------------------------------------------------------------------------------------------------------ the machine */
static void open_ranks(uint32_t n, uint32_t elements, enum comm_type type, comm_op op)
{
    bool apart = draw(2); /* the slots lie in memory of the devices */

    ranks = n;
    memset(rank, 0, n * sizeof *rank);
    for (uint32_t r = 0; r < n; r++) {
        size_t bytes = elements * fold_bytes((uint32_t)type);
        rank[r].args = (struct oneshot_args){.in = rank[r].in,
                                             .out = rank[r].out,
                                             .state = &rank[r].state,
                                             .done = &rank[r].done,
                                             .wrong = &rank[r].wrong,
                                             .abort = &rank[r].abort,
                                             .base = 1000,
                                             .elements = elements,
                                             .type = (uint32_t)type,
                                             .op = op,
                                             .ranks = n,
                                             .rank = r,
                                             .fingerprint = elements,
                                             .parts = (uint32_t)((bytes + ONESHOT_PART_BYTES - 1) / ONESHOT_PART_BYTES)};
        rank[r].done = rank[r].args.base;
        for (uint32_t k = 0; k < n; k++) {
            rank[r].args.box[k] = rank[k].box;
            rank[r].args.slots[k] = apart ? rank[k].there : rank[k].box;
        }
    }
}

static bool runs(const struct rank *k)
{
    return k->over < k->args.parts && k->launched;
}

/* The blocks begin in an order that the device chooses, and `room` of them run at once. */
static void launch(struct rank *k, uint32_t room)
{
    uint32_t parts = k->args.parts, shift = draw(parts), odd = parts % 2 ? 2 : 1;

    for (uint32_t i = 0; i < parts; i++) {
        show_all(&k->block[i]);
        memset(&k->block[i], 0, sizeof k->block[i]);
        k->block[i].index = parts == 1 ? 0 : (i * odd + shift) % parts;
    }
    k->begun = k->over = 0;
    k->room = room;
    k->launched++;
}

static uint32_t phases(const struct rank *k)
{
    return k->rounds ? k->rounds * ONESHOT_PHASES : ONESHOT_PHASES;
}

static bool step(struct rank *k, struct block *b, uint32_t thread)
{
    struct oneshot_trial trial = {.args = k->args, .took = &k->took, .rounds = k->rounds};

    if (k->rounds)
        return oneshot_try(&trial, &b->memory, b->phase, thread, THREADS);
    return oneshot_step(&k->args, &b->memory.block, b->phase, thread, THREADS);
}

/* One thread tries its phase. */
static void turn(struct rank *k, struct block *b)
{
    uint32_t thread = draw(THREADS), all = 0;

    now = b;
    ticks++;
    while (b->done[thread])
        thread = (thread + 1) % THREADS;
    b->done[thread] = step(k, b, thread);
    for (uint32_t t = 0; t < THREADS; t++)
        all += b->done[t];
    if (all < THREADS)
        return;
    memset(b->done, 0, sizeof b->done);
    if (++b->phase == phases(k))
        k->over++;
    if (k->over == k->args.parts) /* the end of a kernel shows all */
        for (uint32_t i = 0; i < k->args.parts; i++)
            show_all(&k->block[i]);
}

/* Something happens on this rank's device. */
static void happen(struct rank *k)
{
    uint32_t i = draw(k->args.parts);

    if (!runs(k))
        return;
    if (k->begun < k->args.parts && k->begun - k->over < k->room && draw(2)) {
        k->block[k->begun++].begun = true;
        return;
    }
    struct block *b = &k->block[i];
    if (b->lates && draw(3) == 0)
        show(b, draw(b->lates));
    if (b->begun && b->phase < phases(k))
        turn(k, b);
}

#endif
