/* unix: how the processes of one host meet: at an abstract socket. It leaves nothing in the file system and disappears with its last
 * process. Only processes of the same user are admitted. star.c does the exchanges; this file passes descriptors. */
#define _GNU_SOURCE
#include "net/boot/star.h"

#include "base/format.h"
#include "base/result.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern const struct boot_class boot_unix;

/* ------------------------------------------------------------------------------------------------------------ at a name */
void star_name(struct star_name *name, const char *text)
{
    char *path = name->address.sun_path + 1; /* a leading zero byte makes the name abstract */

    memset(name, 0, sizeof *name);
    name->address.sun_family = AF_UNIX;
    base_copy_text(path, sizeof name->address.sun_path - 1, text);
    name->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path));
}

/* The name is in use: by a rank 0 of our user that is about to meet there too, or by another user, perhaps to block it. */
static enum comm_result name_taken(struct boot_star *b, const struct star_name *name, const char *what)
{
    char why[USER_WHY];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool there = fd >= 0 && connect(fd, (const struct sockaddr *)&name->address, name->length) == 0;
    bool ours = !there || user_is_ours(fd, why);

    if (fd >= 0)
        close(fd);
    return ours ? boot_fail(&b->config, COMM_ERR_CONFIG, "a rank 0 is opening %s on this host already: another job or an earlier run", what)
                : boot_fail(&b->config, COMM_ERR_AUTH, "what listens for %s on this host is not this rank 0's user's: %s", what, why);
}

enum comm_result star_listen_at(struct boot_star *b, const struct star_name *name, const char *what)
{
    enum comm_result result = COMM_OK;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return star_fail_errno(b, "socket");
    star_own(b, fd);
    if (bind(fd, (const struct sockaddr *)&name->address, name->length) < 0)
        result = errno == EADDRINUSE ? name_taken(b, name, what) : star_fail_errno(b, "bind");
    else if (listen(fd, b->config.ranks + BOOT_UNAUTHENTICATED_MAX) < 0)
        result = star_fail_errno(b, "listen");
    if (result == COMM_OK)
        b->by_name = fd;
    else
        star_drop(b, &fd);
    return result;
}

enum star_dialed star_dial_at(struct boot_star *b, const struct star_name *name, const char *what, enum comm_result *result)
{
    char why[USER_WHY];
    enum star_dialed dialed = STAR_FAILED;

    b->nobody = false;
    b->root = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    star_own(b, b->root);
    if (b->root < 0)
        *result = star_fail_errno(b, "socket");
    else if (connect(b->root, (const struct sockaddr *)&name->address, name->length) == 0)
        dialed = STAR_DIALED;
    else if ((b->nobody = errno == ECONNREFUSED || errno == ENOENT) || boot_again())
        dialed = STAR_NOT_YET;
    else
        *result = star_fail_errno(b, "connect");
    if (dialed == STAR_DIALED && !user_is_ours(b->root, why)) { /* before any of our data is sent */
        *result = boot_fail(&b->config, COMM_ERR_AUTH, "what listens for %s on this host is not this rank's user's: %s", what, why);
        dialed = STAR_FAILED;
    }
    if (dialed != STAR_DIALED)
        star_drop(b, &b->root);
    return dialed;
}

/* ------------------------------------------------------------------------------------------------------------ by a job's name */
struct unix_place {
    struct star_name name;
    char what[96];
};

static void name_job(const struct boot_star *b, const unsigned char *token, size_t token_bytes, struct unix_place *place)
{
    char text[sizeof place->name.address.sun_path];
    struct env_identity who;
    size_t at = 0;

    b->config.env->identity(b->config.env, &who);
    base_append(text, sizeof text, &at, "commstream.%u.", who.uid);
    if (token) {
        for (size_t i = 0; i < token_bytes; i++)
            base_append(text, sizeof text, &at, "%02x", token[i]);
    } else if (strlen(b->config.job) < 64) {
        base_append(text, sizeof text, &at, "%s", b->config.job);
    } else {
        base_append(text, sizeof text, &at, "%.*s.%016llx", 32, b->config.job, (unsigned long long)b->job);
    }
    star_name(&place->name, text);
    base_format(place->what, sizeof place->what, "job %s", b->config.job);
}

static enum comm_result unix_listen(struct boot_star *b)
{
    const struct unix_place *place = b->place;

    return star_listen_at(b, &place->name, place->what);
}

static enum comm_result unix_dial(struct boot_star *b)
{
    const struct unix_place *place = b->place;
    enum comm_result result = COMM_OK;
    enum star_dialed dialed;

    while ((dialed = star_dial_at(b, &place->name, place->what, &result)) == STAR_NOT_YET) {
        if (b->again && b->nobody)
            return star_root_lost(b, IO_GONE);
        if (!boot_remaining_ms(&b->config))
            return boot_fail(&b->config, COMM_ERR_TIMEOUT, "rank 0 did not come in time: nothing listens for job %s", b->config.job);
        poll(NULL, 0, BOOT_RETRY_MS);
    }
    return result;
}

static const struct star_kind kind = {.listen = unix_listen, .dial = unix_dial};

/* ------------------------------------------------------------------------------------------------------------ the class */
/* What each rank says in the program's exchange: rank 0 the name of the meeting, which is random, the others nothing but zeros. A rank that
 * cannot open says why in place of that, since the others would wait for it there. */
struct token {
    unsigned char name[12];
    int32_t rest; /* of the name; with a name of zeros: the result of a rank that cannot open */
};

static enum comm_result result_of(const struct token *token, int32_t rank)
{
    static const unsigned char none[sizeof token->name];
    bool named = memcmp(token->name, none, sizeof none) != 0;

    return named || (rank && !token->rest) ? COMM_OK : token->rest < 0 ? (enum comm_result)token->rest : COMM_ERR_SYSTEM;
}

/* failed: this rank's failure. Returns it, or that of the lowest rank that has one, or OK. */
static enum comm_result agree_on_token(const struct boot_config *c, enum comm_result failed, struct token *token)
{
    const struct comm_env *env = c->env;
    size_t bytes = (size_t)c->ranks * sizeof *token;
    struct token *all = env->take(env, bytes, 64);

    if (!all)
        return failed != COMM_OK ? failed : boot_fail(c, COMM_ERR_MEMORY, "no memory for %zu bytes of the exchange", bytes);
    if (failed == COMM_OK && c->rank == 0 && env->random(env, token, sizeof *token))
        failed = boot_fail(c, COMM_ERR_SYSTEM, "no randomness for the name of the meeting");
    if (failed != COMM_OK)
        *token = (struct token){.rest = (int32_t)failed};
    bool done = c->exchange(c->exchange_arg, token, sizeof *token, all) == 0;
    enum comm_result result = failed;
    if (!done && result == COMM_OK)
        result = boot_fail(c, COMM_ERR_BACKEND, "the program's exchange failed");
    for (int32_t i = 0; i < c->ranks && result == COMM_OK; i++) {
        result = result_of(&all[i], i);
        if (result != COMM_OK)
            boot_fail(c, result, "rank %d cannot open (%s); its own error says why", i, base_result_name(result));
    }
    *token = all[0];
    env->give(env, all, bytes);
    return result;
}

static enum comm_result unix_open(const struct boot_config *config, struct wire_boot **boot)
{
    struct token token = {.rest = 0};
    struct unix_place place;
    enum comm_result result = config->failed;
    struct boot_star *b = result == COMM_OK ? star_make(config, &boot_unix, &kind) : NULL;

    if (!b && result == COMM_OK)
        result = COMM_ERR_MEMORY;
    if (config->exchange)
        result = agree_on_token(config, result, &token);
    if (!b)
        return result;
    name_job(b, config->exchange ? (unsigned char *)&token : NULL, sizeof token, &place);
    b->place = &place;
    if (result == COMM_OK)
        result = star_meet(b);
    b->place = NULL;
    if (result != COMM_OK) {
        star_close(&b->boot);
        return result;
    }
    *boot = &b->boot;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ descriptors */
static enum comm_result pass_as_root(struct boot_star *b, uint32_t count, int *all)
{
    uint32_t total = (uint32_t)b->config.ranks * count;
    for (int32_t i = 1; i < b->config.ranks; i++) {
        struct frame frame;
        enum io io = boot_receive_fds(&b->config, b->peer[i], &frame, all + (size_t)i * count, count);
        if (io != IO_OK)
            return star_tell_all(b, boot_fail(&b->config, io == IO_LATE ? COMM_ERR_TIMEOUT : COMM_ERR_PEER,
                                              "the descriptors of rank %d did not come: it died, or a limit on open files was met", i));
    }
    for (int32_t i = 1; i < b->config.ranks; i++) {
        for (uint32_t at = 0; at < total;
             at += BOOT_FDS_PACKET) { /* each packet is acknowledged, because the kernel limits descriptors in flight per user */
            struct frame ack = {.magic = 0};
            uint32_t n = total - at < BOOT_FDS_PACKET ? total - at : BOOT_FDS_PACKET;
            enum io io = boot_send_fds(&b->config, b->peer[i], all + at, n);
            io = io == IO_OK ? boot_receive_all(&b->config, b->peer[i], &ack, sizeof ack) : io;
            if (io != IO_OK || ack.kind != FRAME_ACK)
                return star_tell_all(b,
                                     boot_fail(&b->config, COMM_ERR_PEER,
                                               "rank %d did not take the others' descriptors: it died, or met its limit on open files", i));
        }
    }
    return COMM_OK;
}

static enum comm_result pass_as_other(struct boot_star *b, const int *given, uint32_t count, int *all)
{
    uint32_t total = (uint32_t)b->config.ranks * count;
    enum io io = boot_send_fds(&b->config, b->root, given, count);
    for (uint32_t at = 0; at < total && io == IO_OK; at += BOOT_FDS_PACKET) {
        struct frame frame, peek = {.magic = 0};
        uint32_t n = total - at < BOOT_FDS_PACKET ? total - at : BOOT_FDS_PACKET;
        io = boot_wait_for(&b->config, b->root, POLLIN);
        if (io == IO_OK && recv(b->root, &peek, sizeof peek, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof peek && peek.kind == FRAME_REFUSED)
            return star_expect(b, FRAME_FDS, 0);
        io = io == IO_OK ? boot_receive_fds(&b->config, b->root, &frame, all + at, n) : io;
        if (io == IO_OK)
            io = boot_send_frame(&b->config, b->root, FRAME_ACK, NULL, 0);
    }
    return io == IO_OK ? COMM_OK : star_root_lost(b, io);
}

static enum comm_result unix_pass(struct wire_boot *boot, const int *given, uint32_t count, int *all)
{
    struct boot_star *b = (struct boot_star *)boot;
    uint32_t total = (uint32_t)b->config.ranks * count;
    enum comm_result result = COMM_OK;
    if (!count || count > BOOT_DESCRIPTORS_MAX)
        return boot_fail(&b->config, COMM_ERR_ARGUMENT, "%u descriptors to pass, at most %d", count, BOOT_DESCRIPTORS_MAX);
    for (uint32_t i = 0; i < total; i++)
        all[i] = -1;
    if (b->config.rank) {
        result = pass_as_other(b, given, count, all);
    } else {
        for (uint32_t i = 0; i < count && result == COMM_OK; i++) {
            all[i] = fcntl(given[i], F_DUPFD_CLOEXEC, 0);
            if (all[i] < 0)
                result = star_tell_all(b, star_fail_errno(b, "dup of a descriptor"));
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
    .name = "unix", .open = unix_open, .allgather = star_allgather, .pass = unix_pass, .close = star_close, .is_over = star_is_over};
