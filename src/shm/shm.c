/*
 * shm: the wire between the processes of one host. channel/shmchan has the protocol; this file has the segments under it, the bells that
 * wake sleepers, and the descriptors that report a death. It must not know operations, programs or communicators.
 *
 * poll makes a system call, so only the monitor calls it, not every pass. It is also the heartbeat. No application code runs in the monitor
 * thread, so if a rank's monitor stops polling, the whole process is stopped. This distinguishes a late rank from a stopped one.
 */
#define _GNU_SOURCE
#include "channel/shmchan.h"

#include "base/format.h"
#include "base/log.h"
#include "base/option.h"
#include "shm/death.h"
#include "shm/hello.h"
#include "shm/segment.h"
#include "wire/boot.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

extern const struct wire_class wire_shm;
#define PEER_TIMEOUT_NS INT64_C(30000000000)

/* The beginning of a segment. sleeping: set by its owner, cleared by the rank that rings. sleepers: rank 0's word counts the sleepers of
 * all ranks. */
struct shm_head {
    _Alignas(64) _Atomic uint32_t sleeping;
    _Alignas(64) _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t closed; /* the owner closed in order, so its end is not a death */
    _Alignas(64) _Atomic uint32_t beat;   /* only the owner's monitor increments it */
    _Alignas(64) _Atomic uint32_t asks;   /* enum in wire.h: requests of peers to this rank */
};

struct shm_peer {
    struct shm_segment segment;
    int bell, death; /* death -1: reported down, or this rank itself */
    int ask;         /* wakes the peer's monitor */
    uint32_t pid;
    uint32_t beat;     /* the value last seen */
    int64_t silent_ns; /* time without a change while this rank was looking */
    bool warned;
};

struct shm_wire {
    struct shmchan_host host;
    int32_t rank, ranks;
    int epoll;
    bool armed;
    int64_t polled_ns;                    /* time of the last poll; 0: never */
    int64_t timeout_ns, warn_ns, tick_ns; /* limits for a silent peer; tick_ns: the most time between two polls that counts as looking */
    struct shm_mine mine;
    struct shm_peer *peer;
    uintptr_t *base;
    struct shm_hello *hello;
    struct env_farewell farewell;
    size_t bytes; /* of this allocation */
};
enum { GIVEN_SEGMENT, GIVEN_BELL, GIVEN_DEATH, GIVEN_ASK, GIVEN };

static struct shm_wire *wire_of(struct wire *wire)
{
    return (struct shm_wire *)wire;
}
static struct shm_head *head_of(const struct shm_peer *peer)
{
    return (struct shm_head *)(void *)peer->segment.at;
}

/* ------------------------------------------------------------------------------------------------------------ services for shmchan */
static bool shm_take(struct shmchan_host *host, size_t bytes, struct shmchan_block *block)
{
    struct shm_wire *w = (struct shm_wire *)host;
    struct shm_segment *s = &w->peer[w->rank].segment;
    size_t offset;
    int error = shm_segment_take(s, bytes, bytes >= 65536 ? 4096 : 128, &offset);
    if (error) {
        base_log(host->log, LOG_ERROR, "%zu more bytes of shared memory are needed, with %zu in use: %s", bytes, s->used, strerror(error));
        return false;
    }
    *block = (struct shmchan_block){s->at + offset, offset, bytes};
    return true;
}

static void shm_give(struct shmchan_host *host, const struct shmchan_block *block)
{
    (void)host; /* the memory is freed with its segment */
    (void)block;
}

/* Allocates from the segment's end downwards, in the first gap that is large enough, because the wire's own memory grows from the
 * beginning. */
static bool shm_lend(struct shmchan_host *host, size_t bytes, enum wire_placement placement, struct shmchan_block *block)
{
    struct shm_wire *w = (struct shm_wire *)host;
    struct shm_segment *s = &w->peer[w->rank].segment;
    size_t top = s->bytes;
    const struct shmchan_memory *m = host->memories;
    for (; m && top - (m->block.where + m->block.bytes) < bytes; m = m->next)
        top = m->block.where;
    size_t bottom = m ? m->block.where + m->block.bytes : (s->committed + 4095) & ~(size_t)4095;
    int error = ENOMEM;
    if (top >= bottom && top - bottom >= bytes)
        error = shm_segment_lend(s, top - bytes, bytes, placement == WIRE_PLACE_INTERLEAVE);
    if (error) {
        base_log(host->log, LOG_ERROR, "%zu bytes of memory that peers can reach: %s (in a segment of %zu bytes, COMM_SHM_SEGMENT_BYTES)",
                 bytes, strerror(error), s->bytes);
        return false;
    }
    *block = (struct shmchan_block){s->at + top - bytes, top - bytes, bytes};
    s->limit = s->limit < top - bytes ? s->limit : top - bytes;
    return true;
}

static void shm_take_back(struct shmchan_host *host, const struct shmchan_block *block)
{
    struct shm_wire *w = (struct shm_wire *)host;
    struct shm_segment *s = &w->peer[w->rank].segment;
    if (host->torn)
        return; /* peers that do not know of the failure yet still read there; the last process that has the segment mapped frees it */
    shm_segment_put_back(s, block->where, block->bytes);
    s->limit = s->bytes;
    for (const struct shmchan_memory *m = host->memories; m; m = m->next)
        s->limit = m->block.where;
}

static bool shm_replace(struct shmchan_host *host, char *at, size_t bytes)
{
    (void)host;
    return shm_segment_replace(at, bytes);
}

static void shm_ring(struct shmchan_host *host, struct shmchan_channel *channel)
{
    struct shm_wire *w = (struct shm_wire *)host;
    for (uint32_t i = 0; i < channel->size; i++) {
        struct shm_peer *p = &w->peer[channel->world[i]];
        _Atomic uint32_t *sleeping = &head_of(p)->sleeping;
        if (i == channel->rank || !atomic_load_explicit(sleeping, memory_order_relaxed))
            continue;
        if (atomic_exchange_explicit(sleeping, 0, memory_order_acq_rel))
            host->env->bell_ring(host->env, &(struct env_bell){.ring_fd = p->bell, .wait_fd = -1});
    }
}

static void shm_ask(struct shmchan_host *host, int32_t rank)
{
    struct shm_peer *p = &((struct shm_wire *)host)->peer[rank];

    if (shmchan_asks(&head_of(p)->asks))
        host->env->bell_ring(host->env, &(struct env_bell){.ring_fd = p->ask, .wait_fd = -1});
}

static void clear_ask(const struct shm_wire *w)
{
    const struct comm_env *env = w->host.env;

    (void)env->bell_clear(env, &(struct env_bell){.ring_fd = w->peer[w->rank].ask, .wait_fd = -1});
}

/* A peer that has cleared RESTS may ring only after this rank woke for another reason; that ring then wakes it once in vain. */
static bool shm_heed(struct wire *wire, bool on)
{
    if (!on)
        clear_ask(wire_of(wire));
    return shmchan_heed(wire->asks, on);
}

/* ------------------------------------------------------------------------------------------------------------ open */
static void destroy(struct shm_wire *w)
{
    const struct comm_env *env = w->host.env;
    env->own(env, w->mine.kept, false);
    shm_death_close(&w->mine);
    for (int32_t i = 0; i < w->ranks; i++) {
        shm_segment_close(&w->peer[i].segment);
        if (w->peer[i].bell >= 0)
            close(w->peer[i].bell);
        if (w->peer[i].death >= 0)
            close(w->peer[i].death);
        if (w->peer[i].ask >= 0)
            close(w->peer[i].ask);
    }
    if (w->epoll >= 0)
        close(w->epoll);
    env->give(env, w, w->bytes);
}

static struct shm_wire *create(const struct wire_config *config)
{
    size_t ranks = (size_t)config->ranks, head = (sizeof(struct shm_wire) + 63) & ~(size_t)63;
    size_t bytes = head + ranks * (sizeof(struct shm_peer) + sizeof(struct shm_hello) + sizeof(uintptr_t));
    char *memory = config->env->take(config->env, bytes, 64);
    if (!memory)
        return NULL;
    struct shm_wire *w = (struct shm_wire *)(void *)memory;
    *w = (struct shm_wire){.rank = config->rank, .ranks = config->ranks, .epoll = -1, .mine = {-1, -1}, .bytes = bytes};
    w->peer = (struct shm_peer *)(void *)(memory + head);
    w->hello = (struct shm_hello *)(void *)(w->peer + ranks);
    w->base = (uintptr_t *)(void *)(w->hello + ranks);
    for (size_t i = 0; i < ranks; i++)
        w->peer[i] = (struct shm_peer){.segment = {.fd = -1}, .bell = -1, .death = -1, .ask = -1};
    shmchan_host_start(&w->host, config);
    w->host.wire.class = &wire_shm;
    w->host.base = w->base;
    w->host.take = shm_take;
    w->host.give = shm_give;
    w->host.ring = shm_ring;
    w->host.ask = shm_ask;
    w->host.lend = shm_lend;
    w->host.take_back = shm_take_back;
    w->host.replace = shm_replace;
    w->timeout_ns = config->peer_timeout_ns ? config->peer_timeout_ns : PEER_TIMEOUT_NS;
    w->warn_ns = w->timeout_ns / 6;
    w->tick_ns = WIRE_TICK_NS < w->timeout_ns / WIRE_TICKS ? WIRE_TICK_NS : w->timeout_ns / WIRE_TICKS;
    return w;
}

/* Watches a peer's death; for this rank itself, the descriptor by which peers wake its monitor. */
static int watch(struct shm_wire *w, int32_t rank)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.u32 = (uint32_t)rank}};
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, rank == w->rank ? w->peer[rank].ask : w->peer[rank].death, &event) < 0 ? errno : 0;
}

/* Prepares this rank's hello and descriptors. A failure is sent to the others, so that they do not wait. */
static void prepare(struct shm_wire *w, const struct wire_config *config, struct shm_hello *hello)
{
    const struct comm_env *env = config->env;
    struct shm_peer *me = &w->peer[w->rank];
    const char *what = "epoll_create1";
    int64_t amount = 0, death = 0;
    if (!base_option_lookup(env, "shm_segment_bytes", &amount) || !base_option_lookup(env, "shm_death", &death)) {
        shm_hello_fill(hello, env, 0);
        hello->result = COMM_ERR_CONFIG;
        base_copy_text(hello->text, sizeof hello->text, "COMM_SHM_SEGMENT_BYTES or COMM_SHM_DEATH has an invalid value");
        return;
    }
    size_t bytes = (size_t)amount;
    shm_hello_fill(hello, env, bytes);
    hello->light = !config->oversubscribed && env->barrier(env);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    int error = w->epoll < 0 ? errno : shm_segment_create(&me->segment, bytes, (uint32_t)w->rank, &what);
    if (!error) {
        what = "a descriptor that tells a death";
        error = shm_death_make(&w->mine, death == 1);
        env->own(env, error ? -1 : w->mine.kept, true);
    }
    if (!error) {
        what = "a descriptor that wakes the monitor";
        me->ask = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        error = me->ask < 0 ? errno : watch(w, w->rank);
    }
    if (!error && config->bell->ring_fd < 0) {
        what = "a bell that other processes can ring";
        error = ENOTSUP;
    }
    if (!error) {
        me->segment.used = sizeof(struct shm_head);
        return;
    }
    hello->result = error == ENOMEM || error == ENOSPC ? COMM_ERR_MEMORY : COMM_ERR_SYSTEM;
    base_format(hello->text, sizeof hello->text, "%s: %s (of %zu bytes: COMM_SHM_SEGMENT_BYTES)", what, strerror(error), bytes);
}

/* Takes over all descriptors of fd[]. */
static void attach(struct shm_wire *w, int *fd, struct shm_hello *done)
{
    const char *what = "watching a peer's end";
    for (int32_t i = 0; i < w->ranks; i++) {
        struct shm_peer *p = &w->peer[i];
        int *given = fd + (size_t)i * GIVEN, error;
        p->pid = w->hello[i].pid;
        if (i == w->rank || done->result != COMM_OK) {
            for (int k = 0; k < GIVEN; k++)
                close(given[k]);
            w->base[i] = (uintptr_t)p->segment.at;
            continue;
        }
        p->bell = given[GIVEN_BELL];
        p->ask = given[GIVEN_ASK];
        p->death = given[GIVEN_DEATH];
        error = shm_segment_attach(&p->segment, given[GIVEN_SEGMENT], (size_t)w->hello[i].segment_bytes, (uint32_t)i, &what);
        error = error ? error : watch(w, i);
        w->base[i] = (uintptr_t)p->segment.at;
        if (!error)
            continue;
        done->result = error == ENOMEM ? COMM_ERR_MEMORY : COMM_ERR_SYSTEM;
        base_format(done->text, sizeof done->text, "%s (rank %d, of %zu bytes: COMM_SHM_SEGMENT_BYTES): %s", what, i,
                    (size_t)w->hello[i].segment_bytes, strerror(error));
    }
}

static enum comm_result all_said(struct shm_wire *w, const struct wire_config *config, const struct shm_hello *mine)
{
    enum comm_result result = config->boot->class->allgather(config->boot, mine, sizeof *mine, w->hello);
    return result == COMM_OK ? shm_hello_check(w->hello, w->ranks, config->error_text, config->error_text_bytes) : result;
}

static enum comm_result meet(struct shm_wire *w, const struct wire_config *config)
{
    struct shm_hello hello;
    prepare(w, config, &hello);
    enum comm_result result = all_said(w, config, &hello);
    if (result != COMM_OK)
        return result;
    w->host.light = true;
    for (int32_t i = 0; i < w->ranks; i++)
        w->host.light &= w->hello[i].light != 0;
    size_t bytes = (size_t)w->ranks * GIVEN * sizeof(int);
    int *fd = config->env->take(config->env, bytes, 64);
    int given[GIVEN] = {w->peer[w->rank].segment.fd, config->bell->ring_fd, w->mine.given, w->peer[w->rank].ask};
    if (!fd) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the descriptors of %d ranks", w->ranks);
        return COMM_ERR_MEMORY;
    }
    result = config->boot->class->pass(config->boot, given, GIVEN, fd);
    shm_death_given(&w->mine);
    if (result == COMM_OK) {
        attach(w, fd, &hello);
        result = all_said(w, config, &hello); /* also a barrier: no rank continues before all have mapped all segments */
    }
    config->env->give(config->env, fd, bytes);
    int error = result == COMM_OK ? config->env->bell_watch(config->env, config->watch, w->epoll) : 0;
    if (error) {
        base_format(config->error_text, config->error_text_bytes, "the bell does not watch the peers: %s", strerror(error));
        result = COMM_ERR_SYSTEM;
    }
    return result;
}

/* Marks this rank's end as orderly: at close, and at exit() with communicators still open. */
static void say_closed(struct shm_wire *w)
{
    atomic_store_explicit(&head_of(&w->peer[w->rank])->closed, 1, memory_order_release);
}

static void say_farewell(struct env_farewell *farewell)
{
    say_closed((struct shm_wire *)(void *)((char *)farewell - offsetof(struct shm_wire, farewell)));
}

static enum comm_result shm_open_wire(const struct wire_config *config, struct wire **wire)
{
    if (!config->boot || config->rank < 0 || config->rank >= config->ranks) {
        base_format(config->error_text, config->error_text_bytes, "the shm wire needs a rank (%d of %d) and a boot", config->rank,
                    config->ranks);
        return COMM_ERR_CONFIG;
    }
    struct shm_wire *w = create(config);
    if (!w) {
        base_format(config->error_text, config->error_text_bytes, "no memory for the shm wire of %d ranks", config->ranks);
        return COMM_ERR_MEMORY;
    }
    enum comm_result result = meet(w, config);
    if (result != COMM_OK) {
        destroy(w);
        return result;
    }
    w->host.sleepers = &head_of(&w->peer[0])->sleepers;
    w->host.wire.asks = &head_of(&w->peer[w->rank])->asks;
    w->farewell.say = say_farewell;
    if (config->env->farewell.add)
        config->env->farewell.add(config->env, &w->farewell);
    *wire = &w->host.wire;
    return COMM_OK;
}

static void shm_close(struct wire *wire)
{
    struct shm_wire *w = wire_of(wire);
    wire->class->arm(wire, false, NULL);
    if (w->host.env->farewell.drop)
        w->host.env->farewell.drop(w->host.env, &w->farewell);
    say_closed(w);
    shmchan_host_end(&w->host);
    destroy(w);
}

/* ------------------------------------------------------------------------------------------------------------ peers */
static void tell_down(struct shm_wire *w, int32_t rank, struct wire_event *event)
{
    struct shm_peer *p = &w->peer[rank];
    bool closed = atomic_load_explicit(&head_of(p)->closed, memory_order_acquire);
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, p->death, NULL);
    close(p->death);
    p->death = -1;
    *event = (struct wire_event){.kind = WIRE_EVENT_DOWN, .result = closed ? COMM_ERR_CLOSED : COMM_ERR_PEER, .peer = rank};
}

/* For "%lld.%lld". */
#define SECONDS(ns) (long long)((ns) / 1000000000), (long long)((ns) / 100000000 % 10)

/* Whether a peer has been silent for too long. A peer that has closed sends no more heartbeats. A peer that never beat is between the
 * wire's opening and its monitor's first poll. Only library code runs there, so its silence counts like any other. */
static bool listen_to(struct shm_wire *w, int32_t rank, int64_t looked)
{
    struct shm_peer *p = &w->peer[rank];
    const struct base_log *log = w->host.log;
    uint32_t beat = atomic_load_explicit(&head_of(p)->beat, memory_order_relaxed);
    if (beat != p->beat) {
        if (p->warned)
            base_log(log, LOG_WARNING, "rank %d is back after %lld.%lld s without a heartbeat", rank, SECONDS(p->silent_ns));
        p->beat = beat;
        p->silent_ns = 0;
        p->warned = false;
        return false;
    }
    p->silent_ns += looked;
    if (p->silent_ns < w->warn_ns || atomic_load_explicit(&head_of(p)->closed, memory_order_acquire))
        return false;
    if (!p->warned)
        base_log(log, LOG_WARNING, "rank %d is stopped or starved: no heartbeat for %lld.%lld s; its process is alive", rank,
                 SECONDS(p->silent_ns));
    p->warned = true;
    return p->silent_ns >= w->timeout_ns;
}

/* Time in which this rank did not look itself, because it or the whole machine was stopped, does not count as silence of others. */
static uint32_t heartbeats(struct shm_wire *w, struct wire_event *events, uint32_t max)
{
    int64_t now = w->host.env->now(w->host.env), looked = w->polled_ns ? now - w->polled_ns : 0;
    uint32_t told = 0;
    atomic_fetch_add_explicit(&head_of(&w->peer[w->rank])->beat, 1, memory_order_relaxed);
    w->polled_ns = now;
    looked = looked < w->tick_ns ? looked : w->tick_ns;
    for (int32_t i = 0; i < w->ranks && told < max; i++) {
        if (w->peer[i].death < 0 || !listen_to(w, i, looked))
            continue;
        tell_down(w, i, &events[told]);
        events[told++].bytes = (uint64_t)w->peer[i].silent_ns;
    }
    return told;
}

static uint32_t shm_poll(struct wire *wire, struct wire_event *events, uint32_t max)
{
    struct shm_wire *w = wire_of(wire);
    struct epoll_event ready[16];
    int n = max ? epoll_wait(w->epoll, ready, max < 16 ? (int)max : 16, 0) : 0;
    uint32_t told = 0;
    for (int i = 0; i < n; i++) {
        int32_t rank = (int32_t)ready[i].data.u32;
        if (rank == w->rank)
            clear_ask(w);
        else
            tell_down(w, rank, &events[told++]);
    }
    return told + heartbeats(w, events + told, max - told);
}

static void shm_arm(struct wire *wire, bool on, int64_t *deadline)
{
    struct shm_wire *w = wire_of(wire);
    _Atomic uint32_t *sleeping = &head_of(&w->peer[w->rank])->sleeping;
    (void)deadline; /* all events of this wire ring the bell */
    if (on != w->armed)
        atomic_fetch_add_explicit(w->host.sleepers, on ? 1 : UINT32_MAX, memory_order_acq_rel);
    w->armed = on;
    atomic_store_explicit(sleeping, on, memory_order_relaxed);
    if (on)
        shmchan_sleep_fence(&w->host);
}

static void shm_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    struct shmchan_channel *c = shmchan_of(channel);
    struct shm_wire *w = (struct shm_wire *)c->host;
    base_format(address, bytes, "process %u of this host", w->peer[c->world[peer]].pid);
}

const struct wire_class wire_shm = {
    .name = "shm",
    .open = shm_open_wire,
    .close = shm_close,
    .join = shmchan_join,
    .leave = shmchan_leave,
    .reserve = shmchan_reserve,
    .expose = shmchan_expose,
    .view = shmchan_view,
    .show = shmchan_publish_inline,
    .see = shmchan_poll_inline,
    .fetch = shmchan_fetch,
    .release = shmchan_release,
    .advance = shmchan_advance,
    .send = shmchan_send,
    .next = shmchan_next,
    .accept = shmchan_accept,
    .flush = shmchan_flush,
    .poll = shm_poll,
    .arm = shm_arm,
    .describe = shm_describe,
    .memory = &shmchan_memory_class,
    .urge = shmchan_urge,
    .heed = shm_heed,
};
