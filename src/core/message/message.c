/*
 * The message room. A posted operation goes to the wire, is matched, or waits. Messages of an ordered pair of ranks are numbered in the
 * order of posting. A send that the wire has no room for blocks later sends to the same peer, but no others. Sends to this rank are matched
 * by a copy out of the sender's buffer.
 *
 * Memory: depth bounds the posted operations. Arrivals without a receive cannot be refused, so only the flow control of the senders' wires
 * bounds them. If there is no memory for an arrival, the order is lost. Then every unmatched operation and every later one ends with
 * MEMORY.
 */
#include "message/message.h"

#include <string.h>

#include "base/check.h"
#include "message/room.h"

static void queue_push(struct message_queue *queue, struct message_node *node)
{
    node->next = NULL;
    if (queue->first)
        queue->last->next = node;
    else
        queue->first = node;
    queue->last = node;
}

static struct message_node *queue_pop(struct message_queue *queue)
{
    struct message_node *node = queue->first;
    if (node)
        queue->first = node->next;
    return node;
}

static size_t room_bytes(int32_t size)
{
    return sizeof(struct message_room) + (size_t)size * sizeof(struct message_peer);
}

static inline void tell_status(struct comm_status *status, int32_t peer, uint32_t tag, size_t bytes)
{
    status->peer = peer;
    status->tag = tag;
    status->bytes = bytes;
}

static void finish(struct message_room *room, struct message_node *node, enum comm_result result)
{
    BASE_ASSERT(node->state != MESSAGE_FINISHED && node->state != MESSAGE_EARLY && room->pending > 0);
    if (node->status && (result == COMM_OK || result == COMM_ERR_TRUNCATED))
        tell_status(node->status, node->peer, node->tag, node->arrived_bytes);
    node->result = result;
    node->state = MESSAGE_FINISHED;
    room->pending--;
    room->due.finished++;
    queue_push(&room->finished, node);
}

static enum comm_result received(const struct message_node *node)
{
    return node->arrived_bytes > node->bytes ? COMM_ERR_TRUNCATED : COMM_OK;
}

static uint64_t cookie_of(const struct message_node *node)
{
    return (uint64_t)(MESSAGE_COOKIE | node->index) << 32 | node->generation;
}

/* Applies the wire's answer to a node. False: the wire had no room. */
static bool wired(struct message_room *room, struct message_node *node, enum wire_result result)
{
    if (result == WIRE_AGAIN) {
        node->state = MESSAGE_STALLED;
        return false;
    }
    if (result == WIRE_PENDING) {
        node->state = MESSAGE_WIRED;
        return true;
    }
    BASE_ASSERT(result == WIRE_DONE || result == WIRE_MISMATCH || (result == WIRE_FAILED && node->is_send));
    enum comm_result own = node->is_send ? COMM_OK : received(node);
    if (result != WIRE_DONE)
        own = result == WIRE_MISMATCH ? COMM_ERR_MISMATCH : COMM_ERR_MEMORY;
    finish(room, node, own);
    return true;
}

static bool expose(struct message_room *room, struct message_node *node)
{
    struct message_peer *peer = &room->peer[node->peer];
    uint32_t number = wire_message_after(peer->sent);
    struct wire_expose call = {.key = wire_key_of(number, node->kind, 0),
                               .fingerprint = node->tag,
                               .flags = WIRE_MESSAGE,
                               .peers = &node->wire_peer,
                               .npeers = 1,
                               .nspans = 1,
                               .spans = &node->span,
                               .cookie = cookie_of(node),
                               .there = node->moved};
    enum wire_result result = room->channel->class->expose(room->channel, &call);
    if (!wired(room, node, result))
        return false;
    if (result != WIRE_FAILED) /* a send that failed alone does not use up its number */
        peer->sent = number;
    return true;
}

/* Always gives a place to land, also for 0 bytes, so that no view must be released. */
static bool view(struct message_room *room, struct message_node *node)
{
    bool discard = received(node) != COMM_OK;
    struct wire_look call = {
        .key = node->key,
        .fingerprint = node->tag,
        .flags = (uint16_t)(WIRE_MESSAGE | (discard ? WIRE_DISCARD : 0)),
        .peer = (uint32_t)node->peer,
        .land = node->buf ? node->buf : &node->span,
        .bytes = discard ? 0 : node->arrived_bytes,
        .came = discard ? NULL : node->moved,
        .cookie = cookie_of(node),
    };
    return wired(room, node, room->channel->class->view(room->channel, &call));
}

/* Takes the message for a receive that was just matched. */
static void take_wired(struct message_room *room, struct message_node *receive, const struct wire_event *message)
{
    receive->peer = message->peer;
    receive->tag = message->tag;
    receive->key = message->key;
    receive->arrived_bytes = message->bytes;
    if (view(room, receive))
        return;
    queue_push(&room->untaken, receive);
    room->due.stalled++;
}

static void take_self(struct message_room *room, struct message_node *receive, struct message_node *send)
{
    receive->peer = send->peer;
    receive->tag = send->tag;
    receive->arrived_bytes = send->bytes;
    if (received(receive) == COMM_OK && send->bytes > 0)
        memcpy(receive->buf, send->buf, send->bytes);
    finish(room, send, COMM_OK);
    finish(room, receive, received(receive));
}

static struct message_node *take_node(struct message_room *room)
{
    uint32_t before = room->pool.nodes;
    struct message_node *node = message_pool_take(&room->pool);
    if (BASE_UNLIKELY(room->pool.nodes != before))
        message_match_grow(&room->match, room->pool.nodes);
    return node;
}

static void post_receive(struct message_room *room, struct message_node *node)
{
    struct message_node *arrival = message_match_arrival(&room->match, node->peer, node->tag);
    node->state = MESSAGE_POSTED;
    if (!arrival) {
        message_match_add(&room->match, node);
        return;
    }
    message_match_remove(arrival);
    if (arrival->state == MESSAGE_SELF) {
        take_self(room, node, arrival);
        return;
    }
    struct wire_event message = {.key = arrival->key, .peer = arrival->peer, .tag = arrival->tag, .bytes = arrival->bytes};
    message_pool_give(&room->pool, arrival);
    take_wired(room, node, &message);
}

static void post_self(struct message_room *room, struct message_node *node)
{
    struct message_node *receive = message_match_receive(&room->match, node->peer, node->tag);
    node->state = MESSAGE_SELF;
    if (!receive) {
        message_match_add(&room->match, node);
        return;
    }
    message_match_remove(receive);
    take_self(room, receive, node);
}

static void stall_peer(struct message_room *room, int32_t rank)
{
    room->peer[rank].next_stalled = room->stalled_peers;
    room->stalled_peers = (uint32_t)rank + 1;
    room->due.stalled++;
}

static void post_send(struct message_room *room, struct message_node *node)
{
    struct message_peer *peer = &room->peer[node->peer];
    node->span = (struct wire_span){.at = node->buf, .bytes = node->bytes};
    node->wire_peer = (uint16_t)node->peer;
    if (peer->unsent.first) {
        node->state = MESSAGE_STALLED;
        queue_push(&peer->unsent, node);
    } else if (!expose(room, node)) {
        queue_push(&peer->unsent, node);
        stall_peer(room, node->peer);
    }
}

/* The queue in which arrivals of that kind wait. */
static struct message_queue *queue_of(struct message_room *room, uint32_t kind, int32_t peer)
{
    return kind == MESSAGE_SETUP ? &room->setup_messages : &room->peer[peer].came[kind == MESSAGE_ANSWER];
}

/* Takes the oldest arrival of its kind. The caller has checked that there is one. */
static void take_own(struct message_room *room, struct message_node *node)
{
    struct message_node *arrival = queue_pop(queue_of(room, node->kind, node->peer));
    struct wire_event message = {.key = arrival->key, .peer = arrival->peer, .tag = arrival->tag, .bytes = arrival->bytes};

    room->came -= node->kind != MESSAGE_SETUP;
    message_pool_give(&room->pool, arrival);
    take_wired(room, node, &message);
}

enum comm_result message_open(const struct comm_env *env, struct wire_channel *channel, int32_t rank, int32_t size, uint32_t depth,
                              struct message_room **room)
{
    struct message_room *made = env->take(env, room_bytes(size), _Alignof(struct message_room));
    if (!made)
        return COMM_ERR_MEMORY;
    made->env = env;
    made->channel = channel;
    made->rank = rank;
    made->size = size;
    made->depth = depth;
    made->pool.env = env;
    message_match_open(&made->match, env);
    *room = made;
    return COMM_OK;
}

void message_close(struct message_room *room)
{
    if (!room)
        return;
    message_match_close(&room->match);
    message_pool_close(&room->pool);
    room->env->give(room->env, room, room_bytes(room->size));
}

enum comm_result message_post(struct message_room *room, const struct message_call *call)
{
    if (BASE_UNLIKELY(room->refused != COMM_OK))
        return room->refused;
    bool own = call->kind != MESSAGE_PROGRAM;
    if (room->live >= room->depth && !own)
        return COMM_ERR_FULL;
    BASE_ASSERT(!own || call->is_send || queue_of(room, call->kind, call->peer)->first);
    struct message_node *node = take_node(room);
    if (!node)
        return COMM_ERR_MEMORY;
    node->buf = call->buf;
    node->bytes = call->bytes;
    node->peer = call->peer;
    node->tag = own ? COMM_ANY_TAG : call->tag;
    node->kind = call->kind;
    node->status = call->is_send ? NULL : call->status;
    node->slot = call->slot;
    node->moved = call->moved;
    node->is_send = call->is_send;
    room->live++;
    room->pending++;
    if (!call->is_send && own)
        take_own(room, node);
    else if (!call->is_send)
        post_receive(room, node);
    else if (call->peer == room->rank)
        post_self(room, node);
    else
        post_send(room, node);
    return COMM_OK;
}

bool message_send_whole(struct message_room *room, const struct message_call *call)
{
    struct message_peer *peer = &room->peer[call->peer];
    const struct wire_class *wire = room->channel->class;
    if (!wire->send || room->refused != COMM_OK || room->live >= room->depth || call->peer == room->rank || peer->unsent.first)
        return false;
    uint32_t number = wire_message_after(peer->sent);
    wire_key key = wire_key_of(number, MESSAGE_PROGRAM, 0);
    if (!wire->send(room->channel, key, call->tag, (uint32_t)call->peer, call->buf, call->bytes))
        return false;
    peer->sent = number;
    return true;
}

enum comm_result message_cancel(struct message_room *room, uint32_t slot, enum comm_result result)
{
    struct message_node *node = message_match_posted_slot(&room->match, slot);
    if (!node)
        return COMM_ERR_STATE;
    message_match_remove(node);
    finish(room, node, result);
    return COMM_OK;
}

static void end_posted(struct message_room *room, enum comm_result result)
{
    struct message_node *node;
    while ((node = message_match_oldest_posted(&room->match))) {
        message_match_remove(node);
        finish(room, node, result);
    }
}

void message_cancel_all(struct message_room *room)
{
    end_posted(room, COMM_ERR_CANCELLED);
}

static void announced(struct message_room *room, const struct wire_event *event)
{
    uint32_t kind = wire_key_round(event->key);
    bool own = kind != MESSAGE_PROGRAM && kind < MESSAGE_KINDS;
    struct message_node *receive = own ? NULL : message_match_receive(&room->match, event->peer, event->tag);
    if (receive) {
        message_match_remove(receive);
        take_wired(room, receive, event);
        return;
    }
    struct message_node *arrival = take_node(room);
    if (BASE_UNLIKELY(!arrival)) {
        room->refused = COMM_ERR_MEMORY;
        end_posted(room, COMM_ERR_MEMORY);
        return;
    }
    arrival->state = own ? MESSAGE_UNTAKEN : MESSAGE_EARLY;
    arrival->is_send = false;
    arrival->peer = event->peer;
    arrival->tag = event->tag;
    arrival->key = event->key;
    arrival->bytes = event->bytes;
    room->came += own && kind != MESSAGE_SETUP;
    if (own)
        queue_push(queue_of(room, kind, event->peer), arrival);
    else
        message_match_add(&room->match, arrival);
}

static void completed(struct message_room *room, const struct wire_event *event)
{
    uint32_t index = (uint32_t)(event->cookie >> 32) & ~MESSAGE_COOKIE;
    if (index >= room->pool.nodes)
        return;
    struct message_node *node = message_pool_at(&room->pool, index);
    if (node->state == MESSAGE_WIRED && node->generation == (uint32_t)event->cookie)
        (void)wired(room, node, (enum wire_result)event->result);
}

bool message_accept(struct message_room *room, const struct wire_event *message, struct message_finished *done)
{
    if (wire_key_round(message->key) != MESSAGE_PROGRAM || room->refused != COMM_OK)
        return false;
    struct message_node *receive = message_match_receive(&room->match, message->peer, message->tag);
    if (!receive || receive->bytes < message->bytes)
        return false;
    message_match_remove(receive);
    room->channel->class->accept(room->channel, (uint32_t)message->peer, receive->buf);
    if (receive->moved)
        atomic_store_explicit(receive->moved, message->bytes, memory_order_release);
    if (receive->status)
        tell_status(receive->status, message->peer, message->tag, message->bytes);
    *done = (struct message_finished){.slot = receive->slot, .result = COMM_OK, .peer = message->peer, .bytes = message->bytes};
    message_pool_give(&room->pool, receive);
    room->live--;
    room->pending--;
    return true;
}

bool message_receive_whole(struct message_room *room, const struct message_call *call, const struct wire_event *message)
{
    bool fits = wire_key_round(message->key) == MESSAGE_PROGRAM && (call->tag == message->tag || call->tag == COMM_ANY_TAG) &&
                message->bytes <= call->bytes && room->refused == COMM_OK;
    if (!fits || message_match_receive(&room->match, message->peer, message->tag) ||
        message_match_arrival(&room->match, message->peer, call->tag))
        return false;
    room->channel->class->accept(room->channel, (uint32_t)message->peer, call->buf);
    if (call->status)
        tell_status(call->status, message->peer, message->tag, message->bytes);
    return true;
}

void message_event(struct message_room *room, const struct wire_event *event)
{
    if (event->kind == WIRE_EVENT_DONE)
        completed(room, event);
    else if (event->kind == WIRE_EVENT_ANNOUNCED && room->refused == COMM_OK)
        announced(room, event);
}

static bool step_sends(struct message_room *room)
{
    bool moved = false;
    uint32_t at = room->stalled_peers;
    room->stalled_peers = 0;
    while (at) {
        int32_t rank = (int32_t)(at - 1);
        struct message_peer *peer = &room->peer[rank];
        at = peer->next_stalled;
        room->due.stalled--;
        while (peer->unsent.first) {
            struct message_node *node = peer->unsent.first;
            struct message_node *rest = node->next; /* if it finishes at once, `next` links it into another queue */
            if (!expose(room, node))
                break;
            peer->unsent.first = rest;
            moved = true;
        }
        if (peer->unsent.first)
            stall_peer(room, rank);
    }
    return moved;
}

static bool step_receives(struct message_room *room)
{
    bool moved = false;
    struct message_queue again = {NULL, NULL};
    struct message_node *node;
    while ((node = queue_pop(&room->untaken))) {
        if (!view(room, node)) {
            queue_push(&again, node);
            continue;
        }
        moved = true;
        room->due.stalled--;
    }
    room->untaken = again;
    return moved;
}

bool message_step(struct message_room *room)
{
    bool sent = step_sends(room);
    return step_receives(room) || sent;
}

uint32_t message_take_finished(struct message_room *room, struct message_finished *out, uint32_t max)
{
    uint32_t count = 0;
    for (; count < max; count++) {
        struct message_node *node = queue_pop(&room->finished);
        if (!node)
            break;
        size_t bytes = node->is_send ? node->bytes : node->arrived_bytes;
        out[count] = (struct message_finished){.slot = node->slot, .result = node->result, .peer = node->peer, .bytes = bytes};
        message_pool_give(&room->pool, node);
        room->live--;
        room->due.finished--;
    }
    return count;
}

void message_fail(struct message_room *room, enum comm_result result)
{
    BASE_ASSERT(result < 0);
    room->refused = result;
    for (uint32_t i = 0; i < room->pool.nodes; i++) {
        struct message_node *node = message_pool_at(&room->pool, i);
        if (node->state == MESSAGE_POSTED || node->state == MESSAGE_EARLY || node->state == MESSAGE_SELF)
            message_match_remove(node);
        if (node->state == MESSAGE_EARLY || node->state == MESSAGE_UNTAKEN)
            message_pool_give(&room->pool, node);
        else if (node->state != MESSAGE_FREE && node->state != MESSAGE_FINISHED)
            finish(room, node, result);
    }
    room->untaken.first = room->setup_messages.first = NULL;
    room->stalled_peers = room->due.stalled = room->came = 0;
    for (int32_t rank = 0; rank < room->size; rank++)
        room->peer[rank].unsent.first = room->peer[rank].came[0].first = room->peer[rank].came[1].first = NULL;
}
