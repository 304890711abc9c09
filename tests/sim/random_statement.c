/* The statements of programs. Each appends its actions; make_end decides whether they are allowed. */
#include "sim/random_make.h"

#include "conform/oracle.h"

#include <string.h>

static int32_t pick_bytes(struct maker *m)
{
    static const int32_t sizes[] = {0, 1, 8, 40, 41, 300, 4096, 4097, 20000};
    int32_t n = sizes[make_chance(m, 9)];
    return n < m->p->bytes ? n : m->p->bytes - 1;
}

int32_t make_op(struct maker *m, int32_t type)
{
    static const comm_op floats[] = {COMM_SUM, COMM_SUM, COMM_PROD, COMM_MIN, COMM_MAX, COMM_AVG};
    static const comm_op integers[] = {COMM_SUM, COMM_PROD, COMM_MIN, COMM_MAX, COMM_BXOR, COMM_BAND, COMM_LOR};
    return (int32_t)(oracle_is_float(random_types[type]) ? floats[make_chance(m, 6)] : integers[make_chance(m, 7)]);
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
struct call {
    int32_t verb, comm, type, op, root, n, plan, flags, ragged, key;
    bool in_place;
};

static struct call pick_call(struct maker *m, int32_t comm)
{
    static const int32_t verbs[] = {
#ifdef SIM_ALL_COLLECTIVES
        RANDOM_SCAN,      RANDOM_EXSCAN,    RANDOM_GATHER,    RANDOM_SCATTER,   RANDOM_ALLTOALL, RANDOM_ALLTOALL,
#endif
        RANDOM_BARRIER,   RANDOM_BROADCAST, RANDOM_BROADCAST, RANDOM_REDUCE,    RANDOM_REDUCE,   RANDOM_ALLREDUCE,
        RANDOM_ALLREDUCE, RANDOM_ALLREDUCE, RANDOM_ALLGATHER, RANDOM_ALLGATHER, RANDOM_SCATTERED};
    struct call call = {.verb = verbs[make_chance(m, sizeof verbs / sizeof *verbs)], .comm = comm, .plan = -1};
    int32_t members = m->comms.comm[comm].members;
    int32_t in = random_blocks_in(call.verb, members), out = random_blocks_out(call.verb, members);
    call.type = (int32_t)make_chance(m, RANDOM_TRASH);
    call.op = random_reduces(call.verb) ? make_op(m, call.type) : 0;
    if ((call.verb == RANDOM_SCAN || call.verb == RANDOM_EXSCAN) && call.op == COMM_AVG)
        call.op = COMM_MAX; /* the first few ranks have no average */
    call.root = random_rooted(call.verb) ? make_member(m, comm) : -1;
    call.n = call.verb == RANDOM_BARRIER ? 0 : make_count(m, call.type, in > out ? in : out);
    call.in_place = make_chance(m, 3) == 0;
    call.flags = make_chance(m, 12) == 0 ? RANDOM_NO_REQUEST : make_chance(m, 8) == 0 ? RANDOM_NOTIFY : 0;
    bool may_be_ragged = in != out || call.verb == RANDOM_ALLTOALL || call.verb == RANDOM_BROADCAST;
    if (may_be_ragged && make_chance(m, 3) == 0) {
        call.ragged = RANDOM_RAGGED;
        call.key = (int32_t)make_chance(m, 4);
        call.in_place = call.in_place && call.verb != RANDOM_ALLTOALL;
    }
    return call;
}

static void put_call(struct maker *m, const struct call *call)
{
    const struct random_comm *comm = &m->comms.comm[call->comm];
    int32_t id = make_id(m);
    for (int32_t i = 0; i < comm->members; i++) {
        struct random_action a = make_action(m, call->verb, id, comm->world[i], call->comm);
        bool rooted = call->verb == RANDOM_REDUCE || call->verb == RANDOM_GATHER, separate = call->verb == RANDOM_SCATTER;
        a.type = call->type;
        a.op = call->op;
        a.root = call->root;
        a.n = call->n;
        a.plan = call->plan;
        a.flags = (call->plan < 0 ? call->flags : 0) | call->ragged;
        a.key = call->key;
        if (call->verb == RANDOM_BROADCAST || (call->in_place && !separate && (!rooted || a.root == a.rank)))
            a.in = -1;
        else
            a.in = 0;
        if (call->verb == RANDOM_BARRIER)
            a.in = -1;
        else
            make_range(m, &a, comm->members);
        make_add(m, a);
    }
}

static void collective(struct maker *m)
{
    int32_t comm = make_comm(m);
    if (comm < 0)
        return;
    struct call call = pick_call(m, comm);
    put_call(m, &call);
}

/* Many at once: more than the window holds, and more than a small queue does. */
static void burst(struct maker *m)
{
    int32_t comm = make_comm(m), count = 4 + (int32_t)make_chance(m, 24);
    if (comm < 0)
        return;
    for (int32_t i = 0; i < count; i++) {
        struct call call = pick_call(m, comm);
        call.n = call.n > 64 ? 1 + (int32_t)make_chance(m, 16) : call.n;
        put_call(m, &call);
    }
}

static void refused(struct maker *m)
{
    int32_t comm = make_comm(m), id = make_id(m);
    for (int32_t i = 0; comm >= 0 && i < m->comms.comm[comm].members; i++)
        make_add(m, make_action(m, RANDOM_REFUSED, id, m->comms.comm[comm].world[i], comm));
}

/* ------------------------------------------------------------------------------------------------------------ plans */
static void plan_make(struct maker *m)
{
    int32_t comm = make_comm(m), plan = m->state.plans, id, length = 1 + (int32_t)make_chance(m, 4);
    if (comm < 0 || plan == RANDOM_PLANS)
        return;
    m->state.plan_comm[plan] = comm;
    m->state.plans++;
    for (int32_t part = 0; part < length + 2; part++) {
        if (part > 0 && part <= length) {
            struct call call = pick_call(m, comm);
            call.plan = plan;
            put_call(m, &call);
            continue;
        }
        id = make_id(m);
        for (int32_t i = 0; i < m->comms.comm[comm].members; i++) {
            struct random_action a = make_action(m, part ? RANDOM_PLAN_END : RANDOM_PLAN_BEGIN, id, m->comms.comm[comm].world[i], comm);
            a.plan = plan;
            make_add(m, a);
        }
    }
}

#ifdef SIM_GROUPS
/* One batch: what each rank records before its end, in the same order; a message in it is sent by one rank to another. */
static void group(struct maker *m)
{
    int32_t comm = make_comm(m), plan = RANDOM_GROUPS + m->state.groups, length = (int32_t)make_chance(m, 6);
    if (comm < 0)
        return;
    m->state.groups++;
    for (int32_t part = 0; part < length && !m->bad; part++) {
        struct call call = pick_call(m, comm);
        call.plan = plan;
        call.n = call.n > 64 && make_chance(m, 4) ? 1 + (int32_t)make_chance(m, 16) : call.n;
        put_call(m, &call);
    }
    if (make_chance(m, 3) == 0 && m->comms.comm[comm].members > 1) {
        int32_t id = make_id(m);
        struct random_action send = make_action(m, RANDOM_SEND, id, make_member(m, comm), comm), recv = send;
        do
            recv.rank = make_member(m, comm);
        while (recv.rank == send.rank);
        recv.verb = RANDOM_RECV;
        send.peer = recv.rank;
        recv.peer = send.rank;
        send.type = recv.type = 3;
        send.tag = recv.tag = 1000 + id;
        send.plan = recv.plan = plan;
        send.n = recv.n = pick_bytes(m);
        send.in = 0;
        make_range(m, &send, 1);
        make_range(m, &recv, 1);
        make_add(m, send);
        make_add(m, recv);
    }
    int32_t id = make_id(m);
    for (int32_t i = 0; i < m->comms.comm[comm].members; i++) {
        struct random_action a = make_action(m, RANDOM_GROUP, id, m->comms.comm[comm].world[i], comm);
        a.plan = plan;
        make_add(m, a);
    }
}
#endif

static void plan_use(struct maker *m)
{
    if (m->state.plans == 0) {
        plan_make(m);
        return;
    }
    int32_t plan = (int32_t)make_chance(m, (uint32_t)m->state.plans), comm = m->state.plan_comm[plan], id = make_id(m);
    bool end = make_chance(m, 6) == 0;
    if (m->state.plan_dead[plan] || m->state.life[comm] != MAKE_LIVE || m->state.steps[comm] || comm < m->state.floor)
        return;
    for (int32_t i = 0; i < m->comms.comm[comm].members; i++) {
        struct random_action a = make_action(m, end ? RANDOM_PLAN_FREE : RANDOM_PLAN_START, id, m->comms.comm[comm].world[i], comm);
        a.plan = plan;
        make_add(m, a);
    }
    m->state.plan_dead[plan] = end;
}

/* ------------------------------------------------------------------------------------------------------------ communicators */
static void make_children(struct maker *m)
{
    int32_t comm = make_comm(m), colors = make_chance(m, 3) ? 2 : 3, child[3] = {-1, -1, -1}, id = make_id(m);
    bool dup = make_chance(m, 2) == 0;
    if (comm < 0)
        return;
    const struct random_comm *parent = &m->comms.comm[comm];
    for (int32_t i = 0; i < parent->members && !m->bad; i++) {
        struct random_action a = make_action(m, dup ? RANDOM_DUP : RANDOM_SPLIT, id, parent->world[i], comm);
        a.color = dup ? 0 : (int32_t)make_chance(m, (uint32_t)colors + 1) - (make_chance(m, 3) ? 0 : 1);
        a.color = a.color >= colors ? colors - 1 : a.color;
        a.key = (int32_t)make_chance(m, 3) - 1;
        if (a.color >= 0) {
            if (child[a.color] < 0 && m->state.comms == RANDOM_COMMS) {
                m->bad = true;
                return;
            }
            if (child[a.color] < 0) {
                child[a.color] = m->state.comms++;
                m->state.life[child[a.color]] = MAKE_MAKING;
                m->state.maker[child[a.color]] = id;
            }
            a.child = child[a.color];
        }
        make_add(m, a);
    }
}

/* All members close it, each at a time of its own; nothing new begins on it. */
static void close_one(struct maker *m)
{
    int32_t comm = make_comm(m), id = make_id(m), live = 0;
    for (int32_t c = m->state.floor; c < m->state.comms; c++)
        live += m->state.life[c] == MAKE_LIVE;
    for (int32_t w = 0; w < m->state.windows; w++)
        live = m->state.window_comm[w] == comm && m->state.window_left[w] ? 0 : live;
    if (comm < 0 || live < 2)
        return;
    make_end_of_shrink(m, comm);
    m->state.life[comm] = MAKE_CLOSING;
    for (int32_t i = 0; i < m->comms.comm[comm].members; i++)
        make_later(m, make_action(m, RANDOM_CLOSE, id, m->comms.comm[comm].world[i], comm), m->step + (int32_t)make_chance(m, 6));
}

/* ------------------------------------------------------------------------------------------------------------ messages */
static void message(struct maker *m)
{
    int32_t comm = make_comm(m), id = make_id(m), sort = (int32_t)make_chance(m, 12);
    if (comm < 0)
        return;
    struct random_action send = make_action(m, RANDOM_SEND, id, make_member(m, comm), comm);
    struct random_action recv = make_action(m, RANDOM_RECV, id, make_member(m, comm), comm);
    if (send.rank == recv.rank) /* a rank may send to itself, under a number of its own */
        recv.id = make_id(m);
    send.peer = recv.rank;
    recv.peer = send.rank;
    send.type = recv.type = make_chance(m, 2) ? 3 : (int32_t)make_chance(m, 3);
    send.n = recv.n = send.type == 3 ? pick_bytes(m) : make_count(m, send.type, 1);
    send.in = 0;
    send.tag = recv.tag = (int32_t)make_chance(m, 3);
    if (sort == 0 || sort == 1) { /* with a tag that nothing else uses */
        send.tag = recv.tag = 1000 + id;
        /* Not from oneself: it ends when all the others have closed. */
        recv.flags = sort == 0 && send.rank != recv.rank ? RANDOM_ANY_PEER : 0;
    } else if (sort == 2 && send.n > 0) {
        send.tag = recv.tag = 1000 + id;
        recv.flags = RANDOM_SHORT;
        recv.type = RANDOM_TRASH;
        recv.n = send.n * random_unit(send.type) - 1;
    }
    if (make_chance(m, 10) == 0)
        send.flags |= RANDOM_NO_REQUEST;
    else if (make_chance(m, 8) == 0)
        recv.flags |= RANDOM_NOTIFY;
    bool recv_first = make_chance(m, 2) == 0;
    struct random_action *first = recv_first ? &recv : &send, *second = recv_first ? &send : &recv;
    make_range(m, first, 1);
    make_add(m, *first);
    int32_t delay = (int32_t)make_chance(m, 9);
    if (delay < 4) {
        make_range(m, second, 1);
        make_add(m, *second);
        return;
    }
    if (!recv_first && sort == 1) { /* probed before it is received */
        struct random_action probe = make_action(m, RANDOM_PROBE, make_id(m), recv.rank, comm);
        probe.peer = send.rank;
        probe.tag = send.tag;
        probe.n = send.n * random_unit(send.type);
        make_add(m, probe);
    }
    make_later(m, *second, m->step + delay - 3);
}

static void doomed(struct maker *m)
{
    int32_t comm = make_comm(m), id = make_id(m);
    if (comm < 0)
        return;
    struct random_action recv = make_action(m, RANDOM_RECV, id, make_member(m, comm), comm);
    recv.peer = make_member(m, comm);
    recv.tag = RANDOM_TRASH_TAG + id;
    recv.type = RANDOM_TRASH;
    recv.n = pick_bytes(m);
    recv.flags = RANDOM_DOOMED | (make_chance(m, 2) ? RANDOM_ANY_PEER : 0) | (make_chance(m, 4) ? 0 : RANDOM_NOTIFY);
    make_range(m, &recv, 1);
    make_add(m, recv);
    struct random_action cancel = make_action(m, RANDOM_CANCEL, id, recv.rank, comm);
    cancel.target = id;
    make_later(m, cancel, m->step + (int32_t)make_chance(m, 8));
}

/* ------------------------------------------------------------------------------------------------------------ events */
static void wait_event(struct maker *m, int32_t rank, int32_t event)
{
    int32_t comm = make_comm(m);
    if (comm < 0 || m->comms.comm[comm].rank_of[rank] < 0)
        return;
    struct random_action wait = make_action(m, RANDOM_WAIT_EVENT, make_id(m), rank, comm);
    wait.event = event;
    make_add(m, wait);
}

static void gate(struct maker *m)
{
    int32_t rank = (int32_t)make_chance(m, (uint32_t)m->p->ranks), event = (int32_t)make_chance(m, RANDOM_EVENTS), id = make_id(m);
    if (m->state.shut[rank][event])
        return;
    struct random_action reset = make_action(m, RANDOM_RESET, id, rank, 0), set = make_action(m, RANDOM_SET, id, rank, 0);
    reset.event = set.event = event;
    if (m->state.life[0] != MAKE_LIVE)
        return;
    make_add(m, reset);
    m->state.shut[rank][event] = true;
    make_later(m, set, m->step + 1 + (int32_t)make_chance(m, 10));
    for (uint32_t waits = make_chance(m, 3); waits > 0; waits--)
        wait_event(m, rank, event);
}

static void events(struct maker *m)
{
    int32_t comm = make_comm(m), event = (int32_t)make_chance(m, RANDOM_EVENTS), id = make_id(m);
    if (comm < 0)
        return;
    struct random_action a = make_action(m, RANDOM_RECORD, id, make_member(m, comm), comm);
    a.event = event;
    if (make_chance(m, 2) && !m->state.shut[a.rank][event]) {
        a.verb = make_chance(m, 8) ? RANDOM_RECORD : RANDOM_RENEW;
        make_add(m, a);
    }
    if (make_chance(m, 3))
        wait_event(m, a.rank, event);
}

/* ------------------------------------------------------------------------------------------------------------ the host */
static const struct random_action *some_request(struct maker *m, int32_t rank)
{
    const struct random_program *p = m->p;
    for (int32_t tries = 0; tries < 20 && p->actions; tries++) {
        const struct random_action *a = &p->action[p->actions - 1 - (int32_t)make_chance(m, (uint32_t)(p->actions < 90 ? p->actions : 90))];
        if (a->rank == rank && a->comm >= m->state.floor && random_issues(a) && !(a->flags & RANDOM_NO_REQUEST))
            return a;
    }
    return NULL;
}

static void on_request(struct maker *m)
{
    static const int32_t verbs[] = {RANDOM_WAIT_REQUEST, RANDOM_WAIT_REQUEST, RANDOM_HOST_WAIT, RANDOM_HOST_WAIT, RANDOM_TEST, RANDOM_TEST};
    int32_t rank = (int32_t)make_chance(m, (uint32_t)m->p->ranks), comm = make_comm(m);
    const struct random_action *target = some_request(m, rank);
    if (!target || comm < 0)
        return;
    struct random_action a = make_action(m, verbs[make_chance(m, 6)], make_id(m), rank, target->comm);
    if (a.verb == RANDOM_WAIT_REQUEST)
        a.comm = comm;
    a.target = target->id;
    a.flags = a.verb == RANDOM_HOST_WAIT && make_chance(m, 3) == 0 ? RANDOM_LOOP : 0;
    if (a.verb == RANDOM_WAIT_REQUEST && ((target->flags & (RANDOM_DOOMED | RANDOM_SHORT)) || target->verb == RANDOM_REFUSED))
        return; /* it would rightly fail its queue */
    if (m->comms.comm[a.comm].rank_of[rank] >= 0)
        make_add(m, a);
}

static void host(struct maker *m)
{
    static const int32_t verbs[] = {RANDOM_SYNC,     RANDOM_HOST_LAST, RANDOM_EVENT_SYNC, RANDOM_HOST_ANY,
                                    RANDOM_HOST_ANY, RANDOM_PROGRESS,  RANDOM_SPEND,      RANDOM_SPEND};
    int32_t comm = make_comm(m);
    if (comm < 0)
        return;
    struct random_action a = make_action(m, verbs[make_chance(m, 8)], make_id(m), make_member(m, comm), comm);
    a.event = (int32_t)make_chance(m, RANDOM_EVENTS);
    a.n = 1 + (int32_t)make_chance(m, 8);
    if (a.verb == RANDOM_HOST_ANY)
        a.flags = make_chance(m, 2) ? RANDOM_SOME : make_chance(m, 2) ? RANDOM_ALL : 0;
    if (a.verb == RANDOM_SYNC)
        a.flags = make_chance(m, 3) ? 0 : RANDOM_ALL;
    make_add(m, a);
}

static void fill(struct maker *m)
{
    int32_t rank = (int32_t)make_chance(m, (uint32_t)m->p->ranks);
    struct random_action a = make_action(m, RANDOM_FILL, make_id(m), rank, 0);
    a.type = (int32_t)make_chance(m, RANDOM_TRASH);
    a.n = make_count(m, a.type, 1);
    make_range(m, &a, 1);
    if (m->state.life[0] == MAKE_LIVE)
        make_add(m, a);
}

void make_statement(struct maker *m)
{
    static const struct {
        int32_t weight;
        void (*make)(struct maker *m);
    } sorts[] = {{30, collective}, {4, burst},          {20, message},      {4, doomed},      {8, gate},     {12, events}, {10, on_request},
#ifdef SIM_GROUPS
                 {6, group},
#endif
                 {10, host},       {8, fill},           {5, make_children}, {3, close_one},   {6, plan_use}, {2, refused}, {3, make_subset},
                 {2, make_shrunk}, {3, make_agreement}, {12, make_window},  {8, make_buckets}};
    size_t count = sizeof sorts / sizeof *sorts - (random_has_objects(m->p) ? 0 : 2);
    int32_t total = 0, pick;
    for (size_t i = 0; i < count; i++)
        total += sorts[i].weight;
    pick = (int32_t)make_chance(m, (uint32_t)total);
    for (size_t i = 0; i < count; i++) {
        pick -= sorts[i].weight;
        if (pick < 0) {
            sorts[i].make(m);
            return;
        }
    }
}
