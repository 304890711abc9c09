/*
 * Sleeping while another process publishes: the shm wire's own bell, arm and flush. A publisher stores, fences and
 * looks for sleepers. A sleeper announces itself, fences and looks once more. If the kernel has the barrier, the
 * sleeper executes it for both.
 */
#include "model/cases.h"
#include "model/members.h"

#include "shm/shm.c"

static struct sleepers {
    struct shm_wire wire[2];
    struct shm_peer peer[2];
    uintptr_t base[2];
    struct shm_head head[2];
    char bell[2];
} * s;

/* Only the descriptor of a peer's bell is known here. */
static struct comm_env with_descriptors;

static void ring_descriptor(const struct comm_env *env, struct env_bell *bell)
{
    (void)env;
    model_ring(&s->bell[bell->ring_fd]);
}

static bool take_block(struct shmchan_host *host, size_t bytes, struct shmchan_block *block)
{
    char *at = host->env->take(host->env, bytes, 128);
    *block = (struct shmchan_block){at, (uint64_t)(uintptr_t)at, bytes};
    return at != NULL;
}

static void setup(bool light)
{
    static const struct base_log silent = {.env = &model_env, .level = 0, .rank = -1};
    with_descriptors = model_env;
    with_descriptors.bell_ring = ring_descriptor;
    model_has_barrier = light;
    s = model_env.take(&model_env, sizeof *s, 128);
    members = model_env.take(&model_env, sizeof *members, 64);
    for (int32_t r = 0; r < 2; r++) {
        struct shm_wire *w = &s->wire[r];
        s->peer[r] = (struct shm_peer){.bell = r, .death = -1};
        s->peer[r].segment.at = (char *)&s->head[r];
        *w = (struct shm_wire){.rank = r, .ranks = 2, .epoll = -1, .peer = s->peer, .base = s->base};
        shmchan_host_start(&w->host, &(struct wire_config){.env = &with_descriptors, .log = &silent});
        w->host.wire.class = &wire_shm;
        w->host.base = w->base;
        w->host.take = take_block;
        w->host.give = shm_give;
        w->host.ring = shm_ring;
        w->host.light = light;
        w->host.sleepers = &s->head[0].sleepers;
        model_name(&s->head[r].sleeping, 4, "sleeping");
    }
    model_name(&s->head[0].sleepers, 4, "sleepers");
    members_join(&s->wire[0].host, &s->wire[1].host, (struct wire_limits){.window = 4, .minimal = 1, .chunk = 64});
}

static void light_setup(void)
{
    setup(true);
}

static void fenced_setup(void)
{
    setup(false);
}

enum { ONCE = WIRE_ONCE | WIRE_TO_ALL };
static bool is_there(uint32_t rank, uint32_t seq)
{
    return member_view(rank, wire_key_of(seq, 0, 0), ONCE, WIRE_WORK | WIRE_GLANCE, 8, &members->view[rank]) == WIRE_DONE;
}

/* As the engine's sleep_on_bell: announces the sleep, looks again, sleeps. */
static void sleep_until_there(uint32_t rank, uint32_t seq)
{
    struct wire *wire = &s->wire[rank].host.wire;
    int64_t never = INT64_MAX;
    while (!is_there(rank, seq)) {
        shm_arm(wire, true, &never);
        bool there = is_there(rank, seq);
        if (!there)
            model_sleep(&s->bell[rank]);
        shm_arm(wire, false, &never);
        model_clear(&s->bell[rank]);
        if (there)
            break;
    }
}

static void publish(uint32_t rank, uint32_t seq)
{
    MODEL_CHECK(member_expose(rank, wire_key_of(seq, 0, 0), ONCE, 8) == WIRE_DONE);
    shmchan_flush(members->channel[rank]);
}

static void one_publishes(uint32_t t)
{
    if (t == 0)
        publish(0, 1);
    else
        sleep_until_there(1, 1);
}

/* The second wake-up is not lost either, and not taken for the first. */
static void one_publishes_twice(uint32_t t)
{
    for (uint32_t seq = 1; seq <= 2; seq++) {
        if (t == 0)
            publish(0, seq);
        else
            sleep_until_there(1, seq);
    }
}

static void both_exchange(uint32_t t)
{
    publish(t, 1);
    sleep_until_there(t, 1);
}

static const struct model_fault light_faults[] = {
    {.what = "the sleeper makes no barrier", .kind = MODEL_BARRIER, .thread = 1},
    {.what = "the publisher's store and load may be swapped", .kind = MODEL_SIGNAL_FENCE, .thread = 0},
    {.what = NULL},
};
static const struct model_fault fenced_faults[] = {
    {.what = "the publisher makes no fence", .kind = MODEL_FENCE, .thread = 0},
    {.what = "the sleeper makes no fence", .kind = MODEL_FENCE, .thread = 1},
    {.what = NULL},
};
const struct model_case case_sleep_light = {
    .name = "sleep, the sleeper's barrier", .threads = 2, .setup = light_setup, .run = one_publishes, .faults = light_faults};
const struct model_case case_sleep_fenced = {
    .name = "sleep, a fence each", .threads = 2, .setup = fenced_setup, .run = one_publishes, .faults = fenced_faults};
const struct model_case case_sleep_twice = {
    .name = "sleep, twice", .threads = 2, .setup = light_setup, .run = one_publishes_twice, .faults = light_faults};
const struct model_case case_sleep_both = {
    .name = "sleep, both", .threads = 2, .setup = light_setup, .run = both_exchange, .faults = light_faults};
const struct model_case case_sleep_both_fenced = {
    .name = "sleep, both with fences", .threads = 2, .setup = fenced_setup, .run = both_exchange, .faults = fenced_faults};
