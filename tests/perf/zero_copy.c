/*
 * Would zero copy, registered buffers or registered files pay off in the tcp wire? Compares the time of a message by each kind of send with
 * that of a plain send. It uses nothing of the library. docs/performance/network.md has the results.
 *
 *   zero_copy --listen ADDRESS      the receiver, which answers each message with a byte; ends with the connection
 *   zero_copy ADDRESS               the sender: a table for one message at a time, and one for 8 in flight
 *
 * On loopback it runs as it is; over a cable, each end needs a network namespace of its own. A buffer counts as sent when the kernel
 * reports that it no longer needs it. Both sides spin, on the first and the second CPU.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* REPORT_USAGE: of SEND_ZC, Linux 6.2. */
enum { PORT = 7077, BATCHES = 9, SLOTS = 16, IN_FLIGHT = 8, ENTRIES = 256, REPORT_USAGE = 1 << 3 };
static const size_t MOST = 8u << 20, LEAST = 4096;

enum kind { PLAIN, RING, RING_FILE, ZC, ZC_REGISTERED, MSG_ZC, KINDS };
static const char *const names[KINDS] = {"send", "ring", "ring, file", "SEND_ZC", "registered", "MSG_ZEROCOPY"};

struct sender {
    int fd;
    struct io_uring ring;
    char *buffer;
    unsigned in_ring, in_kernel; /* not reported yet: by the ring; by the error queue */
    unsigned long copied, told;  /* notifications that report a copy, and all notifications */
};

static void need(bool sound, const char *what)
{
    if (sound)
        return;
    perror(what);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void stay_on(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static void prepare(int fd)
{
    int one = 1;
    need(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) && !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) &&
             !setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one),
         "setsockopt");
}

/* False: the other end has closed. */
static bool receive(int fd, void *to, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = recv(fd, (char *)to + got, bytes - got, MSG_DONTWAIT);
        need(n >= 0 || errno == EAGAIN || errno == ECONNRESET, "recv");
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return false;
        got += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static size_t slots_of(size_t bytes)
{
    return MOST / bytes < SLOTS ? MOST / bytes : SLOTS;
}

/* ------------------------------------------------------------------------------------------------------------ the receiver */
static void answer(int door)
{
    int fd = accept(door, NULL, NULL);
    char *in = calloc(1, MOST);
    size_t batch[2]; /* bytes per message, number of messages */

    need(fd >= 0 && in, "accept");
    prepare(fd);
    stay_on(1);
    while (receive(fd, batch, sizeof batch))
        for (size_t i = 0; i < batch[1]; i++)
            if (!receive(fd, in + i % slots_of(batch[0]) * batch[0], batch[0]) || send(fd, "k", 1, MSG_NOSIGNAL) != 1)
                break;
    free(in);
    close(fd);
}

/* ------------------------------------------------------------------------------------------------------------ the sender */
static void by_ring(struct sender *s, enum kind kind, const char *at, size_t bytes)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);
    bool file = kind == RING_FILE || kind == ZC_REGISTERED;

    need(sqe != NULL, "a full ring");
    if (kind <= RING_FILE)
        io_uring_prep_send(sqe, file ? 0 : s->fd, at, bytes, MSG_WAITALL | MSG_NOSIGNAL);
    else
        io_uring_prep_send_zc(sqe, file ? 0 : s->fd, at, bytes, MSG_WAITALL | MSG_NOSIGNAL,
                              REPORT_USAGE | (kind == ZC_REGISTERED ? IORING_RECVSEND_FIXED_BUF : 0));
    sqe->flags |= file ? IOSQE_FIXED_FILE : 0;
    io_uring_sqe_set_data64(sqe, bytes);
    s->in_ring++;
    io_uring_submit(&s->ring);
}

/* Waits until at most `left` sends are unfinished. */
static void settle_ring(struct sender *s, unsigned left)
{
    struct io_uring_cqe *cqe;

    while (s->in_ring > left) {
        if (io_uring_peek_cqe(&s->ring, &cqe)) {
            io_uring_get_events(&s->ring);
            continue;
        }
        if (cqe->flags & IORING_CQE_F_NOTIF) {
            s->told++;
            s->copied += (unsigned)cqe->res >> 31;
        } else {
            need((uint64_t)cqe->res == cqe->user_data, "a short send");
        }
        s->in_ring -= !(cqe->flags & IORING_CQE_F_MORE);
        io_uring_cqe_seen(&s->ring, cqe);
    }
}

static void settle_kernel(struct sender *s)
{
    while (s->in_kernel) {
        char control[128];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        struct sock_extended_err seen;
        if (recvmsg(s->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            continue;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            memcpy(&seen, CMSG_DATA(c), sizeof seen);
            s->in_kernel -= seen.ee_data - seen.ee_info + 1;
            s->told++;
            s->copied += seen.ee_code & SO_EE_CODE_ZEROCOPY_COPIED;
        }
    }
}

static void give(struct sender *s, enum kind kind, const char *at, size_t bytes)
{
    if (kind != PLAIN && kind != MSG_ZC) {
        by_ring(s, kind, at, bytes);
        return;
    }
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = send(s->fd, at + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL | (kind == MSG_ZC ? MSG_ZEROCOPY : 0));
        need(n >= 0 || errno == EAGAIN || errno == ENOBUFS, "send");
        if (n < 0 && errno == ENOBUFS)
            settle_kernel(s);
        sent += n > 0 ? (size_t)n : 0;
        s->in_kernel += n > 0 && kind == MSG_ZC;
    }
}

static double batch_us(struct sender *s, enum kind kind, size_t bytes, size_t messages, unsigned window)
{
    size_t batch[2] = {bytes, messages}, slots = slots_of(bytes);
    unsigned out = 0;
    char answers[IN_FLIGHT];

    need(send(s->fd, batch, sizeof batch, MSG_NOSIGNAL) == sizeof batch, "send");
    double begin = now_us();
    for (size_t i = 0; i < messages; i++) {
        give(s, kind, s->buffer + i % slots * bytes, bytes);
        settle_ring(s, window == 1 ? 0 : window);
        if (window == 1)
            settle_kernel(s);
        if (out + 1 == window)
            need(receive(s->fd, answers, 1), "an answer");
        else
            out++;
    }
    settle_ring(s, 0);
    settle_kernel(s);
    need(receive(s->fd, answers, out), "the answers");
    return (now_us() - begin) / (double)messages;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct sender *s, size_t bytes, unsigned window)
{
    double us[KINDS][BATCHES];
    size_t messages = bytes <= 65536 ? 200 : bytes <= 1u << 20 ? 40 : 8;

    s->copied = s->told = 0;
    for (int batch = -1; batch < BATCHES; batch++) /* the first batch warms up */
        for (int kind = 0; kind < KINDS; kind++) {
            double took = batch_us(s, (enum kind)kind, bytes, messages, window);
            if (batch >= 0)
                us[kind][batch] = took;
        }
    printf("%9zu", bytes);
    for (int kind = 0; kind < KINDS; kind++) {
        qsort(us[kind], BATCHES, sizeof us[kind][0], by_value);
        printf(" %8.1f (%.2f)", us[kind][BATCHES / 2], us[kind][BATCHES / 2] / us[PLAIN][BATCHES / 2]);
    }
    printf("   %lu of %lu\n", s->copied, s->told);
    fflush(stdout);
}

static void send_all(int fd)
{
    struct sender s = {.fd = fd, .buffer = calloc(1, MOST)};
    struct iovec all = {s.buffer, MOST};

    need(s.buffer != NULL, "memory");
    memset(s.buffer, 1, MOST);
    prepare(fd);
    stay_on(0);
    need(!io_uring_queue_init(ENTRIES, &s.ring, 0) && !io_uring_register_buffers(&s.ring, &all, 1) &&
             !io_uring_register_files(&s.ring, &fd, 1),
         "a ring with a buffer and a file");
    for (unsigned window = 1; window <= IN_FLIGHT; window += IN_FLIGHT - 1) {
        printf("%u in flight: us a message (to send); notifications that say copied\n%9s", window, "bytes");
        for (int kind = 0; kind < KINDS; kind++)
            printf(" %15s", names[kind]);
        printf("\n");
        for (size_t bytes = LEAST; bytes <= MOST; bytes *= 4)
            measure(&s, bytes, window);
    }
    io_uring_queue_exit(&s.ring);
    free(s.buffer);
}

int main(int argc, char **argv)
{
    bool listens = argc == 3 && !strcmp(argv[1], "--listen");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if ((argc != 2 && !listens) || inet_pton(AF_INET, argv[argc - 1], &at.sin_addr) != 1) {
        fprintf(stderr, "usage: zero_copy [--listen] ADDRESS      an IPv4 address\n");
        return 2;
    }
    need(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "socket");
    if (listens) {
        need(!bind(fd, (struct sockaddr *)&at, sizeof at) && !listen(fd, 1), "listen");
        answer(fd);
    } else {
        need(!connect(fd, (struct sockaddr *)&at, sizeof at), "connect");
        send_all(fd);
    }
    close(fd);
    return 0;
}
