/* Waits between the timelines of natives (native_fake) and others, and sleeping while a native has pending work. */
#define _GNU_SOURCE
#include "engine/native_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memory_env.h"
#include "wire/native.h"

/* ------------------------------------------------------------------------------------------------------------ timelines */
/* Work on two communicators, joined by an event, many times: the second one reads what the first one wrote. */
static void chain_of_events(uint32_t flags)
{
    struct rig rig;
    struct comm_communicator *other[RANKS];
    struct comm_event *event[RANKS];
    struct comm_request q[RANKS], last[RANKS];
    int32_t in[RANKS], middle[RANKS], out[RANKS];
    fake_reset();
    fake.flags = flags;
    fake.delay = 9;
    rig_open(&rig, RANKS, NULL);
    rig_dup(rig.world, RANKS, other);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_event_create(rig.world[r], &event[r]));
    for (int i = 0; i < 60; i++) {
        fake.seed = (uint64_t)i;
        for (int32_t r = 0; r < RANKS; r++) {
            in[r] = r + i;
            MUST(comm_allreduce(rig.world[r], &in[r], &middle[r], 1, COMM_I32, COMM_SUM, &q[r]));
            MUST(comm_event_record(event[r], rig.world[r]));
            MUST(comm_queue_wait_event(other[r], event[r]));
            MUST(comm_allreduce(other[r], &middle[r], &out[r], 1, COMM_I32, COMM_SUM, &last[r]));
            MUST(comm_queue_wait_request(rig.world[r], last[r]));
        }
        rig_wait_all(last, RANKS);
        EQUAL(out[0], 9 + 9 * i);
        MUST(comm_test(q[0]));
    }
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_sync(rig.world[r], COMM_FOREVER));
        MUST(comm_close(other[r], RIG_S));
        comm_event_free(event[r]);
    }
    CHECK(!(flags & NATIVE_STREAM) || fake.waits > 60);
    EQUAL(fake.order, 0);
    rig_close(&rig);
}

RIG_TEST(events_join_natives)
{
    chain_of_events(0);
    chain_of_events(NATIVE_STREAM);
}

/* All calls of a stream start inside the call, behind the waits before them. Setting a gate on the host releases them without another
 * library call. */
RIG_TEST(contract_8_1_a_stream_starts_inside_the_call)
{
    enum { MANY = 200 };
    struct rig rig;
    struct comm_info info = {.size = sizeof info};
    struct comm_event *gate[RANKS];
    struct comm_request q[RANKS];
    int32_t in[RANKS], out[RANKS];
    fake.flags = NATIVE_STREAM;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_describe(rig.world[0], &info));
    EQUAL(info.device_order, 1);
    for (int32_t r = 0; r < RANKS; r++) {
        MUST(comm_event_create(rig.world[r], &gate[r]));
        MUST(comm_event_reset(gate[r]));
        MUST(comm_queue_wait_event(rig.world[r], gate[r]));
        in[r] = 1;
        /* conflicting buffers, and more calls than a window: the engine does not track buffers of a stream */
        for (int i = 0; i < MANY; i++) {
            MUST(comm_allreduce(rig.world[r], COMM_IN_PLACE, &in[r], 1, COMM_I32, COMM_MAX, &q[r]));
            EQUAL(fake.started, (uint64_t)r * MANY + (uint64_t)i + 1);
        }
    }
    rig_progress_for(rig.world[0], 20 * RIG_MS);
    IS(comm_test(q[0]), COMM_PENDING);
    EQUAL(fake.reached, 0);
    in[1] = 7; /* read when the stream runs the operation, not at the call */
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_event_set(gate[r]));
    rig_wait_all(q, RANKS);
    EQUAL(in[0], 7);
    EQUAL(fake.reached, RANKS);
    (void)out;
    for (int32_t r = 0; r < RANKS; r++)
        comm_event_free(gate[r]);
    rig_close(&rig);
}

RIG_TEST(a_stream_whose_wait_cannot_end_well)
{
    struct rig rig;
    struct comm_event *gate;
    struct comm_request q;
    int32_t in = 1, out;
    fake.flags = NATIVE_STREAM;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = 30 * RIG_S));
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    fake.parks_not = true;
    IS(comm_queue_wait_event(rig.world[0], gate), COMM_ERR_UNSUPPORTED);
    CHECK(strstr(detail_of(rig.world[0]).text, "the stream of fake may not park"));
    fake.parks_not = false;
    MUST(comm_queue_wait_event(rig.world[0], gate));
    MUST(comm_allreduce(rig.world[0], &in, &out, 1, COMM_I32, COMM_SUM, &q));
    comm_event_free(gate); /* after that, no thread can set it */
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_ABANDONED);
    struct comm_error error;
    rig_fails_within(rig.world[1], COMM_ERR_ABANDONED, 2 * RIG_S, &error);
    rig_close(&rig);
}

/* ------------------------------------------------------------------------------------------------------------ sleeping */
/* Under a sanitizer a poll may take so long that it counts as copying, which keeps a sleeper awake. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { POLLS_ARE_SLOW = 1 };
#else
enum { POLLS_ARE_SLOW = 0 };
#endif

/* A native wakes no thread. While it has pending work, a sleeper polls after 50 us, and then less and less often, down to once per 1 ms.
 * Without pending work it never polls. */
RIG_TEST(contract_6_4_natives_are_polled_at_deadlines)
{
    struct rig rig;
    struct comm_event *gate;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    fake.stalls = true;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .options = "spin=0us,yield=0us,cpus=8"));
    MUST(comm_event_create(rig.world[0], &gate));
    MUST(comm_event_reset(gate));
    IS(comm_event_sync(gate, 100 * RIG_MS), COMM_PENDING);
    EQUAL(fake.looks, 0);
    issue_sums(rig.world, in, out, q);
    uint64_t before = fake.looks;
    int64_t start = rig_now();
    IS(comm_wait(q[0], 300 * RIG_MS), COMM_PENDING);
    uint64_t turns = (fake.looks - before) / RANKS, most = (uint64_t)((rig_now() - start) / RIG_MS) * 4 + 60;
    if (POLLS_ARE_SLOW)
        most = UINT64_MAX;
    if (turns < 10 || turns > most)
        rig_die(__FILE__, __LINE__, "%llu looks at each in 300 ms; expected 10 to %llu", (unsigned long long)turns,
                (unsigned long long)most);
    fake.stalls = false;
    rig_wait_all(q, RANKS);
    before = fake.looks;
    IS(comm_event_sync(gate, 100 * RIG_MS), COMM_PENDING);
    EQUAL(fake.looks, before);
    comm_event_free(gate);
    rig_close(&rig);
}

/* A stream copies by itself: a look that takes long has only asked the device, and the sleeper sleeps between two of them. */
RIG_TEST(a_slow_look_at_a_stream_is_no_progress)
{
    struct rig rig;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    fake.flags = NATIVE_STREAM;
    fake.stalls = true;
    fake.look_ns = 10000;
    rig_open(&rig, RANKS, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .options = "spin=0us,yield=0us,cpus=8"));
    issue_sums(rig.world, in, out, q);
    uint64_t before = fake.looks;
    int64_t start = rig_now();
    IS(comm_wait(q[0], 300 * RIG_MS), COMM_PENDING);
    uint64_t turns = (fake.looks - before) / RANKS, most = (uint64_t)((rig_now() - start) / RIG_MS) * 4 + 60;
    if (turns > most)
        rig_die(__FILE__, __LINE__, "%llu looks at each; expected no more than %llu", (unsigned long long)turns, (unsigned long long)most);
    fake.stalls = false;
    rig_wait_all(q, RANKS);
    rig_close(&rig);
}

/* Each look takes long, which counts as progress. So the thread that waits never sleeps, and it has the communicator nearly all the time.
 * The monitor does not get it, and leaves the deadline to that thread, which notices it after the look that it is in. Within the deadline
 * there are at most 200 looks, and the monitor wakes four times. */
RIG_TEST(a_deadline_while_each_look_takes_long)
{
    struct rig rig;
    int32_t in = 1, out;
    struct comm_request q;
    fake.stalls = true;
    fake.look_ns = 5 * RIG_MS;
    rig_open(&rig, 1, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .operation_timeout_ns = RIG_S));
    MUST(comm_allreduce(rig.world[0], &in, &out, 1, COMM_I32, COMM_SUM, &q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_TIMEOUT);
    CHECK(fake.looks < 390); /* the brief wait alone would be 400 */
    fake.stalls = false;
    rig_close(&rig);
}

static void *unstall(void *arg)
{
    (void)arg;
    rig_nap(100 * RIG_MS);
    fake.stalls = false;
    return NULL;
}

/* A loop that sleeps on the descriptor learns of a completion that rang no bell. */
RIG_TEST(contract_6_5_a_loop_hears_of_natives)
{
    struct rig rig;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    pthread_t thread;
    int fd, wakes = 0;
    fake.stalls = true;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_fd(rig.world[0], &fd));
    issue_sums(rig.world, in, out, q);
    EQUAL(pthread_create(&thread, NULL, unstall, NULL), 0);
    int64_t start = rig_now();
    for (;;) {
        while (comm_progress(rig.world[0]) == COMM_PENDING)
            continue;
        enum comm_result armed = comm_arm(rig.world[0]);
        if (comm_test(q[0]) != COMM_PENDING)
            break;
        CHECK(rig_now() - start < RIG_PATIENCE);
        if (armed == COMM_OK)
            wakes += poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 5000);
    }
    CHECK(rig_now() - start < 3 * RIG_S); /* not by the time-out of poll() */
    if ((wakes < 1 && !POLLS_ARE_SLOW) || wakes > 1000)
        rig_die(__FILE__, __LINE__, "%d wakes in 100 ms", wakes);
    pthread_join(thread, NULL);
    rig_wait_all(q, RANKS);
    rig_close(&rig);
}

/* NATIVE_CALLER: the monitor does not call the native, and there is no progress thread. */
RIG_TEST(only_the_programs_threads_enter)
{
    struct rig rig;
    int32_t in[RANKS], out[RANKS];
    struct comm_request q[RANKS];
    fake_program_thread();
    fake.flags = NATIVE_CALLER;
    fake.stalls = true;
    rig_open(&rig, RANKS, COMM_CONFIG(.options = "cpus=8", .operation_timeout_ns = RIG_S));
    for (int i = 0; i < 2; i++) {
        issue_sums(rig.world, in, out, q);
        rig_nap(20 * RIG_MS); /* the monitor runs several times meanwhile */
        fake.stalls = i == 1;
        if (i == 0) {
            rig_wait_all(q, RANKS);
            fake.stalls = true;
        }
    }
    rig_nap(RIG_S + 300 * RIG_MS); /* the monitor finds the deadline passed, and does not call the native */
    IS(comm_wait(q[0], RIG_PATIENCE), COMM_ERR_TIMEOUT);
    EQUAL(fake.strangers, 0);
    char text[256] = "";
    struct comm_communicator *more[1];
    IS(comm_open_local(COMM_CONFIG(.engine_of = rig.world[1], .progress = COMM_PROGRESS_THREAD, .log_level = COMM_LOG_ERROR,
                                   .error_text = text, .error_text_bytes = sizeof text),
                       1, NULL, more),
       COMM_ERR_CONFIG);
    CHECK(strstr(text, "progress=thread, but a library under this engine"));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_join_natives),
        cmocka_unit_test(contract_8_1_a_stream_starts_inside_the_call),
        cmocka_unit_test(a_stream_whose_wait_cannot_end_well),
        cmocka_unit_test(contract_6_4_natives_are_polled_at_deadlines),
        cmocka_unit_test(a_slow_look_at_a_stream_is_no_progress),
        cmocka_unit_test(a_deadline_while_each_look_takes_long),
        cmocka_unit_test(contract_6_5_a_loop_hears_of_natives),
        cmocka_unit_test(only_the_programs_threads_enter),
    };
    return cmocka_run_group_tests_name("engine_native_waits", tests, NULL, NULL);
}
