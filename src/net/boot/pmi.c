/*
 * The session of this process with its launcher, and the two calls of a medium over it.
 *
 * If the process also uses MPI, before or afterwards, MPI shares this connection.
 */
#define _GNU_SOURCE
#include "net/boot/pmi.h"

#include "base/format.h"
#include "net/boot/io.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GOODBYE_MS = 500, GOODBYE_PIECES = 16 };

/* One for the process, like the descriptor. */
static struct {
    pthread_mutex_t lock;
    const struct pmi_protocol *protocol; /* NULL: the session has not begun */
    int fd;
    pid_t process; /* the process that must say goodbye; a forked child does not */
    ino_t socket;  /* inode of the socket: MPI closes the descriptor when it finalizes, and its number may then belong to another file */
    bool lost;
} session = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

enum comm_result pmi_lose(struct pmi_op *op, enum comm_result result, const char *what, const char *detail)
{
    session.lost = true;
    base_format(op->why, op->why_bytes, "%s%s", what, detail);
    return result;
}

/* Without waiting, though the descriptor is blocking, since MPI may use it that way. It was a socket with every launcher tried. A pipe with
 * any room has room for PIPE_BUF bytes (pipe(7)), and no message is longer. */
static ssize_t say_now(int fd, const char *bytes, size_t count)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent >= 0 || errno != ENOTSOCK)
        return sent;
    if (poll(&room, 1, 0) > 0)
        return write(fd, bytes, count);
    errno = EAGAIN;
    return -1;
}

enum comm_result pmi_say(struct pmi_op *op, const char *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        ssize_t sent = say_now(op->fd, bytes + at, count - at);
        if (sent >= 0)
            at += (size_t)sent;
        else if (!boot_again())
            return pmi_lose(op, COMM_ERR_SYSTEM, "the launcher takes nothing", "");
        else if (boot_wait_for(op->config, op->fd, POLLOUT) != IO_OK)
            return pmi_lose(op, COMM_ERR_TIMEOUT, "the launcher did not read in time what this rank asked it", "");
    }
    return COMM_OK;
}

/* Waits before it reads, since the descriptor is blocking. */
enum comm_result pmi_hear(struct pmi_op *op, void *to, size_t most, size_t *got)
{
    for (;;) {
        enum io io = boot_wait_for(op->config, op->fd, POLLIN);
        if (io == IO_LATE)
            return pmi_lose(op, COMM_ERR_TIMEOUT, "not all ranks came in time to the launcher's ", op->protocol->barrier);
        ssize_t n = io == IO_OK ? read(op->fd, to, most) : 0;
        if (n < 0 && boot_again())
            continue;
        if (n <= 0)
            return pmi_lose(op, COMM_ERR_SYSTEM, "the launcher hung up", "");
        *got = (size_t)n;
        return COMM_OK;
    }
}

const char *pmi_value(const struct pmi_op *op, const char *key, size_t *length)
{
    const char separator = op->protocol->separator, end[2] = {separator, 0};
    size_t n = strlen(key);

    for (const char *at = strchr(op->answer, separator); at; at = strchr(at + 1, separator)) {
        if (strncmp(at + 1, key, n) != 0 || at[1 + n] != '=')
            continue;
        *length = strcspn(at + n + 2, end);
        return at + n + 2;
    }
    return NULL;
}

enum comm_result pmi_judge(struct pmi_op *op)
{
    size_t length;
    const char *rc = pmi_value(op, "rc", &length);

    if (!rc || (length == 1 && *rc == '0'))
        return COMM_OK;
    base_format(op->why, op->why_bytes, "the launcher answers %s", op->answer);
    return COMM_ERR_SYSTEM;
}

/* ------------------------------------------------------------------------------------------------------------ the session */
static ino_t socket_of(int fd)
{
    struct stat about;

    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

/* To the end of the goodbye's own reply. Before it may come the reply to a request that was given up, and each may come in pieces. */
static void read_answer(int fd)
{
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    char bytes[PMI_ANSWER];
    size_t at = 0;
    bool whole = false;

    for (int pieces = 0; !whole && pieces < GOODBYE_PIECES && at < sizeof bytes && poll(&answer, 1, GOODBYE_MS) > 0; pieces++) {
        ssize_t n = recv(fd, bytes + at, sizeof bytes - at, MSG_DONTWAIT);
        if (n <= 0)
            break;
        at += (size_t)n;
        whole = memmem(bytes, at, "cmd=finalize", 12) && (bytes[at - 1] == '\n' || bytes[at - 1] == ';');
    }
    crypto_wipe(bytes, sizeof bytes); /* the other reply may have the secret */
}

/* The answer is read: a socket that is closed with unread bytes, or before they are written, ends with an error for the launcher. flux then
 * waits for ever, and hydra ends the job. */
static void say_goodbye(void)
{
    const char *message = session.protocol->goodbye;

    if (session.process == getpid() && socket_of(session.fd) == session.socket &&
        send(session.fd, message, strlen(message), MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        read_answer(session.fd);
}

void pmi_must_say_goodbye(struct pmi_op *op)
{
    session.protocol = op->protocol;
    session.fd = op->fd;
    session.socket = socket_of(op->fd);
    if (!session.process)
        atexit(say_goodbye);
    session.process = getpid();
}

static enum comm_result begin(struct pmi_op *op)
{
    const char *set = op->config->env->lookup(op->config->env, "PMI_FD");
    uint64_t fd;

    if (session.lost)
        return pmi_lose(op, COMM_ERR_SYSTEM, "an earlier world of this process lost the launcher", "");
    if (session.protocol && socket_of(session.fd) != session.socket)
        return pmi_lose(op, COMM_ERR_SYSTEM,
                        "the session of this process with the launcher is over: ", "MPI has finalized, or PMI_FD was closed");
    if (session.protocol == op->protocol) {
        op->fd = session.fd;
        return COMM_OK;
    }
    if (session.protocol) {
        base_format(op->why, op->why_bytes, "an earlier world of this process uses version %d of PMI; expected the same address again",
                    session.protocol->version);
        return COMM_ERR_CONFIG;
    }
    if (!set || !base_parse_u64(set, &fd) || fd > INT32_MAX) {
        base_format(op->why, op->why_bytes,
                    "PMI_FD is %s: no launcher that speaks version %d of PMI started this rank; give COMM_ADDRESS=HOST:PORT",
                    set ? "no descriptor" : "not set", op->protocol->version);
        return COMM_ERR_CONFIG;
    }
    op->fd = (int)fd;
    enum comm_result result = op->protocol->begin(op);
    if (result != COMM_OK)
        session.lost = true;
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ the medium */
static void swap(char *text, size_t bytes, const char from[2], const char to[2])
{
    for (size_t i = 0; i < bytes; i++)
        text[i] = text[i] == from[0] ? to[0] : text[i] == from[1] ? to[1] : text[i];
}

static enum comm_result put(struct pmi_op *op, const char *place, const struct meeting *m)
{
    const char stand_in[2] = {op->protocol->blank, op->protocol->newline};
    char text[MEETING_BYTES];
    size_t bytes = meeting_format(m, text);

    swap(text, bytes, " \n", stand_in);
    enum comm_result result = op->protocol->put(op, place, text);
    crypto_wipe(text, sizeof text);
    return result;
}

static enum comm_result get(struct pmi_op *op, const char *place, struct meeting *m)
{
    const char stand_in[2] = {op->protocol->blank, op->protocol->newline};
    char text[MEETING_BYTES];
    size_t length;
    enum comm_result result = op->protocol->get(op, place);

    if (result != COMM_OK)
        return result;
    const char *value = pmi_value(op, "value", &length);
    bool right = value && length < sizeof text;
    if (right) {
        memcpy(text, value, length);
        swap(text, length, stand_in, " \n");
        right = meeting_parse(text, length, m);
    }
    crypto_wipe(text, sizeof text);
    crypto_wipe(op->answer, sizeof op->answer);
    if (!right)
        base_format(op->why, op->why_bytes, "what rank 0 has in the launcher's store is of another version");
    return right ? COMM_OK : COMM_ERR_AUTH;
}

enum comm_result pmi_write(const struct pmi_protocol *protocol, const struct boot_config *config, const char *place,
                           const struct meeting *m, char *why, size_t why_bytes)
{
    struct pmi_op op = {.protocol = protocol, .config = config, .why = why, .why_bytes = why_bytes};

    pthread_mutex_lock(&session.lock);
    enum comm_result result = begin(&op);
    if (result == COMM_OK)
        result = put(&op, place, m);
    if (result == COMM_OK)
        result = protocol->fence(&op);
    pthread_mutex_unlock(&session.lock);
    return result;
}

enum comm_result pmi_read(const struct pmi_protocol *protocol, const struct boot_config *config, const char *place, struct meeting *m,
                          char *why, size_t why_bytes)
{
    struct pmi_op op = {.protocol = protocol, .config = config, .why = why, .why_bytes = why_bytes};

    pthread_mutex_lock(&session.lock);
    enum comm_result result = begin(&op);
    if (result == COMM_OK)
        result = protocol->fence(&op);
    if (result == COMM_OK)
        result = get(&op, place, m);
    pthread_mutex_unlock(&session.lock);
    return result;
}
