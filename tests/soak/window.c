/*
 * window: a step on the window of a communicator, which the first such step creates. Each rank puts a block into the next rank's part. All
 * ranks add to a counter of rank 0, draw numbers from it, and signal. Between fences the contents are known.
 */
#include "soak/soak.h"
#include "now.h"

#include <string.h>

enum { HEAD = 64, BLOCK = 8192, PART = HEAD + BLOCK };

static enum comm_result fence(struct soak_slot *at)
{
    struct comm_request request;
    enum comm_result result = comm_window_fence(at->window, &request);
    return result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
}

static unsigned char mark(const struct soak_step *s, int32_t from, size_t i)
{
    return (unsigned char)(s->seed + (uint64_t)from * 13 + i);
}

static enum comm_result put_block(struct soak_slot *at, const struct soak_step *s)
{
    unsigned char block[BLOCK];
    size_t n = s->n % BLOCK + 1;
    struct comm_request request;

    for (size_t i = 0; i < n; i++)
        block[i] = mark(s, at->me, i);
    enum comm_result result = comm_put(at->window, block, n, COMM_BYTE, (at->me + 1) % at->size, HEAD, &request);
    return result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
}

/* Draws numbers from rank 0's counter. Each is less than the total number of draws of all ranks. */
static enum comm_result draw_numbers(struct soak_rank *r, struct soak_slot *at, const struct soak_step *s)
{
    const int64_t one = 1;
    enum comm_result result = COMM_OK;

    for (uint32_t i = 0; i < s->count && result == COMM_OK; i++) {
        int64_t old = -1;
        struct comm_request request;
        result = comm_fetch_op(at->window, &one, &old, 1, COMM_I64, COMM_SUM, 0, 0, &request);
        result = result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
        if (result == COMM_OK && !r->program->hostile)
            if (old < at->added || old >= at->added + (int64_t)s->count * at->size)
                rig_die(__FILE__, __LINE__, "draw %u of %u is %lld, expected %lld to below %lld", i, s->count, (long long)old,
                        (long long)at->added, (long long)(at->added + (int64_t)s->count * at->size));
    }
    return result;
}

static enum comm_result ring_signals(struct soak_slot *at)
{
    struct comm_request request;
    enum comm_result result = comm_window_signal(at->window, (at->me + 1) % at->size, 0, 1, NULL);
    if (result == COMM_OK)
        result = comm_window_wait_signal(at->window, 0, (uint64_t)++at->signals, &request);
    return result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
}

/* Checks the block that the previous rank put, and the additions of all ranks. */
static enum comm_result look(struct soak_rank *r, struct soak_slot *at, const struct soak_step *s)
{
    int64_t all = 0;
    void *part = NULL;
    struct comm_request request;
    enum comm_result result = comm_get(at->window, &all, 1, COMM_I64, 0, 0, &request);

    if (result == COMM_OK)
        result = comm_wait(request, COMM_FOREVER);
    if (result != COMM_OK || r->program->hostile)
        return result;
    EQUAL(all, at->added + (int64_t)s->count * at->size);
    MUST(comm_window_pointer(at->window, at->me, &part, NULL));
    for (size_t i = 0; i < s->n % BLOCK + 1; i++)
        EQUAL(((unsigned char *)part)[HEAD + i], mark(s, (at->me + at->size - 1) % at->size, i));
    return COMM_OK;
}

enum comm_result soak_step_window(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    struct comm_window_options options = {.size = sizeof options, .signals = 1};
    enum comm_result result = COMM_OK;

    if (!at->window) {
        at->added = at->signals = 0;
        result = NOW(comm_window_create, at->c, PART, &options, &at->window);
    }
    if (result == COMM_OK)
        result = put_block(at, s);
    if (result == COMM_OK)
        result = draw_numbers(r, at, s);
    if (result == COMM_OK && s->members % 2)
        result = ring_signals(at);
    if (result == COMM_OK)
        result = fence(at);
    if (result == COMM_OK)
        result = look(r, at, s);
    if (result == COMM_OK)
        result = fence(at);
    at->added += (int64_t)s->count * at->size;
    if (result == COMM_OK && s->members % 3 == 0) {
        result = comm_window_free(at->window);
        at->window = NULL;
    }
    return result;
}
