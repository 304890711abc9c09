/*
 * The medium store:pmi2: the store of a launcher that uses version 2 of PMI's wire protocol over the descriptor PMI_FD (SLURM's srun
 * --mpi=pmi2, hydra; mpich/src/pmi). The first line is as in version 1. After it, a message is six characters with its length, then
 * "cmd=NAME;KEY=VALUE;...;". Other ranks see what a rank has put after a fence of all ranks.
 *
 * The launcher lets a process begin only once. So a process whose MPI also uses version 2 over this descriptor cannot use this medium.
 */
#define _GNU_SOURCE
#include "net/boot/meeting.h"

#include "base/format.h"
#include "net/boot/io.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 6, BODY = 2048, GOODBYE_MS = 500 };

/* One for the process, like the descriptor. */
static struct {
    pthread_mutex_t lock;
    int fd;        /* -1: the session has not begun */
    pid_t process; /* the process that began the session; a forked child sends nothing */
    ino_t socket;  /* inode of the socket: MPI closes the descriptor when it finalizes, and its number may then belong to another file */
    bool lost;     /* a reply was missing or malformed, so later replies cannot be matched to requests */
} pmi2 = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

struct pmi2_op {
    const struct boot_config *config;
    char *why;
    size_t why_bytes;
    char answer[BODY];
};

static enum comm_result give_up(struct pmi2_op *t, enum comm_result result, const char *what, const char *detail)
{
    pmi2.lost = true;
    base_format(t->why, t->why_bytes, "%s%s", what, detail);
    return result;
}

/* The value of a key in a reply, up to its semicolon. NULL: the reply does not have the key. */
static const char *value_in(const char *answer, const char *key, size_t *length)
{
    size_t n = strlen(key);

    for (const char *at = strchr(answer, ';'); at; at = strchr(at + 1, ';')) {
        if (strncmp(at + 1, key, n) != 0 || at[1 + n] != '=')
            continue;
        *length = strcspn(at + n + 2, ";");
        return at + n + 2;
    }
    return NULL;
}

/* The descriptor is blocking, since MPI may use it that way. */
static enum comm_result receive(struct pmi2_op *t, void *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        enum io io = boot_wait_for(t->config, pmi2.fd, POLLIN);
        if (io == IO_LATE)
            return give_up(t, COMM_ERR_TIMEOUT, "not all ranks came to the fence of its store in time", "");
        ssize_t got = io == IO_OK ? recv(pmi2.fd, (char *)to + at, bytes - at, MSG_DONTWAIT) : 0;
        if (got < 0 && boot_again())
            continue;
        if (got <= 0)
            return give_up(t, COMM_ERR_SYSTEM, "the launcher hung up", "");
        at += (size_t)got;
    }
    return COMM_OK;
}

static enum comm_result hear(struct pmi2_op *t, const char *name)
{
    char head[HEAD + 1] = "", start[64];
    uint64_t bytes;

    enum comm_result r = receive(t, head, HEAD);
    if (r != COMM_OK)
        return r;
    size_t blanks = strspn(head, " ");
    size_t digits = strspn(head + blanks, "0123456789");
    bool padded = digits && blanks + digits + strspn(head + blanks + digits, " ") == HEAD;
    head[blanks + digits] = 0;
    if (!padded || !base_parse_u64(head + blanks, &bytes) || !bytes || bytes >= sizeof t->answer)
        return give_up(t, COMM_ERR_SYSTEM, "the launcher's answer has no length: ", head);
    r = receive(t, t->answer, bytes);
    if (r != COMM_OK)
        return r;
    t->answer[bytes] = 0;
    size_t length = base_format(start, sizeof start, "cmd=%s-response;", name);
    if (strlen(t->answer) != bytes || strncmp(t->answer, start, length) != 0)
        return give_up(t, COMM_ERR_SYSTEM, "another answer of the launcher was expected than ", t->answer);
    return COMM_OK;
}

/* Sends a message and receives its reply, whose rc must be 0. */
static enum comm_result ask(struct pmi2_op *t, const char *name, const char *rest)
{
    char message[HEAD + BODY];
    size_t length, bytes = base_format(message + HEAD, BODY, "cmd=%s;%s", name, rest);

    if (bytes >= BODY - 1)
        return give_up(t, COMM_ERR_SYSTEM, "a message to the launcher is too long", "");
    char head[HEAD + 1];
    base_format(head, sizeof head, "%6u", (unsigned)bytes);
    memcpy(message, head, HEAD);
    enum io io = boot_send_all(t->config, pmi2.fd, message, HEAD + bytes);
    crypto_wipe(message, sizeof message);
    if (io != IO_OK)
        return give_up(t, COMM_ERR_SYSTEM, "the launcher takes nothing", "");
    enum comm_result r = hear(t, name);
    const char *rc = r == COMM_OK ? value_in(t->answer, "rc", &length) : NULL;
    if (r != COMM_OK || (rc && length == 1 && *rc == '0'))
        return r;
    base_format(t->why, t->why_bytes, "the launcher answers %s", t->answer);
    return COMM_ERR_SYSTEM;
}

static ino_t socket_of(int fd)
{
    struct stat about;

    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

/* The launcher treats a process that began and ends without this message as crashed. */
static void say_goodbye(void)
{
    static const char message[] = "    13cmd=finalize;";
    struct pollfd answer = {.fd = pmi2.fd, .events = POLLIN};

    if (pmi2.process == getpid() && socket_of(pmi2.fd) == pmi2.socket &&
        send(pmi2.fd, message, sizeof message - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        poll(&answer, 1, GOODBYE_MS);
}

/* Exchanges one line of version 1, in which both sides give the version that follows. */
static enum comm_result agree_on_version(struct pmi2_op *t)
{
    static const char init[] = "cmd=init pmi_version=2 pmi_subversion=0\n", start[] = "cmd=response_to_init ";
    size_t at = 0;

    if (boot_send_all(t->config, pmi2.fd, init, sizeof init - 1) != IO_OK)
        return give_up(t, COMM_ERR_SYSTEM, "the launcher takes nothing", "");
    do {
        enum comm_result r = receive(t, t->answer + at, 1);
        if (r != COMM_OK)
            return r;
    } while (t->answer[at++] != '\n' && at < sizeof t->answer - 1);
    t->answer[at - 1] = 0;
    if (strncmp(t->answer, start, sizeof start - 1) != 0 || !strstr(t->answer, " pmi_version=2") || !strstr(t->answer, " rc=0"))
        return give_up(t, COMM_ERR_SYSTEM, "the launcher does not speak version 2 of PMI: ", t->answer);
    return COMM_OK;
}

static enum comm_result begin(struct pmi2_op *t)
{
    const struct comm_env *env = t->config->env;
    const char *set = env->lookup(env, "PMI_FD"), *job = env->lookup(env, "PMI_JOBID"), *rank = env->lookup(env, "PMI_RANK");
    char rest[512];
    uint64_t fd;

    if (pmi2.lost)
        return give_up(t, COMM_ERR_SYSTEM, "an earlier world of this process lost the launcher", "");
    if (pmi2.fd >= 0)
        return COMM_OK;
    if (!set || !base_parse_u64(set, &fd) || fd > INT32_MAX) {
        base_format(t->why, t->why_bytes,
                    "PMI_FD is %s: no launcher that speaks version 2 of PMI started this rank; give COMM_ADDRESS=HOST:PORT",
                    set ? "no descriptor" : "not set");
        return COMM_ERR_CONFIG;
    }
    pmi2.fd = (int)fd;
    enum comm_result r = agree_on_version(t);
    base_format(rest, sizeof rest, "%s%s%spmirank=%s;threaded=FALSE;", job ? "pmijobid=" : "", job ? job : "", job ? ";" : "",
                rank ? rank : "0"); /* hydra exits on an empty value */
    if (r == COMM_OK)
        r = ask(t, "fullinit", rest);
    if (r != COMM_OK) {
        pmi2.lost = true;
        return r;
    }
    pmi2.process = getpid();
    pmi2.socket = socket_of(pmi2.fd);
    atexit(say_goodbye);
    return COMM_OK;
}

/* PMI-2 values must not contain blanks, newlines or semicolons, so they are replaced. */
static void swap(char *text, size_t bytes, const char from[2], const char to[2])
{
    for (size_t i = 0; i < bytes; i++)
        text[i] = text[i] == from[0] ? to[0] : text[i] == from[1] ? to[1] : text[i];
}

static enum comm_result put(struct pmi2_op *t, const char *world, const struct meeting *m)
{
    char text[MEETING_BYTES], rest[BODY];
    size_t bytes = meeting_format(m, text);

    swap(text, bytes, " \n", "+|");
    base_format(rest, sizeof rest, "key=commstream.%s;value=%.*s;", world, (int)bytes, text);
    enum comm_result r = ask(t, "kvs-put", rest);
    crypto_wipe(text, sizeof text);
    crypto_wipe(rest, sizeof rest);
    return r;
}

static enum comm_result get(struct pmi2_op *t, const char *world, struct meeting *m)
{
    char rest[128], text[MEETING_BYTES];
    size_t length;

    base_format(rest, sizeof rest, "srcid=-1;key=commstream.%s;", world);
    enum comm_result r = ask(t, "kvs-get", rest);
    if (r != COMM_OK)
        return r;
    const char *value = value_in(t->answer, "value", &length);
    bool right = value && length < sizeof text;
    if (right) {
        memcpy(text, value, length);
        swap(text, length, "+|", " \n");
        right = meeting_parse(text, length, m);
    }
    crypto_wipe(text, sizeof text);
    crypto_wipe(t->answer, sizeof t->answer);
    if (!right)
        base_format(t->why, t->why_bytes, "what rank 0 has in the launcher's store is of another version");
    return right ? COMM_OK : COMM_ERR_AUTH;
}

static enum comm_result pmi2_write(const struct boot_config *config, const char *place, const struct meeting *m, char *why,
                                   size_t why_bytes)
{
    struct pmi2_op t = {.config = config, .why = why, .why_bytes = why_bytes};

    pthread_mutex_lock(&pmi2.lock);
    enum comm_result r = begin(&t);
    if (r == COMM_OK)
        r = put(&t, place, m);
    if (r == COMM_OK)
        r = ask(&t, "kvs-fence", "");
    pthread_mutex_unlock(&pmi2.lock);
    return r;
}

static enum comm_result pmi2_read(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes)
{
    struct pmi2_op t = {.config = config, .why = why, .why_bytes = why_bytes};

    pthread_mutex_lock(&pmi2.lock);
    enum comm_result r = begin(&t);
    if (r == COMM_OK)
        r = ask(&t, "kvs-fence", "");
    if (r == COMM_OK)
        r = get(&t, place, m);
    pthread_mutex_unlock(&pmi2.lock);
    return r;
}

const struct meeting_medium meeting_pmi2 = {
    .prefix = "store:pmi2", .noun = "the launcher's store, world ", .of_one_job = true, .write = pmi2_write, .read = pmi2_read};
