/*
 * The operations that the mock NCCL puts on streams. A rank's part of a collective runs in three separate steps. It arrives when it is the
 * head of its hardware queue and its device has room for its blocks. It reads its input when all parts have arrived. It writes its output
 * when all have read. The transfers of a group are one operation on the stream. Each transfer proceeds when its other end is on a stream.
 */
#define _GNU_SOURCE
#include "mock_clique.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DONE = 3 };
struct hand {
    struct transfer *transfer;
    bool sends, done;
    const void *in;
    void *out;
    size_t bytes;
};
/* A rank's operation on a stream. */
struct part {
    struct ncclComm *comm;
    struct meeting *meeting; /* or, for transfers, `hands` */
    const void *in;
    void *out;
    struct part *next; /* in the list of its device's parts that have not arrived */
    int phase, device;
    struct premul by;
    uint32_t hands;
    struct hand hand[];
};
static struct part *coming[MOCK_DEVICES];
static _Thread_local char last_error[128];

unsigned mock_refuse(unsigned result, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return result;
}

const char *mock_last_error(void)
{
    return last_error;
}

void mock_wait_a_little(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec = until.tv_nsec + 1000000 < 1000000000 ? until.tv_nsec + 1000000 : 999999999;
    pthread_cond_timedwait(&mock.changed, &mock.lock, &until);
}

static bool ended(const struct ncclComm *c)
{
    return c->aborted || c->revoked;
}

/* ------------------------------------------------------------------------------------------------------------ meetings */
static size_t input_count(const struct meeting *m, int size)
{
    return m->what == REDUCE_SCATTER ? m->count * (size_t)size : m->count;
}

static void reduce(const struct meeting *m, const struct part *p)
{
    int size = p->comm->clique->size, rank = p->comm->rank;
    size_t bytes = m->count * mock_type_bytes(m->type), all = input_count(m, size), whole = all * mock_type_bytes(m->type);
    char *sum = malloc(whole + 1), *one = malloc(whole + 1);

    for (int r = 0; r < size; r++) {
        char *to = r ? one : sum;
        memcpy(to, m->input[r], whole);
        if (m->op == NCCL_AVG)
            mock_scale(to, all, m->type, 1.0 / size);
        if (r)
            mock_fold(sum, one, all, m->type, m->op);
    }
    memcpy(mock_reach(p->out), sum + (m->what == REDUCE_SCATTER ? (size_t)rank * bytes : 0), bytes);
    free(sum);
    free(one);
}

static void write_result(const struct meeting *m, const struct part *p)
{
    size_t bytes = m->count * mock_type_bytes(m->type);

    if (m->what == BROADCAST) {
        memcpy(mock_reach(p->out), m->input[m->root], bytes);
    } else if (m->what == ALL_GATHER) {
        for (int r = 0; r < p->comm->clique->size; r++)
            memcpy((char *)mock_reach(p->out) + (size_t)r * bytes, m->input[r], bytes);
    } else if (m->what != REDUCE || p->comm->rank == m->root) {
        reduce(m, p);
    }
}

static void free_meeting(struct meeting *m)
{
    for (int r = 0; r < RANKS; r++)
        mock_shared_give(m->input[r]);
    mock_shared_give(m);
}

static void leave_meeting(struct clique *q, struct meeting *m)
{
    if (++m->left < q->size)
        return;
    struct meeting **at = &q->meetings;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    free_meeting(m);
}

static void free_transfers(struct transfer *t)
{
    for (struct transfer *next; t; t = next) {
        next = t->next;
        mock_shared_give(t->data);
        mock_shared_give(t);
    }
}

void mock_leave_clique(struct ncclComm *c)
{
    struct clique *q = c->clique, **at = &mock_shared->cliques;

    if (!c->gone || c->pending || c->inside)
        return;
    int left = ++q->left, size = q->size;
    free(c);
    if (left < size)
        return;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    for (struct meeting *m = q->meetings, *next; m; m = next) {
        next = m->next;
        free_meeting(m);
    }
    for (int r = 0; r < size; r++)
        free_transfers(q->transfers[r]);
    mock_shared_give(q);
}

/* NCCL combines the collectives of a group. So ranks whose groups differ make different kernels, which never end. */
static struct meeting *meeting_of(struct clique *q, const struct launch *l, uint64_t number, int place)
{
    struct meeting *m = q->meetings;

    while (m && m->number != number)
        m = m->next;
    if (!m) {
        m = mock_shared_take(sizeof *m);
        *m = (struct meeting){
            .number = number, .what = l->what, .count = l->count, .type = l->type, .op = l->op, .root = l->root, .place = place};
        m->next = q->meetings;
        q->meetings = m;
    }
    m->differs |=
        m->place != place || m->what != l->what || m->count != l->count || m->type != l->type || m->op != l->op || m->root != l->root;
    return m;
}

static void read_input(struct part *p)
{
    struct meeting *m = p->meeting;
    size_t bytes = input_count(m, p->comm->clique->size) * mock_type_bytes(m->type);

    m->input[p->comm->rank] = mock_shared_take(bytes + 1);
    if (p->in)
        memcpy(m->input[p->comm->rank], mock_reach(p->in), bytes);
    if (p->by.type)
        mock_premultiply(m->input[p->comm->rank], bytes, &p->by);
    m->read++;
}

/* ------------------------------------------------------------------------------------------------------------ transfers */
static struct transfer *transfer_of(struct clique *q, int from, int to, uint64_t number)
{
    struct transfer *t = q->transfers[from];

    while (t && (t->from != from || t->to != to || t->number != number))
        t = t->next;
    if (t)
        return t;
    t = mock_shared_take(sizeof *t);
    *t = (struct transfer){.next = q->transfers[from], .from = from, .to = to, .number = number};
    q->transfers[from] = t;
    return t;
}

static void take_hand(struct part *p, struct hand *h, const struct launch *l)
{
    struct clique *q = p->comm->clique;
    struct member *me = &q->member[p->comm->rank];
    int rank = p->comm->rank, peer = l->root;

    h->sends = l->out == NULL;
    h->in = l->in;
    h->out = l->out;
    h->bytes = l->count * mock_type_bytes(l->type);
    h->transfer = h->sends ? transfer_of(q, rank, peer, me->sent[peer]++) : transfer_of(q, peer, rank, me->received[peer]++);
}

static void stand(struct hand *h)
{
    struct transfer *t = h->transfer;

    t->differs |= (h->sends ? t->receiver : t->sender) && t->bytes != h->bytes;
    t->bytes = h->bytes;
    *(h->sends ? &t->sender : &t->receiver) = true;
}

static bool hand_can(const struct hand *h)
{
    const struct transfer *t = h->transfer;

    if (h->done || t->differs)
        return false;
    return h->sends ? (t->receiver && !t->filled) || t->taken : t->filled;
}

static void drop_transfer(struct clique *q, struct transfer *t)
{
    struct transfer **at = &q->transfers[t->from];

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    mock_shared_give(t->data);
    mock_shared_give(t);
}

static void hand_go(struct clique *q, struct hand *h)
{
    struct transfer *t = h->transfer;

    if (!h->sends) {
        memcpy(mock_reach(h->out), t->data, h->bytes);
        t->taken = h->done = true;
    } else if (!t->filled) {
        t->data = mock_shared_take(h->bytes + 1);
        memcpy(t->data, mock_reach(h->in), h->bytes);
        t->filled = true;
    } else {
        h->done = true;
        drop_transfer(q, t);
    }
}

static bool all_done(const struct part *p)
{
    for (uint32_t i = 0; i < p->hands; i++)
        if (!p->hand[i].done)
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ on the stream */
static void arrive(struct part *p)
{
    struct part **at = &coming[p->device];

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    mock.resident[p->device]++;
    p->phase = 1;
    for (uint32_t i = 0; i < p->hands && !ended(p->comm); i++)
        stand(&p->hand[i]);
    if (p->meeting && !ended(p->comm))
        p->meeting->arrived++;
}

static bool may_arrive(const struct part *p)
{
    bool in_order = mock.in_order && !mock.options.many_hosts; /* of one process */
    return (!mock.options.blocks || mock.resident[p->device] < mock.options.blocks) && (!in_order || coming[p->device] == p);
}

static bool part_ready_locked(const struct part *p)
{
    int size = p->comm->clique->size;

    if (ended(p->comm))
        return true;
    if (p->phase == 0)
        return may_arrive(p);
    if (p->meeting)
        return !p->meeting->differs && (p->phase == 1 ? p->meeting->arrived == size : p->meeting->read == size);
    for (uint32_t i = 0; i < p->hands; i++)
        if (hand_can(&p->hand[i]))
            return true;
    return false;
}

static bool part_ready(struct mock_op *op)
{
    mock_shared_lock();
    bool ready = part_ready_locked(op->arg);
    mock_shared_unlock();
    return ready;
}

static void meet(struct part *p)
{
    if (p->phase == 1) {
        read_input(p);
        p->phase = 2;
        return;
    }
    write_result(p->meeting, p);
    leave_meeting(p->comm->clique, p->meeting);
    p->phase = DONE;
}

/* One that can, or of many ranks all that can, since they would take many steps. */
static void transfer_one(struct part *p)
{
    struct clique *q = p->comm->clique;
    bool went = false;

    for (uint32_t i = 0; i < p->hands && (!went || q->size > FEW_RANKS); i++) {
        if (!hand_can(&p->hand[i]))
            continue;
        hand_go(q, &p->hand[i]);
        went = true;
    }
    p->phase = all_done(p) ? DONE : 1;
}

static bool part_go(struct mock_op *op)
{
    struct part *p = op->arg;

    mock_shared_lock();
    if (p->phase == 0)
        arrive(p);
    else if (!ended(p->comm) && p->meeting)
        meet(p);
    else if (!ended(p->comm))
        transfer_one(p);
    bool over = p->phase == DONE || ended(p->comm);
    if (over) {
        mock.resident[p->device]--;
        p->comm->pending--;
        mock_leave_clique(p->comm);
        free(p);
    }
    mock_shared_unlock();
    return over;
}

static void push(struct part *p, struct CUstream_st *stream)
{
    struct mock_op *placed = mock_push(stream, OP_FOREIGN);
    struct part **last = &coming[p->device];

    while (*last)
        last = &(*last)->next;
    *last = p;
    placed->arg = p;
    placed->ready = part_ready;
    placed->go = part_go;
    p->comm->pending++;
}

static bool overlaps(const void *buffer, const void *at, size_t bytes)
{
    return buffer && (uintptr_t)buffer - (uintptr_t)at < bytes;
}

static bool part_reads(const struct mock_op *op, const struct ncclComm *c, const void *at, size_t bytes)
{
    const struct part *p = op && op->kind == OP_FOREIGN && op->go == part_go ? op->arg : NULL;

    if (!p || p->comm != c)
        return false;
    for (uint32_t i = 0; i < p->hands; i++)
        if (overlaps(p->hand[i].in, at, bytes) || overlaps(p->hand[i].out, at, bytes))
            return true;
    return overlaps(p->in, at, bytes) || overlaps(p->out, at, bytes);
}

bool mock_reads(const struct ncclComm *c, const void *at, size_t bytes)
{
    for (int q = 0; q < MOCK_QUEUES; q++)
        for (const struct mock_op *op = mock.first[c->device][q]; op; op = op->next)
            if (part_reads(op, c, at, bytes))
                return true;
    return false;
}

/* In the real NCCL each rank chooses the kernels by its own buffers: if they are in windows on some ranks only, the kernels never end. */
static void count_windows(const struct ncclComm *c, const struct launch *l, struct meeting *m)
{
    m->given++;
    m->windowed += mock_has_window(c, l->in) && mock_has_window(c, l->out);
    if (m->given == c->clique->size && m->windowed && m->windowed < m->given)
        mock.misused = "a collective with windows on some ranks only";
}

static void put_collective(const struct launch *l, int place)
{
    struct ncclComm *c = l->comm;
    struct part *p = calloc(1, sizeof *p);

    *p = (struct part){.comm = c, .device = c->device, .in = l->in, .out = l->out, .by = l->by};
    p->meeting = meeting_of(c->clique, l, ++c->issued, place);
    count_windows(c, l, p->meeting);
    push(p, l->stream);
}

/* All transfers of a communicator in one group run together, in any order. */
static void put_transfers(const struct launch *first, uint32_t count)
{
    struct ncclComm *c = first->comm;
    struct part *p = calloc(1, sizeof *p + count * sizeof(struct hand));

    *p = (struct part){.comm = c, .device = c->device};
    struct CUstream_st *stream = NULL;
    for (const struct launch *l = first; l; l = l->next) {
        if (l->comm != c || l->what != NOTHING)
            continue;
        stream = l->stream;
        take_hand(p, &p->hand[p->hands++], l);
    }
    push(p, stream);
}

/* The launches of one communicator, in a graph. As in the real NCCL, the communicator cannot be freed until the graph is destroyed. */
struct recorded {
    struct ncclComm *comm;
    uint32_t count;
    struct launch launch[];
};

static void put_again(void *arg, struct CUstream_st *stream)
{
    struct recorded *r = arg;

    for (uint32_t i = 0; i < r->count; i++) {
        r->launch[i].stream = stream;
        r->launch[i].next = i + 1 < r->count ? &r->launch[i + 1] : NULL;
    }
    mock_shared_lock();
    mock_put(r->launch);
    mock_shared_unlock();
}

static void forget(void *arg)
{
    struct recorded *r = arg;

    r->comm->graphs--;
    free(r);
}

static void record(const struct launch *first)
{
    uint32_t count = 0;
    struct mock_op *op = mock_push(first->stream, OP_AGAIN);

    for (const struct launch *l = first; l; l = l->next)
        count++;
    struct recorded *r = malloc(sizeof *r + count * sizeof *r->launch);
    *r = (struct recorded){first->comm, count};
    for (const struct launch *l = first; l; l = l->next)
        r->launch[r->count - count--] = *l;
    first->comm->graphs++;
    op->again = put_again;
    op->drop = forget;
    op->arg = r;
}

void mock_put(const struct launch *first)
{
    uint32_t transfers = 0;
    int place = 0;

    if (first->stream->graph) {
        record(first);
        return;
    }
    for (const struct launch *l = first; l; l = l->next) {
        if (l->comm != first->comm)
            continue;
        if (l->what != NOTHING)
            put_collective(l, place++);
        else
            transfers++;
    }
    if (transfers)
        put_transfers(first, transfers);
}
