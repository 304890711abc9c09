/*
 * timeline: the order of a communicator. Work takes tickets 1, 2, 3 ... It starts in order. It runs concurrently with unfinished work if
 * their buffers do not conflict. It retires in order, so that one word, `done`, answers for every request. Messages are in a second line,
 * whose slots complete one by one.
 *
 * This room knows no ranks, programs or wires. An entry is two address ranges and a kind; only its owner knows what it means. All calls
 * are made under the handle's lock, except those that test requests and points.
 */
#ifndef TIMELINE_TIMELINE_H
#define TIMELINE_TIMELINE_H

#include <commstream/request.h>

#include "base/check.h"
#include "base/home.h"

/* ------------------------------------------------------------------------------------------------------------ handles */
enum { TIMELINE_SLOT_CHUNKS = 16, TIMELINE_SLOTS_FIRST = 64, TIMELINE_EXCEPTIONS = 2000, TIMELINE_GROUPS = 1024 };

/* A request that failed alone, and its error. */
struct timeline_exception {
    uint64_t ticket;
    int32_t result;
    uint32_t reported; /* 1: its call, comm_sync or a test reported it */
};
/* Which of 64 successive tickets or message numbers failed alone: bit i is number 64 * group + i. */
struct timeline_group {
    uint64_t group, failed;
};
/* A ring of errors, and for each line the groups with errors, each at its number modulo TIMELINE_GROUPS. A later group takes the place of
 * an earlier one. So the ring may drop an error, and of 65,536 successive requests it is still known which ones succeeded. */
struct timeline_failures {
    struct timeline_exception ring[TIMELINE_EXCEPTIONS];
    struct timeline_group work[TIMELINE_GROUPS], message[TIMELINE_GROUPS];
};

/* What a request points at. It is never unmapped, so that a request never touches freed memory. A closed handle is reused, oldest first,
 * and its tickets continue. */
struct comm_communicator {
    _Alignas(64) _Atomic uint64_t done; /* highest retired ticket; written under the lock, read by any thread */
    _Atomic uint64_t failed;            /* first ticket that ended with the sticky cause; UINT64_MAX: none. Written after `result` */
    _Atomic uint64_t first;             /* lower tickets belong to an earlier life of this handle */
    _Atomic uint64_t next;              /* the next ticket to be issued */
    _Atomic uint32_t exceptions;        /* requests of this life that failed alone; if 0, `done` is enough to answer */
    _Atomic int32_t result;             /* the sticky cause */
    const _Atomic uint32_t *alive;      /* the word of its env that a fork clears */
    const struct comm_env *env;
    struct base_home_lock lock; /* of the communicator: timeline, messages, channel, runs */
    _Atomic uint32_t unseen;    /* the monitor did not get the lock: brief waits end, and the next step makes its checks */
    _Atomic uint32_t inside;    /* threads in a wait; close waits for them before it frees the state */
    _Atomic uint32_t closing;   /* comm_close has ended all work: waiters must leave */
    _Atomic uint64_t notifying; /* the thread inside this communicator's callbacks; 0: none */
    _Atomic(void *) state;      /* owned by the engine; NULL: closed. Read and written under the lock */
    uint64_t life;              /* counts its uses. Read under the lock, while `state` is not NULL, or under exception_lock */
    /* of messages and markers: chunk i has TIMELINE_SLOTS_FIRST << i; never freed */
    _Atomic(_Atomic uint64_t *) slots[TIMELINE_SLOT_CHUNKS];
    struct base_lock exception_lock;    /* protects the next five fields; no other lock is taken under it */
    struct timeline_failures *failures; /* NULL until the first; never freed */
    uint64_t exception_count;
    uint64_t dropped_work, dropped_message; /* highest ticket and message number that the ring no longer has */
    uint64_t first_message; /* lower message numbers belong to an earlier life; of an open handle also read under its lock */
    uint64_t next_message;
    struct comm_communicator *link; /* in the free list */
    _Atomic int32_t rank, size;     /* read by any thread without the lock, also while another closes the state */
    _Atomic uint32_t delivered;     /* counts passes that completed messages; written under the lock */
    _Atomic uint32_t glances;       /* tests and waits that found everything complete; threads that count at once may lose some */
};

/* NULL: no memory. Its env must exist as long as the process uses the library. */
struct comm_communicator *timeline_handle_take(const struct comm_env *env, void *state);
/* From now on all its requests return CLOSED. The caller owns the state again. */
void timeline_handle_give(struct comm_communicator *handle);

/* ------------------------------------------------------------------------------------------------------------ requests */
#define TIMELINE_MESSAGE (UINT64_C(1) << 63)
enum { TIMELINE_INDEX_BITS = 20 };
#define TIMELINE_NUMBERS (TIMELINE_MESSAGE >> TIMELINE_INDEX_BITS) /* of messages of one handle: 100 days of a million a second */

static inline uint32_t timeline_slot_index(uint64_t ticket)
{
    return (uint32_t)(ticket & ((1u << TIMELINE_INDEX_BITS) - 1));
}
static inline uint64_t timeline_slot_number(uint64_t ticket)
{
    return (ticket & ~TIMELINE_MESSAGE) >> TIMELINE_INDEX_BITS;
}

static inline struct comm_request timeline_refusal(enum comm_result result)
{
    return (struct comm_request){NULL, (uint64_t)(int64_t)result};
}
enum comm_result timeline_test_slow(struct comm_request request, bool told);

/* `first` is read last: a handle that is reused meanwhile has raised it before it forgets its exceptions. */
static inline bool timeline_is_ok(struct comm_request request)
{
    struct comm_communicator *handle = request.comm;

    return handle && request.ticket <= atomic_load_explicit(&handle->done, memory_order_acquire) &&
           atomic_load_explicit(&handle->exceptions, memory_order_acquire) == 0 &&
           request.ticket >= atomic_load_explicit(&handle->first, memory_order_relaxed);
}

/* OK, PENDING or the error, which a call of the program returns, so that comm_sync need not. Makes no progress. Any thread, no lock. A
 * complete request costs three loads and three compares. */
static inline enum comm_result timeline_test(struct comm_request request)
{
    return BASE_LIKELY(timeline_is_ok(request)) ? COMM_OK : timeline_test_slow(request, true);
}

/* The same for the library itself: comm_sync still reports the error. */
static inline enum comm_result timeline_peek(struct comm_request request)
{
    return BASE_LIKELY(timeline_is_ok(request)) ? COMM_OK : timeline_test_slow(request, false);
}

/* A call of the program returns this result. If it is the error of the request, comm_sync need not report it. */
static inline void timeline_tell(struct comm_request request, enum comm_result result)
{
    if (result < 0 && request.comm && timeline_peek(request) == result)
        (void)timeline_test(request);
}

/* Of a handle whose lock is held and that is open. OK: a request of this life of the handle; CLOSED: of an earlier one; ARGUMENT: no call
 * has returned it. */
enum comm_result timeline_belongs(struct comm_request request);

/* True: this message or marker has ended without an error. False: ask timeline_test. Costs two loads. No message has the number 0, with
 * which the words of unused slots begin. */
static inline bool timeline_slot_is_ok(struct comm_request request)
{
    uint32_t index = timeline_slot_index(request.ticket);
    _Atomic uint64_t *words = atomic_load_explicit(&request.comm->slots[0], memory_order_acquire);

    return index < TIMELINE_SLOTS_FIRST && words && timeline_slot_number(request.ticket) &&
           atomic_load_explicit(words + index, memory_order_acquire) == timeline_slot_number(request.ticket) << 8;
}

/* ------------------------------------------------------------------------------------------------------------ points */
/* A point that the program sets. Its event and the waits for it share it. */
struct timeline_manual {
    const struct comm_env *env;
    _Atomic uint32_t references;
    _Atomic int32_t state; /* COMM_PENDING, COMM_OK or COMM_ERR_ABANDONED */
};
enum timeline_point_kind { POINT_REACHED = 0, POINT_REQUEST, POINT_MANUAL, POINT_WORD };
/* A point never changes. A copy of a manual point holds a reference. */
struct timeline_point {
    enum timeline_point_kind kind;
    struct comm_request request;
    struct timeline_manual *manual;
    /* POINT_WORD: reached when *word >= value; another room writes the word. POINT_REQUEST: where a device stores the same point, for its
     * streams to wait for; NULL: nowhere. */
    const _Atomic uint64_t *word;
    uint64_t value;
};
struct timeline_manual *timeline_manual_make(const struct comm_env *env); /* one reference; NULL: no memory */
struct timeline_point timeline_point_copy(const struct timeline_point *point);
void timeline_point_drop(struct timeline_point *point);
enum comm_result timeline_point_test(const struct timeline_point *point); /* as timeline_peek */
/* c is being closed, and its requests will return CLOSED. So a point that is a request of c, if it is complete, keeps its result. */
void timeline_point_settle(struct timeline_point *point, const struct comm_communicator *c);

/* ------------------------------------------------------------------------------------------------------------ the queue */
struct timeline_range {
    uintptr_t from, to; /* from == to: empty */
};
enum timeline_kind {
    TIMELINE_WORK,       /* ordered by conflicts of its address ranges */
    TIMELINE_QUEUE_WAIT, /* a queue wait: everything later waits for it; it waits for nothing */
    TIMELINE_PASSED,     /* a queue wait whose point was reached before its turn: it holds back nothing, and ends at its turn */
    TIMELINE_BARRIER,    /* holds back work in both directions */
    TIMELINE_REFUSED,    /* ends at once with an error of its own */
};
enum timeline_state { TIMELINE_QUEUED, TIMELINE_STARTED, TIMELINE_ENDED };
/* For an entry that combines several operations: the ranges of one of them. One address range over all of them would also hold back
 * operations on the gaps between them, and waiting for such an operation could then never end. */
struct timeline_part {
    struct timeline_range read, write;
};
/* The first member of the owner's entry. */
struct timeline_entry {
    uint8_t kind, state;
    uint16_t parts; /* 0: the address ranges are exact */
    int32_t result; /* of a request that failed alone */
    struct timeline_range read, write;
    const struct timeline_part *part; /* memory of the owner, valid while the entry is unfinished */
    /* Of a call that is issued as several entries, one behind the other: how many of them are before this one. They touch different bytes,
     * so they do not conflict with each other, although their address ranges may overlap. */
    uint32_t nth;
};
/* The first entry of the call that an entry is of. */
static inline uint64_t timeline_first(const struct timeline_entry *e, uint64_t ticket)
{
    return ticket - e->nth;
}

/* The work queue of a communicator. Entries are in tickets done + 1 .. next - 1; those up to `started` have started. */
struct timeline {
    const struct comm_env *env;
    struct comm_communicator *handle;
    unsigned char *entries; /* a ring of capacity * entry_bytes, indexed by ticket */
    uint32_t capacity, capacity_max, entry_bytes, window;
    uint32_t ahead, reserved; /* ahead: how many entries may be started and not retired; `window` unless the owner sets another number */
    uint64_t next, started, done;
    uint64_t alone;        /* the only unfinished entry, if it is started and not yet in the address ranges below; otherwise 0 */
    uint32_t holding;      /* started queue waits and barriers that have not ended */
    uint32_t waits_issued; /* queue waits that have not ended, including queued ones */
    struct timeline_range queued_read, queued_write;   /* cover all queued entries, and maybe more */
    struct timeline_range started_read, started_write; /* cover all entries that are started and unfinished, and maybe more */
    uint32_t high_water, unused;
};

/* capacity_max: how many entries it may hold, a power of two. */
enum comm_result timeline_open(struct timeline *line, const struct comm_env *env, struct comm_communicator *handle, uint32_t entry_bytes,
                               uint32_t window, uint32_t capacity_max);
void timeline_close(struct timeline *line);

static inline struct timeline_entry *timeline_entry(const struct timeline *line, uint64_t ticket)
{
    return (struct timeline_entry *)(void *)(line->entries + (size_t)(ticket & (line->capacity - 1)) * line->entry_bytes);
}

/* Makes the next `count` calls of timeline_room succeed. false: nothing changed. */
bool timeline_reserve(struct timeline *line, uint64_t count);
/* Makes room for one entry and returns it; its ticket is line->next. Nothing is issued until timeline_issue. NULL: *why is FULL, also if
 * there is no memory to grow. Then nothing was queued, and the call succeeds after queued entries have retired. */
static inline struct timeline_entry *timeline_room(struct timeline *line, enum comm_result *why)
{
    if (BASE_UNLIKELY(line->next - line->done > line->capacity) && !timeline_reserve(line, 1)) {
        *why = COMM_ERR_FULL;
        return NULL;
    }
    return timeline_entry(line, line->next);
}
/* The next entry that may start now, or 0. The owner must check for conflicts with messages. */
uint64_t timeline_startable(const struct timeline *line);
/* The next ended entry in order that is not retired yet; 0: none. The owner cleans it up, then calls timeline_retire. */
static inline uint64_t timeline_retirable(const struct timeline *line)
{
    return line->done < line->started && timeline_entry(line, line->done + 1)->state == TIMELINE_ENDED ? line->done + 1 : 0;
}
/* Sets the sticky failure: nothing retires afterwards. `failed` is set only once. */
void timeline_fail(struct timeline *line, enum comm_result cause);
/* Does an unfinished entry before `ticket` hold back a message with these address ranges? */
bool timeline_holds(const struct timeline *line, uint64_t ticket, const struct timeline_range *read, const struct timeline_range *write);

/* The point of a queued wait is reached before its turn. */
void timeline_pass_wait(struct timeline *line, struct timeline_entry *wait);

/* Records that a request (work or message) failed alone. told: its call has returned the error. */
void timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told);
/* Returns the first error of this life that was not reported yet, and marks it as reported; COMM_OK: none, or that life is over. */
enum comm_result timeline_untold(struct comm_communicator *handle, uint64_t life);

/* Does an entry conflict with an operation that accesses these ranges? */
bool timeline_conflict(const struct timeline_entry *entry, const struct timeline_range *read, const struct timeline_range *write);

/* Do the ranges overlap? An empty range overlaps nothing. */
static inline bool timeline_meet(const struct timeline_range *a, const struct timeline_range *b)
{
    uintptr_t from = a->from > b->from ? a->from : b->from, to = a->to < b->to ? a->to : b->to;

    return from < to;
}
static inline void timeline_widen(struct timeline_range *range, const struct timeline_range *by)
{
    if (by->from == by->to)
        return;
    if (range->from == range->to) {
        *range = *by;
        return;
    }
    range->from = by->from < range->from ? by->from : range->from;
    range->to = by->to > range->to ? by->to : range->to;
}

/* A second entry comes while one entry is alone: put the first one into the address ranges. */
static inline void timeline_join(struct timeline *line)
{
    const struct timeline_entry *e = timeline_entry(line, line->alone);

    if (BASE_LIKELY(!line->alone))
        return;
    line->alone = 0;
    line->started_read = e->read;
    line->started_write = e->write;
}

/* Takes the next ticket for the entry that timeline_room returned. */
static inline uint64_t timeline_issue(struct timeline *line)
{
    uint64_t ticket = line->next++;
    struct timeline_entry *e = timeline_entry(line, ticket);
    uint32_t held = (uint32_t)(ticket - line->done);

    timeline_join(line);
    e->state = TIMELINE_QUEUED;
    line->waits_issued += e->kind == TIMELINE_QUEUE_WAIT;
    timeline_widen(&line->queued_read, &e->read);
    timeline_widen(&line->queued_write, &e->write);
    if (held > line->high_water)
        line->high_water = held;
    atomic_store_explicit(&line->handle->next, line->next, memory_order_release);
    return ticket;
}

static inline void timeline_start(struct timeline *line, uint64_t ticket)
{
    struct timeline_entry *e = timeline_entry(line, ticket);

    BASE_ASSERT(ticket == line->started + 1 && e->state == TIMELINE_QUEUED);
    line->started = ticket;
    e->state = TIMELINE_STARTED;
    line->holding += e->kind == TIMELINE_QUEUE_WAIT || e->kind == TIMELINE_BARRIER;
    timeline_widen(&line->started_read, &e->read);
    timeline_widen(&line->started_write, &e->write);
    if (ticket + 1 == line->next)
        line->queued_read = line->queued_write = (struct timeline_range){0, 0};
}

static inline void timeline_end(struct timeline *line, uint64_t ticket, enum comm_result result)
{
    struct timeline_entry *e = timeline_entry(line, ticket);

    BASE_ASSERT(e->state == TIMELINE_STARTED);
    e->state = TIMELINE_ENDED;
    e->result = result;
    line->holding -= e->kind == TIMELINE_QUEUE_WAIT || e->kind == TIMELINE_BARRIER;
    line->waits_issued -= e->kind == TIMELINE_QUEUE_WAIT;
}

static inline void timeline_done(struct timeline *line, uint64_t ticket)
{
    line->done = ticket;
    if (line->alone)
        line->alone = 0;
    else if (ticket == line->started)
        line->started_read = line->started_write = (struct timeline_range){0, 0};
    atomic_store_explicit(&line->handle->done, ticket, memory_order_release);
}

static inline void timeline_retire(struct timeline *line)
{
    uint64_t ticket = line->done + 1;
    struct timeline_entry *e = timeline_entry(line, ticket);

    BASE_ASSERT(e->state == TIMELINE_ENDED);
    if (e->result != COMM_OK)
        timeline_except(line->handle, ticket, (enum comm_result)e->result, e->kind == TIMELINE_REFUSED);
    timeline_done(line, ticket);
}

/* Issues and starts the entry that timeline_room returned, if nothing else is unfinished. Usually nothing joins it, so its address ranges
 * are not recorded until timeline_join. */
static inline uint64_t timeline_issue_alone(struct timeline *line, struct timeline_entry *e)
{
    uint64_t ticket = line->next++;

    BASE_DEBUG_ASSERT(e == timeline_entry(line, ticket));
    BASE_DEBUG_ASSERT(line->done + 1 == ticket && !line->holding && !line->waits_issued);
    e->state = TIMELINE_STARTED;
    line->started = ticket;
    line->holding = e->kind == TIMELINE_BARRIER;
    line->alone = ticket;
    line->high_water += line->high_water == 0;
    atomic_store_explicit(&line->handle->next, line->next, memory_order_release);
    return ticket;
}

/* Issues, starts, ends and retires at once, if nothing else is unfinished. It never has an entry. */
static inline uint64_t timeline_pass(struct timeline *line)
{
    uint64_t ticket = line->next++;

    BASE_DEBUG_ASSERT(line->done + 1 == ticket && !line->holding && !line->waits_issued);
    line->started = line->done = ticket;
    line->high_water += line->high_water == 0;
    atomic_store_explicit(&line->handle->next, line->next, memory_order_release);
    atomic_store_explicit(&line->handle->done, ticket, memory_order_release);
    return ticket;
}

/* May an operation with these ranges be issued and started next to the unfinished entries, which are all started? It compares with the
 * union of their ranges: true is certain, false may be wrong. */
static inline bool timeline_beside(struct timeline *line, const struct timeline_range *read, const struct timeline_range *write)
{
    uint64_t held = line->next - line->done;

    if (held > line->window || held > line->capacity || line->holding)
        return false;
    timeline_join(line);
    return !timeline_meet(write, &line->started_read) && !timeline_meet(write, &line->started_write) &&
           !timeline_meet(read, &line->started_write);
}

/* Issues and starts the entry that timeline_room returned, next to unfinished entries. All of them are started, and it conflicts with
 * none. */
static inline uint64_t timeline_issue_beside(struct timeline *line, struct timeline_entry *e)
{
    uint64_t ticket = line->next++;
    uint32_t held = (uint32_t)(ticket - line->done);

    BASE_DEBUG_ASSERT(e == timeline_entry(line, ticket) && e->kind == TIMELINE_WORK);
    BASE_DEBUG_ASSERT(line->started + 1 == ticket && !line->alone && !line->holding && !line->waits_issued);
    e->state = TIMELINE_STARTED;
    line->started = ticket;
    timeline_widen(&line->started_read, &e->read);
    timeline_widen(&line->started_write, &e->write);
    if (held > line->high_water)
        line->high_water = held;
    atomic_store_explicit(&line->handle->next, line->next, memory_order_release);
    return ticket;
}

/* Ends and retires the oldest entry, which is this one and succeeded. */
static inline void timeline_retire_oldest(struct timeline *line, struct timeline_entry *e)
{
    uint64_t ticket = line->done + 1;

    BASE_DEBUG_ASSERT(e == timeline_entry(line, ticket));
    BASE_DEBUG_ASSERT(e->state == TIMELINE_STARTED);
    e->state = TIMELINE_ENDED;
    e->result = COMM_OK;
    line->holding -= e->kind == TIMELINE_BARRIER;
    timeline_done(line, ticket);
}

/* ------------------------------------------------------------------------------------------------------------ slots of messages */
/* One word per slot: number << 8 | state (1 pending, 0 ok, otherwise an error as int8). A slot is reused under a new number. */
/* Makes slot `index` pending under the next message number. Returns its ticket, or 0 if there is no memory for the slots, or all
 * numbers are used up. */
uint64_t timeline_slot_open(struct comm_communicator *handle, uint32_t index);
/* From then on there is memory for all slots below `count`. False: there is none now. */
bool timeline_slots_reserve(struct comm_communicator *handle, uint32_t count);
void timeline_slot_finish(struct comm_communicator *handle, uint64_t ticket, enum comm_result result);
/* The ticket of the slot's last message, if that failed and its error is not yet recorded by number; otherwise 0. */
uint64_t timeline_slot_error(struct comm_communicator *handle, uint32_t index, enum comm_result *result);

#endif
