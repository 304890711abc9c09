/* Handles: what requests point at. Also the only list of handles in the process. */
#include "timeline/timeline.h"

#include "base/result.h"

static struct {
    struct base_lock lock;
    struct comm_communicator *oldest, *newest; /* closed handles; the oldest is reused first */
} handles;

/* Closed handles with few message numbers left serve no other communicator. */
static bool may_serve(const struct comm_communicator *handle, const struct comm_env *env)
{
    return handle->env == env && handle->next_message <= TIMELINE_NUMBERS / 2;
}

/* Takes a closed handle of the same env. A handle's env never changes, because a thread with an old request, or with an outdated list of
 * handles, may read it at any time. */
static struct comm_communicator *take_used(const struct comm_env *env)
{
    struct comm_communicator *handle, *before = NULL;

    base_lock(&handles.lock, env);
    for (handle = handles.oldest; handle && !may_serve(handle, env); handle = handle->link)
        before = handle;
    if (handle) {
        *(before ? &before->link : &handles.oldest) = handle->link;
        if (!handle->link)
            handles.newest = before;
    }
    base_unlock(&handles.lock, env);
    return handle;
}

struct comm_communicator *timeline_handle_take(const struct comm_env *env, void *state)
{
    struct comm_communicator *handle = take_used(env);

    if (!handle) {
        handle = env->take(env, sizeof *handle, 64);
        if (!handle)
            return NULL;
        handle->next = handle->first = 1;
        handle->next_message = handle->first_message = 1;
        handle->env = env;
        handle->alive = env->alive;
    }
    handle->link = NULL;
    atomic_store_explicit(&handle->closing, 0, memory_order_relaxed);
    atomic_store_explicit(&handle->unseen, 0, memory_order_relaxed);
    /* a thread that tests an old request and finds one of these must also find the new `first` */
    atomic_store_explicit(&handle->failed, UINT64_MAX, memory_order_release);
    atomic_store_explicit(&handle->exceptions, 0, memory_order_release);
    atomic_store_explicit(&handle->result, COMM_OK, memory_order_release);
    atomic_store_explicit(&handle->done, handle->first - 1, memory_order_release);
    atomic_store_explicit(&handle->state, state, memory_order_release);
    return handle;
}

void timeline_handle_give(struct comm_communicator *handle)
{
    const struct comm_env *env = handle->env;

    atomic_store_explicit(&handle->state, NULL, memory_order_release);
    atomic_store_explicit(&handle->first, handle->next, memory_order_release);
    base_lock(&handle->exception_lock, env); /* a thread may be testing an old request */
    handle->life++;
    handle->first_message = handle->next_message;
    handle->exception_count = handle->dropped_work = handle->dropped_message = 0;
    base_unlock(&handle->exception_lock, env);
    base_lock(&handles.lock, env);
    if (handles.newest)
        handles.newest->link = handle;
    else
        handles.oldest = handle;
    handles.newest = handle;
    base_unlock(&handles.lock, env);
}

/* ------------------------------------------------------------------------------------------------------------ slots */
static inline uint32_t chunk_of(uint32_t index, uint32_t *within)
{
    *within = index;
    if (BASE_LIKELY(index < TIMELINE_SLOTS_FIRST))
        return 0;
    uint32_t scaled = index / TIMELINE_SLOTS_FIRST + 1;
    uint32_t chunk = 31 - (uint32_t)__builtin_clz(scaled);

    *within = index - TIMELINE_SLOTS_FIRST * ((1u << chunk) - 1);
    return chunk;
}

/* NULL: no memory. */
static _Atomic uint64_t *take_chunk(struct comm_communicator *handle, uint32_t chunk)
{
    _Atomic uint64_t *words = handle->env->take(handle->env, ((size_t)TIMELINE_SLOTS_FIRST << chunk) * sizeof *words, 64);

    if (words)
        atomic_store_explicit(&handle->slots[chunk], words, memory_order_release);
    return words;
}

bool timeline_slots_reserve(struct comm_communicator *handle, uint32_t count)
{
    uint32_t within, most = chunk_of(count - 1, &within);
    bool all = most < TIMELINE_SLOT_CHUNKS;

    for (uint32_t chunk = 0; all && chunk <= most; chunk++)
        all = atomic_load_explicit(&handle->slots[chunk], memory_order_relaxed) || take_chunk(handle, chunk);
    return all;
}

static _Atomic uint64_t *slot_word(struct comm_communicator *handle, uint32_t index)
{
    uint32_t within, chunk = chunk_of(index, &within);
    _Atomic uint64_t *words = chunk < TIMELINE_SLOT_CHUNKS ? atomic_load_explicit(&handle->slots[chunk], memory_order_acquire) : NULL;

    return words ? words + within : NULL;
}

uint64_t timeline_slot_open(struct comm_communicator *handle, uint32_t index)
{
    uint32_t within, chunk = chunk_of(index, &within);
    _Atomic uint64_t *word = slot_word(handle, index);

    if (chunk >= TIMELINE_SLOT_CHUNKS)
        return 0;
    if (!word) {
        _Atomic uint64_t *words = take_chunk(handle, chunk);
        if (!words)
            return 0;
        word = words + within;
    }
    if (BASE_UNLIKELY(handle->next_message >= TIMELINE_NUMBERS))
        return 0;
    uint64_t number = handle->next_message++;
    atomic_store_explicit(word, number << 8 | 1, memory_order_release);
    return TIMELINE_MESSAGE | number << TIMELINE_INDEX_BITS | index;
}

void timeline_slot_finish(struct comm_communicator *handle, uint64_t ticket, enum comm_result result)
{
    _Atomic uint64_t *word = slot_word(handle, timeline_slot_index(ticket));

    BASE_ASSERT(word);
    atomic_store_explicit(word, timeline_slot_number(ticket) << 8 | (uint8_t)result, memory_order_release);
}

/* ------------------------------------------------------------------------------------------------------------ testing */
static enum comm_result exception_of(struct comm_communicator *handle, uint64_t ticket, bool told);

static enum comm_result test_message(struct comm_communicator *handle, uint64_t ticket, bool told)
{
    uint64_t number = timeline_slot_number(ticket);
    _Atomic uint64_t *word = slot_word(handle, timeline_slot_index(ticket));
    uint64_t held = word ? atomic_load_explicit(word, memory_order_acquire) : 0;

    if (held >> 8 == number && number) {
        uint8_t state = (uint8_t)held;
        if (state <= 1)
            return state ? COMM_PENDING : COMM_OK;
        (void)exception_of(handle, ticket, told);
        return (enum comm_result)(int8_t)state;
    }
    return held >> 8 > number && number ? exception_of(handle, ticket, told) : COMM_ERR_ARGUMENT;
}

/* The handle may be closed and reused meanwhile. What it has stored for its new life comes after the new `first`. */
static enum comm_result test_work(struct comm_communicator *handle, uint64_t ticket, bool told)
{
    enum comm_result result;

    if (ticket < atomic_load_explicit(&handle->first, memory_order_acquire))
        return COMM_ERR_CLOSED;
    if (ticket <= atomic_load_explicit(&handle->done, memory_order_acquire))
        return exception_of(handle, ticket, told);
    if (ticket >= atomic_load_explicit(&handle->failed, memory_order_acquire))
        result = (enum comm_result)atomic_load_explicit(&handle->result, memory_order_acquire);
    else
        result = ticket < atomic_load_explicit(&handle->next, memory_order_acquire) ? COMM_PENDING : COMM_ERR_ARGUMENT;
    return ticket < atomic_load_explicit(&handle->first, memory_order_relaxed) ? COMM_ERR_CLOSED : result;
}

/* Of a request without a communicator. */
static enum comm_result test_refusal(uint64_t ticket)
{
    int64_t result = (int64_t)ticket;
    bool is_error = result < 0 && result >= INT32_MIN && base_result_is_known((enum comm_result)result);

    return is_error ? (enum comm_result)result : ticket ? COMM_ERR_ARGUMENT : COMM_OK;
}

enum comm_result timeline_test_slow(struct comm_request request, bool told)
{
    struct comm_communicator *handle = request.comm;
    uint64_t ticket = request.ticket;

    if (!handle)
        return test_refusal(ticket);
    if (atomic_load_explicit(handle->alive, memory_order_relaxed) == 0)
        return COMM_ERR_FORKED;
    if (ticket & TIMELINE_MESSAGE)
        return test_message(handle, ticket, told);
    return ticket ? test_work(handle, ticket, told) : COMM_ERR_ARGUMENT;
}

enum comm_result timeline_belongs(struct comm_request request)
{
    struct comm_communicator *handle = request.comm;
    bool message = (request.ticket & TIMELINE_MESSAGE) != 0;
    uint64_t number = message ? timeline_slot_number(request.ticket) : request.ticket;
    _Atomic uint64_t *word = message ? slot_word(handle, timeline_slot_index(request.ticket)) : NULL;
    uint64_t last = word ? atomic_load_explicit(word, memory_order_relaxed) >> 8 : 0, first = handle->first_message;

    if (!message) {
        last = atomic_load_explicit(&handle->next, memory_order_relaxed) - 1;
        first = atomic_load_explicit(&handle->first, memory_order_relaxed);
    }
    if (!number || number > last)
        return COMM_ERR_ARGUMENT;
    return number < first ? COMM_ERR_CLOSED : COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ errors of single requests */
static uint64_t oldest_exception(const struct comm_communicator *handle)
{
    return handle->exception_count > TIMELINE_EXCEPTIONS ? handle->exception_count - TIMELINE_EXCEPTIONS : 0;
}

static uint64_t number_of(uint64_t ticket)
{
    return ticket & TIMELINE_MESSAGE ? timeline_slot_number(ticket) : ticket;
}

static struct timeline_group *group_of(struct comm_communicator *handle, uint64_t ticket)
{
    struct timeline_failures *f = handle->failures;

    return &(ticket & TIMELINE_MESSAGE ? f->message : f->work)[number_of(ticket) / 64 % TIMELINE_GROUPS];
}

/* False: it failed, or that is not known any more. */
static bool succeeded(struct comm_communicator *handle, uint64_t ticket)
{
    uint64_t number = number_of(ticket);
    const struct timeline_group *g = handle->failures ? group_of(handle, ticket) : NULL;

    if (number > (ticket & TIMELINE_MESSAGE ? handle->dropped_message : handle->dropped_work))
        return true;
    return g && (g->group < number / 64 || (g->group == number / 64 && !(g->failed >> number % 64 & 1)));
}

static void note_failed(struct comm_communicator *handle, uint64_t ticket)
{
    uint64_t number = number_of(ticket);
    struct timeline_group *g = group_of(handle, ticket);

    if (g->group < number / 64)
        *g = (struct timeline_group){.group = number / 64};
    if (g->group == number / 64)
        g->failed |= UINT64_C(1) << number % 64;
}

/* The result of a complete request, if its communicator has had errors of single requests or if its slot was reused. told: a call of the
 * program returns it, so comm_sync need not report it again. */
static enum comm_result exception_of(struct comm_communicator *handle, uint64_t ticket, bool told)
{
    bool message = (ticket & TIMELINE_MESSAGE) != 0;
    enum comm_result result = COMM_OK;

    base_lock(&handle->exception_lock, handle->env);
    uint64_t first = message ? handle->first_message : atomic_load_explicit(&handle->first, memory_order_relaxed);
    if (number_of(ticket) < first || !succeeded(handle, ticket))
        result = COMM_ERR_CLOSED;
    for (uint64_t i = handle->exception_count; i-- > oldest_exception(handle);) {
        struct timeline_exception *x = &handle->failures->ring[i % TIMELINE_EXCEPTIONS];
        if (x->ticket == ticket) {
            x->reported |= told;
            result = (enum comm_result)x->result;
            break;
        }
    }
    base_unlock(&handle->exception_lock, handle->env);
    return result;
}

static void drop(struct comm_communicator *handle, uint64_t ticket)
{
    uint64_t *dropped = ticket & TIMELINE_MESSAGE ? &handle->dropped_message : &handle->dropped_work;

    if (number_of(ticket) > *dropped)
        *dropped = number_of(ticket);
}

uint64_t timeline_slot_error(struct comm_communicator *handle, uint32_t index, enum comm_result *result)
{
    _Atomic uint64_t *word = slot_word(handle, index);
    uint64_t held = word ? atomic_load_explicit(word, memory_order_relaxed) : 0;
    uint64_t ticket = TIMELINE_MESSAGE | held >> 8 << TIMELINE_INDEX_BITS | index;

    *result = (enum comm_result)(int8_t)(uint8_t)held;
    return (uint8_t)held > 1 && exception_of(handle, ticket, false) == COMM_OK ? ticket : 0;
}

/* Nothing is known of what failed while there was no memory: those groups count as taken by a later one. */
static struct timeline_failures *make_failures(struct comm_communicator *handle)
{
    struct timeline_failures *f = handle->env->take(handle->env, sizeof *f, 64);

    for (uint32_t i = 0; f && i < TIMELINE_GROUPS; i++) {
        f->work[i].group = handle->dropped_work ? handle->dropped_work / 64 + 1 : 0;
        f->message[i].group = handle->dropped_message ? handle->dropped_message / 64 + 1 : 0;
    }
    return f;
}

void timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told)
{
    base_lock(&handle->exception_lock, handle->env);
    if (!handle->failures)
        handle->failures = make_failures(handle);
    if (handle->failures) {
        struct timeline_exception *x = &handle->failures->ring[handle->exception_count % TIMELINE_EXCEPTIONS];
        if (handle->exception_count >= TIMELINE_EXCEPTIONS)
            drop(handle, x->ticket);
        *x = (struct timeline_exception){ticket, result, told};
        note_failed(handle, ticket);
        handle->exception_count++;
    } else {
        drop(handle, ticket); /* it cannot be stored: such requests return CLOSED rather than a wrong OK */
    }
    atomic_fetch_add_explicit(&handle->exceptions, 1, memory_order_release);
    base_unlock(&handle->exception_lock, handle->env);
}

enum comm_result timeline_untold(struct comm_communicator *handle, uint64_t life)
{
    enum comm_result result = COMM_OK;

    base_lock(&handle->exception_lock, handle->env);
    for (uint64_t i = oldest_exception(handle); handle->life == life && i < handle->exception_count && result == COMM_OK; i++) {
        struct timeline_exception *x = &handle->failures->ring[i % TIMELINE_EXCEPTIONS];
        if (!x->reported) {
            x->reported = 1;
            result = (enum comm_result)x->result;
        }
    }
    base_unlock(&handle->exception_lock, handle->env);
    return result;
}
