/*
 * A machine in the middle that damages the stream: it changes a byte, loses some, repeats some, cuts, or only delays. With COMM_TCP_CRC all
 * of these except delays end in one named error on every rank, and no operation that returned OK has wrong data. Without it a changed byte
 * of a payload passes, which shows that the middle works.
 */
#define _GNU_SOURCE
#include "net/middle.h"
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 50000, TURNS = 40, LANES = 3 };
/* ------------------------------------------------------------------------------------------------------------ the ranks */
enum { RESULT_WRONG = 0, RESULT_GOOD = 1 }; /* of page.number: operations that returned OK */

static bool is_sum(const int32_t *out, size_t n, int32_t turn)
{
    for (size_t i = 0; i < n; i++)
        if (out[i] != 2 * (turn + (int32_t)i) + 1)
            return false;
    return true;
}

static void sum(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    static int32_t in[COUNT], out[COUNT];
    struct proc_page *page = &proc->page[rank];
    struct comm_communicator *world = NULL;
    struct comm_request q;
    char text[256] = "";
    (void)none;
    enum comm_result r = comm_open(COMM_CONFIG(.backend = "tcp", .error_text = text, .error_text_bytes = sizeof text,
                                               .open_timeout_ns = 10 * RIG_S, .operation_timeout_ns = 20 * RIG_S),
                                   &world);
    for (int32_t turn = 0; turn < TURNS && r == COMM_OK; turn++) {
        size_t n = turn % 2 ? COUNT : 50;
        for (size_t i = 0; i < n; i++)
            in[i] = turn + (int32_t)i + rank;
        memset(out, 0, sizeof out);
        r = comm_allreduce(world, in, out, n, COMM_I32, COMM_SUM, &q);
        r = r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
        if (r == COMM_OK)
            page->number[is_sum(out, n, turn) ? RESULT_GOOD : RESULT_WRONG]++;
    }
    snprintf(page->text, sizeof page->text, "%s", text);
    page->result = r;
    if (world)
        (void)comm_close(world, RIG_S); /* may return the same error as the last operation */
}

static void two_ranks(struct proc *proc, const char *crc)
{
    setenv("COMM_TCP_CRC", crc, 1);
    *proc = (struct proc){.raw = true};
    proc_start(proc, 2, sum);
    proc_finish(proc, -1, 2 * RIG_PATIENCE);
}

static void broken(enum middle_fault fault, int connection, int direction, size_t at)
{
    static struct proc proc;

    middle.fault = fault;
    middle.connection = connection;
    middle.direction = direction;
    middle.at = at;
    rig_note("it %s on connection %d, direction %d, behind %zu bytes", middle_fault_names[fault], connection, direction, at);
    two_ranks(&proc, "yes");
    for (int32_t r = 0; r < 2; r++) {
        EQUAL(proc.page[r].number[RESULT_WRONG], 0);
        if (fault == MIDDLE_DELAY) {
            EQUAL(proc.page[r].result, COMM_OK);
            EQUAL(proc.page[r].number[RESULT_GOOD], TURNS);
        } else if (proc.page[r].result != COMM_ERR_PEER && proc.page[r].result != COMM_ERR_CLOSED) {
            rig_die(__FILE__, __LINE__, "rank %d: result %d, %lld good: %s", r, proc.page[r].result,
                    (long long)proc.page[r].number[RESULT_GOOD], proc.page[r].text);
        }
    }
}

/* Greetings are far shorter than the first of these offsets. The small connection carries mostly headers. */
RIG_TEST(with_crc_no_wrong_data)
{
    static const size_t at[2][3] = {{700, 1501, 3003}, {700, 100001, 654321}};

    for (enum middle_fault fault = MIDDLE_CHANGE; fault < MIDDLE_FAULTS; fault++)
        for (int connection = 0; connection < 2; connection++)
            for (int i = 0; i < 3; i++)
                if (selection_all() || (connection == (int)fault % 2 && (i == 1 || !selection_few())))
                    broken(fault, connection, ((int)fault + i) % 2, at[connection][i]);
}

RIG_TEST(without_crc_a_payload_may_be_changed)
{
    static struct proc proc;

    middle.fault = MIDDLE_CHANGE;
    middle.connection = 1;
    middle.direction = 0;
    middle.at = 100001;
    two_ranks(&proc, "no");
    CHECK(proc.page[0].number[RESULT_WRONG] + proc.page[1].number[RESULT_WRONG] > 0);
    EQUAL(proc.page[0].result, COMM_OK);
    EQUAL(proc.page[1].result, COMM_OK);
}

/* When the acceptor is full, it drops pending peers. A peer that is dropped before it was heard comes again. */
RIG_TEST(put_out_by_the_acceptor)
{
    static struct proc proc;

    for (int lane = 0; lane < LANES; lane++) {
        middle.fault = MIDDLE_CUT;
        middle.connection = lane;
        middle.direction = 0;
        middle.at = 0;
        two_ranks(&proc, "no");
        for (int32_t r = 0; r < 2; r++) {
            if (proc.page[r].result != COMM_OK)
                rig_die(__FILE__, __LINE__, "rank %d: result %d: %s", r, proc.page[r].result, proc.page[r].text);
            EQUAL(proc.page[r].number[RESULT_GOOD], TURNS);
        }
    }
}

/* A rank that does not check could not parse the other's records. */
static void one_checks(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";

    (void)proc, (void)none;
    setenv("COMM_TCP_CRC", rank ? "yes" : "no", 1);
    EQUAL(comm_open(COMM_CONFIG(.backend = "tcp", .error_text = text, .error_text_bytes = sizeof text), &world), COMM_ERR_CONFIG);
    CHECK(strstr(text, "rank 1 has COMM_TCP_CRC=yes and rank 0 has no") != NULL);
}

RIG_TEST(all_check_or_none)
{
    struct proc proc = {.raw = true};

    middle.connection = -1;
    proc_start(&proc, 2, one_checks);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* ------------------------------------------------------------------------------------------------------------ lost, then goodbye */
enum { LOST_BYTES = 1 << 20 };
enum last_word { BROADCAST_SINGLE, BROADCAST_SECOND, MESSAGE };

static enum comm_result last_word(struct comm_communicator *world, int32_t rank, enum last_word word)
{
    static char bytes[LOST_BYTES];
    struct comm_request q = COMM_REQUEST_NONE;
    enum comm_result r = COMM_OK;

    if (word == BROADCAST_SECOND)
        r = comm_broadcast(world, bytes, 100, COMM_U8, 1, NULL);
    if (r == COMM_OK && word != MESSAGE)
        r = comm_broadcast(world, bytes, LOST_BYTES, COMM_U8, 1, &q);
    else if (r == COMM_OK)
        r = rank ? comm_send(world, bytes, LOST_BYTES, COMM_U8, 0, 7, &q) : comm_recv(world, bytes, LOST_BYTES, COMM_U8, 1, 7, NULL, &q);
    return r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
}

/* Rank 1's last words are lost, except the goodbye. */
static void speak_and_close(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    struct proc_page *page = &proc->page[rank];
    (void)none;
    MUST(comm_open(COMM_CONFIG(.backend = "tcp", .open_timeout_ns = 10 * RIG_S, .operation_timeout_ns = 15 * RIG_S), &world));
    int64_t began = rig_now();
    enum comm_result r = last_word(world, rank, (enum last_word) * (int *)proc->place);
    proc_tell_failure(page, world, r);
    page->number[0] = rig_now() - began;
    (void)comm_close(world, RIG_S);
}

RIG_TEST(what_was_lost_before_a_goodbye_is_not_waited_for)
{
    static struct proc proc;

    for (int word = BROADCAST_SINGLE; word <= MESSAGE; word++) {
        middle.fault = MIDDLE_SWALLOW;
        middle.connection = 1;
        middle.direction = 1; /* rank 0 dials */
        middle.at = 100001;
        setenv("COMM_TCP_CRC", "no", 1);
        proc = (struct proc){.raw = true, .place = &word};
        proc_start(&proc, 2, speak_and_close);
        proc_finish(&proc, -1, 2 * RIG_PATIENCE);
        EQUAL(proc.page[1].result, COMM_OK);
        EQUAL(proc.page[0].result, COMM_ERR_CLOSED);
        EQUAL(proc.page[0].rank, 1);
        EQUAL(proc.page[0].number[0] < 2 * RIG_S, 1);
        if (!strstr(proc.page[0].text, "lost on its way"))
            rig_die(__FILE__, __LINE__, "%s", proc.page[0].text);
    }
}

/* ------------------------------------------------------------------------------------------------------------ a late goodbye */
enum { LATE_DEATHS = 0, LATE_BEGAN = 1 };
static struct proc_page *told_to;

static void hear(void *arg, int level, const char *line)
{
    (void)arg, (void)level;
    if (strstr(line, "died"))
        atomic_fetch_add(&told_to->number[LATE_DEATHS], 1);
}

/* Rank 1 closes and ends. Part of its last data is delayed, as if TCP had to retransmit it, and the ends of its other connections arrive
 * first. Rank 0 waits for a message, and then makes a call. */
static void close_or_wait(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct comm_communicator *world = NULL;
    struct comm_request q;
    char byte = 0;

    (void)none;
    told_to = &proc->page[rank];
    middle.closes = &proc->page[1].number[LATE_BEGAN];
    MUST(
        comm_open(COMM_CONFIG(.backend = "tcp", .log = hear, .log_level = COMM_LOG_WARNING, .operation_timeout_ns = RIG_PATIENCE), &world));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    if (rank == 1) {
        rig_nap(100 * RIG_MS);
        atomic_store(middle.closes, rig_now());
        MUST(comm_close(world, 2 * RIG_S));
        return;
    }
    MUST(comm_recv(world, &byte, 1, COMM_U8, 1, 7, NULL, &q));
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_CLOSED);
    MUST(comm_barrier(world, &q));
    proc_tell_failure(told_to, world, comm_wait(q, RIG_PATIENCE));

    (void)comm_close(world, RIG_S);
}

RIG_TEST(a_goodbye_that_comes_late_is_no_death)
{
    static const int64_t held[] = {100 * RIG_MS, 600 * RIG_MS, 1500 * RIG_MS, 4 * RIG_S};
    static struct proc proc;

    setenv("COMM_TCP_CRC", "no", 1);
    for (int i = 0; i < 4; i++)
        for (middle.connection = 0; middle.connection < LANES - 1; middle.connection++) {
            middle.fault = MIDDLE_HOLD;
            middle.held_ns = held[i];
            rig_note("%d connections are held for %lld ms", middle.connection + 1, (long long)(held[i] / RIG_MS));
            proc = (struct proc){.raw = true};
            proc_start(&proc, 2, close_or_wait);
            proc_finish(&proc, -1, 2 * RIG_PATIENCE);
            EQUAL(proc.page[0].number[LATE_DEATHS], 0);
            EQUAL(proc.page[0].result, COMM_ERR_CLOSED);
            EQUAL(proc.page[0].rank, 1);
        }
}

/* ------------------------------------------------------------------------------------------------------------ a call that comes late */
enum { LATE_NS = 100 * RIG_MS };

/* Rank 1 makes another call than its peers, and what it sends to rank 2 is delayed. Rank 2 is told by rank 0 that the calls differ, before
 * it has rank 1's call. */
static void differ(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    static int32_t in[COUNT], out[COUNT];
    struct comm_communicator *world = NULL;
    struct comm_request q;

    (void)none;
    middle.self = rank;
    middle.closes = &proc->page[1].number[LATE_BEGAN];
    MUST(comm_open(COMM_CONFIG(.backend = "tcp", .operation_timeout_ns = RIG_PATIENCE), &world));
    MUST(comm_barrier(world, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    rig_nap(100 * RIG_MS); /* until each has left the barrier */
    if (rank == 1)
        atomic_store(middle.closes, rig_now());
    enum comm_result r = comm_allreduce(world, in, out, rank == 1 ? COUNT - 1 : COUNT, COMM_I32, COMM_SUM, &q);
    proc_tell_failure(&proc->page[rank], world, r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r);
    (void)comm_close(world, RIG_S);
    if (rank == 1)
        rig_nap(4 * LATE_NS); /* the machine between is a thread of this process */
}

RIG_TEST(a_mismatch_names_a_call_that_comes_late)
{
    static struct proc proc;

    middle = (struct middle){.fault = MIDDLE_HOLD, .connection = 2 * LANES, .rank = 1, .held_ns = LATE_NS};
    proc = (struct proc){.raw = true};
    proc_start(&proc, 3, differ);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < 3; r++) {
        EQUAL(proc.page[r].result, COMM_ERR_MISMATCH);
        if (!strstr(proc.page[r].text, "n=49999") || !strstr(proc.page[r].text, "n=50000"))
            rig_die(__FILE__, __LINE__, "rank %d: %s", r, proc.page[r].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_crc_no_wrong_data),
        cmocka_unit_test(without_crc_a_payload_may_be_changed),
        cmocka_unit_test(put_out_by_the_acceptor),
        cmocka_unit_test(all_check_or_none),
        cmocka_unit_test(what_was_lost_before_a_goodbye_is_not_waited_for),
        cmocka_unit_test(a_goodbye_that_comes_late_is_no_death),
        cmocka_unit_test(a_mismatch_names_a_call_that_comes_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
