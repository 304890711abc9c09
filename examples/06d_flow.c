/* An event loop that is given more than the library's queue holds. It stops at COMM_ERR_FULL and goes on when something completes, gives up
 * a receive by a timer of its own, serves two communicators by one descriptor, and ends without a wait that blocks. */
#define _GNU_SOURCE
#include "must.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { CALLS = 1000, TAG_NEWS = 1, PATIENCE_NS = 20000000 };
static struct service {
    struct comm_communicator *work, *control; /* two queues, one descriptor */
    int64_t in[CALLS], out[CALLS];
    int issued, completed;
    struct comm_request news; /* a receive that nobody sends to */
    struct comm_status status;
    char text[64];
    int over, came, leaving, finished;
} service;

static void completed(struct comm_request request, enum comm_result result, void *arg);

/* Issues until the queue is full. COMM_ERR_FULL has started nothing: the next completion makes room, and comes here again. */
static void issue_more(struct service *s)
{
    while (s->issued < CALLS) {
        struct comm_request request;
        enum comm_result result = comm_allreduce(s->work, &s->in[s->issued], &s->out[s->issued], 1, COMM_I64, COMM_SUM, &request);
        if (result == COMM_ERR_FULL)
            return;
        must(result, "allreduce");
        must(comm_notify(request, completed, s), "notify");
        s->issued++;
    }
}

static void completed(struct comm_request request, enum comm_result result, void *arg)
{
    struct service *s = arg;
    (void)request;
    must(result, "allreduce");
    s->completed++;
    issue_more(s);
}

/* The receive has ended, with a message or without one. Only now may its buffer be freed. */
static void heard(struct comm_request request, enum comm_result result, void *arg)
{
    struct service *s = arg;
    (void)request;
    if (result != COMM_ERR_CANCELLED)
        must(result, "recv");
    s->came = result == COMM_OK;
    s->over = 1;
}

/* The time for the receive is over. COMM_ERR_STATE: a message came first, and `heard` is called for it. */
static void give_up(struct service *s)
{
    enum comm_result result = comm_cancel(s->news);
    must(result == COMM_ERR_STATE ? COMM_OK : result, "cancel");
}

static void all_are_here(struct comm_request request, enum comm_result result, void *arg)
{
    (void)request;
    must(result, "barrier");
    ((struct service *)arg)->finished = 1;
}

/* Once this rank has nothing left to do, it waits for the others, as for everything else: by a callback. */
static void leave_when_done(struct service *s)
{
    struct comm_request request;
    if (s->leaving || !s->over || s->completed < CALLS)
        return;
    s->leaving = 1;
    must(comm_barrier(s->control, &request), "barrier");
    must(comm_notify(request, all_are_here, s), "notify");
}

static int may_sleep(struct service *s)
{
    enum comm_result result;
    do {
        result = comm_progress(s->work); /* moves both communicators */
        leave_when_done(s);
    } while (result == COMM_PENDING);
    must(result, "progress");
    result = comm_arm(s->work);
    must(result == COMM_PENDING ? COMM_OK : result, "arm");
    return result == COMM_OK && !s->finished;
}

static void open_service(struct service *s)
{
    const struct comm_options options = {.size = sizeof options, .name = "control", .priority = 1};
    struct comm_config config = {.size = sizeof config,
                                 .progress = COMM_PROGRESS_CALLER,
                                 .notify = COMM_NOTIFY_PROGRESS,
                                 .options = "queue=16"}; /* so few that this program finds it full */
    must(comm_open(&config, &s->work), "open");
    must(comm_dup(s->work, &options, &s->control, NULL), "dup");
    must(comm_sync(s->work, COMM_FOREVER), "sync");
}

int main(void)
{
    int loop = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), ours = -1;
    struct itimerspec once = {.it_value = {.tv_nsec = PATIENCE_NS}};
    open_service(&service);
    must(comm_fd(service.work, &ours), "fd");
    struct epoll_event library = {.events = EPOLLIN, .data.fd = ours}, clock = {.events = EPOLLIN, .data.fd = timer}, event;
    expect(loop >= 0 && timer >= 0 && timerfd_settime(timer, 0, &once, NULL) == 0, "a loop and a timer");
    expect(epoll_ctl(loop, EPOLL_CTL_ADD, ours, &library) == 0 && epoll_ctl(loop, EPOLL_CTL_ADD, timer, &clock) == 0, "epoll_ctl");

    for (int i = 0; i < CALLS; i++)
        service.in[i] = i;
    must(comm_recv(service.control, service.text, sizeof service.text, COMM_BYTE, COMM_ANY_PEER, TAG_NEWS, &service.status, &service.news),
         "recv");
    must(comm_notify(service.news, heard, &service), "notify");
    issue_more(&service);
    while (!service.finished) {
        uint64_t ticks;
        if (may_sleep(&service))
            expect(epoll_wait(loop, &event, 1, 10000) != 0, "an armed descriptor wakes the loop");
        if (read(timer, &ticks, sizeof ticks) == (ssize_t)sizeof ticks)
            give_up(&service);
    }
    for (int i = 0; i < CALLS; i++)
        expect(service.out[i] == (int64_t)i * comm_size(service.work), "the sum");
    if (comm_rank(service.work) == 0)
        printf("flow: calls=%d, %s\n", service.completed, service.came ? "news" : "no news");
    close(loop); /* before the library closes its descriptor */
    close(timer);
    must(comm_close(service.control, COMM_DEFAULT_TIMEOUT), "close control");
    must(comm_close(service.work, COMM_DEFAULT_TIMEOUT), "close"); /* nothing is left to wait for, so they return at once */
    return 0;
}
