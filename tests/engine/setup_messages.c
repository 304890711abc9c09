/*
 * Setup messages between members of a subset, one of them with a wrong length. Its receiver fails the communicator with CORRUPT, on any
 * rank, within the time that choosing a cause takes. It must not wait for ever with the lock of the communicator held.
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

enum { RANKS = 3, VICTIM = 2 };

static union {
    struct link_parcel parcel;
    char more[256];
} setup;

/* From rank 1. The victim is not the lowest rank, so it cannot choose its own proposal at once. */
static void write_setup_message(struct comm_communicator *c, size_t bytes)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);

    MUST(r);
    /* no such link exists here, so its completion goes nowhere */
    (void)link_post(b, MESSAGE_SETUP, true, VICTIM, &setup.parcel, bytes, LINK_TOLD);
    state_settle(b);
    state_unlock(b);
}

RIG_TEST(setup_messages_of_a_wrong_length)
{
    static const size_t lengths[] = {0, 8, 200};
    static const int32_t members[] = {1, VICTIM};
    struct rig rig;

    setenv("COMM_BACKEND", "tcp", 1); /* with a common board a cause would be chosen at once */
    setenv("COMM_LOG", "off", 1);
    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct comm_communicator *c[RANKS], *out = NULL;
        struct comm_window *w[RANKS]; /* creates the links, which can write to a peer */
        struct comm_request request, made[RANKS];
        struct comm_error error;
        rig_note("%zu bytes", lengths[i]);
        rig_dup(rig.world, RANKS, c);
        for (int32_t rank = 0; rank < RANKS; rank++)
            MUST(comm_window_create(c[rank], 8, NULL, &w[rank], &made[rank]));
        rig_wait_all(made, RANKS);
        enum comm_result r;
        struct comm_state *b = state_lock(c[1], &r);
        b->rma.links[VICTIM].serves =
            b->unit.engine->env->take(b->unit.engine->env, sizeof *b->rma.links[VICTIM].serves, 64); /* receives the completion LINK_TOLD */
        state_unlock(b);
        MUST(comm_subset(c[VICTIM], members, 2, 5, &out, &request));
        write_setup_message(c[1], lengths[i]);
        for (int32_t rank = 0; rank < RANKS; rank++)
            rig_fails_within(c[rank], COMM_ERR_CORRUPT, 5 * RIG_S, &error);
        IS(comm_wait(request, RIG_PATIENCE), COMM_ERR_CORRUPT);
        for (int32_t rank = 0; rank < RANKS; rank++) {
            (void)!comm_window_free(w[rank]);
            (void)!comm_close(c[rank], COMM_DEFAULT_TIMEOUT);
        }
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(setup_messages_of_a_wrong_length)};
    return cmocka_run_group_tests_name("engine_setup_messages", tests, NULL, NULL);
}
