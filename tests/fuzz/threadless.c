#include "fuzz/threadless.h"

#include "timeline/timeline.h"
#include "wire/table.h"

#include <setjmp.h>
#include <string.h>

enum { SHORT_NS = 100000, LONG_NS = 10000000 };

static struct comm_env env;
static struct mock *mock;
static env_thread_fn *monitor;
static void *watched;
static jmp_buf turn_is_over;
static int watching; /* 0: not at all; 1: before its look; 2: after it */

__typeof__(wire_default_env) __real_wire_default_env, __wrap_wire_default_env;
const struct comm_env *__wrap_wire_default_env(void)
{
    return env.name ? &env : __real_wire_default_env();
}

static int start_nothing(const struct comm_env *of)
{
    (void)of;
    return 0;
}

static void relax(const struct comm_env *of, bool yield)
{
    (void)of;
    mock->now += yield ? 1000000 : 10000;
}

static void park(const struct comm_env *of, _Atomic uint32_t *at, uint32_t seen, int64_t deadline)
{
    (void)of;
    (void)at;
    (void)seen;
    int64_t left = deadline - mock->now;
    mock->now += left < SHORT_NS ? SHORT_NS : left < LONG_NS ? left : LONG_NS;
}

static bool no_barrier(const struct comm_env *of)
{
    (void)of;
    return false;
}

static int bell_open(const struct comm_env *of, struct env_bell *bell)
{
    (void)of;
    bell->ring_fd = bell->wait_fd = -1;
    return 0;
}

static bool bell_clear(const struct comm_env *of, struct env_bell *bell)
{
    (void)of;
    (void)bell;
    return true;
}

static void bell_close(const struct comm_env *of, struct env_bell *bell)
{
    (void)of;
    (void)bell;
}

/* The monitor thread is a function that is called for one look, and left by longjmp when it would sleep again: it holds no lock then. */
static void bell_wait(const struct comm_env *of, struct env_bell *bell, int64_t deadline)
{
    if (watching == 2)
        longjmp(turn_is_over, 1);
    if (watching)
        watching = 2;
    else
        park(of, NULL, 0, deadline);
    (void)bell;
}

static int spawn(const struct comm_env *of, env_thread_fn *fn, void *arg, struct env_thread *thread)
{
    (void)of;
    (void)thread;
    monitor = fn;
    watched = arg;
    return 0;
}

static bool join(const struct comm_env *of, struct env_thread *thread, int64_t deadline)
{
    (void)of;
    (void)thread;
    (void)deadline;
    monitor = NULL;
    return true;
}

/* Log lines are written by the thread that logs. */
static void stop_nothing(const struct comm_env *of)
{
    (void)of;
}

static uint32_t cpus(const struct comm_env *of)
{
    (void)of;
    return 4;
}

static void identify(const struct comm_env *of, struct env_identity *to)
{
    (void)of;
    *to = (struct env_identity){.host = "mock", .host_id = 1, .place_id = 1, .pid = 7};
}

static void *no_module(const struct comm_env *of, const char *name, char *why, size_t why_bytes)
{
    (void)of;
    (void)name;
    (void)why_bytes;
    *why = 0;
    return NULL;
}

static const char *no_variable(const struct comm_env *of, const char *name)
{
    (void)of;
    (void)name;
    return NULL;
}

void threadless_begin(struct mock *p)
{
    static _Atomic uint32_t alive = 1;

    mock = p;
    mock_begin(mock);
    env = mock->env;
    env.alive = &alive;
    env.start = start_nothing;
    env.relax = relax;
    env.park = park;
    env.barrier = no_barrier;
    env.bell_open = bell_open;
    env.bell_clear = bell_clear;
    env.bell_close = bell_close;
    env.bell_wait = bell_wait;
    env.log.start = start_nothing;
    env.log.stop = stop_nothing;
    env.spawn = spawn;
    env.join = join;
    env.cpus = cpus;
    env.identity = identify;
    env.module = no_module;
    env.lookup = no_variable;
}

void threadless_end(void)
{
    mock_end(mock);
    env.name = NULL; /* the next environment is built from the real one again */
}

void threadless_watch(int64_t ns)
{
    mock->now += ns;
    if (!monitor)
        return;
    watching = 1;
    if (!setjmp(turn_is_over))
        monitor(watched);
    watching = 0;
}

/* Handles and their contents belong to the process for ever, so they are counted separately. */
__typeof__(timeline_handle_take) __real_timeline_handle_take, __wrap_timeline_handle_take;
struct comm_communicator *__wrap_timeline_handle_take(const struct comm_env *of, void *state)
{
    mock_keep(true);
    struct comm_communicator *handle = __real_timeline_handle_take(of, state);
    mock_keep(false);
    return handle;
}

__typeof__(timeline_slot_open) __real_timeline_slot_open, __wrap_timeline_slot_open;
uint64_t __wrap_timeline_slot_open(struct comm_communicator *handle, uint32_t index)
{
    mock_keep(true);
    uint64_t ticket = __real_timeline_slot_open(handle, index);
    mock_keep(false);
    return ticket;
}

__typeof__(timeline_except) __real_timeline_except, __wrap_timeline_except;
void __wrap_timeline_except(struct comm_communicator *handle, uint64_t ticket, enum comm_result result, bool told)
{
    mock_keep(true);
    __real_timeline_except(handle, ticket, result, told);
    mock_keep(false);
}
