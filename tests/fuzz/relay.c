/*
 * Whatever neighbours forward, and whichever of them sends it: each word is forwarded at most once, whole, to all neighbours except the one
 * it came from. A new word is never lost. An invalid word is refused and not forwarded. The target is one rank of eight with its five
 * neighbours, without sockets. A model records which words have arrived.
 *
 * An input is a row of words: 1 byte for the sender, 2 for the length, 8 key, 4 tag, then that many bytes, as in a frame.
 */
#include "fuzz/fuzz.h"

#include "base/edge.h"
#include "net/lane/lane.h"
#include "net/mesh/connect.h"
#include "wire/table.h"

enum { RANKS = 8, ME = 3, NEIGHBOURS = 5, MEMBERS = 4, HEAD = 15, SAID = 256, NO_FD = 1 << 20, WINDOW = 4, SEEN = 64 };
static const int32_t world[MEMBERS] = {1, ME, 4, 6};

struct origin {
    uint32_t newest, numbers, number[SAID];
};
struct net {
    struct tcp_wire w;
    struct tcp_port port;
    struct tcp_link link[RANKS];
    struct env_bell bell;
    struct tcp_channel *channel;
    struct origin origin[RANKS];
};

/* ------------------------------------------------------------------------------------------------------------ a rank without sockets */
static const char *needed(const struct comm_env *env, const char *name)
{
    (void)env;
    return strcmp(name, "COMM_TCP_LINKS") == 0 ? "needed" : NULL;
}

static int64_t noon(const struct comm_env *env)
{
    (void)env;
    return 1000000000;
}

static void ring_nothing(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    (void)bell;
}

static void join(struct net *n)
{
    const struct wire_class *tcp = wire_backend_one_process("tcp")->wire;
    const struct wire_team team = {.id = 1, .rank = 1, .size = MEMBERS, .world = world};
    const struct wire_limits limits = {.window = WINDOW};
    unsigned char offers[MEMBERS][WIRE_OFFER_BYTES];
    struct wire_channel *channel = NULL;

    HOLD(tcp->join(&n->w.wire, &team, &limits, NULL, offers[0], &channel) == COMM_OK);
    for (int i = 1; i < MEMBERS; i++) /* every member uses this rank's name of the channel */
        memcpy(offers[i], offers[0], sizeof offers[0]);
    HOLD(tcp->join(&n->w.wire, &team, &limits, offers, offers[0], &channel) == COMM_OK);
    n->channel = tcp_of(channel);
}

static void set_up(struct net *n, struct comm_env *env)
{
    static const struct base_log quiet = {.level = 0, .rank = -1};
    char text[256];
    const struct wire_config config = {.env = env, .error_text = text, .error_text_bytes = sizeof text};

    *env = *wire_default_env();
    env->lookup = needed;
    env->now = noon;
    env->bell_ring = ring_nothing;
    memset(n, 0, sizeof *n);
    n->w = (struct tcp_wire){.env = env, .log = &quiet, .watch = &n->bell, .bell = &n->bell, .rank = ME, .ranks = RANKS, .ports = 1};
    n->w.port = &n->port;
    n->w.links = n->link;
    n->port = (struct tcp_port){.wire = &n->w, .rank = ME, .link = n->link};
    HOLD(tcp_acceptor_make(&n->w, &config) == COMM_OK);
    for (int32_t i = 0; i < RANKS; i++) {
        struct tcp_link *link = &n->link[i];
        link->peer = i;
        link->ours = i != ME;
        for (uint32_t k = 0; k < TCP_SOCKETS; k++) {
            struct tcp_lane *lane = &link->lane[k];
            *lane = (struct tcp_lane){.fd = tcp_is_base(&n->w, i) ? NO_FD : -1, .port = &n->port, .link = link, .lane = k};
            lane->out_last = &lane->out;
        }
        if (tcp_is_base(&n->w, i))
            tcp_add_neighbour(link);
    }
    join(n);
}

static void tear_down(struct net *n)
{
    const struct comm_env *env = n->w.env;
    struct tcp_channel *c = n->channel;

    tcp_memory_end(c);
    edge_open(c, c->bytes);
    env->give(env, c, c->bytes);
    env->give(env, n->w.channel, n->w.channels_room * sizeof *n->w.channel);
    for (uint32_t order = 0; order <= TCP_ORDER_MOST; order++)
        for (struct tcp_block *b = n->w.memory.free_block[order], *next; b; b = next) {
            next = b->next;
            tcp_block_bound(b, tcp_block_room(b));
            env->give(env, b, sizeof *b + tcp_block_room(b));
        }
    tcp_acceptor_close(&n->w);
}

/* ------------------------------------------------------------------------------------------------------------ the model */
static bool was_here(const struct origin *o, uint32_t number)
{
    bool was = false;

    for (uint32_t i = 0; i < o->numbers; i++)
        was |= o->number[i] == number;
    return was;
}

static bool is_whole(const struct origin *o)
{
    bool whole = true;

    for (uint32_t back = 1; back <= SEEN && back < o->newest; back++)
        whole &= was_here(o, o->newest - back);
    return whole;
}

/* Numbers wrap: a number that is further back than is remembered may come again, in another cycle. */
static void remember(struct origin *o, uint32_t number, bool newer)
{
    uint32_t kept = 0;

    o->number[o->numbers++] = number;
    o->newest = newer ? number : o->newest;
    for (uint32_t i = 0; i < o->numbers; i++)
        if (o->newest - o->number[i] <= SEEN)
            o->number[kept++] = o->number[i];
    o->numbers = kept;
}

/* How many frames this neighbour was given: none, or exactly this one. */
static uint32_t given(struct tcp_link *link, const struct frame *f, const unsigned char *payload)
{
    struct tcp_lane *lane = &link->lane[TCP_LANE_SMALL];
    uint32_t count = 0, number = lane->out_number - 1;
    struct frame told;

    for (const struct tcp_block *b = lane->out; b; b = b->next) {
        const unsigned char *at = (const unsigned char *)b->data;
        HOLD(!count && b->bytes == frame_span(f->bytes) && frame_decode(at, number, &told) == FRAME_SOUND);
        HOLD(told.kind == FRAME_PASS && told.key == f->key && told.tag == f->tag && told.bytes == f->bytes);
        HOLD(!memcmp(at + frame_payload_at(f->bytes), payload, f->bytes));
        count++;
    }
    tcp_drop_out(lane);
    return count;
}

static uint32_t word(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void notes_are_sound(const struct tcp_channel *c)
{
    uint32_t fresh = 0;

    for (uint32_t i = 0; i < c->size; i++)
        for (uint32_t sort = 0; sort < WIRE_NOTE_SORTS; sort++) {
            fresh += c->member[i].fresh >> sort & 1;
            HOLD(c->member[i].note[sort].bytes <= wire_note_bytes(sort));
        }
    HOLD(fresh == c->notes_fresh && !c->member[c->rank].fresh);
}

/* Returns 1 if the word was new. */
static int say(struct net *n, struct tcp_link *via, const struct frame *f, const unsigned char *payload)
{
    uint32_t who = word(payload + 8), number = word(payload + 12), others = 0;
    struct origin *o = who < RANKS && who != ME ? &n->origin[who] : NULL;
    bool newer = o && (int32_t)(number - o->newest) > 0, before = o && was_here(o, number);
    const char *why = tcp_relay_came(&via->lane[TCP_LANE_SMALL], f, payload);

    for (int32_t i = 0; i < RANKS; i++) {
        uint32_t count = given(&n->link[i], f, payload);
        HOLD(!count || (tcp_is_base(&n->w, i) && &n->link[i] != via));
        others += count;
    }
    HOLD(others == 0 || others == NEIGHBOURS - 1);
    HOLD(!others || (o && !before && !why && (newer || o->newest - number <= SEEN)));
    HOLD(others || why || !newer);
    notes_are_sound(n->channel);
    if (others) {
        remember(o, number, newer);
        HOLD(tcp_relay_is_whole(&n->w, (int32_t)who) == is_whole(o));
    }
    for (int32_t i = 0; i < RANKS; i++)
        HOLD(!n->link[i].told.kind || (i != ME && n->link[i].told.peer == i &&
                                       (n->link[i].told.result == COMM_ERR_PEER || n->link[i].told.result == COMM_ERR_CLOSED)));
    return others != 0;
}

int fuzz_relay(const unsigned char *bytes, size_t count)
{
    static const int32_t from[NEIGHBOURS] = {1, 2, 4, 5, 7};
    unsigned char payload[FRAME_CONTROL_MAX];
    struct comm_env env;
    struct net n;
    int fresh = 0;

    set_up(&n, &env);
    for (int said = 0; count >= HEAD && said < SAID; said++) {
        size_t length = bytes[1] | (size_t)bytes[2] << 8, left = count - HEAD;
        struct frame f = {.kind = FRAME_PASS, .key = base_get64(bytes + 3), .tag = word(bytes + 11)};
        length = length < FRAME_PASS_HEAD ? FRAME_PASS_HEAD : length > FRAME_CONTROL_MAX ? FRAME_CONTROL_MAX : length;
        f.bytes = (uint32_t)length;
        memset(payload, 0, sizeof payload);
        memcpy(payload, bytes + HEAD, length < left ? length : left);
        fresh += say(&n, &n.link[from[bytes[0] % NEIGHBOURS]], &f, payload);
        bytes += HEAD + (length < left ? length : left);
        count = left - (length < left ? length : left);
    }
    tear_down(&n);
    return fresh;
}
