/* For any bytes: a listener accepts only the hello that was made with its key, and a dialer accepts only an answer that was made for it.
 * Randomness is mocked, so each input always has the same effect. */
#include "fuzz/fuzz.h"

#include "net/auth/handshake.h"

#include <string.h>

static const unsigned char key[CRYPTO_KEY] = {11, 22, 33};

static int play(const struct comm_env *env, void *memory, size_t bytes)
{
    (void)env;
    memset(memory, 7, bytes);
    return 0;
}
static const struct comm_env mock = {.random = play};

size_t fuzz_handshake_right(unsigned char *bytes)
{
    const struct handshake_names names = {HANDSHAKE_CONNECTION, 1, 2, 1, 0};
    struct handshake h;

    HOLD(handshake_hello(&h, &mock, key, &names, bytes));
    return HANDSHAKE_HELLO;
}

int fuzz_handshake(const unsigned char *bytes, size_t count)
{
    unsigned char hello[HANDSHAKE_HELLO] = {0}, answer[HANDSHAKE_ANSWER], said[HANDSHAKE_ANSWER] = {0}, right[HANDSHAKE_HELLO];
    const struct handshake_names names = {HANDSHAKE_CONNECTION, 1, 2, 1, 0};
    struct handshake h, dialer;

    fuzz_handshake_right(right);
    memcpy(hello, bytes, count < sizeof hello ? count : sizeof hello);
    enum handshake_fault fault = handshake_answer(&h, &mock, key, hello, answer);
    HOLD((fault == HANDSHAKE_OK) == !memcmp(hello, right, sizeof hello));
    HOLD(handshake_read_head(answer) == fault && *handshake_fault_text(fault) == (fault ? *handshake_fault_text(fault) : 0));
    if (fault == HANDSHAKE_OK) { /* the dialer accepts this answer, and no other */
        HOLD(handshake_hello(&dialer, &mock, key, &names, right) && handshake_finish(&dialer, answer) == HANDSHAKE_OK);
        HOLD(!memcmp(dialer.seal.key[0], h.seal.key[1], CRYPTO_KEY) && !memcmp(dialer.seal.key[1], h.seal.key[0], CRYPTO_KEY));
    }
    memcpy(said, bytes, count < sizeof said ? count : sizeof said);
    handshake_refuse(HANDSHAKE_OK, said);
    HOLD(handshake_hello(&dialer, &mock, key, &names, right) && handshake_finish(&dialer, said) == HANDSHAKE_ANOTHER_SECRET);
    return fault == HANDSHAKE_OK;
}
