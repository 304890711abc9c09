/*
 * A long message in device memory over MPI's wire (backend shm+mpi) between two ranks under MPI's launcher: its first bytes are on the
 * receiver's device while the sender's last ones are not copied yet. Each rank has a mock device. The receiver says what it has over
 * another message, and only then does the sender's device go on. The receiver copies when a piece or more has come, so less than one piece
 * of the bytes that came may not be on its device.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include "mock_everywhere.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, BYTES = 9 * MIB + 40, FIRST_PIECES = 3, SEEN_BYTES = (FIRST_PIECES - 1) * MIB, DATA = 1, SEEN = 2 };
static struct comm_communicator *world;

static unsigned char byte_at(size_t i, uint32_t round)
{
    return (unsigned char)(i * 7 + i / 4093 + round);
}

static bool has(const unsigned char *at, size_t from, size_t end, uint32_t round)
{
    for (size_t i = from; i < end; i++)
        if (at[i] != byte_at(i, round))
            return false;
    return true;
}

static void turn_before(int64_t end)
{
    enum comm_result moved = comm_progress(world);

    CHECK(moved == COMM_OK || moved == COMM_PENDING);
    CHECK(rig_now() < end);
}

static void send_slowly(unsigned char *device, uint32_t round)
{
    struct comm_request sent, seen;
    uint32_t what = 0;

    for (size_t i = 0; i < BYTES; i++)
        ((unsigned char *)mock_peek(device))[i] = byte_at(i, round);
    mock_stand(true);
    MUST(comm_recv(world, &what, 1, COMM_U32, 1 - comm_rank(world), SEEN, NULL, &seen));
    MUST(comm_send(world, device, BYTES, COMM_BYTE, 1 - comm_rank(world), DATA, &sent));
    for (int piece = 0; piece < FIRST_PIECES; piece++)
        for (int64_t end = rig_now() + RIG_PATIENCE; !mock_step(false);)
            turn_before(end);
    MUST(comm_wait(seen, RIG_PATIENCE));
    EQUAL(what, round);
    IS(comm_test(sent), COMM_PENDING);
    mock_stand(false);
    MUST(comm_wait(sent, RIG_PATIENCE));
}

static void receive_first_bytes(unsigned char *device, uint32_t round)
{
    struct comm_request got, seen;
    struct comm_status status;
    unsigned char *at = mock_peek(device);

    memset(at, 0xa5, BYTES);
    MUST(comm_recv(world, device, BYTES, COMM_BYTE, 1 - comm_rank(world), DATA, &status, &got));
    for (int64_t end = rig_now() + RIG_PATIENCE; !has(at, SEEN_BYTES - 100, SEEN_BYTES, round);)
        turn_before(end);
    CHECK(has(at, 0, SEEN_BYTES, round));
    IS(comm_test(got), COMM_PENDING);
    MUST(comm_send(world, &round, 1, COMM_U32, 1 - comm_rank(world), SEEN, &seen));
    MUST(comm_wait(got, RIG_PATIENCE));
    MUST(comm_wait(seen, RIG_PATIENCE));
    EQUAL(status.bytes, BYTES);
    CHECK(has(at, 0, BYTES, round));
}

int main(void)
{
    char text[512] = "";
    unsigned char *device = mock_take(BYTES);
    struct comm_info info = {.size = sizeof info};
    enum comm_result r = comm_open(
        COMM_CONFIG(.backend = "shm+mpi", .operation_timeout_ns = 20 * RIG_S, .error_text = text, .error_text_bytes = sizeof text), &world);

    if (r != COMM_OK) {
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
        return 3;
    }
    MUST(comm_describe(world, &info));
    CHECK(strcmp(info.backend, "shm+mpi") == 0 && info.nodes == 2);
    for (uint32_t round = 0; round < 6; round++) {
        if ((uint32_t)comm_rank(world) == round % 2)
            send_slowly(device, round);
        else
            receive_first_bytes(device, round);
    }
    MUST(comm_close(world, RIG_PATIENCE));
    mock_give(device);
    return 0;
}
