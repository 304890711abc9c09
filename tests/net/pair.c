#include "net/pair.h"

#include "group.h"
#include "selection.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const int32_t world[PAIR_RANKS] = {0, 1};
static uint64_t seed;

void pair_open(struct pair *p, uint32_t window, void (*hear)(void *arg, int level, const char *line))
{
    const struct comm_env *env = wire_default_env();
    const struct wire_limits limits = {.window = window};
    unsigned char offers[PAIR_RANKS][WIRE_OFFER_BYTES];
    char text[256] = "";
    struct wire *wire = NULL;

    seed = 88172645463325252u;
    *p = (struct pair){.log = {.env = env, .sink = hear, .level = hear ? LOG_ERROR : 0}, .class = wire_backend_one_process("tcp")->wire};
    assert_int_equal(env->bell_open(env, &p->bell), 0);
    struct wire_config config = {.env = env,
                                 .log = &p->log,
                                 .bell = &p->bell,
                                 .watch = &p->bell,
                                 .rank = -1,
                                 .ranks = PAIR_RANKS,
                                 .deadline = env->now(env) + 10000000000,
                                 .error_text = text,
                                 .error_text_bytes = sizeof text};
    if (p->class->open(&config, &wire) != COMM_OK)
        fail_msg("%s", text);
    p->wire = tcp_wire_of(wire);
    const char *poller = getenv("COMM_TCP_POLLER");
    assert_string_equal(p->wire->poller->class->name, poller ? poller : "epoll");
    assert_int_equal(group_holds_ring(), poller && strcmp(poller, "io_uring") == 0);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < PAIR_RANKS; i++) {
            p->team[i] = (struct wire_team){.id = 1, .rank = i, .size = PAIR_RANKS, .world = world};
            assert_int_equal(p->class->join(wire, &p->team[i], &limits, pass ? offers : NULL, offers[i], &p->channel[i]), COMM_OK);
        }
}

void pair_close(struct pair *p)
{
    const struct comm_env *env = wire_default_env();

    for (int32_t i = 0; i < PAIR_RANKS; i++)
        p->class->leave(p->channel[i], WIRE_CLOSE);
    p->class->close(&p->wire->wire);
    env->bell_close(env, &p->bell);
}

SELECTION_PLAIN void pair_fill(unsigned char *to, uint32_t seq, uint32_t edge, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)((i * 7 + i / 251) ^ (seq * 31 + edge * 17));
}

uint32_t pair_dice(uint32_t sides)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed % sides);
}
