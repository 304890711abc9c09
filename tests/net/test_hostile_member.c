/*
 * An authenticated member that sends what no library sends: bytes for one place over two connections, notes with extreme values in each
 * field, more messages than it has credits for, endless requests. Rank 0 uses only public calls. Whatever it receives, it ends in order
 * with one cause, writes only where it may, and takes no more memory than for a few messages.
 */
#define _GNU_SOURCE
#include "net/member.h"
#include "proc/proc.h"

#include "failure/recover.h"

#include <commstream/collective.h>
#include <commstream/inspect.h>
#include <commstream/message.h>
#include <commstream/request.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VICTIM, HOSTILE, RANKS };
enum { LONG = 100000, TAG = 7, MADE = 300, MEGABYTE = 1 << 20 };
enum { NUMBER_PID = 0, NUMBER_GROWN = 1, NUMBER_REFUSED = 2 }; /* of a page */
enum { STAGE_READY = 1, STAGE_SAID = 2, STAGE_LOOKED = 3 };

typedef void hostile_fn(struct proc *proc, struct member *m, const void *arg);
struct play {
    void (*victim)(struct proc *proc, struct comm_communicator *world);
    hostile_fn *hostile;
    const void *arg;
    void (*before)(struct comm_communicator *world); /* the last that the hostile rank does by its library; NULL: nothing */
};

static void reach(struct proc *proc, int32_t rank, int64_t stage)
{
    atomic_store(&proc->page[rank].stage, stage);
}

static void barriers(struct comm_communicator *world, int count)
{
    for (int i = 0; i < count; i++) {
        struct comm_request q;
        MUST(comm_barrier(world, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
    }
}

static void rank_main(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    const struct play *play = proc->place;
    struct comm_communicator *world = NULL;
    char text[256] = "";

    (void)none;
    setenv("COMM_SECRET", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 1);
    setenv("COMM_TCP_SEAL", "no", 1);
    if (rank == HOSTILE)
        setenv("COMM_TCP_POLLER", "epoll", 1);
    if (comm_open(COMM_CONFIG(.backend = "tcp", .error_text = text, .error_text_bytes = sizeof text, .operation_timeout_ns = 10 * RIG_S),
                  &world) != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s", text);
    barriers(world, MADE);
    if (rank == VICTIM) {
        proc->page[rank].number[NUMBER_PID] = getpid();
        play->victim(proc, world);
        (void)comm_close(world, RIG_S);
        return;
    }
    struct member m;
    proc_await(proc, VICTIM, STAGE_READY);
    if (play->before)
        play->before(world);
    member_take(&m, world, VICTIM);
    play->hostile(proc, &m, play->arg);
    reach(proc, HOSTILE, STAGE_SAID);
    proc_await(proc, VICTIM, STAGE_LOOKED);
    _exit(0);
}

static void play(struct proc *proc, const struct play *how)
{
    struct play own = *how;

    *proc = (struct proc){.raw = true, .place = &own};
    proc_start(proc, RANKS, rank_main);
    proc_finish(proc, -1, 2 * RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ one message, two lanes */
/* The receive must fail: one connection delivered half of the message, and the other all of it. What comes after its end must not be
 * written anywhere. */
static void receives_long(struct proc *proc, struct comm_communicator *world)
{
    static unsigned char bytes[LONG];
    struct comm_request q;

    MUST(comm_recv(world, bytes, LONG, COMM_U8, HOSTILE, TAG, NULL, &q));
    reach(proc, VICTIM, STAGE_READY);
    proc_tell_failure(&proc->page[VICTIM], world, comm_wait(q, RIG_PATIENCE));
    unsigned char last = bytes[LONG - 1];
    proc_await(proc, HOSTILE, STAGE_SAID);
    rig_nap(200 * RIG_MS);
    EQUAL(bytes[LONG - 1], last);
    reach(proc, VICTIM, STAGE_LOOKED);
}

static void says_it_twice(struct proc *proc, struct member *m, const void *arg)
{
    static unsigned char bytes[LONG], length[8];
    struct frame f = {.kind = FRAME_ANNOUNCE, .key = wire_key_of(1, 0, 0), .tag = TAG, .bytes = sizeof length}, grant;

    (void)arg;
    base_put64(length, LONG);
    CHECK(member_say(m, TCP_LANE_SMALL, f, length));
    CHECK(member_hear(m, TCP_LANE_SMALL, FRAME_GRANT, &grant, NULL, 0));
    f = (struct frame){.kind = FRAME_DATA, .key = f.key, .bytes = LONG};
    memset(bytes, 'A', LONG);
    CHECK(member_begin(m, TCP_LANE_BULK, f, bytes, LONG - 1));
    memset(bytes, 'B', LONG);
    (void)member_say(m, TCP_LANE_SMALL, f, bytes);
    rig_nap(RIG_S); /* the other connection ends too */
    (void)member_finish(m, TCP_LANE_BULK, &f, "C", LONG - 1);
    proc->page[HOSTILE].number[NUMBER_REFUSED] = member_is_refused(m, TCP_LANE_SMALL);
}

RIG_TEST(one_message_by_two_connections)
{
    struct proc proc;

    play(&proc, &(struct play){receives_long, says_it_twice, NULL, NULL});
    EQUAL(proc.page[VICTIM].result, COMM_ERR_PEER);
    EQUAL(proc.page[HOSTILE].number[NUMBER_REFUSED], 1);
}

/* ------------------------------------------------------------------------------------------------------------ a stage */
static void waits_in_a_barrier(struct proc *proc, struct comm_communicator *world)
{
    struct comm_request q;

    MUST(comm_barrier(world, &q));
    reach(proc, VICTIM, STAGE_READY);
    proc_tell_failure(&proc->page[VICTIM], world, comm_wait(q, RIG_PATIENCE));
    reach(proc, VICTIM, STAGE_LOOKED);
}

/* It makes no call in the meantime, so its monitor reads what arrives. */
static void sleeps(struct proc *proc, struct comm_communicator *world)
{
    (void)world;
    reach(proc, VICTIM, STAGE_READY);
    proc_await(proc, HOSTILE, STAGE_SAID);
    reach(proc, VICTIM, STAGE_LOOKED);
}

/* A long exposure over the small lane, then more bytes than the stage holds: the next frame is not as long as the last. */
static void overruns_a_stage(struct proc *proc, struct member *m, const void *arg)
{
    static unsigned char bytes[TCP_AHEAD_BYTES];
    struct frame f = {.kind = FRAME_EXPOSE, .edge = WIRE_ONCE | WIRE_TO_ALL, .key = wire_key_of(MADE + 2, 0, 0), .bytes = sizeof bytes};
    pid_t victim = (pid_t)proc->page[VICTIM].number[NUMBER_PID];
    bool lives = member_say(m, TCP_LANE_SMALL, f, bytes);

    (void)arg;
    rig_nap(200 * RIG_MS);
    kill(victim, SIGSTOP);
    for (int i = 0; i < 2 * TCP_STAGE_BULK / FRAME_LINE && lives; i++)
        lives = member_say(m, TCP_LANE_SMALL, (struct frame){.kind = FRAME_RETIRED, .key = wire_key_of(1, 0, 0)}, "");
    kill(victim, SIGCONT);
    proc->page[HOSTILE].number[NUMBER_REFUSED] = member_is_refused(m, TCP_LANE_SMALL);
}

static void exposes_by_bulk(struct proc *proc, struct member *m, const void *arg)
{
    struct frame f = {.kind = FRAME_EXPOSE, .edge = WIRE_ONCE | WIRE_TO_ALL, .key = wire_key_of(MADE + 1, 0, 0), .bytes = 100};
    static const char bytes[100];

    (void)arg;
    CHECK(member_say(m, TCP_LANE_BULK, f, bytes));
    proc->page[HOSTILE].number[NUMBER_REFUSED] = member_is_refused(m, TCP_LANE_BULK);
}

RIG_TEST(exposures_by_the_wrong_connection)
{
    static hostile_fn *const ways[] = {overruns_a_stage, exposes_by_bulk};
    struct proc proc;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        rig_note("way %zu", i);
        play(&proc, &(struct play){sleeps, ways[i], NULL, NULL});
        EQUAL(proc.page[HOSTILE].number[NUMBER_REFUSED], 1);
    }
}

/* ------------------------------------------------------------------------------------------------------------ frames with extreme values
 */
/* The first fields of struct recovery_note. */
struct recovery_head {
    uint32_t instance, offered, accepted;
    int32_t could;
    uint32_t kind, decided;
    int32_t left;
};
_Static_assert(offsetof(struct recovery_head, left) == offsetof(struct recovery_note, left), "they begin alike");
struct said {
    const char *name;
    enum comm_result result; /* expected on the victim: CORRUPT from the engine, or PEER because the connection ended */
    struct frame frame;
    union {
        struct cause cause;
        struct wait_note fence;
        struct recovery_head recovery;
        unsigned char bytes[WIRE_NOTE_LONG_BYTES];
        uint32_t word[8];
    };
};
#define NOTE(sort, round, length)                                                                                                          \
    {                                                                                                                                      \
        .kind = FRAME_NOTE, .key = (uint64_t)1 << 32 | (round) << 8 | (sort), .bytes = (length)                                            \
    }
#define CAUSE(sort, round, ...) .result = COMM_ERR_CORRUPT, .frame = NOTE(sort, round, sizeof(struct cause)), .cause = {__VA_ARGS__}
#define FENCE(...) .result = COMM_ERR_CORRUPT, .frame = NOTE(NOTE_QUEUE_WAIT, 0, sizeof(struct wait_note)), .fence = {__VA_ARGS__}
enum { RECOVERY_BYTES = sizeof(struct recovery_note) + RECOVERY_SETS * sizeof(uint64_t) };
#define RECOVERY(...) .result = COMM_ERR_CORRUPT, .frame = NOTE(NOTE_RECOVERY, 0, RECOVERY_BYTES), .recovery = {__VA_ARGS__}

static const struct said said[] = {
    {"aborted by a rank far outside", CAUSE(NOTE_FAILED, 1, .rank = INT32_MAX, .result = COMM_ERR_ABORTED)},
    {"aborted by a rank just outside", CAUSE(NOTE_FAILED, 1, .rank = RANKS, .result = COMM_ERR_ABORTED)},
    {"aborted by rank -2", CAUSE(NOTE_FAILED, 1, .rank = -2, .result = COMM_ERR_ABORTED)},
    {"found by a rank far outside", CAUSE(NOTE_FAILED, 1, .rank = 1, .peer = INT32_MIN, .result = COMM_ERR_PEER)},
    {"silent for less than any time", CAUSE(NOTE_FAILED, 1, .rank = 1, .result = COMM_ERR_PEER, .code = INT32_MIN)},
    {"failed with OK", CAUSE(NOTE_FAILED, 1, .rank = 1, .result = COMM_OK)},
    {"failed with PENDING", CAUSE(NOTE_FAILED, 1, .rank = 1, .result = COMM_PENDING)},
    {"failed with no such result", CAUSE(NOTE_FAILED, 1, .rank = 1, .result = INT32_MIN)},
    {"failed for no such result", CAUSE(NOTE_FAILED, 1, .rank = 1, .result = COMM_ERR_DEPENDENCY, .point = 77)},
    {"failed in no collective", CAUSE(NOTE_FAILED, 1, .rank = 1, .result = COMM_ERR_MEMORY, .collective = UINT32_MAX)},
    {"failed in a call far ahead", CAUSE(NOTE_FAILED, 1, .rank = 1, .result = COMM_ERR_MEMORY, .number = UINT64_MAX)},
    {"neither proposed nor chosen", CAUSE(NOTE_FAILED, 2, .rank = 1, .result = COMM_ERR_MEMORY)},
    {"refused the last number of all", CAUSE(NOTE_REFUSED, 0, .rank = 1, .result = COMM_ERR_REFUSED, .code = -1, .number = UINT64_MAX)},
    {"refused no call", CAUSE(NOTE_REFUSED, 0, .rank = 1, .result = COMM_ERR_REFUSED, .code = -1, .number = 0)},
    {"refused for another rank", CAUSE(NOTE_REFUSED, 0, .rank = 0, .result = COMM_ERR_REFUSED, .code = -1, .number = 1)},
    {"refused for no reason", CAUSE(NOTE_REFUSED, 0, .rank = 1, .result = COMM_ERR_REFUSED, .code = 1000, .number = 1)},
    {"closed behind the last number of all", CAUSE(NOTE_CLOSED, 0, .rank = 1, .result = COMM_ERR_CLOSED, .number = UINT64_MAX)},
    {"closed for another rank", CAUSE(NOTE_CLOSED, 0, .rank = 0, .result = COMM_ERR_CLOSED, .number = 1)},
    {"a cause cut short", .result = COMM_ERR_CORRUPT, .frame = NOTE(NOTE_FAILED, 1, 8)},
    {"a queue wait of a rank far outside", FENCE(.of = 77, .rank = INT32_MAX, .round = 1)},
    {"a queue wait of a negative rank", FENCE(.of = 77, .rank = -1, .round = 1)},
    {"a queue wait for too many halves", FENCE(.of = 77, .rank = 1, .round = 1, .collective = WAIT_SEND, .halves = UINT8_MAX)},
    {"a queue wait of no kind", FENCE(.of = 77, .rank = 1, .round = 1, .collective = UINT8_MAX)},
    {"a note of recovery cut short", .result = COMM_ERR_CORRUPT, .frame = NOTE(NOTE_RECOVERY, 0, 8)},
    {"a note of recovery that is too long", .result = COMM_ERR_CORRUPT, .frame = NOTE(NOTE_RECOVERY, 0, WIRE_NOTE_LONG_BYTES)},
    {"a ballot of no rank", RECOVERY(.instance = 1, .kind = RECOVERY_AGREE, .accepted = UINT32_MAX)},
    {"an agreement of no kind", RECOVERY(.instance = 1, .kind = UINT32_MAX)},
    {"left with no such result", RECOVERY(.instance = 1, .kind = RECOVERY_AGREE, .left = 5)},
    {"could with no such result", RECOVERY(.instance = 1, .kind = RECOVERY_AGREE, .could = COMM_PENDING)},
    {"a note of no sort", .result = COMM_ERR_PEER, .frame = NOTE(WIRE_NOTE_SORTS, 0, 48)},
    {"a call of no collective", .result = COMM_ERR_PEER, .frame = {.kind = FRAME_CALLS, .bytes = 32}, .word = {1000, 0, 200}},
    {"a call refused for no such result", .result = COMM_ERR_PEER, .frame = {.kind = FRAME_CALLS, .bytes = 32},
     .word = {1000, 0, 5u << 24}},
    {"something passed on where all are connected", .result = COMM_ERR_PEER, .frame = {.kind = FRAME_PASS, .bytes = 64}},
    {"a message of no kind", .result = COMM_ERR_CORRUPT,
     .frame = {.kind = FRAME_EAGER, .key = (uint64_t)1 << 32 | 9 << 8, .tag = TAG, .bytes = 8}},
    {"a message of an edge", .result = COMM_ERR_CORRUPT,
     .frame = {.kind = FRAME_EAGER, .key = (uint64_t)1 << 32 | 3, .tag = TAG, .bytes = 8}},
    {"a message under any tag", .result = COMM_ERR_CORRUPT,
     .frame = {.kind = FRAME_EAGER, .key = (uint64_t)1 << 32, .tag = COMM_ANY_TAG, .bytes = 8}},
};

static void says_one(struct proc *proc, struct member *m, const void *arg)
{
    const struct said *s = arg;

    (void)proc;
    CHECK(member_say(m, TCP_LANE_SMALL, s->frame, s->bytes));
}

static void is_told(const struct said *s)
{
    struct proc proc;

    rig_note("%s", s->name);
    play(&proc, &(struct play){waits_in_a_barrier, says_one, s, NULL});
    if (proc.page[VICTIM].result != s->result || proc.page[VICTIM].rank != HOSTILE)
        rig_die(__FILE__, __LINE__, "%s: result %d of rank %d: %s", s->name, proc.page[VICTIM].result, proc.page[VICTIM].rank,
                proc.page[VICTIM].text);
}

RIG_TEST(notes_calls_and_messages_with_extreme_values)
{
    _Static_assert(sizeof said->bytes >= RECOVERY_BYTES, "a note of recovery fits");

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        is_told(&said[i]);
}

/* Names ranks that do not exist: the sets follow the note's fields. */
RIG_TEST(a_note_of_recovery_about_no_rank)
{
    for (uint32_t set = 0; set < RECOVERY_SETS; set++) {
        struct said s = {"a set of no ranks", RECOVERY(.instance = 1, .kind = RECOVERY_AGREE)};
        uint64_t ranks = UINT64_C(1) << 63;
        memcpy(s.bytes + sizeof(struct recovery_note) + set * sizeof ranks, &ranks, sizeof ranks);
        is_told(&s);
    }
}

/* ------------------------------------------------------------------------------------------------------------ floods */
static int64_t memory_of_process(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * 4096;
}

static void sleeps_and_grows(struct proc *proc, struct comm_communicator *world)
{
    int64_t before = memory_of_process();

    (void)world;
    reach(proc, VICTIM, STAGE_READY);
    proc_await(proc, HOSTILE, STAGE_SAID);
    proc->page[VICTIM].number[NUMBER_GROWN] = memory_of_process() - before;
    reach(proc, VICTIM, STAGE_LOOKED);
}

struct flood {
    const char *name;
    struct frame frame;
    int count;
    bool refused;
};
static const struct flood floods[] = {
    {"short messages without a credit", {.kind = FRAME_EAGER, .tag = TAG, .bytes = 8}, 200000, true},
    {"announcements without a credit", {.kind = FRAME_ANNOUNCE, .tag = TAG, .bytes = 8}, 200000, true},
    {"messages without room", {.kind = FRAME_EAGER, .tag = TAG, .bytes = TCP_EAGER_BYTES}, TCP_EAGER_ROOM / TCP_EAGER_BYTES + 1, true},
    {"a message that must be asked for", {.kind = FRAME_EAGER, .tag = TAG, .bytes = TCP_EAGER_BYTES + 1}, 1, true},
    {"questions", {.kind = FRAME_ASK}, 40000, false},
    {"wishes for room", {.kind = FRAME_WANT}, 40000, false},
};

static void says_many(struct proc *proc, struct member *m, const void *arg)
{
    static const unsigned char bytes[TCP_EAGER_BYTES + 1] = {1};
    const struct flood *flood = arg;
    bool lives = true;

    for (int i = 0; i < flood->count && lives; i++) {
        struct frame f = flood->frame;
        f.key = wire_key_of(1 + (uint32_t)i, 0, 0);
        lives = member_say(m, TCP_LANE_SMALL, f, bytes);
    }
    if (flood->refused) {
        proc->page[HOSTILE].number[NUMBER_REFUSED] = member_is_refused(m, TCP_LANE_SMALL);
        return;
    }
    rig_nap(RIG_S); /* all requests were received, and no reply was read */
}

RIG_TEST(floods_take_no_memory)
{
    struct proc proc;

    for (size_t i = 0; i < sizeof floods / sizeof *floods; i++) {
        rig_note("%s", floods[i].name);
        play(&proc, &(struct play){sleeps_and_grows, says_many, &floods[i], NULL});
        EQUAL(proc.page[HOSTILE].number[NUMBER_REFUSED], floods[i].refused);
        if (proc.page[VICTIM].number[NUMBER_GROWN] > 16 * MEGABYTE)
            rig_die(__FILE__, __LINE__, "%s: %lld bytes more", floods[i].name, (long long)proc.page[VICTIM].number[NUMBER_GROWN]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ a published call */
static void gather(struct comm_communicator *world, int32_t rank, struct comm_request *q)
{
    static const size_t counts[RANKS] = {1, 1};
    static int32_t in = 1, out[RANKS];

    MUST(comm_gather_v(world, &in, 1, rank == VICTIM ? out : NULL, counts, NULL, COMM_I32, VICTIM, q));
}

static void gathers_first(struct comm_communicator *world)
{
    struct comm_request q;

    gather(world, HOSTILE, &q);
    MUST(comm_wait(q, RIG_PATIENCE));
}

static void publish(struct member *m, const struct wire_call *call, uint32_t op, uint32_t root)
{
    struct frame f = {.kind = FRAME_CALLS, .bytes = 32};
    unsigned char bytes[32] = {0};

    base_put32(bytes, call->seq);
    base_put32(bytes + 4, call->fingerprint);
    bytes[8] = call->collective;
    bytes[9] = call->type;
    base_put32(bytes + 12, op);
    base_put32(bytes + 16, root);
    base_put32(bytes + 20, call->chain);
    CHECK(member_say(m, TCP_LANE_SMALL, f, bytes));
}

/* The calls that its library made, the last one with another length, and to a root that is no rank. */
static void publishes_no_root(struct proc *proc, struct member *m, const void *arg)
{
    uint32_t all = m->c->handle.caps.calls;

    (void)proc;
    for (uint32_t seq = MADE + 2 > all ? MADE + 2 - all : 1; seq <= MADE; seq++)
        publish(m, &m->c->handle.calls[seq & (all - 1)], 0, 0);
    EQUAL(m->c->handle.calls[(MADE + 1) & (all - 1)].collective, COLLECTIVE_GATHER_V);
    publish(m, &m->c->handle.calls[(MADE + 1) & (all - 1)], 1, *(const uint32_t *)arg);
}

/* Makes the same call when the false one has come; then its monitor compares both. */
static void gathers_later(struct proc *proc, struct comm_communicator *world)
{
    struct comm_request q;

    reach(proc, VICTIM, STAGE_READY);
    proc_await(proc, HOSTILE, STAGE_SAID);
    rig_nap(200 * RIG_MS);
    gather(world, VICTIM, &q);
    (void)!comm_wait(q, RIG_PATIENCE);
    enum comm_result r = comm_barrier(world, &q);
    proc_tell_failure(&proc->page[VICTIM], world, r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r);
    reach(proc, VICTIM, STAGE_LOOKED);
}

RIG_TEST(a_published_call_to_no_root)
{
    static const uint32_t roots[] = {INT32_MAX, RANKS, (uint32_t)-1, (uint32_t)INT32_MIN};
    struct proc proc;

    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        rig_note("root %d", (int32_t)roots[i]);
        play(&proc, &(struct play){gathers_later, publishes_no_root, &roots[i], gathers_first});
        EQUAL(proc.page[VICTIM].result, COMM_ERR_MISMATCH);
        EQUAL(proc.page[VICTIM].rank, VICTIM); /* the root */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message_by_two_connections),
        cmocka_unit_test(exposures_by_the_wrong_connection),
        cmocka_unit_test(notes_calls_and_messages_with_extreme_values),
        cmocka_unit_test(a_note_of_recovery_about_no_rank),
        cmocka_unit_test(floods_take_no_memory),
        cmocka_unit_test(a_published_call_to_no_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
