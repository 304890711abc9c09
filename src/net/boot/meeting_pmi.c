/*
 * The medium store:pmi: the store of hydra (MPICH, Intel MPI) and of other launchers with version 1 of PMI's simple wire protocol (Balaji
 * et al., "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems", 2010; mpich/src/pmi). The protocol has one
 * request line and one reply line at a time over the descriptor PMI_FD. Other ranks see what a rank has put after a barrier of all ranks.
 *
 * If the process also uses MPI, before or afterwards, MPI shares this connection. Both may send init, but after finalize the launcher
 * ignores everything. A process that sent init and ends without finalize has crashed in hydra's eyes, and hydra kills the other ranks.
 * Therefore finalize is sent when the process exits.
 */
#define _GNU_SOURCE
#include "net/boot/meeting.h"

#include "base/check.h"
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

enum { LINE = 1100, NAME = 280, GOODBYE_MS = 500 }; /* values have at most 1,024 bytes, names of stores 256 */

/* One for the process, like the descriptor. */
static struct {
    pthread_mutex_t lock;
    int fd;          /* -1: PMI_FD has not been read yet */
    pid_t process;   /* the process that began the session; a forked child does not send finalize */
    ino_t socket;    /* inode of the socket: MPI closes the descriptor when it finalizes, and its number may then belong to another file */
    char name[NAME]; /* of the store */
    bool lost;       /* a reply was missing or malformed, so later replies cannot be matched to requests */
} pmi = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

struct p2p_op {
    const struct boot_config *config;
    char *why;
    size_t why_bytes;
    char answer[LINE];
};

static enum comm_result give_up(struct p2p_op *t, const char *what, const char *detail)
{
    pmi.lost = true;
    base_format(t->why, t->why_bytes, "%s%s", what, detail);
    return COMM_ERR_SYSTEM;
}

/* Sends a whole line. MSG_NOSIGNAL needs a socket; it was one with every launcher tried. */
static bool say(struct p2p_op *t, const char *line, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t sent = send(pmi.fd, line + at, bytes - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == ENOTSOCK)
            sent = write(pmi.fd, line + at, bytes - at);
        if (sent >= 0)
            at += (size_t)sent;
        else if (!boot_again() || boot_wait_for(t->config, pmi.fd, POLLOUT) != IO_OK)
            return false;
    }
    return true;
}

static enum comm_result hear(struct p2p_op *t, const char *expected)
{
    size_t at = 0;

    for (;;) {
        enum io io = boot_wait_for(t->config, pmi.fd, POLLIN);
        if (io == IO_LATE) {
            give_up(t, "not all ranks came to the barrier of its store in time", "");
            return COMM_ERR_TIMEOUT;
        }
        ssize_t got = io == IO_OK ? read(pmi.fd, t->answer + at, sizeof t->answer - 1 - at) : 0;
        if (got < 0 && boot_again())
            continue;
        if (got <= 0)
            return give_up(t, "the launcher hung up", "");
        at += (size_t)got;
        t->answer[at] = 0;
        if (t->answer[at - 1] == '\n')
            break;
        if (at == sizeof t->answer - 1)
            return give_up(t, "the launcher's answer is too long", "");
    }
    t->answer[at - 1] = 0;
    size_t length = strlen(expected);
    if (strlen(t->answer) != at - 1 || strncmp(t->answer, "cmd=", 4) || strncmp(t->answer + 4, expected, length) ||
        (t->answer[4 + length] && t->answer[4 + length] != ' '))
        return give_up(t, "another answer of the launcher was expected than ", t->answer);
    return COMM_OK;
}

/* The value of " NAME=value" in the reply, up to a blank. NULL: there is none. */
static const char *value_in(const char *answer, const char *name, size_t *length)
{
    size_t n = strlen(name);

    for (const char *at = strchr(answer, ' '); at; at = strchr(at + 1, ' ')) {
        if (strncmp(at + 1, name, n) || at[1 + n] != '=')
            continue;
        const char *value = at + n + 2;
        *length = strcspn(value, " ");
        return value;
    }
    return NULL;
}

static enum comm_result ask(struct p2p_op *t, const char *line, size_t bytes, const char *expected)
{
    size_t length;

    if (bytes >= LINE)
        return give_up(t, "a line to the launcher is too long", "");
    if (!say(t, line, bytes))
        return give_up(t, "the launcher takes nothing", "");
    enum comm_result result = hear(t, expected);
    const char *rc = result == COMM_OK ? value_in(t->answer, "rc", &length) : NULL;
    if (!rc || (length == 1 && *rc == '0'))
        return result;
    base_format(t->why, t->why_bytes, "the launcher answers %s", t->answer);
    return COMM_ERR_SYSTEM;
}

static ino_t socket_of(int fd)
{
    struct stat about;

    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

static void say_goodbye(void)
{
    static const char line[] = "cmd=finalize\n";
    struct pollfd answer = {.fd = pmi.fd, .events = POLLIN};

    if (pmi.process == getpid() && socket_of(pmi.fd) == pmi.socket && send(pmi.fd, line, sizeof line - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        poll(&answer, 1, GOODBYE_MS);
}

/* Starts the session once per process. MPI may have sent init already; the launcher then replies again. */
static enum comm_result begin(struct p2p_op *t)
{
    static const char init[] = "cmd=init pmi_version=1 pmi_subversion=1\n", name[] = "cmd=get_my_kvsname\n";
    const char *set = t->config->env->lookup(t->config->env, "PMI_FD");
    uint64_t fd;
    size_t length;

    if (pmi.lost)
        return give_up(t, "an earlier world of this process lost the launcher", "");
    if (pmi.name[0])
        return COMM_OK;
    if (!set || !base_parse_u64(set, &fd) || fd > INT32_MAX) {
        base_format(t->why, t->why_bytes,
                    "PMI_FD is %s: no launcher that speaks version 1 of PMI started this rank; give COMM_ADDRESS=HOST:PORT",
                    set ? "no descriptor" : "not set");
        return COMM_ERR_CONFIG;
    }
    pmi.fd = (int)fd;
    if (!pmi.process)
        atexit(say_goodbye);
    pmi.process = getpid();
    pmi.socket = socket_of(pmi.fd);
    enum comm_result result = ask(t, init, sizeof init - 1, "response_to_init");
    if (result == COMM_OK)
        result = ask(t, name, sizeof name - 1, "my_kvsname");
    if (result != COMM_OK)
        return result;
    const char *value = value_in(t->answer, "kvsname", &length);
    if (!value || !length || length >= sizeof pmi.name)
        return give_up(t, "the launcher's store has no name: ", t->answer);
    base_format(pmi.name, sizeof pmi.name, "%.*s", (int)length, value);
    return COMM_OK;
}

static enum comm_result barrier(struct p2p_op *t)
{
    static const char line[] = "cmd=barrier_in\n";

    return ask(t, line, sizeof line - 1, "barrier_out");
}

/* PMI values must not contain blanks or newlines, so they are replaced. */
static void swap(char *text, size_t bytes, const char from[2], const char to[2])
{
    for (size_t i = 0; i < bytes; i++)
        for (int j = 0; j < 2; j++)
            if (text[i] == from[j]) {
                text[i] = to[j];
                break;
            }
}

static enum comm_result put(struct p2p_op *t, const char *world, const struct meeting *m)
{
    char text[MEETING_BYTES], line[LINE];
    size_t bytes = meeting_format(m, text);

    swap(text, bytes, " \n", "+;");
    bytes = base_format(line, sizeof line, "cmd=put kvsname=%s key=commstream.%s value=%.*s\n", pmi.name, world, (int)bytes, text);
    enum comm_result result = ask(t, line, bytes, "put_result");
    crypto_wipe(text, sizeof text);
    crypto_wipe(line, sizeof line);
    return result;
}

static enum comm_result get(struct p2p_op *t, const char *world, struct meeting *m)
{
    char line[NAME + 64], text[MEETING_BYTES];
    size_t length;
    size_t bytes = base_format(line, sizeof line, "cmd=get kvsname=%s key=commstream.%s\n", pmi.name, world);
    enum comm_result result = ask(t, line, bytes, "get_result");

    if (result != COMM_OK)
        return result;
    const char *value = value_in(t->answer, "value", &length);
    bool right = value && length < sizeof text;
    if (right) {
        memcpy(text, value, length);
        swap(text, length, "+;", " \n");
        right = meeting_parse(text, length, m);
    }
    crypto_wipe(text, sizeof text);
    crypto_wipe(t->answer, sizeof t->answer);
    if (!right)
        base_format(t->why, t->why_bytes, "what rank 0 has in the launcher's store is of another version");
    return right ? COMM_OK : COMM_ERR_AUTH;
}

static enum comm_result pmi_write(const struct boot_config *config, const char *place, const struct meeting *m, char *why, size_t why_bytes)
{
    struct p2p_op t = {.config = config, .why = why, .why_bytes = why_bytes};

    pthread_mutex_lock(&pmi.lock);
    enum comm_result result = begin(&t);
    if (result == COMM_OK)
        result = put(&t, place, m);
    if (result == COMM_OK)
        result = barrier(&t);
    pthread_mutex_unlock(&pmi.lock);
    return result;
}

static enum comm_result pmi_read(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes)
{
    struct p2p_op t = {.config = config, .why = why, .why_bytes = why_bytes};

    pthread_mutex_lock(&pmi.lock);
    enum comm_result result = begin(&t);
    if (result == COMM_OK)
        result = barrier(&t);
    if (result == COMM_OK)
        result = get(&t, place, m);
    pthread_mutex_unlock(&pmi.lock);
    return result;
}

const struct meeting_medium meeting_pmi = {
    .prefix = "store:pmi", .noun = "the launcher's store, world ", .of_one_job = true, .write = pmi_write, .read = pmi_read};
