/* The pool of stages of a communicator, and their copies. All calls are made under the communicator's lock, except the test of a place. */
#include "staging/staging.h"

#include "base/check.h"

enum { PAGE_BYTES = 4096, SIDE_ALIGN = 64 };

/* ------------------------------------------------------------------------------------------------------------ the pool */
/* Lengths in the same quarter of an octave share a class, and a stage has the length of its class. */
static uint32_t class_of(size_t *bytes)
{
    size_t least = *bytes < STAGING_LEAST_BYTES ? STAGING_LEAST_BYTES : *bytes;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(least - 1), shift = octave - 2;
    size_t part = (least - 1) >> shift; /* 4 .. 7 */

    *bytes = (part + 1) << shift;
    return octave * 4 + (uint32_t)part - 4;
}

enum comm_result staging_open(struct staging **staging, struct engine *e, char *text, size_t bytes)
{
    enum comm_result r = COMM_OK;

    if (*staging)
        return COMM_OK;
    struct device *device = staging_device(e, &r, text, bytes);
    if (!device)
        return r;
    struct staging *made = e->env->take(e->env, sizeof *made, 64);
    if (!made)
        return COMM_ERR_MEMORY;
    *made = (struct staging){.engine = e, .device = device};
    *staging = made;
    return COMM_OK;
}

static struct stage *make(struct staging *s, size_t bytes)
{
    const struct comm_env *env = s->engine->env;
    struct stage *stage = env->take(env, sizeof *stage, 64);
    char *memory = stage ? env->take(env, bytes, PAGE_BYTES) : NULL;

    if (memory && s->device->class->pin(s->device, memory, bytes) == COMM_OK) {
        *stage = (struct stage){.memory = memory, .bytes = bytes};
        return stage;
    }
    env_give_back(env, memory, bytes);
    env_give_back(env, stage, sizeof *stage);
    return NULL;
}

static void drop(struct staging *s, struct stage *stage)
{
    const struct comm_env *env = s->engine->env;

    s->device->class->unpin(s->device, stage->memory);
    env->give(env, stage->memory, stage->bytes);
    env->give(env, stage, sizeof *stage);
}

static void keep(struct staging *s, struct stage *stage)
{
    size_t bytes = stage->bytes;
    struct stage **list = &s->free[class_of(&bytes)];

    stage->next = *list;
    *list = stage;
}

bool staging_has_stopped(struct staging *s, const struct stage *stage, int64_t *asked_ns)
{
    if (!s->stopped && !stage->lost)
        s->stopped = engine_ask_device(s->engine, &stage->place, asked_ns) != COMM_OK;
    return s->stopped;
}

bool staging_is_busy(struct staging *s)
{
    bool busy = false;

    for (struct stage **at = &s->busy; *at;) {
        struct stage *stage = *at;
        if (!staging_rests(stage)) {
            busy |= !stage->lost && !staging_has_stopped(s, stage, &s->asked_ns);
            at = &stage->next;
            continue;
        }
        *at = stage->next;
        keep(s, stage);
    }
    return busy;
}

/* If the two sides overlap, they share one place in the stage: an operation in place reads and writes the same bytes. */
static size_t lay_out(struct stage_side *in, struct stage_side *out, size_t *out_at)
{
    uintptr_t from = in->from < out->from ? in->from : out->from, in_end = in->from + in->bytes, out_end = out->from + out->bytes;
    bool meet = in->bytes && out->bytes && in->from < out_end && out->from < in_end;

    *out_at = (in->bytes + SIDE_ALIGN - 1) & ~(size_t)(SIDE_ALIGN - 1);
    if (!meet)
        return *out_at + out->bytes;
    in->from = out->from = from;
    in->bytes = out->bytes = (in_end > out_end ? in_end : out_end) - from;
    *out_at = 0;
    return in->bytes;
}

struct stage *staging_take(struct staging *s, const struct stage_side *in, const struct stage_side *out)
{
    struct stage_side a = *in, b = *out;
    size_t out_at, bytes = lay_out(&a, &b, &out_at);
    struct stage **list = &s->free[class_of(&bytes)], *stage;

    if (!*list && s->busy)
        (void)staging_is_busy(s);
    stage = *list;
    if (BASE_LIKELY(stage != NULL))
        *list = stage->next;
    else if (!(stage = make(s, bytes)))
        return NULL;
    a.at = a.bytes ? stage->memory : NULL;
    b.at = b.bytes ? stage->memory + out_at : NULL;
    stage->in = a;
    stage->out = b;
    stage->copy = STAGE_NONE;
    stage->place = (struct device_place){NULL, 0};
    stage->cause = 0;
    stage->is_long = stage->noted = false;
    return stage;
}

void staging_give(struct staging *s, struct stage *stage)
{
    if (BASE_LIKELY(staging_rests(stage))) {
        keep(s, stage);
        return;
    }
    stage->next = s->busy;
    s->busy = stage;
}

uint32_t staging_close(struct staging *s)
{
    const struct comm_env *env = s->engine->env;
    uint32_t left = 0;

    (void)staging_is_busy(s);
    for (struct stage *stage = s->busy; stage; stage = stage->next)
        left++;
    for (uint32_t i = 0; i < STAGING_CLASSES; i++)
        for (struct stage *stage = s->free[i], *next; stage; stage = next) {
            next = stage->next;
            drop(s, stage);
        }
    env->give(env, s, sizeof *s);
    return left;
}

/* ------------------------------------------------------------------------------------------------------------ copies */
bool staging_spans(const struct staging *s, const void *at, size_t bytes)
{
    size_t has;

    (void)s->device->class->extent(s->device, at, bytes, &has);
    return has == bytes;
}

enum comm_result staging_copy(struct staging *s, struct stage *stage, enum device_way way, const struct device_piece *pieces,
                              uint32_t count)
{
    struct device_place place;
    enum comm_result r = s->device->class->move(s->device, way, pieces, count, &place);

    /* After an error a place that is reached tells that nothing was begun; but earlier copies of the stage may be in progress. */
    if (r == COMM_OK || (r != COMM_ERR_FULL && (!place.word || !staging_is_there(&place))))
        stage->place = place;
    stage->copy = r == COMM_ERR_FULL ? STAGE_WAITING : STAGE_COPYING;
    stage->lost = r != COMM_ERR_FULL && !place.word;
    return r;
}
