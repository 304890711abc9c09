/*
 * star: ranks meet over stream sockets of any kind. Rank 0 listens and the others connect (acceptor.c); every exchange goes through rank 0.
 * All waits end at the world's deadline, and errors name the ranks that are missing, dead or refused. This file must not know what the
 * exchanged blobs mean. The kind of star says how to listen and dial: boot/unix.c within one host, boot/tcp.c between hosts. If the job has
 * a secret and the sockets leave the host, everything exchanged is sealed with the keys of each connection's handshake.
 */
#define _GNU_SOURCE
#include "net/boot/star.h"

#include "base/format.h"
#include "base/hash.h"
#include "net/auth/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum comm_result star_fail_errno(const struct boot_star *b, const char *what)
{
    return boot_fail(&b->config, COMM_ERR_SYSTEM, "%s: %s", what, strerror(errno));
}

/* Rank 0 only: sends its failure to all ranks. */
enum comm_result star_tell_all(const struct boot_star *b, enum comm_result result)
{
    const char *text = b->config.error_text_bytes ? b->config.error_text : "rank 0 gave up";
    for (int32_t i = 1; i < b->config.ranks; i++)
        if (b->peer[i] >= 0)
            star_send_refusal(b->peer[i], b->sealed ? &b->seal[i] : NULL, result, text);
    return result;
}

enum comm_result star_root_lost(const struct boot_star *b, enum io io)
{
    if (io == IO_LATE)
        return boot_fail(&b->config, COMM_ERR_TIMEOUT, "rank 0 did not answer rank %d in time", b->config.rank);
    return boot_fail(&b->config, COMM_ERR_PEER, "rank 0 died while the world was opening");
}

enum comm_result star_dead_rank(const struct boot_star *b, int32_t rank)
{
    return boot_fail(&b->config, COMM_ERR_PEER, "rank %d died while the world was opening", rank);
}

/* ------------------------------------------------------------------------------------------------------------ frames */
/* The number of bytes on the wire for `count` bytes. */
static size_t way_bytes(const struct boot_star *b, size_t count)
{
    return b->sealed ? seal_bytes(count) : count;
}

static enum io send_bytes(const struct boot_star *b, int32_t rank, const void *bytes, size_t count)
{
    int fd = b->config.rank ? b->root : b->peer[rank];
    unsigned char sealed[SEAL_PIECE + CRYPTO_TAG];
    enum io io = IO_OK;

    if (!b->sealed)
        return boot_send_all(&b->config, fd, bytes, count);
    for (const char *at = bytes; count && io == IO_OK;) {
        size_t piece = count < SEAL_PIECE ? count : SEAL_PIECE;
        io = seal_write(&b->seal[rank], at, piece, sealed) ? boot_send_all(&b->config, fd, sealed, piece + CRYPTO_TAG) : IO_GONE;
        at += piece;
        count -= piece;
    }
    return io;
}

enum io star_send_frame(const struct boot_star *b, int32_t rank, uint32_t kind, const void *bytes, size_t count)
{
    struct frame frame = {.magic = BOOT_MAGIC, .kind = kind, .bytes = count};
    enum io io = send_bytes(b, rank, &frame, sizeof frame);

    return io == IO_OK ? send_bytes(b, rank, bytes, count) : io;
}

void star_send_refusal(int fd, struct seal *seal, enum comm_result result, const char *text)
{
    unsigned char sealed[sizeof(struct frame) + BOOT_TEXT + 2 * CRYPTO_TAG];
    size_t length = strlen(text) < BOOT_TEXT - 1 ? strlen(text) : BOOT_TEXT - 1, head = seal_bytes(sizeof(struct frame));
    struct frame frame = {.magic = BOOT_MAGIC, .kind = FRAME_REFUSED, .result = result, .bytes = length};

    if (!seal) {
        boot_send_refusal(fd, result, text);
        return;
    }
    if (!seal_write(seal, &frame, sizeof frame, sealed) || !seal_write(seal, text, length, sealed + head))
        return;
    if (send(fd, sealed, head + seal_bytes(length), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the peer is gone and will notice it */
}

static enum comm_result changed(const struct boot_star *b)
{
    return boot_fail(&b->config, COMM_ERR_AUTH, "the data from rank 0 was changed on its way");
}

static enum comm_result receive_bytes(const struct boot_star *b, void *bytes, size_t count)
{
    unsigned char sealed[SEAL_PIECE + CRYPTO_TAG];
    enum io io = IO_OK;

    if (!b->sealed)
        io = boot_receive_all(&b->config, b->root, bytes, count);
    for (char *at = bytes; b->sealed && count && io == IO_OK;) {
        size_t piece = count < SEAL_PIECE ? count : SEAL_PIECE;
        io = boot_receive_all(&b->config, b->root, sealed, piece + CRYPTO_TAG);
        if (io == IO_OK && !seal_read(&b->seal[0], sealed, at, piece))
            return changed(b);
        at += piece;
        count -= piece;
    }
    return io == IO_OK ? COMM_OK : star_root_lost(b, io);
}

/* Receives a frame of this kind from rank 0, or returns why there is none. */
enum comm_result star_expect(const struct boot_star *b, uint32_t kind, uint64_t bytes)
{
    struct frame frame;
    enum comm_result result = receive_bytes(b, &frame, sizeof frame);

    if (result != COMM_OK)
        return result;
    if (frame.magic == BOOT_MAGIC && frame.kind == FRAME_REFUSED && frame.bytes < BOOT_TEXT && frame.result < 0) {
        char text[BOOT_TEXT] = "";
        result = receive_bytes(b, text, frame.bytes);
        return result == COMM_OK ? boot_fail(&b->config, (enum comm_result)frame.result, "%s", text) : result;
    }
    if (frame.magic != BOOT_MAGIC || frame.kind != kind || frame.bytes != bytes)
        return boot_fail(&b->config, COMM_ERR_AUTH, "the process that listens as rank 0 uses another protocol");
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ opening */
static size_t memory_bytes(int32_t ranks)
{
    return sizeof(struct boot_star) + (size_t)ranks * sizeof(int) +
           ((size_t)ranks + BOOT_LISTENERS + BOOT_UNAUTHENTICATED_MAX) * sizeof(struct pollfd);
}

static size_t keys_bytes(int32_t ranks)
{
    return sizeof(struct star_keys) + (size_t)ranks * sizeof(struct seal);
}

void star_own(const struct boot_star *b, int fd)
{
    b->config.env->own(b->config.env, fd, true);
}

void star_drop(const struct boot_star *b, int *fd)
{
    b->config.env->own(b->config.env, *fd, false);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void star_close(struct wire_boot *boot)
{
    struct boot_star *b = (struct boot_star *)boot;

    star_drop(b, &b->listener);
    star_drop(b, &b->by_name);
    star_drop(b, &b->root);
    for (int32_t i = 0; i < b->config.ranks; i++)
        star_drop(b, &b->peer[i]);
    const struct comm_env *env = b->config.env;
    secret_give(b->keys, keys_bytes(b->config.ranks));
    env->give(env, b, memory_bytes(b->config.ranks));
}

void star_use_key(struct boot_star *b, const unsigned char key[CRYPTO_KEY], bool sealed)
{
    memcpy(b->keys->job, key, sizeof b->keys->job);
    b->boot.key = b->keys->job;
    b->sealed = sealed;
}

void star_use_no_key(struct boot_star *b)
{
    crypto_wipe(b->keys->job, sizeof b->keys->job);
    b->boot.key = NULL;
    b->sealed = false;
}

struct boot_star *star_make(const struct boot_config *config, const struct boot_class *class, const struct star_kind *kind)
{
    const struct comm_env *env = config->env;
    struct boot_star *b = env->take(env, memory_bytes(config->ranks), 64);
    struct star_keys *keys = secret_take(keys_bytes(config->ranks));

    if (!b || !keys) {
        secret_give(keys, keys_bytes(config->ranks));
        env_give_back(env, b, memory_bytes(config->ranks));
        base_format(config->error_text, config->error_text_bytes, "no memory to meet %d ranks", config->ranks);
        return NULL;
    }
    *b = (struct boot_star){.boot = {.class = class}, .kind = kind, .config = *config, .listener = -1, .by_name = -1, .root = -1};
    b->keys = keys;
    b->seal = keys->seal;
    b->wait = (struct pollfd *)(void *)(b + 1);
    b->peer = (int *)(void *)(b->wait + config->ranks + BOOT_LISTENERS + BOOT_UNAUTHENTICATED_MAX);
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
    return b->config.rank ? acceptor_connect_to_root(b) : acceptor_listen_for_all(b);
}

/* ------------------------------------------------------------------------------------------------------------ exchanging */
/* Reads `each` bytes from every rank, in order of arrival. at has ranks * each bytes. */
static enum comm_result collect(struct boot_star *b, char *at, size_t each, size_t *got)
{
    int32_t left = b->config.ranks - 1;
    while (left) {
        for (int32_t i = 1; i < b->config.ranks; i++)
            b->wait[i - 1] = (struct pollfd){.fd = got[i] < each ? b->peer[i] : -1, .events = POLLIN};
        int ms = boot_remaining_ms(&b->config);
        if (poll(b->wait, (nfds_t)b->config.ranks - 1, ms) <= 0 && !ms) {
            for (int32_t i = 1; i < b->config.ranks; i++)
                if (got[i] < each)
                    return boot_fail(&b->config, COMM_ERR_TIMEOUT, "rank %d met the others and then fell silent", i);
        }
        for (int32_t i = 1; i < b->config.ranks; i++) {
            if (b->wait[i - 1].fd < 0 || !b->wait[i - 1].revents)
                continue;
            ssize_t n = recv(b->peer[i], at + (size_t)i * each + got[i], each - got[i], 0);
            if (!n || (n < 0 && !boot_again()))
                return star_dead_rank(b, i);
            got[i] += n > 0 ? (size_t)n : 0;
            left -= got[i] == each;
        }
    }
    return COMM_OK;
}

/* Splits what rank i sent into a frame header and its payload. */
static enum comm_result take_apart(struct boot_star *b, int32_t i, const char *at, size_t bytes, char *out)
{
    struct frame frame;
    size_t head = way_bytes(b, sizeof frame);
    bool sound = true;

    if (b->sealed) {
        sound = seal_read(&b->seal[i], at, &frame, sizeof frame) && seal_read(&b->seal[i], at + head, out, bytes);
    } else {
        memcpy(&frame, at, sizeof frame);
        memcpy(out, at + head, bytes);
    }
    if (!sound)
        return boot_fail(&b->config, COMM_ERR_AUTH, "the data from rank %d was changed on its way", i);
    if (frame.magic != BOOT_MAGIC || frame.kind != FRAME_DATA || frame.bytes != bytes)
        return boot_fail(&b->config, COMM_ERR_AUTH, "rank %d of another version of the library", i);
    return COMM_OK;
}

static enum comm_result gather_as_root(struct boot_star *b, const void *in, size_t bytes, char *out)
{
    const struct comm_env *env = b->config.env;
    size_t ranks = (size_t)b->config.ranks, each = way_bytes(b, sizeof(struct frame)) + way_bytes(b, bytes);
    size_t room = ranks * (each + sizeof(size_t));
    char *at = env->take(env, room, 64);
    if (!at)
        return star_tell_all(b, boot_fail(&b->config, COMM_ERR_MEMORY, "no memory for %zu bytes of the meeting", room));
    size_t *got = (size_t *)(void *)at;
    char *frames = at + ranks * sizeof(size_t);
    enum comm_result result = collect(b, frames, each, got);
    memcpy(out, in, bytes);
    for (size_t i = 1; i < ranks && result == COMM_OK; i++)
        result = take_apart(b, (int32_t)i, frames + i * each, bytes, out + i * bytes);
    env->give(env, at, room);
    for (int32_t i = 1; i < b->config.ranks && result == COMM_OK; i++)
        if (star_send_frame(b, i, FRAME_DATA, out, ranks * bytes) != IO_OK)
            result = star_dead_rank(b, i);
    return result == COMM_OK ? result : star_tell_all(b, result);
}

enum comm_result star_allgather(struct wire_boot *boot, const void *in, size_t bytes, void *out)
{
    struct boot_star *b = (struct boot_star *)boot;
    if (b->config.rank == 0)
        return gather_as_root(b, in, bytes, out);
    enum io io = star_send_frame(b, 0, FRAME_DATA, in, bytes);
    if (io != IO_OK && io != IO_GONE) /* IO_GONE: rank 0 may have sent a reason, so read it */
        return star_root_lost(b, io);
    uint64_t all = (uint64_t)b->config.ranks * bytes;
    enum comm_result result = star_expect(b, FRAME_DATA, all);
    return result == COMM_OK ? receive_bytes(b, out, all) : result;
}

/* Between two exchanges a rank sends only the start of the next one, and rank 0 answers only when it has the data of all ranks. So anything
 * that arrives from rank 0 before that is a refusal, or the end of the connection. */
bool star_is_over(struct wire_boot *boot)
{
    struct boot_star *b = (struct boot_star *)boot;
    int32_t count = b->config.rank ? 1 : b->config.ranks - 1;
    bool over = false;

    for (int32_t i = 0; i < count; i++)
        b->wait[i] = (struct pollfd){.fd = b->config.rank ? b->root : b->peer[i + 1], .events = POLLIN};
    if (count == 0 || poll(b->wait, (nfds_t)count, 0) <= 0)
        return false;
    for (int32_t i = 0; i < count && !over; i++) {
        char byte;
        ssize_t n = b->wait[i].revents ? recv(b->wait[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 1;
        over = b->config.rank != 0 || !n || (n < 0 && !boot_again());
    }
    return over;
}
