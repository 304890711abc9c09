/* Queries about a message room. They change nothing. */
#include "message/room.h"

bool message_setup(const struct message_room *room)
{
    return room->setup_messages.first != NULL;
}

uint32_t message_came(const struct message_room *room)
{
    return room->came;
}

bool message_came_from(const struct message_room *room, enum message_kind kind, int32_t peer, size_t *bytes)
{
    const struct message_node *first = room->peer[peer].came[kind == MESSAGE_ANSWER].first;

    if (first)
        *bytes = first->bytes;
    return first != NULL;
}

enum comm_result message_refused(const struct message_room *room)
{
    return room->refused;
}

bool message_probe(const struct message_room *room, int32_t peer, uint32_t tag, struct comm_status *status)
{
    const struct message_node *arrival = message_match_arrival(&room->match, peer, tag);
    if (arrival && status)
        *status = (struct comm_status){.peer = arrival->peer, .tag = arrival->tag, .bytes = arrival->bytes};
    return arrival != NULL;
}

uint32_t message_pending(const struct message_room *room)
{
    return room->pending;
}

bool message_waits(const struct message_room *room, uint32_t slot)
{
    bool waits = false;

    for (uint32_t i = 0; i < room->pool.nodes && !waits; i++) {
        const struct message_node *node = message_pool_at(&room->pool, i);
        waits = node->slot == slot &&
                (node->state == MESSAGE_POSTED || node->state == MESSAGE_SELF || (node->state == MESSAGE_WIRED && node->is_send));
    }
    return waits;
}

bool message_is_quiet(const struct message_room *room)
{
    bool quiet = !message_wants_step(room);

    for (uint32_t i = 0; i < room->pool.nodes && quiet; i++) {
        const struct message_node *node = message_pool_at(&room->pool, i);
        quiet = node->state != MESSAGE_STALLED && (node->state != MESSAGE_WIRED || node->is_send);
    }
    return quiet;
}
