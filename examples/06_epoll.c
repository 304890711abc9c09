/* commstream inside another event loop: one descriptor next to the program's own, callbacks that run only in comm_progress, no progress
 * thread, and no polling. */
#define _GNU_SOURCE
#include "must.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { ROUNDS = 20 };
static struct chain {
    struct comm_communicator *world;
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

static int finished(void)
{
    return chain.rounds == ROUNDS && chain.ticks > 0;
}

/* Before the loop sleeps: progress until idle, arm, and check again what it waits for. True: it may sleep. */
static int may_sleep(void)
{
    enum comm_result result;
    do
        result = comm_progress(chain.world);
    while (result == COMM_PENDING);
    must(result, "progress");
    result = comm_arm(chain.world);
    must(result == COMM_PENDING ? COMM_OK : result, "arm");
    return result == COMM_OK && !finished();
}

int main(void)
{
    int loop = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), ours = -1;
    struct itimerspec once = {.it_value = {.tv_nsec = 1000000}};
    must(comm_open(COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .notify = COMM_NOTIFY_PROGRESS), &chain.world), "open");
    must(comm_fd(chain.world, &ours), "fd");
    struct epoll_event library = {.events = EPOLLIN, .data.fd = ours}, clock = {.events = EPOLLIN, .data.fd = timer}, event;
    expect(loop >= 0 && timer >= 0 && timerfd_settime(timer, 0, &once, NULL) == 0, "a loop and a timer");
    expect(epoll_ctl(loop, EPOLL_CTL_ADD, ours, &library) == 0 && epoll_ctl(loop, EPOLL_CTL_ADD, timer, &clock) == 0, "epoll_ctl");

    next_round(COMM_REQUEST_NONE, COMM_OK, &chain);
    while (!finished()) {
        uint64_t ticks;
        if (may_sleep())
            expect(epoll_wait(loop, &event, 1, 10000) != 0, "an armed descriptor wakes the loop");
        if (read(timer, &ticks, sizeof ticks) == (ssize_t)sizeof ticks)
            chain.ticks += (int)ticks; /* the program's own events are handled too */
    }
    if (comm_rank(chain.world) == 0)
        printf("epoll: rounds=%d sum=%d\n", chain.rounds, (int)chain.sum);
    must(comm_close(chain.world, COMM_DEFAULT_TIMEOUT), "close");
    close(timer);
    close(loop);
    return 0;
}
