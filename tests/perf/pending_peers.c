/*
 * The cost of pending peers for two working ranks whose listeners are open because links are created on demand. Measures consecutive small
 * allreduces in three situations: without pending peers, while pending peers connect to another process's acceptor (which costs CPU and
 * kernel time as well), and while they connect to the ranks. `pending_peers [rounds] [how many come in 10 ms]`, on an idle machine. Each
 * kind of pending peer runs in turn, for 0.2 s at a time. Besides the time of a call, it prints the cost in the ranks' monitors, which
 * varies less from run to run: their share of a CPU, and their wake-ups per second.
 */
#define _GNU_SOURCE
#include <commstream/comm.h>

#include "net/auth/handshake.h"
#include "net/boot/secret_find.h"
#include "wire/boot.h"
#include "wire/table.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, PLACES = 64, TURN_US = 10000, WINDOW_US = 200000, HELD = 10000, ROUNDS_MAX = 64, BATCH = 50 };
enum kind { SCAN, GARBAGE, HALF_OPEN, SLOW, WRONG_SECRET, REPLAY, KINDS };
static const char *const names[KINDS] = {"port scan", "garbage", "10,000 silent", "a byte at a time", "another secret", "a recording"};
enum where { NOBODY, ELSEWHERE, HERE, PLACES_OF_STRANGERS };
static const char secret[] = "4f1d2c3b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0aa";

struct shared {
    _Atomic uint64_t done; /* number of allreduces of rank 0 */
    _Atomic int ready, stop, port[RANKS];
    _Atomic long rss[RANKS], files[RANKS];
};
static struct shared *shared;
static int a_turn = 1; /* how many come in 10 ms */
static pid_t pid[RANKS + 1];

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void must(bool is, const char *what)
{
    if (is)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
static int listening_port(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in at;
        int listens = 0;
        socklen_t bytes = sizeof listens, length = sizeof at;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens &&
            getsockname(fd, (struct sockaddr *)&at, &length) == 0)
            return ntohs(at.sin_port);
    }
    return 0;
}

static void take_stock(int rank)
{
    char line[128];
    long kib = 0, count = 0;
    FILE *status = fopen("/proc/self/status", "re");

    while (status && fgets(line, sizeof line, status) && sscanf(line, "VmRSS: %ld", &kib) != 1)
        ;
    if (status)
        fclose(status);
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    atomic_store(&shared->files[rank], count);
    atomic_store(&shared->rss[rank], kib);
}

static void be_rank(int rank)
{
    struct comm_communicator *world = NULL;
    char text[512] = "", number[16];

    snprintf(number, sizeof number, "%d", rank);
    setenv("COMM_RANK", number, 1);
    setenv("COMM_LOCAL_RANK", number, 1);
    must(comm_open(COMM_CONFIG(.error_text = text, .error_text_bytes = sizeof text), &world) == COMM_OK, text);
    atomic_store(&shared->port[rank], listening_port());
    for (int32_t over = 0, mine = 0; !over;) {
        for (int i = 0; i < BATCH; i++) {
            struct comm_request request;
            mine = rank == 0 && i == BATCH - 1 ? atomic_load(&shared->stop) : 0;
            must(comm_allreduce(world, &mine, &over, 1, COMM_I32, COMM_MAX, &request) == COMM_OK, "allreduce");
            must(comm_wait(request, COMM_FOREVER) == COMM_OK, "wait");
        }
        if (rank == 0)
            atomic_fetch_add(&shared->done, BATCH);
        if (atomic_load(&shared->rss[rank]) == -1)
            take_stock(rank);
    }
    must(comm_close(world, COMM_DEFAULT_TIMEOUT) == COMM_OK, "close");
    exit(0);
}

/* Accepts every connection, reads nothing, and keeps as many as a rank would. */
static void be_elsewhere(int listener)
{
    int kept[PLACES];

    for (int i = 0; i < PLACES; i++)
        kept[i] = -1;
    for (int at = 0;; at = (at + 1) % PLACES) {
        if (kept[at] >= 0)
            close(kept[at]);
        kept[at] = accept(listener, NULL, NULL);
    }
}

/* ------------------------------------------------------------------------------------------------------------ pending peers */
static int dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    must(fd >= 0, "socket");
    (void)!connect(fd, (struct sockaddr *)&at, sizeof at);
    return fd;
}

struct crowd {
    int fd[HELD], fds;
    unsigned char wrong[HANDSHAKE_HELLO], right[HANDSHAKE_HELLO];
};

static void knock(struct crowd *c, enum kind kind, int port)
{
    unsigned char garbage[400];
    int fd = dial(port);

    memset(garbage, 0x5a, sizeof garbage);
    if (kind == GARBAGE)
        (void)!send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
    if (kind == WRONG_SECRET || kind == REPLAY)
        (void)!send(fd, kind == REPLAY ? c->right : c->wrong, HANDSHAKE_HELLO, MSG_NOSIGNAL);
    if (kind == SCAN) {
        close(fd);
        return;
    }
    if (c->fds == HELD) {
        close(c->fd[0]);
        c->fd[0] = c->fd[--c->fds];
    }
    c->fd[c->fds++] = fd;
}

static void turn(struct crowd *c, enum kind kind, const int ports[RANKS])
{
    for (int i = 0; i < a_turn; i++)
        knock(c, kind, ports[i % RANKS]);
    for (int i = 0; kind == SLOW && i < 2 * PLACES && i < c->fds; i++)
        (void)!send(c->fd[c->fds - 1 - i], "x", 1, MSG_NOSIGNAL);
}

/* The CPU time of all threads of the ranks except the calling ones, and how often they fell asleep. */
struct monitors {
    double us;
    long naps;
};

static void add_thread(struct monitors *w, pid_t process, const char *thread)
{
    char path[300], line[256];
    unsigned long long ran = 0;
    long naps = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", process, thread);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%llu", &ran) == 1)
        w->us += (double)ran / 1e3;
    if (file)
        fclose(file);
    snprintf(path, sizeof path, "/proc/%d/task/%s/status", process, thread);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "voluntary_ctxt_switches: %ld", &naps) != 1)
        ;
    if (file)
        fclose(file);
    w->naps += naps;
}

static struct monitors monitors_now(void)
{
    struct monitors w = {0, 0};

    for (int r = 0; r < RANKS; r++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/task", pid[r]);
        DIR *threads = opendir(path);
        for (struct dirent *t; threads && (t = readdir(threads));)
            if (t->d_name[0] != '.' && strtol(t->d_name, NULL, 10) != pid[r])
                add_thread(&w, pid[r], t->d_name);
        if (threads)
            closedir(threads);
    }
    return w;
}

/* Closes the connections, and waits until they are cleaned up, before the next ones come. */
static void go(struct crowd *c)
{
    useconds_t pause = c->fds > HELD / 2 ? 600000 : 20000;

    while (c->fds)
        close(c->fd[--c->fds]);
    usleep(pause);
}

/* Allreduces per second during the connection attempts. */
static double rate(struct crowd *c, enum kind kind, enum where where, const int ports[RANKS], struct monitors *took)
{
    struct monitors first = monitors_now();

    if (where != NOBODY && kind == HALF_OPEN)
        for (int i = 0; i < HELD - 1000; i++)
            knock(c, kind, ports[i % RANKS]);
    int64_t began = now_us();
    uint64_t before = atomic_load(&shared->done);

    for (int64_t next = began; next < began + WINDOW_US; next += TURN_US) {
        if (where != NOBODY)
            turn(c, kind, ports);
        if (next + TURN_US > now_us())
            usleep((useconds_t)(next + TURN_US - now_us()));
    }
    double result = (double)(atomic_load(&shared->done) - before) * 1e6 / (double)(now_us() - began);
    struct monitors last = monitors_now();
    took->us += last.us - first.us;
    took->naps += last.naps - first.naps;
    go(c);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ the whole benchmark */
static void make_hellos(struct crowd *c, uint32_t from, uint32_t to)
{
    const struct comm_env *env = wire_default_env();
    const struct boot_config config = {.env = env, .secret = secret, .secret_bytes = sizeof secret - 1};
    const struct handshake_names rank = {HANDSHAKE_CONNECTION, from, to, 0, 0};
    unsigned char key[CRYPTO_KEY] = {1};
    struct handshake h;
    bool there = false;

    must(handshake_hello(&h, env, key, &rank, c->wrong), "hello");
    must(secret_find(&config, key, &there) == COMM_OK && there, "secret");
    must(handshake_hello(&h, env, key, &rank, c->right), "hello");
}

static int listen_somewhere(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, RANKS * 3 + PLACES) == 0, "listen");
    must(getsockname(fd, (struct sockaddr *)&at, &length) == 0, "getsockname");
    *port = ntohs(at.sin_port);
    return fd;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *of, int count)
{
    qsort(of, (size_t)count, sizeof *of, ascending);
    return of[count / 2];
}

static void stock(const char *when)
{
    for (int r = 0; r < RANKS; r++)
        atomic_store(&shared->rss[r], -1);
    for (int r = 0; r < RANKS; r++) {
        while (atomic_load(&shared->rss[r]) == -1)
            usleep(1000);
        printf("%s: rank %d has %ld KiB and %ld descriptors\n", when, r, atomic_load(&shared->rss[r]), atomic_load(&shared->files[r]));
    }
}

static void run(struct crowd *c, int rounds, int elsewhere)
{
    static double quiet[KINDS][ROUNDS_MAX], other[KINDS][ROUNDS_MAX];
    struct monitors took[KINDS] = {{0, 0}};
    int ours[RANKS], theirs[RANKS] = {elsewhere, elsewhere};

    for (int r = 0; r < RANKS; r++)
        while (!(ours[r] = atomic_load(&shared->port[r])))
            usleep(1000);
    for (int round = -1; round < rounds; round++) { /* the first round warms up */
        for (int kind = 0; kind < KINDS; kind++) {
            struct monitors aside = {0, 0}, *ours_took = round >= 0 ? &took[kind] : &aside;
            double nobody = rate(c, (enum kind)kind, NOBODY, ours, &aside);
            double there = rate(c, (enum kind)kind, ELSEWHERE, theirs, &aside), here = rate(c, (enum kind)kind, HERE, ours, ours_took);
            if (round >= 0) {
                quiet[kind][round] = nobody / here;
                other[kind][round] = there / here;
            }
        }
        if (round == -1)
            stock("before");
    }
    printf("%-18s %-18s %-20s %-20s %s\n", "time of a call to", "nobody knocking", "knocking elsewhere", "monitors, % of a CPU",
           "wake-ups a second");
    for (int kind = 0; kind < KINDS; kind++)
        printf("%-18s %-18.3f %-20.3f %-20.2f %.0f\n", names[kind], median(quiet[kind], rounds), median(other[kind], rounds),
               took[kind].us * 100 / ((double)rounds * WINDOW_US), (double)took[kind].naps * 1e6 / ((double)rounds * WINDOW_US));
    sleep(3); /* until the acceptor has forgotten the last ones */
    stock("after");
}

int main(int argc, char **argv)
{
    static struct crowd crowd;
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 9, elsewhere = 0, port = 0;
    struct rlimit files;
    char address[64];

    a_turn = argc > 2 ? (int)strtol(argv[2], NULL, 10) : a_turn;
    must(rounds > 0 && rounds <= ROUNDS_MAX && a_turn > 0 && a_turn <= 40, "1 to 64 rounds, 1 to 40 pending peers in 10 ms");
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    int listener = listen_somewhere(&elsewhere);
    close(listen_somewhere(&port)); /* the port is free now */
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    setenv("COMM_ADDRESS", address, 1);
    setenv("COMM_BACKEND", "tcp", 1);
    setenv("COMM_TCP_LINKS", "needed", 1);
    setenv("COMM_SECRET", secret, 1);
    setenv("COMM_RANKS", "2", 1);
    setenv("COMM_JOB", address, 1);
    setenv("COMM_LOCAL_RANKS", "2", 1);
    setenv("COMM_LOG", "error", 1);
    for (int i = 0; i <= RANKS; i++) {
        pid[i] = fork();
        must(pid[i] >= 0, "fork");
        if (pid[i] == 0 && i < RANKS) {
            close(listener);
            be_rank(i);
        }
        if (pid[i] == 0)
            be_elsewhere(listener);
    }
    make_hellos(&crowd, 1, 0);
    run(&crowd, rounds, elsewhere);
    atomic_store(&shared->stop, 1);
    int status = 0, bad = 0;
    for (int i = 0; i < RANKS; i++)
        bad |= waitpid(pid[i], &status, 0) != pid[i] || status != 0;
    kill(pid[RANKS], SIGKILL);
    return bad;
}
