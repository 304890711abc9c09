/* commstream inside libuv's loop: a poll handle on the library's descriptor, and a prepare handle that makes it safe for the loop to sleep.
 * The only thread is the library's monitor, and nothing polls. */
#define _GNU_SOURCE
#include "must.h"

#include <uv.h>

enum { ROUNDS = 20 };
static struct chain {
    struct comm_communicator *world;
    uv_poll_t library;
    uv_prepare_t before_sleep;
    uv_idle_t more; /* while it is started, the loop does not sleep */
    uv_timer_t timer;
    int64_t value, sum;
    int rounds, ticks;
} chain;

/* The end of one reduction starts the next. */
static void next_round(struct comm_request request, enum comm_result result, void *arg)
{
    struct chain *c = arg;
    must(result, "round");
    expect(request.comm == NULL || c->sum == c->value * comm_size(c->world), "the sum");
    if (request.comm != NULL)
        c->rounds++;
    if (c->rounds == ROUNDS)
        return;
    c->value++;
    must(comm_allreduce(c->world, &c->value, &c->sum, 1, COMM_I64, COMM_SUM, &request), "allreduce");
    must(comm_notify(request, next_round, c), "notify");
}

static void do_nothing(uv_idle_t *handle)
{
    (void)handle;
}

static void woken(uv_poll_t *handle, int status, int events)
{
    (void)handle;
    expect(status == 0 && events == UV_READABLE, "the descriptor is readable"); /* comm_progress is called before the next sleep */
}

static void ticked(uv_timer_t *handle)
{
    ((struct chain *)handle->data)->ticks++; /* the program's own events are handled too */
}

/* libuv calls this right before it sleeps: progress until idle, arm, and sleep only if arm permits it. */
static void make_sleep_safe(uv_prepare_t *handle)
{
    struct chain *c = handle->data;
    enum comm_result result;
    do
        result = comm_progress(c->world);
    while (result == COMM_PENDING);
    must(result, "progress");
    result = comm_arm(c->world);
    must(result == COMM_PENDING ? COMM_OK : result, "arm");
    if (result == COMM_PENDING)
        uv_idle_start(&c->more, do_nothing);
    else
        uv_idle_stop(&c->more);
    if (c->rounds == ROUNDS && c->ticks > 0)
        uv_stop(handle->loop);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    uv_close(handle, NULL);
}

int main(void)
{
    uv_loop_t loop;
    int ours = -1;
    must(comm_open(COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .notify = COMM_NOTIFY_PROGRESS), &chain.world), "open");
    must(comm_fd(chain.world, &ours), "fd");
    expect(uv_loop_init(&loop) == 0 && uv_poll_init(&loop, &chain.library, ours) == 0, "a loop");
    uv_prepare_init(&loop, &chain.before_sleep);
    uv_idle_init(&loop, &chain.more);
    uv_timer_init(&loop, &chain.timer);
    chain.before_sleep.data = chain.timer.data = &chain;
    uv_poll_start(&chain.library, UV_READABLE, woken);
    uv_prepare_start(&chain.before_sleep, make_sleep_safe);
    uv_timer_start(&chain.timer, ticked, 1, 10);

    next_round(COMM_REQUEST_NONE, COMM_OK, &chain);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (comm_rank(chain.world) == 0)
        printf("libuv: rounds=%d sum=%d\n", chain.rounds, (int)chain.sum);
    uv_walk(&loop, close_handle, NULL); /* before the descriptor is closed */
    uv_run(&loop, UV_RUN_DEFAULT);
    expect(uv_loop_close(&loop) == 0, "nothing is left in the loop");
    must(comm_close(chain.world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
