/* Reads the first messages of pending peers without blocking: HELLO, and the first sealed greeting. */
#define _GNU_SOURCE
#include "net/auth/pending.h"

#include "base/format.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GREETING_MOST = 128 };

void pending_close(const struct comm_env *env, int fd)
{
    env->own(env, fd, false);
    close(fd);
}

void pending_drop_eldest(struct pending_peers *s, const struct comm_env *env)
{
    pending_close(env, s->one[0].fd);
    pending_forget(s, 0);
}

void pending_add(struct pending_peers *s, const struct comm_env *env, int fd, int64_t now)
{
    if (s->count == UNAUTHENTICATED_MAX)
        pending_drop_eldest(s, env);
    env->own(env, fd, true);
    s->one[s->count++] = (struct pending_peer){.fd = fd, .until = now + PENDING_NS};
}

void pending_forget(struct pending_peers *s, uint32_t at)
{
    crypto_wipe(&s->one[at].shake, sizeof s->one[at].shake);
    memmove(s->one + at, s->one + at + 1, (--s->count - at) * sizeof *s->one);
    crypto_wipe(&s->one[s->count], sizeof s->one[s->count]); /* wipe the copy that memmove left behind */
}

void pending_close_all(struct pending_peers *s, const struct comm_env *env)
{
    while (s->count) {
        pending_close(env, s->one[s->count - 1].fd);
        pending_forget(s, s->count - 1);
    }
}

void pending_drain(int fd)
{
    char rest[512];

    for (int i = 0; i < 8 && recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0; i++)
        ;
}

void pending_name(int fd, char *text, size_t bytes)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    const void *address = NULL;

    base_copy_text(text, bytes, "this host");
    memset(&at, 0, sizeof at);
    if (getpeername(fd, (struct sockaddr *)&at, &length) < 0)
        return;
    if (at.ss_family == AF_INET)
        address = &((const struct sockaddr_in *)(const void *)&at)->sin_addr;
    if (at.ss_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)(const void *)&at)->sin6_addr;
    if (address)
        inet_ntop(at.ss_family, address, text, (socklen_t)bytes);
}

/* Sets the number of bytes for which poll wakes, so that a peer that sends single bytes does not wake it each time. If the socket does not
 * support this, poll wakes more often, which is harmless. */
void pending_wait_for(int fd, int bytes)
{
    (void)!setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

void pending_refuse(int fd, enum handshake_fault fault)
{
    unsigned char head[HANDSHAKE_HEAD];

    handshake_refuse(fault, head);
    if (send(fd, head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the peer is gone and will notice it */
}

static bool again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static enum pending_heard out(char why[PENDING_WHY], const char *text)
{
    base_copy_text(why, PENDING_WHY, text);
    return PENDING_OUT;
}

/* The first bytes after the names are a public key that is made for one connection only, so they identify the hello. */
static uint64_t mark_of(const unsigned char hello[HANDSHAKE_HELLO])
{
    uint64_t mark;

    memcpy(&mark, hello + HANDSHAKE_NAMES, sizeof mark);
    return mark;
}

static bool was_answered(const struct hellos *h, uint64_t mark)
{
    bool was = false;

    for (uint32_t i = 0; i < HELLOS_KEPT && i < h->count; i++)
        was |= h->one[i] == mark;
    return was;
}

static void remember(struct hellos *h, uint64_t mark)
{
    h->one[h->count % HELLOS_KEPT] = mark;
    h->count = h->count + 1 == 2 * HELLOS_KEPT ? HELLOS_KEPT : h->count + 1;
}

/* Called when all of the hello has arrived. */
static enum pending_heard answer(const struct pending_acceptor *acceptor, struct pending_peer *s, char why[PENDING_WHY])
{
    unsigned char hello[HANDSHAKE_HELLO], answer[HANDSHAKE_ANSWER];
    enum handshake_fault fault = HANDSHAKE_ANOTHER_RANK;

    if (recv(s->fd, hello, sizeof hello, MSG_DONTWAIT) != (ssize_t)sizeof hello || !handshake_read_names(hello, &s->names))
        return out(why, "it uses another protocol");
    if (acceptor->answered && was_answered(acceptor->answered, mark_of(hello)))
        return out(why, "it repeats a hello that was answered before");
    bool known = !acceptor->how || s->names.from < acceptor->ranks;
    if (s->names.kind == acceptor->kind && s->names.to == acceptor->rank && known)
        fault = s->names.how == (acceptor->how ? acceptor->how[s->names.from] : 0) ? HANDSHAKE_OK : HANDSHAKE_ANOTHER_WAY;
    if (!fault)
        fault = handshake_answer(&s->shake, acceptor->env, acceptor->key, hello, answer);
    if (fault) {
        base_format(why, PENDING_WHY, "it claims to be rank %u: %s", s->names.from, handshake_fault_text(fault));
        pending_refuse(s->fd, fault);
        return PENDING_OUT;
    }
    if (send(s->fd, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof answer)
        return out(why, "it was gone before it was answered");
    if (acceptor->answered)
        remember(acceptor->answered, mark_of(hello));
    pending_wait_for(s->fd, 1); /* it may have waited for the rest of the hello, which is longer than the greeting that follows */
    s->answered = true;
    s->until = INT64_MAX;
    return PENDING_DONE;
}

enum pending_heard pending_hello(const struct pending_acceptor *acceptor, struct pending_peer *s, bool last, char why[PENDING_WHY])
{
    unsigned char hello[HANDSHAKE_HELLO];
    struct handshake_names names;
    uint32_t word = 0;
    ssize_t n = recv(s->fd, hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && again() && !last)
        return PENDING_LATER;
    if (n >= (ssize_t)sizeof word)
        memcpy(&word, hello, sizeof word);
    if (n > 0 && word == acceptor->plain)
        return PENDING_PLAIN;
    if (n >= HANDSHAKE_NAMES && !handshake_read_names(hello, &names))
        return out(why, "it uses another protocol");
    if (n == HANDSHAKE_HELLO)
        return answer(acceptor, s, why);
    if (n <= 0 || last)
        return out(why, "it sent nothing, or not everything, in time");
    pending_wait_for(s->fd, HANDSHAKE_HELLO);
    return PENDING_LATER;
}

enum pending_heard pending_greeting(struct pending_peer *s, void *greeting, size_t bytes, bool last)
{
    unsigned char sealed[GREETING_MOST + CRYPTO_TAG];
    ssize_t wanted = (ssize_t)(bytes + CRYPTO_TAG), n = recv(s->fd, sealed, (size_t)wanted, MSG_PEEK | MSG_DONTWAIT);

    if (n < wanted && !last && (n > 0 || (n < 0 && again()))) {
        pending_wait_for(s->fd, (int)wanted);
        return PENDING_LATER;
    }
    if (n < wanted || recv(s->fd, sealed, (size_t)wanted, MSG_DONTWAIT) != wanted || !seal_read(&s->shake.seal, sealed, greeting, bytes))
        return PENDING_OUT;
    pending_wait_for(s->fd, 1);
    return PENDING_DONE;
}
