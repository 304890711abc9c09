/* The frame of the generator: tries statements, takes them back, orders memory accesses, and keeps promises. */
#include "sim/random_make.h"

#include "conform/oracle.h"

#include <stdlib.h>
#include <string.h>

uint32_t make_chance(struct maker *m, uint32_t below)
{
    return (uint32_t)(oracle_random(&m->chance) >> 20) % below;
}

int32_t make_id(struct maker *m)
{
    return m->state.ids++;
}

struct random_action make_action(struct maker *m, int32_t verb, int32_t id, int32_t rank, int32_t comm)
{
    (void)m;
    return (struct random_action){
        .verb = verb, .id = id, .rank = rank, .comm = comm, .root = -1, .in = -1, .peer = -1, .target = -1, .child = -1, .plan = -1};
}

/* ------------------------------------------------------------------------------------------------------------ appending */
static void append(struct maker *m, struct random_action a)
{
    struct random_program *p = m->p;
    if (p->actions >= RANDOM_ACTIONS - 2 * MAKE_LATERS || m->walk[a.rank].count >= RANDOM_OWN - MAKE_LATERS) {
        m->bad = true;
        return;
    }
    p->action[p->actions++] = a;
    if (a.child > 0)
        random_comms_of(p, &m->comms);
    if (oracle_walk_step(&m->walk[a.rank], p->actions - 1))
        m->bad = true;
}

/* Adds a wait that orders the following actions on a.comm behind the earlier action. */
static void order_behind(struct maker *m, const struct random_action *a, int32_t earlier)
{
    const struct random_action *b = &m->p->action[earlier];
    int32_t event = (int32_t)make_chance(m, RANDOM_EVENTS), id = make_id(m);
    bool kept = !(b->flags & RANDOM_NO_REQUEST), alone = (b->flags & (RANDOM_DOOMED | RANDOM_SHORT)) != 0; /* ends with an error */
    struct random_action wait = make_action(m, RANDOM_WAIT_REQUEST, id, a->rank, a->comm);
    wait.target = b->id;
    if (random_by_host(a->verb) || alone || make_chance(m, 5) == 0)
        wait.verb = RANDOM_HOST_WAIT;
    if (kept && (wait.verb == RANDOM_HOST_WAIT || make_chance(m, 2))) {
        append(m, wait);
        return;
    }
    for (int32_t i = 0; i < RANDOM_EVENTS && m->state.shut[a->rank][event]; i++)
        event = (event + 1) % RANDOM_EVENTS;
    wait.verb = random_by_host(a->verb) ? RANDOM_EVENT_SYNC : RANDOM_WAIT_EVENT;
    wait.target = -1;
    wait.event = event;
    struct random_action record = make_action(m, RANDOM_RECORD, id, a->rank, b->comm);
    record.event = event;
    append(m, record);
    append(m, wait);
    m->state.used[a->rank][event] = true;
}

void make_add(struct maker *m, struct random_action a)
{
    for (int32_t tries = 0; tries < 8 && !m->bad; tries++) {
        int32_t earlier = random_issues(&a) || random_by_host(a.verb) ? oracle_walk_racing(&m->walk[a.rank], &a) : -1;
        if (earlier < 0)
            break;
        order_behind(m, &a, earlier);
    }
    if (!m->bad)
        append(m, a);
}

void make_later(struct maker *m, struct random_action a, int32_t step)
{
    if (m->state.laters == MAKE_LATERS) {
        m->bad = true;
        return;
    }
    m->state.later[m->state.laters++] = (struct make_later){a, step};
}

/* ------------------------------------------------------------------------------------------------------------ trying */
void make_begin(struct maker *m)
{
    m->first = m->p->actions;
    m->bad = false;
    m->saved = m->state;
    for (int32_t r = 0; r < m->p->ranks; r++)
        oracle_walk_copy(&m->kept[r], &m->walk[r]);
}

enum { URGENCIES = 5 };

static int32_t urgency(int32_t verb)
{
    bool meets = verb == RANDOM_BUCKETS_WAIT || verb == RANDOM_WINDOW_FREE; /* the host waits there until all ranks have come */
    return verb == RANDOM_SET ? 0 : verb == RANDOM_CANCEL ? 1 : meets ? 3 : verb == RANDOM_CLOSE ? 4 : 2;
}

static void append_promises(struct maker *m)
{
    for (int32_t now = 0; now < URGENCIES; now++) {
        for (int32_t i = 0; i < m->state.laters; i++) {
            if (urgency(m->state.later[i].action.verb) == now)
                m->p->action[m->p->actions++] = m->state.later[i].action;
        }
    }
}

static bool would_end(struct maker *m)
{
    int32_t length = m->p->actions;
    oracle_copy(&m->trial, &m->now);
    append_promises(m);
    oracle_more(&m->trial, m->first);
    oracle_run(&m->trial, NULL);
    m->p->actions = length;
    return oracle_ended(&m->trial);
}

bool make_end(struct maker *m)
{
    struct random_program *p = m->p;
    if (!m->bad && would_end(m)) {
        oracle_more(&m->now, m->first);
        oracle_run(&m->now, NULL);
        return true;
    }
    p->actions = m->first;
    m->state = m->saved;
    for (int32_t r = 0; r < p->ranks; r++)
        oracle_walk_copy(&m->walk[r], &m->kept[r]);
    random_comms_of(p, &m->comms);
    m->bad = false;
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ promises */
static void remove_later(struct maker *m, int32_t i)
{
    struct make_state *s = &m->state;
    memmove(&s->later[i], &s->later[i + 1], (size_t)(s->laters - i - 1) * sizeof s->later[0]);
    s->laters--;
}

static void note_kept(struct maker *m, const struct random_action *a)
{
    if (a->verb == RANDOM_SET)
        m->state.shut[a->rank][a->event] = false;
    if (a->verb == RANDOM_BUCKETS_WAIT)
        m->state.steps[a->comm]--;
    for (int32_t w = 0; w < m->state.windows && a->verb == RANDOM_WINDOW_FREE; w++)
        m->state.window_left[w] -= m->state.window_maker[w] == a->target;
}

/* Tries to keep the i-th promise now; false: not possible yet. */
static bool keep_promise(struct maker *m, int32_t i)
{
    struct random_action a = m->state.later[i].action;
    for (int32_t tries = 0; tries < MAKE_TRIES; tries++) {
        make_begin(m);
        remove_later(m, i);
        if (a.verb == RANDOM_SEND || a.verb == RANDOM_RECV)
            make_range(m, &a, 1);
        note_kept(m, &a);
        if (a.verb == RANDOM_CLOSE && tries > 0) /* its receives must not be cancelled */
            make_add(m, make_action(m, RANDOM_SYNC, make_id(m), a.rank, a.comm));
        make_add(m, a);
        if (make_end(m))
            return true;
    }
    return false;
}

static void keep_promises(struct maker *m, bool all)
{
    for (int32_t now = 0; now < URGENCIES; now++) {
        for (int32_t i = 0; i < m->state.laters;) {
            bool due = urgency(m->state.later[i].action.verb) == now && (all || m->state.later[i].step <= m->step);
            if (!due || !keep_promise(m, i))
                i++;
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ picking */
int32_t make_member(struct maker *m, int32_t comm)
{
    return m->comms.comm[comm].world[make_chance(m, (uint32_t)m->comms.comm[comm].members)];
}

int32_t make_comm(struct maker *m)
{
    int32_t floor = m->state.floor, c = floor + (int32_t)make_chance(m, (uint32_t)(m->state.comms - floor));
    if (m->state.life[c] == MAKE_LIVE && !m->state.steps[c])
        return c;
    if (m->state.life[c] != MAKE_MAKING || m->comms.comm[c].members == 0) {
        m->bad = true;
        return -1;
    }
    int32_t id = make_id(m);
    for (int32_t i = 0; i < m->comms.comm[c].members; i++) {
        struct random_action wait = make_action(m, RANDOM_HOST_WAIT, id, m->comms.comm[c].world[i], m->comms.comm[c].parent);
        wait.target = m->state.maker[c];
        make_add(m, wait);
    }
    m->state.life[c] = MAKE_LIVE;
    return c;
}

int32_t make_count(struct maker *m, int32_t type, int32_t blocks)
{
    int32_t room = m->p->bytes / random_unit(type) / blocks;
    switch (make_chance(m, 8)) {
    case 0:
        return (int32_t)make_chance(m, 2);
    case 1:
        return room - (int32_t)make_chance(m, 3);
    case 2:
        return (int32_t)make_chance(m, (uint32_t)room);
    case 3:
        return room / 2;
    default:
        return 1 + (int32_t)make_chance(m, (uint32_t)(room < 40 ? room : 40));
    }
}

/* A place for a's n elements; often the same one, so that neighbours conflict. */
static int32_t place(struct maker *m, int32_t type, int32_t n)
{
    int32_t room = m->p->bytes / random_unit(type), last = room - n;
    if (last <= 0)
        return 0;
    int32_t hot = room / 4 * (int32_t)make_chance(m, 4);
    return make_chance(m, 3) && hot <= last ? hot : (int32_t)make_chance(m, (uint32_t)last + 1);
}

void make_range(struct maker *m, struct random_action *a, int32_t members)
{
    int32_t in = a->n * random_blocks_in(a->verb, members), out = a->n * random_blocks_out(a->verb, members);
    bool own = a->verb == RANDOM_SEND || (a->in >= 0 && a->verb != RANDOM_RECV); /* has a separate input */
    if (!own) {
        a->out = place(m, a->type, in > out ? in : out);
        return;
    }
    a->in = place(m, a->type, in);
    a->out = place(m, a->type, out);
    for (int32_t tries = 0; tries < 8 && a->verb != RANDOM_SEND && a->in < a->out + out && a->out < a->in + in; tries++) {
        a->in = place(m, a->type, in);
        a->out = tries & 1 ? a->in + in : place(m, a->type, out);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the program */
static void make_options(struct maker *m)
{
    static const int32_t windows[] = {4, 4, 8, 64}, queues[] = {16, 64, 65536, 65536}, bytes[] = {512, 2048, 2048, 8192, 8192, 32768};
    struct random_program *p = m->p;
    p->ranks = 2 + (int32_t)make_chance(m, 4) + (make_chance(m, 6) ? 0 : (int32_t)make_chance(m, 3));
    p->window = windows[make_chance(m, 4)];
    p->queue = queues[make_chance(m, 4)];
    p->bytes = bytes[make_chance(m, 6)];
    p->minimal = make_chance(m, 2) == 0;
    p->progress = make_chance(m, 3) ? COMM_PROGRESS_CALLER : COMM_PROGRESS_THREAD;
    p->notify = make_chance(m, 4) ? COMM_NOTIFY_ANY : COMM_NOTIFY_PROGRESS;
    p->wire = 1 + (int32_t)make_chance(m, 2);
    p->hosts = 0;
}

static void make_steps(struct maker *m, int32_t count)
{
    for (; count > 0; count--, m->step++) {
        keep_promises(m, false);
        make_begin(m);
        make_statement(m);
        make_end(m);
    }
    for (int32_t tries = 0; tries < MAKE_TRIES && m->state.laters; tries++)
        keep_promises(m, true);
}

/* The remaining ranks continue, and nothing that they do depends on earlier work. */
static void go_on(struct maker *m)
{
    make_begin(m);
    if (!make_recovery(m) || !make_end(m))
        return;
    m->step++;
    make_steps(m, 4 + (int32_t)make_chance(m, 16));
}

static bool make_once(struct maker *m, uint64_t seed, enum random_sort sort)
{
    struct random_program *p = m->p;
    memset(p, 0, offsetof(struct random_program, action));
    p->actions = 0;
    p->seed = p->schedule = seed;
    make_options(m);
    p->timeout_ms = sort == RANDOM_SORT_CORRECT ? 900000 : 20000;
    memset(&m->state, 0, sizeof m->state);
    m->state.life[0] = MAKE_LIVE;
    m->state.comms = 1;
    oracle_start(&m->now, p);
    m->comms = m->now.comms;
    for (int32_t r = 0; r < p->ranks; r++)
        oracle_walk_start(&m->walk[r], p, &m->comms);
    int32_t steps = 6 + (int32_t)make_chance(m, make_chance(m, 4) ? 30 : 120);
    m->step = 0;
    make_steps(m, steps);
    for (int32_t more = sort == RANDOM_SORT_FAULTS ? (int32_t)make_chance(m, 3) : 0; more > 0 && !m->state.laters; more--)
        go_on(m);
    if (sort == RANDOM_SORT_WRONG)
        make_wrong(p, &m->chance);
    return m->state.laters == 0;
}

void random_make(struct random_program *p, uint64_t seed, enum random_sort sort)
{
    struct maker *m = malloc(sizeof *m);
    if (!m)
        abort();
    m->p = p;
    m->chance = seed * 3 + (uint64_t)sort;
    while (!make_once(m, seed, sort))
        continue; /* the random state has advanced: this makes another program */
    free(m);
}
