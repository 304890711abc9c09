/* Option check=buffers: the input of an operation must not change while it is in flight. */
#include "comm/state.h"

/* Is the operation's input only read? Blocks with gaps are not checked, because the gaps belong to the caller. */
static bool frozen(const struct comm_state *b, const struct entry *e)
{
    const struct timeline_range *read = &e->head.read;

    return b->world->check & CHECK_BUFFERS && !e->call.counts && !e->ended && !e->stage && read->from != read->to &&
           !timeline_meet(read, &e->head.write);
}

void check_freeze(struct comm_state *b, struct entry *e)
{
    if (frozen(b, e))
        e->sum = check_sum((const void *)e->head.read.from, e->head.read.to - e->head.read.from);
}

enum comm_result check_thaw(struct comm_state *b, const struct entry *e)
{
    if (!frozen(b, e) || e->sum == check_sum((const void *)e->head.read.from, e->head.read.to - e->head.read.from))
        return COMM_OK;
    base_log(&b->unit.engine->log, LOG_ERROR, "%s call %u (%s): its input was written while it was in flight", b->name, e->seq,
             collective_name(e->record.collective));
    return COMM_ERR_CORRUPT;
}
