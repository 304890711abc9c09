#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *fake_take(const struct comm_env *env, size_t bytes, size_t align)
{
    struct fake_env *fake = (struct fake_env *)(uintptr_t)env;
    fake->takes++;
    assert_true(align <= _Alignof(max_align_t));
    if (fake->fail_from && fake->takes >= fake->fail_from)
        return NULL;
    fake->held += bytes;
    return calloc(1, bytes);
}

static void fake_give(const struct comm_env *env, void *memory, size_t bytes)
{
    struct fake_env *fake = (struct fake_env *)(uintptr_t)env;
    assert_true(fake->held >= bytes);
    fake->held -= bytes;
    free(memory);
}

void fake_env_open(struct fake_env *env)
{
    *env = (struct fake_env){.base = {.name = "fake", .take = fake_take, .give = fake_give}};
}

uint32_t fake_random(struct fake_world *world, uint32_t below)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((world->random >> 33) * below) >> 31);
}

static struct fake_message *add_message(struct fake_channel *from, int32_t to, wire_key key, uint32_t tag, const void *at, size_t bytes)
{
    struct fake_world *world = from->world;

    world->sent[from->rank][to]++;
    assert_true(world->messages < FAKE_MESSAGES_MAX);
    struct fake_message *message = &world->message[world->messages++];
    *message = (struct fake_message){.from = from->rank, .to = to, .tag = tag, .key = key, .at = at, .bytes = bytes};
    return message;
}

static void copy_bytes(struct fake_message *message)
{
    message->copy = malloc(message->bytes + 1);
    if (message->bytes)
        memcpy(message->copy, message->at, message->bytes);
    message->at = message->copy;
}

static void check_number(const struct fake_channel *from, int32_t to, wire_key key)
{
    assert_true(to < from->world->ranks && to != from->rank);
    assert_true(key == wire_key_of(from->world->sent[from->rank][to] + 1, 0, 0));
}

static enum wire_result fake_expose(struct wire_channel *channel, const struct wire_expose *expose)
{
    struct fake_channel *from = (struct fake_channel *)channel;
    struct fake_world *world = from->world;
    int32_t to = expose->peers[0];
    assert_int_equal(expose->flags, WIRE_MESSAGE);
    assert_int_equal(expose->npeers, 1);
    assert_int_equal(expose->nspans, 1);
    assert_true(expose->cookie >> 63);
    check_number(from, to, expose->key);
    if (fake_random(world, 100) < world->again_percent)
        return WIRE_AGAIN;
    struct fake_message *message = add_message(from, to, expose->key, expose->fingerprint, expose->spans[0].at, expose->spans[0].bytes);
    message->send_cookie = expose->cookie;
    message->send_waits = fake_random(world, 100) < world->pending_percent;
    if (message->send_waits)
        return WIRE_PENDING;
    copy_bytes(message);
    return WIRE_DONE;
}

static bool fake_send(struct wire_channel *channel, wire_key key, uint32_t tag, uint32_t peer, const void *at, size_t bytes)
{
    struct fake_channel *from = (struct fake_channel *)channel;
    struct fake_world *world = from->world;
    check_number(from, (int32_t)peer, key);
    if (fake_random(world, 100) < world->again_percent || fake_random(world, 100) < world->pending_percent)
        return false;
    copy_bytes(add_message(from, (int32_t)peer, key, tag, at, bytes));
    return true;
}

static void finish_view(struct fake_message *message)
{
    if (message->take)
        memcpy(message->land, message->at, message->take);
    message->view_waits = false;
    message->send_due = message->send_waits;
}

static enum wire_result fake_view(struct wire_channel *channel, const struct wire_look *look)
{
    struct fake_channel *to = (struct fake_channel *)channel;
    struct fake_world *world = to->world;
    struct fake_message *message = NULL;
    for (uint32_t i = 0; i < world->messages && !message; i++) {
        struct fake_message *each = &world->message[i];
        if (each->to == to->rank && each->from == (int32_t)look->peer && each->key == look->key)
            message = each;
    }
    assert_non_null(message);
    assert_true(message->announced && !message->viewed);
    assert_int_equal(look->fingerprint, message->tag);
    assert_non_null(look->land);
    assert_null(look->view);
    assert_int_equal(look->flags & WIRE_KIND, WIRE_MESSAGE);
    assert_true(look->bytes == (look->flags & WIRE_DISCARD ? 0 : message->bytes));
    if (fake_random(world, 100) < world->again_percent)
        return WIRE_AGAIN;
    message->viewed = true;
    message->land = look->land;
    message->take = look->bytes;
    message->view_cookie = look->cookie;
    message->view_waits = fake_random(world, 100) < world->pending_percent;
    if (message->view_waits)
        return WIRE_PENDING;
    finish_view(message);
    return WIRE_DONE;
}

static void fake_accept(struct wire_channel *channel, uint32_t peer, void *land)
{
    struct fake_channel *to = (struct fake_channel *)channel;
    const struct fake_message *message = to->world->next;
    assert_true(message && message->from == (int32_t)peer && message->to == to->rank);
    if (message->bytes)
        memcpy(land, message->at, message->bytes);
}

/* Without and with the way of whole messages. */
static const struct wire_class fake_class[] = {
    {.name = "fake", .expose = fake_expose, .view = fake_view, .accept = fake_accept},
    {.name = "fake", .expose = fake_expose, .view = fake_view, .accept = fake_accept, .send = fake_send},
};

void fake_open(struct fake_world *world, const struct comm_env *env, int32_t ranks, uint32_t depth, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->random = seed * 2 + 1;
    world->ranks = ranks;
    for (int32_t r = 0; r < ranks; r++) {
        world->channel[r] = (struct fake_channel){.base.class = &fake_class[seed % 2], .world = world, .rank = r};
        assert_int_equal(message_open(env, &world->channel[r].base, r, ranks, depth, &world->room[r]), COMM_OK);
    }
}

void fake_close(struct fake_world *world)
{
    for (int32_t r = 0; r < world->ranks; r++)
        message_close(world->room[r]);
    for (uint32_t i = 0; i < world->messages; i++)
        free(world->message[i].copy);
}

static bool is_next_of_pair(const struct fake_world *world, const struct fake_message *message)
{
    return !message->announced && wire_key_seq(message->key) == world->announced[message->from][message->to] + 1;
}

static void done(struct message_room *room, uint64_t cookie)
{
    message_event(room, &(struct wire_event){.kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = cookie});
}

static bool is_accepted(struct fake_world *world, struct fake_message *message, const struct wire_event *event)
{
    struct message_finished done;

    if (!world->accepted || message->send_waits || fake_random(world, 2))
        return false;
    world->next = message;
    message->viewed = message_accept(world->room[message->to], event, &done);
    if (!message->viewed)
        return false;
    world->arrival(world->arrival_arg, message->to, message);
    world->accepted(message->to, &done);
    return true;
}

static void announce(struct fake_world *world, struct fake_message *message)
{
    struct wire_event event = {.kind = WIRE_EVENT_ANNOUNCED,
                               .result = WIRE_MESSAGE,
                               .peer = message->from,
                               .key = message->key,
                               .tag = message->tag,
                               .bytes = message->bytes};

    message->announced = true;
    world->announced[message->from][message->to]++;
    if (is_accepted(world, message, &event))
        return;
    if (world->arrival)
        world->arrival(world->arrival_arg, message->to, message);
    message_event(world->room[message->to], &event);
}

static void act_on(struct fake_world *world, struct fake_message *message)
{
    if (is_next_of_pair(world, message)) {
        announce(world, message);
    } else if (message->view_waits) {
        finish_view(message);
        done(world->room[message->to], message->view_cookie);
    } else {
        message->send_due = false;
        message->send_waits = false;
        done(world->room[message->from], message->send_cookie);
    }
}

bool fake_act(struct fake_world *world)
{
    uint32_t start = world->messages ? fake_random(world, world->messages) : 0;
    for (uint32_t i = 0; i < world->messages; i++) {
        struct fake_message *message = &world->message[(start + i) % world->messages];
        if (is_next_of_pair(world, message) || message->view_waits || message->send_due) {
            act_on(world, message);
            return true;
        }
    }
    return false;
}

void fake_drain(struct fake_world *world)
{
    bool again = true;
    while (again) {
        again = fake_act(world);
        for (int32_t r = 0; r < world->ranks; r++) {
            bool moved = message_step(world->room[r]);
            again = again || moved || message_wants_step(world->room[r]);
        }
    }
}
