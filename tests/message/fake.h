/* A world of message rooms over a wire that plays: it has no room at times, finishes at once or later, and brings what different pairs sent
 * in any order. It checks what the rooms ask of it. One process, no clock: a seed decides everything. */
#ifndef TESTS_MESSAGE_FAKE_H
#define TESTS_MESSAGE_FAKE_H

#include "message/message.h"

enum { FAKE_RANKS_MAX = 6, FAKE_MESSAGES_MAX = 4096 };

struct fake_message {
    int32_t from, to;
    uint32_t tag;
    wire_key key;
    size_t bytes;
    const void *at; /* the sender's, or a copy */
    void *copy;
    uint64_t send_cookie, view_cookie;
    bool send_waits, announced, viewed, view_waits, send_due;
    void *land;
    size_t take;
};

struct fake_world;
struct fake_channel {
    struct wire_channel base;
    struct fake_world *world;
    int32_t rank;
};

typedef void fake_arrival_fn(void *arg, int32_t rank, const struct fake_message *message);
typedef void fake_accepted_fn(int32_t rank, const struct message_finished *done);
struct fake_world {
    uint64_t random;
    int32_t ranks;
    uint32_t again_percent, pending_percent;
    struct fake_channel channel[FAKE_RANKS_MAX];
    struct message_room *room[FAKE_RANKS_MAX];
    uint32_t sent[FAKE_RANKS_MAX][FAKE_RANKS_MAX], announced[FAKE_RANKS_MAX][FAKE_RANKS_MAX];
    struct fake_message message[FAKE_MESSAGES_MAX];
    uint32_t messages;
    fake_arrival_fn *arrival; /* before its room hears of it, or when a receive has accepted it; may be NULL */
    void *arrival_arg;
    const struct fake_message *next; /* offered to message_accept */
    fake_accepted_fn *accepted;      /* a receive of this rank has accepted a message; NULL: no message is offered */
};

/* Memory that counts: takes since the start, bytes held, and from which take on there is none (0: always some). */
struct fake_env {
    struct comm_env base;
    uint64_t takes, fail_from;
    size_t held;
};
void fake_env_open(struct fake_env *env);

uint32_t fake_random(struct fake_world *world, uint32_t below);
void fake_open(struct fake_world *world, const struct comm_env *env, int32_t ranks, uint32_t depth, uint64_t seed);
void fake_close(struct fake_world *world);
/* One thing that the network owes happens, chosen at random. False: it owes nothing. */
bool fake_act(struct fake_world *world);
void fake_drain(struct fake_world *world); /* acts and steps until nothing moves */

#endif
