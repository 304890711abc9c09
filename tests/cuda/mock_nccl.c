/*
 * libnccl.so.2, mock: communicators whose collectives meet on the streams of the mock machine. A rank's operation arrives when it is
 * the head of its hardware queue, reads its input when all have arrived, and writes its output when all have read, each a step of its own.
 */
#define _GNU_SOURCE
#include "mock_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BEGIN                                                                                                                              \
    if (mock_begin(__func__))                                                                                                              \
    return NCCL_INTERNAL_ERROR
#define END(result)                                                                                                                        \
    do {                                                                                                                                   \
        unsigned told = (unsigned)(result);                                                                                                \
        mock_end();                                                                                                                        \
        return told;                                                                                                                       \
    } while (0)
#define EXPORT(field, symbol, result, parameters) MOCK_API result mock_##field parameters __asm__(symbol);
NCCL_CALLS(EXPORT)

enum { RANKS = 16 };
enum what { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER };

/* One collective of a clique: each rank's part of it. */
struct meeting {
    struct meeting *next;
    uint64_t number;
    enum what what;
    size_t count;
    unsigned type, op;
    int root, arrived, read, left;
    bool differs;
    void *input[RANKS];
};
struct transfer {
    struct transfer *next;
    bool send, posted, done;
    int peer;
    void *at;
    size_t bytes;
    struct ncclComm *comm;
    struct CUstream_st *stream;
};
struct clique {
    struct clique *next;
    struct nccl_id id;
    int size, joined, left;
    struct ncclComm *rank[RANKS];
    struct meeting *meetings;
    uint64_t split_number[RANKS];
};
struct ncclComm {
    struct clique *clique;
    int rank, device, blocking, asks, pending;
    unsigned state;
    bool aborted, gone;
    uint64_t issued;
    /* a split under way */
    int color, key;
    struct ncclComm **child;
    uint64_t splits;
    int child_blocking;
};
/* A rank's operation as it stands on a stream. */
struct part {
    struct ncclComm *comm;
    struct meeting *meeting;
    const void *in;
    void *out;
    int phase;
    struct transfer *transfers;
};
static struct clique *cliques;
static uint64_t ids;
static _Thread_local int group;
static _Thread_local struct transfer *grouped;
static _Thread_local char last_error[128];

static size_t size_of(unsigned type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return type < sizeof bytes / sizeof *bytes ? bytes[type] : 0;
}

/* ------------------------------------------------------------------------------------------------------------ arithmetic */
#define FOLD(name, element)                                                                                                                \
    static void fold_##name(element *to, const element *from, size_t n, unsigned op)                                                       \
    {                                                                                                                                      \
        for (size_t i = 0; i < n; i++)                                                                                                     \
            to[i] = op == NCCL_PROD  ? (element)(to[i] * from[i])                                                                          \
                    : op == NCCL_MAX ? (to[i] > from[i] ? to[i] : from[i])                                                                 \
                    : op == NCCL_MIN ? (to[i] < from[i] ? to[i] : from[i])                                                                 \
                                     : (element)(to[i] + from[i]);                                                                         \
    }
FOLD(f32, float)
FOLD(f64, double)
FOLD(u8, uint8_t)
FOLD(i32, int32_t)
FOLD(u32, uint32_t)
FOLD(i64, int64_t)
FOLD(u64, uint64_t)

static void fold(void *to, const void *from, size_t n, unsigned type, unsigned op)
{
    switch (type) {
    case NCCL_F32:
        fold_f32(to, from, n, op);
        return;
    case NCCL_F64:
        fold_f64(to, from, n, op);
        return;
    case NCCL_I32:
        fold_i32(to, from, n, op);
        return;
    case NCCL_U32:
        fold_u32(to, from, n, op);
        return;
    case NCCL_I64:
        fold_i64(to, from, n, op);
        return;
    case NCCL_U64:
        fold_u64(to, from, n, op);
        return;
    default:
        fold_u8(to, from, n, op);
    }
}

static void average(void *to, size_t n, unsigned type, int ranks)
{
    for (size_t i = 0; i < n; i++) {
        if (type == NCCL_F32)
            ((float *)to)[i] /= (float)ranks;
        else if (type == NCCL_F64)
            ((double *)to)[i] /= ranks;
    }
}

/* ------------------------------------------------------------------------------------------------------------ collectives on streams */
static size_t input_count(const struct meeting *m, int size)
{
    return m->what == REDUCE_SCATTER ? m->count * (size_t)size : m->count;
}

static void write_result(const struct meeting *m, const struct part *p)
{
    size_t bytes = m->count * size_of(m->type), all = input_count(m, p->comm->clique->size);
    int size = p->comm->clique->size, rank = p->comm->rank;

    if (m->what == BROADCAST) {
        memcpy(p->out, m->input[m->root], bytes);
    } else if (m->what == ALL_GATHER) {
        for (int r = 0; r < size; r++)
            memcpy((char *)p->out + (size_t)r * bytes, m->input[r], bytes);
    } else if (m->what != REDUCE || rank == m->root) {
        void *sum = malloc(all * size_of(m->type) + 1);
        memcpy(sum, m->input[0], all * size_of(m->type));
        for (int r = 1; r < size; r++)
            fold(sum, m->input[r], all, m->type, m->op);
        if (m->op == NCCL_AVG)
            average(sum, all, m->type, size);
        memcpy(p->out, (char *)sum + (m->what == REDUCE_SCATTER ? (size_t)rank * bytes : 0), bytes);
        free(sum);
    }
}

static void leave_meeting(struct clique *q, struct meeting *m)
{
    if (++m->left < q->size)
        return;
    struct meeting **at = &q->meetings;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    for (int r = 0; r < RANKS; r++)
        free(m->input[r]);
    free(m);
}

static void leave_clique(struct ncclComm *c)
{
    struct clique *q = c->clique, **at = &cliques;

    if (!c->gone || c->pending)
        return;
    int left = ++q->left, size = q->size;
    free(c);
    if (left < size)
        return;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    while (q->meetings) {
        struct meeting *m = q->meetings;
        q->meetings = m->next;
        for (int r = 0; r < RANKS; r++)
            free(m->input[r]);
        free(m);
    }
    free(q);
}

static bool part_ready(struct mock_op *op)
{
    const struct part *p = op->arg;
    const struct meeting *m = p->meeting;
    int size = p->comm->clique->size;

    if (p->comm->aborted || p->phase == 0)
        return true;
    return !m->differs && (p->phase == 1 ? m->arrived == size : m->read == size);
}

static bool part_go(struct mock_op *op)
{
    struct part *p = op->arg;
    struct meeting *m = p->meeting;
    struct ncclComm *c = p->comm;

    if (!c->aborted && p->phase == 0) {
        m->arrived++;
        p->phase = 1;
        return false;
    }
    if (!c->aborted && p->phase == 1) {
        size_t bytes = input_count(m, c->clique->size) * size_of(m->type);
        m->input[c->rank] = malloc(bytes + 1);
        if (p->in)
            memcpy(m->input[c->rank], p->in, bytes);
        m->read++;
        p->phase = 2;
        return false;
    }
    if (!c->aborted) {
        write_result(m, p);
        leave_meeting(c->clique, m);
    }
    c->pending--;
    leave_clique(c);
    free(p);
    return true;
}

static struct meeting *meeting_of(struct clique *q, uint64_t number)
{
    struct meeting *m = q->meetings;

    while (m && m->number != number)
        m = m->next;
    if (m)
        return m;
    m = calloc(1, sizeof *m);
    m->number = number;
    m->what = (enum what) - 1;
    m->next = q->meetings;
    q->meetings = m;
    return m;
}

static unsigned refuse(unsigned result, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return result;
}

static unsigned issue(struct ncclComm *c, enum what what, const void *in, void *out, size_t count, unsigned type, unsigned op, int root,
                      struct CUstream_st *stream)
{
    if (!c || c->gone || c->state != NCCL_OK)
        return refuse(NCCL_INVALID_ARGUMENT, "mock: the communicator is not ready");
    if (mock_device() != c->device || mock_find(stream) != THING_STREAM || stream->device != c->device || !size_of(type))
        return refuse(NCCL_INVALID_USAGE, "mock: another device is current, or no such stream or type");
    if ((in && mock_find(in) != THING_DEVICE_MEMORY) || (out && mock_find(out) != THING_DEVICE_MEMORY))
        return refuse(NCCL_INVALID_ARGUMENT, "mock: not device memory");
    if (!c->blocking)
        return refuse(NCCL_INVALID_USAGE, "mock: a collective on a communicator that does not block stands in no stream yet");
    struct meeting *m = meeting_of(c->clique, ++c->issued);
    if (m->what == (enum what) - 1) {
        m->what = what;
        m->count = count;
        m->type = type;
        m->op = op;
        m->root = root;
    }
    m->differs |= m->what != what || m->count != count || m->type != type || m->op != op || m->root != root;
    struct part *p = calloc(1, sizeof *p);
    *p = (struct part){.comm = c, .meeting = m, .in = in, .out = out};
    struct mock_op *placed = mock_push(stream, OP_FOREIGN);
    placed->arg = p;
    placed->ready = part_ready;
    placed->go = part_go;
    c->pending++;
    return NCCL_OK;
}

unsigned mock_ncclAllReduce(const void *in, void *out, size_t count, unsigned type, unsigned op, struct ncclComm *comm,
                            struct CUstream_st *stream)
{
    BEGIN;
    END(issue(comm, ALL_REDUCE, in, out, count, type, op, 0, stream));
}

unsigned mock_ncclBroadcast(const void *in, void *out, size_t count, unsigned type, int root, struct ncclComm *comm,
                            struct CUstream_st *stream)
{
    BEGIN;
    END(issue(comm, BROADCAST, in, out, count, type, 0, root, stream));
}

unsigned mock_ncclReduce(const void *in, void *out, size_t count, unsigned type, unsigned op, int root, struct ncclComm *comm,
                         struct CUstream_st *stream)
{
    BEGIN;
    END(issue(comm, REDUCE, in, out, count, type, op, root, stream));
}

unsigned mock_ncclAllGather(const void *in, void *out, size_t count, unsigned type, struct ncclComm *comm, struct CUstream_st *stream)
{
    BEGIN;
    END(issue(comm, ALL_GATHER, in, out, count, type, 0, 0, stream));
}

unsigned mock_ncclReduceScatter(const void *in, void *out, size_t count, unsigned type, unsigned op, struct ncclComm *comm,
                                struct CUstream_st *stream)
{
    BEGIN;
    END(issue(comm, REDUCE_SCATTER, in, out, count, type, op, 0, stream));
}

/* ------------------------------------------------------------------------------------------------------------ sends and receives */
/* Only to oneself: what one device can show. All of a group stand on the stream as one. */
static bool always(struct mock_op *op)
{
    (void)op;
    return true;
}

static bool group_go(struct mock_op *op)
{
    struct part *p = op->arg;

    for (struct transfer *to = p->transfers; to; to = to->next) {
        struct transfer *from = to->send ? NULL : p->transfers;
        while (from && (!from->send || from->done))
            from = from->next;
        if (!from)
            continue;
        memcpy(to->at, from->at, to->bytes < from->bytes ? to->bytes : from->bytes);
        from->done = true;
    }
    for (struct transfer *t = p->transfers, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    p->comm->pending--;
    leave_clique(p->comm);
    free(p);
    return true;
}

static unsigned add_transfer(struct ncclComm *c, bool send, void *at, size_t count, unsigned type, int peer, struct CUstream_st *stream)
{
    struct transfer **last = &grouped;

    if (!c || c->state != NCCL_OK || !group || peer != c->rank || !size_of(type) || mock_find(at) != THING_DEVICE_MEMORY)
        return refuse(NCCL_INVALID_USAGE, "mock: only grouped transfers to oneself");
    while (*last)
        last = &(*last)->next;
    *last = calloc(1, sizeof **last);
    **last = (struct transfer){.send = send, .peer = peer, .at = at, .bytes = count * size_of(type), .comm = c, .stream = stream};
    return NCCL_OK;
}

unsigned mock_ncclSend(const void *in, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream)
{
    BEGIN;
    END(add_transfer(comm, true, (void *)(uintptr_t)in, count, type, peer, stream));
}

unsigned mock_ncclRecv(void *out, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream)
{
    BEGIN;
    END(add_transfer(comm, false, out, count, type, peer, stream));
}

unsigned mock_ncclGroupStart(void)
{
    BEGIN;
    group++;
    END(NCCL_OK);
}

unsigned mock_ncclGroupEnd(void)
{
    BEGIN;
    if (--group == 0 && grouped) {
        struct part *p = calloc(1, sizeof *p);
        *p = (struct part){.comm = grouped->comm, .transfers = grouped};
        struct mock_op *op = mock_push(grouped->stream, OP_FOREIGN);
        op->arg = p;
        op->ready = always;
        op->go = group_go;
        p->comm->pending++;
        grouped = NULL;
    }
    END(NCCL_OK);
}

/* ------------------------------------------------------------------------------------------------------------ communicators */
unsigned mock_ncclGetVersion(int *version)
{
    BEGIN;
    *version = mock.options.nccl ? mock.options.nccl : 22809;
    END(NCCL_OK);
}

unsigned mock_ncclGetUniqueId(struct nccl_id *id)
{
    BEGIN;
    memset(id, 0, sizeof *id);
    ids++;
    memcpy(id->internal, &ids, sizeof ids);
    END(NCCL_OK);
}

const char *mock_ncclGetErrorString(unsigned result)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "in progress"};

    return result < sizeof text / sizeof *text ? text[result] : "unknown result code";
}

const char *mock_ncclGetLastError(struct ncclComm *comm)
{
    (void)comm;
    return last_error;
}

static struct clique *clique_of(const struct nccl_id *id, int size)
{
    struct clique *q = cliques;

    while (q && memcmp(&q->id, id, sizeof *id) != 0)
        q = q->next;
    if (q)
        return q;
    q = calloc(1, sizeof *q);
    q->id = *id;
    q->size = size;
    q->next = cliques;
    cliques = q;
    return q;
}

static struct ncclComm *enter_clique(struct clique *q, int rank, int blocking)
{
    struct ncclComm *c = calloc(1, sizeof *c);

    c->clique = q;
    c->rank = rank;
    c->device = mock_device();
    c->blocking = blocking;
    c->state = NCCL_IN_PROGRESS;
    q->rank[rank] = c;
    q->joined++;
    mock_add(THING_COMM, c, 0, c->device);
    return c;
}

static void wait_a_little(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec = until.tv_nsec + 1000000 < 1000000000 ? until.tv_nsec + 1000000 : 999999999;
    pthread_cond_timedwait(&mock.changed, &mock.lock, &until);
}

unsigned mock_ncclCommInitRankConfig(struct ncclComm **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config)
{
    BEGIN;
    if (config->magic != NCCL_MAGIC || ranks > RANKS || rank < 0 || rank >= ranks)
        END(refuse(NCCL_INVALID_ARGUMENT, "mock: ranks, or the magic of the configuration"));
    struct clique *q = clique_of(&id, ranks);
    for (int r = 0; r < ranks; r++)
        if (q->rank[r] && q->rank[r]->device == mock_device())
            END(refuse(NCCL_INVALID_USAGE, "mock: Duplicate GPU detected"));
    *comm = enter_clique(q, rank, config->blocking);
    while (config->blocking && q->joined < q->size)
        wait_a_little();
    if (config->blocking)
        (*comm)->state = NCCL_OK;
    END(config->blocking ? NCCL_OK : NCCL_IN_PROGRESS);
}

/* The ranks of its clique have all asked for their split of this number: then each is given its child. */
static bool split_ready(const struct ncclComm *c)
{
    const struct clique *q = c->clique;

    for (int r = 0; r < q->size; r++)
        if (q->split_number[r] < c->splits)
            return false;
    return true;
}

static void give_child(struct ncclComm *c)
{
    struct clique *q = c->clique;
    struct nccl_id id = q->id;
    int size = 0, rank = 0;
    uint64_t salt = c->splits << 32 | (uint32_t)c->color;

    for (int r = 0; r < q->size; r++) {
        const struct ncclComm *other = q->rank[r];
        if (!other || other->color != c->color)
            continue;
        size++;
        rank += other->key < c->key || (other->key == c->key && r < c->rank);
    }
    memcpy(id.internal + 64, &salt, sizeof salt);
    *c->child = enter_clique(clique_of(&id, size), rank, c->child_blocking);
    (*c->child)->state = NCCL_OK;
    c->child = NULL;
}

unsigned mock_ncclCommSplit(struct ncclComm *comm, int color, int key, struct ncclComm **child, struct nccl_config *config)
{
    BEGIN;
    if (comm->state != NCCL_OK || !config || config->magic != NCCL_MAGIC)
        END(refuse(NCCL_INVALID_ARGUMENT, "mock: the parent is not ready, or no configuration"));
    *child = NULL;
    comm->color = color;
    comm->key = key;
    comm->child = child;
    comm->child_blocking = config->blocking;
    comm->clique->split_number[comm->rank] = ++comm->splits;
    comm->state = NCCL_IN_PROGRESS;
    comm->asks = 0;
    END(NCCL_IN_PROGRESS);
}

unsigned mock_ncclCommGetAsyncError(struct ncclComm *comm, unsigned *result)
{
    BEGIN;
    int slow = mock.options.slow_join;
    if (comm->state == NCCL_IN_PROGRESS && slow >= 0 && ++comm->asks > slow && comm->clique->joined == comm->clique->size &&
        (!comm->child || split_ready(comm))) {
        if (comm->child)
            give_child(comm);
        comm->state = NCCL_OK;
        comm->asks = 0;
    }
    *result = mock.async_error ? (unsigned)mock.async_error : comm->state;
    END(NCCL_OK);
}

/* It is not freed before its last operation has left the streams. */
static void end_comm(struct ncclComm *comm, bool aborted)
{
    mock_remove(THING_COMM, comm);
    comm->aborted = comm->aborted || aborted;
    comm->gone = true;
    comm->clique->rank[comm->rank] = NULL;
    leave_clique(comm);
}

unsigned mock_ncclCommDestroy(struct ncclComm *comm)
{
    BEGIN;
    while (comm->pending && mock.running)
        wait_a_little();
    end_comm(comm, false);
    END(NCCL_OK);
}

unsigned mock_ncclCommAbort(struct ncclComm *comm)
{
    BEGIN;
    while (mock.options.abort_hangs)
        wait_a_little();
    end_comm(comm, true);
    END(NCCL_OK);
}
