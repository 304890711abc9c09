/* Opens worlds of ranks for tests of the wires, and the helpers with which a rank waits. */
#define _GNU_SOURCE
#include "wire/world.h"

#include "selection.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Far more than a correct run needs: the ranks of these tests spin, and on busy CPUs a rank may get its turn late. */
#define AWAIT_NS INT64_C(60000000000)

static const struct base_log quiet = {.level = 0, .rank = -1};

struct shared *world_shared(void)
{
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s != MAP_FAILED);
    return s;
}

uint64_t rank_random(struct rank *r)
{
    r->seed ^= r->seed << 13;
    r->seed ^= r->seed >> 7;
    r->seed ^= r->seed << 17;
    return r->seed;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SPARSER = 2 }; /* where it takes longest */
#else
enum { SPARSER = 1 };
#endif

uint32_t rank_count(const struct rank *r, uint32_t usual)
{
    uint32_t count = r->variant ? (uint32_t)r->variant : usual;

    return selection_all() ? count : count / selected(1, 2, 4 * SPARSER) + 1;
}

void rank_meet(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    uint32_t generation = atomic_load(&r->shared->generation);
    if (atomic_fetch_add(&r->shared->arrived, 1) + 1 == (uint32_t)r->size) {
        atomic_store(&r->shared->arrived, 0);
        atomic_fetch_add(&r->shared->generation, 1);
        return;
    }
    int64_t end = env->now(env) + AWAIT_NS;
    while (atomic_load(&r->shared->generation) == generation) {
        struct wire_event event[4];
        CHECK(env->now(env) < end);
        if (r->attended && r->wire) /* a peer may need an answer from this rank; in the library the monitor gives it */
            CHECK(r->wire_class->poll(r->wire, event, 4) == 0 || /* a peer that met this rank may close before this rank looks */
                  atomic_load(&r->shared->generation) != generation);
        env->relax(env, true);
    }
}

struct wire_channel *rank_join(struct rank *r, uint64_t id, const struct wire_limits *limits)
{
    struct wire_team team = {.id = id, .rank = r->rank, .size = r->size, .world = r->world};
    struct wire_channel *ch = NULL;
    CHECK(r->wire_class->join(r->wire, &team, limits, NULL, r->shared->blob[r->rank], &ch) == COMM_OK);
    rank_meet(r);
    unsigned char offers[RANKS_MAX][WIRE_OFFER_BYTES];
    memcpy(offers, r->shared->blob, sizeof offers);
    rank_meet(r);
    CHECK(r->wire_class->join(r->wire, &team, limits, offers, NULL, &ch) == COMM_OK);
    return ch;
}

bool rank_pass(struct rank *r)
{
    uint32_t room = (uint32_t)(sizeof r->event / sizeof *r->event) - r->events;
    uint32_t n = room ? r->ch->class->advance(r->ch, r->event + r->events, room) : 0;
    r->events += n;
    r->ch->class->flush(r->ch);
    if (!n && !r->by_hand)
        wire_default_env()->relax(wire_default_env(), true);
    return n > 0;
}

static bool take_event(struct rank *r, uint32_t kind, int32_t announced, uint64_t cookie, struct wire_event *event)
{
    for (uint32_t i = 0; i < r->events; i++) {
        struct wire_event *e = &r->event[i];
        if (e->kind != kind || (kind == WIRE_EVENT_DONE ? e->cookie != cookie : e->result != announced))
            continue;
        *event = *e;
        memmove(e, e + 1, (--r->events - i) * sizeof *e);
        return true;
    }
    return false;
}

int32_t rank_await(struct rank *r, uint64_t cookie)
{
    const struct comm_env *env = wire_default_env();
    int64_t end = env->now(env) + AWAIT_NS;
    struct wire_event event;
    while (!take_event(r, WIRE_EVENT_DONE, 0, cookie, &event)) {
        CHECK(env->now(env) < end);
        rank_pass(r);
    }
    return event.result;
}

bool rank_announced(struct rank *r, uint32_t kind, struct wire_event *event)
{
    const struct comm_env *env = wire_default_env();
    int64_t end = env->now(env) + AWAIT_NS;
    while (!take_event(r, WIRE_EVENT_ANNOUNCED, (int32_t)kind, 0, event)) {
        if (env->now(env) > end)
            return false;
        rank_pass(r);
    }
    return true;
}

int32_t rank_expose(struct rank *r, const struct wire_expose *e)
{
    int32_t result;
    while ((result = r->ch->class->expose(r->ch, e)) == WIRE_AGAIN)
        rank_pass(r);
    r->ch->class->flush(r->ch);
    return result == WIRE_PENDING ? rank_await(r, e->cookie) : result;
}

int32_t rank_look(struct rank *r, const struct wire_look *l)
{
    int32_t result;
    while ((result = r->ch->class->view(r->ch, l)) == WIRE_AGAIN)
        rank_pass(r);
    return result == WIRE_PENDING ? rank_await(r, l->cookie) : result;
}

/* ------------------------------------------------------------------------------------------------------------ opening */
static void open_rank(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    int64_t deadline = env->now(env) + AWAIT_NS;
    struct wire_config config = {.env = env,
                                 .log = &quiet,
                                 .bell = &r->bell,
                                 .watch = &r->bell,
                                 .rank = r->rank,
                                 .ranks = r->size,
                                 .host = r->host,
                                 .deadline = deadline,
                                 .error_text = r->text,
                                 .error_text_bytes = sizeof r->text};
    wire_backend_inner(r->backend, &config);
    for (const char *c = r->job; *c; c++)
        config.world = config.world * 31 + (unsigned char)*c;
    if (r->backend->boot) {
        struct boot_config boot = {.env = env,
                                   .log = &quiet,
                                   .rank = r->rank,
                                   .ranks = r->size,
                                   .job = r->job,
                                   .deadline = deadline,
                                   .error_text = r->text,
                                   .error_text_bytes = sizeof r->text};
        if (r->backend->boot->open(&boot, &r->boot) != COMM_OK) {
            fprintf(stderr, "boot: %s\n", r->text);
            abort();
        }
        config.boot = r->boot;
    } else {
        config.rank = -1;
    }
    if (r->wire_class->open(&config, &r->wire) != COMM_OK) {
        fprintf(stderr, "open: %s\n", r->text);
        abort();
    }
}

static void init_rank(struct rank *r, const char *backend, int32_t rank, int32_t count, const struct wire_limits *limits,
                      struct shared *shared)
{
    static _Atomic uint32_t worlds;
    uint32_t number = rank ? atomic_load(&worlds) : atomic_fetch_add(&worlds, 1) + 1;
    *r = (struct rank){.backend = wire_backend_find(backend), .rank = rank, .size = count, .shared = shared};
    CHECK(r->backend && r->backend->wire);
    r->wire_class = r->backend->wire;
    r->attended = r->backend->network;
    r->limits = limits ? *limits : (struct wire_limits){0};
    r->seed = (uint64_t)rank * 7919 + 12345;
    snprintf(r->job, sizeof r->job, "test-%d-%u", (int)getpid(), number);
    for (int32_t i = 0; i < count; i++) {
        r->world[i] = i;
        r->host[i] = i % 2; /* for a wire that needs the placement */
    }
    CHECK(wire_default_env()->bell_open(wire_default_env(), &r->bell) == 0);
}

static void *open_thread(void *arg)
{
    struct rank *r = arg;
    open_rank(r);
    r->ch = rank_join(r, 1, &r->limits);
    return NULL;
}

void world_open(struct rank *ranks, const char *backend, int32_t count, const struct wire_limits *limits, struct shared *shared)
{
    pthread_t thread[RANKS_MAX];
    for (int32_t i = 0; i < count; i++)
        init_rank(&ranks[i], backend, i, count, limits, shared);
    if (!ranks[0].backend->boot)
        open_rank(&ranks[0]);
    for (int32_t i = 0; i < count; i++) {
        ranks[i].wire = ranks[0].wire;
        if (ranks[i].backend->boot)
            CHECK(!pthread_create(&thread[i], NULL, open_thread, &ranks[i]));
    }
    for (int32_t i = 0; i < count && ranks[0].backend->boot; i++)
        CHECK(!pthread_join(thread[i], NULL));
    if (ranks[0].backend->boot)
        return;
    unsigned char offers[RANKS_MAX][WIRE_OFFER_BYTES];
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < count; i++) {
            struct wire_team team = {.id = 1, .rank = i, .size = count, .world = ranks[i].world};
            CHECK(ranks[i].wire_class->join(ranks[i].wire, &team, &ranks[i].limits, pass ? offers : NULL, offers[i], &ranks[i].ch) ==
                  COMM_OK);
        }
    }
}

static void close_rank(struct rank *r, bool wire)
{
    const struct comm_env *env = wire_default_env();
    if (wire)
        r->wire_class->close(r->wire);
    if (r->boot)
        r->backend->boot->close(r->boot);
    env->bell_close(env, &r->bell);
}

void world_close(struct rank *ranks, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (ranks[i].ch)
            ranks[i].wire_class->leave(ranks[i].ch, WIRE_CLOSE);
    for (int32_t i = 0; i < count; i++)
        close_rank(&ranks[i], i == 0 || ranks[i].backend->boot);
}

struct call {
    struct rank *rank;
    scenario_fn *scenario;
};
static void *run_thread(void *arg)
{
    struct call *call = arg;
    call->scenario(call->rank);
    return NULL;
}

void world_threads(const char *backend, int32_t count, const struct wire_limits *limits, int32_t variant, scenario_fn *scenario)
{
    struct rank *ranks = calloc((size_t)count, sizeof *ranks);
    struct shared *shared = world_shared();
    pthread_t thread[RANKS_MAX];
    struct call call[RANKS_MAX];
    world_open(ranks, backend, count, limits, shared);
    for (int32_t i = 0; i < count; i++) {
        ranks[i].variant = variant;
        call[i] = (struct call){&ranks[i], scenario};
        CHECK(!pthread_create(&thread[i], NULL, run_thread, &call[i]));
    }
    for (int32_t i = 0; i < count; i++)
        CHECK(!pthread_join(thread[i], NULL));
    world_close(ranks, count);
    munmap(shared, sizeof *shared);
    free(ranks);
}

static void run_child(const char *backend, int32_t rank, int32_t count, const struct wire_limits *limits, int32_t variant,
                      scenario_fn *scenario, struct shared *shared, const char *job)
{
    struct rank r;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    init_rank(&r, backend, rank, count, limits, shared);
    snprintf(r.job, sizeof r.job, "%s", job);
    r.variant = variant;
    open_rank(&r);
    r.ch = rank_join(&r, 1, &r.limits);
    scenario(&r);
    if (r.ch)
        r.ch->class->leave(r.ch, WIRE_CLOSE);
    close_rank(&r, true);
    _exit(0);
}

void world_processes(const char *backend, int32_t count, const struct wire_limits *limits, int32_t variant, scenario_fn *scenario,
                     int *status)
{
    static int number;
    struct shared *shared = world_shared();
    pid_t child[RANKS_MAX];
    char job[64];
    snprintf(job, sizeof job, "test-processes-%d-%d", (int)getpid(), ++number);
    fflush(NULL);
    for (int32_t i = 0; i < count; i++) {
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (!child[i])
            run_child(backend, i, count, limits, variant, scenario, shared, job);
    }
    for (int32_t left = count; left; left--) {
        int how;
        pid_t ended = wait(&how);
        CHECK(ended > 0);
        for (int32_t i = 0; i < count; i++) {
            bool failed = WIFSIGNALED(how) ? WTERMSIG(how) == SIGABRT : WEXITSTATUS(how) != 0;
            if (child[i] == ended) {
                status[i] = how;
                child[i] = 0;
            } else if (child[i] && failed) { /* a check failed: do not wait for what will not come */
                kill(child[i], SIGKILL);
            }
        }
    }
    munmap(shared, sizeof *shared);
}
