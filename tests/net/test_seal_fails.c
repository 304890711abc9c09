/* A record that libcrypto cannot seal, for want of memory perhaps: it does not leave, and nothing follows it, since its number is used up.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/auth/handshake.h"
#include "net/frame/frame.h"
#include "net/record/record.h"
#include "wire/table.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WHOLE = 8192, SHORT = 100, HEAD = FRAME_LINE };

static int seals_left = -1; /* so many records are sealed, and then one is not; -1: all are */
bool __real_crypto_seal(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                        void *out, unsigned char tag[CRYPTO_TAG]);
bool __wrap_crypto_seal(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                        void *out, unsigned char tag[CRYPTO_TAG]);
bool __wrap_crypto_seal(struct crypto_cipher *cipher, uint64_t nonce, const void *about, size_t about_bytes, const void *in, size_t bytes,
                        void *out, unsigned char tag[CRYPTO_TAG])
{
    return seals_left-- != 0 && __real_crypto_seal(cipher, nonce, about, about_bytes, in, bytes, out, tag);
}

static struct record_layer *start(enum crypto_kind kind, bool beats)
{
    const struct seal keys = {.key = {{1, 2, 3}, {4, 5, 6}}};
    struct record_layer *r = NULL;

    if (crypto_missing())
        group_skip("%s", crypto_missing());
    r = record_start(wire_default_env(), &keys, kind, beats);
    assert_non_null(r);
    return r;
}

static void does_not_leave(void **state)
{
    static unsigned char sent[WHOLE + SHORT];
    const struct iovec vector[] = {{sent, WHOLE}, {sent + WHOLE, SHORT}};

    (void)state;
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (unsigned char)(i * 31 + i / 251);
    for (enum crypto_kind kind = CRYPTO_CHACHA; kind <= CRYPTO_AES; kind++)
        for (uint32_t good = 0; good < 2; good++) {
            struct record_layer *r = start(kind, false);
            seals_left = (int)good;
            assert_int_equal(record_take(r, vector + 1 - good, 1 + good), good ? WHOLE : 0);
            seals_left = -1;
            struct iovec leaving = record_leaving(r);
            assert_int_equal(leaving.iov_len, good ? HEAD + WHOLE : 0);
            record_sent(r, leaving.iov_len);
            assert_int_equal(record_take(r, vector + 1, 1), 0);
            assert_false(record_pending(r));
            record_end(r);
        }
}

static void a_beat_does_not_leave(void **state)
{
    char plain[HEAD];
    int fd[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    for (enum crypto_kind kind = CRYPTO_CHACHA; kind <= CRYPTO_AES; kind++) {
        struct record_layer *r = start(kind, true);
        seals_left = 0;
        assert_int_equal(record_beat(r, fd[0], RECORD_GOODBYE), -EIO);
        seals_left = -1;
        assert_int_equal(record_beat(r, fd[0], 0), -EIO);
        assert_int_equal(recv(fd[1], plain, sizeof plain, MSG_DONTWAIT), -1);
        record_end(r);
    }
    close(fd[0]);
    close(fd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_not_leave),
        cmocka_unit_test(a_beat_does_not_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
