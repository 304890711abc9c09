/*
 * How soon an event loop learns of an answer. Rank 0 is a loop: it receives, makes progress until nothing moves, arms, and sleeps in poll
 * on comm_fd. Rank 1 sleeps a while, then sends the time. The result is the time from that call of send to the moment when rank 0's loop
 * finds its request complete. comm-run starts both ranks on one host, so they share a clock. For comparison, the time of the kernel alone:
 * the same two processes with poll and recv on a plain loopback connection, and two threads with an eventfd.
 *
 *   comm-run -n 2 [--backend tcp] loop_wake       median, 99th percentile and most of 500 answers, in microseconds
 */
#define _GNU_SOURCE
#include <commstream/comm.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWERS = 500, NAP_US = 2000, TAG = 7 };

static void must(enum comm_result result, const char *what)
{
    if (result == COMM_OK)
        return;
    fprintf(stderr, "loop_wake: %s: %s\n", what, comm_result_text(result));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000}, NULL);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void tell(const char *what, int64_t *took)
{
    qsort(took, ANSWERS, sizeof *took, by_size);
    printf("%-10s median %6.1f us, 99th percentile %6.1f, most %6.1f\n", what, (double)took[ANSWERS / 2] / 1000,
           (double)took[ANSWERS * 99 / 100] / 1000, (double)took[ANSWERS - 1] / 1000);
}

/* ------------------------------------------------------------------------------------------------------------ the kernel alone */
static int bell;
static _Atomic int64_t rung;

static void *ring(void *unused)
{
    uint64_t one = 1;
    (void)unused;
    for (int i = 0; i < ANSWERS; i++) {
        nap();
        rung = now_ns();
        if (write(bell, &one, sizeof one) != sizeof one)
            exit(1);
        nap();
    }
    return NULL;
}

static void measure_kernel(int64_t *took)
{
    pthread_t thread;
    uint64_t count;
    bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE); /* two rings during one nap still count as two */
    if (bell < 0 || pthread_create(&thread, NULL, ring, NULL) != 0)
        exit(1);
    for (int i = 0; i < ANSWERS; i++) {
        struct pollfd ready = {.fd = bell, .events = POLLIN};
        poll(&ready, 1, -1);
        took[i] = now_ns() - rung;
        if (read(bell, &count, sizeof count) != sizeof count)
            exit(1);
    }
    pthread_join(thread, NULL);
    close(bell);
}

/* ------------------------------------------------------------------------------------------------------------ the library */
/* As in docs/internals/network.md and examples/06_epoll.c: progress until idle, arm, test once more, sleep. */
static void loop_until(struct comm_communicator *world, int fd, struct comm_request request)
{
    while (comm_test(request) == COMM_PENDING) {
        while (comm_progress(world) == COMM_PENDING || comm_arm(world) == COMM_PENDING)
            if (comm_test(request) != COMM_PENDING)
                return;
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (comm_test(request) == COMM_PENDING)
            poll(&ready, 1, -1);
    }
}

static void measure_loop(struct comm_communicator *world, int64_t *took)
{
    int fd;
    must(comm_fd(world, &fd), "fd");
    for (int i = 0; i < ANSWERS; i++) {
        struct comm_request request;
        int64_t sent = 0;
        must(comm_recv(world, &sent, 1, COMM_I64, 1, TAG, NULL, &request), "recv");
        loop_until(world, fd, request);
        took[i] = now_ns() - sent;
        must(comm_wait(request, COMM_FOREVER), "wait");
    }
}

static void answer(struct comm_communicator *world)
{
    for (int i = 0; i < ANSWERS; i++) {
        nap();
        int64_t now = now_ns();
        struct comm_request request;
        must(comm_send(world, &now, 1, COMM_I64, 0, TAG, &request), "send");
        must(comm_wait(request, COMM_FOREVER), "wait");
    }
}

/* ------------------------------------------------------------------------------------------------------------ a plain connection */
static void need(bool sound, const char *what)
{
    if (sound)
        return;
    perror(what);
    exit(1);
}

/* Rank 0 listens and sends its port. Returns this rank's end of the connection. */
static int connect_bare(struct comm_communicator *world)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    struct comm_request told;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    need(fd >= 0, "socket");
    if (comm_rank(world) == 0)
        need(!bind(fd, (struct sockaddr *)&at, length) && !listen(fd, 1) && !getsockname(fd, (struct sockaddr *)&at, &length), "listen");
    must(comm_broadcast(world, &at.sin_port, sizeof at.sin_port, COMM_U8, 0, &told), "broadcast");
    must(comm_wait(told, COMM_FOREVER), "wait");
    if (comm_rank(world) == 0) {
        int listener = fd;
        fd = accept(listener, NULL, NULL);
        need(fd >= 0, "accept");
        close(listener);
    } else {
        need(connect(fd, (struct sockaddr *)&at, length) == 0, "connect");
    }
    need(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    return fd;
}

static void measure_bare(int fd, int64_t *took)
{
    for (int i = 0; i < ANSWERS; i++) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int64_t sent;
        poll(&ready, 1, -1);
        need(recv(fd, &sent, sizeof sent, 0) == sizeof sent, "recv");
        took[i] = now_ns() - sent;
    }
}

static void answer_bare(int fd)
{
    for (int i = 0; i < ANSWERS; i++) {
        nap();
        int64_t now = now_ns();
        need(send(fd, &now, sizeof now, MSG_NOSIGNAL) == sizeof now, "send");
    }
}

int main(void)
{
    static int64_t took[ANSWERS];
    struct comm_communicator *world;
    struct comm_info info = {.size = sizeof info};
    must(comm_open(NULL, &world), "open");
    must(comm_describe(world, &info), "describe");
    if (comm_size(world) != 2) {
        fprintf(stderr, "loop_wake: two ranks are needed: comm-run -n 2 loop_wake\n");
        return 2;
    }
    int bare = connect_bare(world);
    if (comm_rank(world) == 0) {
        measure_loop(world, took);
        tell(info.backend, took);
        measure_bare(bare, took);
        tell("bare tcp", took);
        measure_kernel(took);
        tell("eventfd", took);
    } else {
        answer(world);
        answer_bare(bare);
    }
    close(bare);
    must(comm_close(world, COMM_FOREVER), "close");
    return 0;
}
