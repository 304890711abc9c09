/* The streams between ranks: when a frame arrives, in which pieces, and which accidents it has. */
#include "sim/frames.h"

#include "net/frame/stale.h"

#include <string.h>

#define LINK_DOWN_NS INT64_C(5000000000)

struct stream {
    int64_t last_ns, clogged_until; /* arrival of its last frame */
    bool broken;                    /* nothing arrives any more */
    bool corrupt;                   /* the next bytes are corrupted */
    uint32_t out[2], in[2];         /* numbers of the next frames; if metered, bytes travel separately */
    struct frame *first, **last;    /* for script order: frames on their way */
};
/* Most pairs of a large world never exchange a frame, so streams are made in blocks when the first frame of a block leaves. */
enum { BLOCK = 8, BLOCKS = (SIM_RANKS_MAX + BLOCK - 1) / BLOCK };
static struct stream *blocks[SIM_RANKS_MAX][BLOCKS];
static int32_t senders; /* of the run before */
static struct card {
    int64_t sends, receives; /* busy until then */
} cards[SIM_RANKS_MAX];

void frames_net_reset(void)
{
    for (int32_t a = 0; a < senders; a++)
        memset(blocks[a], 0, ((size_t)senders + BLOCK - 1) / BLOCK * sizeof *blocks[a]);
    senders = sim.config.ranks;
    memset(cards, 0, sizeof cards);
    frames_stale_reset();
}

/* NULL: no frame has left yet. */
static struct stream *stream_if_any(int32_t from, int32_t to)
{
    struct stream *block = blocks[from][to / BLOCK];

    return block ? &block[to % BLOCK] : NULL;
}

static struct stream *stream_of(int32_t from, int32_t to)
{
    struct stream **block = &blocks[from][to / BLOCK];

    if (!*block)
        *block = sim_memory_take(BLOCK * sizeof **block, 64);
    if (!*block) {
        sim_failed("the simulator's memory is used up");
        sim_finish();
    }
    return &(*block)[to % BLOCK];
}

bool frames_net_broken(int32_t from, int32_t to)
{
    const struct stream *s = stream_if_any(from, to);

    return s && s->broken;
}

/* When the last frame on its way from one rank to the other will arrive. */
int64_t frames_net_last(int32_t from, int32_t to)
{
    const struct stream *s = stream_if_any(from, to);

    return s ? s->last_ns : 0;
}

int64_t frames_net_clear(int32_t from, int32_t to)
{
    const struct stream *s = stream_if_any(from, to);

    return s ? s->clogged_until : 0;
}

struct frame *frame_make(struct frames_channel *from, uint32_t to, enum frame_kind kind, wire_key key, const void *bytes, size_t count)
{
    size_t memory = sizeof(struct frame) + count;
    struct frame *f = sim_memory_take(memory, 64);

    if (!f) {
        sim_failed("the simulator's memory is used up");
        sim_finish();
    }
    *f = (struct frame){.from = from, .to = to, .kind = kind, .key = key, .total = count, .bytes = count, .memory = memory};
    if (count && bytes)
        memcpy(f->data, bytes, count);
    return f;
}

void frame_free(struct frame *f)
{
    sim_memory_give(f, f->memory, true);
}

void frame_post(struct frames_channel *c, struct frame *f)
{
    f->next = NULL;
    *c->out_last = f;
    c->out_last = &f->next;
}

/* ------------------------------------------------------------------------------------------------------------ arriving */
/* The user's bytes are read when they are sent; the user gets the memory back no earlier than when the last of them is
 * sent. */
static bool fetch_held(struct frame *f)
{
    struct frames_channel *c = f->from;

    if (!f->held)
        return true;
    if (c->aborted || c->closed || sim.member[c->wire->port->rank].dead)
        return false;
    memcpy(f->data, f->held, f->bytes);
    f->held = NULL;
    if (f->hold && --f->hold->pieces == 0) {
        frames_event(c, &(struct wire_event){.kind = WIRE_EVENT_DONE, .result = WIRE_DONE, .cookie = f->hold->cookie, .key = f->key});
        sim_port_ring(c->wire->port);
        SIM_PROBE("frames: an exposure completed later");
    }
    return true;
}

/* If metered: bytes wait for a card, while acknowledgements do not. */
static int is_apart(const struct frame *f)
{
    int32_t from = f->from->wire->port->rank, to = f->from->peer[f->to].channel->wire->port->rank;

    return sim.config.meter && f->kind == FRAME_BYTES && sim_host_of(from) != sim_host_of(to);
}

static bool carries_bytes(const struct frame *f)
{
    return f->bytes && (f->kind == FRAME_BYTES || f->kind == FRAME_EAGER || f->kind == FRAME_DATA);
}

/* A wrong checksum breaks the connection: none of the bytes is used. */
static void break_link(int32_t a, int32_t b, int64_t within_ns)
{
    stream_of(a, b)->broken = stream_of(b, a)->broken = true;
    sim_port_notice(a, b, COMM_ERR_PEER, sim.clock + sim_between(&sim.chance, 1, within_ns));
    sim_port_notice(b, a, COMM_ERR_PEER, sim.clock + sim_between(&sim.chance, 1, within_ns));
}

/* NULL: no channel receives it. Contents and receiver are taken from its header. */
static struct frames_channel *open_frame(struct frame *f, int32_t a, int32_t b)
{
    struct frames_wire *w = f->from->peer[f->to].channel->wire;
    struct stream *s = stream_of(a, b);
    struct head_said said;

    if (s->broken || sim.member[b].dead || sim.member[b].ended)
        return NULL;
    if (!head_read(f->head, s->in[is_apart(f)], &said)) {
        SIM_PROBE("frames: bytes of an earlier connection are refused");
        break_link(a, b, sim.mood.death_ns);
        return NULL;
    }
    s->in[is_apart(f)]++;
    f->kind = (enum frame_kind)said.kind;
    f->edge = said.edge;
    f->tag = said.tag;
    f->key = said.key;
    struct frames_channel *to = frames_find(w, said.channel, said.from, a);
    if (!to && f->again) {
        SIM_PROBE("frames: what is late finds its communicator gone");
        if (w->channel[stale_place(said.channel)])
            SIM_PROBE("frames: what is late finds another communicator in the place of its own");
    }
    return to;
}

static void deliver(struct frame *f)
{
    int32_t a = f->from->wire->port->rank, b = f->from->peer[f->to].channel->wire->port->rank;
    struct stream *s = stream_of(a, b);

    sim.events++;
    sim_mix(f->key ^ (uint64_t)f->kind << 56 ^ (uint64_t)(uint32_t)a << 40 ^ (uint64_t)(uint32_t)b << 48);
    if (s->corrupt && carries_bytes(f) && !s->broken) {
        SIM_PROBE("frames: a broken checksum");
        break_link(a, b, sim.mood.death_ns);
    }
    struct frames_channel *to = open_frame(f, a, b);
    if (!to || !fetch_held(f)) {
        SIM_PROBE("frames: a frame is lost");
        frame_free(f);
        return;
    }
    frames_keep(f);
    frames_arrive(to, f);
    sim_port_ring(to->wire->port);
    frame_free(f);
}

static void deliver_timer(void *arg, uint64_t what)
{
    (void)what;
    deliver(arg);
}

/* ------------------------------------------------------------------------------------------------------------ sending */
/* Metered: as in model/cost_place.c. The card of the sender's host sends one message after the other; the reader's card
 * receives one after the other, from when a message begins to arrive. Acknowledgements are too short to count. */
static void comes_in(void *arg, uint64_t card)
{
    struct frame *f = arg;
    struct card *c = &cards[card];

    c->receives = (sim.clock > c->receives ? sim.clock : c->receives) + (int64_t)f->bytes * sim.config.meter->byte_ns;
    sim_at(c->receives, deliver_timer, f, 0);
}

static void launch_metered(struct frame *f, struct stream *s, int32_t from, int32_t to)
{
    const struct sim_meter *m = sim.config.meter;
    struct card *card = &cards[from];
    int64_t start = sim.clock > card->sends ? sim.clock : card->sends, takes = (int64_t)f->bytes * m->byte_ns;

    if (from == to || f->kind != FRAME_BYTES) {
        s->last_ns = s->last_ns > sim.clock + m->latency_ns ? s->last_ns : sim.clock + m->latency_ns;
        sim_at(sim.clock + m->latency_ns, deliver_timer, f, 0);
        return;
    }
    card->sends = start + m->gap_ns + takes;
    s->last_ns = start + m->latency_ns + SIM_RANKS_MAX * takes; /* at most: this many cards send to the reader's */
    sim_at(start + m->latency_ns, comes_in, f, (uint64_t)to);
}

static void write_head(struct frame *f, struct stream *s)
{
    const struct frames_channel *c = f->from;
    struct head_said said = {.kind = f->kind, .edge = f->edge, .from = c->rank, .channel = c->peer[f->to].name, .tag = f->tag};

    said.number = s->out[is_apart(f)]++;
    said.key = f->key;
    said.bytes = f->bytes;
    head_write(&said, f->head);
}

void frame_launch(struct frame *f, bool numbered)
{
    int32_t from = f->from->wire->port->rank, to = f->from->peer[f->to].channel->wire->port->rank;
    struct stream *s = stream_of(from, to);
    const struct sim_mood *m = &sim.mood;
    int64_t takes = m->latency_ns + sim_between(&sim.network, 0, m->spread_ns) + (int64_t)f->bytes * m->byte_ps / 1000;

    if (numbered)
        write_head(f, s);
    if (sim.config.order == SIM_ORDER_SCRIPT) {
        f->next = NULL;
        if (!s->first)
            s->last = &s->first;
        *s->last = f;
        s->last = &f->next;
        return;
    }
    if (sim.config.meter) {
        launch_metered(f, s, sim_host_of(from), sim_host_of(to));
        return;
    }
    if (m->tail && sim_below(&sim.network, m->tail) == 0)
        takes *= 100;
    int64_t at = sim.clock + takes;
    at = at > s->last_ns ? at : s->last_ns + 1;
    at = at > s->clogged_until ? at : s->clogged_until;
    s->last_ns = at;
    sim_at(at, deliver_timer, f, 0);
}

/* Cuts at any byte: a stream's reader may receive other pieces than its writer sent. */
static void send_pieces(struct frame *f)
{
    uint64_t begin = 0, pieces = sim_below(&sim.network, FRAMES_PIECES);

    if (f->kind != FRAME_BYTES || sim.config.meter || sim.config.order == SIM_ORDER_SCRIPT)
        pieces = 0;
    for (; pieces && f->bytes > 1; pieces--) {
        uint64_t count = 1 + sim_below(&sim.network, f->bytes - 1);
        struct frame *piece = frame_make(f->from, f->to, f->kind, f->key, NULL, count);
        struct frame kept = *piece;
        memcpy(piece, f, sizeof *piece);
        piece->memory = kept.memory;
        piece->begin = begin;
        piece->bytes = count;
        if (f->held) {
            f->held += count;
            f->hold->pieces++;
        } else {
            memcpy(piece->data, f->data, count);
            memmove(f->data, f->data + count, f->bytes - count);
        }
        begin += count;
        f->begin = begin;
        f->bytes -= count;
        frame_launch(piece, true);
    }
    frame_launch(f, true);
}

void frames_send(struct frames_channel *c)
{
    struct frame *f = c->out;

    c->out = NULL;
    c->out_last = &c->out;
    while (f) {
        struct frame *next = f->next;
        send_pieces(f);
        f = next;
    }
}

/* ------------------------------------------------------------------------------------------------------------ accidents */
/* Connections break only between hosts: ranks on one host have a board in shared memory, and no connection to lose. */
bool frames_fault(const struct sim_fault *f)
{
    if (sim.config.wire == SIM_WIRE_LINES || f->peer < 0 || f->peer >= sim.config.ranks || f->peer == f->victim)
        return false;
    bool apart = sim_host_of(f->victim) != sim_host_of(f->peer);
    struct stream *s = stream_of(f->victim, f->peer);
    switch (f->kind) {
    case SIM_CLOG:
        s->clogged_until = sim.clock + f->ns < sim.heal_ns ? sim.clock + f->ns : sim.heal_ns;
        return true;
    case SIM_RESET:
        if (apart)
            break_link(f->victim, f->peer, sim.mood.death_ns);
        return apart;
    case SIM_CUT: /* nothing more arrives: detected by silence, within five seconds */
        if (!apart)
            return false;
        s->broken = true;
        sim_port_notice(f->peer, f->victim, COMM_ERR_PEER, sim.clock + sim_between(&sim.chance, 1, LINK_DOWN_NS));
        sim_port_notice(f->victim, f->peer, COMM_ERR_PEER, sim.clock + sim_between(&sim.chance, 1, LINK_DOWN_NS));
        return true;
    case SIM_STALE:
    case SIM_REPLAY:
        return frames_come_again(f);
    default:
        s->corrupt |= apart && f->kind == SIM_CORRUPT;
        return apart && f->kind == SIM_CORRUPT;
    }
}

/* ------------------------------------------------------------------------------------------------------------ script */
bool frames_script_deliver(void)
{
    enum { CONNECTIONS_MAX = 128 };
    uint32_t connection[CONNECTIONS_MAX], count = 0;

    for (int32_t a = 0; a < sim.config.ranks; a++)
        for (int32_t b = 0; b < sim.config.ranks; b++) {
            const struct stream *s = stream_if_any(a, b);
            if (s && s->first && count < CONNECTIONS_MAX)
                connection[count++] = (uint32_t)(a * sim.config.ranks + b);
        }
    if (!count)
        return false;
    uint32_t index = sim.config.choose(sim.config.choose_arg, connection, count);
    if (index >= count)
        sim_finish(); /* this order is already explored */
    uint32_t chosen = connection[index];
    struct stream *s = stream_of((int32_t)(chosen / (uint32_t)sim.config.ranks), (int32_t)(chosen % (uint32_t)sim.config.ranks));
    struct frame *f = s->first;
    s->first = f->next;
    deliver(f);
    return true;
}
