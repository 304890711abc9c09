/*
 * Validates everything that a peer sends, once, on arrival, whatever the wire. Afterwards, ranks are members, results are known values,
 * numbers are in range, and lengths fit the kind of note. A correct library sends nothing else, so a peer that does is broken or hostile:
 * the communicator fails with CORRUPT, which names the peer (comm/fail.c). An invalid note has no other effect.
 */
#include "heard/heard.h"
#include "heard/recovery_note.h"

#include "base/result.h"
#include "message/message.h"

#include <string.h>

/* Call numbers are compared as 32 bits that wrap, so no valid number is further away than this. */
#define NUMBERS_AHEAD UINT64_C(0x7fffffff)
enum { ROUNDS_OF_A_CAUSE = 2 }; /* proposed, chosen */

bool heard_is_result(int32_t result)
{
    return result == COMM_OK || heard_is_error(result);
}

bool heard_is_error(int32_t result)
{
    return result < 0 && base_result_is_known((enum comm_result)result);
}

static bool is_rank(int32_t rank, int32_t size)
{
    return rank >= 0 && rank < size;
}

static bool is_near(const struct heard_by *by, uint64_t number)
{
    return number <= by->sequence + NUMBERS_AHEAD;
}

/* The meaning of `code` depends on the result: milliseconds (which may be negative), a call number, a result, or the code of comm_abort. */
static bool is_code(const struct cause *c)
{
    return c->result == COMM_ERR_REFUSED ? heard_is_error(c->code) : c->result == COMM_ERR_ABORTED || c->code != INT32_MIN;
}

static const char *fault_of_failure(const struct heard_by *by, const struct cause *c, const struct wire_event *event)
{
    if (wire_key_round(event->key) >= ROUNDS_OF_A_CAUSE)
        return "a failure that is neither proposed nor chosen";
    if (!heard_is_error(c->result) || !is_code(c))
        return "a failure with no such result";
    if (c->rank < -1 || c->rank >= by->size || c->peer < -1 || c->peer >= by->size)
        return "a failure of no rank";
    if (c->collective >= COLLECTIVE_END || (c->result == COMM_ERR_DEPENDENCY && !heard_is_error((int32_t)c->point)))
        return "a failure of no operation";
    return is_near(by, c->number) ? NULL : "a failure of a call that no rank can have made";
}

static const char *fault_of_refusal(const struct heard_by *by, const struct cause *c, int32_t peer)
{
    if (c->rank != peer || c->result != COMM_ERR_REFUSED || !heard_is_error(c->code))
        return "a refusal that is not its own";
    return c->number && is_near(by, c->number) ? NULL : "a refusal of a call that it cannot have made";
}

static const char *fault_of_close(const struct heard_by *by, const struct cause *c, int32_t peer)
{
    if (c->rank != peer || c->result != COMM_ERR_CLOSED)
        return "a close that is not its own";
    return is_near(by, c->number) ? NULL : "a close behind a call that it cannot have made";
}

static const char *fault_of_recovery(const struct heard_by *by, const struct recovery_note *n, size_t bytes)
{
    uint32_t size = (uint32_t)by->size, last = size / 64;
    uint64_t beyond = size % 64 ? UINT64_MAX << size % 64 : 0;

    if (bytes != recovery_note_bytes(by->size))
        return "a note of recovery that is not as long as those of this communicator";
    if (n->accepted > size || n->kind > RECOVERY_JOINED || n->decided > 1)
        return "a note of recovery of no stage";
    if (!heard_is_result(n->could) || !heard_is_result(n->left))
        return "a note of recovery with no such result";
    for (uint32_t set = 0; beyond && set < RECOVERY_SETS; set++)
        if (n->set[(size_t)set * recovery_words(by->size) + last] & beyond)
            return "a note of recovery about ranks that are none";
    return NULL;
}

/* A wait of the sender, or, in a communicator of the whole world, a wait in another communicator of that world. */
static const char *fault_of_wait(const struct heard_by *by, const struct wait_note *n, int32_t peer)
{
    if (n->of == by->id ? n->rank != peer : !is_rank(n->rank, by->ranks))
        return "a queue wait of no rank";
    return n->collective > WAIT_SEND || n->halves > WAIT_HALVES || n->behind > 1 || n->quiet > 1 ? "a queue wait of no kind" : NULL;
}

static const char *fault_of_cause(const struct heard_by *by, const struct wire_event *event)
{
    struct cause cause;

    memcpy(&cause, event->note, sizeof cause);
    switch (wire_key_edge(event->key)) {
    case NOTE_FAILED:
        return fault_of_failure(by, &cause, event);
    case NOTE_REFUSED:
        return fault_of_refusal(by, &cause, event->peer);
    default:
        return fault_of_close(by, &cause, event->peer);
    }
}

const char *heard_note_fault(const struct heard_by *by, const struct wire_event *event)
{
    uint32_t sort = wire_key_edge(event->key);
    _Alignas(uint64_t) unsigned char bytes[WIRE_NOTE_LONG_BYTES];

    if (sort >= WIRE_NOTE_SORTS)
        return "a note of no sort";
    if (event->bytes > wire_note_bytes(sort))
        return "a note that is too long";
    if (sort == NOTE_RECOVERY && !by->recovers)
        return NULL; /* so many ranks that this communicator has no recovery */
    memcpy(bytes, event->note, event->bytes);
    if (sort == NOTE_RECOVERY)
        return fault_of_recovery(by, (const struct recovery_note *)(void *)bytes, event->bytes);
    if (event->bytes != (sort == NOTE_QUEUE_WAIT ? sizeof(struct wait_note) : sizeof(struct cause)))
        return "a note that is not as long as its sort's";
    return sort == NOTE_QUEUE_WAIT ? fault_of_wait(by, (const struct wait_note *)(void *)bytes, event->peer) : fault_of_cause(by, event);
}

const char *heard_message_fault(const struct wire_event *event)
{
    uint32_t kind = wire_key_round(event->key);

    if (kind >= MESSAGE_KINDS || wire_key_edge(event->key))
        return "a message of no kind";
    return kind == MESSAGE_PROGRAM && event->tag == COMM_ANY_TAG ? "a message with the tag that means any" : NULL;
}
