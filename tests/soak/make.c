/* make: derives a run from its seed. Everything is drawn here before anything runs, so that a run can be described and repeated. */
#define _GNU_SOURCE
#include "soak/soak.h"

#include "conform/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECRET "COMM_SECRET", "0123456789abcdef0123456789abcdef", "COMM_TCP_SEAL", "yes"

const struct soak_wire soak_wires[] = {
    {"shm", "shm", {0}, false, false},
    {"tcp-epoll", "tcp", {"COMM_TCP_POLLER", "epoll"}, false, true},
    {"tcp-io_uring", "tcp", {"COMM_TCP_POLLER", "io_uring"}, true, true},
    {"tcp-sealed-epoll", "tcp", {"COMM_TCP_POLLER", "epoll", SECRET}, false, true},
    {"tcp-sealed-io_uring", "tcp", {"COMM_TCP_POLLER", "io_uring", SECRET}, true, true},
    {"tcp-needed", "tcp", {"COMM_TCP_LINKS", "needed"}, false, true},
    {"hosts-a,b", "shm+tcp", {"COMM_HOST", "a,b"}, false, false},
    {"hosts-a,a,b", "shm+tcp", {"COMM_HOST", "a,a,b", "COMM_TCP_POLLER", "epoll"}, false, false},
    {"hosts-sealed", "shm+tcp", {"COMM_HOST", "a,b,b", SECRET}, false, false},
    {"shm-socket", "shm", {"COMM_SHM_DEATH", "socket"}, false, false},
    {"local", "shm", {0}, false, false},
};
const uint32_t soak_wire_count = sizeof soak_wires / sizeof *soak_wires;

static const char *const step_names[STEP_KINDS] = {"jobs",  "many", "shared", "ring",   "crowd", "window", "queue", "plan",
                                                   "group", "dup",  "split",  "subset", "close", "agree",  "nap"};
static const char *const fault_names[FAULT_KINDS] = {"killed", "exits", "aborts", "pauses", "stops", "calls comm_abort", "turns hostile"};

static uint64_t below(uint64_t *chance, uint64_t most)
{
    return oracle_random(chance) % most;
}

/* All powers of two are equally likely. */
static int64_t spread(uint64_t *chance, int64_t least, int64_t most)
{
    int64_t top = least;
    while (top < most && below(chance, 4))
        top = top * 2 < most ? top * 2 : most;
    return least + (int64_t)below(chance, (uint64_t)(top - least + 1));
}

/* ------------------------------------------------------------------------------------------------------------ steps */
static const uint8_t step_weights[STEP_KINDS] = {8, 3, 3, 4, 3, 5, 2, 2, 2, 3, 2, 2, 2, 2, 1};

static enum soak_step_kind draw_kind(uint64_t *chance)
{
    uint32_t all = 0, k = 0;
    for (uint32_t i = 0; i < STEP_KINDS; i++)
        all += step_weights[i];
    for (uint64_t at = below(chance, all); at >= step_weights[k]; k++)
        at -= step_weights[k];
    return (enum soak_step_kind)k;
}

/* open: slots with a communicator. full: those of them with all ranks in order. */
struct drawing {
    uint64_t chance;
    uint32_t open, full;
};

static int32_t draw_slot(struct drawing *d, uint32_t among)
{
    int32_t slot = (int32_t)below(&d->chance, SOAK_SLOTS);
    while (!(among >> slot & 1))
        slot = (slot + 1) % SOAK_SLOTS;
    return slot;
}

/* Replaces a step that is impossible by a simpler one. */
static enum soak_step_kind possible(const struct soak_program *p, const struct drawing *d, enum soak_step_kind kind)
{
    bool makes = kind == STEP_DUP || kind == STEP_SPLIT || kind == STEP_SUBSET, room = d->open != (1u << SOAK_SLOTS) - 1;
    if ((makes && !room) || (kind == STEP_CLOSE && d->open == 1) || (kind == STEP_QUEUE && d->full == 1) ||
        (kind == STEP_AGREE && !p->recovers))
        return STEP_JOBS;
    return kind;
}

static void draw_step(struct soak_program *p, struct drawing *d, struct soak_step *s)
{
    *s = (struct soak_step){.kind = possible(p, d, draw_kind(&d->chance))};
    s->seed = oracle_random(&d->chance);
    s->slot = draw_slot(d, d->open);
    s->count = 1 + (uint32_t)below(&d->chance, 4);
    s->n = (size_t)spread(&d->chance, 1, 60000);
    s->members = 1 + (uint32_t)below(&d->chance, (UINT64_C(1) << p->ranks) - 1);
    if (s->kind == STEP_MANY)
        s->count = (uint32_t)spread(&d->chance, 2, 200);
    if (s->kind == STEP_CLOSE)
        s->slot = draw_slot(d, d->open & ~1u);
    if (s->kind == STEP_QUEUE)
        s->slot = draw_slot(d, d->full & ~1u);
    if (s->kind == STEP_SPLIT || s->kind == STEP_SUBSET || s->kind == STEP_AGREE)
        s->slot = 0;
    if (s->kind == STEP_CLOSE) {
        d->open &= ~(1u << s->slot);
        d->full &= ~(1u << s->slot);
    } else if (s->kind == STEP_DUP || s->kind == STEP_SPLIT || s->kind == STEP_SUBSET) {
        s->to = draw_slot(d, ~d->open);
        d->open |= 1u << s->to;
        if (s->kind == STEP_DUP)
            d->full |= (d->full >> s->slot & 1) << s->to;
    }
}

/* ------------------------------------------------------------------------------------------------------------ faults */
static enum soak_fault_kind draw_fault_kind(uint64_t *chance, bool hostile)
{
    uint64_t at = below(chance, 1000);
    if (hostile)
        return FAULT_HOSTILE;
    return at < 680   ? FAULT_KILL
           : at < 770 ? FAULT_EXIT
           : at < 840 ? FAULT_ABORT
           : at < 930 ? FAULT_PAUSE
           : at < 935 ? FAULT_STOP
                      : FAULT_COMM_ABORT;
}

static void draw_fault(struct soak_program *p, uint64_t *chance, struct soak_can can, struct soak_fault *f)
{
    uint64_t when = below(chance, 10);

    f->kind = draw_fault_kind(chance, can.hostile);
    f->victim = p->local ? 0 : (int32_t)below(chance, (uint64_t)p->ranks);
    f->step = (int32_t)below(chance, (uint64_t)p->steps + 2);
    f->when = when < 5 ? WHEN_TIMER : when < 6 ? WHEN_CALLS : when < 7 ? WHEN_STEPS : WHEN_FRACTION;
    f->stopped_ns = f->kind == FAULT_PAUSE ? spread(chance, RIG_MS, 200 * RIG_MS) : 6 * RIG_S;
    if (f->when == WHEN_FRACTION && f->kind != FAULT_KILL && f->kind != FAULT_PAUSE)
        f->when = WHEN_TIMER;
    if ((f->when == WHEN_CALLS || f->when == WHEN_STEPS) && (f->kind != FAULT_KILL || !can.traced || p->local))
        f->when = WHEN_TIMER;
    if (f->kind == FAULT_STOP || f->kind == FAULT_COMM_ABORT || f->kind == FAULT_HOSTILE)
        f->step = f->step ? f->step : 1;
    if (f->when == WHEN_FRACTION)
        f->amount = (int64_t)below(chance, 1000000);
    else
        f->amount = spread(chance, 1, f->when == WHEN_TIMER ? 4 * RIG_MS : f->when == WHEN_CALLS ? 150 : 6000);
    if (f->when == WHEN_TIMER)
        f->amount = spread(chance, 1000, 8 * RIG_MS);
}

static void draw_options(struct soak_program *p, uint64_t *chance)
{
    static const char *const progress[] = {"auto", "caller", "thread"};
    static const char *const windows[] = {"4", "8", "64"};
    bool stops = p->fault[0].kind == FAULT_STOP;
    int length = snprintf(p->options, sizeof p->options, "peer_timeout=%s,log=warning", stops ? "2s" : "1h");

    if (below(chance, 2))
        length += snprintf(p->options + length, sizeof p->options - (size_t)length, ",progress=%s", progress[below(chance, 3)]);
    if (below(chance, 3) == 0)
        length += snprintf(p->options + length, sizeof p->options - (size_t)length, ",window=%s", windows[below(chance, 3)]);
    if (below(chance, 6) == 0)
        length += snprintf(p->options + length, sizeof p->options - (size_t)length, ",minimal=yes");
    if (below(chance, 3) == 0)
        snprintf(p->options + length, sizeof p->options - (size_t)length, ",spin=%d,yield=0", below(chance, 2) ? 0 : 1);
}

/* Consecutive seeds use all wires in turn. If one is impossible, draws among the possible ones. */
static const struct soak_wire *draw_wire(uint64_t seed, uint64_t *chance, struct soak_can can)
{
    const struct soak_wire *w = &soak_wires[seed % soak_wire_count];
    while ((w->ring && !can.ring) || (can.hostile && !w->connects))
        w = &soak_wires[below(chance, soak_wire_count)];
    return w;
}

void soak_make(struct soak_program *p, uint64_t seed, struct soak_can can)
{
    struct drawing d = {.chance = seed * 2 + can.hostile, .open = 1, .full = 1};

    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->wire = draw_wire(seed, &d.chance, can);
    p->local = !strcmp(p->wire->name, "local");
    p->hostile = can.hostile;
    p->ranks = 2 + (int32_t)below(&d.chance, SOAK_RANKS_MAX - 1);
    p->steps = 2 + (int32_t)below(&d.chance, SOAK_STEPS_MAX - 1);
    p->recovers = below(&d.chance, 2) && !p->local;
    p->fault_count = 1;
    draw_fault(p, &d.chance, can, &p->fault[0]);
    if (p->fault[0].kind == FAULT_COMM_ABORT)
        p->recovers = false;
    if (p->ranks > 2 && p->fault[0].kind == FAULT_KILL && !p->local && below(&d.chance, 8) == 0) {
        p->fault_count = 2; /* the other one dies some time later, by a timer */
        p->fault[1] = (struct soak_fault){.kind = FAULT_KILL, .when = WHEN_TIMER, .victim = (p->fault[0].victim + 1) % p->ranks};
        p->fault[1].step = p->fault[0].step + (int32_t)below(&d.chance, 2);
        p->fault[1].amount = spread(&d.chance, 1000, 20 * RIG_MS);
    }
    draw_options(p, &d.chance);
    for (int32_t i = 0; i < p->steps; i++)
        draw_step(p, &d, &p->step[i]);
}

/* ------------------------------------------------------------------------------------------------------------ description */
static void tell_fault(const struct soak_fault *f, FILE *to)
{
    static const char *const units[WHEN_KINDS] = {"ns", "system calls", "instructions", "millionths of the run"};

    fprintf(to, "  rank %d %s at step %d", f->victim, fault_names[f->kind], f->step);
    fprintf(to, f->when == WHEN_FRACTION ? " (any): %" PRId64 " %s" : " and %" PRId64 " %s", f->amount, units[f->when]);
    if (f->kind == FAULT_PAUSE || f->kind == FAULT_STOP)
        fprintf(to, ", for %" PRId64 " ns", f->stopped_ns);
    fputc('\n', to);
}

void soak_tell(const struct soak_program *p, FILE *to)
{
    fprintf(to, "  %s, %d ranks, %s%s\n", p->wire->name, p->ranks, p->options, p->recovers ? ", survivors agree and shrink" : "");
    for (int32_t i = 0; i < p->fault_count; i++)
        tell_fault(&p->fault[i], to);
    for (int32_t i = 0; i < p->steps; i++) {
        const struct soak_step *s = &p->step[i];
        fprintf(to, "  step %d: %s on %d", i + 1, step_names[s->kind], s->slot);
        if (s->kind == STEP_DUP || s->kind == STEP_SPLIT || s->kind == STEP_SUBSET)
            fprintf(to, " into %d", s->to);
        fprintf(to, ", count %u, n %zu, members %x\n", s->count, s->n, s->members);
    }
}
