/*
 * The communicators of the mock libnccl.so.2, and memory. As in the real NCCL, a communicator is created from an id or by a split. Its
 * configuration makes it blocking or not, and the environment overrides that.
 */
#define _GNU_SOURCE
#include "mock_clique.h"

#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = -1 };
static uint64_t known_at;
static int runtime_connect, comm_blocking;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text ? (int)strtol(text, NULL, 10) : otherwise;
}

/* As the real NCCL, this reads the environment at the first use only. Here mock_reset makes it read again. */
static void read_environment(void)
{
    if (known_at == mock.generation)
        return;
    known_at = mock.generation;
    runtime_connect = setting("NCCL_RUNTIME_CONNECT", 1);
    comm_blocking = setting("NCCL_COMM_BLOCKING", UNKNOWN);
    mock.in_order = setting("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0;
}

void mock_nccl_wait(void)
{
    mock_shared_unlock();
    mock_wait_a_little();
    mock_shared_lock();
}

/* ------------------------------------------------------------------------------------------------------------ memory */
unsigned mock_ncclMemAlloc(void **memory, size_t bytes)
{
    NCCL_BEGIN;
    if (mock_device() < 0)
        NCCL_END(NCCL_CUDA_ERROR);
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*memory, 0xa5, bytes);
    mock_add(THING_DEVICE_MEMORY, *memory, bytes, mock_device());
    for (int i = 0; i < MOCK_THINGS; i++)
        mock.thing[i].by_nccl |= mock.thing[i].kind == THING_DEVICE_MEMORY && mock.thing[i].at == *memory;
    NCCL_END(NCCL_OK);
}

unsigned mock_ncclMemFree(void *memory)
{
    NCCL_BEGIN;
    if (mock_is_registered(memory))
        mock.misused = "ncclMemFree of memory that a window has";
    if (!mock_remove(THING_DEVICE_MEMORY, memory))
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: no memory of ncclMemAlloc"));
    free(memory);
    NCCL_END(NCCL_OK);
}

unsigned mock_ncclCommRegister(struct ncclComm *comm, void *memory, size_t bytes, void **handle)
{
    NCCL_BEGIN;
    if (mock_owner(memory) != comm->device || !bytes)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: not memory of the communicator's device"));
    struct ncclComm **of = malloc(sizeof *of);
    *of = comm;
    *handle = of;
    mock_add(THING_ENLISTED, of, sizeof *of, comm->device);
    NCCL_END(NCCL_OK);
}

unsigned mock_ncclCommDeregister(struct ncclComm *comm, void *handle)
{
    NCCL_BEGIN;
    if (mock_find(handle) != THING_ENLISTED || *(struct ncclComm **)handle != comm)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: no such registration"));
    mock_remove(THING_ENLISTED, handle);
    free(handle);
    NCCL_END(NCCL_OK);
}

/* A communicator that ends forgets what is registered. */
static void forget_enlisted(const struct ncclComm *comm)
{
    for (int i = 0; i < MOCK_THINGS; i++) {
        struct ncclComm **of = mock.thing[i].kind == THING_ENLISTED ? mock.thing[i].at : NULL;
        if (of && *of == comm) {
            mock_remove(THING_ENLISTED, of);
            free(of);
        }
    }
}
/* ------------------------------------------------------------------------------------------------------------ communicators */
unsigned mock_ncclGetVersion(int *version)
{
    NCCL_BEGIN;
    *version = mock.options.nccl ? mock.options.nccl : 22809;
    NCCL_END(NCCL_OK);
}

unsigned mock_ncclGetUniqueId(struct nccl_id *id)
{
    NCCL_BEGIN;
    memset(id, 0, sizeof *id);
    mock_shared->ids++;
    mock_shared->listeners++;
    memcpy(id->internal, &mock_shared->ids, sizeof mock_shared->ids);
    NCCL_END(NCCL_OK);
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
    return mock_last_error();
}

uint64_t mock_listeners(void)
{
    mock_shared_lock();
    uint64_t listeners = mock_shared->listeners;
    mock_shared_unlock();
    return listeners;
}

static struct clique *clique_of(const struct nccl_id *id, int size)
{
    struct clique *q = mock_shared->cliques;

    while (q && memcmp(&q->id, id, sizeof *id) != 0)
        q = q->next;
    if (q)
        return q;
    q = mock_shared_take(sizeof *q);
    q->id = *id;
    q->size = size;
    q->next = mock_shared->cliques;
    mock_shared->cliques = q;
    return q;
}

static struct ncclComm *enter_clique(struct clique *q, int rank, int blocking)
{
    struct ncclComm *c = calloc(1, sizeof *c);

    c->clique = q;
    c->rank = rank;
    c->device = mock_device();
    c->blocking = comm_blocking == UNKNOWN ? blocking : comm_blocking;
    c->state = NCCL_IN_PROGRESS;
    q->member[rank] = (struct member){.in = true, .device = c->device, .paths = runtime_connect ? 0 : PATH_ALL};
    q->member[rank].peers[rank] = true;
    q->joined++;
    mock_add(THING_COMM, c, 0, c->device);
    return c;
}

/* Returns whether a rank of this process uses the device. Other processes have their own device numbers, so they do not count. */
static bool has_device(const struct clique *q, int device)
{
    for (int i = 0; i < MOCK_THINGS; i++) {
        const struct ncclComm *c = mock.thing[i].kind == THING_COMM ? mock.thing[i].at : NULL;
        if (c && c->clique == q && c->device == device)
            return true;
    }
    return false;
}

static struct mock_config newest;

struct mock_config mock_newest_config(void)
{
    pthread_mutex_lock(&mock.lock);
    struct mock_config config = newest;
    pthread_mutex_unlock(&mock.lock);
    return config;
}

/* As the real NCCL, this refuses values that are out of range as invalid arguments. */
static bool take_config(const struct nccl_config *c)
{
    newest = (struct mock_config){c->min_ctas, c->max_ctas, c->cga_cluster_size, c->split_share};
    return (c->min_ctas == NCCL_UNSET || c->min_ctas > 0) && (c->max_ctas == NCCL_UNSET || c->max_ctas > 0) &&
           (c->cga_cluster_size == NCCL_UNSET || (c->cga_cluster_size >= 0 && c->cga_cluster_size <= 8)) &&
           (c->split_share == NCCL_UNSET || c->split_share == 0 || c->split_share == 1) &&
           (c->min_ctas == NCCL_UNSET || c->max_ctas == NCCL_UNSET || c->min_ctas <= c->max_ctas);
}

unsigned mock_ncclCommInitRankConfig(struct ncclComm **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config)
{
    NCCL_BEGIN;
    if (config->magic != NCCL_MAGIC || ranks > RANKS || rank < 0 || rank >= ranks)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: ranks, or the magic of the configuration"));
    if (!take_config(config))
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: the configuration's CTAs, cluster or splitShare"));
    read_environment();
    struct clique *q = clique_of(&id, ranks);
    if (!mock.options.many_hosts && has_device(q, mock_device()))
        NCCL_END(mock_refuse(NCCL_INVALID_USAGE, "mock: Duplicate GPU detected"));
    *comm = enter_clique(q, rank, config->blocking);
    mock_shared->listeners -= q->joined == q->size;
    while ((*comm)->blocking && q->joined < q->size)
        mock_nccl_wait();
    if ((*comm)->blocking)
        (*comm)->state = NCCL_OK;
    NCCL_END((*comm)->blocking ? NCCL_OK : NCCL_IN_PROGRESS);
}

/* Returns whether all ranks of the clique have called the split with this number. Then each rank gets its child. */
static bool split_ready(const struct ncclComm *c)
{
    const struct clique *q = c->clique;

    for (int r = 0; r < q->size; r++)
        if (q->member[r].splits < c->splits)
            return false;
    return true;
}

static void give_child(struct ncclComm *c)
{
    struct clique *q = c->clique;
    const struct member *me = &q->member[c->rank];
    struct nccl_id id = q->id;
    int size = 0, rank = 0;
    uint64_t salt = c->splits << 32 | (uint32_t)me->color;

    for (int r = 0; r < q->size; r++) {
        const struct member *other = &q->member[r];
        if (other->color != me->color)
            continue;
        size++;
        rank += other->key < me->key || (other->key == me->key && r < c->rank);
    }
    memcpy(id.internal + 64, &salt, sizeof salt);
    *c->child = enter_clique(clique_of(&id, size), rank, c->child_blocking);
    (*c->child)->state = NCCL_OK;
    c->child = NULL;
}

unsigned mock_ncclCommSplit(struct ncclComm *comm, int color, int key, struct ncclComm **child, struct nccl_config *config)
{
    NCCL_BEGIN;
    if (comm->state != NCCL_OK || !config || config->magic != NCCL_MAGIC)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: the parent is not ready, or no configuration"));
    if (!take_config(config))
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: the configuration's CTAs, cluster or splitShare"));
    *child = NULL;
    comm->child = child;
    comm->child_blocking = config->blocking;
    struct member *me = &comm->clique->member[comm->rank];
    me->color = color;
    me->key = key;
    me->splits = ++comm->splits;
    comm->asks = 0;
    while (comm->blocking && !split_ready(comm) && !comm->aborted)
        mock_nccl_wait();
    if (comm->blocking)
        give_child(comm);
    else
        comm->state = NCCL_IN_PROGRESS;
    NCCL_END(comm->state);
}

static bool is_over(const struct ncclComm *c)
{
    return c->launches || (c->clique->joined >= c->clique->size && (!c->child || split_ready(c)));
}

void mock_slow(int slow_join)
{
    pthread_mutex_lock(&mock.lock);
    mock.options.slow_join = slow_join;
    pthread_mutex_unlock(&mock.lock);
}

unsigned mock_ncclCommGetAsyncError(struct ncclComm *comm, unsigned *result)
{
    NCCL_BEGIN;
    int slow = mock.options.slow_join;
    if (comm->state == NCCL_IN_PROGRESS && slow >= 0 && ++comm->asks > slow && is_over(comm)) {
        if (comm->child)
            give_child(comm);
        if (comm->launches)
            mock_put(comm->launches);
        mock_free_launches(comm->launches);
        comm->launches = NULL;
        comm->state = NCCL_OK;
        comm->asks = 0;
    }
    *result = mock.async_error ? (unsigned)mock.async_error : comm->state;
    NCCL_END(NCCL_OK);
}

/* The communicator is freed only when its last operation has left the streams. */
static void end_comm(struct ncclComm *comm, bool aborted)
{
    mock_remove(THING_COMM, comm);
    forget_enlisted(comm);
    mock_forget_windows(comm);
    comm->aborted = comm->aborted || aborted;
    comm->gone = true;
    mock_free_launches(comm->launches);
    comm->launches = NULL;
    mock_leave_clique(comm);
}

unsigned mock_ncclCommDestroy(struct ncclComm *comm)
{
    NCCL_BEGIN;
    while (comm->graphs || (comm->pending && mock.running && !comm->aborted))
        mock_nccl_wait();
    if (mock_has_op(comm))
        mock.misused = "ncclCommDestroy of a communicator that has operators";
    end_comm(comm, false);
    NCCL_END(NCCL_OK);
}

/* An abort is a misuse while another thread is inside a call of the communicator, because that thread would use freed memory. */
unsigned mock_ncclCommAbort(struct ncclComm *comm)
{
    NCCL_BEGIN;
    while (mock.options.abort_hangs && comm->rank == mock.options.abort_rank)
        mock_nccl_wait();
    comm->aborted = true;
    if (comm->child) /* as in the real NCCL, the thread that splits gives the child even if the split is aborted */
        give_child(comm);
    while (comm->graphs)
        mock_nccl_wait();
    if (comm->inside && (!mock.options.nccl || mock.options.nccl >= NCCL_WITH_REVOKE))
        mock.misused = "ncclCommAbort while another thread is inside a call of the communicator";
    end_comm(comm, true);
    NCCL_END(NCCL_OK);
}

/* Ends the operations under way, and frees nothing. */
unsigned mock_ncclCommRevoke(struct ncclComm *comm, int flags)
{
    NCCL_BEGIN;
    (void)flags;
    comm->revoked = true;
    NCCL_END(NCCL_OK);
}
