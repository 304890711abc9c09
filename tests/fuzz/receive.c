/*
 * The whole receive path of a tcp wire after a real handshake: plain, checked and sealed. Two hostile peers send anything, while the honest
 * side (honest.h) has looks, exposures, messages and notes pending on two communicators. For any input: the honest side's buffers and
 * counts are right (honest_check), all memory is freed, a message takes no more memory than it has bytes, and each peer either can still be
 * heard or is reported down, with a log line that has the reason.
 *
 * An input is a row of actions, and every row of bytes is valid: a byte for the action (bit 7: nothing is read yet), then its arguments,
 * which are zeros after the end of the input. A hostile frame is made as the protocol expects it next, from what the honest side waits for,
 * and then changed according to its byte of changes. Its number and checksum are right.
 */
#include "fuzz/fuzz.h"
#include "fuzz/honest.h"

#include <string.h>

enum action {
    READ = 0,
    SAY_FIRST = FRAME_EXPOSE, /* a frame of each kind */
    SAY_LAST = FRAME_PASS,
    SAY_BYTES,
    SAY_REST,
    HANG_UP,
    TAKE_BYTES,
    ISSUE,
    LOOK,
    SEE,
    SHOW,
    SEND,
    TAKE,
    RETURN,
    RETIRE,
    NOTE,
    PUBLISH,
    WATCH,
    ARM,
    LEAVE,
    ACTIONS,
    QUIET = 0x80,
};
enum change { LANE = 1, SEQ = 2, PLACE = 4, OTHER_TAG = 8, LENGTH = 16, ADDRESS = 32, SPLIT = 64, REPEAT = 128 };
enum {
    TURNS = 100,
    LOOKS = 8 /* a second each: after a goodbye, a peer may have five more */,
    SAID_MOST = 4 << 20,
    MEMORY_LEAST = 16 << 20
};

struct game {
    struct honest honest;
    const unsigned char *at, *end;
    uint32_t number[HONEST_RANKS][TCP_LANES], announced[HONEST_SIDES][HONEST_RANKS];
    bool raw[HONEST_RANKS][TCP_LANES], hung[HONEST_RANKS];
    size_t said;
    bool armed;
};

static uint32_t next(struct game *g)
{
    return g->at < g->end ? *g->at++ : 0;
}

static size_t size_of(uint32_t byte)
{
    static const uint32_t sizes[] = {8,     0,     1,     32,    33,     48,     49,     240,    241,    512,    1000,
                                     4096,  4097,  4160,  8192,  16384,  16385,  20000,  32768,  36864,  36865,  65536,
                                     65537, 73792, 73793, 90000, 131072, 262143, 262144, 262145, 524288, 1048576};

    return sizes[byte % (sizeof sizes / sizeof *sizes)];
}

/* ------------------------------------------------------------------------------------------------------------ hostile frames */
struct word {
    struct frame frame;
    uint32_t side, peer, lane;
    uint64_t value; /* the first eight bytes of the payload */
    struct honest_request *of;
};

static void of_request(struct word *w, struct honest_side *s, enum honest_kind kind, uint32_t which)
{
    w->of = honest_pending(s, kind, which);
    if (!w->of)
        return;
    w->peer = w->of->peer;
    w->frame.key = w->of->key;
    w->frame.edge = (uint8_t)(w->of->edge & 3);
    w->frame.bytes = (uint32_t)w->of->bytes;
}

/* The bytes of the next frame of a message; again from the start if nothing is left. */
static uint32_t rest_of(const struct honest_request *r)
{
    size_t rest = r->bytes - r->said % r->bytes;
    return (uint32_t)(rest < TCP_DATA_BYTES ? rest : TCP_DATA_BYTES);
}

/* Makes the frame that the protocol expects next. */
static void make_right(struct game *g, struct word *w, uint32_t which, size_t size)
{
    struct honest_side *s = &g->honest.side[w->side];
    const struct tcp_channel *c = tcp_of(s->channel);
    struct frame *f = &w->frame;

    switch (f->kind) {
    case FRAME_EXPOSE:
        f->key = wire_key_of(s->retired + 1 + which / WIRE_STREAM_EDGES, 0, which % WIRE_STREAM_EDGES);
        f->edge = (uint8_t)honest_edge(which);
        f->bytes = (uint32_t)size;
        of_request(w, s, HONEST_LOOK, which);
        w->lane = tcp_lane_for(f->bytes);
        return;
    case FRAME_DATA:
        w->lane = TCP_LANE_BULK;
        of_request(w, s, HONEST_TAKE, which);
        f->bytes = w->of ? rest_of(w->of) : (uint32_t)size;
        return;
    case FRAME_EAGER:
    case FRAME_ANNOUNCE:
        f->bytes = f->kind == FRAME_ANNOUNCE ? 8 : (uint32_t)(size < TCP_EAGER_BYTES ? size : TCP_EAGER_BYTES);
        w->value = size;
        f->key = wire_key_of(g->announced[w->side][w->peer] + 1, 0, 0);
        return;
    case FRAME_GRANT:
        of_request(w, s, HONEST_SEND, which);
        w->value = w->of ? w->of->bytes : size;
        f->bytes = 8;
        return;
    case FRAME_CONSUMED:
        f->key = wire_key_of(s->sent[w->peer], 0, 0);
        f->tag = c->member[w->peer].room_sent;
        return;
    case FRAME_ACK:
        f->key = wire_key_of(s->retired + 1, which / WIRE_STREAM_EDGES, which % WIRE_STREAM_EDGES);
        of_request(w, s, HONEST_SHOW, which);
        f->bytes = 0;
        return;
    case FRAME_RETIRED:
        f->key = wire_key_of(s->issued, 0, 0);
        return;
    case FRAME_WANT:
        f->key = wire_key_of(s->issued + 1, 0, which % (TCP_ROOMS + 1));
        return;
    case FRAME_NOTE:
        f->key = wire_key_of(1, 0, which % WIRE_NOTE_SORTS);
        f->bytes = (uint32_t)wire_note_bytes(which % WIRE_NOTE_SORTS);
        return;
    case FRAME_CALLS:
        f->bytes = 32 * (1 + which);
        w->value = s->issued;
        return;
    case FRAME_PASS:
        f->bytes = FRAME_PASS_HEAD + 32;
        return;
    default:
        return;
    }
}

static void change(struct game *g, struct word *w, uint32_t changes)
{
    struct frame *f = &w->frame;

    if ((changes & LANE) && !(changes & REPEAT))
        w->lane ^= 1;
    if (changes & SEQ)
        f->key += (uint64_t)(int64_t)(int8_t)next(g) << 32;
    if (changes & PLACE) {
        uint32_t place = next(g);
        f->key = wire_key_of(wire_key_seq(f->key), place >> 3, place & 7);
        f->edge = (uint8_t)(next(g) & 3);
    }
    if (changes & OTHER_TAG)
        f->tag = next(g);
    if (changes & LENGTH) {
        uint32_t by = next(g);
        f->bytes = by & 0x80 ? f->bytes + (by & 0x7f) - 0x40 : (uint32_t)size_of(by);
        w->value = by & 0x40 ? UINT64_MAX - by : size_of(by >> 1);
    }
    if (changes & ADDRESS) {
        uint32_t by = next(g);
        f->from = (uint16_t)(by & 3);
        f->channel ^= by >> 2;
    }
}

/* Fills the payload with bytes that buffers never contain before. */
static void say_frame(struct game *g, struct word *w, uint32_t behind)
{
    static unsigned char all[FRAME_LINE + FRAME_PAYLOAD_MAX + FRAME_LINE];
    struct frame f = w->frame;
    uint32_t at = frame_payload_at(f.bytes), span = f.bytes <= FRAME_PAYLOAD_MAX ? frame_span(f.bytes) : FRAME_LINE;
    uint32_t socket = g->honest.wire->links[w->peer].lane[w->lane].socket;

    if (g->said + span > SAID_MOST)
        return;
    f.number = g->number[w->peer][w->lane]++;
    memset(all, 0, FRAME_LINE);
    memset(all + at, (int)(f.number & 0x7f), span - at);
    if (f.bytes >= 8 && span > at + 8)
        base_put64(all + at, w->value);
    frame_encode(&f, all);
    g->said += span;
    if (f.kind == FRAME_EAGER || f.kind == FRAME_ANNOUNCE)
        g->announced[w->side][w->peer] = wire_key_seq(f.key);
    if (w->of)
        w->of->said += f.bytes;
    mock_release(&g->honest.mock, socket);
    mock_say(&g->honest.mock, w->peer, w->lane, socket, all, span, behind);
}

static void say(struct game *g, enum frame_kind kind)
{
    uint32_t where = next(g), size = next(g), changes = next(g), behind = 0, times = 1;
    struct word w = {.side = where & 1, .peer = 1 + (where >> 1 & 1), .frame = {.kind = (uint8_t)kind}};

    if (w.side)
        w.peer = 1;
    make_right(g, &w, where >> 2, size_of(size));
    if (!w.frame.tag && kind != FRAME_CONSUMED)
        w.frame.tag = 7;
    w.frame.from = (uint16_t)w.peer;
    w.frame.channel = tcp_of(g->honest.side[w.side].channel)->name;
    change(g, &w, changes);
    if (changes & SPLIT)
        behind = (uint32_t)size_of(next(g));
    if (changes & REPEAT)
        times += next(g);
    for (; times; times--) {
        say_frame(g, &w, behind);
        if (kind == FRAME_EAGER || kind == FRAME_ANNOUNCE)
            w.frame.key += UINT64_C(1) << 32;
        if (changes & LANE) /* the same again on the other lane, while a part of it is held back */
            w.lane ^= 1;
    }
}

/* Sends raw bytes, sealed or instead of a seal. */
static void say_bytes(struct game *g)
{
    uint32_t where = next(g), count = next(g), peer = 1 + (where >> 1 & 1), lane = where & 1;
    uint32_t socket = g->honest.wire->links[peer].lane[lane].socket;
    unsigned char bytes[256];

    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = (unsigned char)next(g);
        bytes[i] ^= bytes[i] == 0xa5;
    }
    g->raw[peer][lane] = true;
    mock_release(&g->honest.mock, socket);
    if (where & 4)
        mock_arrive(&g->honest.mock, socket, bytes, count, 0);
    else
        mock_say(&g->honest.mock, peer, lane, socket, bytes, count, 0);
}

static void release_all(struct game *g)
{
    for (uint32_t i = 0; i < g->honest.mock.sockets; i++)
        mock_release(&g->honest.mock, i);
}

static void hang_up(struct game *g)
{
    uint32_t where = next(g), peer = 1 + (where >> 1 & 1);

    g->hung[peer] = true;
    mock_hang_up(&g->honest.mock, g->honest.wire->links[peer].lane[where & 1].socket, where & 4);
}

static void take_bytes(struct game *g)
{
    uint32_t where = next(g), size = next(g);

    mock_room(&g->honest.mock, g->honest.wire->links[1 + (where >> 1 & 1)].lane[where & 1].socket,
              size        ? size_of(size)
              : where & 4 ? SIZE_MAX
                          : 0);
}

/* ------------------------------------------------------------------------------------------------------------ the honest side */
static void look(struct game *g, struct honest_side *s, uint32_t where)
{
    uint32_t which = next(g), how = next(g);

    honest_look(s, 1 + (where >> 1 & 1), which & 15, which >> 4, size_of(how & 31), how & 32, how & 64);
}

static void act(struct game *g, uint32_t action)
{
    uint32_t where = next(g), b = 0;
    struct honest_side *s = &g->honest.side[where & 1];
    unsigned char note[WIRE_NOTE_LONG_BYTES] = {0};

    switch (action) {
    case ISSUE:
        honest_issue(s);
        return;
    case LOOK:
        look(g, s, where);
        return;
    case SEE:
        honest_see(s, where >> 1, size_of(next(g)));
        return;
    case SHOW:
        b = next(g);
        honest_show(s, where >> 1 & 15, where >> 5, size_of(b), b & 32);
        return;
    case SEND:
        honest_send(s, 1 + (where >> 1 & 1), size_of(next(g)));
        return;
    case TAKE:
        b = next(g);
        honest_take(s, where >> 1, size_of(b & 31), b & 32);
        return;
    case RETURN:
        honest_return(s, where >> 1);
        return;
    case RETIRE:
        honest_retire(s);
        return;
    case NOTE:
        honest_note(s, where >> 1, note, sizeof note);
        return;
    case PUBLISH:
        honest_publish(s, where);
        return;
    case WATCH:
        honest_watch(&g->honest, (int64_t)where * 10000000);
        return;
    case ARM:
        if (where & 2)
            honest_heed(&g->honest, where & 1);
        else
            honest_arm(&g->honest, g->armed = !g->armed);
        return;
    default:
        if (where & 2)
            honest_abort(s);
        else
            honest_reopen(s);
        memset(g->announced[where & 1], 0, sizeof g->announced[0]);
    }
}

static void step(struct game *g)
{
    uint32_t what = next(g), action = (what & 0x7f) % ACTIONS;

    if (action >= SAY_FIRST && action <= SAY_LAST)
        say(g, (enum frame_kind)action);
    else if (action == SAY_BYTES)
        say_bytes(g);
    else if (action == SAY_REST)
        release_all(g);
    else if (action == HANG_UP)
        hang_up(g);
    else if (action == TAKE_BYTES)
        take_bytes(g);
    else if (action != READ)
        act(g, action);
    if (!(what & QUIET))
        honest_progress(&g->honest);
    honest_check(&g->honest);
    HOLD(g->honest.mock.held_bytes <= MEMORY_LEAST + 4 * (g->said + g->honest.told));
}

/* ------------------------------------------------------------------------------------------------------------ the end */
/* Reads all that was sent, in a bounded number of looks. */
static void drain(struct game *g)
{
    struct honest *h = &g->honest;
    size_t waiting = 1;

    for (int turn = 0; waiting; turn++) {
        HOLD(turn < TURNS);
        honest_watch(h, 0);
        honest_progress(h);
        waiting = 0;
        for (uint32_t i = 0; i < h->mock.sockets; i++)
            waiting += mock_waiting(&h->mock, i);
    }
}

/* A peer that did nothing wrong can still be heard. Any other is down, and the reason was logged. */
static void check_peer(struct game *g, uint32_t peer)
{
    struct honest *h = &g->honest;
    struct tcp_link *link = &h->wire->links[peer];
    struct tcp_lane *small = &link->lane[TCP_LANE_SMALL];
    struct honest_side *s = &h->side[0];
    struct tcp_member *m = &tcp_of(s->channel)->member[peer];

    if (link->lane[TCP_LANE_SMALL].ended || link->lane[TCP_LANE_BULK].ended) {
        HOLD(h->down[peer] && link->down && (h->lines || g->hung[peer]));
        return;
    }
    HOLD(!h->down[peer]);
    if (g->raw[peer][TCP_LANE_SMALL] || g->hung[peer] || g->said >= SAID_MOST - FRAME_PAYLOAD_MAX)
        return;
    struct word w = {.peer = peer, .frame = {.kind = FRAME_RETIRED, .from = (uint16_t)peer, .channel = tcp_of(s->channel)->name}};
    w.frame.key = wire_key_of(m->retired + 1, 0, 0);
    say_frame(g, &w, 0);
    drain(g);
    HOLD(small->ended || m->retired == wire_key_seq(w.frame.key));
}

static void finish(struct game *g)
{
    struct honest *h = &g->honest;

    release_all(g);
    h->mock.piece = 0;
    for (uint32_t i = 0; i < h->mock.sockets; i++)
        mock_room(&h->mock, i, SIZE_MAX);
    drain(g);
    for (int i = 0; i < LOOKS; i++)
        honest_watch(h, 1000000000);
    for (uint32_t peer = 1; peer < HONEST_RANKS; peer++)
        check_peer(g, peer);
    honest_check(h);
    honest_close(h);
}

int fuzz_receive(const unsigned char *bytes, size_t count)
{
    static struct game g;
    static const uint32_t pieces[] = {0, 0, 0, 64, 100, 1, 4096, 65536};

    memset(&g, 0, sizeof g);
    g.at = bytes;
    g.end = bytes + count;
    uint32_t how = next(&g);
    honest_open(&g.honest, (how & 3) == 3 && !crypto_missing() ? MOCK_SEALED : (how & 3) == 2 ? MOCK_CHECKED : MOCK_PLAIN);
    g.honest.mock.late = how & 4;
    g.honest.mock.piece = pieces[how >> 3 & 7];
    while (g.at < g.end)
        step(&g);
    finish(&g);
    return (int)g.honest.ended;
}
