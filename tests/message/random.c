/* Thousands of random programs of sends, receives, wildcards and cancels against the plainest matching there is: two arrays per rank,
 * searched from the oldest. Every finished operation is checked for its partner, its bytes and its status; every one that should not have
 * finished, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"

enum { OPS_MAX = 400, BYTES_MAX = 96, TAGS = 3, PROGRAMS = 20000 };

struct op {
    int32_t rank, peer;
    uint32_t tag;
    size_t bytes;
    int32_t partner; /* the op matched with; -1: none */
    bool is_send, cancelled, finished;
    enum comm_result result;
    struct comm_status status;
    unsigned char buf[BYTES_MAX + 8];
};
struct list {
    int32_t at[OPS_MAX];
    uint32_t count;
};
struct oracle {
    struct fake_world world;
    struct op op[OPS_MAX];
    int32_t ops;
    struct list posted[FAKE_RANKS_MAX], arrived[FAKE_RANKS_MAX];
    struct list sent[FAKE_RANKS_MAX][FAKE_RANKS_MAX];
};
static struct oracle oracle;

static unsigned char pattern(int32_t op, size_t i)
{
    return (unsigned char)((size_t)op * 31 + i * 7 + 1);
}

static void list_drop(struct list *list, uint32_t i)
{
    memmove(&list->at[i], &list->at[i + 1], (--list->count - i) * sizeof list->at[0]);
}

static bool takes(const struct op *receive, const struct op *send)
{
    return (receive->peer == COMM_ANY_PEER || receive->peer == send->rank) && (receive->tag == COMM_ANY_TAG || receive->tag == send->tag);
}

static void oracle_arrive(int32_t rank, int32_t send)
{
    struct list *posted = &oracle.posted[rank];
    for (uint32_t i = 0; i < posted->count; i++) {
        if (takes(&oracle.op[posted->at[i]], &oracle.op[send])) {
            oracle.op[posted->at[i]].partner = send;
            oracle.op[send].partner = posted->at[i];
            list_drop(posted, i);
            return;
        }
    }
    oracle.arrived[rank].at[oracle.arrived[rank].count++] = send;
}

static void oracle_receive(int32_t receive)
{
    struct list *arrived = &oracle.arrived[oracle.op[receive].rank];
    for (uint32_t i = 0; i < arrived->count; i++) {
        if (takes(&oracle.op[receive], &oracle.op[arrived->at[i]])) {
            oracle.op[receive].partner = arrived->at[i];
            oracle.op[arrived->at[i]].partner = receive;
            list_drop(arrived, i);
            return;
        }
    }
    struct list *posted = &oracle.posted[oracle.op[receive].rank];
    posted->at[posted->count++] = receive;
}

static void on_arrival(void *arg, int32_t rank, const struct fake_message *message)
{
    (void)arg;
    oracle_arrive(rank, oracle.sent[message->from][rank].at[wire_key_seq(message->key) - 1]);
}

static void check_receive(const struct op *receive)
{
    if (receive->result == COMM_ERR_CANCELLED) {
        assert_true(receive->cancelled);
        return;
    }
    assert_true(receive->partner >= 0 && !receive->cancelled);
    const struct op *send = &oracle.op[receive->partner];
    bool fits = send->bytes <= receive->bytes;
    assert_int_equal(receive->result, fits ? COMM_OK : COMM_ERR_TRUNCATED);
    assert_int_equal(receive->status.peer, send->rank);
    assert_int_equal(receive->status.tag, send->tag);
    assert_int_equal(receive->status.bytes, send->bytes);
    for (size_t i = 0; i < sizeof receive->buf; i++)
        assert_int_equal(receive->buf[i], fits && i < send->bytes ? pattern(receive->partner, i) : 0xee);
}

static void ended(int32_t r, const struct message_finished *out, enum comm_result failed)
{
    struct op *op = &oracle.op[out->slot];

    assert_true(op->rank == r && !op->finished);
    op->finished = true;
    op->result = out->result;
    if (op->result == failed)
        return;
    if (!op->is_send)
        check_receive(op);
    else
        assert_true(op->result == COMM_OK && (op->peer != r || op->partner >= 0));
    if (op->is_send)
        memset(op->buf, 0xdd, sizeof op->buf); /* a finished send's buffer may be reused */
}

static void take_finished(enum comm_result failed)
{
    for (int32_t r = 0; r < oracle.world.ranks; r++) {
        struct message_finished out[3];
        uint32_t count;
        while ((count = message_take_finished(oracle.world.room[r], out, 3)) > 0)
            for (uint32_t i = 0; i < count; i++)
                ended(r, &out[i], failed);
    }
}

static uint64_t accepted;
static void on_accepted(int32_t rank, const struct message_finished *done)
{
    assert_int_equal(done->result, COMM_OK);
    ended(rank, done, COMM_OK + 99);
    accepted++;
}

static int32_t pick_peer(int32_t rank, bool is_send)
{
    struct fake_world *world = &oracle.world;
    if (!is_send && fake_random(world, 4) == 0)
        return COMM_ANY_PEER;
    return fake_random(world, 8) == 0 ? rank : (int32_t)fake_random(world, (uint32_t)world->ranks);
}

static void post_one(void)
{
    struct fake_world *world = &oracle.world;
    int32_t index = oracle.ops++;
    struct op *op = &oracle.op[index];
    *op = (struct op){.partner = -1, .is_send = fake_random(world, 2)};
    op->rank = (int32_t)fake_random(world, (uint32_t)world->ranks);
    op->peer = pick_peer(op->rank, op->is_send);
    op->tag = !op->is_send && fake_random(world, 4) == 0 ? COMM_ANY_TAG : fake_random(world, TAGS);
    op->bytes = fake_random(world, 4) == 0 ? 0 : fake_random(world, BYTES_MAX);
    if (!op->is_send && fake_random(world, 3))
        op->bytes = BYTES_MAX;
    memset(op->buf, 0xee, sizeof op->buf);
    for (size_t i = 0; op->is_send && i < op->bytes; i++)
        op->buf[i] = pattern(index, i);
    struct message_call call = {
        .buf = op->bytes ? op->buf : NULL,
        .bytes = op->bytes,
        .peer = op->peer,
        .tag = op->tag,
        .status = op->is_send ? NULL : &op->status,
        .slot = (uint32_t)index,
        .is_send = op->is_send,
    };
    if (op->is_send && op->peer != op->rank)
        oracle.sent[op->rank][op->peer].at[oracle.sent[op->rank][op->peer].count++] = index;
    else if (op->is_send)
        oracle_arrive(op->rank, index);
    else
        oracle_receive(index);
    if (op->is_send && fake_random(world, 2) && message_send_whole(world->room[op->rank], &call)) {
        assert_true(op->peer != op->rank && world->channel[op->rank].base.class->send);
        op->finished = true;
        op->result = COMM_OK;
        memset(op->buf, 0xdd, sizeof op->buf);
        return;
    }
    assert_int_equal(message_post(world->room[op->rank], &call), COMM_OK);
}

static void probe_one(void)
{
    int32_t rank = (int32_t)fake_random(&oracle.world, (uint32_t)oracle.world.ranks);
    struct op asked = {.peer = pick_peer(rank, false), .tag = fake_random(&oracle.world, TAGS)};
    if (fake_random(&oracle.world, 3) == 0)
        asked.tag = COMM_ANY_TAG;
    const struct op *expected = NULL;
    const struct list *arrived = &oracle.arrived[rank];
    for (uint32_t i = 0; i < arrived->count && !expected; i++) {
        if (takes(&asked, &oracle.op[arrived->at[i]]))
            expected = &oracle.op[arrived->at[i]];
    }
    struct comm_status status;
    assert_int_equal(message_probe(oracle.world.room[rank], asked.peer, asked.tag, &status), expected != NULL);
    if (expected)
        assert_true(status.peer == expected->rank && status.tag == expected->tag && status.bytes == expected->bytes);
}

static void cancel_one(void)
{
    if (oracle.ops == 0)
        return;
    int32_t index = (int32_t)fake_random(&oracle.world, (uint32_t)oracle.ops);
    struct op *op = &oracle.op[index];
    struct list *posted = &oracle.posted[op->rank];
    bool unmatched = false;
    for (uint32_t i = 0; i < posted->count && !unmatched; i++) {
        unmatched = posted->at[i] == index;
        if (unmatched)
            list_drop(posted, i);
    }
    op->cancelled = op->cancelled || unmatched;
    assert_int_equal(message_cancel(oracle.world.room[op->rank], (uint32_t)index, COMM_ERR_CANCELLED),
                     unmatched ? COMM_OK : COMM_ERR_STATE);
}

static void check_pending(void)
{
    for (int32_t r = 0; r < oracle.world.ranks; r++) {
        uint32_t pending = 0;
        for (int32_t i = 0; i < oracle.ops; i++)
            pending += oracle.op[i].rank == r && !oracle.op[i].finished;
        assert_int_equal(message_pending(oracle.world.room[r]), pending);
    }
}

/* Everything that has its partner has finished; nothing else has, but sends whose bytes the wire took. */
static void check_quiet(void)
{
    for (int32_t i = 0; i < oracle.ops; i++) {
        const struct op *op = &oracle.op[i];
        if (op->partner >= 0 || op->cancelled)
            assert_true(op->finished);
        else if (!op->is_send || op->peer == op->rank)
            assert_false(op->finished);
    }
}

static void end_program(bool fail)
{
    for (int32_t r = 0; r < oracle.world.ranks; r++) {
        struct message_room *room = oracle.world.room[r];
        if (fail) {
            message_fail(room, COMM_ERR_PEER);
            assert_int_equal(message_pending(room), 0);
            assert_false(message_wants_step(room));
            continue;
        }
        for (uint32_t i = 0; i < oracle.posted[r].count; i++)
            oracle.op[oracle.posted[r].at[i]].cancelled = true;
        message_cancel_all(room);
    }
    take_finished(fail ? COMM_ERR_PEER : COMM_OK + 99);
    for (int32_t i = 0; i < oracle.ops; i++)
        assert_true(oracle.op[i].finished || (!fail && oracle.op[i].is_send && oracle.op[i].partner < 0));
}

static void run_program(const struct comm_env *env, uint64_t seed)
{
    memset(&oracle, 0, offsetof(struct oracle, op));
    memset(oracle.posted, 0, sizeof oracle - offsetof(struct oracle, posted));
    oracle.ops = 0;
    struct fake_world *world = &oracle.world;
    fake_open(world, env, 1 + (int32_t)(seed % 5), OPS_MAX, seed);
    world->arrival = on_arrival;
    world->accepted = on_accepted;
    world->again_percent = fake_random(world, 3) * 35;
    world->pending_percent = fake_random(world, 3) * 50;
    int32_t ops = 1 + (int32_t)fake_random(world, fake_random(world, 10) ? 60 : OPS_MAX);
    uint32_t haste = 1 + fake_random(world, 6);
    while (oracle.ops < ops) {
        post_one();
        for (uint32_t i = fake_random(world, haste); i-- > 0;)
            (void)fake_act(world);
        if (fake_random(world, 3) == 0)
            (void)message_step(world->room[fake_random(world, (uint32_t)world->ranks)]);
        if (fake_random(world, 12) == 0)
            cancel_one();
        if (fake_random(world, 6) == 0)
            probe_one();
        if (fake_random(world, 4) == 0) {
            take_finished(COMM_OK + 99);
            check_pending();
        }
    }
    bool drained = fake_random(world, 4) != 0;
    if (drained) {
        fake_drain(world);
        take_finished(COMM_OK + 99);
        check_quiet();
        check_pending();
    }
    end_program(!drained || fake_random(world, 2));
    fake_close(world);
}

static void random_programs(void **state)
{
    (void)state;
    struct fake_env env;
    fake_env_open(&env);
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        run_program(&env.base, seed);
        assert_int_equal(env.held, 0);
    }
    assert_true(accepted > PROGRAMS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
