/* The acceptor of a meeting: rank 0 admits peers with a correct greeting. If the job has a secret, a peer must prove it first. A refused
 * peer is sent the reason, and rank 0 keeps the last refusal for its own error text. */
#define _GNU_SOURCE
#include "net/boot/star.h"

#include "base/format.h"
#include "net/posix/files.h"
#include "net/auth/secret.h"
#include "net/auth/pending.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SEALED_GREETING = sizeof(struct greeting) + CRYPTO_TAG,
    REFUSALS_LOGGED_NS = 1000000000,
    LOOK_MS = 500,
    NAP_MOST_MS = 200,
    GREETINGS_MOST = 20
};

enum greeted { GREETED_LATER, GREETED_IN, GREETED_OUT };

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
    if (b->refused)
        base_append(text, room, &at, "; connections refused: %u, the last one %s", b->refused, b->refusal);
}

/* ------------------------------------------------------------------------------------------------------------ turning away */
static enum greeted turn_away(struct boot_star *b, int fd, const char *why)
{
    char address[INET6_ADDRSTRLEN];
    int64_t now = b->config.env->now(b->config.env);

    pending_name(fd, address, sizeof address);
    base_format(b->refusal, sizeof b->refusal, "from %s: %s", address, why);
    if (!b->refused++ || now - b->refused_ns >= REFUSALS_LOGGED_NS) {
        b->refused_ns = now;
        base_log(b->config.log, LOG_WARNING, "open: a connection was refused %s (%u so far)", b->refusal, b->refused);
    }
    pending_drain(fd);
    pending_close(b->config.env, fd);
    return GREETED_OUT;
}

/* Sends the refusal unsealed, because the job has no secret or the peer has not proved it. */
static enum greeted refuse_plainly(struct boot_star *b, int fd, const char *text)
{
    boot_send_refusal(fd, COMM_ERR_AUTH, text);
    return turn_away(b, fd, text);
}

/* ------------------------------------------------------------------------------------------------------------ greetings */
/* Checks a greeting. text is empty if the peer is a rank of this world, else the reason for the refusal. */
static void judge(const struct boot_star *b, const struct greeting *g, size_t bytes, char text[BOOT_TEXT])
{
    text[0] = 0;
    if (bytes != sizeof *g || g->magic != BOOT_MAGIC || g->version != BOOT_VERSION)
        base_format(text, BOOT_TEXT, "rank 0 of this job speaks version %d of another protocol", BOOT_VERSION);
    else if (g->job != b->job)
        base_format(text, BOOT_TEXT, "rank %d is of another job (COMM_JOB) than rank 0, and came to the same address", g->rank);
    else if (g->ranks != b->config.ranks)
        base_format(text, BOOT_TEXT, "rank %d came for a world of %d ranks, rank 0 opens one of %d", g->rank, g->ranks, b->config.ranks);
    else if (g->rank <= 0 || g->rank >= b->config.ranks || b->peer[g->rank] >= 0)
        base_format(text, BOOT_TEXT, "rank %d is there already: two processes have the same rank, or two jobs the same name", g->rank);
}

static enum greeted greet(struct boot_star *b, int fd)
{
    struct greeting g = {.magic = 0};
    char text[BOOT_TEXT];
    ssize_t n = recv(fd, &g, sizeof g, MSG_DONTWAIT);

    if (n < 0 && boot_again())
        return GREETED_LATER;
    if (n <= 0)
        return turn_away(b, fd, "it ended before it said who it is");
    if (n >= HANDSHAKE_NAMES) { /* a handshake; this rank has no secret, since it called greet */
        unsigned char names[HANDSHAKE_NAMES];
        struct handshake_names said;
        memcpy(names, &g, sizeof names);
        if (handshake_read_names(names, &said)) {
            base_format(text, sizeof text, "rank %u has a secret and rank 0 has none", said.from);
            pending_refuse(fd, HANDSHAKE_NO_SECRET);
            return turn_away(b, fd, text);
        }
    }
    judge(b, &g, (size_t)n, text);
    if (text[0])
        return refuse_plainly(b, fd, text);
    b->peer[g.rank] = fd;
    return GREETED_IN;
}

static enum greeted hear_hello(struct boot_star *b, struct pending_peer *s, bool last)
{
    const struct pending_acceptor acceptor = {b->config.env, b->keys->job, HANDSHAKE_MEETING, 0, BOOT_MAGIC, NULL, NULL, 0};
    char why[PENDING_WHY];

    switch (pending_hello(&acceptor, s, last, why)) {
    case PENDING_PLAIN:
        return refuse_plainly(b, s->fd,
                              "rank 0 has a job secret and this rank came without one: COMM_SECRET_FILE or COMM_SECRET is not set there");
    case PENDING_OUT:
        return turn_away(b, s->fd, why);
    default:
        return GREETED_LATER;
    }
}

/* Reads the sealed greeting. Its keys are made for this connection, so the sender holds the secret and is not a replay. */
static enum greeted hear_greeting(struct boot_star *b, struct pending_peer *s, bool last)
{
    struct greeting g;
    char text[BOOT_TEXT];
    enum pending_heard heard = pending_greeting(s, &g, sizeof g, last);

    if (heard == PENDING_LATER)
        return GREETED_LATER;
    if (heard == PENDING_OUT)
        return turn_away(b, s->fd, "it did not prove the secret: it repeats an earlier connection, or was cut off");
    judge(b, &g, sizeof g, text);
    if (!text[0] && (uint32_t)g.rank != s->names.from)
        base_format(text, sizeof text, "rank %u claims to be rank %d", s->names.from, g.rank);
    if (text[0]) {
        star_send_refusal(s->fd, &s->shake.seal, COMM_ERR_AUTH, text);
        return turn_away(b, s->fd, text);
    }
    b->peer[g.rank] = s->fd;
    b->seal[g.rank] = s->shake.seal;
    return GREETED_IN;
}

static enum greeted hear(struct boot_star *b, struct pending_peer *s, short seen, int64_t now)
{
    bool last = now >= s->until || (seen & (POLLHUP | POLLERR | POLLRDHUP));

    if (!b->sealed)
        return seen ? greet(b, s->fd) : GREETED_LATER;
    if (!seen && !last)
        return GREETED_LATER;
    return s->answered ? hear_greeting(b, s, last) : hear_hello(b, s, last);
}

/* ------------------------------------------------------------------------------------------------------------ rank 0 */
/* Called when nothing is left for a connection. Closes a pending peer first; an honest one connects again. */
static enum comm_result make_room(const struct boot_star *b, struct pending_peers *s, int error)
{
    char lack[160];

    if (s->count) {
        pending_drop_eldest(s, b->config.env);
        return COMM_OK;
    }
    files_name_shortage(lack, sizeof lack, (uint32_t)b->config.ranks + FILES_OF_A_WORLD, error);
    return boot_fail(&b->config, COMM_ERR_SYSTEM, "rank 0, which is connected to all %d ranks while they meet: %s", b->config.ranks, lack);
}

static enum comm_result let_in(struct boot_star *b, struct pending_peers *s, int listener)
{
    char why[USER_WHY], text[BOOT_TEXT];
    int fd = files_accept(listener, b->config.log, (uint32_t)b->config.ranks);
    if (fd < 0 && files_are_short(errno))
        return make_room(b, s, errno);
    if (fd < 0)
        return boot_again() || errno == ECONNABORTED ? COMM_OK : star_fail_errno(b, "accept");
    if (listener == b->by_name && !user_is_ours(fd, why)) {
        base_format(text, sizeof text, "the process that connected does not belong to rank 0's user: %s", why);
        refuse_plainly(b, fd, text);
        return COMM_OK;
    }
    pending_add(s, b->config.env, fd, b->config.env->now(b->config.env));
    if (b->sealed)
        pending_wait_for(fd, sizeof(struct greeting)); /* the shortest first message of any peer */
    return COMM_OK;
}

/* Waits once for the listeners, the pending peers and the admitted ranks. Adds admitted ranks to *here. */
static enum comm_result gather_once(struct boot_star *b, struct pending_peers *s, int32_t *here)
{
    nfds_t n = 0;
    b->wait[n++] = (struct pollfd){.fd = b->listener, .events = POLLIN};
    b->wait[n++] = (struct pollfd){.fd = b->by_name, .events = POLLIN};
    for (uint32_t i = 0; i < s->count; i++)
        b->wait[n++] = (struct pollfd){.fd = s->one[i].fd, .events = POLLIN | POLLRDHUP};
    nfds_t known = n; /* only admitted ranks are in the array: poll accepts no more entries than the limit on open files */
    for (int32_t i = 1; i < b->config.ranks; i++)
        if (b->peer[i] >= 0)
            b->wait[n++] = (struct pollfd){.fd = b->peer[i], .events = POLLRDHUP};
    int ms = boot_remaining_ms(&b->config);
    int ready = poll(b->wait, n, ms);
    if (!ms) { /* also if a peer is at the acceptor, since peers may keep coming */
        name_missing(b);
        return COMM_ERR_TIMEOUT;
    }
    for (nfds_t i = 0; i < n && ready <= 0; i++)
        b->wait[i].revents = 0;
    for (int32_t i = 1; i < b->config.ranks; i++)
        if (b->peer[i] >= 0 && b->wait[known++].revents)
            return star_dead_rank(b, i);
    int64_t now = b->config.env->now(b->config.env);
    for (uint32_t i = s->count; i-- > 0;) {
        enum greeted greeted = hear(b, &s->one[i], b->wait[BOOT_LISTENERS + i].revents, now);
        if (greeted == GREETED_LATER)
            continue;
        *here += greeted == GREETED_IN;
        pending_forget(s, i);
    }
    enum comm_result result = b->wait[0].revents ? let_in(b, s, b->listener) : COMM_OK;
    return b->wait[1].revents && result == COMM_OK ? let_in(b, s, b->by_name) : result;
}

/* Refuses a peer that has not sent enough to be judged. */
static void tell_that_all_are_there(struct boot_star *b, struct pending_peer *s)
{
    char text[BOOT_TEXT];

    base_format(text, sizeof text, "all %d ranks of rank 0's world are there: two processes have the same rank, or two jobs the same name",
                b->config.ranks);
    if (b->sealed && !s->answered)
        pending_refuse(s->fd, HANDSHAKE_ANOTHER_RANK);
    else
        star_send_refusal(s->fd, b->sealed ? &s->shake.seal : NULL, COMM_ERR_AUTH, text);
    turn_away(b, s->fd, text);
}

/* All ranks have come, so every other peer is told that there is no place for it. If its connection simply ended, it would believe that
 * rank 0 died. */
static void turn_away_the_rest(struct boot_star *b, struct pending_peers *s)
{
    const int listeners[BOOT_LISTENERS] = {b->listener, b->by_name};

    for (int i = 0; i < BOOT_LISTENERS; i++) {
        struct pollfd more = {.fd = listeners[i], .events = POLLIN};
        for (int k = 0; k < UNAUTHENTICATED_MAX && poll(&more, 1, 0) > 0 && let_in(b, s, listeners[i]) == COMM_OK; k++)
            ;
    }
    for (uint32_t i = s->count; i-- > 0; pending_forget(s, i)) {
        s->one[i].until = INT64_MAX;
        if (hear(b, &s->one[i], POLLIN, 0) == GREETED_LATER)
            tell_that_all_are_there(b, &s->one[i]);
    }
}

enum comm_result acceptor_listen_for_all(struct boot_star *b)
{
    struct pending_peers *pending_peers = secret_take(sizeof *pending_peers);
    int32_t here = 1;

    if (!pending_peers)
        return boot_fail(&b->config, COMM_ERR_MEMORY, "no memory to meet %d ranks", b->config.ranks);
    enum comm_result result = b->kind->listen(b);
    while (here < b->config.ranks && result == COMM_OK)
        result = gather_once(b, pending_peers, &here);
    if (result == COMM_OK && b->config.ranks > 1)
        turn_away_the_rest(b, pending_peers);
    pending_close_all(pending_peers, b->config.env);
    secret_give(pending_peers, sizeof *pending_peers);
    star_drop(b, &b->listener);
    star_drop(b, &b->by_name);
    for (int32_t i = 1; i < b->config.ranks && result == COMM_OK; i++)
        if (star_send_frame(b, i, FRAME_WELCOME, NULL, 0) != IO_OK)
            result = star_dead_rank(b, i);
    return result == COMM_OK ? result : star_tell_all(b, result);
}

/* ------------------------------------------------------------------------------------------------------------ the others */
/* Waits for rank 0's first word. What was dialed may be silent because it is another program, which has the port of an earlier run. GONE:
 * rank 0 is elsewhere. */
static enum io await_word(const struct boot_star *b)
{
    while (b->kind->moved) {
        struct pollfd word = {.fd = b->root, .events = POLLIN};
        int ms = boot_remaining_ms(&b->config);
        if (poll(&word, 1, ms < LOOK_MS ? ms : LOOK_MS) > 0)
            return IO_OK;
        if (!ms)
            return IO_LATE;
        if (b->kind->moved(b))
            return IO_GONE;
    }
    return IO_OK;
}

/* The text if none comes any more who proves it. */
static enum comm_result unknown(const struct boot_star *b)
{
    return boot_fail(&b->config, COMM_ERR_TIMEOUT,
                     "rank 0 did not come in time: what listens where COMM_ADDRESS=%s says did not prove the %s; did an earlier run leave "
                     "that file?",
                     b->config.address, b->unsure ? "secret in it" : "job's secret");
}

static enum comm_result unproved(const struct boot_star *b, enum handshake_fault fault, bool again)
{
    if (again)
        return unknown(b);
    return boot_fail(&b->config, COMM_ERR_AUTH, "rank %d and rank 0 did not prove the job's secret to each other: of rank 0, %s",
                     b->config.rank, handshake_fault_text(fault));
}

/* *again: the connection ended before rank 0 sent anything, since it had no space for it, or is just starting; or it was not rank 0. */
static enum comm_result prove_by(struct boot_star *b, struct handshake *shake, bool *again)
{
    const struct handshake_names names = {HANDSHAKE_MEETING, (uint32_t)b->config.rank, 0, 0, 0};
    unsigned char hello[HANDSHAKE_HELLO], answer[HANDSHAKE_ANSWER];
    uint32_t magic;
    bool stranger; /* it uses another protocol */

    if (!handshake_hello(shake, b->config.env, b->keys->job, &names, hello))
        return boot_fail(&b->config, COMM_ERR_SYSTEM, "no memory or randomness for the handshake");
    enum io io = boot_send_all(&b->config, b->root, hello, sizeof hello);
    if (io == IO_OK)
        io = await_word(b);
    if (io == IO_OK)
        io = boot_receive_all(&b->config, b->root, answer, HANDSHAKE_HEAD);
    *again = io == IO_GONE;
    if (io != IO_OK)
        return b->maybe_old ? unknown(b) : star_root_lost(b, io);
    memcpy(&magic, answer, sizeof magic);
    stranger = magic != BOOT_MAGIC && magic != HANDSHAKE_MAGIC;
    enum handshake_fault fault = magic == BOOT_MAGIC ? HANDSHAKE_NO_SECRET : handshake_read_head(answer);
    if (!fault) {
        io = boot_receive_all(&b->config, b->root, answer + HANDSHAKE_HEAD, sizeof answer - HANDSHAKE_HEAD);
        *again = io == IO_GONE && b->maybe_old;
        if (io != IO_OK)
            return b->maybe_old ? unknown(b) : star_root_lost(b, io);
        fault = handshake_finish(shake, answer);
    }
    if (!fault)
        b->seal[0] = shake->seal;
    *again = fault && (b->unsure || (stranger && b->maybe_old));
    return fault ? unproved(b, fault, *again) : COMM_OK;
}

/* Wipes the handshake, whatever the result is. */
static enum comm_result prove(struct boot_star *b, bool *again)
{
    enum comm_result result = prove_by(b, &b->keys->shake, again);

    crypto_wipe(&b->keys->shake, sizeof b->keys->shake);
    return result;
}

static enum comm_result dial_and_prove(struct boot_star *b)
{
    for (int nap = BOOT_RETRY_MS;; nap = nap * 2 < NAP_MOST_MS ? nap * 2 : NAP_MOST_MS) {
        bool again = false;
        enum comm_result result = b->kind->dial(b);
        if (result == COMM_OK && b->sealed)
            result = prove(b, &again);
        if (!again || !boot_remaining_ms(&b->config))
            return result;
        star_drop(b, &b->root);
        poll(NULL, 0, nap);
    }
}

static enum io send_greeting(struct boot_star *b, enum comm_result *result)
{
    struct greeting g = {BOOT_MAGIC, BOOT_VERSION, b->config.rank, b->config.ranks, b->job};
    unsigned char sealed[SEALED_GREETING];

    if (!b->sealed)
        return boot_send_all(&b->config, b->root, &g, sizeof g);
    if (seal_write(&b->seal[0], &g, sizeof g, sealed))
        return boot_send_all(&b->config, b->root, sealed, sizeof sealed);
    *result = boot_fail(&b->config, COMM_ERR_MEMORY, "no memory for the greeting");
    return IO_GONE;
}

/* Whether the connection has ended, or ends before it carries a word. */
static bool ends_without_a_word(const struct boot_star *b)
{
    char byte;
    ssize_t n = boot_wait_for(&b->config, b->root, POLLIN) == IO_OK ? recv(b->root, &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 1;

    return !n || (n < 0 && !boot_again());
}

/* If many come at once, rank 0 closes the connection of a rank that has not been heard yet, to make room. Unlike a rank 0 that died, it
 * still listens, so this rank comes again. */
enum comm_result acceptor_connect_to_root(struct boot_star *b)
{
    for (int tries = 1;; tries++) {
        enum comm_result result = dial_and_prove(b);
        if (result != COMM_OK)
            return result;
        enum io io = send_greeting(b, &result);
        if (result != COMM_OK)
            return result;
        if (io == IO_LATE)
            return star_root_lost(b, IO_LATE);
        if (tries == GREETINGS_MOST || !ends_without_a_word(b))
            return star_expect(b, FRAME_WELCOME, 0);
        star_drop(b, &b->root);
        b->again = true;
        poll(NULL, 0, tries * BOOT_RETRY_MS);
    }
}
