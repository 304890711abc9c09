/*
 * A machine in the middle that breaks what passes: it changes a byte, loses some, says some twice, cuts, or only delays. With COMM_TCP_CRC
 * all of that but delays ends in one named error on every rank, and no operation that said OK has wrong data. Without it a changed byte of
 * a payload passes, which shows that the middle does what it is told.
 *
 * The middle is a thread of the rank that dials: connect() is this file's, by the linker, and makes a connection to it instead.
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COUNT = 50000, TURNS = 40, LANES = 3 };
enum fault { CHANGE, LOSE, REPEAT, CUT, DELAY, FAULTS, SWALLOW = FAULTS };
static const char *const fault_names[] = {"changes a byte", "loses bytes", "says bytes twice", "cuts", "delays", "swallows all"};

/* Which connection of those that a rank dials, in which direction (0: from the dialer), behind how many bytes. */
static struct {
    enum fault fault;
    int connection, direction;
    size_t at;
} plan;

/* ------------------------------------------------------------------------------------------------------------ the middle */
struct relay {
    int listener, fd[2];
    int number;
    struct sockaddr_storage to;
    socklen_t to_bytes;
    size_t passed[2];
    bool over[2]; /* that side says no more */
    bool swallows;
};

int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);

static bool send_all(int fd, const char *at, size_t bytes)
{
    while (bytes) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Bytes on their way; `at`: where among them it happens. False: the connection is over. */
static bool harm(struct relay *r, int way, char *bytes, size_t n, size_t at)
{
    size_t rest = n - at < 64 ? n - at : 64;
    int to = r->fd[!way];

    switch (plan.fault) {
    case CHANGE:
        bytes[at] ^= 4;
        return send_all(to, bytes, n);
    case LOSE:
        return send_all(to, bytes, at) && send_all(to, bytes + at + rest, n - at - rest);
    case REPEAT:
        return send_all(to, bytes, at + rest) && send_all(to, bytes + at, n - at);
    case CUT:
        send_all(to, bytes, at);
        return false;
    case SWALLOW: /* but not its end */
        r->swallows = true;
        return send_all(to, bytes, at);
    default:
        rig_nap(300 * RIG_MS);
        return send_all(to, bytes, n);
    }
}

static bool pass(struct relay *r, int way)
{
    char bytes[8192];
    ssize_t n = recv(r->fd[way], bytes, sizeof bytes, 0);
    bool planned = r->number == plan.connection && way == plan.direction;

    if (n <= 0) { /* what the other way still has is passed on */
        r->over[way] = true;
        shutdown(r->fd[!way], SHUT_WR);
        return !r->over[!way];
    }
    size_t before = r->passed[way];
    r->passed[way] += (size_t)n;
    if (planned && plan.at < r->passed[way] && before <= plan.at)
        return harm(r, way, bytes, (size_t)n, plan.at - before);
    if (planned && r->swallows)
        return true;
    send_all(r->fd[!way], bytes, (size_t)n); /* that side may have gone, and still have said something */
    return true;
}

static void *relay_run(void *arg)
{
    struct relay *r = arg;
    bool goes_on;

    r->fd[0] = accept(r->listener, NULL, NULL);
    close(r->listener);
    r->fd[1] = socket(r->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    goes_on = r->fd[0] >= 0 && r->fd[1] >= 0 && __real_connect(r->fd[1], (struct sockaddr *)&r->to, r->to_bytes) == 0;
    while (goes_on) {
        struct pollfd ends[2] = {{.fd = r->over[0] ? -1 : r->fd[0], .events = POLLIN},
                                 {.fd = r->over[1] ? -1 : r->fd[1], .events = POLLIN}};
        poll(ends, 2, -1);
        for (int way = 0; way < 2; way++)
            if (ends[way].revents)
                goes_on = goes_on && pass(r, way);
    }
    close(r->fd[0]);
    close(r->fd[1]);
    free(r);
    return NULL;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    static int dialed;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    int kind = 0;
    socklen_t kind_bytes = sizeof kind;
    pthread_t thread;

    getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &kind_bytes);
    if (address->sa_family != AF_INET || kind != SOCK_STREAM)
        return __real_connect(fd, address, bytes);
    struct relay *r = calloc(1, sizeof *r);
    CHECK(r != NULL);
    r->number = dialed++;
    memcpy(&r->to, address, bytes);
    r->to_bytes = bytes;
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(r->listener >= 0 && bind(r->listener, (struct sockaddr *)&here, length) == 0 && listen(r->listener, 1) == 0);
    CHECK(getsockname(r->listener, (struct sockaddr *)&here, &length) == 0);
    CHECK(pthread_create(&thread, NULL, relay_run, r) == 0 && pthread_detach(thread) == 0);
    return __real_connect(fd, (struct sockaddr *)&here, length);
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
enum { RESULT_WRONG = 0, RESULT_GOOD = 1 }; /* of page.number: operations that said OK */

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
        (void)comm_close(world, RIG_S); /* it may say what the last operation said */
}

static void two_ranks(struct proc *proc, const char *crc)
{
    setenv("COMM_TCP_CRC", crc, 1);
    *proc = (struct proc){.raw = true};
    proc_start(proc, 2, sum);
    proc_finish(proc, -1, 2 * RIG_PATIENCE);
}

static void broken(enum fault fault, int connection, int direction, size_t at)
{
    static struct proc proc;

    plan.fault = fault;
    plan.connection = connection;
    plan.direction = direction;
    plan.at = at;
    rig_note("it %s on connection %d, direction %d, behind %zu bytes", fault_names[fault], connection, direction, at);
    two_ranks(&proc, "yes");
    for (int32_t r = 0; r < 2; r++) {
        EQUAL(proc.page[r].number[RESULT_WRONG], 0);
        if (fault == DELAY) {
            EQUAL(proc.page[r].result, COMM_OK);
            EQUAL(proc.page[r].number[RESULT_GOOD], TURNS);
        } else if (proc.page[r].result != COMM_ERR_PEER && proc.page[r].result != COMM_ERR_CLOSED) {
            rig_die(__FILE__, __LINE__, "rank %d: result %d, %lld good: %s", r, proc.page[r].result,
                    (long long)proc.page[r].number[RESULT_GOOD], proc.page[r].text);
        }
    }
}

/* Greetings are far shorter than the first of these; what is on the small connection is mostly headers. */
RIG_TEST(with_crc_no_wrong_data)
{
    static const size_t at[2][3] = {{700, 1501, 3003}, {700, 100001, 654321}};

    for (enum fault fault = CHANGE; fault < FAULTS; fault++)
        for (int connection = 0; connection < 2; connection++)
            for (int i = 0; i < 3; i++)
                if (!rig_quick() || (i == 1 && connection == (int)fault % 2))
                    broken(fault, connection, ((int)fault + i) % 2, at[connection][i]);
}

RIG_TEST(without_crc_a_payload_may_be_changed)
{
    static struct proc proc;

    plan.fault = CHANGE;
    plan.connection = 1;
    plan.direction = 0;
    plan.at = 100001;
    two_ranks(&proc, "no");
    CHECK(proc.page[0].number[RESULT_WRONG] + proc.page[1].number[RESULT_WRONG] > 0);
    EQUAL(proc.page[0].result, COMM_OK);
    EQUAL(proc.page[1].result, COMM_OK);
}

/* As where too many stand at the door: who was put out before he was heard comes again. */
RIG_TEST(put_out_at_the_door)
{
    static struct proc proc;

    for (int lane = 0; lane < LANES; lane++) {
        plan.fault = CUT;
        plan.connection = lane;
        plan.direction = 0;
        plan.at = 0;
        two_ranks(&proc, "no");
        for (int32_t r = 0; r < 2; r++) {
            if (proc.page[r].result != COMM_OK)
                rig_die(__FILE__, __LINE__, "rank %d: result %d: %s", r, proc.page[r].result, proc.page[r].text);
            EQUAL(proc.page[r].number[RESULT_GOOD], TURNS);
        }
    }
}

/* One that does not check would not understand the other. */
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

    plan.connection = -1;
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

/* Rank 1's last words are lost, all but the goodbye. */
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
        plan.fault = SWALLOW;
        plan.connection = 1;
        plan.direction = 1; /* rank 0 dials */
        plan.at = 100001;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_crc_no_wrong_data),
        cmocka_unit_test(without_crc_a_payload_may_be_changed),
        cmocka_unit_test(put_out_at_the_door),
        cmocka_unit_test(all_check_or_none),
        cmocka_unit_test(what_was_lost_before_a_goodbye_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
