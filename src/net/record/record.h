/*
 * record: what a connection's bytes are on their way, where they are encrypted and authenticated (COMM_TCP_SEAL) or checked (COMM_TCP_CRC).
 * A layer belongs to one connection: bytes go in and come out as they were, or the connection ends. It moves nothing itself, but for
 * heartbeats, whose connection no poller has.
 */
#ifndef NET_RECORD_RECORD_H
#define NET_RECORD_RECORD_H

#include "base/env.h"
#include "net/auth/crypto.h"

#include <sys/uio.h>

enum { RECORD_GOODBYE = 1 }; /* among heartbeats, which are 0 */

struct seal;
struct record_layer;

/* keys: of the connection's handshake. kind CRYPTO_NONE: it only checks, without keys. beats: it carries heartbeats. NULL: no memory. */
struct record_layer *record_start(const struct comm_env *env, const struct seal *keys, enum crypto_kind kind, bool beats);
void record_end(struct record_layer *r); /* NULL: nothing */

/* What leaves. pending: a record was not sent yet; never without a layer. take, when nothing is pending: makes records of the next bytes,
 * and says of how many; they are the caller's again. leaving: what is to be sent now; sent: so much of it was. */
bool record_pending(const struct record_layer *r);
size_t record_take(struct record_layer *r, const struct iovec *vector, uint32_t count);
struct iovec record_leaving(struct record_layer *r);
void record_sent(struct record_layer *r, size_t bytes);

/* Who takes what was opened. */
struct record_target {
    void *owner;
    void *(*place)(void *owner, size_t bytes);                  /* where all of a record of so many bytes belongs; NULL: not to one place */
    bool (*take)(void *owner, const void *plain, size_t bytes); /* plain NULL: they lie where `place` said. False: it takes no more */
};

/* What comes. room: where it is received; came: so much of that is here. NULL, or why the connection must end. */
struct iovec record_room(struct record_layer *r);
const char *record_came(struct record_layer *r, size_t bytes, const struct record_target *target);

/*
 * The connection of the heartbeats, with a layer or without (r NULL): sends one beat, word 0, or a goodbye; and how many words have come, 0
 * at the end of what the other one says. Otherwise -errno, of which -EAGAIN and -EINTR are none; -EBADMSG, changed on its way, has a text.
 */
int64_t record_beat(struct record_layer *r, int fd, unsigned char word);
int64_t record_heard(struct record_layer *r, int fd, bool *goodbye, const char **why);

#endif
