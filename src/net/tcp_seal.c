/*
 * Sealed connections (COMM_TCP_SEAL): between a lane's frames and its socket every byte is encrypted, in records of at most 16 KiB: four
 * bytes of length, which are authenticated, the bytes, a tag. Keys are those of the connection's handshake, one for each direction, and the
 * records' numbers are their nonces, so a record that was changed, repeated, left out or moved ends the connection. What leaves is copied
 * into a buffer of ours by sealing it; what comes is opened straight to where it belongs, when all of a record belongs there, and nobody is
 * told of it before its tag was right.
 *
 * Checked connections (COMM_TCP_CRC): the same records in plain, whose tag is a CRC-32C of their number, length and bytes. That finds what
 * a broken machine on the way changes and TCP's checksum of 16 bits does not; it keeps nobody from changing bytes on purpose.
 */
#include "net/tcp.h"

#include "net/handshake.h"

enum { RECORD_HEAD = 4, CHECK_TAG = 4, RECORD_MOST = RECORD_HEAD + SEAL_PIECE + CRYPTO_TAG, RECORDS = 4, ROOM = RECORDS * RECORD_MOST };

struct tcp_seal {
    struct crypto_cipher *cipher[2]; /* 0 leaves, 1 comes, as in struct seal */
    uint64_t number[2];
    size_t tag;            /* bytes of it */
    size_t begin, end, in; /* of out: what is sealed and not sent; of in: what came and is not opened */
    unsigned char out_bytes[ROOM], in_bytes[ROOM];
};

bool tcp_seal_start(struct tcp_lane *lane, const struct seal *keys)
{
    const struct comm_env *env = lane->port->wire->env;
    struct tcp_seal *s = env->take(env, sizeof *s, 64);

    if (!s)
        return false;
    lane->seal = s;
    s->tag = keys ? CRYPTO_TAG : CHECK_TAG;
    s->number[0] = s->number[1] = 0;
    s->cipher[0] = s->cipher[1] = NULL;
    s->begin = s->end = s->in = 0;
    if (!keys)
        return true;
    for (int i = 0; i < 2; i++) {
        s->cipher[i] = crypto_cipher_make(keys->key[i]);
        s->number[i] = keys->number[i];
    }
    if (s->cipher[0] && s->cipher[1])
        return true;
    tcp_seal_end(lane);
    return false;
}

void tcp_seal_end(struct tcp_lane *lane)
{
    const struct comm_env *env = lane->port->wire->env;

    if (!lane->seal)
        return;
    for (int i = 0; i < 2; i++)
        if (lane->seal->cipher[i])
            crypto_cipher_end(lane->seal->cipher[i]);
    crypto_wipe(lane->seal, sizeof *lane->seal);
    env->give(env, lane->seal, sizeof *lane->seal);
    lane->seal = NULL;
}

static void put_length(unsigned char at[RECORD_HEAD], size_t length)
{
    for (int i = 0; i < RECORD_HEAD; i++)
        at[i] = (unsigned char)(length >> 8 * i);
}

static size_t get_length(const unsigned char at[RECORD_HEAD])
{
    return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

/* Of record `number`: its head, and bytes that lie anywhere. */
static size_t check_of(uint64_t number, const unsigned char head[RECORD_HEAD], const void *bytes, size_t count)
{
    unsigned char text[8];

    frame_put64(text, number);
    return frame_crc32c(frame_crc32c(frame_crc32c(0, text, sizeof text), head, RECORD_HEAD), bytes, count);
}

/* The bytes end at `to`, their tag behind them; from may be to. */
static bool close_record(struct tcp_seal *s, unsigned char *head, const unsigned char *from, size_t bytes, unsigned char *to)
{
    uint64_t number = s->number[0]++;

    if (s->cipher[0])
        return crypto_seal(s->cipher[0], number, head, RECORD_HEAD, from, bytes, to, to + bytes);
    if (from != to)
        memcpy(to, from, bytes);
    put_length(to + bytes, check_of(number, head, to, bytes));
    return true;
}

/* False: it is not the next one, or was changed. */
static bool open_record(struct tcp_seal *s, const unsigned char *head, const unsigned char *text, size_t bytes, void *to)
{
    uint64_t number = s->number[1]++;

    if (s->cipher[1])
        return crypto_open(s->cipher[1], number, head, RECORD_HEAD, text, bytes, to, text + bytes);
    if (get_length(text + bytes) != check_of(number, head, text, bytes))
        return false;
    if (to != text)
        memcpy(to, text, bytes);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ what leaves */
bool tcp_seal_pending(const struct tcp_lane *lane)
{
    return lane->seal && lane->seal->begin < lane->seal->end;
}

/* The next bytes of the vector as one record; how many. Sealed from where they lie if enough lie together. */
static size_t seal_record(struct tcp_seal *s, const struct iovec *vector, uint32_t count, size_t skip)
{
    unsigned char *head = s->out_bytes + s->end, *to = head + RECORD_HEAD;
    const unsigned char *from = to;
    size_t bytes = 0;

    while (count && skip >= vector->iov_len) {
        skip -= vector->iov_len;
        vector++;
        count--;
    }
    if (count && vector->iov_len - skip >= SEAL_PIECE) {
        from = (const unsigned char *)vector->iov_base + skip;
        bytes = SEAL_PIECE;
        count = 0;
    }
    for (; count && bytes < SEAL_PIECE; vector++, count--, skip = 0) {
        size_t n = vector->iov_len - skip < SEAL_PIECE - bytes ? vector->iov_len - skip : SEAL_PIECE - bytes;
        memcpy(to + bytes, (const char *)vector->iov_base + skip, n);
        bytes += n;
    }
    if (!bytes)
        return 0;
    put_length(head, bytes);
    if (!close_record(s, head, from, bytes, to))
        return 0;
    s->end += RECORD_HEAD + bytes + s->tag;
    return bytes;
}

size_t tcp_seal_take(struct tcp_lane *lane, const struct iovec *vector, uint32_t count)
{
    struct tcp_seal *s = lane->seal;
    size_t taken = 0, n = 1;

    s->begin = s->end = 0;
    for (int i = 0; i < RECORDS && n; i++) {
        n = seal_record(s, vector, count, taken);
        taken += n;
    }
    return taken;
}

struct iovec tcp_seal_leaving(struct tcp_lane *lane)
{
    return (struct iovec){lane->seal->out_bytes + lane->seal->begin, lane->seal->end - lane->seal->begin};
}

void tcp_seal_sent(struct tcp_lane *lane, size_t bytes)
{
    lane->seal->begin += bytes;
}

/* ------------------------------------------------------------------------------------------------------------ what comes */
struct iovec tcp_seal_room(struct tcp_lane *lane)
{
    return (struct iovec){lane->seal->in_bytes + lane->seal->in, ROOM - lane->seal->in};
}

const char *tcp_seal_came(struct tcp_lane *lane, size_t bytes)
{
    struct tcp_seal *s = lane->seal;
    size_t at = 0;

    s->in += bytes;
    while (!lane->ended && s->in - at >= RECORD_HEAD) {
        unsigned char *head = s->in_bytes + at, *text = head + RECORD_HEAD;
        size_t length = get_length(head);
        if (!length || length > SEAL_PIECE)
            return s->cipher[1] ? "a sealed record of no such length" : "what came was changed on its way: a record of no such length";
        if (s->in - at < RECORD_HEAD + length + s->tag)
            break;
        bool whole = lane->in_body && lane->land && lane->left >= length;
        void *to = whole ? (void *)lane->land : text;
        if (!open_record(s, head, text, length, to))
            return s->cipher[1] ? "what came was changed on its way, or is not of this connection" : "what came was changed on its way";
        tcp_take_plain(lane, whole ? NULL : text, length);
        at += RECORD_HEAD + length + s->tag;
    }
    memmove(s->in_bytes, s->in_bytes + at, s->in - at);
    s->in -= at;
    return NULL;
}
