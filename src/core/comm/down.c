/* Members that have closed or died. */
#include "comm/state.h"

bool state_has_left(const struct comm_state *b, int32_t rank)
{
    int64_t lead = b->channel->caps.note_lead_ns;

    return b->failure.closed_at[rank] && (!lead || b->unit.engine->env->now(b->unit.engine->env) - b->failure.closed_ns >= lead);
}

/* The newest call of a member that is visible here. If its close note was lost, that was its last call. */
static uint64_t last_call(const struct comm_state *b, int32_t rank)
{
    const struct wire_call *ring = b->channel->peer_calls[rank];
    uint32_t last = 0;

    for (uint32_t i = 0; ring && i <= b->calls.mask; i++) {
        uint32_t seq = atomic_load_explicit(&ring[i].seq, memory_order_acquire);
        if (seq && (!last || (int32_t)(seq - last) > 0))
            last = seq;
    }
    return last;
}

/* A member that gave this rank up makes this rank the cause. One that closed normally fails only what needs it (state_check_peers). */
void state_down(struct comm_state *b, int32_t rank, const struct wire_event *event)
{
    const struct entry *oldest = b->line.done < b->line.started ? state_entry(b, b->line.done + 1) : NULL;
    struct cause cause = {.number = oldest && oldest->seq ? oldest->seq : b->sequence,
                          .rank = event->tag == WIRE_GAVE_UP ? b->team.rank : rank,
                          .peer = event->tag == WIRE_GAVE_UP ? rank : b->team.rank,
                          .result = event->result,
                          .collective = oldest ? oldest->record.collective : 0,
                          .code = (event->tag == WIRE_CUT ? -1 : 1) * (int32_t)(event->bytes / 1000000)};

    if (b->failure.closed_at[rank])
        return;
    if (event->result != COMM_ERR_CLOSED) {
        state_propose(b, &cause);
        return;
    }
    b->failure.closed_at[rank] = 1 + last_call(b, rank);
    b->failure.closed_ns = b->unit.engine->env->now(b->unit.engine->env);
}

/* The wire lost data of a member that has closed. It had made its calls, but their data were lost in transit or never accepted. If a member
 * died, its death is reported instead. */
void state_lost(struct comm_state *b, const struct wire_event *event)
{
    int32_t rank = event->peer;
    uint32_t seq = wire_key_seq(event->key);
    uint64_t ticket = b->line.done + 1;

    state_down(b, rank, event);
    if (!b->failure.closed_at[rank])
        return;
    while (seq && ticket < b->line.started && state_entry(b, ticket)->seq != seq)
        ticket++;
    state_propose(b, &(struct cause){.number = seq ? seq : b->sequence,
                                     .rank = rank,
                                     .peer = b->team.rank,
                                     .result = COMM_ERR_CLOSED,
                                     .collective = seq && ticket <= b->line.started ? state_entry(b, ticket)->record.collective : 0,
                                     .code = (int32_t)(b->failure.closed_at[rank] - 1),
                                     .point = 1});
}

void state_hear_down(struct comm_state *b)
{
    for (int32_t r = 0; r < b->team.size; r++) {
        struct wire_event end = world_end(b->world, b->team.world[r]);
        if (end.result && r != b->team.rank)
            state_down(b, r, &end);
    }
}
