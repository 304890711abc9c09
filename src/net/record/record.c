/*
 * Sealed connections (COMM_TCP_SEAL): every byte between the frames of a connection and its socket is encrypted and authenticated, in
 * records. A record has a line of 64 bytes, with the length and an authentication tag for the whole record, and then the bytes. So records
 * consist of whole lines, like frames, and the kernel copies them as fast (frame.h). The keys are derived from those of the connection's
 * handshake, one for each direction and cipher. The record's number is the nonce, so a record that was changed, repeated, omitted or moved
 * ends the connection. Heartbeats are sealed too: an attacker on the path can neither forge them nor keep them going.
 *
 * Bytes to send are sealed from the caller's memory into a buffer of the layer. Received bytes are opened directly to their place if the
 * whole record belongs there, as it does for long payloads. They are used only after the tag was verified.
 *
 * After every REKEY_RECORDS records of a direction, both ends switch to the next key (crypto_cipher_rekey). So no nonce is used twice with
 * a key, and a key seals at most 2^20 records, 2^30 blocks of 16 bytes. AES-GCM is considered safe up to 2^24.5 records of 2^14 bytes,
 * which are 2^34.5 blocks (RFC 8446, section 5.5), and ChaCha20-Poly1305 beyond the range of the numbers. The first record that fails to
 * open ends the connection, so an attacker has one guess at a tag per connection.
 *
 * Checked connections (COMM_TCP_CRC): the same records in plain, with a CRC-32C of their number, length and bytes as tag. It detects what a
 * faulty machine on the path changes and TCP's 16-bit checksum misses. It does not prevent deliberate changes.
 */
#include "net/record/record.h"

#include "base/edge.h"
#include "net/auth/handshake.h"
#include "net/frame/frame.h"
#include "net/poll/poller.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECORD_HEAD = FRAME_LINE, /* the tag is at its end; the bytes before it are authenticated: four bytes of length, and zeros */
    CHECK_TAG = 4,
    RECORD_TEXT = 16384,
    RECORD_MOST = RECORD_HEAD + RECORD_TEXT,
    LEAVING_MOST = 8 * RECORD_MOST + 1024, /* sealed at once, and received at once: a chunk of TCP_CHUNK_LEAST and what accompanies it */
    LONG_PIECE = 4096,                     /* a piece this long is sealed from, and opened to, its place without a copy */
    BEAT = FRAME_LINE,                     /* the word and zeros */
    BEATS = 16,                            /* read at once */
    REKEY_RECORDS = 1 << 20,
};

struct record_layer {
    const struct comm_env *env;
    struct crypto_cipher *cipher[2]; /* 0: sending, 1: receiving, as in struct seal */
    uint64_t number[2];
    size_t about;          /* bytes of a head before its tag */
    size_t begin, end, in; /* begin, end: of out_bytes, what is sealed and not sent; in: bytes received and not opened */
    size_t room;           /* size of each buffer */
    bool failed;           /* a record could not be made. Its number is used up, so none can follow */
    size_t bytes;          /* of this allocation */
    unsigned char *out_bytes, *in_bytes;
    _Alignas(FRAME_LINE) unsigned char memory[];
};

/* Derives a key of its own for each cipher: the handshake's cipher uses the handshake's keys. */
static struct crypto_cipher *make_cipher(enum crypto_kind kind, const unsigned char key[CRYPTO_KEY])
{
    const char *label = crypto_kind_name(kind);
    unsigned char own[CRYPTO_HASH];
    struct crypto_cipher *cipher = crypto_hmac(key, CRYPTO_KEY, label, strlen(label), own) ? crypto_cipher_make(kind, own) : NULL;

    crypto_wipe(own, sizeof own);
    return cipher;
}

struct record_layer *record_start(const struct comm_env *env, const struct seal *keys, enum crypto_kind kind, bool beats)
{
    size_t room = beats ? BEATS * (RECORD_HEAD + BEAT) : LEAVING_MOST;
    size_t bytes = sizeof(struct record_layer) + 2 * (room + EDGE_BYTES);
    struct record_layer *s = env->take(env, bytes, 64);

    if (!s)
        return NULL;
    *s = (struct record_layer){.env = env, .about = RECORD_HEAD - (kind ? CRYPTO_TAG : CHECK_TAG), .room = room, .bytes = bytes};
    s->out_bytes = s->memory;
    s->in_bytes = s->out_bytes + room + EDGE_BYTES;
    edge_close(s->out_bytes + room, EDGE_BYTES);
    edge_close(s->in_bytes + room, EDGE_BYTES);
    for (int i = 0; i < 2 && kind; i++)
        s->cipher[i] = make_cipher(kind, keys->key[i]);
    if (!kind || (s->cipher[0] && s->cipher[1]))
        return s;
    record_end(s);
    return NULL;
}

void record_end(struct record_layer *s)
{
    if (!s)
        return;
    const struct comm_env *env = s->env;
    size_t bytes = s->bytes;
    for (int i = 0; i < 2; i++)
        if (s->cipher[i])
            crypto_cipher_end(s->cipher[i]);
    edge_open(s, bytes);
    crypto_wipe(s, bytes);
    env->give(env, s, bytes);
}

/* The CRC of record `number`: its head, and its bytes. */
static uint32_t check_of(const struct record_layer *s, uint64_t number, const unsigned char *head, const void *bytes, size_t count)
{
    unsigned char text[8];

    base_put64(text, number);
    return frame_crc32c(frame_crc32c(frame_crc32c(0, text, sizeof text), head, s->about), bytes, count);
}

/* The number of the next record. False: there is no key for it. */
static bool next_record(struct record_layer *s, int way, uint64_t *number)
{
    *number = s->number[way]++;
    return !s->cipher[way] ||
           ((!*number || *number % REKEY_RECORDS || crypto_cipher_rekey(s->cipher[way])) && *number != CRYPTO_LAST_NONCE);
}

/* Writes the head, and after it the sealed bytes. from may be that place, so what was not sealed may be plain text, and never leaves. */
static bool close_record(struct record_layer *s, unsigned char *head, const unsigned char *from, size_t bytes)
{
    unsigned char *to = head + RECORD_HEAD, *tag = head + s->about;
    uint64_t number = 0;

    memset(head, 0, RECORD_HEAD);
    base_put32(head, (uint32_t)bytes);
    s->failed = s->failed || !next_record(s, 0, &number);
    if (!s->failed && s->cipher[0])
        s->failed = !crypto_seal(s->cipher[0], number, head, s->about, from, bytes, to, tag);
    if (s->failed)
        return false;
    if (!s->cipher[0]) {
        if (from != to)
            memcpy(to, from, bytes);
        base_put32(tag, check_of(s, number, head, to, bytes));
    }
    s->end += RECORD_HEAD + bytes;
    return true;
}

/* False: this is not the next record, or it was changed. */
static bool open_record(struct record_layer *s, const unsigned char *head, size_t bytes, void *to)
{
    const unsigned char *text = head + RECORD_HEAD, *tag = head + s->about;
    uint64_t number;

    if (!next_record(s, 1, &number))
        return false;
    if (s->cipher[1])
        return crypto_open(s->cipher[1], number, head, s->about, text, bytes, to, tag);
    if (base_get32(tag) != check_of(s, number, head, text, bytes))
        return false;
    if (to != text)
        memcpy(to, text, bytes);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ sending */
bool record_pending(const struct record_layer *s)
{
    return s && s->begin < s->end;
}

/* A position in a vector. */
struct cursor {
    const struct iovec *vector;
    uint32_t count;
    size_t skip; /* bytes used of its first piece */
};

static void pass(struct cursor *c, size_t bytes)
{
    c->skip += bytes;
    while (c->count && c->skip >= c->vector->iov_len) {
        c->skip -= c->vector->iov_len;
        c->vector++;
        c->count--;
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Seals the next bytes of the vector as one record. Returns how many. A long piece gets records of its own, in whole lines, so that it is
 * sealed without a copy, and each record belongs to one place at the receiver. Short pieces are combined. */
static size_t seal_record(struct record_layer *s, struct cursor *c)
{
    unsigned char *head = s->out_bytes + s->end, *to = head + RECORD_HEAD;
    const unsigned char *from = to;
    size_t bytes = 0, here = c->count ? c->vector->iov_len - c->skip : 0, room = least(s->room - s->end, RECORD_MOST);

    if (room <= RECORD_HEAD || (here >= LONG_PIECE && room < RECORD_MOST))
        return 0;
    room -= RECORD_HEAD;
    if (here >= LONG_PIECE) {
        from = (const unsigned char *)c->vector->iov_base + c->skip;
        bytes = least(here / FRAME_LINE * FRAME_LINE, RECORD_TEXT);
        pass(c, bytes);
    }
    while (from == to && here && here < LONG_PIECE && bytes < room) {
        size_t n = least(here, room - bytes);
        memcpy(to + bytes, (const char *)c->vector->iov_base + c->skip, n);
        bytes += n;
        pass(c, n);
        here = c->count ? c->vector->iov_len - c->skip : 0;
    }
    return bytes && close_record(s, head, from, bytes) ? bytes : 0;
}

size_t record_take(struct record_layer *s, const struct iovec *vector, uint32_t count)
{
    struct cursor c = {vector, count, 0};
    size_t taken = 0, n = 1;

    s->begin = s->end = 0;
    pass(&c, 0);
    while (n) {
        n = seal_record(s, &c);
        taken += n;
    }
    return taken;
}

struct iovec record_leaving(struct record_layer *s)
{
    return (struct iovec){s->out_bytes + s->begin, s->end - s->begin};
}

void record_sent(struct record_layer *s, size_t bytes)
{
    s->begin += bytes;
}

/* ------------------------------------------------------------------------------------------------------------ receiving */
struct iovec record_room(struct record_layer *s)
{
    return (struct iovec){s->in_bytes + s->in, s->room - s->in};
}

const char *record_came(struct record_layer *s, size_t bytes, const struct record_target *target)
{
    bool takes = true;
    size_t at = 0;

    s->in += bytes;
    while (takes && s->in - at >= RECORD_HEAD) {
        unsigned char *head = s->in_bytes + at, *text = head + RECORD_HEAD;
        size_t length = base_get32(head);
        if (!length || length > RECORD_TEXT)
            return s->cipher[1] ? "a sealed record of no such length"
                                : "the received data was changed on its way: a record of an invalid length";
        if (s->in - at < RECORD_HEAD + length)
            break;
        void *place = target->place(target->owner, length);
        if (!open_record(s, head, length, place ? place : text))
            return s->cipher[1] ? "the received data was changed on its way, or is not of this connection"
                                : "the received data was changed on its way";
        takes = target->take(target->owner, place ? NULL : text, length);
        at += RECORD_HEAD + length;
    }
    memmove(s->in_bytes, s->in_bytes + at, s->in - at);
    s->in -= at;
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ heartbeats */
/* Appends a beat to what the kernel had no room for. False: there is no room here either, or no key. */
static bool close_beat(struct record_layer *s, unsigned char word)
{
    const unsigned char text[BEAT] = {word};

    if (s->begin == s->end)
        s->begin = s->end = 0;
    return s->room - s->end >= RECORD_HEAD + BEAT && close_record(s, s->out_bytes + s->end, text, BEAT);
}

/* If the kernel took only a part of a record, the rest is sent first, because the receiver could not parse anything else. Then no new beat
 * is needed. */
int64_t record_beat(struct record_layer *s, int fd, unsigned char word)
{
    if (!s)
        return poller_transfer_piece(fd, POLLER_SEND, &word, 1);
    if ((word || s->begin == s->end) && !close_beat(s, word))
        return s->begin == s->end ? -EIO : -EAGAIN;
    int64_t sent = poller_transfer_piece(fd, POLLER_SEND, s->out_bytes + s->begin, s->end - s->begin);
    s->begin += sent > 0 ? (size_t)sent : 0;
    return sent;
}

static void hear_word(uint32_t *words, char word)
{
    *words |= (unsigned char)word <= RECORD_GAVE_UP ? UINT32_C(1) << word : 0;
}

int64_t record_heard(struct record_layer *s, int fd, uint32_t *words, const char **why)
{
    char plain[256];
    size_t at = 0, span = RECORD_HEAD + BEAT;
    int64_t n = s ? poller_transfer_piece(fd, POLLER_RECEIVE, s->in_bytes + s->in, s->room - s->in)
                  : poller_transfer_piece(fd, POLLER_RECEIVE, plain, sizeof plain);

    for (int64_t i = 0; !s && i < n; i++)
        hear_word(words, plain[i]);
    if (!s || n <= 0)
        return n;
    int64_t beats = 0;
    s->in += (size_t)n;
    for (; s->in - at >= span; at += span, beats++) {
        unsigned char *head = s->in_bytes + at;
        if (base_get32(head) != BEAT || !open_record(s, head, BEAT, plain)) {
            *why = "a heartbeat was changed on its way, or is not of this connection";
            return -EBADMSG;
        }
        hear_word(words, plain[0]);
    }
    memmove(s->in_bytes, s->in_bytes + at, s->in - at);
    s->in -= at;
    return beats ? beats : -EAGAIN;
}
