/*
 * A workload: programs that continue after failures. Steps of sums, agreements and shrinks are drawn from the seed.
 * Ranks are killed, stopped, cut off, slowed down, denied memory, or revoke the communicator that they work on. The
 * steps are the same on all ranks, and what ranks do next depends only on what they have agreed on. So a rank that was
 * told something different makes a different call, and is detected. Judged afterwards: all ranks that return from an
 * agreement have the same word, made of each rank's contribution; all ranks that have a shrunk communicator have the
 * same one; and no rank is left out that lives, is reachable and has not left.
 */
#include "sim/recovery.h"

#include "sim/inside.h"
#include "sim/threads.h"
#include "now.h"

#include <string.h>

enum { RANKS_MOST = 8, STEPS_MOST = 6, EACH_MOST = 10, AGREEMENTS = STEPS_MOST * EACH_MOST, GENERATIONS = STEPS_MOST + 1, LONG = 3000 };
enum { TRIES = 200 };
#define SECOND INT64_C(1000000000)
#define LINKS                                                                                                                              \
    (SIM_FAULT_BIT(SIM_CUT) | SIM_FAULT_BIT(SIM_RESET) | SIM_FAULT_BIT(SIM_CORRUPT) | SIM_FAULT_BIT(SIM_REPLAY) | SIM_FAULT_BIT(SIM_CLOG))

/* What a rank saw of one communicator; generation 0 is the world. */
struct seen {
    uint32_t mask;    /* its members, as ranks of the world; 0: this rank never had it */
    uint32_t entered; /* agreements */
    uint32_t agreed;  /* of these, the successful ones */
    uint64_t value[AGREEMENTS];
};
static struct recovery {
    uint64_t seed;
    int32_t ranks, steps;
    bool dense; /* almost all steps are agreements */
    struct seen seen[RANKS_MOST][GENERATIONS];
    bool left[RANKS_MOST]; /* it was told that the others continue without it */
    bool through[RANKS_MOST];
} run;

/* One step, the same on all ranks. */
struct step {
    int32_t sums, revoker, agreements;
    bool shrinks, apart; /* apart: with a request, and with steps of its own in between */
    int64_t spends;
    uint32_t subset; /* ranks of the communicator that create one of their own; 0: none */
    uint32_t tag;
};

static struct step draw_step(uint64_t *s)
{
    struct step step = {.sums = (int32_t)sim_below(s, 6), .agreements = 1 + (int32_t)sim_below(s, 3)};

    if (run.dense)
        step = (struct step){.sums = (int32_t)sim_below(s, 2), .agreements = 3 + (int32_t)sim_below(s, EACH_MOST - 2)};
    step.revoker = (int32_t)sim_below(s, (uint64_t)run.ranks * 3);
    step.shrinks = sim_below(s, 3) == 0;
    step.apart = sim_below(s, 2) == 0;
    step.subset = sim_below(s, 3) ? 0 : (uint32_t)sim_below(s, UINT64_C(1) << run.ranks);
    step.tag = (uint32_t)sim_below(s, 3);
    step.spends = (int64_t)sim_below(s, 4) * 100000;
    return step;
}

static uint64_t bit_of(int32_t rank)
{
    return UINT64_C(1) << (8 + rank);
}

static enum comm_result sums(struct comm_communicator *c, int32_t count)
{
    int32_t *in = sim_take(2 * LONG * sizeof *in), *out = in + LONG, size = comm_size(c);
    enum comm_result r = COMM_OK;

    for (int32_t i = 0; i < count && r == COMM_OK; i++) {
        struct comm_request request;
        size_t n = i % 3 == 1 ? LONG : 1 + (size_t)i;
        in[0] = in[n - 1] = comm_rank(c) + i;
        r = comm_allreduce(c, in, out, n, COMM_I32, COMM_SUM, &request);
        if (r == COMM_OK)
            r = comm_wait(request, COMM_FOREVER);
        int32_t want = size * (size - 1) / 2 + size * i;
        SIM_CHECK(r != COMM_OK || (out[0] == want && out[n - 1] == want), "a sum on %d ranks is %d, must be %d", size, out[0], want);
    }
    return r;
}

/* Some ranks create a communicator of their own; the others do not take part. If one of them cannot, it fails all of
 * them, because they would wait for it. */
static bool subset(struct comm_communicator *c, const struct step *step)
{
    struct comm_communicator *some = NULL;
    int32_t ranks[RANKS_MOST], me = comm_rank(c);
    size_t count = 0;

    for (int32_t r = 0; r < comm_size(c); r++)
        if (step->subset >> r & 1)
            ranks[count++] = r;
    if (!(step->subset >> me & 1))
        return true;
    sim_doing("subset", step->subset);
    enum comm_result r = NOW(comm_subset, c, ranks, count, step->tag, &some);
    SIM_CHECK((r == COMM_OK) == (some != NULL), "subset said %s, and %s communicator", comm_result_name(r), some ? "gave a" : "no");
    if (r == COMM_OK) {
        SIM_CHECK(comm_size(some) == (int32_t)count, "a subset of %zu ranks has %d", count, comm_size(some));
        r = sums(some, 3);
        (void)comm_close(some, COMM_DEFAULT_TIMEOUT);
    }
    if (r != COMM_OK)
        SIM_CHECK(comm_revoke(c) == COMM_OK, "revoke");
    return r == COMM_OK;
}

/* MEMORY means that it failed on all ranks, or that nothing had happened: in both cases the call is repeated. */
static enum comm_result shrink(struct comm_communicator *c, struct comm_communicator **next, bool apart)
{
    struct comm_request request;
    enum comm_result r = COMM_ERR_MEMORY;

    for (int32_t tries = 0; r == COMM_ERR_MEMORY && tries < TRIES; tries++) {
        r = comm_shrink(c, next, &request);
        for (int i = 0; apart && r == COMM_OK && i < 3; i++) {
            SIM_CHECK(comm_progress(c) != COMM_ERR_STATE, "no progress");
            sim_spend(20000);
        }
        if (r == COMM_OK)
            r = comm_wait(request, COMM_FOREVER);
    }
    SIM_CHECK((r == COMM_OK) == (*next != NULL), "shrink said %s, and %s communicator", comm_result_name(r), *next ? "gave a" : "no");
    return r;
}

static enum comm_result agree(struct comm_communicator *c, uint64_t *flags)
{
    uint64_t given = *flags;
    enum comm_result r = COMM_ERR_MEMORY;

    for (int32_t tries = 0; r == COMM_ERR_MEMORY && tries < TRIES; tries++)
        r = NOW(comm_agree, c, flags);
    SIM_CHECK(r == COMM_OK || *flags == given, "agree said %s and changed the flags", comm_result_name(r));
    return r;
}

/* Only a rank that stood still or was cut off may be told that it is out. */
static void is_out(int32_t rank, enum comm_result r, const char *what)
{
    bool suspect = sim_stood_still_ns(rank) > 15 * SECOND || sim_faults_of(LINKS);

    SIM_CHECK(r == COMM_ERR_PEER && suspect, "%s said %s", what, comm_result_name(r));
    SIM_PROBE("recovery: a rank learns that it was given up");
    run.left[rank] = true;
}

static uint32_t members_of(struct comm_communicator *c, struct comm_communicator *world)
{
    uint32_t mask = 0;

    for (int32_t r = 0; r < comm_size(c); r++)
        mask |= UINT32_C(1) << comm_translate(c, r, world);
    return mask;
}

/* True: ranks continue with the communicator; *well: and it need not be replaced. */
static bool agree_on(struct comm_communicator *c, int32_t rank, const struct step *step, int32_t generation, bool *well)
{
    struct seen *seen = &run.seen[rank][generation];
    bool mine = *well;

    for (int32_t i = 0; i < step->agreements; i++) {
        uint64_t flags = ~bit_of(rank) & ~(uint64_t)(i == 0 && !mine);
        seen->entered++;
        sim_doing("agree", seen->entered);
        enum comm_result r = agree(c, &flags);
        if (r != COMM_OK) {
            is_out(rank, r, "agree");
            return false;
        }
        seen->value[seen->agreed++] = flags;
        if (i == 0)
            *well = flags & 1;
    }
    return true;
}

static struct comm_communicator *do_step(struct comm_communicator *c, struct comm_communicator *world, int32_t rank,
                                         const struct step *step, int32_t *generation)
{
    struct comm_communicator *next = NULL;

    sim_doing("sums", (uint64_t)*generation);
    sim_spend(step->spends);
    bool well = sums(c, step->sums) == COMM_OK;
    if (step->subset)
        well &= subset(c, step);
    if (step->revoker == rank)
        SIM_CHECK(comm_revoke(c) == COMM_OK, "revoke");
    if (!agree_on(c, rank, step, *generation, &well) || (well && !step->shrinks))
        return c;
    sim_doing("shrink", (uint64_t)*generation);
    enum comm_result r = shrink(c, &next, step->apart);
    if (r != COMM_OK) {
        is_out(rank, r, "shrink");
        return c;
    }
    if (c != world)
        (void)comm_close(c, COMM_DEFAULT_TIMEOUT);
    run.seen[rank][++*generation].mask = members_of(next, world);
    return next;
}

static void recovery_main(int32_t rank, void *arg)
{
    uint64_t s = run.seed;
    struct comm_communicator *world = NULL, *c;
    int32_t generation = 0;

    (void)arg;
    sim_doing("open", 0);
    if (sim_open(NULL, &world) != COMM_OK) {
        SIM_CHECK(sim_faults_of(UINT32_MAX), "open failed");
        run.left[rank] = true;
        return;
    }
    c = world;
    run.seen[rank][0].mask = (UINT32_C(1) << run.ranks) - 1;
    for (int32_t i = 0; i < run.steps && !run.left[rank]; i++) {
        struct step step = draw_step(&s);
        c = do_step(c, world, rank, &step, &generation);
    }
    run.through[rank] = !run.left[rank];
    sim_doing("close", 0);
    if (c != world)
        (void)comm_close(c, COMM_DEFAULT_TIMEOUT);
    (void)comm_close(world, COMM_DEFAULT_TIMEOUT);
    SIM_CHECK(sim_memory_held(rank) == 0, "%lld bytes are not given back", (long long)sim_memory_held(rank));
}

/* ------------------------------------------------------------------------------------------------------------ the verdict */
/* Whether p and q must have seen the same of this communicator: always, unless links broke and they ended apart. */
static bool together(int32_t p, int32_t q, int32_t generation)
{
    const struct seen *a = &run.seen[p][generation + 1], *b = &run.seen[q][generation + 1];

    return !sim_faults_of(LINKS) || (generation + 1 < GENERATIONS && a->mask >> q & 1 && b->mask >> p & 1);
}

static void judge_pair(int32_t p, int32_t q, int32_t g)
{
    const struct seen *a = &run.seen[p][g], *b = &run.seen[q][g];
    uint32_t both = a->agreed < b->agreed ? a->agreed : b->agreed;

    if (a->mask != b->mask && (!sim_faults_of(LINKS) || (a->mask >> q & 1 && b->mask >> p & 1)))
        sim_failed("uniformity: communicator %d has the members %x on rank %d, on rank %d %x", g, a->mask, p, q, b->mask);
    for (uint32_t i = 0; i < both && a->mask == b->mask && together(p, q, g); i++) {
        if (a->value[i] != b->value[i])
            sim_failed("uniformity: agreement %u on communicator %d is %llx on rank %d, on rank %d %llx", i, g,
                       (unsigned long long)a->value[i], p, q, (unsigned long long)b->value[i]);
        if (a->value[i] & bit_of(q))
            sim_failed("validity: agreement %u on communicator %d leaves out what rank %d gave", i, g, q);
    }
}

/* The word contains only contributions of ranks, and no rank is left out without reason. */
static void judge_rank(int32_t p, int32_t g)
{
    const struct seen *mine = &run.seen[p][g];

    for (int32_t r = 0; r < run.ranks; r++) {
        const struct seen *theirs = &run.seen[r][g];
        for (uint32_t i = 0; i < mine->agreed; i++)
            if (!(mine->value[i] & bit_of(r)) && theirs->entered <= i)
                sim_failed("validity: agreement %u on communicator %d has what rank %d never gave", i, g, r);
        bool was = g > 0 && run.seen[p][g - 1].mask >> r & 1, is = mine->mask >> r & 1;
        bool excused = sim_is_dead(r) || run.left[r] || sim_stood_still_ns(r) > 15 * SECOND || sim_faults_of(LINKS);
        if (was && !is && !excused)
            sim_failed("rank %d is left out of communicator %d, but lives", r, g);
    }
}

static bool judge(struct sim_result *result)
{
    for (int32_t p = 0; p < run.ranks && !result->failed; p++) {
        if (!sim_is_dead(p) && !run.left[p] && !run.through[p])
            sim_failed("rank %d has not come to its end", p);
        for (int32_t g = 0; g < GENERATIONS && run.seen[p][g].mask; g++) {
            judge_rank(p, g);
            for (int32_t q = 0; q < run.ranks; q++)
                if (run.seen[q][g].mask)
                    judge_pair(p, q, g);
        }
    }
    return !result->failed;
}

/* Runs once without a fault to learn how long it takes; then again, with ranks ended or stopped at any point of that.
 * Low ranks, which coordinate, are chosen more often. */
static bool run_dense(struct sim_config *config, uint64_t *s, struct sim_result *result)
{
    struct sim_fault faults[3];
    uint64_t seed = run.seed;

    config->swarm = 0;
    run.dense = true;
    run.steps = 1 + (int32_t)sim_below(s, 3);
    if (!sim_run(config, recovery_main, NULL, result) || !judge(result))
        return false;
    config->faults = faults;
    config->fault_count = 1 + (size_t)sim_below(s, 3);
    for (size_t i = 0; i < config->fault_count; i++) {
        int32_t a = (int32_t)sim_below(s, (uint64_t)run.ranks), b = (int32_t)sim_below(s, (uint64_t)run.ranks);
        faults[i] = (struct sim_fault){.event = result->events / 5 + sim_below(s, result->events), .victim = a < b ? a : b};
        faults[i].kind = sim_below(s, 5) ? SIM_KILL : SIM_PAUSE;
        faults[i].ns = (int64_t)(1 + sim_below(s, 60)) * SECOND;
    }
    run = (struct recovery){.seed = seed, .ranks = run.ranks, .steps = run.steps, .dense = true};
    return sim_run(config, recovery_main, NULL, result) && judge(result) && sim_judge_end(result);
}

bool run_recovery(uint64_t seed, const struct sim_options *options, struct sim_result *result)
{
    uint64_t s = seed ^ UINT64_C(0x2545f4914f6cdd1d);
    struct sim_config config = {.seed = seed, .ranks = 2 + (int32_t)sim_below(&s, RANKS_MOST - 1)};

    if (options->ranks && options->ranks <= RANKS_MOST)
        config.ranks = options->ranks;
    memset(&run, 0, sizeof run);
    run.seed = sim_draw(&s);
    run.ranks = config.ranks;
    run.steps = 1 + (int32_t)sim_below(&s, STEPS_MOST);
    switch (options->faults ? sim_below(&s, 5) : 0) {
    case 0:
        break;
    case 1:
    case 2:
        config.swarm = SIM_FAULT_BIT(SIM_KILL) | SIM_FAULT_BIT(SIM_SLOW) | SIM_FAULT_BIT(SIM_AGAIN);
        break;
    case 3:
        config.swarm = SIM_FAULT_BIT(SIM_KILL) | SIM_FAULT_BIT(SIM_PAUSE) | SIM_FAULT_BIT(SIM_SLOW) | SIM_FAULT_BIT(SIM_MEMORY);
        break;
    default:
        config.swarm = SIM_FAULT_BIT(SIM_KILL) | LINKS;
        config.wire = SIM_WIRE_FRAMES;
    }
    if (sim_below(&s, 3) == 0) {
        config.wire = SIM_WIRE_FRAMES;
        config.hosts = 1 + (int32_t)sim_below(&s, (uint64_t)config.ranks);
    }
    config.swarm |= config.swarm ? SIM_FAULT_BIT(SIM_STALE) : 0;
    config.swarm_events = UINT64_C(200) << sim_below(&s, 9);
    if (options->faults && sim_below(&s, 2) == 0)
        return run_dense(&config, &s, result);
    return sim_run(&config, recovery_main, NULL, result) && judge(result) && sim_judge_time(result) && sim_judge_end(result);
}
