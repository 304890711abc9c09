/* The workload of collectives: what one rank does, and the judge of runs with faults. */
#include "sim/collectives.h"

#include "program/program.h"
#include "sim/inside.h"
#include "sim/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define CHOICE_NS INT64_C(200000000) /* as in comm/fail.c */
#define MINUTE (60 * SECOND)

void deeds_sample(struct deeds *d, uint64_t seed, int32_t ranks, uint32_t count, size_t largest, enum deed_kind kinds)
{
    static const enum comm_type types[] = {COMM_F32, COMM_I32, COMM_F64, COMM_BF16, COMM_U8};
    uint64_t s = seed ^ UINT64_C(0xc2b2ae3d27d4eb4f);

    memset(d, 0, sizeof *d);
    d->seed = seed;
    d->ranks = ranks;
    d->count = count < DEEDS_MAX ? count : DEEDS_MAX;
    d->depth = 1 + (uint32_t)sim_below(&s, 16);
    d->gates = sim_below(&s, 2);
    for (uint32_t i = 0; i < d->count; i++) {
        size_t most = sim_below(&s, 4) ? 16 : sim_below(&s, 4) ? 2000 : largest;
        d->deed[i] = (struct deed){.kind = (enum deed_kind)sim_below(&s, kinds),
                                   .type = types[sim_below(&s, 5)],
                                   .op = sim_below(&s, 2) ? COMM_SUM : COMM_MAX,
                                   .root = (int32_t)sim_below(&s, (uint64_t)ranks),
                                   .n = sim_below(&s, most + 1),
                                   .seed = sim_draw(&s)};
    }
}

enum deed_kind deed_of(uint32_t collective)
{
    uint32_t kind = 0;

    while (kind < DEED_KINDS && strcmp(deed_names[kind], collective_name(collective)) != 0)
        kind++;
    return (enum deed_kind)kind;
}

/* ------------------------------------------------------------------------------------------------------------ a rank */
static bool bad(struct deeds *d, int32_t rank, struct comm_communicator *c, enum comm_result r, const char *what)
{
    if (r == COMM_OK)
        return false;
    if (d->result[rank] == COMM_OK) {
        d->result[rank] = r;
        d->error[rank].size = sizeof d->error[rank];
        if (c && comm_error_detail(c, &d->error[rank]) != COMM_OK)
            d->error[rank].text[0] = 0;
        d->ended_ns[rank] = sim_now();
        sim_note((uint64_t)(int64_t)r);
    }
    SIM_CHECK(d->faults, "%s said %s: %s", what, comm_result_name(r), d->error[rank].text);
    return true;
}

static bool finish(struct deeds *d, int32_t rank, struct comm_communicator *c, struct deed_part *p)
{
    sim_doing(deed_names[p->deed->kind], p->number);
    if (p->refused)
        return true;
    if (bad(d, rank, c, comm_wait(p->request, 10 * MINUTE), "wait"))
        return false;
    deed_verify(d, p, rank);
    d->right[rank]++;
    return true;
}

void deeds_main(int32_t rank, void *arg)
{
    struct deeds *d = arg;
    struct comm_communicator *c = NULL;
    struct deed_part *part = sim_take(d->count * sizeof *part);
    uint32_t first = 0;
    bool going;

    sim_doing("open", 0);
    if (bad(d, rank, NULL, sim_open(NULL, &c), "open"))
        return;
    d->opened[rank] = going = true;
    d->opened_ns[rank] = sim_now();
    for (uint32_t i = 0; i < d->count && going; i++) {
        deed_prepare(&part[i], &d->deed[i], rank, d->ranks);
        part[i].number = i + 1;
        sim_doing(deed_names[d->deed[i].kind], i + 1);
        if (!d->plain && sim_random() % 16 == 0)
            sim_spend((int64_t)(sim_random() % 1000000));
        if (d->gates && i > first && !part[i - 1].refused && sim_random() % 4 == 0)
            (void)!comm_queue_wait_request(c, part[i - 1].request);
        enum comm_result said = deed_issue(&part[i], c, rank);
        part[i].refused = d->may_refuse && said == COMM_ERR_UNSUPPORTED;
        going = part[i].refused || !bad(d, rank, c, said, "the call");
        d->called[rank] = !going;
        for (; going && i + 1 - first >= 1 + (d->plain ? d->depth : sim_random() % d->depth); first++)
            going = finish(d, rank, c, &part[first]);
    }
    for (; first < d->count && going; first++)
        going = finish(d, rank, c, &part[first]);
    sim_doing("close", d->count);
    enum comm_result r = comm_close(c, MINUTE);
    (void)bad(d, rank, NULL, r, "close");
    if (r == COMM_OK)
        SIM_CHECK(sim_memory_held(rank) == 0, "%lld bytes are not given back", (long long)sim_memory_held(rank));
}

/* ------------------------------------------------------------------------------------------------------------ the judge */
static bool has_broken_link(const struct deeds *d, int32_t rank)
{
    bool broken = false;

    for (int32_t r = 0; r < d->ranks; r++)
        broken |= sim_link_broken(rank, r);
    return broken;
}

/* I6: a rank may be reported as down only if it was killed, or stood still for as long as that takes. */
static bool blamed_wrongly(const struct deeds *d, int32_t rank)
{
    const struct comm_error *e = &d->error[rank];

    return d->opened[rank] && e->result == COMM_ERR_PEER && e->rank >= 0 && !sim_is_dead(e->rank) &&
           sim_stood_still_ns(e->rank) < 25 * SECOND && !has_broken_link(d, e->rank);
}

/* 4.5: a death on this host is reported within a second. Not counted: the time in which a rank that had to report it
 * stood still, or in which nothing arrived from a rank that found it. */
static bool told_late(const struct deeds *d, int32_t rank)
{
    const struct comm_error *e = &d->error[rank];
    int64_t from = d->opened_ns[rank];

    if (e->result != COMM_ERR_PEER || e->rank < 0 || !sim_is_dead(e->rank) ||
        sim_faults_of(SIM_FAULT_BIT(SIM_PAUSE) | SIM_FAULT_BIT(SIM_SLOW)))
        return false;
    from = from > sim_died_ns(e->rank) ? from : sim_died_ns(e->rank);
    if (e->peer >= 0 && sim_link_clear_ns(e->peer, rank) > from)
        from = sim_link_clear_ns(e->peer, rank);
    if (d->hosts > 1) /* each member below, which may be dead too, gets time to choose the cause */
        from += (d->ranks + 1) * CHOICE_NS;
    return from + SECOND < d->ended_ns[rank];
}

static bool same_error(const struct comm_error *a, const struct comm_error *b)
{
    return a->result == b->result && a->rank == b->rank && a->sequence == b->sequence && !strcmp(a->operation, b->operation) &&
           !strcmp(a->text, b->text);
}

static const char *const fault_names[SIM_FAULT_KINDS] = {"kill", "pause", "slow",    "memory", "again", "clog",
                                                         "cut",  "reset", "corrupt", "jump",   "stale", "replay"};

static void tell_results(const struct deeds *d, const struct sim_result *result)
{
    for (size_t i = 0; i < result->fault_count; i++) {
        const struct sim_fault *f = &result->fault[i];
        printf("  fault %s at event %llu: rank %d, peer %d, %u times, %.3f ms\n", fault_names[f->kind], (unsigned long long)f->event,
               f->victim, f->peer, f->amount, (double)f->ns / 1e6);
    }
    for (int32_t r = 0; r < d->ranks; r++)
        printf("  rank %d: %s%s %u right, %s %s\n", r, sim_is_dead(r) ? "died, " : "", comm_result_name(d->result[r]), d->right[r],
               d->called[r] ? "at the call" : "", d->error[r].text);
}

bool deeds_judge(const struct deeds *d, struct sim_result *result)
{
    int32_t first = -1;

    if (getenv("COMM_SIM_RESULTS"))
        tell_results(d, result);

    for (int32_t r = 0; r < d->ranks && !result->failed; r++) {
        const struct comm_error *e = &d->error[r];
        if (sim_is_dead(r) || d->result[r] == COMM_OK || !d->opened[r])
            continue;
        if (blamed_wrongly(d, r))
            sim_failed("rank %d blames rank %d, which lives: %s", r, e->rank, e->text);
        if (told_late(d, r))
            sim_failed("rank %d was told of rank %d's death after %lld ms", r, e->rank,
                       (long long)((d->ended_ns[r] - sim_died_ns(e->rank)) / 1000000));
        if (d->result[r] == COMM_PENDING || d->result[r] == COMM_ERR_TIMEOUT)
            sim_failed("rank %d was never told why its call %u does not end", r, d->right[r] + 1);
        if (d->called[r] || d->hosts > 1) /* a refusal of its own; across hosts each rank keeps the first cause that it learns */
            continue;
        if (first >= 0 && !same_error(&d->error[first], e))
            sim_failed("ranks %d and %d were told differently:\n  %s\n  %s", first, r, d->error[first].text, e->text);
        first = first < 0 ? r : first;
    }
    return !result->failed && sim_judge_end(result);
}
