/* The tcp wire: its life, and its channels'. */
#define _GNU_SOURCE
#include "net/tcp/tcp.h"

#include "base/format.h"
#include "base/option.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

extern const struct wire_class wire_tcp;
static const struct wire_class tcp_of_two;
#define OFFER_MAGIC UINT64_C(0x3170637463636f6d)
#define PEER_TIMEOUT_NS INT64_C(30000000000)
#define LINK_TIMEOUT_NS INT64_C(3000000000)
#define NOTE_LEAD_NS INT64_C(2000000000)

/* ------------------------------------------------------------------------------------------------------------ open, close */
static size_t links_of(const struct tcp_wire *w)
{
    return (size_t)w->ports * (size_t)w->ranks;
}

static void close_sockets(struct tcp_wire *w)
{
    for (size_t i = 0; i < links_of(w); i++)
        for (int k = 0; k < TCP_SOCKETS; k++) {
            struct tcp_lane *lane = &w->links[i].lane[k];
            if (lane->fd >= 0 && w->poller && !lane->ended)
                w->poller->class->remove(w->poller, lane->socket);
            if (lane->fd >= 0) {
                w->env->own(w->env, lane->fd, false);
                close(lane->fd);
            }
            for (struct tcp_block *b = lane->out, *next; b; b = next) {
                next = b->next;
                tcp_block_give(w, b);
            }
            if (lane->ahead)
                tcp_block_give(w, lane->ahead);
        }
}

void tcp_destroy(struct tcp_wire *w)
{
    const struct comm_env *env = w->env;

    tcp_acceptor_close(w);
    close_sockets(w);
    if (w->poller)
        w->poller->class->close(w->poller);
    if (w->timer >= 0)
        close(w->timer);
    if (w->heed >= 0)
        close(w->heed);
    for (size_t i = 0; i < links_of(w) * TCP_SOCKETS; i++)
        record_end(w->links[i / TCP_SOCKETS].lane[i % TCP_SOCKETS].records);
    if (w->deaths >= 0)
        close(w->deaths);
    for (uint32_t order = TCP_ORDER_LEAST; order <= TCP_ORDER_MOST; order++)
        for (struct tcp_block *b = w->free_block[order], *next; b; b = next) {
            next = b->next;
            tcp_block_bound(b, tcp_block_room(b));
            env->give(env, b, sizeof *b + tcp_block_room(b));
        }
    if (w->stages)
        edge_open(w->stages, w->stage_bytes);
    env->give(env, w->stages, w->stage_bytes);
    env->give(env, w->zeros, FRAME_PAYLOAD_MAX);
    env->give(env, w->sink, FRAME_PAYLOAD_MAX);
    env->give(env, w->alone, TCP_ALONE_BYTES);
    if (w->channel)
        env->give(env, w->channel, w->channels_room * sizeof *w->channel);
    edge_open(w, w->bytes);
    env->give(env, w, w->bytes);
}

/* Where the next part of one allocation begins, whose last part ends at `end`. */
static void *behind(void *end)
{
    edge_close(end, EDGE_BYTES);
    return (char *)end + EDGE_BYTES;
}

static void lay_out(struct tcp_wire *w, char *memory)
{
    size_t links = links_of(w);
    char *stage = w->stages;

    w->port = (struct tcp_port *)(void *)memory;
    w->links = (struct tcp_link *)behind(w->port + w->ports);
    w->hot = (uint32_t *)behind(w->links + links);
    for (size_t i = 0; i < links; i++) {
        struct tcp_link *link = &w->links[i];
        link->peer = (int32_t)(i % (size_t)w->ranks);
        for (uint32_t k = 0; k < TCP_SOCKETS; k++) {
            struct tcp_lane *lane = &link->lane[k];
            lane->fd = -1;
            lane->socket = (uint32_t)(i * TCP_SOCKETS) + k;
            lane->port = &w->port[i / (size_t)w->ranks];
            lane->link = link;
            lane->lane = k;
            lane->out_last = &lane->out;
            lane->stage = stage;
            lane->stage_bytes = k == TCP_BEAT ? 0 : k == TCP_LANE_SMALL ? TCP_STAGE_SMALL : TCP_STAGE_BULK;
            stage += lane->stage_bytes;
            if (w->stages && lane->stage_bytes)
                stage = behind(stage);
        }
    }
    for (int32_t i = 0; i < w->ports; i++)
        w->port[i] = (struct tcp_port){.wire = w, .rank = w->rank < 0 ? i : w->rank, .link = w->links + (size_t)i * (size_t)w->ranks};
}

static struct tcp_wire *create(const struct wire_config *config)
{
    const struct comm_env *env = config->env;
    int32_t ports = config->rank < 0 ? config->ranks : 1;
    size_t links = (size_t)ports * (size_t)config->ranks, head = (sizeof(struct tcp_wire) + 63) & ~(size_t)63;
    size_t bytes = head + (size_t)ports * sizeof(struct tcp_port) + links * (sizeof(struct tcp_link) + TCP_SOCKETS * sizeof(uint32_t)) +
                   2 * EDGE_BYTES;
    char *memory = env->take(env, bytes, 64);

    if (!memory)
        return NULL;
    struct tcp_wire *w = (struct tcp_wire *)(void *)memory;
    *w = (struct tcp_wire){.wire = {.class = &wire_tcp},
                           .env = env,
                           .log = config->log,
                           .bell = config->bell,
                           .watch = config->watch,
                           .rank = config->rank,
                           .ranks = config->ranks,
                           .ports = ports,
                           .deaths = -1,
                           .timer = -1,
                           .heed = -1,
                           .bytes = bytes,
                           .stage_bytes = links * (TCP_STAGE_SMALL + TCP_STAGE_BULK + 2 * EDGE_BYTES)};
    w->stages = env->take(env, w->stage_bytes, 64);
    w->zeros = env->take(env, FRAME_PAYLOAD_MAX, 64);
    w->sink = env->take(env, FRAME_PAYLOAD_MAX, 64);
    w->alone = env->take(env, TCP_ALONE_BYTES, 64);
    lay_out(w, memory + head);
    w->timeout_ns = config->peer_timeout_ns ? config->peer_timeout_ns : PEER_TIMEOUT_NS;
    w->link_timeout_ns = config->link_timeout_ns ? config->link_timeout_ns : LINK_TIMEOUT_NS;
    if (w->link_timeout_ns > w->timeout_ns)
        w->link_timeout_ns = w->timeout_ns;
    w->warn_ns = w->timeout_ns / 6;
    w->tick_ns = WIRE_TICK_NS < w->timeout_ns / WIRE_TICKS ? WIRE_TICK_NS : w->timeout_ns / WIRE_TICKS;
    if (w->tick_ns > w->link_timeout_ns / WIRE_LINK_TICKS)
        w->tick_ns = w->link_timeout_ns / WIRE_LINK_TICKS;
    if (w->stages && w->zeros && w->sink && w->alone)
        return w;
    tcp_destroy(w);
    return NULL;
}

static enum comm_result broken(const struct wire_config *config, const char *what, int error)
{
    base_format(config->error_text, config->error_text_bytes, "%s: %s", what, strerror(error));
    return error == ENOMEM ? COMM_ERR_MEMORY : COMM_ERR_SYSTEM;
}

static enum comm_result open_pollers(struct tcp_wire *w, const struct wire_config *config)
{
    struct poller_config poller = {.env = w->env, .sockets = (uint32_t)links_of(w) * TCP_SOCKETS};
    int64_t kind = 0;

    if (!base_option_lookup(w->env, "tcp_poller", &kind)) {
        base_format(config->error_text, config->error_text_bytes, "COMM_TCP_POLLER is not one of auto, epoll, io_uring");
        return COMM_ERR_CONFIG;
    }
    enum comm_result result = poller_open((enum poller_kind)kind, &poller, config->error_text, config->error_text_bytes, &w->poller);
    if (result != COMM_OK)
        return result;
    w->deaths = epoll_create1(EPOLL_CLOEXEC);
    if (w->deaths < 0)
        return broken(config, "epoll_create1", errno);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (w->timer < 0 || epoll_ctl(w->deaths, EPOLL_CTL_ADD, w->timer, &event) < 0)
        return broken(config, "a timer", errno);
    int error = tcp_heed_open(w);
    return error ? broken(config, "waking the watcher", error) : COMM_OK;
}

int tcp_lane_start(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;
    /* Where notes are passed on a byte beside the heartbeats says that there is one, so the monitor wakes. */
    uint32_t wakes = lane->lane == TCP_BEAT && w->acceptor ? EPOLLIN : 0;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET | wakes, .data.u32 = lane->socket};
    int error = lane->lane == TCP_BEAT ? 0 : -w->poller->class->add(w->poller, lane->socket, lane->fd);
    /* What watches a socket costs each segment that arrives there. Where all links have their heartbeats a death ends those too, and then
     * the others are looked at (tcp_poll). */
    bool watched = lane->lane == TCP_BEAT || w->acceptor;

    if (!error && watched && epoll_ctl(w->deaths, EPOLL_CTL_ADD, lane->fd, &event) < 0)
        error = errno == EEXIST && epoll_ctl(w->deaths, EPOLL_CTL_MOD, lane->fd, &event) == 0 ? 0 : errno;
    if (lane->lane == TCP_LANE_SMALL && w->fews++ < TCP_FEW)
        w->few[w->fews - 1] = lane->socket;
    if (lane->lane != TCP_LANE_BULK)
        tcp_add_neighbour(lane->link);
    return error;
}

/* From here on the sockets are the poller's. */
static enum comm_result start_links(struct tcp_wire *w, const struct wire_config *config)
{
    for (size_t i = 0; i < links_of(w) * TCP_SOCKETS; i++) {
        struct tcp_link *link = &w->links[i / TCP_SOCKETS];
        struct tcp_lane *lane = &link->lane[i % TCP_SOCKETS];
        link->ours = wire_joins(config, lane->port->rank, link->peer);
        if (lane->fd < 0)
            continue;
        int error = tcp_lane_start(lane);
        if (error)
            return broken(config, "watching a connection", error);
        link->here = true;
    }
    int error = w->env->bell_watch(w->env, config->bell, w->poller->fd);
    if (!error)
        error = w->env->bell_watch(w->env, config->watch, w->deaths);
    if (error)
        return broken(config, "the bells do not watch the network", error);
    for (size_t i = 0; i < links_of(w) * TCP_SOCKETS; i++)
        if (w->links[i / TCP_SOCKETS].here && i % TCP_SOCKETS != TCP_BEAT)
            tcp_receive_start(&w->links[i / TCP_SOCKETS].lane[i % TCP_SOCKETS]);
    w->poller->class->submit(w->poller);
    return COMM_OK;
}

/* What they come to is agreed on when they meet (mesh.c). Ranks of one process send nothing that others could see. */
enum { CIPHER_AUTO, CIPHER_AES, CIPHER_CHACHA };
static enum comm_result read_choices(struct tcp_wire *w, const struct wire_config *config)
{
    int64_t seal = 0, check = 0, cipher = CIPHER_AUTO;
    const char *bad = !base_option_lookup(w->env, "tcp_seal", &seal)       ? "COMM_TCP_SEAL is not one of auto, yes, no"
                      : !base_option_lookup(w->env, "tcp_cipher", &cipher) ? "COMM_TCP_CIPHER is not one of auto, aes, chacha"
                      : !base_option_lookup(w->env, "tcp_crc", &check)     ? "COMM_TCP_CRC is not yes or no"
                                                                           : NULL;

    if (bad) {
        base_format(config->error_text, config->error_text_bytes, "%s", bad);
        return COMM_ERR_CONFIG;
    }
    w->seal_choice = (uint8_t)seal;
    w->aes = cipher == CIPHER_AUTO ? crypto_has_aes() : cipher == CIPHER_AES;
    w->checked = check && config->rank >= 0;
    return COMM_OK;
}

static enum comm_result tcp_open(const struct wire_config *config, struct wire **wire)
{
    if (config->rank >= config->ranks || (config->rank >= 0 && !config->boot)) {
        base_format(config->error_text, config->error_text_bytes, "the tcp wire needs a rank (%d of %d) and a boot", config->rank,
                    config->ranks);
        return COMM_ERR_CONFIG;
    }
    struct tcp_wire *w = create(config);
    if (!w) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the tcp wire of %d ranks", config->ranks);
        return COMM_ERR_MEMORY;
    }
    enum comm_result result = open_pollers(w, config);
    if (result == COMM_OK)
        result = read_choices(w, config);
    if (result == COMM_OK)
        result = tcp_acceptor_make(w, config);
    if (result == COMM_OK)
        result = config->rank < 0 ? tcp_mesh_here(w, config) : tcp_mesh(w, config);
    if (result == COMM_OK)
        result = start_links(w, config);
    if (result != COMM_OK) {
        tcp_destroy(w);
        return result;
    }
    bool proved = config->boot && config->boot->key;
    const char *address = config->boot && config->boot->address[0] ? config->boot->address : "this host alone";
    base_log(w->log, LOG_INFO, "tcp: ranks=%d links=%s poller=%s address=%s secret=%s seal=%s crc=%s", w->ranks,
             w->acceptor ? "needed" : "all", w->poller->class->name, address, proved ? "proved" : "none", w->sealed ? "yes" : "no",
             w->checked ? "yes" : "no");
    w->farewell.say = tcp_farewell;
    if (w->rank >= 0 && w->env->farewell_add)
        w->env->farewell_add(w->env, &w->farewell);
    *wire = &w->wire;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ join */
struct offer {
    uint64_t magic;
    uint32_t name, window, chunk, areas, credits, once_places;
};

static struct tcp_port *port_of(struct tcp_wire *w, const struct wire_team *team)
{
    return w->ports == 1 ? w->port : &w->port[team->world[team->rank]];
}

static bool enter(struct tcp_wire *w, struct tcp_channel *c)
{
    uint32_t at = 0;

    while (at < w->channels && w->channel[at])
        at++;
    if (at >= TCP_CHANNELS_MAX)
        return false;
    if (at == w->channels_room) {
        uint32_t room = w->channels_room ? 2 * w->channels_room : 64;
        struct tcp_channel **more = w->env->take(w->env, room * sizeof *more, 64);
        if (!more)
            return false;
        if (w->channel) {
            memcpy(more, w->channel, w->channels * sizeof *more);
            w->env->give(w->env, w->channel, w->channels_room * sizeof *more);
        }
        w->channel = more;
        w->channels_room = room;
    }
    w->channels += at == w->channels;
    w->channel[at] = c;
    c->name = stale_name(++w->generation, at);
    return true;
}

static uint32_t window_of(const struct wire_limits *limits)
{
    uint32_t wanted = limits->window ? limits->window : TCP_WINDOW, window = TCP_WINDOW_MIN;

    while (window < wanted && window < TCP_WINDOW_MAX)
        window *= 2;
    return window;
}

static struct tcp_channel *make(struct tcp_wire *w, const struct wire_team *team, const struct wire_limits *limits)
{
    const struct comm_env *env = w->env;
    size_t size = (size_t)team->size, window = window_of(limits), areas = limits->minimal ? 1 : TCP_AREAS;
    size_t calls_each = 4 * window;
    size_t credits = limits->minimal ? 1 : limits->credits ? limits->credits : TCP_CREDITS;
    size_t head = (sizeof(struct tcp_channel) + 63) & ~(size_t)63, acks = size * areas * WIRE_STREAM_EDGES * credits;
    size_t bytes = head + size * sizeof(struct tcp_member) + acks * sizeof(uint64_t) + (size + 1) * calls_each * sizeof(struct wire_call) +
                   size * sizeof(struct wire_call *) + 4 * EDGE_BYTES;
    char *memory = env->take(env, bytes, 64);

    if (!memory)
        return NULL;
    struct tcp_channel *c = (struct tcp_channel *)(void *)memory;
    *c = (struct tcp_channel){.wire = w, .port = port_of(w, team), .id = team->id, .rank = (uint32_t)team->rank, .bytes = bytes};
    c->size = (uint32_t)team->size;
    c->areas = (uint32_t)areas;
    c->credits = (uint32_t)credits;
    c->once_places = limits->minimal ? 1 : TCP_ONCE_PLACES;
    c->lag = limits->minimal ? 1 : TCP_AREAS / 2;
    c->rendezvous = limits->rendezvous;
    c->live_most = (uint32_t)(size * (2 * window * WIRE_ONCE_EDGES_MAX + areas * WIRE_STREAM_EDGES * credits * 2));
    c->world = team->world;
    c->sent_last = &c->sent;
    c->arrived_last = &c->arrived;
    c->member = (struct tcp_member *)(void *)(memory + head);
    c->handle.calls = (struct wire_call *)behind(c->member + size);
    c->mirror = (struct wire_call *)behind(c->handle.calls + calls_each);
    c->acked = (uint64_t *)behind(c->mirror + size * calls_each);
    struct wire_call **calls = (struct wire_call **)behind(c->acked + acks);
    for (size_t i = 0; i < size; i++)
        calls[i] = (int32_t)i == team->rank ? c->handle.calls : c->mirror + i * calls_each;
    c->handle.peer_calls = calls;
    c->other = c->rank == 0;
    c->handle.class = size == 2 ? &tcp_of_two : &wire_tcp;
    c->handle.wire = &w->wire;
    c->handle.traffic = &c->traffic;
    uint64_t chunk = limits->chunk ? limits->chunk : TCP_CHUNK;
    c->handle.caps = (struct wire_caps){.inline_max = TCP_INLINE,
                                        .note_lead_ns = w->acceptor ? NOTE_LEAD_NS : 0,
                                        .window = (uint32_t)window,
                                        .calls = (uint32_t)calls_each,
                                        .once_max = TCP_ONCE_MAX,
                                        .chunk_all = chunk,
                                        .chunk_private = chunk,
                                        .chunk_least = chunk < TCP_CHUNK_LEAST ? chunk : TCP_CHUNK_LEAST};
    return c;
}

static void forget(struct tcp_channel *c)
{
    tcp_forget_sends(c);
    tcp_forget_receives(c);
    tcp_messages_forget(c);
    for (uint32_t i = 0; i < TCP_BUCKETS; i++)
        while (c->bucket[i])
            tcp_slot_drop(c, c->bucket[i]);
    c->events = 0;
}

static void tcp_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;
    const struct comm_env *env = w->env;

    base_lock(&w->lock, env);
    c->aborted = true; /* first: reading on, below, must begin nothing more here */
    forget(c);
    tcp_send_dirty(w);
    w->poller->class->submit(w->poller);
    if (how == WIRE_CLOSE) {
        w->channel[stale_place(c->name)] = NULL;
        if (c->seen)
            tcp_block_give(w, c->seen);
    }
    base_unlock(&w->lock, env);
    if (how != WIRE_CLOSE)
        return;
    tcp_memory_end(c);
    edge_open(c, c->bytes);
    env->give(env, c, c->bytes);
}

static enum comm_result connect_channel(struct tcp_channel *c, const struct wire_team *team, const char *offers)
{
    for (uint32_t i = 0; i < c->size; i++) {
        struct offer o;
        memcpy(&o, offers + (size_t)i * WIRE_OFFER_BYTES, sizeof o);
        if (o.magic != OFFER_MAGIC || o.window != c->handle.caps.window || o.chunk != c->handle.caps.chunk_all || o.areas != c->areas ||
            o.credits != c->credits || o.once_places != c->once_places)
            return COMM_ERR_CONFIG;
        c->member[i].channel = o.name;
    }
    c->world = team->world;
    c->connected = true;
    return COMM_OK;
}

static enum comm_result tcp_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                                 void *offer, struct wire_channel **channel)
{
    struct tcp_wire *w = tcp_wire_of(wire);
    const struct comm_env *env = w->env;

    if (offers) {
        base_lock(&w->lock, env);
        enum comm_result result = connect_channel(tcp_of(*channel), team, offers);
        base_unlock(&w->lock, env);
        if (result != COMM_OK) {
            tcp_leave(*channel, WIRE_CLOSE);
            *channel = NULL;
        }
        return result;
    }
    struct tcp_channel *c = make(w, team, limits);
    if (!c)
        return COMM_ERR_MEMORY;
    for (uint32_t i = 0; i < c->size; i++)
        c->member[i].lane = c->port->link[c->world[i]].ours ? c->port->link[c->world[i]].lane : NULL;
    base_lock(&w->lock, env);
    bool entered = enter(w, c);
    base_unlock(&w->lock, env);
    if (!entered) {
        edge_open(c, c->bytes);
        env->give(env, c, c->bytes);
        return COMM_ERR_MEMORY;
    }
    struct offer mine = {OFFER_MAGIC, c->name,    c->handle.caps.window, (uint32_t)c->handle.caps.chunk_all,
                         c->areas,    c->credits, c->once_places};
    memset(offer, 0, WIRE_OFFER_BYTES);
    memcpy(offer, &mine, sizeof mine);
    *channel = &c->handle;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ moving */
static uint32_t tcp_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;
    uint32_t n = 0;

    base_lock(&w->lock, w->env);
    if (w->ports > 1) /* nobody knows what other ranks in this process are about to need */
        tcp_pump(w, NULL, 0);
    else if (w->hots)
        tcp_pump(w, w->hot, w->hots);
    else
        tcp_pump(w, w->fews <= TCP_FEW ? w->few : NULL, w->fews);
    for (; c->events && n < max; n++, c->events--) {
        if (c->event[c->events_first].kind == WIRE_EVENT_LOST && c->notes_fresh)
            break; /* its peer may have said why before it went: that comes first */
        events[n] = c->event[c->events_first];
        c->events_first = (c->events_first + 1) % c->events_room;
        if (events[n].kind != WIRE_EVENT_ANNOUNCED)
            continue;
        c->member[events[n].peer].seen = wire_key_seq(events[n].key);
        c->owes = true;
    }
    if (c->notes_fresh) /* what others said before it was written comes first: the calls that a failure's text is made of */
        tcp_pump(w, NULL, 0);
    if (c->notes_fresh)
        n += tcp_notes_take(c, events + n, max - n);
    base_unlock(&w->lock, w->env);
    return n;
}

static void tcp_flush(struct wire_channel *channel)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;

    base_lock(&w->lock, w->env);
    if ((c->owes || c->retires) && !c->aborted)
        tcp_owed(c);
    if (w->dirty)
        tcp_hold_or_send(w);
    base_unlock(&w->lock, w->env);
}

/* All that has come is read before; what comes later makes the poller's descriptor readable, in which the bell takes an interest. */
static void tcp_arm(struct wire *wire, bool on, int64_t *deadline)
{
    struct tcp_wire *w = tcp_wire_of(wire);

    (void)deadline;
    base_lock(&w->lock, w->env);
    w->armed = w->rung = false;
    w->poller->class->arm(w->poller, on || w->heeds);
    for (uint32_t i = 0; on && i < w->channels; i++)
        if (w->channel[i] && !w->channel[i]->aborted)
            tcp_tell_acks(w->channel[i]);
    if (on && w->dirty)
        tcp_send_dirty(w);
    if (on || w->heeds) /* the marks of what has come were taken away */
        tcp_pump(w, NULL, 0);
    w->armed = on;
    base_unlock(&w->lock, w->env);
}

static void tcp_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    struct tcp_channel *c = tcp_of(channel);

    base_format(address, bytes, "%s", peer == (int32_t)c->rank ? "this rank" : c->port->link[c->world[peer]].address);
}

/* Of all members that an exposure goes to a channel of two has one: so it can be shown without saying to whom. */
#define TCP_CLASS                                                                                                                          \
    .name = "tcp", .system_calls = true, .open = tcp_open, .close = tcp_close, .join = tcp_join, .leave = tcp_leave,                       \
    .reserve = tcp_reserve, .expose = tcp_expose, .view = tcp_view, .release = tcp_release, .advance = tcp_advance, .flush = tcp_flush,    \
    .poll = tcp_poll, .arm = tcp_arm, .describe = tcp_describe, .heed = tcp_heed

const struct wire_class wire_tcp = {TCP_CLASS};
static const struct wire_class tcp_of_two = {TCP_CLASS, .show = tcp_publish_inline, .see = tcp_poll_inline, .fetch = tcp_fetch};
