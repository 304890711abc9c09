/* A run from its config to its result, and what ranks can ask while it lasts. */
#define _GNU_SOURCE
#include "sim/frames.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

void sim_schedule_reset(void);
void sim_schedule_run(void);
void sim_boot_reset(void);

/* ------------------------------------------------------------------------------------------------------------ chosen by the seed */
static void set_option(const char *name, const char *value)
{
    if (sim_option_value(name) || sim.options == SIM_OPTIONS_MAX)
        return; /* the first setting wins */
    struct sim_option *o = &sim.option[sim.options++];
    snprintf(o->name, sizeof o->name, "%s", name);
    snprintf(o->value, sizeof o->value, "%s", value);
}

/* Parses "NAME=value NAME=value". */
static void set_options(const char *text)
{
    while (text && *text) {
        char name[40] = "", value[64] = "";
        size_t length = strcspn(text, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        text += length + (text[length] == '=');
        length = strcspn(text, " ");
        snprintf(value, sizeof value, "%.*s", (int)length, text);
        text += length;
        text += strspn(text, " ");
        set_option(name, value);
    }
}

static const char *one_of(uint64_t *s, const char *const *values, uint64_t count)
{
    return values[sim_below(s, count)];
}
#define ONE_OF(s, ...) one_of(s, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static void sample_options(uint64_t *s)
{
    char number[16];

    snprintf(number, sizeof number, "%d", sim.config.ranks * (int32_t)sim_below(s, 3));
    set_option("COMM_CPUS", number); /* 0: as many as the machine has, one for each rank */
    set_option("COMM_PROGRESS", ONE_OF(s, "auto", "caller", "thread", "caller"));
    set_option("COMM_SPIN", ONE_OF(s, "0", "1us", "50us"));
    set_option("COMM_YIELD", ONE_OF(s, "0", "5us", "100us"));
    bool minimal = sim_below(s, 3) == 0;
    set_option("COMM_MINIMAL", minimal ? "yes" : "no");
    set_option("COMM_WINDOW", minimal ? "4" : ONE_OF(s, "4", "8", "16", "64"));
    set_option("COMM_CHUNK", ONE_OF(s, "0", "4096", "8192", "65536"));
    set_option("COMM_ISA", ONE_OF(s, "auto", "scalar"));
}

static int64_t scale(uint64_t *s, int64_t least, uint32_t decades)
{
    int64_t most = least;

    for (uint64_t d = sim_below(s, decades + 1); d; d--)
        most *= 10;
    return sim_between(s, least, most);
}

static void sample_mood(uint64_t *s)
{
    struct sim_mood *m = &sim.mood;
    static const int32_t budgets[] = {1, 3, 10, 30, 100, 300, 1000};

    m->order = (enum sim_order)(SIM_ORDER_UNIFORM + sim_below(s, 3));
    m->step_ns = scale(s, 10, 2);
    m->budget = budgets[sim_below(s, 7)];
    m->relax_ns = scale(s, 100, 3);
    m->change = (uint32_t)scale(s, 10, 3);
    m->barrier = sim_below(s, 2);
    m->death_ns = scale(s, 10 * US, 4);
    m->refuse = sim_below(s, 2) ? 0 : (uint32_t)scale(s, 3, 2);
    m->hold = sim_below(s, 2) ? 0 : (uint32_t)scale(s, 1, 2);
    m->latency_ns = scale(s, 100, 3);
    m->spread_ns = scale(s, 100, 4);
    m->byte_ps = scale(s, 10, 3);
    m->tail = sim_below(s, 2) ? 0 : (uint32_t)scale(s, 100, 2);
}

static void set_mood(void)
{
    uint64_t s = sim.config.seed ^ UINT64_C(0x51ed270b35ae4f3d);
    bool calm = sim.config.calm;

    set_options(sim.config.options);
    if (sim.config.minimal)
        set_options("COMM_MINIMAL=yes COMM_WINDOW=4 COMM_CHUNK=4096");
    if (!calm)
        sample_options(&s);
    sample_mood(&s);
    if (calm)
        sim.mood = (struct sim_mood){.order = SIM_ORDER_TURNS,
                                     .step_ns = 50,
                                     .budget = 1000,
                                     .relax_ns = 2000,
                                     .change = 1000,
                                     .barrier = true,
                                     .death_ns = MS,
                                     .latency_ns = 1000,
                                     .spread_ns = 100,
                                     .byte_ps = 100};
    if (sim.config.meter) {
        sim.mood.step_ns = sim.mood.spread_ns = sim.mood.byte_ps = 0;
        sim.mood.relax_ns = 1;
        sim.mood.latency_ns = sim.config.meter->latency_ns;
    }
    if (sim.config.budget)
        sim.mood.budget = sim.config.budget;
    if (sim.config.order != SIM_ORDER_ANY)
        sim.mood.order = sim.config.order;
    if (sim.config.wire == SIM_WIRE_ANY)
        sim.config.wire = sim_below(&s, 2) ? SIM_WIRE_LINES : SIM_WIRE_FRAMES;
    static const char *const backends[] = {"", "shm", "tcp", "shm+tcp"};
    set_option("COMM_BACKEND", backends[sim.config.wire]);
    set_option("COMM_JOB", "simulation");
    set_option("COMM_LOG", "error");
}

/* ------------------------------------------------------------------------------------------------------------ ranks */
/* A rank whose main function returns is a process that ends: its other threads stop. */
static void rank_ends(struct sim_member *m)
{
    m->ended = true;
    sim_mix((uint64_t)m->rank);
    if (--sim.running == 0)
        sim_finish();
    sim_stop_rank(m->rank);
    sim_port_rank_gone(m->rank);
}

static void rank_begins(void *arg)
{
    struct sim_member *m = arg;

    sim.rank_main(m->rank, sim.arg);
    rank_ends(m);
    sim_leave();
}

static void prepare(const struct sim_config *config, struct sim_result *result)
{
    uint64_t seed = config->seed;
    struct sim_result *kept = result;

    memset(sim.member, 0, (size_t)sim.config.ranks * sizeof *sim.member); /* of the run before */
    memset(sim.bell, 0, sim.bells * sizeof *sim.bell);
    memset(sim.threads, 0, sim.thread_count * sizeof *sim.threads);
    memset(&sim, 0, offsetof(struct sim, member));
    memset(kept, 0, sizeof *kept);
    sim.config = *config;
    if (!sim.config.trace && getenv("COMM_SIM_TRACE"))
        sim.config.trace = 2;
    sim.result = kept;
    sim.hash = seed;
    sim.schedule = sim_draw(&seed);
    sim.network = sim_draw(&seed);
    sim.chance = sim_draw(&seed);
    sim.limit_ns = config->limit_ns ? config->limit_ns : 4000 * S;
    sim.limit_events = config->limit_events ? config->limit_events : 200000000;
    sim.heal_ns = config->heal_ns ? config->heal_ns : 20 * S;
    sim_memory_reset();
    sim_forget_handles();
    sim_boot_reset();
    frames_net_reset();
    sim_schedule_reset();
    set_mood();
    for (int32_t r = 0; r < config->ranks; r++) {
        struct sim_member *m = &sim.member[r];
        m->rank = r;
        m->random = sim_draw(&seed);
        m->entropy = sim_draw(&seed);
        sim_env_fill(m);
    }
    sim_faults_plan();
    sim.running = config->ranks;
    for (int32_t r = 0; r < config->ranks; r++)
        sim_thread_start(r, rank_begins, &sim.member[r], true);
}

/* ------------------------------------------------------------------------------------------------------------ crashes */
static sigjmp_buf crash_exit;
static const int crash_signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTRAP};
enum { CRASH_SIGNALS = sizeof crash_signals / sizeof *crash_signals };

static void crashed(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (!sim.active) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    const struct sim_thread *t = sim.current;
    sim.active = false;
    sim_budget = INT32_MAX;
    sim_failed("rank %d, %s %llu: the library stopped itself: signal %d at %p", t->rank, t->doing ? t->doing : "start",
               (unsigned long long)t->sequence, number, number == SIGSEGV || number == SIGBUS ? info->si_addr : NULL);
    siglongjmp(crash_exit, 1);
}

static void catch_crashes(bool on, struct sigaction *before)
{
    static char stack[65536];

    if (getenv("COMM_SIM_CRASH")) /* for a debugger */
        return;
    if (on) {
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        sigaltstack(&alternate, NULL);
    }
    for (int i = 0; i < CRASH_SIGNALS; i++) {
        struct sigaction action = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
        sigaction(crash_signals[i], on ? &action : &before[i], on ? &before[i] : NULL);
    }
}

bool sim_run(const struct sim_config *config, sim_rank_fn *rank_main, void *arg, struct sim_result *result)
{
    struct sigaction before[CRASH_SIGNALS];

    if (config->ranks < 1 || config->ranks > SIM_RANKS_MAX) {
        memset(result, 0, sizeof *result);
        result->failed = true;
        snprintf(result->text, sizeof result->text, "config.ranks=%d; expected 1 to %d", config->ranks, SIM_RANKS_MAX);
        return false;
    }
    prepare(config, result);
    sim.rank_main = rank_main;
    sim.arg = arg;
    catch_crashes(true, before);
    if (sigsetjmp(crash_exit, 1) == 0)
        sim_schedule_run();
    catch_crashes(false, before);
    sim.active = false;
    result->hash = sim.hash;
    result->events = sim.events;
    result->ns = sim.clock;
    result->wire = sim.config.wire;
    return !result->failed;
}

/* ------------------------------------------------------------------------------------------------------------ inside a rank */
int32_t sim_rank(void)
{
    return sim.current->rank;
}
int32_t sim_ranks(void)
{
    return sim.config.ranks;
}
int64_t sim_now(void)
{
    return sim.clock;
}
uint64_t sim_random(void)
{
    return sim_draw(&sim_self()->random);
}
void sim_spend(int64_t ns)
{
    sim_sleep(ns, "sim_spend");
}
void *sim_take(size_t size)
{
    void *memory = sim_memory_take(size, 64);

    if (!memory)
        sim_fail("the simulator's memory is used up");
    return memory;
}

enum comm_result sim_open(const struct comm_config *config, struct comm_communicator **world)
{
    struct comm_config mine = {.size = sizeof mine};

    if (config)
        mine = *config;
    mine.rank = sim_rank();
    mine.ranks = sim_ranks();
    return comm_open(&mine, world);
}

struct sim_thread *sim_spawn(void (*fn)(void *arg), void *arg)
{
    struct sim_thread *t = sim_thread_start(sim_rank(), fn, arg, true);

    if (!t)
        sim_fail("more threads than the simulator has");
    return t;
}

void sim_join(struct sim_thread *thread)
{
    while (thread->state != THREAD_ENDED)
        sim_wait(thread, INT64_MAX, "sim_join");
}

bool sim_poll(int fd, int64_t timeout_ns)
{
    struct sim_bell *b = &sim.bell[fd - SIM_BELL_BASE];
    int64_t until = sim.clock + timeout_ns;

    while (!b->rung && sim.clock < until)
        sim_wait(b, until, "sim_poll");
    return b->rung;
}

void sim_doing(const char *operation, uint64_t sequence)
{
    sim.current->doing = operation;
    sim.current->sequence = sequence;
}

void sim_note(uint64_t value)
{
    sim_mix(value);
}

void sim_note_bytes(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t word;

    for (; count >= sizeof word; at += sizeof word, count -= sizeof word) {
        memcpy(&word, at, sizeof word);
        sim_mix(word);
    }
    for (word = count; count; count--)
        word = word << 8 | *at++;
    sim_mix(word);
}

bool sim_is_dead(int32_t rank)
{
    return sim.member[rank].dead;
}
int64_t sim_died_ns(int32_t rank)
{
    return sim.member[rank].died_ns;
}
int64_t sim_stood_still_ns(int32_t rank)
{
    return sim.member[rank].paused_most;
}
bool sim_link_broken(int32_t a, int32_t b)
{
    return frames_net_broken(a, b) || frames_net_broken(b, a);
}
uint64_t sim_faults_of(uint32_t kinds)
{
    uint64_t count = 0;

    for (uint32_t k = 0; k < SIM_FAULT_KINDS; k++)
        count += kinds & SIM_FAULT_BIT(k) ? sim.fault_count[k] : 0;
    return count;
}
int64_t sim_last_fault_ns(void)
{
    return sim.last_fault_ns;
}
int64_t sim_memory_held(int32_t rank)
{
    return sim.member[rank].held;
}

uint64_t sim_event(void)
{
    return sim.events;
}
uint32_t sim_calls_of(int32_t rank, uint32_t kind)
{
    return kind == SIM_MEMORY ? sim.member[rank].memory.calls : sim.member[rank].room.calls;
}

int64_t sim_link_clear_ns(int32_t from, int32_t to)
{
    return sim.config.wire != SIM_WIRE_LINES ? frames_net_clear(from, to) : 0;
}
