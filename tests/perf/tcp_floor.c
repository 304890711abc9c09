/*
 * What two processes of this machine can reach over loopback TCP in an allreduce of f32: two connected sockets that never block, without a
 * library and without calls. comm-perf with backend tcp is compared with this figure.
 *
 *   tcp_floor [--max BYTES] [--control NAME] [--still]      the columns of comm-perf, as CSV; the time is the first rank's
 *
 * Buffers rotate within 64 MiB, as in comm-perf and the MPI programs, because a program's data are not always in the cache. --still uses
 * one pair of buffers at every length instead, which is faster by what the cache saves.
 *
 * Up to 8 KiB, both ranks send the whole vector, and each adds the other's to its own. Above, each owns a half: it sends the other half
 * away, adds its own half, and sends the sum back. Sends and receives proceed at the same time, as far as the sockets take data. Congestion
 * control is cubic unless --control says otherwise, as the tcp wire sets it between ranks of one host.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 15, WHOLE_BYTES = 8192, PIECE_BYTES = 262144, ROTATE = 16 };
static const size_t BUFFER_BYTES = 32u << 20, BYTES_MAX = 16u << 20;

static void stop(const char *what)
{
    fprintf(stderr, "tcp_floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int dial(const char *control, int *other)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    if (listener < 0 || near < 0 || bind(listener, (struct sockaddr *)&at, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &length) || connect(near, (struct sockaddr *)&at, length))
        stop("connecting");
    int far = accept(listener, NULL, NULL);
    const int both[2] = {near, far};
    for (int i = 0; i < 2; i++)
        if (setsockopt(both[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) ||
            setsockopt(both[i], IPPROTO_TCP, TCP_CONGESTION, control, (socklen_t)strlen(control)))
            stop(control);
    close(listener);
    *other = far;
    return near;
}

/* Sends and receives at the same time; if one direction cannot continue, the other does. */
static void swap(int fd, const char *out, char *in, size_t bytes)
{
    for (size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
        if (sent < bytes) {
            size_t left = bytes - sent;
            ssize_t n = send(fd, out + sent, left < PIECE_BYTES ? left : PIECE_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN)
                stop("send");
            sent += n > 0 ? (size_t)n : 0;
        }
        if (got < bytes) {
            ssize_t n = recv(fd, in + got, bytes - got, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN))
                stop("recv");
            got += n > 0 ? (size_t)n : 0;
        }
    }
}

static void add(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void allreduce(int fd, int rank, char *in, char *out, size_t bytes)
{
    if (bytes <= WHOLE_BYTES) {
        swap(fd, in, out, bytes);
        add((float *)(void *)out, (const float *)(void *)in, bytes / sizeof(float));
        return;
    }
    size_t half = bytes / 2, mine = rank ? half : 0, theirs = half - mine;
    swap(fd, in + theirs, out + mine, half);
    add((float *)(void *)(out + mine), (const float *)(void *)(in + mine), half / sizeof(float));
    swap(fd, out + mine, out + theirs, half);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int fd, int rank, char *in, char *out, size_t bytes, bool still)
{
    double us[BATCHES];
    size_t slots = still ? 1 : BUFFER_BYTES / bytes < ROTATE ? BUFFER_BYTES / bytes : ROTATE;
    int calls = bytes <= WHOLE_BYTES ? 1000 : bytes <= 262144 ? 200 : bytes <= 4u << 20 ? 20 : 4;

    for (int batch = -1; batch < BATCHES; batch++) { /* the first batch warms up */
        double begin = now_us();
        for (int i = 0; i < calls; i++) {
            size_t at = (size_t)i % slots * bytes;
            allreduce(fd, rank, in + at, out + at, bytes);
        }
        if (batch >= 0)
            us[batch] = (now_us() - begin) / calls;
    }
    qsort(us, BATCHES, sizeof *us, by_value);
    if (rank == 0) {
        printf("allreduce,floor,2,f32,%zu,request,%.3f,%.3f,%.3f,0.0\n", bytes, us[0], us[BATCHES / 2], us[BATCHES - 1]);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    size_t max = 8u << 20;
    const char *control = "cubic";
    bool still = false;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--max") && i + 1 < argc) {
            max = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--control") && i + 1 < argc) {
            control = argv[++i];
        } else if (!strcmp(argv[i], "--still")) {
            still = true;
        } else {
            fprintf(stderr, "usage: tcp_floor [--max BYTES] [--control NAME] [--still]\n");
            return 2;
        }
    }
    int fd[2], rank;
    fd[0] = dial(control, &fd[1]);
    pid_t child = fork();
    if (child < 0)
        stop("fork");
    rank = child ? 0 : 1;
    if (rank)
        /* an orphan that spins would spoil later measurements */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)rank, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
    close(fd[!rank]);
    char *in = aligned_alloc(4096, BUFFER_BYTES), *out = aligned_alloc(4096, BUFFER_BYTES);
    if (!in || !out)
        stop("memory");
    memset(in, 0, BUFFER_BYTES);
    memset(out, 0, BUFFER_BYTES);
    if (rank == 0)
        printf("collective,backend,ranks,type,bytes,mode,min_us,median_us,max_us,overlap_pct\n");
    for (size_t bytes = 8; bytes <= max && bytes <= BYTES_MAX; bytes *= 4)
        measure(fd[rank], rank, in, out, bytes, still);
    int status = 0;
    if (rank)
        _exit(0);
    wait(&status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
