/* Ranks that meet, with a native beside their wire: none of them waits in the native for one that could not connect. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "engine/native_fake.h"

enum { RANKS = 3, STORE_BYTES = 4096 };

struct meeting {
    pthread_barrier_t barrier;
    unsigned char said[RANKS][STORE_BYTES];
    _Atomic int opened, failed;
    bool fails; /* one of the ranks does */
};
struct member {
    struct meeting *meeting;
    int32_t rank;
};

static int exchange(void *arg, const void *in, size_t bytes, void *out)
{
    struct member *m = arg;
    CHECK(bytes <= STORE_BYTES);
    memcpy(m->meeting->said[m->rank], in, bytes);
    pthread_barrier_wait(&m->meeting->barrier);
    for (size_t r = 0; r < RANKS; r++)
        memcpy((char *)out + r * bytes, m->meeting->said[r], bytes);
    pthread_barrier_wait(&m->meeting->barrier);
    return 0;
}

static void open_rank(void *arg, int32_t rank)
{
    struct member me = {arg, rank};
    struct comm_communicator *world = NULL;
    char text[256] = "";
    enum comm_result r = comm_open(COMM_CONFIG(.backend = "shm", .rank = rank, .ranks = RANKS, .exchange = exchange, .exchange_arg = &me,
                                               .progress = COMM_PROGRESS_CALLER, .log_level = COMM_LOG_OFF, .error_text = text,
                                               .error_text_bytes = sizeof text),
                                   &world);
    if (r != COMM_OK && !me.meeting->fails)
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    atomic_fetch_add(r == COMM_OK ? &me.meeting->opened : &me.meeting->failed, 1);
    if (r == COMM_OK)
        MUST(comm_barrier(world, NULL));
    if (r == COMM_OK)
        MUST(comm_close(world, RIG_PATIENCE));
}

static void meet(bool fails)
{
    static struct meeting m;
    memset(&m, 0, sizeof m);
    m.fails = fails;
    fake.on_shm = true;
    EQUAL(pthread_barrier_init(&m.barrier, NULL, RANKS), 0);
    rig_threads(RANKS, open_rank, &m);
    EQUAL(m.opened, fails ? 0 : RANKS);
    EQUAL(m.failed, fails ? RANKS : 0);
    EQUAL(fake.channels, 0);
    pthread_barrier_destroy(&m.barrier);
}

RIG_TEST(ranks_that_meet_have_the_native)
{
    meet(false);
    CHECK(atomic_load(&fake.calls[FAKE_JOINED]) >= RANKS && atomic_load(&fake.started) > 0);
}

RIG_TEST(no_rank_waits_in_the_native_for_one_that_could_not_connect)
{
    fake.fails = FAKE_CONNECT;
    fake.fails_at = 1;
    meet(true);
    EQUAL(atomic_load(&fake.calls[FAKE_JOINED]), 0);
}

/* A rank that knows before the meeting why it cannot open says so there. */
RIG_TEST(a_rank_that_cannot_have_the_native)
{
    fake.fails = FAKE_PROBE;
    fake.fails_at = 1;
    meet(true);
    EQUAL(atomic_load(&fake.calls[FAKE_OPEN]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_meet_have_the_native),
        cmocka_unit_test(no_rank_waits_in_the_native_for_one_that_could_not_connect),
        cmocka_unit_test(a_rank_that_cannot_have_the_native),
    };
    return cmocka_run_group_tests_name("engine_native_meeting", tests, NULL, NULL);
}
