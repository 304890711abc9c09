/* Faces: what requests point at. The one list of the process. */
#include "timeline/timeline.h"

static struct {
    struct base_lock lock;
    struct comm_communicator *oldest, *newest; /* given back, reused oldest first */
} faces;

/* One of the same env: who holds an old request, or a list of faces that is out of date, may look at a face's env at any time, so it never
 * changes. */
static struct comm_communicator *take_used(const struct comm_env *env)
{
    struct comm_communicator *face, *before = NULL;

    base_lock(&faces.lock, env);
    for (face = faces.oldest; face && face->env != env; face = face->link)
        before = face;
    if (face) {
        *(before ? &before->link : &faces.oldest) = face->link;
        if (!face->link)
            faces.newest = before;
    }
    base_unlock(&faces.lock, env);
    return face;
}

struct comm_communicator *timeline_face_take(const struct comm_env *env, void *body)
{
    struct comm_communicator *face = take_used(env);

    if (!face) {
        face = env->take(env, sizeof *face, 64);
        if (!face)
            return NULL;
        face->next = face->first = 1;
        face->next_message = face->first_message = 1;
        face->env = env;
        face->alive = env->alive;
    }
    face->link = NULL;
    atomic_store_explicit(&face->closing, 0, memory_order_relaxed);
    atomic_store_explicit(&face->failed, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&face->exceptions, 0, memory_order_relaxed);
    atomic_store_explicit(&face->result, COMM_OK, memory_order_relaxed);
    atomic_store_explicit(&face->done, face->first - 1, memory_order_release);
    atomic_store_explicit(&face->body, body, memory_order_release);
    return face;
}

void timeline_face_give(struct comm_communicator *face)
{
    const struct comm_env *env = face->env;

    atomic_store_explicit(&face->body, NULL, memory_order_release);
    atomic_store_explicit(&face->first, face->next, memory_order_release);
    base_lock(&face->exception_lock, env); /* its old requests may just be asked */
    face->first_message = face->next_message;
    face->exception_count = face->dropped_work = face->dropped_message = 0;
    base_unlock(&face->exception_lock, env);
    base_lock(&faces.lock, env);
    if (faces.newest)
        faces.newest->link = face;
    else
        faces.oldest = face;
    faces.newest = face;
    base_unlock(&faces.lock, env);
}

/* ------------------------------------------------------------------------------------------------------------ slots */
static uint32_t chunk_of(uint32_t index, uint32_t *within)
{
    uint32_t scaled = index / TIMELINE_SLOTS_FIRST + 1;
    uint32_t chunk = 31 - (uint32_t)__builtin_clz(scaled);

    *within = index - TIMELINE_SLOTS_FIRST * ((1u << chunk) - 1);
    return chunk;
}

static _Atomic uint64_t *slot_word(struct comm_communicator *face, uint32_t index)
{
    uint32_t within, chunk = chunk_of(index, &within);
    _Atomic uint64_t *words = chunk < TIMELINE_SLOT_CHUNKS ? atomic_load_explicit(&face->slots[chunk], memory_order_acquire) : NULL;

    return words ? words + within : NULL;
}

uint64_t timeline_slot_open(struct comm_communicator *face, uint32_t index)
{
    uint32_t within, chunk = chunk_of(index, &within);
    _Atomic uint64_t *word = slot_word(face, index);

    if (chunk >= TIMELINE_SLOT_CHUNKS)
        return 0;
    if (!word) {
        _Atomic uint64_t *words = face->env->take(face->env, ((size_t)TIMELINE_SLOTS_FIRST << chunk) * sizeof *words, 64);
        if (!words)
            return 0;
        atomic_store_explicit(&face->slots[chunk], words, memory_order_release);
        word = words + within;
    }
    uint64_t number = face->next_message++;
    atomic_store_explicit(word, number << 8 | 1, memory_order_release);
    return TIMELINE_MESSAGE | number << TIMELINE_INDEX_BITS | index;
}

void timeline_slot_finish(struct comm_communicator *face, uint64_t ticket, enum comm_result result)
{
    _Atomic uint64_t *word = slot_word(face, timeline_slot_index(ticket));

    BASE_ASSERT(word);
    atomic_store_explicit(word, timeline_slot_number(ticket) << 8 | (uint8_t)result, memory_order_release);
}

/* ------------------------------------------------------------------------------------------------------------ testing */
static enum comm_result exception_of(struct comm_communicator *face, uint64_t ticket);

static enum comm_result test_message(struct comm_communicator *face, uint64_t ticket)
{
    uint64_t number = timeline_slot_number(ticket);
    _Atomic uint64_t *word = slot_word(face, timeline_slot_index(ticket));
    uint64_t held = word ? atomic_load_explicit(word, memory_order_acquire) : 0;

    if (held >> 8 == number) {
        uint8_t state = (uint8_t)held;
        if (state <= 1)
            return state ? COMM_PENDING : COMM_OK;
        (void)exception_of(face, ticket); /* somebody learned it: sync need not tell it again */
        return (enum comm_result)(int8_t)state;
    }
    return held >> 8 > number ? exception_of(face, ticket) : COMM_ERR_ARGUMENT;
}

enum comm_result timeline_test_slow(struct comm_request request)
{
    struct comm_communicator *face = request.comm;
    uint64_t ticket = request.ticket;

    if (!face)
        return (enum comm_result)(int32_t)(int64_t)ticket;
    if (atomic_load_explicit(face->alive, memory_order_relaxed) == 0)
        return COMM_ERR_FORKED;
    if (ticket & TIMELINE_MESSAGE)
        return test_message(face, ticket);
    if (ticket == 0)
        return COMM_ERR_ARGUMENT;
    if (ticket < atomic_load_explicit(&face->first, memory_order_acquire))
        return COMM_ERR_CLOSED;
    if (ticket <= atomic_load_explicit(&face->done, memory_order_acquire))
        return exception_of(face, ticket);
    if (ticket >= atomic_load_explicit(&face->failed, memory_order_acquire))
        return (enum comm_result)atomic_load_explicit(&face->result, memory_order_relaxed);
    return ticket < atomic_load_explicit(&face->next, memory_order_acquire) ? COMM_PENDING : COMM_ERR_ARGUMENT;
}

/* ------------------------------------------------------------------------------------------------------------ errors of single requests */
static uint64_t oldest_exception(const struct comm_communicator *face)
{
    return face->exception_count > TIMELINE_EXCEPTIONS ? face->exception_count - TIMELINE_EXCEPTIONS : 0;
}

/* A complete request of a life that has exceptions, or whose slot was reused. */
static enum comm_result exception_of(struct comm_communicator *face, uint64_t ticket)
{
    bool message = (ticket & TIMELINE_MESSAGE) != 0;
    enum comm_result result = COMM_OK;

    base_lock(&face->exception_lock, face->env);
    if (message ? timeline_slot_number(ticket) < face->first_message || timeline_slot_number(ticket) <= face->dropped_message
                : ticket < atomic_load_explicit(&face->first, memory_order_relaxed) || ticket <= face->dropped_work)
        result = COMM_ERR_CLOSED;
    for (uint64_t i = face->exception_count; i-- > oldest_exception(face);) {
        struct timeline_exception *x = &face->exception[i % TIMELINE_EXCEPTIONS];
        if (x->ticket == ticket) {
            x->told = 1;
            result = (enum comm_result)x->result;
            break;
        }
    }
    base_unlock(&face->exception_lock, face->env);
    return result;
}

static void drop(struct comm_communicator *face, uint64_t ticket)
{
    if (!(ticket & TIMELINE_MESSAGE))
        face->dropped_work = ticket;
    else if (timeline_slot_number(ticket) > face->dropped_message)
        face->dropped_message = timeline_slot_number(ticket);
}

uint64_t timeline_slot_error(struct comm_communicator *face, uint32_t index, enum comm_result *result)
{
    _Atomic uint64_t *word = slot_word(face, index);
    uint64_t held = word ? atomic_load_explicit(word, memory_order_relaxed) : 0;
    uint64_t ticket = TIMELINE_MESSAGE | held >> 8 << TIMELINE_INDEX_BITS | index;

    *result = (enum comm_result)(int8_t)(uint8_t)held;
    return (uint8_t)held > 1 && exception_of(face, ticket) == COMM_OK ? ticket : 0;
}

void timeline_except(struct comm_communicator *face, uint64_t ticket, enum comm_result result)
{
    base_lock(&face->exception_lock, face->env);
    if (!face->exception)
        face->exception = face->env->take(face->env, TIMELINE_EXCEPTIONS * sizeof *face->exception, 64);
    if (face->exception) {
        struct timeline_exception *x = &face->exception[face->exception_count % TIMELINE_EXCEPTIONS];
        if (face->exception_count >= TIMELINE_EXCEPTIONS)
            drop(face, x->ticket);
        *x = (struct timeline_exception){ticket, result, 0};
        face->exception_count++;
    } else {
        drop(face, ticket); /* it cannot be kept: CLOSED rather than a wrong OK */
    }
    atomic_fetch_add_explicit(&face->exceptions, 1, memory_order_release);
    base_unlock(&face->exception_lock, face->env);
}

enum comm_result timeline_untold(struct comm_communicator *face)
{
    enum comm_result result = COMM_OK;

    base_lock(&face->exception_lock, face->env);
    for (uint64_t i = oldest_exception(face); i < face->exception_count && result == COMM_OK; i++) {
        struct timeline_exception *x = &face->exception[i % TIMELINE_EXCEPTIONS];
        if (!x->told) {
            x->told = 1;
            result = (enum comm_result)x->result;
        }
    }
    base_unlock(&face->exception_lock, face->env);
    return result;
}
