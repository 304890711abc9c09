/*
 * exchange: ranks meet by the program's own allgather (a store, MPI, a job service). It carries everything that a world needs while it
 * opens, so rank 0 does not listen and no address is needed. Each rank contributes the address at which it can be reached. Rank 0
 * contributes a random word that becomes the job's secret, since only ranks of this job take part in the exchange. On one host the wires
 * use loopback.
 */
#define _GNU_SOURCE
#include "net/boot/exchange.h"

#include "base/format.h"
#include "base/option.h"
#include "base/result.h"
#include "net/boot/io.h"
#include "net/posix/interface.h"
#include "net/auth/secret.h"

#include <string.h>

enum { CARD_MAGIC = 0x65786361, CARD_VERSION = 2, CARD_TEXT = 240 };

/* If result is not COMM_OK, text has the reason. A rank that fails comes to the exchange too, since the others would wait for it there. */
struct card {
    uint32_t magic, version;
    int32_t rank, ranks;
    uint64_t host;
    unsigned char word[CRYPTO_KEY];
    char address[INTERFACE_ADDRESS];
    int32_t result;
    char text[CARD_TEXT];
};

struct boot_exchange {
    struct wire_boot boot;
    struct boot_config config;
    unsigned char *key; /* from secret_take */
};

static enum comm_result exchange_allgather(struct wire_boot *boot, const void *in, size_t bytes, void *out)
{
    const struct boot_config *c = &((struct boot_exchange *)boot)->config;

    return c->exchange(c->exchange_arg, in, bytes, out) ? boot_fail(c, COMM_ERR_BACKEND, "the program's exchange failed") : COMM_OK;
}

static enum comm_result check_card(const struct boot_config *c, const struct card *card, int32_t rank)
{
    if (card->magic != CARD_MAGIC || card->version != CARD_VERSION)
        return boot_fail(c, COMM_ERR_CONFIG, "what the program's exchange gave as rank %d's is of another version, or was never written",
                         rank);
    if (card->rank != rank)
        return boot_fail(c, COMM_ERR_CONFIG, "the program's exchange gave rank %d's bytes in rank %d's place", card->rank, rank);
    if (card->ranks != c->ranks)
        return boot_fail(c, COMM_ERR_CONFIG, "rank %d opens a world of %d ranks, rank %d one of %d", rank, card->ranks, c->rank, c->ranks);
    if (card->result != COMM_OK && rank != c->rank)
        return boot_fail(c, base_result_told(card->result), "rank %d: %.*s", rank, CARD_TEXT, card->text);
    return COMM_OK;
}

/* Checks all cards, finds out whether there are several hosts, and sets the key. */
static enum comm_result use_cards(struct boot_exchange *b, const struct card *all, bool keyed)
{
    const struct boot_config *c = &b->config;
    enum comm_result result = COMM_OK;
    bool several = false;
    int64_t insecure = 0;

    for (int32_t i = 0; i < c->ranks && result == COMM_OK; i++) {
        result = check_card(c, &all[i], i);
        several |= all[i].host != all[0].host;
    }
    if (result != COMM_OK)
        return result;
    if (!keyed && !crypto_missing())
        keyed = secret_key(all[0].word, sizeof all[0].word, b->key);
    if (!base_option_lookup(c->env, "tcp_insecure", &insecure))
        return boot_fail(c, COMM_ERR_CONFIG, "COMM_TCP_INSECURE is not yes or no");
    if (several && !keyed && !insecure)
        return boot_fail(c, COMM_ERR_CONFIG, "the ranks are on several hosts, and %s; set COMM_TCP_INSECURE=1 on every rank to do without",
                         crypto_missing() ? crypto_missing() : "no memory is left for a secret");
    b->boot.key = keyed ? b->key : NULL;
    if (several)
        base_copy_text(b->boot.address, sizeof b->boot.address, all[c->rank].address);
    return COMM_OK;
}

static enum comm_result make_card(const struct boot_config *c, struct card *mine, char *why, size_t why_bytes)
{
    struct env_identity who;

    c->env->identity(c->env, &who);
    mine->host = who.place_id; /* containers of one machine have separate loopback interfaces */
    if (c->env->random(c->env, mine->word, sizeof mine->word))
        return boot_fail(c, COMM_ERR_SYSTEM, "no randomness for the meeting");
    if (!interface_address(c->env, mine->address, why, why_bytes))
        return boot_fail(c, COMM_ERR_CONFIG, "%s", why);
    return COMM_OK;
}

static struct card card_of(const struct boot_config *c)
{
    return (struct card){.magic = CARD_MAGIC, .version = CARD_VERSION, .rank = c->rank, .ranks = c->ranks};
}

/* This rank cannot open. What comes is not used. It has rank 0's word, so it is wiped. */
static enum comm_result say_failed(const struct boot_config *c, enum comm_result failed)
{
    struct card mine = card_of(c);
    size_t bytes = (size_t)c->ranks * sizeof mine;
    struct card *all = c->env->take(c->env, bytes, 64);

    if (!all)
        return failed;
    mine.result = failed;
    base_copy_text(mine.text, sizeof mine.text, c->error_text);
    (void)!c->exchange(c->exchange_arg, &mine, sizeof mine, all);
    crypto_wipe(all, bytes);
    c->env->give(c->env, all, bytes);
    return failed;
}

static enum comm_result no_memory(const struct boot_config *c)
{
    return boot_fail(c, COMM_ERR_MEMORY, "no memory to meet %d ranks", c->ranks);
}

static enum comm_result meet(struct boot_exchange *b, bool keyed)
{
    const struct boot_config *c = &b->config;
    struct card mine = card_of(c);
    char why[200];

    enum comm_result result = make_card(c, &mine, why, sizeof why);
    size_t bytes = (size_t)c->ranks * sizeof mine;
    struct card *all = secret_take(bytes); /* secret memory, because rank 0's word becomes the secret */
    if (!all && result == COMM_OK)
        result = no_memory(c);
    if (result == COMM_OK)
        result = exchange_allgather(&b->boot, &mine, sizeof mine, all);
    else
        (void)say_failed(c, result);
    if (result == COMM_OK)
        result = use_cards(b, all, keyed);
    if (result == COMM_OK && b->boot.address[0])
        base_log(c->log, LOG_INFO, "tcp: reached at %s (%s)", b->boot.address, why);
    crypto_wipe(&mine, sizeof mine);
    secret_give(all, bytes);
    return result;
}

static enum comm_result exchange_pass(struct wire_boot *boot, const int *given, uint32_t count, int *all)
{
    (void)given;
    (void)count;
    (void)all;
    return boot_fail(&((struct boot_exchange *)boot)->config, COMM_ERR_UNSUPPORTED, "ranks that meet over a network pass no descriptors");
}

static void exchange_close(struct wire_boot *boot)
{
    struct boot_exchange *b = (struct boot_exchange *)boot;
    const struct comm_env *env = b->config.env;

    secret_give(b->key, CRYPTO_KEY);
    env->give(env, b, sizeof *b);
}

static const struct boot_class boot_exchange = {
    .name = "exchange", .allgather = exchange_allgather, .pass = exchange_pass, .close = exchange_close};

enum comm_result boot_exchange_open(const struct boot_config *config, const unsigned char *key, enum comm_result failed,
                                    struct wire_boot **boot)
{
    if (failed != COMM_OK)
        return say_failed(config, failed);
    struct boot_exchange *b = config->env->take(config->env, sizeof *b, 64);
    unsigned char *own = secret_take(CRYPTO_KEY);

    if (!b || !own) {
        secret_give(own, CRYPTO_KEY);
        env_give_back(config->env, b, sizeof *b);
        return say_failed(config, no_memory(config));
    }
    b->boot.class = &boot_exchange;
    b->config = *config;
    b->key = own;
    if (key)
        memcpy(b->key, key, CRYPTO_KEY);
    enum comm_result result = meet(b, key != NULL);
    if (result == COMM_OK)
        *boot = &b->boot;
    else
        exchange_close(&b->boot);
    return result;
}
