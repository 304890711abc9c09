/* A machine between two ranks: see middle.h. */
#define _GNU_SOURCE
#include "net/middle.h"
#include "conform/rig.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HARM = 64, HELLO_WORD = 20, HELLO_END = 24 };

const char *const middle_fault_names[MIDDLE_SORTS] = {"changes a byte", "loses bytes",  "says bytes twice", "cuts",
                                                      "delays",         "swallows all", "exchanges bytes",  "holds"};
struct middle middle = {.rank = -1};

struct relay {
    int listener, fd[2];
    int number;
    struct sockaddr_storage to;
    socklen_t to_bytes;
    size_t passed[2];
    bool over[2]; /* that side sends no more */
    bool swallows, held;
};

int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);

static bool send_all(int fd, const char *at, size_t bytes)
{
    while (bytes) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Causes the fault at offset `at` of the bytes in transit. False: the connection is over. */
static bool harm(struct relay *r, int way, char *bytes, size_t n, size_t at)
{
    size_t rest = n - at < HARM ? n - at : HARM;
    int to = r->fd[!way];

    switch (middle.fault) {
    case MIDDLE_CHANGE:
        bytes[at] = (char)(bytes[at] ^ (middle.bits ? middle.bits : 4));
        return send_all(to, bytes, n);
    case MIDDLE_LOSE:
        return send_all(to, bytes, at) && send_all(to, bytes + at + rest, n - at - rest);
    case MIDDLE_REPEAT:
        return send_all(to, bytes, at + rest) && send_all(to, bytes + at, n - at);
    case MIDDLE_CUT:
        send_all(to, bytes, at);
        return false;
    case MIDDLE_SWALLOW: /* but not its end */
        r->swallows = true;
        return send_all(to, bytes, at);
    case MIDDLE_SWAP: /* exchanges at least the first bytes with those after them */
        rest = rest > (n - at) / 2 ? (n - at) / 2 : rest;
        if (!rest) { /* try again at the next byte */
            middle.at++;
            return send_all(to, bytes, n);
        }
        return send_all(to, bytes, at) && send_all(to, bytes + at + rest, rest) && send_all(to, bytes + at, rest) &&
               send_all(to, bytes + at + 2 * rest, n - at - 2 * rest);
    default:
        rig_nap(300 * RIG_MS);
        return send_all(to, bytes, n);
    }
}

/* A mark that spans two reads is not counted; there are many marks. */
static void look(const struct relay *r, int way, const char *bytes, size_t n)
{
    for (const char *at = bytes; middle.mark && (at = memmem(at, n - (size_t)(at - bytes), middle.mark, MIDDLE_MARK)) != NULL; at++)
        middle.seen->marks++;
    if (middle.seen && way == 0 && !r->passed[way] && n >= HELLO_END && r->number < MIDDLE_DIALS) {
        uint32_t word;
        memcpy(&word, bytes + HELLO_WORD, sizeof word);
        middle.seen->hello[r->number] = word;
    }
}

static bool pass(struct relay *r, int way)
{
    char bytes[8192];
    ssize_t n = recv(r->fd[way], bytes, sizeof bytes, 0);
    bool whose = middle.rank < 0 || middle.rank == middle.self;
    bool it = r->number == middle.connection || middle.connection == MIDDLE_ANY, planned = whose && it && way == middle.direction;

    if (middle.fault == MIDDLE_HOLD && whose && r->number <= middle.connection && !r->held && atomic_load(middle.closes)) {
        r->held = true;
        rig_nap(middle.held_ns);
    }
    if (n <= 0) { /* the other direction may still have data, which is forwarded */
        r->over[way] = true;
        shutdown(r->fd[!way], SHUT_WR);
        return !r->over[!way];
    }
    look(r, way, bytes, (size_t)n);
    size_t before = r->passed[way];
    r->passed[way] += (size_t)n;
    if (planned && middle.at < r->passed[way] && before <= middle.at)
        return harm(r, way, bytes, (size_t)n, middle.at - before);
    if (planned && r->swallows)
        return true;
    send_all(r->fd[!way], bytes, (size_t)n); /* that side may have closed after sending something */
    return true;
}

static void *relay_run(void *arg)
{
    struct relay *r = arg;
    bool goes_on;

    r->fd[0] = accept(r->listener, NULL, NULL);
    close(r->listener);
    r->fd[1] = socket(r->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    goes_on = r->fd[0] >= 0 && r->fd[1] >= 0 && __real_connect(r->fd[1], (struct sockaddr *)&r->to, r->to_bytes) == 0;
    while (goes_on) {
        struct pollfd ends[2] = {{.fd = r->over[0] ? -1 : r->fd[0], .events = POLLIN},
                                 {.fd = r->over[1] ? -1 : r->fd[1], .events = POLLIN}};
        poll(ends, 2, -1);
        for (int way = 0; way < 2; way++)
            if (ends[way].revents)
                goes_on = goes_on && pass(r, way);
    }
    close(r->fd[0]);
    close(r->fd[1]);
    free(r);
    return NULL;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    static int dialed;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    int kind = 0;
    socklen_t kind_bytes = sizeof kind;
    pthread_t thread;

    getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &kind_bytes);
    if (address->sa_family != AF_INET || kind != SOCK_STREAM)
        return __real_connect(fd, address, bytes);
    struct relay *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    r->number = dialed++;
    memcpy(&r->to, address, bytes);
    r->to_bytes = bytes;
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(r->listener >= 0 && bind(r->listener, (struct sockaddr *)&here, length) == 0 && listen(r->listener, 1) == 0);
    CHECK(getsockname(r->listener, (struct sockaddr *)&here, &length) == 0);
    CHECK(pthread_create(&thread, NULL, relay_run, r) == 0 && pthread_detach(thread) == 0);
    return __real_connect(fd, (struct sockaddr *)&here, length);
}
