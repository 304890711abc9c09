/*
 * record: the layer that encrypts and authenticates (COMM_TCP_SEAL) or checks (COMM_TCP_CRC) the bytes of a connection. A layer belongs to
 * one connection. The receiver gets the same bytes, or the connection ends. It does no input or output, except for heartbeats, since no
 * poller has their connection.
 */
#ifndef NET_RECORD_RECORD_H
#define NET_RECORD_RECORD_H

#include "base/env.h"
#include "net/auth/crypto.h"

#include <sys/uio.h>

/* Words among heartbeats, which are 0: the sender closes; or it has given up the receiver, which was silent for too long. */
enum { RECORD_GOODBYE = 1, RECORD_GAVE_UP = 2 };

struct seal;
struct record_layer;

/* keys: of the connection's handshake. kind CRYPTO_NONE: checksums only, without keys. beats: the connection carries heartbeats. NULL: no
 * memory. */
struct record_layer *record_start(const struct comm_env *env, const struct seal *keys, enum crypto_kind kind, bool beats);
void record_end(struct record_layer *r); /* accepts NULL */

/* Sending. pending: a record is not sent yet; false for NULL. take, only if nothing is pending: makes records of the next bytes and returns
 * how many; the caller may then reuse them. leaving: the bytes to send now. sent: how many of them were sent. */
bool record_pending(const struct record_layer *r);
size_t record_take(struct record_layer *r, const struct iovec *vector, uint32_t count);
struct iovec record_leaving(struct record_layer *r);
void record_sent(struct record_layer *r, size_t bytes);

/* The receiver of opened bytes. */
struct record_target {
    void *owner;
    void *(*place)(void *owner, size_t bytes);                  /* where a whole record of `bytes` bytes belongs; NULL: not to one place */
    bool (*take)(void *owner, const void *plain, size_t bytes); /* plain NULL: the bytes are where `place` said. False: stop */
};

/* Receiving. room: where to receive. came: `bytes` bytes were received there. Returns NULL, or why the connection must end. */
struct iovec record_room(struct record_layer *r);
const char *record_came(struct record_layer *r, size_t bytes, const struct record_target *target);

/*
 * The connection of the heartbeats, with a layer or without (r NULL). record_beat sends a beat (0) or another word. record_heard returns
 * how many words have arrived, or 0 at the end of the stream, and sets bit `word` of *words for each. Both return -errno otherwise; -EAGAIN
 * and -EINTR are no errors. With -EBADMSG (changed data), *why has the text.
 */
int64_t record_beat(struct record_layer *r, int fd, unsigned char word);
int64_t record_heard(struct record_layer *r, int fd, uint32_t *words, const char **why);

#endif
