/*
 * A request outlives its communicator: a thread tests it while another one closes the communicator and opens the next one with its handle.
 * The request has its own result or is CLOSED; it is never the next communicator's. Runs the real timeline/handle.c.
 */
#include "model/cases.h"

#include "timeline/timeline.h"

static struct comm_communicator *shared; /* the handle */

/* The list of closed handles is the process's and not of the explored memory. Thread 0 alone uses it, so its lock is left out. */
static bool is_explored(const struct base_lock *lock)
{
    return lock == &shared->exception_lock;
}

#define base_lock(lock, env) (is_explored(lock) ? base_lock(lock, env) : (void)0)
#define base_unlock(lock, env) (is_explored(lock) ? base_unlock(lock, env) : (void)0)
#include "timeline/handle.c"
#undef base_lock
#undef base_unlock

enum { DONE = 3, ISSUED = 6 };

static const _Atomic uint32_t *alive;

/* A handle with DONE retired tickets and two more. */
static void setup(void)
{
    _Atomic uint32_t *word = model_env.take(&model_env, sizeof *word, 4);
    atomic_store(word, 1);
    alive = word;
    shared = model_env.take(&model_env, sizeof *shared, 64);
    shared->env = &model_env;
    shared->alive = alive;
    shared->first_message = shared->next_message = 1;
    atomic_store(&shared->first, 1);
    atomic_store(&shared->done, DONE);
    atomic_store(&shared->next, ISSUED);
    atomic_store(&shared->failed, UINT64_MAX);
    model_constant(alive, 4);
    model_name(&shared->first, 8, "first");
    model_name(&shared->done, 8, "done");
    model_name(&shared->next, 8, "next");
    model_name(&shared->failed, 8, "failed");
    model_name(&shared->result, 4, "result");
    model_name(&shared->exceptions, 4, "exceptions");
}

/* It failed at the first ticket that had not retired. */
static void failed_setup(void)
{
    setup();
    atomic_store(&shared->result, COMM_ERR_PEER);
    atomic_store(&shared->failed, DONE + 1);
}

/* The last retired ticket failed alone. What it failed with is not remembered, so that there is less to explore. */
static void alone_setup(void)
{
    setup();
    shared->dropped_work = DONE;
    atomic_store(&shared->exceptions, 1);
}

/* Thread 0 closes the communicator, and the next one has failed too or is just open. */
static void reuse(bool fails)
{
    handles.oldest = handles.newest = NULL; /* as earlier runs left them */
    timeline_handle_give(shared);
    struct comm_communicator *next = timeline_handle_take(&model_env, NULL);
    MODEL_CHECK(next == shared);
    if (!fails)
        return;
    atomic_store_explicit(&shared->result, COMM_ERR_TIMEOUT, memory_order_release); /* as timeline_fail */
    atomic_store_explicit(&shared->failed, atomic_load_explicit(&shared->done, memory_order_relaxed) + 1, memory_order_release);
}

static void test_failed(uint32_t t)
{
    if (t == 0) {
        reuse(false);
        return;
    }
    enum comm_result r = timeline_test((struct comm_request){shared, DONE + 1});
    MODEL_CHECK(r == COMM_ERR_PEER || r == COMM_ERR_CLOSED);
}

static void test_failed_twice(uint32_t t)
{
    if (t == 0) {
        reuse(true);
        return;
    }
    enum comm_result r = timeline_test((struct comm_request){shared, DONE + 1});
    MODEL_CHECK(r == COMM_ERR_PEER || r == COMM_ERR_CLOSED);
}

static void test_alone(uint32_t t)
{
    if (t == 0) {
        reuse(false);
        return;
    }
    MODEL_CHECK(timeline_test((struct comm_request){shared, DONE}) == COMM_ERR_CLOSED);
}

static const struct model_fault failed_faults[] = {
    {.what = "the result is reset without release", .kind = MODEL_STORE, .name = "result", .thread = 0},
    {.what = NULL},
};
static const struct model_fault alone_faults[] = {
    {.what = "exceptions are forgotten without release", .kind = MODEL_STORE, .name = "exceptions", .thread = 0},
    {.what = NULL},
};
const struct model_case case_handle_failed = {.name = "handle, reused after a failure",
                                              .threads = 2,
                                              .setup = failed_setup,
                                              .run = test_failed,
                                              .deadlines = true,
                                              .faults = failed_faults};
const struct model_case case_handle_failed_twice = {
    .name = "handle, reused and failed again", .threads = 2, .setup = failed_setup, .run = test_failed_twice, .deadlines = true};
const struct model_case case_handle_alone = {.name = "handle, reused after an exception",
                                             .threads = 2,
                                             .setup = alone_setup,
                                             .run = test_alone,
                                             .deadlines = true,
                                             .faults = alone_faults};
