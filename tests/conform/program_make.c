/* Generates random programs, and their expected memory with program_model.c; program_make.h has the rules. */
#define _GNU_SOURCE
#include "conform/program_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is known about completion while a program is made: step numbers at which everything that must happen on any rank
 * has happened. */
struct maker {
    struct make_program *p;
    int32_t work[MAKE_COMMS][MAKE_RANKS];  /* all work so far */
    int32_t fence[MAKE_COMMS][MAKE_RANKS]; /* the fences that a message must wait for */
    int32_t every[MAKE_COMMS][MAKE_RANKS]; /* work and messages */
    int32_t buffer[MAKE_COMMS][MAKE_RANKS][MAKE_BUFFERS];
    int32_t pair[2][MAKE_COMMS][MAKE_RANKS][MAKE_RANKS]; /* sends, receives: start of the latest of that pair */
    int32_t shut[MAKE_COMMS][MAKE_RANKS];                /* when this rank's own gate is opened */
    int32_t event[MAKE_RANKS][MAKE_EVENTS];              /* of the point that it holds */
    bool gate[MAKE_RANKS][MAKE_EVENTS];                  /* a manual event that is not set yet */
    int32_t tag_last[MAKE_COMMS][MAKE_RANKS][MAKE_RANKS][3];
    struct make_action later[MAKE_STEPS * 2]; /* receives and gate openings, by step */
    int32_t laters;
};

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}
static uint32_t chance(struct maker *m, uint32_t below)
{
    return (uint32_t)(oracle_random(&m->p->chance) >> 20) % below;
}

enum comm_type make_type(int32_t buffer)
{
    return (const enum comm_type[]){COMM_F32, COMM_I32, COMM_BF16}[buffer / 3];
}

bool make_member(const struct make_program *program, int32_t comm, int32_t rank)
{
    return rank < program->ranks && (comm < 2 || rank % 2 == comm - 2);
}

int32_t make_members(const struct make_program *program, int32_t comm)
{
    int32_t count = 0;
    for (int32_t r = 0; r < program->ranks; r++)
        count += make_member(program, comm, r);
    return count;
}

int32_t make_rank(int32_t comm, int32_t rank)
{
    return comm < 2 ? rank : rank / 2;
}
static int32_t world_rank(int32_t comm, int32_t rank)
{
    return comm < 2 ? rank : rank * 2 + comm - 2;
}

static struct make_action *append(struct maker *m, struct make_action action)
{
    struct make_program *p = m->p;
    if (p->actions == MAKE_ACTIONS)
        rig_die(__FILE__, __LINE__, "program too long");
    action.step = p->step;
    p->action[p->actions] = action;
    return &p->action[p->actions++];
}

/* A receive planned for step j is posted only if nothing that ends at j or later comes before it; otherwise it would
 * wait for its own message. */
static bool may_hold(const struct maker *m, int32_t comm, int32_t rank, int32_t ready)
{
    for (int32_t i = 0; i < m->laters; i++) {
        const struct make_action *a = &m->later[i];
        if (a->verb == MAKE_RECV && a->comm == comm && a->rank == rank && ready >= a->step)
            return false;
    }
    return true;
}

static int32_t some_member(struct maker *m, int32_t comm)
{
    return world_rank(comm, (int32_t)chance(m, (uint32_t)make_members(m->p, comm)));
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
/* Buffers of one rank, different from those of other ranks: which of its operations conflict concerns only itself. */
static void pick_buffers(struct maker *m, struct make_action *a, int32_t type, bool in_place)
{
    a->out = type * 3 + (int32_t)chance(m, 3);
    a->in = -1;
    if (!in_place && a->verb != MAKE_BROADCAST)
        a->in = type * 3 + (a->out % 3 + 1 + (int32_t)chance(m, 2)) % 3;
}

static size_t pick_count(struct maker *m, enum make_verb verb, int32_t type, int32_t members)
{
    size_t room = MAKE_BUFFER_BYTES / oracle_type_bytes(make_type(type * 3));
    if (verb == MAKE_ALLGATHER || verb == MAKE_SCATTERED)
        room /= (size_t)members;
    switch (chance(m, 5)) {
    case 0:
        return chance(m, 2);
    case 1:
        return room - chance(m, 3);
    case 2:
        return chance(m, (uint32_t)room);
    default:
        return 1 + chance(m, 40);
    }
}

static void settle_work(struct maker *m, struct make_action *parts, int32_t count, int32_t first)
{
    int32_t ready = m->p->step;
    for (int32_t i = 0; i < count; i++) {
        const struct make_action *a = &parts[i];
        ready = larger(ready, m->work[a->comm][a->rank]);
        if (a->verb == MAKE_PLAN) {
            for (int32_t b = 0; b < MAKE_BUFFERS; b++)
                ready = larger(ready, m->buffer[a->comm][a->rank][b]);
        } else if (a->verb != MAKE_BARRIER) {
            ready = larger(ready, m->buffer[a->comm][a->rank][a->out]);
            ready = a->in < 0 ? ready : larger(ready, m->buffer[a->comm][a->rank][a->in]);
        }
    }
    for (int32_t i = 0; i < count; i++) {
        struct make_action *a = &m->p->action[first + i];
        a->ready = ready;
        a->shut = m->shut[a->comm][a->rank];
        m->work[a->comm][a->rank] = ready;
        m->every[a->comm][a->rank] = larger(m->every[a->comm][a->rank], ready);
        for (int32_t b = 0; b < MAKE_BUFFERS; b++) {
            if (a->verb == MAKE_PLAN || (a->verb != MAKE_BARRIER && (b == a->in || b == a->out)))
                m->buffer[a->comm][a->rank][b] = ready;
        }
    }
}

int32_t make_plan_parts(struct make_action parts[3])
{
    parts[0] = (struct make_action){.verb = MAKE_ALLREDUCE, .in = 0, .out = 1, .n = 33, .op = COMM_SUM};
    parts[1] = (struct make_action){.verb = MAKE_BROADCAST, .in = -1, .out = 4, .n = 700, .root = 0};
    parts[2] = (struct make_action){.verb = MAKE_ALLREDUCE, .in = -1, .out = 7, .n = 2500, .op = COMM_MAX};
    return 3;
}

static void make_collective(struct maker *m, enum make_verb verb)
{
    struct make_program *p = m->p;
    struct make_action parts[MAKE_RANKS];
    int32_t comm = (int32_t)chance(m, verb == MAKE_PLAN ? 2 : MAKE_COMMS), count = make_members(p, comm),
            type = (int32_t)chance(m, MAKE_TYPES);
    size_t n = pick_count(m, verb, type, count ? count : 1);
    comm_op ops[4] = {COMM_SUM, COMM_MAX, COMM_MIN, type == 1 ? COMM_BXOR : COMM_AVG};
    comm_op op = ops[chance(m, 4)];
    bool in_place = chance(m, 3) == 0;
    if (count == 0)
        return;
    int32_t root = (int32_t)chance(m, (uint32_t)count), first = p->actions;
    for (int32_t i = 0; i < count; i++) {
        parts[i] =
            (struct make_action){.verb = verb, .rank = world_rank(comm, i), .comm = comm, .n = n, .op = op, .root = root, .message = -1};
        pick_buffers(m, &parts[i], type, in_place && (verb != MAKE_REDUCE || i == root));
        append(m, parts[i]);
    }
    if (verb == MAKE_PLAN)
        model_plan(p, parts, count);
    else
        model_collective(p, parts, count);
    settle_work(m, parts, count, first);
}

/* ------------------------------------------------------------------------------------------------------------ messages */
static int32_t start_of_send(const struct maker *m, int32_t comm, int32_t from, int32_t to)
{
    return larger(m->fence[comm][from], m->pair[0][comm][from][to]);
}

static int32_t start_of_recv(const struct maker *m, int32_t comm, int32_t to)
{
    int32_t start = m->fence[comm][to];
    for (int32_t r = 0; r < MAKE_RANKS; r++) /* a general receive delays those of every pair */
        start = larger(start, m->pair[1][comm][to][r]);
    return start;
}

static void settle_message(struct maker *m, struct make_action *a, int32_t start, int32_t ready)
{
    bool is_send = a->verb == MAKE_SEND;
    int32_t peer = world_rank(a->comm, a->peer);
    a->ready = ready;
    a->shut = m->shut[a->comm][a->rank];
    m->pair[is_send ? 0 : 1][a->comm][a->rank][peer] = start;
    m->every[a->comm][a->rank] = larger(m->every[a->comm][a->rank], ready);
}

/* With memory of its own; the receive is posted now or some steps later. */
static void make_message(struct maker *m)
{
    struct make_program *p = m->p;
    static const size_t sizes[] = {0, 1, 8, 40, 700, 9000, 120000};
    int32_t comm = (int32_t)chance(m, MAKE_COMMS), delay = (int32_t)chance(m, 8);
    if (make_members(p, comm) == 0 || p->messages == MAKE_MESSAGES)
        return;
    int32_t from = some_member(m, comm), to = some_member(m, comm);
    uint32_t tag = chance(m, 3);
    int32_t at = larger(p->step + delay, m->tag_last[comm][from][to][tag]);
    int32_t start = larger(start_of_send(m, comm, from, to), p->step), open = start_of_recv(m, comm, to);
    if (at >= p->steps || open >= at + 1)
        return;
    m->tag_last[comm][from][to][tag] = at;
    struct make_message *message = &p->message[p->messages];
    message->bytes = sizes[chance(m, 7)];
    message->from = malloc(message->bytes + 1);
    message->to = malloc(message->bytes + 1);
    if (!message->from || !message->to)
        rig_die(__FILE__, __LINE__, "no memory");
    memset(message->to, 0, message->bytes + 1);
    for (size_t i = 0; i <= message->bytes; i++)
        message->from[i] = (unsigned char)oracle_random(&p->chance);
    bool general = chance(m, 5) == 0;
    struct make_action send = {.verb = MAKE_SEND, .rank = from, .comm = comm, .peer = make_rank(comm, to), .message = p->messages};
    send.tag = general ? 1000 + (uint32_t)p->messages : tag;
    struct make_action recv = {.verb = MAKE_RECV, .rank = to, .comm = comm, .peer = make_rank(comm, from), .message = p->messages++};
    recv.tag = send.tag;
    recv.root = general; /* from any rank, with a tag that nothing else uses */
    settle_message(m, append(m, send), start, larger(start, at));
    recv.step = at;
    recv.ready = larger(start, at);
    m->later[m->laters++] = recv;
}

/* From one buffer to another, ordered by conflicts with the work around it; both ends in one step. */
static void make_buffer_message(struct maker *m)
{
    struct make_program *p = m->p;
    int32_t comm = (int32_t)chance(m, MAKE_COMMS), type = (int32_t)chance(m, MAKE_TYPES);
    if (make_members(p, comm) < 2)
        return;
    int32_t from = some_member(m, comm), to = some_member(m, comm), a = type * 3 + (int32_t)chance(m, 3),
            b = type * 3 + (int32_t)chance(m, 3);
    int32_t leave = larger(start_of_send(m, comm, from, to), m->buffer[comm][from][a]);
    int32_t enter = larger(start_of_recv(m, comm, to), m->buffer[comm][to][b]);
    int32_t ready = larger(larger(leave, enter), p->step);
    if (from == to || !may_hold(m, comm, to, enter) || !may_hold(m, comm, from, leave))
        return;
    size_t unit = oracle_type_bytes(make_type(a)), n = pick_count(m, MAKE_SEND, type, 1);
    struct make_action send = {
        .verb = MAKE_SEND, .rank = from, .comm = comm, .peer = make_rank(comm, to), .message = -1, .in = a, .n = n, .tag = 500};
    struct make_action recv = {
        .verb = MAKE_RECV, .rank = to, .comm = comm, .peer = make_rank(comm, from), .message = -1, .out = b, .n = n, .tag = 500};
    settle_message(m, append(m, send), leave, ready);
    settle_message(m, append(m, recv), enter, ready);
    m->buffer[comm][from][a] = m->buffer[comm][to][b] = ready;
    memcpy(p->model[comm][to][b], p->model[comm][from][a], n * unit);
}

/* ------------------------------------------------------------------------------------------------------------ events, gates, waits */
static void put_fence(struct maker *m, int32_t comm, int32_t rank, int32_t ready)
{
    m->work[comm][rank] = larger(m->work[comm][rank], ready);
    m->every[comm][rank] = larger(m->every[comm][rank], ready);
    m->fence[comm][rank] = larger(m->fence[comm][rank], m->work[comm][rank]);
}

static void put_event_wait(struct maker *m, int32_t comm, int32_t rank, int32_t event)
{
    int32_t ready = m->event[rank][event];
    if (!make_member(m->p, comm, rank) || !may_hold(m, comm, rank, larger(ready, m->work[comm][rank])))
        return;
    append(m, (struct make_action){.verb = MAKE_WAIT_EVENT, .rank = rank, .comm = comm, .event = event});
    put_fence(m, comm, rank, ready);
    if (m->gate[rank][event])
        m->shut[comm][rank] = larger(m->shut[comm][rank], ready);
}

static void make_event_wait(struct maker *m)
{
    int32_t comm = (int32_t)chance(m, MAKE_COMMS), rank = (int32_t)chance(m, (uint32_t)m->p->ranks);
    put_event_wait(m, comm, rank, (int32_t)chance(m, MAKE_EVENTS));
}

static void make_record(struct maker *m)
{
    int32_t comm = (int32_t)chance(m, MAKE_COMMS), rank = (int32_t)chance(m, (uint32_t)m->p->ranks),
            event = (int32_t)chance(m, MAKE_EVENTS);
    if (!make_member(m->p, comm, rank) || m->gate[rank][event])
        return;
    append(m, (struct make_action){.verb = MAKE_RECORD, .rank = rank, .comm = comm, .event = event});
    m->event[rank][event] = m->every[comm][rank];
}

static void make_gate(struct maker *m)
{
    int32_t rank = (int32_t)chance(m, (uint32_t)m->p->ranks), event = (int32_t)chance(m, MAKE_EVENTS),
            opens = m->p->step + 1 + (int32_t)chance(m, 12);
    if (m->gate[rank][event] || opens >= m->p->steps)
        return;
    append(m, (struct make_action){.verb = MAKE_RESET, .rank = rank, .event = event});
    m->gate[rank][event] = true;
    m->event[rank][event] = opens;
    m->later[m->laters++] = (struct make_action){.verb = MAKE_SET, .step = opens, .rank = rank, .event = event};
    if (chance(m, 3))
        put_event_wait(m, (int32_t)chance(m, MAKE_COMMS), rank, event);
}

/* An earlier action of this rank that has a request, or -1. */
static int32_t some_request(struct maker *m, int32_t rank)
{
    for (int tries = 0; tries < 30 && m->p->actions; tries++) {
        int32_t i = m->p->actions - 1 - (int32_t)chance(m, (uint32_t)(m->p->actions < 90 ? m->p->actions : 90));
        if (m->p->action[i].rank == rank && m->p->action[i].verb <= MAKE_RECV)
            return i;
    }
    return -1;
}

static void make_request_wait(struct maker *m)
{
    int32_t comm = (int32_t)chance(m, MAKE_COMMS), rank = (int32_t)chance(m, (uint32_t)m->p->ranks), target = some_request(m, rank);
    if (target < 0 || !make_member(m->p, comm, rank))
        return;
    int32_t ready = m->p->action[target].ready;
    if (!may_hold(m, comm, rank, larger(ready, m->work[comm][rank])))
        return;
    append(m, (struct make_action){.verb = MAKE_WAIT_REQUEST, .rank = rank, .comm = comm, .target = target});
    put_fence(m, comm, rank, ready);
}

static void make_host_wait(struct maker *m)
{
    int32_t rank = (int32_t)chance(m, (uint32_t)m->p->ranks), target = some_request(m, rank), comm = (int32_t)chance(m, MAKE_COMMS);
    if (chance(m, 4) == 0 && make_member(m->p, comm, rank) && m->every[comm][rank] < m->p->step) {
        append(m, (struct make_action){.verb = MAKE_SYNC, .rank = rank, .comm = comm});
        return;
    }
    if (target < 0)
        return;
    if (m->p->action[target].ready < m->p->step && chance(m, 2))
        append(m, (struct make_action){.verb = MAKE_HOST_WAIT, .rank = rank, .target = target});
    else
        append(m, (struct make_action){.verb = MAKE_TEST, .rank = rank, .target = target});
}

/* ------------------------------------------------------------------------------------------------------------ the whole */
static void run_later(struct maker *m)
{
    for (int32_t i = 0; i < m->laters; i++) {
        struct make_action a = m->later[i];
        if (a.step != m->p->step)
            continue;
        memmove(&m->later[i], &m->later[i + 1], (size_t)(m->laters - i - 1) * sizeof *m->later);
        m->laters--;
        i--;
        struct make_action *added = append(m, a);
        if (a.verb == MAKE_SET)
            m->gate[a.rank][a.event] = false;
        else
            settle_message(m, added, start_of_recv(m, a.comm, a.rank), larger(a.ready, m->fence[a.comm][a.rank]));
    }
}

static void make_step(struct maker *m)
{
    static const unsigned char verbs[] = {0, 1, 1, 2, 2, 3, 3, 3,  3,  4,  4,  5,  5,  6,  7,  7,  7,
                                          7, 7, 8, 8, 8, 9, 9, 10, 10, 10, 11, 11, 12, 12, 12, 13, 13};
    uint32_t pick = verbs[chance(m, sizeof verbs)];
    if (pick <= MAKE_PLAN)
        make_collective(m, (enum make_verb)pick);
    else if (pick == 7)
        make_message(m);
    else if (pick == 8)
        make_buffer_message(m);
    else if (pick == 9)
        make_record(m);
    else if (pick == 10)
        make_event_wait(m);
    else if (pick == 11)
        make_gate(m);
    else if (pick == 12)
        make_request_wait(m);
    else
        make_host_wait(m);
}

static void make_memory(struct make_program *p)
{
    for (int32_t c = 0; c < MAKE_COMMS; c++) {
        for (int32_t r = 0; r < p->ranks; r++) {
            for (int32_t b = 0; b < MAKE_BUFFERS; b++) {
                p->memory[c][r][b] = malloc(MAKE_BUFFER_BYTES);
                p->model[c][r][b] = malloc(MAKE_BUFFER_BYTES);
                if (!p->memory[c][r][b] || !p->model[c][r][b])
                    rig_die(__FILE__, __LINE__, "no memory");
                enum comm_type type = make_type(b);
                oracle_fill(p->memory[c][r][b], MAKE_BUFFER_BYTES / oracle_type_bytes(type), type, COMM_SUM,
                            p->seed + (uint64_t)(c * 100 + b), r);
                memcpy(p->model[c][r][b], p->memory[c][r][b], MAKE_BUFFER_BYTES);
            }
        }
    }
}

struct make_program *make_program(uint64_t seed, int32_t steps)
{
    struct make_program *p = calloc(1, sizeof *p);
    struct maker *m = calloc(1, sizeof *m);
    if (!p || !m)
        rig_die(__FILE__, __LINE__, "no memory");
    m->p = p;
    p->seed = p->chance = seed;
    p->ranks = 2 + (int32_t)(seed % 4);
    p->steps = steps < MAKE_STEPS ? steps : MAKE_STEPS;
    make_memory(p);
    for (p->step = 1; p->step < p->steps; p->step++) {
        run_later(m);
        make_step(m);
        run_later(m); /* receives planned for this very step */
    }
    free(m);
    return p;
}

void make_free(struct make_program *p)
{
    for (int32_t c = 0; c < MAKE_COMMS; c++) {
        for (int32_t r = 0; r < p->ranks; r++) {
            for (int32_t b = 0; b < MAKE_BUFFERS; b++) {
                free(p->memory[c][r][b]);
                free(p->model[c][r][b]);
            }
        }
    }
    for (int32_t i = 0; i < p->messages; i++) {
        free(p->message[i].from);
        free(p->message[i].to);
    }
    free(p);
}

void make_print(const struct make_program *p)
{
    static const char *const names[MAKE_VERBS] = {"barrier", "broadcast", "reduce",    "allreduce", "allgather",  "reduce_scatter",
                                                  "plan",    "send",      "recv",      "record",    "wait_event", "wait_request",
                                                  "reset",   "set",       "host wait", "test",      "sync"};
    for (int32_t i = 0; i < p->actions; i++) {
        const struct make_action *a = &p->action[i];
        fprintf(stderr, "%4d step %d rank %d: %s comm %d", i, a->step, a->rank, names[a->verb], a->comm);
        if (a->verb <= MAKE_PLAN)
            fprintf(stderr, " in %d out %d n %zu root %d op %u", a->in, a->out, a->n, a->root, a->op);
        else if (a->verb <= MAKE_RECV)
            fprintf(stderr, " peer %d tag %u message %d (%zu) buffers %d %d n %zu%s", a->peer, a->tag, a->message,
                    a->message >= 0 ? p->message[a->message].bytes : 0, a->in, a->out, a->n, a->root ? " any" : "");
        else
            fprintf(stderr, " event %d target %d", a->event, a->target);
        fprintf(stderr, " (ready %d%s)\n", a->ready, a->shut > a->step ? ", gated" : "");
    }
}
