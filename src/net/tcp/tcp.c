/* The tcp wire: opening, closing, and the functions of its class. */
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

#define PEER_TIMEOUT_NS INT64_C(30000000000)
#define LINK_TIMEOUT_NS INT64_C(3000000000)

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

static void close_file(const struct tcp_wire *w, int fd)
{
    w->env->own(w->env, fd, false);
    if (fd >= 0)
        close(fd);
}

void tcp_destroy(struct tcp_wire *w)
{
    const struct comm_env *env = w->env;

    tcp_acceptor_close(w);
    close_sockets(w);
    if (w->poller)
        w->poller->class->close(w->poller);
    close_file(w, w->burst.timer);
    close_file(w, w->monitor.heed);
    for (size_t i = 0; i < links_of(w) * TCP_SOCKETS; i++)
        record_end(w->links[i / TCP_SOCKETS].lane[i % TCP_SOCKETS].records);
    close_file(w, w->monitor.deaths);
    for (uint32_t order = TCP_ORDER_LEAST; order <= TCP_ORDER_MOST; order++)
        for (struct tcp_block *b = w->memory.free_block[order], *next; b; b = next) {
            next = b->next;
            tcp_block_bound(b, tcp_block_room(b));
            env->give(env, b, sizeof *b + tcp_block_room(b));
        }
    if (w->memory.stages)
        edge_open(w->memory.stages, w->memory.stage_bytes);
    env->give(env, w->memory.stages, w->memory.stage_bytes);
    env->give(env, w->memory.zeros, FRAME_PAYLOAD_MAX);
    env->give(env, w->memory.sink, FRAME_PAYLOAD_MAX);
    env->give(env, w->memory.alone, TCP_ALONE_BYTES);
    env_give_back(env, w->channel, w->channels_room * sizeof *w->channel);
    edge_open(w, w->memory.bytes);
    env->give(env, w, w->memory.bytes);
}

static void lay_out(struct tcp_wire *w, char *memory)
{
    size_t links = links_of(w);
    char *stage = w->memory.stages;

    w->port = (struct tcp_port *)(void *)memory;
    w->links = (struct tcp_link *)tcp_behind(w->port + w->ports);
    w->hot = (uint32_t *)tcp_behind(w->links + links);
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
            if (w->memory.stages && lane->stage_bytes)
                stage = tcp_behind(stage);
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
                           .monitor.deaths = -1,
                           .burst.timer = -1,
                           .monitor.heed = -1,
                           .memory.bytes = bytes,
                           .memory.stage_bytes = links * (TCP_STAGE_SMALL + TCP_STAGE_BULK + 2 * EDGE_BYTES)};
    w->memory.stages = env->take(env, w->memory.stage_bytes, 64);
    w->memory.zeros = env->take(env, FRAME_PAYLOAD_MAX, 64);
    w->memory.sink = env->take(env, FRAME_PAYLOAD_MAX, 64);
    w->memory.alone = env->take(env, TCP_ALONE_BYTES, 64);
    lay_out(w, memory + head);
    w->times.timeout_ns = config->peer_timeout_ns ? config->peer_timeout_ns : PEER_TIMEOUT_NS;
    w->times.link_timeout_ns = config->link_timeout_ns ? config->link_timeout_ns : LINK_TIMEOUT_NS;
    if (w->times.link_timeout_ns > w->times.timeout_ns)
        w->times.link_timeout_ns = w->times.timeout_ns;
    w->times.warn_ns = w->times.timeout_ns / 6;
    w->times.tick_ns = WIRE_TICK_NS < w->times.timeout_ns / WIRE_TICKS ? WIRE_TICK_NS : w->times.timeout_ns / WIRE_TICKS;
    if (w->times.tick_ns > w->times.link_timeout_ns / WIRE_LINK_TICKS)
        w->times.tick_ns = w->times.link_timeout_ns / WIRE_LINK_TICKS;
    if (w->memory.stages && w->memory.zeros && w->memory.sink && w->memory.alone)
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
    w->monitor.deaths = epoll_create1(EPOLL_CLOEXEC);
    if (w->monitor.deaths < 0)
        return broken(config, "epoll_create1", errno);
    w->env->own(w->env, w->monitor.deaths, true); /* a forked child's copy would stay in the engine's bell when this wire is closed */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    w->burst.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    w->env->own(w->env, w->burst.timer, true);
    if (w->burst.timer < 0 || epoll_ctl(w->monitor.deaths, EPOLL_CTL_ADD, w->burst.timer, &event) < 0)
        return broken(config, "a timer", errno);
    int error = tcp_heed_open(w);
    return error ? broken(config, "waking the monitor", error) : COMM_OK;
}

/* From here on the poller has the sockets. */
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
        error = w->env->bell_watch(w->env, config->watch, w->monitor.deaths);
    if (error)
        return broken(config, "the bells do not watch the network", error);
    for (size_t i = 0; i < links_of(w) * TCP_SOCKETS; i++)
        if (w->links[i / TCP_SOCKETS].here && i % TCP_SOCKETS != TCP_BEAT)
            tcp_receive_start(&w->links[i / TCP_SOCKETS].lane[i % TCP_SOCKETS]);
    tcp_submit(w);
    return COMM_OK;
}

/*
 * The ranks agree on the outcome when they meet (mesh.c). Data between ranks of one process is never sealed, since no other process can see
 * it.
 */
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
             w->graph ? "needed" : "all", w->poller->class->name, address, proved ? "proved" : "none", w->sealed ? "yes" : "no",
             w->checked ? "yes" : "no");
    w->farewell.say = tcp_farewell;
    if (w->rank >= 0 && w->env->farewell.add)
        w->env->farewell.add(w->env, &w->farewell);
    *wire = &w->wire;
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ moving */
static uint32_t tcp_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max)
{
    struct tcp_channel *c = tcp_of(channel);
    struct tcp_wire *w = c->wire;
    uint32_t n = 0;

    base_lock(&w->lock, w->env);
    if (w->ports > 1) /* other ranks of this process may need any of the sockets */
        tcp_pump(w, NULL, 0);
    else if (w->hots)
        tcp_pump(w, w->hot, w->hots);
    else
        tcp_pump_few(w);
    for (; c->events.count && n < max; n++, c->events.count--) {
        if (c->events.at[c->events.first].kind == WIRE_EVENT_LOST && c->notes_fresh)
            break; /* a note of the peer may have the cause; notes come first */
        events[n] = c->events.at[c->events.first];
        c->events.first = (c->events.first + 1) % c->events.room;
        if (events[n].kind != WIRE_EVENT_ANNOUNCED)
            continue;
        c->member[events[n].peer].seen = wire_key_seq(events[n].key);
        c->owes = true;
    }
    if (c->notes_fresh) /* read what others sent before the note: a failure's text is made from their calls */
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
    if (c->messages.growing)
        tcp_messages_grow(c);
    if (w->dirty)
        tcp_hold_or_send(w);
    base_unlock(&w->lock, w->env);
}

/* All that has arrived is read before the caller sleeps. Later arrivals make the poller's descriptor readable, and the bell watches it. */
static void tcp_arm(struct wire *wire, bool on, int64_t *deadline)
{
    struct tcp_wire *w = tcp_wire_of(wire);

    (void)deadline;
    base_lock(&w->lock, w->env);
    w->armed = w->rung = false;
    w->poller->class->arm(w->poller, on || w->monitor.heeds);
    for (uint32_t i = 0; on && i < w->channels; i++)
        if (w->channel[i] && !w->channel[i]->aborted)
            tcp_tell_acks(w->channel[i]);
    if (on && w->dirty)
        tcp_send_dirty(w);
    if (on || w->monitor.heeds) /* arming took away the marks of earlier arrivals */
        tcp_pump(w, NULL, 0);
    w->armed = on;
    base_unlock(&w->lock, w->env);
}

static void tcp_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    struct tcp_channel *c = tcp_of(channel);

    base_format(address, bytes, "%s", peer == (int32_t)c->rank ? "this rank" : c->port->link[c->world[peer]].address);
}

/* In a channel of two, an exposure to all members has one receiver, so the inline calls need no list of peers. */
#define TCP_CLASS                                                                                                                          \
    .name = "tcp", .system_calls = true, .open = tcp_open, .close = tcp_close, .join = tcp_join, .leave = tcp_leave,                       \
    .reserve = tcp_reserve, .expose = tcp_expose, .view = tcp_view, .release = tcp_release, .advance = tcp_advance, .flush = tcp_flush,    \
    .poll = tcp_poll, .arm = tcp_arm, .describe = tcp_describe, .urge = tcp_urge, .heed = tcp_heed

const struct wire_class wire_tcp = {TCP_CLASS};
const struct wire_class tcp_of_two = {TCP_CLASS, .show = tcp_publish_inline, .see = tcp_poll_inline, .fetch = tcp_fetch};
