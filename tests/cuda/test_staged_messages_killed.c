/*
 * A rank dies in the middle of a long message in device memory, as the sender or as the receiver. Each rank is a process with a mock
 * device, which copies the first bytes and then stands. The other rank's request ends with COMM_ERR_PEER, although its own copies have not
 * ended.
 */
#define _GNU_SOURCE
#include "../proc/proc.h"

#include "staged_killed.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, SENDER = 0, RECEIVER = 1, MIB = 1 << 20, BYTES = 12 * MIB, COPIED = 2 };

static void run(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request_info info = {.size = sizeof info};
    unsigned char *device = mock_take(BYTES);
    struct comm_request q;

    memset(mock_peek(device), rank == SENDER, BYTES);
    mock_stand(true);
    if (rank == SENDER)
        MUST(comm_send(world, device, BYTES, COMM_BYTE, RECEIVER, 1, &q));
    else
        MUST(comm_recv(world, device, BYTES, COMM_BYTE, SENDER, 1, NULL, &q));
    for (int i = 0; i < (rank == SENDER ? COPIED : 1); i++)
        step_when_there(world, rank == RECEIVER);
    if (rank == RECEIVER)
        CHECK(((unsigned char *)mock_peek(device))[MIB - 1] == 1);
    atomic_store(&proc->page[rank].stage, 1);
    IS(comm_wait(q, RIG_PATIENCE), COMM_ERR_PEER);
    MUST(comm_describe_request(q, &info));
    CHECK(info.flags & COMM_INFO_STAGED);
    if (rank == SENDER)
        CHECK(info.flags & COMM_INFO_BUFFERS_HELD);
    mock_stand(false);
    (void)!comm_close(world, RIG_PATIENCE);
    mock_give(device);
}

static void killed(int32_t victim)
{
    struct proc proc = {0};

    proc_needs_shm();
    proc_start(&proc, RANKS, run);
    for (int32_t r = 0; r < RANKS; r++)
        proc_await(&proc, r, 1);
    kill(proc.pid[victim], SIGKILL);
    proc_finish(&proc, victim, RIG_PATIENCE);
}

RIG_TEST(the_sender_is_killed)
{
    killed(SENDER);
}

RIG_TEST(the_receiver_is_killed)
{
    killed(RECEIVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sender_is_killed),
        cmocka_unit_test(the_receiver_is_killed),
    };

    return cmocka_run_group_tests_name("cuda_staged_messages_killed", tests, NULL, NULL);
}
