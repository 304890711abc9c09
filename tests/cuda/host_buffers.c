/*
 * A pointer to device memory on a communicator for host memory gives an error that names the argument, never a fault. The driver is a mock
 * one. Its device memory is mapped without access rights, so any access to it ends the test.
 */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 2, BYTES = 1 << 16, N = 100 };

static double *device, *managed;
static void (*fault)(unsigned result);

static void load_driver(void)
{
    void (*ranges)(void *, size_t, void *, size_t);
    void *driver = dlopen(MOCK_DRIVER, RTLD_NOW | RTLD_LOCAL);
    CHECK(driver != NULL);
    void *symbol = dlsym(driver, "mock_ranges");
    CHECK(symbol != NULL);
    memcpy(&ranges, &symbol, sizeof ranges);
    symbol = dlsym(driver, "mock_fault");
    CHECK(symbol != NULL);
    memcpy(&fault, &symbol, sizeof fault);
    device = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    managed = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(device != MAP_FAILED && managed != MAP_FAILED);
    ranges(device, BYTES, managed, BYTES);
}

/* The error detail names the argument, its value and what was expected. */
static void is_refused(struct comm_communicator *c, enum comm_result r, const char *argument, const void *at)
{
    struct comm_error error = {.size = sizeof error};
    char want[64];

    IS(r, COMM_ERR_ARGUMENT);
    IS(comm_error_detail(c, &error), COMM_OK);
    snprintf(want, sizeof want, "%s=0x%llx", argument, (unsigned long long)(uintptr_t)at);
    if (!strstr(error.text, want) || !strstr(error.text, "memory of the host"))
        rig_die(__FILE__, __LINE__, "it says: %s", error.text);
}

/* All ranks refuse the call, so the communicators stay usable. */
static void collectives(struct comm_communicator *const *c)
{
    static double in[N], out[RANKS][RANKS * N];
    size_t counts[RANKS] = {N, N}, displs[RANKS] = {0, N};

    for (int round = 0; round < 3; round++) { /* also if the call is equal to the one before */
        rig_proves_alive(c, RANKS);
        for (int32_t r = 0; r < RANKS; r++)
            is_refused(c[r], comm_allreduce(c[r], device, out[r], N, COMM_F64, COMM_SUM, NULL), "in", device);
        for (int32_t r = 0; r < RANKS; r++)
            is_refused(c[r], comm_allreduce(c[r], in, device + 1, N, COMM_F64, COMM_SUM, NULL), "out", device + 1);
        for (int32_t r = 0; r < RANKS; r++)
            is_refused(c[r], comm_allreduce(c[r], COMM_IN_PLACE, device, N, COMM_F64, COMM_SUM, NULL), "out", device);
        for (int32_t r = 0; r < RANKS; r++)
            is_refused(c[r], comm_broadcast(c[r], device, N, COMM_F64, 0, NULL), "buf", device);
        for (int32_t r = 0; r < RANKS; r++)
            is_refused(c[r], comm_allgather_v(c[r], device, out[r], counts, displs, COMM_F64, NULL), "in", device);
        for (int32_t r = 0; r < RANKS; r++)
            is_refused(c[r], comm_scan(c[r], in, device, N, COMM_F64, COMM_SUM, NULL), "out", device);
    }
    rig_proves_alive(c, RANKS);
}

static void messages(struct comm_communicator *const *c)
{
    is_refused(c[0], comm_send(c[0], device, N, COMM_F64, 1, 1, NULL), "buf", device);
    is_refused(c[1], comm_recv(c[1], device, N, COMM_F64, 0, 1, NULL, NULL), "buf", device);
    rig_proves_alive(c, RANKS);
}

static void free_window(void *arg, int32_t rank)
{
    MUST(comm_window_free(((struct comm_window **)arg)[rank]));
}

static void windows(struct comm_communicator *const *c)
{
    struct comm_window *w[RANKS];
    struct comm_request q[RANKS];
    struct comm_window_options options = {.size = sizeof options, .base = device};

    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_error error = {.size = sizeof error};
        IS(NOW(comm_window_create, c[r], BYTES, &options, &w[r]), COMM_ERR_ARGUMENT);
        IS(comm_error_detail(c[r], &error), COMM_OK);
        CHECK(strstr(error.text, "options.base="));
    }
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_window_create(c[r], BYTES, NULL, &w[r], &q[r]));
    rig_wait_all(q, RANKS);
    is_refused(c[0], comm_put(w[0], device, N, COMM_F64, 1, 0, NULL), "from", device);
    is_refused(c[0], comm_get(w[0], device, N, COMM_F64, 1, 0, NULL), "to", device);
    rig_threads(RANKS, free_window, w);
}

/* The CPU can access managed memory too. */
static void managed_memory(struct comm_communicator *const *c)
{
    struct comm_request q[RANKS];

    for (int i = 0; i < RANKS * N; i++)
        managed[i] = 1;
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(c[r], managed, managed + (r + 1) * N, N, COMM_F64, COMM_SUM, &q[r]));
    rig_wait_all(q, RANKS);
    CHECK(managed[N] == RANKS && managed[3 * N - 1] == RANKS);
}

RIG_TEST(device_memory_is_refused_by_the_hosts_communicators)
{
    struct rig rig;
    load_driver();
    rig_open(&rig, RANKS, NULL);
    collectives(rig.world);
    messages(rig.world);
    windows(rig.world);
    managed_memory(rig.world);
    rig_close(&rig);
}

/* The driver answers no more. Memory of the host still works, and memory of a device is still not read. */
RIG_TEST(a_driver_that_answers_with_an_error)
{
    static const unsigned errors[] = {201, 700, 719, 999};
    struct rig rig;
    load_driver();
    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fault(errors[i]);
        rig_proves_alive(rig.world, RANKS);
        collectives(rig.world);
        managed_memory(rig.world);
    }
    fault(0);
    rig_close(&rig);
}

/* If the driver is loaded later, communicators created after that detect it. */
RIG_TEST(device_memory_of_a_driver_that_came_later)
{
    struct comm_communicator *second[RANKS];
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    rig_proves_alive(rig.world, RANKS);
    load_driver();
    rig_dup(rig.world, RANKS, second);
    collectives(second);
    collectives(rig.world);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(second[r], RIG_PATIENCE));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(device_memory_is_refused_by_the_hosts_communicators),
                                       cmocka_unit_test(a_driver_that_answers_with_an_error),
                                       cmocka_unit_test(device_memory_of_a_driver_that_came_later)};

    return cmocka_run_group_tests_name("cuda_host_buffers", tests, NULL, NULL);
}
