/*
 * Symmetric windows of the mock libnccl.so.2. As in the real NCCL, to register waits for all ranks of the communicator, needs memory of
 * ncclMemAlloc with the same length on every rank, and to deregister is a call of one rank alone.
 */
#define _GNU_SOURCE
#include "mock_clique.h"

#include <stdlib.h>

struct ncclWindow_vidmem {
    const struct ncclComm *comm;
    const char *at;
    size_t bytes;
};

static struct ncclWindow_vidmem *window_at(int thing)
{
    return mock.thing[thing].kind == THING_WINDOW ? mock.thing[thing].at : NULL;
}

static bool is_allocated(const struct ncclComm *c, const void *memory, size_t bytes)
{
    for (int i = 0; i < MOCK_THINGS; i++)
        if (mock.thing[i].kind == THING_DEVICE_MEMORY && mock.thing[i].by_nccl && mock.thing[i].device == c->device)
            if ((uintptr_t)memory - (uintptr_t)mock.thing[i].at < mock.thing[i].bytes)
                return bytes <= (mock.thing[i].bytes + NCCL_WINDOW_ALIGN - 1) / NCCL_WINDOW_ALIGN * NCCL_WINDOW_ALIGN;
    return false;
}

static bool all_ask(const struct ncclComm *c)
{
    const struct clique *q = c->clique;

    for (int r = 0; r < q->size; r++)
        if (q->member[r].windows < c->windows)
            return false;
    return true;
}

static bool lengths_differ(const struct clique *q)
{
    for (int r = 1; r < q->size; r++)
        if (q->member[r].window_bytes != q->member[0].window_bytes)
            return true;
    return false;
}

static unsigned meet(struct ncclComm *c, size_t bytes)
{
    struct member *me = &c->clique->member[c->rank];

    me->window_bytes = bytes;
    c->windows++;
    if (c->rank + 1 != mock.options.lost_rank)
        me->windows = c->windows;
    c->inside++;
    while (!all_ask(c) && !c->aborted && !c->revoked)
        mock_nccl_wait();
    bool ended = c->aborted || c->revoked;
    c->inside--;
    if (ended) {
        mock_leave_clique(c);
        return mock_refuse(NCCL_INTERNAL_ERROR, "mock: aborted while it registered a window");
    }
    if (lengths_differ(c->clique))
        mock.misused = "windows of different lengths";
    return NCCL_OK;
}

unsigned mock_ncclCommWindowRegister(struct ncclComm *comm, void *memory, size_t bytes, struct ncclWindow_vidmem **window, int flags)
{
    NCCL_BEGIN;
    *window = NULL;
    if (comm->gone || comm->revoked || comm->state != NCCL_OK || mock_device() != comm->device)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: the communicator is not ready, or another device is current"));
    if (comm->inside)
        mock.misused = "ncclCommWindowRegister while another thread is inside a call of the communicator";
    if (!is_allocated(comm, memory, bytes) || flags != NCCL_WINDOW_SYMMETRIC)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: not memory of ncclMemAlloc on the communicator's device"));
    if ((uintptr_t)memory % NCCL_WINDOW_ALIGN || !bytes || bytes % NCCL_WINDOW_ALIGN)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: a window is not aligned"));
    if (comm->rank + 1 == mock.options.no_window_rank)
        NCCL_END(mock_refuse(NCCL_SYSTEM_ERROR, "mock: no room for a window"));
    unsigned result = meet(comm, bytes);
    if (result != NCCL_OK || mock.options.no_windows)
        NCCL_END(result);
    *window = malloc(sizeof **window);
    **window = (struct ncclWindow_vidmem){comm, memory, bytes};
    mock_add(THING_WINDOW, *window, sizeof **window, comm->device);
    NCCL_END(NCCL_OK);
}

unsigned mock_ncclCommWindowDeregister(struct ncclComm *comm, struct ncclWindow_vidmem *window)
{
    NCCL_BEGIN;
    if (!window)
        NCCL_END(NCCL_OK);
    if (mock_find(window) != THING_WINDOW || window->comm != comm || comm->revoked)
        NCCL_END(mock_refuse(NCCL_INVALID_ARGUMENT, "mock: no window of this communicator"));
    if (comm->inside)
        mock.misused = "ncclCommWindowDeregister while another thread is inside a call of the communicator";
    if (mock_reads(comm, window->at, window->bytes))
        mock.misused = "ncclCommWindowDeregister of memory that an operation uses";
    mock_remove(THING_WINDOW, window);
    free(window);
    NCCL_END(NCCL_OK);
}

bool mock_has_window(const struct ncclComm *c, const void *at)
{
    for (int i = 0; i < MOCK_THINGS; i++) {
        const struct ncclWindow_vidmem *w = window_at(i);
        if (w && w->comm == c && (uintptr_t)at - (uintptr_t)w->at < w->bytes)
            return true;
    }
    return false;
}

bool mock_is_registered(const void *memory)
{
    for (int i = 0; i < MOCK_THINGS; i++) {
        const struct ncclWindow_vidmem *w = window_at(i);
        if (w && w->at == memory)
            return true;
    }
    return false;
}

int mock_windows(void)
{
    int count = 0;

    pthread_mutex_lock(&mock.lock);
    for (int i = 0; i < MOCK_THINGS; i++)
        count += mock.thing[i].kind == THING_WINDOW;
    pthread_mutex_unlock(&mock.lock);
    return count;
}

/* An aborted communicator forgets its windows. The real NCCL 2.28 leaks what a destroyed one still has. */
void mock_forget_windows(const struct ncclComm *c)
{
    for (int i = 0; i < MOCK_THINGS; i++) {
        struct ncclWindow_vidmem *w = window_at(i);
        if (!w || w->comm != c)
            continue;
        if (!c->aborted)
            mock.misused = "ncclCommDestroy of a communicator that has windows";
        mock_remove(THING_WINDOW, w);
        free(w);
    }
}
