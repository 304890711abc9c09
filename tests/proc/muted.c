/*
 * A rank that is blocked on its standard error counts as alive. Rank 1 writes to a full pipe that no process reads, for longer than the
 * time after which a silent rank counts as dead. Its monitor and its calls log lines meanwhile. Its peer considers it alive, and sums
 * continue. In the end the pipe is read: every line is there, or was counted as dropped.
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, REFUSALS = 600, SUMS = 50, LATE_S = 5 /* after which the monitor warns */, PEER_TIMEOUT_S = 3 };
enum { MUTED = 1, READ_LATER = 0, SPEAK = 1 /* in page.number: the other end of the pipe, and the original standard error */ };

static void mute(struct proc *proc, int32_t rank)
{
    int ends[2];

    setenv("COMM_LOG", "trace", 1);
    if (rank != MUTED)
        return;
    CHECK(pipe(ends) == 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(ends[1], "\n", 1) == 1)
        ;
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    proc->page[rank].number[SPEAK] = dup(STDERR_FILENO);
    EQUAL(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    proc->page[rank].number[READ_LATER] = ends[0];
}

static void sum(struct comm_communicator *world)
{
    int64_t in = 1, out = 0;

    MUST(comm_allreduce(world, &in, &out, 1, COMM_I64, COMM_SUM, NULL));
    MUST(comm_sync(world, COMM_FOREVER));
    EQUAL(out, RANKS);
}

/* Each refused call logs one line. */
static void be_refused(int times)
{
    for (int i = 0; i < times; i++) {
        struct comm_communicator *none;
        IS(comm_open(COMM_CONFIG(.ranks = RANKS, .rank = RANKS), &none), COMM_ERR_CONFIG);
    }
}

struct said {
    int refusals, late, dropped;
};

static void read_line(struct said *said, const char *line)
{
    const char *count = strstr(line, " lines dropped here");

    said->refusals += strstr(line, "config.rank=") != NULL;
    said->late += strstr(line, " is late: ") != NULL;
    while (count && count[-1] >= '0' && count[-1] <= '9')
        count--;
    said->dropped += count ? (int)strtol(count, NULL, 10) : 0;
}

/* Reads until all refusals are accounted for. Other dropped lines may make the sum larger. */
static struct said listen(int fd)
{
    static char text[1 << 16];
    struct said said = {0};
    size_t at = 0;

    for (int64_t end = rig_now() + RIG_PATIENCE; said.refusals + said.dropped < REFUSALS;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        CHECK(rig_now() < end);
        if (poll(&ready, 1, 100) != 1)
            continue;
        ssize_t got = read(fd, text + at, sizeof text - 1 - at);
        CHECK(got > 0);
        at += (size_t)got;
        text[at] = 0;
        char *line = text;
        for (char *newline; (newline = strchr(line, '\n')); line = newline + 1) {
            *newline = 0;
            read_line(&said, line);
        }
        at -= (size_t)(line - text);
        memmove(text, line, at);
    }
    return said;
}

static void live(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    sum(world);
    if (rank == MUTED)
        be_refused(REFUSALS);
    else
        rig_nap((LATE_S + 2 * PEER_TIMEOUT_S) * RIG_S); /* alive, but late: the monitor of the other rank warns, and then is silent */
    for (int i = 0; i < SUMS; i++)
        sum(world);
    if (rank == MUTED) {
        struct said said = listen((int)proc->page[rank].number[READ_LATER]);
        EQUAL(dup2((int)proc->page[rank].number[SPEAK], STDERR_FILENO), STDERR_FILENO);
        CHECK(said.dropped > 0);
        /* the monitor's line was written, or is counted among the dropped ones */
        CHECK(said.late > 0 || said.refusals + said.dropped > REFUSALS);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(muted_rank_is_alive)
{
    char options[64];
    struct proc proc = {.enter = mute, .options = options};

    proc_needs_shm();
    unsetenv("COMM_PEER_TIMEOUT");
    snprintf(options, sizeof options, "peer_timeout=%ds", PEER_TIMEOUT_S);
    proc_start(&proc, RANKS, live);
    proc_finish(&proc, -1, 3 * RIG_PATIENCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(muted_rank_is_alive)};

    return cmocka_run_group_tests_name("proc_muted", tests, NULL, NULL);
}
