/*
 * boot_star: how ranks meet over stream sockets, whatever the sockets are: rank 0 listens, the others connect; every exchange is a star
 * over rank 0. All waiting has the world's deadline, and whoever is missing, dead or refused is named. It must not know what the blobs are
 * for. How one listens, dials and lets somebody in is its kind's: boot_unix within one host, boot_tcp between hosts.
 */
#define _GNU_SOURCE
#include "net/boot_star.h"

#include "base/format.h"
#include "base/hash.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum comm_result star_fail(const struct boot_star *b, enum comm_result result, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    base_format_list(b->config.error_text, b->config.error_text_bytes, format, list);
    va_end(list);
    return result;
}

enum comm_result star_fail_errno(const struct boot_star *b, const char *what)
{
    return star_fail(b, COMM_ERR_SYSTEM, "%s: %s", what, strerror(errno));
}

/* Rank 0 alone: what failed here is told to all. */
enum comm_result star_tell_all(const struct boot_star *b, enum comm_result result)
{
    const char *text = b->config.error_text_bytes ? b->config.error_text : "rank 0 gave up";
    for (int32_t i = 1; i < b->config.ranks; i++)
        if (b->peer[i] >= 0)
            boot_send_refusal(b->peer[i], result, text);
    return result;
}

enum comm_result star_root_lost(const struct boot_star *b, enum io io)
{
    if (io == IO_LATE)
        return star_fail(b, COMM_ERR_TIMEOUT, "rank 0 did not answer rank %d in time", b->config.rank);
    return star_fail(b, COMM_ERR_PEER, "rank 0 died while the world was opening");
}

/* A frame of this kind from rank 0, or the reason why there will be none. */
enum comm_result star_expect(const struct boot_star *b, uint32_t kind, uint64_t bytes)
{
    struct frame frame;
    enum io io = boot_receive_all(&b->config, b->root, &frame, sizeof frame);
    if (io != IO_OK)
        return star_root_lost(b, io);
    if (frame.magic == BOOT_MAGIC && frame.kind == FRAME_REFUSED && frame.bytes < BOOT_TEXT && frame.result < 0) {
        char text[BOOT_TEXT] = "";
        io = boot_receive_all(&b->config, b->root, text, frame.bytes);
        return star_fail(b, io == IO_OK ? (enum comm_result)frame.result : COMM_ERR_PEER, "%s", text);
    }
    if (frame.magic != BOOT_MAGIC || frame.kind != kind || frame.bytes != bytes)
        return star_fail(b, COMM_ERR_AUTH, "what listens as rank 0 speaks another language");
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ meeting */
static void name_missing(const struct boot_star *b)
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
static enum greeted greet(struct boot_star *b, int fd)
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

static enum comm_result let_in(struct boot_star *b, struct strangers *s)
{
    int fd = accept4(b->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) /* who waits outside stays there, so without descriptors or memory this would be tried for ever */
        return boot_again() || errno == ECONNABORTED ? COMM_OK : star_fail_errno(b, "accept");
    if (b->kind->may_enter && !b->kind->may_enter(fd)) {
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

static enum comm_result dead_rank(const struct boot_star *b, int32_t rank)
{
    return star_fail(b, COMM_ERR_PEER, "rank %d died while the world was opening", rank);
}

/* One wait over the listener, those not yet known and those known; *here grows. */
static enum comm_result gather_once(struct boot_star *b, struct strangers *s, int32_t *here)
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

static enum comm_result listen_for_all(struct boot_star *b)
{
    struct strangers strangers = {.count = 0};
    int32_t here = 1;
    enum comm_result result = b->kind->listen(b);

    while (here < b->config.ranks && result == COMM_OK)
        result = gather_once(b, &strangers, &here);
    while (strangers.count)
        close(strangers.fd[--strangers.count]);
    if (b->listener >= 0)
        close(b->listener);
    b->listener = -1;
    for (int32_t i = 1; i < b->config.ranks && result == COMM_OK; i++)
        if (boot_send_frame(&b->config, b->peer[i], FRAME_WELCOME, NULL, 0) != IO_OK)
            result = dead_rank(b, i);
    return result == COMM_OK ? result : star_tell_all(b, result);
}

static enum comm_result connect_to_root(struct boot_star *b)
{
    enum comm_result result = b->kind->dial(b);

    if (result != COMM_OK)
        return result;
    struct greeting g = {BOOT_MAGIC, BOOT_VERSION, b->config.rank, b->config.ranks, b->job};
    enum io io = boot_send_all(&b->config, b->root, &g, sizeof g);
    return io == IO_OK ? star_expect(b, FRAME_WELCOME, 0) : star_root_lost(b, io);
}

/* ------------------------------------------------------------------------------------------------------------ opening */
static size_t memory_bytes(int32_t ranks)
{
    return sizeof(struct boot_star) + (size_t)ranks * sizeof(int) + ((size_t)ranks + 1 + BOOT_STRANGERS_MAX) * sizeof(struct pollfd);
}

void star_close(struct wire_boot *boot)
{
    struct boot_star *b = (struct boot_star *)boot;

    if (b->listener >= 0)
        close(b->listener);
    if (b->root >= 0)
        close(b->root);
    for (int32_t i = 0; i < b->config.ranks; i++)
        if (b->peer[i] >= 0)
            close(b->peer[i]);
    b->config.env->give(b->config.env, b, memory_bytes(b->config.ranks));
}

struct boot_star *star_make(const struct boot_config *config, const struct boot_class *class, const struct star_kind *kind)
{
    const struct comm_env *env = config->env;
    struct boot_star *b = env->take(env, memory_bytes(config->ranks), 64);

    if (!b) {
        base_format(config->error_text, config->error_text_bytes, "no memory to meet %d ranks", config->ranks);
        return NULL;
    }
    *b = (struct boot_star){.boot = {.class = class}, .kind = kind, .config = *config, .listener = -1, .root = -1};
    b->wait = (struct pollfd *)(void *)(b + 1);
    b->peer = (int *)(void *)(b->wait + config->ranks + 1 + BOOT_STRANGERS_MAX);
    for (int32_t i = 0; i < config->ranks; i++)
        b->peer[i] = -1;
    for (const char *at = config->job; *at; at++)
        b->job = base_hash(b->job, (unsigned char)*at);
    return b;
}

enum comm_result star_meet(struct boot_star *b)
{
    if (b->config.ranks == 1)
        return COMM_OK;
    return b->config.rank ? connect_to_root(b) : listen_for_all(b);
}

/* ------------------------------------------------------------------------------------------------------------ exchanging */
/* Reads one frame with `bytes` behind it from every rank, in whatever order they come. at: ranks * (frame + bytes). */
static enum comm_result collect(struct boot_star *b, char *at, size_t bytes, size_t *got)
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
                    return star_fail(b, COMM_ERR_TIMEOUT, "rank %d met the others and then fell silent", i);
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

static enum comm_result gather_as_root(struct boot_star *b, const void *in, size_t bytes, char *out)
{
    const struct comm_env *env = b->config.env;
    size_t ranks = (size_t)b->config.ranks, each = sizeof(struct frame) + bytes, room = ranks * (each + sizeof(size_t));
    char *at = env->take(env, room, 64);
    if (!at)
        return star_tell_all(b, star_fail(b, COMM_ERR_MEMORY, "no memory for %zu bytes of the meeting", room));
    size_t *got = (size_t *)(void *)at;
    char *frames = at + ranks * sizeof(size_t);
    enum comm_result result = collect(b, frames, bytes, got);
    memcpy(out, in, bytes);
    for (size_t i = 1; i < ranks && result == COMM_OK; i++) {
        struct frame frame;
        memcpy(&frame, frames + i * each, sizeof frame);
        if (frame.magic != BOOT_MAGIC || frame.kind != FRAME_DATA || frame.bytes != bytes)
            result = star_fail(b, COMM_ERR_AUTH, "rank %zu of another version of the library", i);
        memcpy(out + i * bytes, frames + i * each + sizeof frame, bytes);
    }
    env->give(env, at, room);
    for (int32_t i = 1; i < b->config.ranks && result == COMM_OK; i++)
        if (boot_send_frame(&b->config, b->peer[i], FRAME_DATA, out, ranks * bytes) != IO_OK)
            result = dead_rank(b, i);
    return result == COMM_OK ? result : star_tell_all(b, result);
}

enum comm_result star_allgather(struct wire_boot *boot, const void *in, size_t bytes, void *out)
{
    struct boot_star *b = (struct boot_star *)boot;
    if (b->config.rank == 0)
        return gather_as_root(b, in, bytes, out);
    enum io io = boot_send_frame(&b->config, b->root, FRAME_DATA, in, bytes);
    if (io != IO_OK && io != IO_GONE) /* gone: it may have said why */
        return star_root_lost(b, io);
    uint64_t all = (uint64_t)b->config.ranks * bytes;
    enum comm_result result = star_expect(b, FRAME_DATA, all);
    if (result != COMM_OK)
        return result;
    io = boot_receive_all(&b->config, b->root, out, all);
    return io == IO_OK ? COMM_OK : star_root_lost(b, io);
}
