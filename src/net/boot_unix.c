/*
 * boot_unix: how the processes of one host meet, over an abstract socket: nothing in the file system, gone with its last process. Rank 0
 * listens, the others connect; every exchange is a star over rank 0. All waiting has the world's deadline, and whoever is missing, dead or
 * refused is named. Only processes of the same user are let in. It must not know what the blobs and descriptors are for.
 */
#define _GNU_SOURCE
#include "net/boot_io.h"

#include "base/format.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern const struct boot_class boot_unix;

enum {
    BOOT_VERSION = 1,
    BOOT_STRANGERS_MAX = 32, /* accepted and not yet known */
    BOOT_RETRY_MS = 2,
};
struct greeting {
    uint32_t magic, version;
    int32_t rank, ranks;
    uint64_t job;
};

struct unix_boot {
    struct wire_boot boot;
    struct boot_config config;
    int listener, root; /* root: this rank's connection to rank 0 */
    int *peer;          /* rank 0's connections, by rank */
    struct pollfd *wait;
    uint64_t job;
};

static enum comm_result fail(const struct unix_boot *b, enum comm_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum comm_result fail(const struct unix_boot *b, enum comm_result result, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    base_format_list(b->config.error_text, b->config.error_text_bytes, format, list);
    va_end(list);
    return result;
}

static enum comm_result fail_errno(const struct unix_boot *b, const char *what)
{
    return fail(b, COMM_ERR_SYSTEM, "%s: %s", what, strerror(errno));
}

/* Rank 0 alone: what failed here is told to all. */
static enum comm_result tell_all(const struct unix_boot *b, enum comm_result result)
{
    const char *text = b->config.error_text_bytes ? b->config.error_text : "rank 0 gave up";
    for (int32_t i = 1; i < b->config.ranks; i++)
        if (b->peer[i] >= 0)
            boot_send_refusal(b->peer[i], result, text);
    return result;
}

static enum comm_result root_lost(const struct unix_boot *b, enum io io)
{
    if (io == IO_LATE)
        return fail(b, COMM_ERR_TIMEOUT, "rank 0 did not answer rank %d in time", b->config.rank);
    return fail(b, COMM_ERR_PEER, "rank 0 died while the world was opening");
}

/* A frame of this kind from rank 0, or the reason why there will be none. */
static enum comm_result expect(const struct unix_boot *b, uint32_t kind, uint64_t bytes)
{
    struct frame frame;
    enum io io = boot_receive_all(&b->config, b->root, &frame, sizeof frame);
    if (io != IO_OK)
        return root_lost(b, io);
    if (frame.magic == BOOT_MAGIC && frame.kind == FRAME_REFUSED && frame.bytes < BOOT_TEXT && frame.result < 0) {
        char text[BOOT_TEXT] = "";
        io = boot_receive_all(&b->config, b->root, text, frame.bytes);
        return fail(b, io == IO_OK ? (enum comm_result)frame.result : COMM_ERR_PEER, "%s", text);
    }
    if (frame.magic != BOOT_MAGIC || frame.kind != kind || frame.bytes != bytes)
        return fail(b, COMM_ERR_AUTH, "what listens as rank 0 speaks another language");
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ meeting */
static socklen_t name_socket(const struct unix_boot *b, const unsigned char *token, size_t token_bytes, struct sockaddr_un *address)
{
    struct env_identity who;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    b->config.env->identity(b->config.env, &who);
    size_t room = sizeof address->sun_path - 1, at = 0;
    char *path = address->sun_path + 1; /* a leading zero: abstract */
    base_append(path, room, &at, "commstream.%u.", who.uid);
    if (token) {
        for (size_t i = 0; i < token_bytes; i++)
            base_append(path, room, &at, "%02x", token[i]);
    } else if (strlen(b->config.job) < 64) {
        base_append(path, room, &at, "%s", b->config.job);
    } else {
        base_append(path, room, &at, "%.*s.%016llx", 32, b->config.job, (unsigned long long)b->job);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path));
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

static void name_missing(const struct unix_boot *b)
{
    char *text = b->config.error_text;
    size_t room = b->config.error_text_bytes, at = 0, named = 0, missing = 0;
    base_append(text, room, &at, "not every rank came in time; missing:");
    for (int32_t i = 1; i < b->config.ranks; i++) {
        if (b->peer[i] >= 0)
            continue;
        missing++;
        if (named < 16 && ++named)
            base_append(text, room, &at, " %d", i);
    }
    if (missing > named)
        base_append(text, room, &at, " and %zu more", missing - named);
    base_append(text, room, &at, " (of %d)", b->config.ranks);
}

/* A newcomer's greeting. Takes him in, or says why not and closes; or it is not there yet, after all. */
enum greeted { GREETED_LATER, GREETED_IN, GREETED_OUT };
static enum greeted greet(struct unix_boot *b, int fd)
{
    struct greeting g;
    char text[BOOT_TEXT];
    ssize_t n = recv(fd, &g, sizeof g, MSG_DONTWAIT);
    if (n < 0 && boot_again())
        return GREETED_LATER;
    if (n == (ssize_t)sizeof g && g.magic == BOOT_MAGIC && g.version == BOOT_VERSION && g.job == b->job && g.ranks == b->config.ranks &&
        g.rank > 0 && g.rank < b->config.ranks && b->peer[g.rank] < 0) {
        b->peer[g.rank] = fd;
        return GREETED_IN;
    }
    if (n != (ssize_t)sizeof g || g.magic != BOOT_MAGIC || g.version != BOOT_VERSION)
        base_format(text, sizeof text, "rank 0 of this job speaks version %d of another protocol", BOOT_VERSION);
    else if (g.job != b->job)
        base_format(text, sizeof text, "another job meets under this name");
    else if (g.ranks != b->config.ranks)
        base_format(text, sizeof text, "rank %d came for a world of %d ranks, rank 0 opens one of %d", g.rank, g.ranks, b->config.ranks);
    else
        base_format(text, sizeof text, "rank %d is there already: two processes have the same rank, or two jobs the same name", g.rank);
    boot_send_refusal(fd, COMM_ERR_AUTH, text);
    close(fd);
    return GREETED_OUT;
}

struct strangers {
    int fd[BOOT_STRANGERS_MAX];
    uint32_t count;
};

static enum comm_result let_in(struct unix_boot *b, struct strangers *s)
{
    int fd = accept4(b->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) /* who waits outside stays there, so without descriptors or memory this would be tried for ever */
        return boot_again() || errno == ECONNABORTED ? COMM_OK : fail_errno(b, "accept");
    if (!same_user(fd)) {
        close(fd);
        return COMM_OK;
    }
    if (s->count == BOOT_STRANGERS_MAX) { /* the eldest had its time */
        close(s->fd[0]);
        memmove(s->fd, s->fd + 1, --s->count * sizeof *s->fd);
    }
    s->fd[s->count++] = fd;
    return COMM_OK;
}

static enum comm_result dead_rank(const struct unix_boot *b, int32_t rank)
{
    return fail(b, COMM_ERR_PEER, "rank %d died while the world was opening", rank);
}

/* One wait over the listener, those not yet known and those known; *here grows. */
static enum comm_result gather_once(struct unix_boot *b, struct strangers *s, int32_t *here)
{
    nfds_t n = 0;
    b->wait[n++] = (struct pollfd){.fd = b->listener, .events = POLLIN};
    for (uint32_t i = 0; i < s->count; i++)
        b->wait[n++] = (struct pollfd){.fd = s->fd[i], .events = POLLIN};
    nfds_t known = n;
    for (int32_t i = 1; i < b->config.ranks; i++)
        b->wait[n++] = (struct pollfd){.fd = b->peer[i], .events = POLLRDHUP};
    int ms = boot_remaining_ms(&b->config);
    int ready = poll(b->wait, n, ms);
    if (!ms) { /* also when somebody is at the door: he may be for ever */
        name_missing(b);
        return COMM_ERR_TIMEOUT;
    }
    if (ready <= 0)
        return COMM_OK;
    for (int32_t i = 1; i < b->config.ranks; i++)
        if (b->peer[i] >= 0 && b->wait[known + (nfds_t)i - 1].revents)
            return dead_rank(b, i);
    for (uint32_t i = s->count; i-- > 0;) {
        enum greeted greeted = b->wait[1 + i].revents ? greet(b, s->fd[i]) : GREETED_LATER;
        if (greeted == GREETED_LATER)
            continue;
        *here += greeted == GREETED_IN;
        s->fd[i] = s->fd[--s->count];
    }
    return b->wait[0].revents ? let_in(b, s) : COMM_OK;
}

static enum comm_result listen_for_all(struct unix_boot *b, const struct sockaddr_un *address, socklen_t length)
{
    struct strangers strangers = {.count = 0};
    enum comm_result result = COMM_OK;
    int32_t here = 1;
    b->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (b->listener < 0)
        return fail_errno(b, "socket");
    if (bind(b->listener, (const struct sockaddr *)address, length) < 0)
        return errno == EADDRINUSE ? fail(b, COMM_ERR_CONFIG, "a rank 0 of a job named %s is opening on this host already", b->config.job)
                                   : fail_errno(b, "bind");
    if (listen(b->listener, b->config.ranks + BOOT_STRANGERS_MAX) < 0)
        return fail_errno(b, "listen");
    while (here < b->config.ranks && result == COMM_OK)
        result = gather_once(b, &strangers, &here);
    while (strangers.count)
        close(strangers.fd[--strangers.count]);
    close(b->listener);
    b->listener = -1;
    for (int32_t i = 1; i < b->config.ranks && result == COMM_OK; i++)
        if (boot_send_frame(&b->config, b->peer[i], FRAME_WELCOME, NULL, 0) != IO_OK)
            result = dead_rank(b, i);
    return result == COMM_OK ? result : tell_all(b, result);
}

static enum comm_result connect_to_root(struct unix_boot *b, const struct sockaddr_un *address, socklen_t length)
{
    for (;;) {
        b->root = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (b->root < 0)
            return fail_errno(b, "socket");
        if (connect(b->root, (const struct sockaddr *)address, length) == 0)
            break;
        if (errno != ECONNREFUSED && errno != ENOENT && !boot_again())
            return fail_errno(b, "connect");
        close(b->root);
        b->root = -1;
        if (!boot_remaining_ms(&b->config))
            return fail(b, COMM_ERR_TIMEOUT, "rank 0 did not come in time: nothing listens for job %s", b->config.job);
        poll(NULL, 0, BOOT_RETRY_MS);
    }
    if (!same_user(b->root))
        return fail(b, COMM_ERR_AUTH, "what listens for job %s belongs to another user", b->config.job);
    struct greeting g = {BOOT_MAGIC, BOOT_VERSION, b->config.rank, b->config.ranks, b->job};
    enum io io = boot_send_all(&b->config, b->root, &g, sizeof g);
    return io == IO_OK ? expect(b, FRAME_WELCOME, 0) : root_lost(b, io);
}

/* ------------------------------------------------------------------------------------------------------------ the class */
static size_t memory_bytes(int32_t ranks)
{
    return sizeof(struct unix_boot) + (size_t)ranks * sizeof(int) + ((size_t)ranks + 1 + BOOT_STRANGERS_MAX) * sizeof(struct pollfd);
}

static void unix_close(struct wire_boot *boot)
{
    struct unix_boot *b = (struct unix_boot *)boot;
    if (b->listener >= 0)
        close(b->listener);
    if (b->root >= 0)
        close(b->root);
    for (int32_t i = 0; i < b->config.ranks; i++)
        if (b->peer[i] >= 0)
            close(b->peer[i]);
    b->config.env->give(b->config.env, b, memory_bytes(b->config.ranks));
}

/* The host's own exchange spreads a name that nobody else can guess. */
static enum comm_result agree_on_token(struct unix_boot *b, unsigned char *token, size_t bytes)
{
    const struct comm_env *env = b->config.env;
    size_t all_bytes = (size_t)b->config.ranks * bytes;
    unsigned char *all = env->take(env, all_bytes, 64);
    if (!all)
        return fail(b, COMM_ERR_MEMORY, "no memory for %zu bytes of the exchange", all_bytes);
    enum comm_result result = COMM_OK;
    if (b->config.rank == 0 && env->random(env, token, bytes))
        result = fail(b, COMM_ERR_SYSTEM, "no randomness for the name of the meeting");
    else if (b->config.exchange(b->config.exchange_arg, token, bytes, all))
        result = fail(b, COMM_ERR_BACKEND, "the program's exchange failed");
    memcpy(token, all, bytes);
    env->give(env, all, all_bytes);
    return result;
}

static enum comm_result unix_open(const struct boot_config *config, struct wire_boot **boot)
{
    const struct comm_env *env = config->env;
    struct unix_boot *b = env->take(env, memory_bytes(config->ranks), 64);
    if (!b) {
        base_format(config->error_text, config->error_text_bytes, "no memory to meet %d ranks", config->ranks);
        return COMM_ERR_MEMORY;
    }
    *b = (struct unix_boot){.boot = {&boot_unix}, .config = *config, .listener = -1, .root = -1};
    b->wait = (struct pollfd *)(void *)(b + 1);
    b->peer = (int *)(void *)(b->wait + config->ranks + 1 + BOOT_STRANGERS_MAX);
    for (int32_t i = 0; i < config->ranks; i++)
        b->peer[i] = -1;
    for (const char *at = config->job; *at; at++)
        b->job = base_hash(b->job, (unsigned char)*at);
    unsigned char token[16] = {0};
    struct sockaddr_un address;
    enum comm_result result = config->exchange ? agree_on_token(b, token, sizeof token) : COMM_OK;
    socklen_t length = name_socket(b, config->exchange ? token : NULL, sizeof token, &address);
    if (result == COMM_OK && config->ranks > 1)
        result = config->rank ? connect_to_root(b, &address, length) : listen_for_all(b, &address, length);
    if (result != COMM_OK) {
        unix_close(&b->boot);
        return result;
    }
    *boot = &b->boot;
    return COMM_OK;
}

/* Reads one frame with `bytes` behind it from every rank, in whatever order they come. at: ranks * (frame + bytes). */
static enum comm_result collect(struct unix_boot *b, char *at, size_t bytes, size_t *got)
{
    size_t each = sizeof(struct frame) + bytes;
    int32_t left = b->config.ranks - 1;
    while (left) {
        for (int32_t i = 1; i < b->config.ranks; i++)
            b->wait[i - 1] = (struct pollfd){.fd = got[i] < each ? b->peer[i] : -1, .events = POLLIN};
        int ms = boot_remaining_ms(&b->config);
        if (poll(b->wait, (nfds_t)b->config.ranks - 1, ms) <= 0 && !ms) {
            for (int32_t i = 1; i < b->config.ranks; i++)
                if (got[i] < each)
                    return fail(b, COMM_ERR_TIMEOUT, "rank %d met the others and then fell silent", i);
        }
        for (int32_t i = 1; i < b->config.ranks; i++) {
            if (b->wait[i - 1].fd < 0 || !b->wait[i - 1].revents)
                continue;
            ssize_t n = recv(b->peer[i], at + (size_t)i * each + got[i], each - got[i], 0);
            if (!n || (n < 0 && !boot_again()))
                return dead_rank(b, i);
            got[i] += n > 0 ? (size_t)n : 0;
            left -= got[i] == each;
        }
    }
    return COMM_OK;
}

static enum comm_result gather_as_root(struct unix_boot *b, const void *in, size_t bytes, char *out)
{
    const struct comm_env *env = b->config.env;
    size_t ranks = (size_t)b->config.ranks, each = sizeof(struct frame) + bytes, room = ranks * (each + sizeof(size_t));
    char *at = env->take(env, room, 64);
    if (!at)
        return tell_all(b, fail(b, COMM_ERR_MEMORY, "no memory for %zu bytes of the meeting", room));
    size_t *got = (size_t *)(void *)at;
    char *frames = at + ranks * sizeof(size_t);
    enum comm_result result = collect(b, frames, bytes, got);
    memcpy(out, in, bytes);
    for (size_t i = 1; i < ranks && result == COMM_OK; i++) {
        struct frame frame;
        memcpy(&frame, frames + i * each, sizeof frame);
        if (frame.magic != BOOT_MAGIC || frame.kind != FRAME_DATA || frame.bytes != bytes)
            result = fail(b, COMM_ERR_AUTH, "rank %zu of another version of the library", i);
        memcpy(out + i * bytes, frames + i * each + sizeof frame, bytes);
    }
    env->give(env, at, room);
    for (int32_t i = 1; i < b->config.ranks && result == COMM_OK; i++)
        if (boot_send_frame(&b->config, b->peer[i], FRAME_DATA, out, ranks * bytes) != IO_OK)
            result = dead_rank(b, i);
    return result == COMM_OK ? result : tell_all(b, result);
}

static enum comm_result unix_allgather(struct wire_boot *boot, const void *in, size_t bytes, void *out)
{
    struct unix_boot *b = (struct unix_boot *)boot;
    if (b->config.rank == 0)
        return gather_as_root(b, in, bytes, out);
    enum io io = boot_send_frame(&b->config, b->root, FRAME_DATA, in, bytes);
    if (io != IO_OK && io != IO_GONE) /* gone: it may have said why */
        return root_lost(b, io);
    uint64_t all = (uint64_t)b->config.ranks * bytes;
    enum comm_result result = expect(b, FRAME_DATA, all);
    if (result != COMM_OK)
        return result;
    io = boot_receive_all(&b->config, b->root, out, all);
    return io == IO_OK ? COMM_OK : root_lost(b, io);
}

/* ------------------------------------------------------------------------------------------------------------ descriptors */
static enum comm_result pass_as_root(struct unix_boot *b, uint32_t count, int *all)
{
    uint32_t total = (uint32_t)b->config.ranks * count;
    for (int32_t i = 1; i < b->config.ranks; i++) {
        struct frame frame;
        enum io io = boot_receive_fds(&b->config, b->peer[i], &frame, all + (size_t)i * count, count);
        if (io != IO_OK)
            return tell_all(b, fail(b, io == IO_LATE ? COMM_ERR_TIMEOUT : COMM_ERR_PEER,
                                    "the descriptors of rank %d did not come: it died, or a limit on open files was met", i));
    }
    for (int32_t i = 1; i < b->config.ranks; i++) {
        for (uint32_t at = 0; at < total; at += BOOT_FDS_PACKET) { /* each acknowledged: descriptors in flight are limited per user */
            struct frame ack = {.magic = 0};
            uint32_t n = total - at < BOOT_FDS_PACKET ? total - at : BOOT_FDS_PACKET;
            enum io io = boot_send_fds(&b->config, b->peer[i], all + at, n);
            io = io == IO_OK ? boot_receive_all(&b->config, b->peer[i], &ack, sizeof ack) : io;
            if (io != IO_OK || ack.kind != FRAME_ACK)
                return tell_all(
                    b, fail(b, COMM_ERR_PEER, "rank %d did not take the others' descriptors: it died, or met its limit on open files", i));
        }
    }
    return COMM_OK;
}

static enum comm_result pass_as_other(struct unix_boot *b, const int *given, uint32_t count, int *all)
{
    uint32_t total = (uint32_t)b->config.ranks * count;
    enum io io = boot_send_fds(&b->config, b->root, given, count);
    for (uint32_t at = 0; at < total && io == IO_OK; at += BOOT_FDS_PACKET) {
        struct frame frame, peek = {.magic = 0};
        uint32_t n = total - at < BOOT_FDS_PACKET ? total - at : BOOT_FDS_PACKET;
        io = boot_wait_for(&b->config, b->root, POLLIN);
        if (io == IO_OK && recv(b->root, &peek, sizeof peek, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof peek && peek.kind == FRAME_REFUSED)
            return expect(b, FRAME_FDS, 0);
        io = io == IO_OK ? boot_receive_fds(&b->config, b->root, &frame, all + at, n) : io;
        if (io == IO_OK)
            io = boot_send_frame(&b->config, b->root, FRAME_ACK, NULL, 0);
    }
    return io == IO_OK ? COMM_OK : root_lost(b, io);
}

static enum comm_result unix_pass(struct wire_boot *boot, const int *given, uint32_t count, int *all)
{
    struct unix_boot *b = (struct unix_boot *)boot;
    uint32_t total = (uint32_t)b->config.ranks * count;
    enum comm_result result = COMM_OK;
    if (!count || count > BOOT_DESCRIPTORS_MAX)
        return fail(b, COMM_ERR_ARGUMENT, "%u descriptors to pass, at most %d", count, BOOT_DESCRIPTORS_MAX);
    for (uint32_t i = 0; i < total; i++)
        all[i] = -1;
    if (b->config.rank) {
        result = pass_as_other(b, given, count, all);
    } else {
        for (uint32_t i = 0; i < count && result == COMM_OK; i++) {
            all[i] = fcntl(given[i], F_DUPFD_CLOEXEC, 0);
            if (all[i] < 0)
                result = tell_all(b, fail_errno(b, "dup of a descriptor"));
        }
        result = result == COMM_OK ? pass_as_root(b, count, all) : result;
    }
    for (uint32_t i = 0; i < total && result != COMM_OK; i++) {
        if (all[i] >= 0)
            close(all[i]);
        all[i] = -1;
    }
    return result;
}

const struct boot_class boot_unix = {
    .name = "unix", .open = unix_open, .allgather = unix_allgather, .pass = unix_pass, .close = unix_close};
