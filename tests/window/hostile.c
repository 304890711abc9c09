/*
 * A member sends requests to a window that no call makes: lengths, offsets, types and answers near the bounds. Nothing outside the window
 * is written, and the communicator fails with CORRUPT, naming that member. Nothing crashes or hangs.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "rma/window_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 100000, GUARD = 1 << 17, ROUNDS = 400, PARCELS = 3 };

static uint64_t seed;
static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (seed >> 33) % below;
}

static uint64_t edge(void)
{
    static const uint64_t edges[] = {
        0,    1,     8,       BYTES - 8,  BYTES - 7,     BYTES - 1,        BYTES,        BYTES + 1, LINK_INLINE, LINK_INLINE + 1, 4096,
        8192, 65536, 1 << 20, UINT32_MAX, SIZE_MAX / 16, SIZE_MAX - BYTES, SIZE_MAX - 7, SIZE_MAX};
    return edges[draw(sizeof edges / sizeof *edges)];
}

/* Any values, or a valid head with one field changed. */
static void draw_ask(struct link_ask *a, uint64_t number)
{
    *a = (struct link_ask){.window = number, .offset = 8, .n = 8, .kind = 1 + (uint32_t)draw(5), .type = COMM_I64, .op = COMM_SUM};
    switch (draw(8)) {
    case 0:
        a->window = edge();
        break;
    case 1:
        a->offset = edge();
        break;
    case 2:
        a->n = edge();
        break;
    case 3:
        a->kind = (uint32_t)edge();
        break;
    case 4:
        a->type = (uint32_t)draw(64);
        break;
    case 5:
        a->op = draw(2) ? (uint32_t)draw(20) : (uint32_t)edge() | OPERATOR_USER;
        break;
    case 6:
        a->slot = (uint32_t)edge();
        break;
    default:
        a->offset = edge();
        a->n = edge();
        a->wants_old = 1;
    }
}

static union {
    struct link_parcel parcel;
    char more[1 << 21];
} parcels[2 * PARCELS + 2];

static void post(struct comm_state *b, int32_t victim, enum message_kind kind, uint32_t *at, size_t bytes)
{
    /* no such link exists here, so its completion goes nowhere */
    (void)link_post(b, kind, true, victim, &parcels[(*at)++], bytes, LINK_TOLD);
}

/* With the correct length of such a request, or with any length. */
static void post_ask(struct comm_state *b, int32_t victim, uint32_t *at)
{
    const struct link_ask *a = &parcels[*at].parcel.head.ask;
    struct one_sided one = {.kind = (uint8_t)a->kind, .op = a->op, .element = a->kind < ONE_UPDATE ? 1 : 8};
    size_t takes = a->n < 1 << 20 ? link_takes(&one, (size_t)a->n) : 0;
    if (draw(5) == 0)
        post(b, victim, MESSAGE_ASK, at, draw(2) ? draw(2 * sizeof *a) : draw(1 << 15));
    else
        post(b, victim, MESSAGE_ASK, at, sizeof *a + (takes <= LINK_INLINE ? takes : 0));
    if (takes > LINK_INLINE)
        post(b, victim, MESSAGE_ASK, at, takes - (draw(3) == 0));
}

/* A few requests or an answer, then a request that cannot belong to any call. */
static void strike(struct comm_communicator *c, int32_t victim, uint64_t number)
{
    enum comm_result r;
    uint32_t at = 0;
    struct comm_state *b = state_lock(c, &r);
    MUST(r);
    for (size_t i = 0; i < sizeof parcels / sizeof *parcels; i++)
        memset(&parcels[i].parcel, 0x55, sizeof parcels[i].parcel);
    for (int i = 0; i < PARCELS; i++) {
        draw_ask(&parcels[at].parcel.head.ask, number);
        post_ask(b, victim, &at);
    }
    if (draw(8) == 0) {
        parcels[at].parcel.head.answer = (struct link_answer){edge(), edge()};
        post(b, victim, MESSAGE_ANSWER, &at, sizeof(union link_head) + (draw(2) ? 0 : draw(LINK_INLINE)));
    }
    parcels[at].parcel.head.ask = (struct link_ask){.window = number + 77};
    post(b, victim, MESSAGE_ASK, &at, sizeof(union link_head));
    state_settle(b);
    state_unlock(b);
}

static void one_round(struct rig *rig, unsigned char *memory)
{
    struct comm_communicator *c[2];
    struct comm_window *w[2];
    struct comm_request req[2];
    struct comm_error error;
    memset(memory, 0xa5, GUARD + BYTES + GUARD);
    rig_dup(rig->world, 2, c);
    for (int i = 0; i < 2; i++)
        MUST(comm_window_create(
            c[i], BYTES,
            &(struct comm_window_options){.size = sizeof(struct comm_window_options), .base = i ? memory + GUARD : NULL, .signals = 2},
            &w[i], &req[i]));
    rig_wait_all(req, 2);
    enum comm_result r;
    struct comm_state *b = state_lock(c[0], &r);
    b->rma.links[1].serves =
        /* receives the completion LINK_TOLD */
        b->unit.engine->env->take(b->unit.engine->env, sizeof *b->rma.links[1].serves, 64);
    state_unlock(b);
    strike(c[0], 1, w[0]->number);
    for (int i = 0; i < 2; i++) {
        rig_fails_within(c[i], COMM_ERR_CORRUPT, 5 * RIG_S, &error);
        IS(comm_window_free(w[i]), COMM_ERR_CORRUPT);
        (void)!comm_close(c[i], COMM_DEFAULT_TIMEOUT);
    }
    for (size_t i = 0; i < GUARD; i++)
        CHECK(memory[i] == 0xa5 && memory[GUARD + BYTES + i] == 0xa5);
}

RIG_TEST(windows_of_hostile_members)
{
    struct comm_backend_info info = {.size = sizeof info};
    unsigned char *memory = malloc(GUARD + BYTES + GUARD);
    struct rig rig;
    for (size_t i = 0; strcmp(info.name, "tcp") != 0; i++)
        if (comm_describe_backend(i, &info) != COMM_OK)
            rig_skip("this library has no backend called tcp");
    setenv("COMM_BACKEND", "tcp", 1);
    setenv("COMM_LOG", "off", 1);
    rig_open(&rig, 2, NULL);
    for (int i = 0; i < (rig_quick() ? ROUNDS / 4 : ROUNDS); i++) {
        seed = (uint64_t)i;
        rig_note("round %d\n", i);
        one_round(&rig, memory);
    }
    rig_close(&rig);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_of_hostile_members)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
