/* comm_split_place by device, on the mock driver. Ranks with the same hardware device get the same communicator, even if they number it
 * differently. */
#include "../proc/proc.h"
#include "mock.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { RANKS = 4 };

/* In one process with a device for each rank, each rank is alone in its communicator. */
RIG_TEST(ranks_of_one_process_have_their_own)
{
    struct comm_communicator *world[RANKS], *own[RANKS];
    struct comm_request q[RANKS];

    mock_reset(&(struct mock_options){.seed = 1});
    mock_run(true);
    MUST(comm_open_local(COMM_CONFIG(.backend = "nccl", .progress = COMM_PROGRESS_CALLER), RANKS, NULL, world));
    for (int r = 0; r < RANKS; r++)
        MUST(comm_split_place(world[r], COMM_PLACE_DEVICE, &own[r], &q[r]));
    rig_wait_all(q, RANKS);
    for (int r = 0; r < RANKS; r++) {
        EQUAL(comm_size(own[r]), 1);
        MUST(comm_close(own[r], RIG_PATIENCE));
        MUST(comm_close(world[r], RIG_PATIENCE));
    }
    mock_run(false);
}

/* Two devices of one host. Half of the ranks see them in the other order. */
static void share(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    static const struct {
        const char *device;
        int backwards, together;
    } ranks[RANKS] = {{"cuda:0", 0, 2}, {"cuda:7", 0, 2}, {"cuda:0", 1, 2}, {"cuda:7", 1, 2}}; /* 0 and 3, 1 and 2 */
    struct comm_communicator *world = NULL, *own = NULL;
    char text[512] = "";

    (void)proc;
    (void)none;
    mock_reset(&(struct mock_options){.seed = 1, .backwards = ranks[rank].backwards});
    MUST(comm_open(COMM_CONFIG(.backend = "shm", .device = ranks[rank].device, .open_timeout_ns = 20 * RIG_S, .error_text = text,
                               .error_text_bytes = sizeof text),
                   &world));
    MUST(NOW(comm_split_place, world, COMM_PLACE_DEVICE, &own));
    EQUAL(comm_size(own), ranks[rank].together);
    EQUAL(comm_rank(own), rank >= 2);
    EQUAL(comm_translate(own, 1 - comm_rank(own), world), RANKS - 1 - rank);
    MUST(comm_close(own, RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(processes_that_share_devices)
{
    struct proc proc = {.raw = true};

    proc_needs_shm();
    proc_start(&proc, RANKS, share);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* The call is refused, and the text names what is missing. Since all ranks refuse it, the communicator stays usable. */
RIG_TEST(without_a_device)
{
    struct comm_communicator *world[RANKS], *own;
    struct comm_error error = {.size = sizeof error};

    mock_reset(&(struct mock_options){.seed = 1, .devices = -1});
    MUST(comm_open_local(COMM_CONFIG(.backend = "local", .progress = COMM_PROGRESS_CALLER), RANKS, NULL, world));
    for (int r = 0; r < RANKS; r++) {
        struct comm_request q;
        IS(comm_split_place(world[r], COMM_PLACE_DEVICE, &own, &q), COMM_ERR_UNSUPPORTED);
        MUST(comm_error_detail(world[r], &error));
        CHECK(strstr(error.text, "COMM_PLACE_DEVICE") && strstr(error.text, "no NVIDIA device"));
    }
    rig_proves_alive(world, RANKS);
    for (int r = 0; r < RANKS; r++)
        MUST(comm_close(world[r], RIG_PATIENCE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_process_have_their_own),
        cmocka_unit_test(processes_that_share_devices),
        cmocka_unit_test(without_a_device),
    };
    return cmocka_run_group_tests_name("cuda_split", tests, NULL, NULL);
}
