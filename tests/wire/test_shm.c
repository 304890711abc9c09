/* Behaviour that only processes can show: deaths, bells, lack of memory, and that nothing is left behind.
 * test_shm_landing.c has the bytes that land by themselves, test_shm_slots.c the slots of messages. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shm/hello.h"
#include "shm/segment.h"
#include "channel/shmchan.h"
#include "selection.h"
#include "wire/test_shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Counts names with this beginning: other programs use /dev/shm meanwhile. */
static int count_entries(const char *path, const char *beginning)
{
    int n = 0;
    DIR *dir = opendir(path);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        n += strncmp(entry->d_name, beginning, strlen(beginning)) == 0;
    if (dir)
        closedir(dir);
    return n;
}

void shm_processes(int32_t ranks, int32_t variant, scenario_fn *fn, int expected_killed)
{
    int status[RANKS_MAX] = {0};
    world_processes("shm", ranks, NULL, variant, fn, status);
    for (int32_t i = 0; i < ranks; i++) {
        if (i == expected_killed)
            assert_true(WIFSIGNALED(status[i]) && WTERMSIG(status[i]) == SIGKILL);
        else
            assert_int_equal(status[i], 0);
    }
}

/* Rank 1 is killed. The others sleep on their bells and are woken within a second. Rank 1's lines can still be read. */
static void survive(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    if (r->rank == 1) {
        uint16_t peers[] = {0, 2};
        struct wire_span span = {"last words", 10};
        struct wire_expose e = {
            .key = wire_key_of(1, 0, 0), .edge = WIRE_ONCE | WIRE_TO_ALL, .peers = peers, .npeers = 2, .nspans = 1, .spans = &span};
        CHECK(rank_expose(r, &e) == WIRE_DONE);
        atomic_store(&r->shared->word[1], (uint64_t)env->now(env));
        kill(getpid(), SIGKILL);
    }
    int64_t end = env->now(env) + INT64_C(5000000000), deadline = end;
    struct wire_event event[4];
    uint32_t n;
    while (!(n = r->wire_class->poll(r->wire, event, 4))) {
        CHECK(env->now(env) < end);
        r->wire_class->arm(r->wire, true, &deadline);
        env->bell_wait(env, &r->bell, deadline);
        r->wire_class->arm(r->wire, false, NULL);
        env->bell_clear(env, &r->bell);
    }
    int64_t late = env->now(env) - (int64_t)atomic_load(&r->shared->word[1]);
    CHECK(n == 1 && event[0].kind == WIRE_EVENT_DOWN && event[0].peer == 1 && event[0].result == COMM_ERR_PEER);
    CHECK(late < 1000000000);
    CHECK(r->wire_class->poll(r->wire, event, 4) == 0); /* reported once */
    char land[10];
    struct wire_look l = {.key = wire_key_of(1, 0, 0), .edge = WIRE_ONCE | WIRE_TO_ALL, .peer = 1, .land = land, .bytes = 10};
    CHECK(r->ch->class->view(r->ch, &l) == WIRE_DONE && !memcmp(land, "last words", 10));
    atomic_fetch_add(&r->shared->word[2], 1);
    while (atomic_load(&r->shared->word[2]) < 2) /* otherwise the first rank to end would be a second death */
        env->relax(env, true);
}

static void killed_by_pidfd(void **state)
{
    (void)state;
    shm_processes(3, 0, survive, 1);
}
static void killed_by_socket(void **state)
{
    (void)state;
    setenv("COMM_SHM_DEATH", "socket", 1);
    shm_processes(3, 0, survive, 1);
    unsetenv("COMM_SHM_DEATH");
}

/* A peer whose memory contains what a correct peer never writes stops its reader there, before the reader copies
 * anything by it. */
enum { FORGED_SLOT, FORGED_EMPTY, FORGED_END, FORGED_KIND, FORGED_INLINE, FORGED_EAGER, FORGED_EARLY, FORGED_EARLY_SLOT, FORGERIES };

static void forge(struct shmchan_channel *c, uint32_t seq, int32_t how)
{
    struct shmchan_line *line = (struct shmchan_line *)(void *)(c->peer[1].out_pair + 1) + (seq & (c->shape.window - 1));

    if (how == FORGED_SLOT || how == FORGED_EMPTY || how == FORGED_EARLY_SLOT)
        line->of.message.eager = c->shape.eager_slots * SHMCHAN_EAGER_BYTES;
    if (how == FORGED_EMPTY)
        line->of.message.bytes = line->bytes = 0;
    if (how == FORGED_END)
        line->of.message.eager = SHMCHAN_EAGER_BYTES - 64;
    if (how == FORGED_KIND || how == FORGED_INLINE)
        line->kind = how == FORGED_KIND ? SHMCHAN_KIND_PLACE : SHMCHAN_KIND_INLINE;
    if (how == FORGED_EARLY || how == FORGED_EARLY_SLOT)
        line->kind = SHMCHAN_KIND_ANNOUNCED;
    line->of.message.bytes -= how == FORGED_EARLY;
    if (how == FORGED_EAGER)
        line->of.message.bytes = SHMCHAN_EAGER_BYTES + 1;
}

static void believes_nothing(struct rank *r)
{
    struct wire_channel *ch = r->ch;

    if (r->rank == 0) {
        static char bytes[1000];
        uint16_t peer = 1;
        struct wire_span span = {bytes, sizeof bytes};
        struct wire_expose e = {
            .key = wire_key_of(1, 0, 0), .flags = WIRE_MESSAGE, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span};
        CHECK(ch->class->expose(ch, &e) == WIRE_DONE);
        forge(shmchan_of(ch), 1, r->variant);
        rank_meet(r);
        _exit(0);
    }
    signal(SIGILL, SIG_DFL); /* the default handler: cmocka's would continue with the next test */
    rank_meet(r);
    struct wire_event event[4];
    char land[SHMCHAN_EAGER_BYTES + 1];
    struct wire_look look = {.key = wire_key_of(1, 0, 0), .flags = WIRE_MESSAGE, .land = land, .bytes = sizeof land};
    while (!ch->class->advance(ch, event, 4)) /* until the message has been sent */
        ;
    look.bytes = event[0].bytes < sizeof land ? event[0].bytes : sizeof land;
    (void)ch->class->view(ch, &look);
    _exit(0);
}

static void forged_messages(void **state)
{
    (void)state;
    for (int how = 0; how < FORGERIES; how++) {
        int status[RANKS_MAX] = {0};
        world_processes("shm", 2, NULL, how, believes_nothing, status);
        assert_int_equal(status[0], 0);
        if (!WIFSIGNALED(status[1]) || (WTERMSIG(status[1]) != SIGILL && WTERMSIG(status[1]) != SIGTRAP))
            fail_msg("forgery %d: status %x", how, (unsigned)status[1]);
    }
}

void shm_await_close(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    int64_t end = env->now(env) + INT64_C(5000000000);
    struct wire_event event[4];
    while (!r->wire_class->poll(r->wire, event, 4)) {
        CHECK(env->now(env) < end);
        env->bell_wait(env, &r->bell, end);
    }
    CHECK(event[0].peer == 1 && event[0].result == COMM_ERR_CLOSED);
}

/* A rank that closes regularly and ends is not reported as dead. */
static void closes_first(struct rank *r)
{
    rank_meet(r);
    if (r->rank == 0)
        shm_await_close(r);
}
static void closed_is_not_dead(void **state)
{
    (void)state;
    shm_processes(2, 0, closes_first, -1);
}

/* Each rank sleeps until the other's line arrives, hundreds of times: a lost wake-up would be a timeout. */
static void sleep_and_wake(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    uint16_t peer = (uint16_t)(1 - r->rank);
    for (uint32_t seq = 1; seq <= 500; seq++) {
        struct wire_view view;
        struct wire_span span = {&seq, 4};
        struct wire_expose e = {
            .key = wire_key_of(seq, 0, 0), .edge = WIRE_ONCE | WIRE_TO_ALL, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span};
        struct wire_look l = {.key = e.key, .edge = e.edge, .peer = peer, .bytes = 4, .view = &view, .cookie = 1};
        struct wire_event event[4];
        if (seq % 2 == (uint32_t)r->rank)
            CHECK(rank_expose(r, &e) == WIRE_DONE);
        r->ch->class->flush(r->ch);
        int32_t result = r->ch->class->view(r->ch, &l);
        if (seq % 2 != (uint32_t)r->rank && result == WIRE_PENDING) {
            int64_t end = env->now(env) + INT64_C(5000000000), deadline = end;
            while (!r->ch->class->advance(r->ch, event, 4)) {
                CHECK(env->now(env) < end);
                r->wire_class->arm(r->wire, true, &deadline);
                if (r->ch->class->advance(r->ch, event, 4)) {
                    r->wire_class->arm(r->wire, false, NULL);
                    break;
                }
                env->bell_wait(env, &r->bell, end);
                r->wire_class->arm(r->wire, false, NULL);
                env->bell_clear(env, &r->bell);
            }
            result = WIRE_DONE;
        }
        if (seq % 2 != (uint32_t)r->rank)
            CHECK(rank_expose(r, &e) == WIRE_DONE);
        r->ch->class->flush(r->ch);
        if (result == WIRE_PENDING)
            CHECK(rank_await(r, 1) == WIRE_DONE);
        CHECK(!memcmp(view.at, &seq, 4));
        r->ch->class->release(r->ch, seq, NULL);
    }
    rank_meet(r);
}
static void bells(void **state)
{
    (void)state;
    shm_processes(2, 0, sleep_and_wake, -1);
}

/* A receiver that discards long messages has no room to grant another one. The sender serves the grants, without a byte, and wakes it. */
static void discards_many(struct rank *r)
{
    enum { LENGTH = SHMCHAN_EAGER_BYTES + 1, COUNT = SHMCHAN_GRANTS + 1 };
    const struct comm_env *env = wire_default_env();
    static char bytes[LENGTH];
    struct wire_channel *ch = r->ch;
    struct wire_event event[COUNT];
    uint16_t peer = 1;
    struct wire_span span = {bytes, LENGTH};

    for (uint32_t seq = 1; r->rank == 0 && seq <= COUNT; seq++) {
        struct wire_expose e = {
            .key = wire_key_of(seq, 0, 0), .flags = WIRE_MESSAGE, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span};
        CHECK(ch->class->expose(ch, &e) == WIRE_PENDING);
    }
    ch->class->flush(ch);
    rank_meet(r);
    if (r->rank == 1) {
        CHECK(ch->class->advance(ch, event, COUNT) == COUNT);
        struct wire_look look = {.flags = WIRE_MESSAGE | WIRE_DISCARD};
        for (uint32_t seq = 1; seq <= COUNT; seq++) {
            look.key = wire_key_of(seq, 0, 0);
            CHECK(ch->class->view(ch, &look) == (seq < COUNT ? WIRE_DONE : WIRE_AGAIN));
        }
        ch->class->flush(ch);
        int64_t end = env->now(env) + INT64_C(5000000000), deadline = end;
        r->wire_class->arm(r->wire, true, &deadline);
        atomic_store(&r->shared->word[0], 1);
        env->bell_wait(env, &r->bell, end);
        r->wire_class->arm(r->wire, false, NULL);
        CHECK(env->now(env) < end);
        CHECK(ch->class->view(ch, &look) == WIRE_DONE);
        ch->class->flush(ch);
    } else {
        while (!atomic_load(&r->shared->word[0]))
            env->relax(env, true);
        CHECK(ch->class->advance(ch, event, COUNT) == COUNT - 1);
        ch->class->flush(ch);
    }
    rank_meet(r);
}
static void served_without_a_byte(void **state)
{
    (void)state;
    shm_processes(2, 0, discards_many, -1);
}

/* A segment without room is an error of the call that needs it; others continue. */
static void run_out(struct rank *r)
{
    uint16_t peer = (uint16_t)(1 - r->rank);
    static char data[100];
    struct wire_span span = {data, 8};
    struct wire_expose e = {
        .key = wire_key_of(1, 0, 0), .edge = WIRE_ONCE | WIRE_TO_ALL, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span};
    CHECK(rank_expose(r, &e) == WIRE_DONE);
    span.bytes = 100;
    e.key = wire_key_of(2, 0, 0);
    CHECK(r->ch->class->expose(r->ch, &e) == WIRE_FAILED);
    e.edge = 0;
    CHECK(r->ch->class->expose(r->ch, &e) == WIRE_FAILED);
    struct wire_team team = {.id = 99, .rank = r->rank, .size = r->size, .world = r->world};
    struct wire_limits limits = {.window = 1024, .once_edges = 16};
    struct wire_channel *ch = NULL;
    unsigned char offer[WIRE_OFFER_BYTES];
    CHECK(r->wire_class->join(r->wire, &team, &limits, NULL, offer, &ch) == COMM_ERR_MEMORY && !ch);
    limits.window = 48;
    CHECK(r->wire_class->join(r->wire, &team, &limits, NULL, offer, &ch) == COMM_ERR_CONFIG && !ch);
    rank_meet(r);
}
static void memory_runs_out(void **state)
{
    (void)state;
    setenv("COMM_SHM_SEGMENT_BYTES", "131072", 1);
    shm_processes(2, 0, run_out, -1);
    unsetenv("COMM_SHM_SEGMENT_BYTES");
}

static void segment_is_sealed(void **state)
{
    (void)state;
    struct shm_segment s, other;
    const char *what = "";
    size_t a, b;
    assert_int_equal(shm_segment_create(&s, 1 << 20, 0, &what), 0);
    assert_int_equal(ftruncate(s.fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(s.fd, 2 << 20), -1);
    assert_true(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(shm_segment_take(&s, 100, 128, &a), 0);
    assert_int_equal(shm_segment_take(&s, 600000, 4096, &b), 0);
    assert_true(b % 4096 == 0 && b >= a + 100 && s.committed >= b + 600000);
    assert_int_equal(shm_segment_take(&s, 600000, 128, &b), ENOMEM);
    assert_int_equal(shm_segment_take(&s, SIZE_MAX - 64, 128, &b), ENOMEM);
    s.at[b] = 42;
    assert_int_equal(shm_segment_attach(&other, dup(s.fd), 2 << 20, 1, &what), EPROTO);                /* not as long as announced */
    assert_int_equal(shm_segment_attach(&other, memfd_create("x", MFD_CLOEXEC), 0, 1, &what), EPROTO); /* not sealed */
    assert_int_equal(shm_segment_attach(&other, dup(s.fd), 1 << 20, 1, &what), 0);
    assert_int_equal(other.at[b], 42);
    shm_segment_close(&other);
    shm_segment_close(&s);
}

static void differences_are_named(void **state)
{
    (void)state;
    struct shm_hello all[3];
    char text[200];
    for (int i = 0; i < 3; i++)
        shm_hello_fill(&all[i], wire_default_env(), 65536);
    assert_int_equal(shm_hello_check(all, 3, text, sizeof text), COMM_OK);
    all[2].float_mode ^= 1;
    assert_int_equal(shm_hello_check(all, 3, text, sizeof text), COMM_ERR_CONFIG);
    assert_non_null(strstr(text, "rank 2"));
    assert_non_null(strstr(text, "floating-point"));
    all[1].host_id ^= 1;
    assert_int_equal(shm_hello_check(all, 3, text, sizeof text), COMM_ERR_CONFIG);
    assert_non_null(strstr(text, "rank 1"));
    assert_non_null(strstr(text, "host"));
    all[2].result = COMM_ERR_MEMORY;
    memcpy(all[2].text, "no pages", sizeof "no pages");
    assert_int_equal(shm_hello_check(all, 3, text, sizeof text), COMM_ERR_MEMORY);
    assert_string_equal(text, "rank 2: no pages");
}

static void nothing_is_left(void **state)
{
    (void)state;
    int files = count_entries("/dev/shm", "comm"), fds = count_entries("/proc/self/fd", "");
    for (int turn = 0; turn < 3; turn++)
        world_threads("shm", 3, NULL, 50, scenario_once);
    assert_int_equal(count_entries("/proc/self/fd", ""), fds);
    shm_processes(3, 0, survive, 1);
    assert_int_equal(count_entries("/dev/shm", "comm"), files);
    assert_int_equal(count_entries("/proc/self/fd", ""), fds);
}

/* The numbers of a pair's messages begin again at 1 after 2^32 of them. */
static void number_wraps(struct rank *r)
{
    enum { COUNT = 200 };
    uint16_t peer = (uint16_t)(1 - r->rank);
    struct shmchan_peer *p = &shmchan_of(r->ch)->peer[peer];
    uint32_t out = UINT32_MAX - COUNT / 2, in = out;
    p->out_last = p->out_consumed = shmchan_of(r->ch)->heard[peer].announced = out;
    atomic_store(&shmchan_of(r->ch)->inbox[peer].announced, out);
    rank_meet(r);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t value = i;
        struct wire_span span = {&value, sizeof value};
        struct wire_event event;
        out = wire_message_after(out);
        in = wire_message_after(in);
        struct wire_expose e = {
            .key = wire_key_of(out, 0, 0), .flags = WIRE_MESSAGE, .peers = &peer, .npeers = 1, .nspans = 1, .spans = &span};
        CHECK(rank_expose(r, &e) == WIRE_DONE);
        CHECK(rank_announced(r, WIRE_MESSAGE, &event) && event.key == wire_key_of(in, 0, 0));
        struct wire_look l = {.key = event.key, .flags = WIRE_MESSAGE, .peer = peer, .land = &value, .bytes = sizeof value};
        value = UINT32_MAX;
        CHECK(rank_look(r, &l) == WIRE_DONE && value == i);
    }
    CHECK(out == COUNT - COUNT / 2);
    rank_meet(r);
}
static void message_numbers_wrap(void **state)
{
    (void)state;
    shm_processes(2, 0, number_wraps, -1);
}

/* 8 bytes there and back, spinning: the lower limit of every small operation. Printed, never checked, because the
 * machine is shared. */
static void ping(struct rank *r)
{
    const struct comm_env *env = wire_default_env();
    uint16_t peer = (uint16_t)(1 - r->rank);
    uint32_t turns = (uint32_t)r->variant;
    int64_t best = INT64_MAX, start = env->now(env);
    for (uint32_t seq = 1; seq <= turns; seq++) {
        uint64_t value = seq;
        struct wire_view view;
        struct wire_span span = {&value, 8};
        struct wire_expose e = {.key = wire_key_of(seq, 0, 0),
                                .fingerprint = 9,
                                .edge = WIRE_ONCE | WIRE_TO_ALL,
                                .peers = &peer,
                                .npeers = 1,
                                .nspans = 1,
                                .spans = &span};
        struct wire_look l = {.key = e.key, .fingerprint = 9, .edge = e.edge, .peer = peer, .bytes = 8, .view = &view};
        while (r->ch->class->expose(r->ch, &e) == WIRE_AGAIN)
            ;
        r->ch->class->flush(r->ch);
        struct wire_event event[1];
        if (r->ch->class->view(r->ch, &l) == WIRE_PENDING)
            for (uint32_t spins = 0; !r->ch->class->advance(r->ch, event, 1);)
                env->relax(env, ++spins % 256 == 0);
        CHECK(*(const uint64_t *)view.at == seq);
        r->ch->class->release(r->ch, seq, NULL);
        if (seq % 1000 == 0) {
            int64_t now = env->now(env);
            best = now - start < best ? now - start : best;
            start = now;
        }
    }
    if (r->rank == 0)
        fprintf(stderr, "  8 bytes exchanged: %lld ns (best thousand)\n", (long long)(best / 1000));
    rank_meet(r);
}
static void small_exchange(void **state)
{
    (void)state;
    shm_processes(2, (int)selected(20000, 20000, 2000), ping, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_land_by_themselves),
        cmocka_unit_test(contract_4_3_a_late_store_lands_nowhere),
        cmocka_unit_test(contract_4_3_a_late_reader_reads_what_was_there),
        cmocka_unit_test(readers_write_where_it_gains),
        cmocka_unit_test(results_answer_in_place),
        cmocka_unit_test(segment_is_sealed),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(killed_by_pidfd),
        cmocka_unit_test(killed_by_socket),
        cmocka_unit_test(forged_messages),
        cmocka_unit_test(short_messages_share_slots),
        cmocka_unit_test(a_slot_is_filled_to_its_end),
        cmocka_unit_test(served_without_a_byte),
        cmocka_unit_test(closed_is_not_dead),
        cmocka_unit_test(bells),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(message_numbers_wrap),
        cmocka_unit_test(small_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
