/*
 * A device keeps its places in slots. Each slot has an event and a word. A slot is free again when its place is reached. Each new place of
 * the slot has a larger value, so a copy of an old place stays reached and needs no owner. A stream that waits for a place waits for the
 * event of its slot. If the slot holds a later place already, the place was reached and the stream need not wait.
 *
 * What waits for a word that the host writes is a park stream, since it blocks its hardware queue. There are few of them, so all such waits
 * of one stream, which follow one another anyway, are on one of them (a gate).
 */
#include "cuda/device.h"

enum { POLL_REST_NS = 20000, POLL_RESTS = 8 /* times the length of the poll before */ };
enum { SPARE = 32 }; /* slots that are free and were used before: if there are fewer, one more comes into use */

static bool reached(const struct cuda_device *d, uint32_t index)
{
    return atomic_load_explicit(&d->words[index], memory_order_acquire) >= d->slot[index].value;
}

static void give_slot(struct cuda_device *d, uint32_t index)
{
    struct cuda_slot *s = &d->slot[index];

    if (s->gives)
        cuda_give_word(d, s->gives);
    s->gives = 0;
    s->host_writes = false;
    s->next = 0;
    if (d->free)
        d->slot[d->free_last - 1].next = index + 1;
    else
        d->free = index + 1;
    d->free_last = index + 1;
    d->spare++;
}

/* Moves the slots that were reached from the pending list to the free list. */
static void sweep(struct cuda_device *d)
{
    uint32_t before = 0, left = 0;

    for (uint32_t i = d->pending_first, next; i; i = next) {
        next = d->slot[i - 1].next;
        if (!reached(d, i - 1)) {
            before = i;
            left++;
            continue;
        }
        if (before)
            d->slot[before - 1].next = next;
        else
            d->pending_first = next;
        give_slot(d, i - 1);
    }
    d->pending_last = before;
    d->sweep_at = 2 * left + SPARE; /* so that a sweep costs each place little */
    atomic_store_explicit(&d->pending, left, memory_order_relaxed);
}

/* Uses a slot for the first time. */
static enum comm_result make_slot(struct cuda_device *d)
{
    unsigned result = d->calls->cuEventCreate(&d->slot[d->used].event, CUDA_EVENT_DISABLE_TIMING);

    if (result == CUDA_OK)
        give_slot(d, d->used++);
    else
        d->slot[d->used].event = NULL;
    return cuda_result(result);
}

/* A slot that was just given back is not taken at once: a stream of another device that is about to wait for its place would wait for a
 * later one. So a few are spare, and of those the one that was given back first is taken. A program that goes on as before needs no more
 * slots, and so no more events, than at its start. */
static enum comm_result take_slot(struct cuda_device *d, uint32_t *index)
{
    enum comm_result r = COMM_OK;

    if (d->spare < SPARE && atomic_load_explicit(&d->pending, memory_order_relaxed) >= d->sweep_at)
        sweep(d);
    if (d->spare < SPARE && d->used < CUDA_SLOTS)
        r = make_slot(d);
    if (!d->free)
        (void)cuda_poll(d); /* without memops nothing else writes the words */
    if (!d->free)
        return r == COMM_OK ? COMM_ERR_FULL : r;
    *index = d->free - 1;
    d->free = d->slot[*index].next;
    d->slot[*index].next = 0;
    d->spare--;
    return COMM_OK;
}

bool cuda_has_place(struct cuda_device *d)
{
    if (!d->free && d->used == CUDA_SLOTS)
        (void)cuda_poll(d);
    return d->free || d->used < CUDA_SLOTS;
}

/* Appends the slot to the pending list, and returns its new place. */
static void keep_slot(struct cuda_device *d, uint32_t index, struct device_place *place)
{
    if (d->pending_last)
        d->slot[d->pending_last - 1].next = index + 1;
    else
        d->pending_first = index + 1;
    d->pending_last = index + 1;
    atomic_fetch_add_explicit(&d->pending, 1, memory_order_relaxed);
    *place = (struct device_place){&d->words[index], d->slot[index].value};
}

enum comm_result cuda_place(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place)
{
    uint32_t index = 0;
    enum comm_result r = take_slot(d, &index);

    if (r != COMM_OK)
        return r;
    struct cuda_slot *s = &d->slot[index];
    unsigned result = d->calls->cuEventRecord(s->event, stream);
    if (result == CUDA_OK && d->memops)
        result = d->calls->cuStreamWriteValue64(stream, cuda_word_there(d, index), s->value + 1, 0);
    if (result != CUDA_OK) { /* the word keeps its value, so the slot keeps its place */
        give_slot(d, index);
        return cuda_result(result);
    }
    s->value++;
    keep_slot(d, index, place);
    return COMM_OK;
}

static struct cuda_device *owner(const struct device_place *place, uint32_t *index)
{
    for (int i = 0; i < CUDA_DEVICES; i++) {
        struct cuda_device *d = atomic_load_explicit(&cuda_process.device[i], memory_order_acquire);
        if (d && place->word >= d->words && place->word < d->words + CUDA_SLOTS) {
            *index = (uint32_t)(place->word - d->words);
            return d;
        }
    }
    return NULL;
}

/* The place may belong to another device, whose slots change under another lock. A slot gets a new place only after this place was reached.
 * So if the event already belongs to a later place, the stream waits longer than needed, but never too short. */
enum comm_result cuda_wait(struct cuda_device *d, struct CUstream_st *stream, const struct device_place *place)
{
    uint32_t index;
    struct cuda_device *from = owner(place, &index);

    if (atomic_load_explicit(place->word, memory_order_acquire) >= place->value)
        return COMM_OK;
    if (!from)
        return COMM_ERR_UNSUPPORTED;
    return cuda_result(d->calls->cuStreamWaitEvent(stream, from->slot[index].event, 0));
}

/* ------------------------------------------------------------------------------------------------------------ parking */
static uint32_t park_word(uint32_t park)
{
    return CUDA_SLOTS + CUDA_WORDS + park;
}

static bool stands(const struct cuda_device *d, uint32_t park)
{
    return atomic_load_explicit(&d->words[park_word(park)], memory_order_acquire) < d->park[park].waits;
}

bool cuda_has_parks(const struct cuda_device *d)
{
    bool any = false;

    for (uint32_t i = 0; i < CUDA_PARKS; i++)
        any |= stands(d, i);
    return any;
}

/* The park for one more wait: for a gate the one that has its waits, otherwise one that is free. CUDA_PARKS: there is none. */
static uint32_t find_park(const struct cuda_device *d, uint32_t gate)
{
    uint32_t found = CUDA_PARKS;

    for (uint32_t i = CUDA_PARKS; i-- > 0;) {
        const struct cuda_park *p = &d->park[i];
        bool held = p->kept || stands(d, i);
        if (held && gate && p->gate == gate)
            return i;
        found = held ? found : i;
    }
    return found;
}

bool cuda_keep_park(struct cuda_device *d, uint32_t gate)
{
    uint32_t found = find_park(d, gate);

    if (found == CUDA_PARKS) {
        (void)cuda_poll(d); /* as in take_park */
        return false;
    }
    d->park[found].gate = gate;
    d->park[found].kept = true;
    return true;
}

void cuda_leave_park(struct cuda_device *d, uint32_t gate)
{
    for (uint32_t i = 0; i < CUDA_PARKS; i++)
        if (d->park[i].gate == gate)
            d->park[i].kept = false;
}

static unsigned make_park(struct cuda_device *d, struct cuda_park *p)
{
    int least = 0, greatest = 0;
    unsigned result = CUDA_OK;

    if (!p->event)
        result = d->calls->cuEventCreate(&p->event, CUDA_EVENT_DISABLE_TIMING);
    if (result != CUDA_OK) {
        p->event = NULL;
        return result;
    }
    d->calls->cuCtxGetStreamPriorityRange(&least, &greatest);
    result = d->calls->cuStreamCreateWithPriority(&p->stream, CUDA_STREAM_NON_BLOCKING, greatest);
    if (result != CUDA_OK)
        p->stream = NULL;
    return result;
}

static enum comm_result take_park(struct cuda_device *d, uint32_t gate, uint32_t *index)
{
    unsigned result = CUDA_OK;

    *index = find_park(d, gate);
    if (*index == CUDA_PARKS) {
        (void)cuda_poll(d); /* a count that failed may be all that is missing */
        return COMM_ERR_FULL;
    }
    d->park[*index].gate = gate;
    if (!d->park[*index].stream)
        result = make_park(d, &d->park[*index]);
    return cuda_result(result);
}

/* Has the park stream write how many waits it has passed. If the call fails, cuda_poll repeats it. Until then the stream counts as blocked.
 */
static void count_parks(struct cuda_device *d, uint32_t park)
{
    struct cuda_park *p = &d->park[park];

    p->recount = d->calls->cuStreamWriteValue64(p->stream, cuda_word_there(d, park_word(park)), p->waits, 0) != CUDA_OK;
}

/* Puts on a park stream a wait for a word, the record of its event, and the count, and makes the stream wait for the event. *on: the wait
 * is on the park stream, also after an error. */
static unsigned stand(struct cuda_device *d, uint32_t park, uint32_t word, uint64_t value, struct CUstream_st *stream, bool *on)
{
    const struct cuda_calls *calls = d->calls;
    struct cuda_park *p = &d->park[park];
    unsigned result = calls->cuStreamWaitValue64(p->stream, cuda_word_there(d, word), value, CUDA_WAIT_GEQ);

    *on = result == CUDA_OK;
    if (!*on)
        return result;
    result = calls->cuEventRecord(p->event, p->stream);
    p->waits++;
    count_parks(d, park);
    return result == CUDA_OK ? calls->cuStreamWaitEvent(stream, p->event, 0) : result;
}

enum comm_result cuda_park(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place)
{
    uint32_t index = 0, park = 0;
    bool on;
    enum comm_result r = d->memops ? take_park(d, 0, &park) : COMM_ERR_UNSUPPORTED;

    if (r == COMM_OK)
        r = take_slot(d, &index);
    if (r != COMM_OK)
        return r;
    struct cuda_slot *s = &d->slot[index];
    s->value++;
    s->host_writes = true;
    unsigned result = stand(d, park, index, s->value, stream, &on);
    if (result != CUDA_OK) /* release the park stream, which would wait for ever */
        atomic_store_explicit(&d->words[index], s->value, memory_order_release);
    keep_slot(d, index, place);
    return cuda_result(result);
}

enum comm_result cuda_wait_gate(struct cuda_device *d, struct CUstream_st *stream, uint32_t gate, uint64_t value, bool *counts)
{
    uint32_t park = 0;
    enum comm_result r = d->memops ? take_park(d, gate, &park) : COMM_ERR_UNSUPPORTED;

    *counts = false;
    return r == COMM_OK ? cuda_result(stand(d, park, gate, value, stream, counts)) : r;
}

enum comm_result cuda_wait_word(struct cuda_device *d, struct CUstream_st *stream, uint32_t word, uint64_t value)
{
    uint32_t park = 0;
    bool on;

    if (atomic_load_explicit(&d->words[word], memory_order_acquire) >= value)
        return COMM_OK;
    enum comm_result r = d->memops ? take_park(d, 0, &park) : COMM_ERR_UNSUPPORTED;
    return r == COMM_OK ? cuda_result(stand(d, park, word, value, stream, &on)) : r;
}

/* ------------------------------------------------------------------------------------------------------------ the rest */
uint32_t cuda_take_word(struct cuda_device *d)
{
    for (uint32_t i = 0; i < CUDA_WORDS; i++) {
        if (d->word_taken[i / 64] >> i % 64 & 1)
            continue;
        d->word_taken[i / 64] |= UINT64_C(1) << i % 64;
        return CUDA_SLOTS + i;
    }
    return 0;
}

void cuda_give_word(struct cuda_device *d, uint32_t word)
{
    uint32_t i = word - CUDA_SLOTS;

    d->word_taken[i / 64] &= ~(UINT64_C(1) << i % 64);
}

enum comm_result cuda_give_word_behind(struct cuda_device *d, uint32_t word, struct CUstream_st *stream)
{
    struct device_place place = {0};
    enum comm_result r = cuda_place(d, stream, &place);

    if (r == COMM_OK)
        d->slot[place.word - d->words].gives = word;
    return r;
}

/* If streams cannot write words, the host queries the events and writes the words. A query takes about a microsecond, so a caller that
 * looks often does not poll again before `rest_until`. */
static void query_events(struct cuda_device *d)
{
    int64_t began = d->env->now(d->env), ended;

    for (uint32_t i = d->pending_first; i; i = d->slot[i - 1].next)
        if (!reached(d, i - 1) && d->calls->cuEventQuery(d->slot[i - 1].event) == CUDA_OK)
            atomic_store_explicit(&d->words[i - 1], d->slot[i - 1].value, memory_order_release);
    ended = d->env->now(d->env);
    int64_t rest = POLL_RESTS * (ended - began);
    atomic_store_explicit(&d->rest_until, ended + (rest > POLL_REST_NS ? rest : POLL_REST_NS), memory_order_relaxed);
}

bool cuda_poll(struct cuda_device *d)
{
    if (!d->memops)
        query_events(d);
    sweep(d);
    bool more = atomic_load_explicit(&d->pending, memory_order_relaxed) != 0;
    for (uint32_t i = 0; i < CUDA_PARKS; i++) {
        if (d->park[i].recount)
            count_parks(d, i);
        more |= stands(d, i);
    }
    return more;
}
