/* commstream inside libevent's loop: one event on the library's descriptor. libevent 2.1 has no hook that runs right before it sleeps. So
 * the event makes the next sleep safe when it runs, and code that issues operations elsewhere activates the event. */
#define _GNU_SOURCE
#include "must.h"

#include <event2/event.h>

enum { ROUNDS = 20 };
static struct chain {
    struct comm_communicator *world;
    struct event_base *loop;
    struct event *library, *timer;
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

/* Progress until idle, then arm. If arm finds more work, it is done in the next turn of the loop, so that other events are handled too. */
static void move(evutil_socket_t fd, short what, void *arg)
{
    struct chain *c = arg;
    enum comm_result result;
    (void)fd;
    (void)what;
    do
        result = comm_progress(c->world);
    while (result == COMM_PENDING);
    must(result, "progress");
    result = comm_arm(c->world);
    must(result == COMM_PENDING ? COMM_OK : result, "arm");
    if (result == COMM_PENDING)
        event_active(c->library, EV_READ, 0);
    if (c->rounds == ROUNDS && c->ticks > 0)
        event_base_loopbreak(c->loop);
}

/* The program's own event. Its first tick starts the chain. */
static void tick(evutil_socket_t fd, short what, void *arg)
{
    struct chain *c = arg;
    (void)fd;
    (void)what;
    if (c->ticks++ == 0)
        next_round(COMM_REQUEST_NONE, COMM_OK, c);
    event_active(c->library, EV_READ, 0); /* something was issued: make progress and arm again */
}

int main(void)
{
    const struct timeval often = {.tv_usec = 10000};
    int ours = -1;
    must(comm_open(COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .notify = COMM_NOTIFY_PROGRESS), &chain.world), "open");
    must(comm_fd(chain.world, &ours), "fd");
    chain.loop = event_base_new();
    expect(chain.loop != NULL, "a loop");
    chain.library = event_new(chain.loop, ours, EV_READ | EV_PERSIST, move, &chain);
    chain.timer = event_new(chain.loop, -1, EV_PERSIST, tick, &chain);
    expect(chain.library && chain.timer && event_add(chain.library, NULL) == 0 && event_add(chain.timer, &often) == 0, "events");

    event_base_dispatch(chain.loop);
    if (comm_rank(chain.world) == 0)
        printf("libevent: rounds=%d sum=%d\n", chain.rounds, (int)chain.sum);
    event_free(chain.library);
    event_free(chain.timer);
    event_base_free(chain.loop);
    must(comm_close(chain.world, COMM_DEFAULT_TIMEOUT), "close");
    return 0;
}
