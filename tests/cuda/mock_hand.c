/* The test's hand on the mock machine: a new start, faults, and what it asks. */
#include "mock_inside.h"

#include <stdlib.h>
#include <string.h>

void mock_reset(const struct mock_options *options)
{
    pthread_mutex_lock(&mock.lock);
    if (mock.pending)
        abort();
    mock.options = *options;
    if (!mock.options.devices)
        mock.options.devices = MOCK_DEVICES;
    if (!mock.options.queues)
        mock.options.queues = 8;
    mock_choose_by(options->seed);
    mock.calls = mock.fail_at = mock.waits = mock.drop_at = mock.orders = mock.drop_order_at = mock.made = 0;
    mock.sticky = mock.broken = false;
    mock.failed = NULL;
    mock.async_error = 0;
    mock.misused = NULL;
    mock.launched = (struct mock_launches){0};
    mock.generation++;
    for (int i = 0; i < MOCK_DEVICES; i++)
        mock.context[i].device = i;
    pthread_mutex_unlock(&mock.lock);
}

void mock_at_once(bool on)
{
    pthread_mutex_lock(&mock.lock);
    mock.at_once = on;
    pthread_mutex_unlock(&mock.lock);
}

void mock_seed(uint64_t seed)
{
    pthread_mutex_lock(&mock.lock);
    mock_choose_by(seed);
    pthread_mutex_unlock(&mock.lock);
}

void mock_lose(int lost_rank)
{
    pthread_mutex_lock(&mock.lock);
    mock.options.lost_rank = lost_rank;
    pthread_mutex_unlock(&mock.lock);
}

void mock_fail(uint64_t n, bool sticky)
{
    pthread_mutex_lock(&mock.lock);
    mock.fail_at = n;
    mock.armed = mock.failed_at = 0;
    memset(mock.named, 0, sizeof mock.named);
    mock.sticky = sticky;
    mock.broken = false;
    mock.failed = NULL;
    pthread_mutex_unlock(&mock.lock);
}

void mock_drop_wait(uint64_t n)
{
    pthread_mutex_lock(&mock.lock);
    mock.drop_at = n;
    pthread_mutex_unlock(&mock.lock);
}

void mock_drop_order(uint64_t n)
{
    pthread_mutex_lock(&mock.lock);
    mock.drop_order_at = n;
    pthread_mutex_unlock(&mock.lock);
}

void mock_spare_orders(struct CUstream_st *stream, bool on)
{
    pthread_mutex_lock(&mock.lock);
    stream->spared = on;
    pthread_mutex_unlock(&mock.lock);
}

static uint64_t read_locked(const uint64_t *counter)
{
    pthread_mutex_lock(&mock.lock);
    uint64_t value = *counter;
    pthread_mutex_unlock(&mock.lock);
    return value;
}

uint64_t mock_calls(void)
{
    return read_locked(&mock.calls);
}

uint64_t mock_made(void)
{
    return read_locked(&mock.made);
}

uint64_t mock_waits(void)
{
    return read_locked(&mock.waits);
}

uint64_t mock_orders(void)
{
    return read_locked(&mock.orders);
}

const char *mock_failed(void)
{
    pthread_mutex_lock(&mock.lock);
    const char *failed = mock.failed;
    pthread_mutex_unlock(&mock.lock);
    return failed;
}

uint64_t mock_failed_at(void)
{
    return read_locked(&mock.failed_at);
}

void mock_free_abort(void)
{
    pthread_mutex_lock(&mock.lock);
    mock.options.abort_hangs = 0;
    mock_end();
}

void mock_hold(struct CUstream_st *stream, bool on)
{
    pthread_mutex_lock(&mock.lock);
    stream->held = on;
    mock_end();
}

void mock_capture(struct CUstream_st *stream, bool on)
{
    pthread_mutex_lock(&mock.lock);
    mock_stream(stream)->capturing = on;
    pthread_mutex_unlock(&mock.lock);
}

void mock_fault(int device, bool on)
{
    pthread_mutex_lock(&mock.lock);
    mock.fault[device] = on;
    mock_end();
}

const char *mock_misused(void)
{
    pthread_mutex_lock(&mock.lock);
    const char *misused = mock.misused;
    pthread_mutex_unlock(&mock.lock);
    return misused;
}

void mock_async_error(int result)
{
    pthread_mutex_lock(&mock.lock);
    mock.async_error = result;
    pthread_mutex_unlock(&mock.lock);
}
