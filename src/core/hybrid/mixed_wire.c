/* The table of the mixed wire, and its functions that concern all channels at once. */
#include "hybrid/mixed.h"

static uint32_t mixed_poll(struct wire *wire, struct wire_event *events, uint32_t max)
{
    struct mixed_wire *w = (struct mixed_wire *)wire;
    uint32_t n = w->near->class->poll(w->near, events, max);

    for (uint32_t i = 0; i < n && w->rank >= 0; i++)
        events[i].peer = w->local[events[i].peer];
    return n + w->far->class->poll(w->far, events + n, max - n);
}

static void mixed_arm(struct wire *wire, bool on, int64_t *deadline)
{
    struct mixed_wire *w = (struct mixed_wire *)wire;

    w->near->class->arm(w->near, on, deadline);
    w->far->class->arm(w->far, on, deadline);
}

static void mixed_urge(struct wire_channel *channel, bool on)
{
    struct mixed_channel *c = mixed_of(channel);

    for (int i = 0; i < 2; i++) {
        struct wire_channel *side = i ? c->far : c->near;
        if (side->class->urge)
            side->class->urge(side, on);
    }
}

static bool mixed_heed(struct wire *wire, bool on)
{
    struct mixed_wire *w = (struct mixed_wire *)wire;
    bool near = w->near->class->heed && w->near->class->heed(w->near, on);
    bool far = w->far->class->heed && w->far->class->heed(w->far, on);

    return near || far;
}

/* ------------------------------------------------------------------------------------------------------------ memory */
/* Memory belongs to the world: peers on one host access it through communicators within that host. */
static void *memory_take(struct wire *wire, size_t bytes, enum wire_placement placement)
{
    struct wire *near = ((struct mixed_wire *)wire)->near;

    return near->class->memory->take(near, bytes, placement);
}

static void memory_give(struct wire *wire, void *at, bool keep)
{
    struct wire *near = ((struct mixed_wire *)wire)->near;

    near->class->memory->give(near, at, keep);
}

static bool memory_where(struct wire *wire, const void *at, size_t bytes, uint64_t *where)
{
    struct wire *near = ((struct mixed_wire *)wire)->near;

    return near->class->memory->where(near, at, bytes, where);
}

static void *memory_reach(struct wire_channel *channel, int32_t peer, uint64_t where)
{
    (void)channel; /* members on several hosts share no memory */
    (void)peer;
    (void)where;
    return NULL;
}

static void memory_wrote(struct wire_channel *channel)
{
    (void)channel;
}

static const struct wire_memory_class mixed_memory = {
    .take = memory_take, .give = memory_give, .where = memory_where, .reach = memory_reach, .wrote = memory_wrote};

const struct wire_class wire_mixed = {
    .name = "shm+tcp",
    .system_calls = true,
    .open = mixed_open,
    .close = mixed_close,
    .join = mixed_join,
    .leave = mixed_leave,
    .reserve = mixed_reserve,
    .expose = mixed_expose,
    .view = mixed_view,
    .release = mixed_release,
    .advance = mixed_advance,
    .flush = mixed_flush,
    .poll = mixed_poll,
    .arm = mixed_arm,
    .describe = mixed_describe,
    .memory = &mixed_memory,
    .urge = mixed_urge,
    .heed = mixed_heed,
};
