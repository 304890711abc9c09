/* The two locks of the core: a thread inside is alone, and sees what the threads before it did. */
#include "base/home.h"
#include "model/cases.h"

static struct guarded {
    struct base_home_lock home;
    struct base_lock lock;
    uint64_t count, times[MODEL_THREADS];
} * g;

static void setup(void)
{
    g = model_env.take(&model_env, sizeof *g, 64);
    model_name(&g->lock.word, 4, "word");
    model_name(&g->lock.waiters, 4, "waiters");
    model_name(&g->home.lock.word, 4, "guest word");
    model_name(&g->home.lock.waiters, 4, "guest waiters");
    model_name(&g->home.home, 8, "home");
    model_name(&g->home.inside, 4, "inside");
    model_name(&g->home.guests, 4, "guests");
    model_name(&g->home.visits, 4, "visits");
    model_name(&g->home.guest, 4, "guest");
    model_name(&g->count, 8, "what is guarded");
}

static void inside(uint32_t thread)
{
    g->count++;
    g->times[thread]++;
}

static void check_count(uint64_t want)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < MODEL_THREADS; t++)
        sum += g->times[t];
    MODEL_CHECK(sum == want && g->count == want);
}

/* ------------------------------------------------------------------------------------------------------------ base_lock */
static void locks(uint32_t thread)
{
    base_lock(&g->lock, &model_env);
    inside(thread);
    base_unlock(&g->lock, &model_env);
}

static void locks_twice(uint32_t thread)
{
    locks(thread);
    locks(thread);
}

static void once_each_of_three(void)
{
    check_count(3);
}

static void one_each_of_two(void)
{
    check_count(2);
}

static void twice_each_of_two(void)
{
    check_count(4);
}

static const struct model_fault lock_faults[] = {
    {.what = "taking does not acquire", .kind = MODEL_CHANGE, .name = "word", .thread = -1},
    {.what = "leaving does not release", .kind = MODEL_STORE, .name = "word", .thread = -1},
    {.what = NULL},
};
const struct model_case case_lock_three = {.name = "lock, three threads",
                                           .threads = 3,
                                           .setup = setup,
                                           .run = locks,
                                           .finish = once_each_of_three,
                                           .deadlines = true,
                                           .faults = lock_faults};
const struct model_case case_lock_twice = {.name = "lock, twice each",
                                           .threads = 2,
                                           .setup = setup,
                                           .run = locks_twice,
                                           .finish = twice_each_of_two,
                                           .deadlines = true,
                                           .faults = lock_faults};

/* A waiter sleeps at once, and has waited too long by then, so the lock is claimed and kept for it. */
static int64_t late[MODEL_THREADS];

static int64_t later(const struct comm_env *env)
{
    return late[env->self(env) - 1] += 2000000;
}

static struct comm_env hasty_env;

static void hasty_setup(void)
{
    setup();
    hasty_env = model_env;
    hasty_env.now = later;
    for (uint32_t t = 0; t < MODEL_THREADS; t++)
        late[t] = 1;
}

static void locks_hastily(uint32_t thread)
{
    if (!base_trylock(&g->lock))
        base_lock_park(&g->lock, &hasty_env, 0);
    inside(thread);
    base_unlock(&g->lock, &hasty_env);
}

const struct model_case case_lock_claimed = {.name = "lock, two who claim it",
                                             .threads = 2,
                                             .setup = hasty_setup,
                                             .run = locks_hastily,
                                             .finish = one_each_of_two,
                                             .deadlines = true,
                                             .faults = lock_faults};
const struct model_case case_lock_claimed_three = {.name = "lock, three who claim it",
                                                   .threads = 3,
                                                   .setup = hasty_setup,
                                                   .run = locks_hastily,
                                                   .finish = once_each_of_three,
                                                   .deadlines = true,
                                                   .most = 60000,
                                                   .faults = lock_faults};

/* ------------------------------------------------------------------------------------------------------------ base_home_lock */
/* Thread 0 is the home thread. */
static void home_setup(void)
{
    model_has_barrier = true;
    setup();
    atomic_store(&g->home.home, 1);
}

/* The next visit makes it an ordinary lock. */
static void leaving_setup(void)
{
    home_setup();
    g->home.visits = 1020;
}

static void unclaimed_setup(void)
{
    model_has_barrier = true;
    setup();
}

static void plain_setup(void)
{
    model_has_barrier = false;
    setup();
}

static void comes_home(uint32_t thread)
{
    base_home_lock(&g->home, &model_env);
    inside(thread);
    base_home_unlock(&g->home, &model_env);
}

static void home_twice_one_guest(uint32_t thread)
{
    comes_home(thread);
    if (thread == 0)
        comes_home(thread);
}

static void home_and_visitor_that_tries(uint32_t thread)
{
    if (thread == 0) {
        comes_home(thread);
        comes_home(thread);
    } else if (base_home_trylock(&g->home, &model_env)) {
        inside(thread);
        base_home_unlock(&g->home, &model_env);
    }
}

static void at_least_home(void)
{
    MODEL_CHECK(g->count == g->times[0] + g->times[1] && g->times[0] == 2);
}

static void two_and_one(void)
{
    check_count(3);
}

static void both_claim(uint32_t thread)
{
    comes_home(thread);
}

static const struct model_fault home_faults[] = {
    {.what = "the guest makes no barrier", .kind = MODEL_BARRIER, .thread = 1},
    {.what = "the home thread's store and load may be swapped", .kind = MODEL_SIGNAL_FENCE, .thread = 0},
    {.what = "the home thread leaves without release", .kind = MODEL_STORE, .name = "inside", .thread = 0},
    {.what = "a guest does not acquire what the home thread left", .kind = MODEL_LOAD, .name = "inside", .thread = 1},
    {.what = "a guest leaves without release", .kind = MODEL_CHANGE, .name = "guests", .thread = 1},
    {.what = "the home thread does not acquire what a guest left", .kind = MODEL_LOAD, .name = "guests", .thread = 0},
    {.what = NULL},
};
static const struct model_fault leaving_faults[] = {
    {.what = "it becomes an ordinary lock without a barrier", .kind = MODEL_BARRIER, .thread = 1},
    {.what = "the home thread's store and load may be swapped", .kind = MODEL_SIGNAL_FENCE, .thread = 0},
    {.what = NULL},
};
const struct model_case case_home = {.name = "home lock, a guest",
                                     .threads = 2,
                                     .setup = home_setup,
                                     .run = home_twice_one_guest,
                                     .finish = two_and_one,
                                     .deadlines = true,
                                     .faults = home_faults};
const struct model_case case_home_try = {.name = "home lock, a guest that tries",
                                         .threads = 2,
                                         .setup = home_setup,
                                         .run = home_and_visitor_that_tries,
                                         .finish = at_least_home,
                                         .deadlines = true,
                                         .faults = home_faults};
const struct model_case case_home_leaving = {.name = "home lock becomes an ordinary one",
                                             .threads = 2,
                                             .setup = leaving_setup,
                                             .run = home_twice_one_guest,
                                             .finish = two_and_one,
                                             .deadlines = true,
                                             .faults = leaving_faults};
const struct model_case case_home_unclaimed = {.name = "home lock, both claim it",
                                               .threads = 2,
                                               .setup = unclaimed_setup,
                                               .run = both_claim,
                                               .finish = one_each_of_two,
                                               .deadlines = true};
const struct model_case case_home_no_barrier = {.name = "home lock without a barrier",
                                                .threads = 2,
                                                .setup = plain_setup,
                                                .run = home_twice_one_guest,
                                                .finish = two_and_one,
                                                .deadlines = true};
