/* The layout of a channel: where lines and places are in each block, and how many there are. Equal on all members. */
#include "channel/shmchan.h"

#include "base/hash.h"

static size_t carve(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += (bytes + 127) & ~(size_t)127;
    return here;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t once_edges_of(const struct wire_limits *limits, uint32_t size)
{
    /* At least one per level of a doubling, which any team may be told to use. In small teams one for each other rank,
     * behind the streams' edges. */
    uint32_t edges = size == 3 ? 5 : size == 4 ? 6 : 2;
    if (limits->once_edges)
        return limits->once_edges < WIRE_ONCE_EDGES_MAX ? limits->once_edges : WIRE_ONCE_EDGES_MAX;
    while ((UINT32_C(1) << edges) < size)
        edges++;
    return edges < WIRE_ONCE_EDGES_MAX ? edges : WIRE_ONCE_EDGES_MAX;
}

static size_t private_chunk(uint32_t size)
{
    size_t share = size > 1 ? ((size_t)4 * SHMCHAN_PLACE_BYTES / (size - 1)) & ~(size_t)4095 : SHMCHAN_PLACE_BYTES;
    share = share < SHMCHAN_CHUNK_PRIVATE_MIN ? SHMCHAN_CHUNK_PRIVATE_MIN : share;
    return share < SHMCHAN_PLACE_BYTES ? share : SHMCHAN_PLACE_BYTES;
}

/* In the order of operations: edges next to each other, except that the first edge is separate if it has more lines. */
static void shape_lines(struct shmchan_shape *s, const struct wire_limits *limits, size_t *at)
{
    uint32_t apart = limits->ahead ? 1 : 0, together = s->once_edges - apart;
    size_t line = sizeof(struct shmchan_line), first = carve(at, apart * SHMCHAN_AHEAD_WINDOWS * s->window * line);
    size_t others = carve(at, SHMCHAN_WINDOWS * (size_t)s->window * together * line);

    for (uint32_t i = 0; i < s->once_edges; i++) {
        bool alone = i < apart;
        s->edge[i].line_mask = (alone ? SHMCHAN_AHEAD_WINDOWS : SHMCHAN_WINDOWS) * s->window - 1;
        s->edge[i].line = alone ? first : others + (i - apart) * line;
        s->edge[i].line_step = (alone ? 1 : together) * line;
    }
}

/* The same layout for each kind of places. A place is not a power of two long, because places a power of two apart would share few sets of
 * every cache. */
static void shape_once(struct shmchan_shape *s, const struct wire_limits *limits)
{
    static const struct {
        size_t place;
        uint32_t count, ahead;
    } kinds[SHMCHAN_PLACES_KINDS] = {
        [SHMCHAN_BRIEF] = {SHMCHAN_BRIEF_BYTES + sizeof(struct shmchan_line), SHMCHAN_BRIEF_PLACES, SHMCHAN_AHEAD_PLACES},
        [SHMCHAN_LONG] = {SHMCHAN_PLACE_BYTES + SHMCHAN_PLACE_SKEW, SHMCHAN_LONG_PLACES, SHMCHAN_LONG_PLACES},
        [SHMCHAN_SPARE] = {SHMCHAN_SPARE_BYTES + sizeof(struct shmchan_line), SHMCHAN_SPARE_PLACES, SHMCHAN_SPARE_PLACES},
    };
    uint32_t apart = limits->ahead ? 1 : 0, together = s->once_edges - apart;

    for (int kind = 0; kind < SHMCHAN_PLACES_KINDS; kind++) {
        size_t place = kinds[kind].place, at = s->once_bytes;
        for (uint32_t i = 0; i < s->once_edges; i++) {
            bool alone = i < apart;
            uint32_t count = alone ? kinds[kind].ahead : kinds[kind].count;
            uint32_t mask = limits->minimal ? 0 : lesser(s->edge[i].line_mask, count - 1);
            s->edge[i].places[kind] = (struct shmchan_row){mask, at, (alone ? 1 : together) * place};
            at += alone ? (mask + 1) * place : place; /* together: here begins this edge's first row */
            s->once_bytes += (mask + 1) * place;
        }
    }
}

/* The number of rows, at most `most`, that fit in these bytes. */
static uint32_t rows_within(uint32_t most, size_t row, size_t bytes)
{
    while (most > SHMCHAN_EACH_LEAST && most * row > bytes)
        most /= 2;
    return most;
}

static void shape_each(struct shmchan_shape *s, const struct wire_limits *limits)
{
    size_t readers = s->size - 1, line = sizeof(struct shmchan_line), place = WIRE_EACH_BYTES + line; /* not a power of two */
    uint32_t windows = limits->ahead ? SHMCHAN_AHEAD_WINDOWS : SHMCHAN_WINDOWS;
    uint32_t lines = rows_within(windows * s->window, readers * line, SHMCHAN_EACH_LINES_BYTES);
    uint32_t places = limits->minimal ? 1 : rows_within(lesser(lines, SHMCHAN_BRIEF_PLACES), readers * place, SHMCHAN_EACH_BYTES);

    s->each = (struct shmchan_each){.line_mask = lines - 1,
                                    .place_mask = places - 1,
                                    .line_step = readers * line,
                                    .place = lines * readers * line,
                                    .place_step = readers * place,
                                    .bytes = lines * readers * line + places * readers * place};
}

/* Credits for chunks: one per reader with chunks of its own; all readers share the chunks of a stream to all. */
static struct shmchan_credits credits(const struct wire_limits *limits, size_t readers, size_t chunk)
{
    uint32_t credits = limits->minimal ? 1 : SHMCHAN_CREDITS;

    while (credits > SHMCHAN_CREDITS_LEAST && credits * readers * chunk > SHMCHAN_EDGE_BYTES)
        credits /= 2;
    while (limits->credits && credits > limits->credits)
        credits /= 2;
    return (struct shmchan_credits){credits - 1, (uint32_t)__builtin_ctz(credits)};
}

static uint32_t eager_slots(size_t peers)
{
    uint32_t slots = SHMCHAN_EAGER_SLOTS;

    while (slots > SHMCHAN_EAGER_LEAST && slots * peers * SHMCHAN_EAGER_BYTES > SHMCHAN_EAGER_ALL)
        slots /= 2;
    return slots;
}

static void shape_places(struct shmchan_shape *s, const struct wire_limits *limits, struct wire_caps *caps)
{
    s->area_mask = limits->minimal ? 0 : SHMCHAN_AREAS - 1;
    caps->chunk_all = limits->chunk ? limits->chunk : SHMCHAN_PLACE_BYTES;
    caps->chunk_private = limits->chunk ? limits->chunk : limits->chunk_private ? limits->chunk_private : private_chunk(s->size);
    s->all = credits(limits, 1, caps->chunk_all);
    s->private = credits(limits, s->size - 1, caps->chunk_private);
    caps->once_max = SHMCHAN_PLACE_BYTES;
    shape_once(s, limits);
    shape_each(s, limits);
    s->all_stride = sizeof(struct shmchan_line) + ((caps->chunk_all + 63) & ~(uint64_t)63);
    s->private_stride = sizeof(struct shmchan_line) + ((caps->chunk_private + 63) & ~(uint64_t)63);
    /* One edge's memory holds either layout. */
    size_t all = (s->all.mask + 1) * s->all_stride, each = (size_t)(s->size - 1) * (s->private.mask + 1) * s->private_stride;
    s->edge_stride = all > each ? all : each;
    s->stream_bytes = (size_t)(s->area_mask + 1) * WIRE_STREAM_EDGES * s->edge_stride;
    s->eager_slots = eager_slots(s->size - 1);
    s->pair_bytes = sizeof(struct shmchan_pair) + s->window * sizeof(struct shmchan_line) + s->eager_slots * SHMCHAN_EAGER_BYTES;
    s->chunk_stride = sizeof(struct shmchan_line) + SHMCHAN_CHUNK_BYTES;
    s->chunk_bytes = SHMCHAN_CHUNKS * s->chunk_stride;
}

bool shmchan_shape_of(struct shmchan_shape *s, uint32_t size, const struct wire_limits *limits, struct wire_caps *caps)
{
    uint32_t window = limits->window ? limits->window : SHMCHAN_WINDOW;
    if (window < SHMCHAN_WINDOW_MIN || window > SHMCHAN_WINDOW_MAX || (window & (window - 1)) || limits->chunk > SHMCHAN_PLACE_BYTES ||
        limits->chunk_private > SHMCHAN_PLACE_BYTES)
        return false;
    *s = (struct shmchan_shape){.size = size,
                                .window = window,
                                .once_edges = once_edges_of(limits, size),
                                .rendezvous = limits->rendezvous,
                                .copies = limits->copies,
                                .only_reads = limits->only_reads,
                                .reuses = limits->ahead || !limits->only_reads};
    uint32_t windows = limits->ahead ? SHMCHAN_AHEAD_WINDOWS : SHMCHAN_WINDOWS;
    *caps = (struct wire_caps){.inline_max = SHMCHAN_INLINE,
                               .window = window,
                               .calls = 2 * windows * window,
                               .whole_max = SHMCHAN_EAGER_BYTES,
                               .dirties = size == 2 && !limits->only_reads,
                               .takes_growing = true,
                               .keeps_long = limits->only_reads};
    size_t at = 0;
    carve(&at, sizeof(struct shmchan_head));
    s->inbox = carve(&at, size * sizeof(struct shmchan_inbox));
    s->calls = carve(&at, caps->calls * sizeof(struct wire_call));
    shape_lines(s, limits, &at);
    shape_places(s, limits, caps);
    s->acks = carve(&at, (size_t)SHMCHAN_AREAS * size * sizeof(struct shmchan_acks));
    s->pairs = carve(&at, size * sizeof(uint64_t));
    s->chunks = carve(&at, size * sizeof(uint64_t));
    s->inlets = carve(&at, size * sizeof(struct shmchan_inlet));
    BASE_ASSERT(size != 2 || s->all.mask == s->private.mask); /* a landing's slot is found without knowing the edge's kind */
    if (size == 2)
        s->landings = carve(&at, shmchan_landing_slots(s) * sizeof(struct shmchan_landing));
    s->bytes = at;
    return true;
}

uint64_t shmchan_shape_hash(const struct shmchan_shape *s, uint64_t team)
{
    uint64_t hash = base_hash(base_hash(team, s->size), s->window);
    hash = base_hash(base_hash(hash, s->once_edges), s->bytes);
    return base_hash(base_hash(base_hash(hash, s->stream_bytes), s->once_bytes), s->each.bytes);
}
