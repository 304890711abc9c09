/* The bytes of the handshake: the published vector of Noise_NNpsk0_25519_ChaChaPoly_SHA256, and everything that must fail: another secret,
 * another prologue, a changed bit anywhere, missing bytes, messages out of turn, keys that make the result predictable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fuzz/fuzz.h"
#include "net/auth/handshake.h"
#include "wire/table.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 128 };

static size_t from_hex(const char *text, unsigned char *bytes)
{
    size_t n = strlen(text) / 2;
    unsigned value;

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
        bytes[i] = (unsigned char)value;
    }
    return n;
}

/* From the test vectors of cacophony (github.com/haskell-cryptography/cacophony), which snow and other implementations publish too. */
static const char prologue[] = "4a6f686e2047616c74", psk[] = "54686973206973206d7920417573747269616e20706572737065637469766521";
static const char first_key[] = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
static const char second_key[] = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";
static const char handshake_hash[] = "f4d03dc34495c95729ea6de9e1b59004b59733102488b3e24bc441e0be208eaf";
static const struct {
    const char *payload, *ciphertext;
} messages[] = {
    {"4c756477696720766f6e204d69736573",
     "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c794479b962b8aff8485742ac32f905ba45369e2465fb59e138a93d67a0d1266b6a54"},
    {"4d757272617920526f746862617264",
     "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d6062704d5a9c422a8e834423f8c1feada7e8d0d910a1a2cd030fb584221e3"},
    {"462e20412e20486179656b", "e632c3763d7669067383433197a3baddf146e9e70ad4b4e9e59e0f"},
    {"4361726c204d656e676572", "64c6bee32ea91c8474bb4c21d7a700109ad45af77b29764ba5eb1e"},
    {"4a65616e2d426170746973746520536179", "e2fa0bed0603b62d3ccac2ecabbf3fe33f3e86514909b323361626266cb2471cc8"},
    {"457567656e2042f6686d20766f6e2042617765726b", "0c01dc9cec1fe4ddd692e8dd32188aa351088dc91183639a53b57aa4692b5ebdef8b8ca111"},
};

static void begin(struct noise *first, struct noise *second)
{
    unsigned char about[MOST], key[MOST], own[MOST];
    size_t bytes = from_hex(prologue, about);

    from_hex(psk, key);
    from_hex(first_key, own);
    assert_true(noise_begin(first, true, key, about, bytes, own));
    from_hex(second_key, own);
    assert_true(noise_begin(second, false, key, about, bytes, own));
}

static void published(void **state)
{
    struct noise first, second;
    struct seal ends[2] = {{.number = {0}}, {.number = {0}}};
    unsigned char payload[MOST], expected[MOST], message[MOST], back[MOST], hash[2][CRYPTO_HASH];

    (void)state;
    begin(&first, &second);
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        size_t bytes = from_hex(messages[i].payload, payload), all = from_hex(messages[i].ciphertext, expected);
        struct noise *writes = i == 0 ? &first : &second, *reads = i == 0 ? &second : &first;
        if (i < 2) {
            assert_true(noise_write(writes, payload, bytes, message));
            assert_memory_equal(message, expected, all);
            assert_true(noise_read(reads, message, all, back));
        } else {
            assert_true(seal_write(&ends[i % 2], payload, bytes, message));
            assert_memory_equal(message, expected, all);
            assert_true(seal_read(&ends[1 - i % 2], message, back, bytes));
        }
        assert_memory_equal(back, payload, bytes);
        if (i == 1) {
            assert_true(noise_split(&first, ends[0].key[0], ends[0].key[1], hash[0]));
            assert_true(noise_split(&second, ends[1].key[0], ends[1].key[1], hash[1]));
            from_hex(handshake_hash, expected);
            assert_memory_equal(hash[0], expected, CRYPTO_HASH);
            assert_memory_equal(hash[1], expected, CRYPTO_HASH);
        }
    }
}

/* This includes the bit of a public key that X25519 ignores; the hash covers it. */
static void bits_and_lengths(void **state)
{
    unsigned char message[NOISE_OVERHEAD], answer[NOISE_OVERHEAD], nothing[1];
    struct noise first, second;

    (void)state;
    for (int bit = 0; bit < 8 * NOISE_OVERHEAD; bit++) {
        begin(&first, &second);
        assert_true(noise_write(&first, NULL, 0, message));
        message[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(noise_read(&second, message, sizeof message, nothing));
        message[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(noise_read(&second, message, sizeof message, nothing)); /* the handshake is over */
        begin(&first, &second);
        assert_true(noise_write(&first, NULL, 0, message) && noise_read(&second, message, sizeof message, nothing));
        assert_true(noise_write(&second, NULL, 0, answer));
        answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(noise_read(&first, answer, sizeof answer, nothing));
        assert_false(noise_split(&first, message, answer, answer));
    }
    for (size_t less = 1; less <= NOISE_OVERHEAD; less++) {
        begin(&first, &second);
        assert_true(noise_write(&first, NULL, 0, message));
        assert_false(noise_read(&second, message, sizeof message - less, nothing));
    }
}

static void out_of_turn(void **state)
{
    unsigned char message[NOISE_OVERHEAD], keys[3][32], nothing[1];
    struct noise first, second;

    (void)state;
    begin(&first, &second);
    assert_false(noise_write(&second, NULL, 0, message)); /* a responder does not begin */
    begin(&first, &second);
    assert_false(noise_split(&first, keys[0], keys[1], keys[2]));
    begin(&first, &second);
    assert_true(noise_write(&first, NULL, 0, message));
    assert_false(noise_write(&first, NULL, 0, message));
    begin(&first, &second); /* its own message is reflected */
    assert_true(noise_write(&first, NULL, 0, message));
    assert_false(noise_read(&first, message, sizeof message, nothing));
}

/* Zero and other points of small order give a secret that anybody can compute. They are refused, whatever the tag is. */
static void known_outcome(void **state)
{
    static const unsigned char points[][32] = {{0}, {1}};
    unsigned char own[32] = {9, 8, 7}, shared[32];

    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        assert_false(crypto_agree(own, points[i], shared));
}

static const struct handshake_names names = {HANDSHAKE_MEETING, 3, 0, 0, 0};

static enum handshake_fault shake(const unsigned char *one, const unsigned char *other, struct handshake ends[2])
{
    const struct comm_env *env = wire_default_env();
    unsigned char hello[HANDSHAKE_HELLO], answer[HANDSHAKE_ANSWER];

    assert_true(handshake_hello(&ends[0], env, one, &names, hello));
    enum handshake_fault fault = handshake_answer(&ends[1], env, other, hello, answer);
    return fault ? fault : handshake_finish(&ends[0], answer);
}

static void secrets(void **state)
{
    const unsigned char one[32] = {1}, other[32] = {2};
    unsigned char sealed[4 * SEAL_PIECE], text[2 * SEAL_PIECE + 5], back[sizeof text];
    struct handshake ends[2];

    (void)state;
    assert_int_equal(shake(one, other, ends), HANDSHAKE_ANOTHER_SECRET);
    assert_int_equal(shake(one, one, ends), HANDSHAKE_OK);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * 7);
    assert_true(seal_write(&ends[0].seal, text, sizeof text, sealed));
    assert_true(seal_read(&ends[1].seal, sealed, back, sizeof back));
    assert_memory_equal(text, back, sizeof text);
    assert_false(seal_read(&ends[1].seal, sealed, back, sizeof back)); /* a repetition */
    assert_int_equal(shake(one, one, ends), HANDSHAKE_OK);
    assert_true(seal_write(&ends[0].seal, text, sizeof text, sealed));
    sealed[SEAL_PIECE + CRYPTO_TAG + 3] ^= 1;
    assert_false(seal_read(&ends[1].seal, sealed, back, sizeof back));
    assert_true(seal_write(&ends[0].seal, text, 8, sealed));
    assert_false(seal_read(&ends[0].seal, sealed, back, 8)); /* reflected to its sender */
}

/* Each plain word is authenticated: if it is changed in transit, the fault is another secret, or another version. */
static void words_in_plain(void **state)
{
    const struct comm_env *env = wire_default_env();
    const unsigned char key[CRYPTO_KEY] = {1};
    unsigned char hello[HANDSHAKE_HELLO], answer[HANDSHAKE_ANSWER];
    struct handshake ends[2];

    (void)state;
    for (int bit = 0; bit < 8 * HANDSHAKE_NAMES; bit++) {
        assert_true(handshake_hello(&ends[0], env, key, &names, hello));
        hello[bit / 8] ^= (unsigned char)(1 << bit % 8);
        enum handshake_fault fault = handshake_answer(&ends[1], env, key, hello, answer);
        assert_int_equal(fault, bit < 32 ? HANDSHAKE_BROKEN : bit < 64 ? HANDSHAKE_ANOTHER_VERSION : HANDSHAKE_ANOTHER_SECRET);
        assert_int_equal(handshake_read_head(answer), fault);
        assert_string_not_equal(handshake_fault_text(fault), "");
    }
}

/* The fuzzer's inputs without the fuzzer: right messages changed in a few places, from a seed. */
static void mutations(void **state)
{
    uint64_t seed = 1;
    int right = 0;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        unsigned char bytes[HANDSHAKE_HELLO + HANDSHAKE_ANSWER];
        size_t count = fuzz_handshake_right(bytes);
        for (int k = 0; k < i % 4; k++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes[(seed >> 33) % count] = (unsigned char)(seed >> 25);
        }
        if (i % 5 == 4)
            count = (size_t)(seed >> 40) % count;
        right += fuzz_handshake(bytes, count);
    }
    assert_in_range(right, 600, 900); /* the unchanged ones, and hardly any other */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published), cmocka_unit_test(bits_and_lengths), cmocka_unit_test(out_of_turn), cmocka_unit_test(known_outcome),
        cmocka_unit_test(secrets),   cmocka_unit_test(words_in_plain),   cmocka_unit_test(mutations),
    };

    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
