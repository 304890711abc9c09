#define _GNU_SOURCE
#include "fuzz/mock.h"

#include "net/mesh/connect.h"

#include "wire/table.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GUARDED_BYTES = 65536, PAGE = 4096, CLOCK_STEP_NS = 1000, LOOK_AT_ALL = 4 };

static struct mock *here;
static bool keeping;
static int full = -1; /* a socket that accepts no byte */
static int idle = -1; /* never readable: the poller's own descriptor */

struct mock_socket {
    unsigned char *bytes;
    size_t begin, end, ready, room; /* begin .. end: bytes not received yet; those before `ready` can be received */
    size_t takes;
    uint32_t other; /* the socket at which sent bytes arrive; NOBODY: none */
    bool closed, reset, used;
    const struct iovec *vector[POLLER_WAYS];
    uint32_t count[POLLER_WAYS];
};
#define NOBODY UINT32_MAX

/* ------------------------------------------------------------------------------------------------------------ the machine */
static void *take(const struct comm_env *env, size_t bytes, size_t align)
{
    char *at = NULL;

    (void)env;
    HOLD(align <= 4096 && bytes);
    if (bytes >= GUARDED_BYTES) { /* the last byte is before a page without access */
        size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
        at = mmap(NULL, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        HOLD(at != MAP_FAILED && mprotect(at + pages, PAGE, PROT_NONE) == 0);
        at += (pages - bytes) & ~(size_t)63;
    } else {
        HOLD(posix_memalign((void **)&at, align < sizeof(void *) ? sizeof(void *) : align, bytes) == 0);
        memset(at, 0, bytes);
    }
    if (keeping)
        return at;
    here->held++;
    here->held_bytes += bytes;
    if (here->held_bytes > here->held_most)
        here->held_most = here->held_bytes;
    return at;
}

static void give(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    if (!memory)
        return;
    here->held--;
    here->held_bytes -= bytes;
    if (bytes >= GUARDED_BYTES)
        HOLD(munmap((char *)((uintptr_t)memory / PAGE * PAGE), (bytes + PAGE - 1) / PAGE * PAGE + PAGE) == 0);
    else
        free(memory);
}

static int64_t now(const struct comm_env *env)
{
    (void)env;
    return here->now += CLOCK_STEP_NS;
}

static int play_random(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    memset(memory, 7, bytes);
    return 0;
}

static void ring(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    (void)bell;
    here->rings++;
}

static int watch_nothing(const struct comm_env *env, struct env_bell *bell, int fd)
{
    (void)env;
    (void)bell;
    (void)fd;
    return 0;
}

static const char *lookup(const struct comm_env *env, const char *name)
{
    (void)env;
    if (strcmp(name, "COMM_TCP_SEAL") == 0)
        return here->how == MOCK_SEALED ? "yes" : "no";
    if (strcmp(name, "COMM_TCP_CRC") == 0)
        return here->how == MOCK_CHECKED ? "yes" : "no";
    return NULL;
}

static void panic(const struct comm_env *env, const char *text)
{
    (void)env;
    fprintf(stderr, "panic: %s\n", text);
    abort();
}

/* Made once for all inputs. Nobody reads the other end of `full`. */
static void make_files(void)
{
    static char bytes[65536];
    int pair[2];

    HOLD(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    while (send(pair[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0 || send(pair[0], bytes, 1, MSG_DONTWAIT) > 0)
        continue;
    full = pair[0];
    idle = eventfd(0, EFD_CLOEXEC);
    HOLD(idle >= 0);
}

void mock_keep(bool on)
{
    keeping = on;
}

void mock_begin(struct mock *p)
{
    if (full < 0)
        make_files();
    here = p;
    p->now = 1000000000;
    p->env = *wire_default_env();
    p->env.take = take;
    p->env.give = give;
    p->env.now = now;
    p->env.random = play_random;
    p->env.bell_ring = ring;
    p->env.bell_watch = watch_nothing;
    p->env.lookup = lookup;
    p->env.panic = panic;
}

void mock_end(struct mock *p)
{
    HOLD(p->held == 0 && p->held_bytes == 0);
    here = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ sockets */
void mock_arrive(struct mock *p, uint32_t socket, const void *bytes, size_t count, size_t behind)
{
    struct mock_socket *s = &p->socket[socket];

    if (!s->used || s->closed)
        return;
    if (s->begin == s->end)
        s->begin = s->end = s->ready = 0;
    if (s->end + count > s->room) {
        size_t room = 2 * (s->end + count);
        s->bytes = realloc(s->bytes, room);
        HOLD(s->bytes);
        s->room = room;
    }
    if (count)
        memcpy(s->bytes + s->end, bytes, count);
    s->end += count;
    s->ready = s->end - (behind < count ? behind : count);
}

void mock_release(struct mock *p, uint32_t socket)
{
    p->socket[socket].ready = p->socket[socket].end;
}

void mock_hang_up(struct mock *p, uint32_t socket, bool reset)
{
    p->socket[socket].closed = true;
    p->socket[socket].reset = reset;
}

size_t mock_waiting(const struct mock *p, uint32_t socket)
{
    return p->socket[socket].used ? p->socket[socket].end - p->socket[socket].begin : 0;
}

void mock_room(struct mock *p, uint32_t socket, size_t bytes)
{
    p->socket[socket].takes = bytes;
}

static int64_t receive(struct mock_socket *s)
{
    size_t left = s->ready - s->begin, got = 0;

    if (here->piece && left > here->piece)
        left = here->piece;
    for (uint32_t i = 0; i < s->count[POLLER_RECEIVE] && left; i++) {
        size_t n = s->vector[POLLER_RECEIVE][i].iov_len < left ? s->vector[POLLER_RECEIVE][i].iov_len : left;
        memcpy(s->vector[POLLER_RECEIVE][i].iov_base, s->bytes + s->begin, n);
        s->begin += n;
        left -= n;
        got += n;
    }
    if (got)
        return (int64_t)got;
    return s->closed && s->begin == s->end ? s->reset ? -ECONNRESET : 0 : -EAGAIN;
}

/* Reads every byte, even if nobody receives it. */
static int64_t transmit(struct mock_socket *s)
{
    unsigned char piece[4096];
    size_t all = 0;

    for (uint32_t i = 0; i < s->count[POLLER_SEND]; i++) {
        const struct iovec *v = &s->vector[POLLER_SEND][i];
        for (size_t at = 0, n; at < v->iov_len && all < s->takes; at += n, all += n) {
            n = v->iov_len - at < sizeof piece ? v->iov_len - at : sizeof piece;
            n = n < s->takes - all ? n : s->takes - all;
            memcpy(piece, (const char *)v->iov_base + at, n);
            if (s->other != NOBODY)
                mock_arrive(here, s->other, piece, n, 0);
        }
    }
    if (s->takes != SIZE_MAX)
        s->takes -= all;
    return all ? (int64_t)all : -EAGAIN;
}

static int64_t try_way(struct mock_socket *s, enum poller_way way)
{
    int64_t n = way == POLLER_RECEIVE ? receive(s) : transmit(s);

    if (n != -EAGAIN)
        s->vector[way] = NULL;
    return n;
}

/* ------------------------------------------------------------------------------------------------------------ the poller */
static struct poller poller;

static void close_poller(struct poller *of)
{
    (void)of;
    for (uint32_t i = 0; i < here->sockets; i++)
        free(here->socket[i].bytes);
    free(here->socket);
    here->socket = NULL;
    here->sockets = 0;
}

static int add(struct poller *of, uint32_t socket, int fd)
{
    (void)of;
    (void)fd;
    HOLD(socket < here->sockets && !here->socket[socket].used);
    here->socket[socket].used = true;
    return 0;
}

static void take_away(struct poller *of, uint32_t socket)
{
    struct mock_socket *s = &here->socket[socket];

    (void)of;
    s->used = false;
    s->vector[POLLER_RECEIVE] = s->vector[POLLER_SEND] = NULL;
    if (s->other != NOBODY)
        here->socket[s->other].closed = true;
}

static int64_t start(struct poller *of, uint32_t socket, enum poller_way way, const struct iovec *vector, uint32_t count)
{
    struct mock_socket *s = &here->socket[socket];

    (void)of;
    HOLD(s->used && count &&
         (!s->vector[way] || way == POLLER_RECEIVE)); /* an attempt that received something may start the receive again */
    s->vector[way] = vector;
    s->count[way] = count;
    if (way == POLLER_RECEIVE || here->late) /* like the real pollers; otherwise the caller would loop for ever */
        return -EINPROGRESS;
    int64_t n = try_way(s, way);
    return n == -EAGAIN ? -EINPROGRESS : n;
}

static int64_t cancel(struct poller *of, uint32_t socket, enum poller_way way)
{
    struct mock_socket *s = &here->socket[socket];

    (void)of;
    HOLD(s->used);
    int64_t n = here->late && s->vector[way] ? try_way(s, way) : -EAGAIN;
    s->vector[way] = NULL;
    return n == -EAGAIN ? -ECANCELED : n;
}

static int64_t attempt(struct poller *of, uint32_t socket)
{
    struct mock_socket *s = &here->socket[socket];

    (void)of;
    return s->vector[POLLER_RECEIVE] && !here->late ? receive(s) : -EBUSY;
}

static bool is_hot(uint32_t socket, const uint32_t *hot, uint32_t hots)
{
    bool is = !hot;

    for (uint32_t i = 0; i < hots && !is; i++)
        is = hot[i] == socket;
    return is;
}

static uint32_t reap(struct poller *of, struct poller_event *events, uint32_t max, const uint32_t *hot, uint32_t hots)
{
    uint32_t n = 0;

    (void)of;
    if (here->turn++ % LOOK_AT_ALL == 0)
        hot = NULL;
    for (uint32_t i = 0; i < here->sockets; i++)
        for (int way = 0; way < POLLER_WAYS && n < max && is_hot(i, hot, hots); way++) {
            struct mock_socket *s = &here->socket[i];
            int64_t result = s->used && s->vector[way] ? try_way(s, (enum poller_way)way) : -EAGAIN;
            if (result != -EAGAIN)
                events[n++] = (struct poller_event){i, (uint32_t)way, result};
        }
    return n;
}

static void nothing(struct poller *of)
{
    (void)of;
}

static void arm(struct poller *of, bool on)
{
    (void)of;
    (void)on;
}

static const struct poller_class mock_class = {.name = "mock",
                                               .close = close_poller,
                                               .add = add,
                                               .remove = take_away,
                                               .start = start,
                                               .cancel = cancel,
                                               .attempt = attempt,
                                               .reap = reap,
                                               .submit = nothing,
                                               .arm = arm};

__typeof__(poller_open) __wrap_poller_open; /* makes the compiler check that the type matches the replaced function */
enum comm_result __wrap_poller_open(enum poller_kind kind, const struct poller_config *config, char *text, size_t bytes,
                                    struct poller **opened)
{
    (void)kind;
    (void)text;
    (void)bytes;
    HOLD(!here->socket);
    here->socket = calloc(config->sockets, sizeof *here->socket);
    HOLD(here->socket);
    here->sockets = config->sockets;
    for (uint32_t i = 0; i < config->sockets; i++) {
        here->socket[i].other = NOBODY;
        here->socket[i].takes = SIZE_MAX;
    }
    poller = (struct poller){.class = &mock_class, .fd = idle};
    *opened = &poller;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ connecting */
static const unsigned char key[CRYPTO_KEY] = {11, 22, 33};

/* The seals of two ranks after the handshake; the same for all pairs. */
static const struct seal *seals(void)
{
    static struct seal both[2];
    static bool made;
    const struct handshake_names names = {HANDSHAKE_CONNECTION, 0, 1, 0, CRYPTO_CHACHA};
    unsigned char hello[HANDSHAKE_HELLO], answer[HANDSHAKE_ANSWER];
    struct handshake one, other;

    if (!made) {
        HOLD(handshake_hello(&one, &here->env, key, &names, hello));
        HOLD(handshake_answer(&other, &here->env, key, hello, answer) == HANDSHAKE_OK && handshake_finish(&one, answer) == HANDSHAKE_OK);
        both[0] = one.seal;
        both[1] = other.seal;
        made = true;
    }
    return both;
}

static void seal_lane(struct tcp_lane *lane, uint32_t side)
{
    if (here->how != MOCK_PLAIN)
        HOLD(tcp_lane_seal(lane, &seals()[side], here->how == MOCK_SEALED ? CRYPTO_CHACHA : CRYPTO_NONE));
}

/* Replaces the real one: every peer is connected, and the target controls its ends. */
__typeof__(tcp_mesh) __wrap_tcp_mesh;
enum comm_result __wrap_tcp_mesh(struct tcp_wire *w, const struct wire_config *config)
{
    (void)config;
    here->far_port = (struct tcp_port){.wire = w};
    for (int32_t peer = 0; peer < w->ranks; peer++)
        for (uint32_t k = 0; k < TCP_LANES && peer != w->rank; k++) {
            struct tcp_lane *lane = &w->port->link[peer].lane[k], *far = &here->far[(uint32_t)peer * TCP_SOCKETS + k];
            lane->fd = full;
            lane->link->sure = true;
            *far = (struct tcp_lane){.port = &here->far_port, .lane = k};
            seal_lane(lane, 0);
            seal_lane(far, 1);
        }
    return COMM_OK;
}

/* The same for ranks that are all in this process. */
__typeof__(tcp_mesh_here) __wrap_tcp_mesh_here;
enum comm_result __wrap_tcp_mesh_here(struct tcp_wire *w, const struct wire_config *config)
{
    for (int32_t a = 0; a < w->ranks; a++)
        for (int32_t b = 0; b < w->ranks; b++)
            for (uint32_t k = 0; k < TCP_LANES && wire_joins(config, a, b); k++) {
                struct tcp_lane *lane = &w->port[a].link[b].lane[k];
                lane->fd = full;
                here->socket[lane->socket].other = w->port[b].link[a].lane[k].socket;
            }
    return COMM_OK;
}

void mock_say(struct mock *p, uint32_t peer, uint32_t lane, uint32_t socket, const void *bytes, size_t count, size_t behind)
{
    struct tcp_lane *far = &p->far[peer * TCP_SOCKETS + lane];
    struct iovec vector = {(void *)(uintptr_t)bytes, count};

    if (!far->records) {
        mock_arrive(p, socket, bytes, count, behind);
        return;
    }
    while (vector.iov_len) {
        size_t n = record_take(far->records, &vector, 1);
        struct iovec sealed = record_leaving(far->records);
        vector = (struct iovec){(char *)vector.iov_base + n, vector.iov_len - n};
        mock_arrive(p, socket, sealed.iov_base, sealed.iov_len, vector.iov_len ? 0 : behind);
        record_sent(far->records, sealed.iov_len);
    }
}

/* ------------------------------------------------------------------------------------------------------------ calls on descriptors */
__typeof__(close) __real_close, __wrap_close;
int __wrap_close(int fd)
{
    return fd == full ? 0 : __real_close(fd);
}

__typeof__(shutdown) __real_shutdown, __wrap_shutdown;
int __wrap_shutdown(int fd, int how)
{
    return fd == full ? 0 : __real_shutdown(fd, how);
}

/* Nothing that was sent through the poller waits in the kernel. */
__typeof__(ioctl) __real_ioctl, __wrap_ioctl;
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *to = va_arg(more, void *);
    va_end(more);
    return fd == full ? -1 : __real_ioctl(fd, request, to);
}

/* A sleep. */
__typeof__(poll) __real_poll, __wrap_poll;
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    if (count || !here)
        return __real_poll(fds, count, ms);
    here->now += (int64_t)ms * 1000000;
    return 0;
}
