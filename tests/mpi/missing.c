/* The library runs without MPI. If the backend mpi is requested, the error says what is missing and what to do. Each test compares the text
 * that a user sees. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/result.h"
#include "wire/module.h"
#include "wire/table.h"

static char text[1024];

static enum comm_result open_mpi(int32_t rank, int32_t ranks)
{
    struct comm_communicator *world = NULL;
    text[0] = 0;
    enum comm_result r = comm_open(COMM_CONFIG(.backend = "mpi", .rank = rank, .ranks = ranks, .log_level = COMM_LOG_ERROR,
                                               .open_timeout_ns = 20 * RIG_S, .error_text = text, .error_text_bytes = sizeof text),
                                   &world);
    CHECK(r != COMM_OK || world);
    if (r == COMM_OK)
        MUST(comm_close(world, RIG_S));
    return r;
}

static void says(const char *what)
{
    if (!strstr(text, what))
        rig_die(__FILE__, __LINE__, "the error says: %s\n    expected in it: %s", text, what);
}

static void forget_launchers(void)
{
    static const char *const names[] = {"COMM_RANK", "COMM_RANKS",   "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
                                        "PMI_SIZE",  "COMM_BACKEND", "COMM_MODULE_PATH",     "COMM_MPI_LIBRARY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

RIG_TEST(no_module)
{
    struct comm_backend_info info;
    struct comm_communicator *world;
    forget_launchers();
    setenv("COMM_MODULE_PATH", "/nowhere", 1);
    IS(open_mpi(0, 0), COMM_ERR_UNSUPPORTED);
    says("backend mpi needs an MPI library and the module built for it");
    says("apt-get install openmpi-bin libopenmpi-dev (or mpich libmpich-dev)");
    says("/nowhere/libcommstream_mpi_openmpi.so");
    for (size_t i = 0; info = (struct comm_backend_info){.size = sizeof info}, comm_describe_backend(i, &info) == COMM_OK; i++)
        CHECK(strcmp(info.name, "mpi") != 0 || (!info.available && strstr(info.missing, "backend mpi needs an MPI library")));
    MUST(comm_open(COMM_CONFIG(.backend = "auto"), &world)); /* the library runs */
    MUST(comm_close(world, RIG_S));
}

RIG_TEST(not_the_launchers_module)
{
    forget_launchers();
    setenv("COMM_MODULE_PATH", "/nowhere", 1);
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1", 1);
    IS(open_mpi(0, 0), COMM_ERR_UNSUPPORTED);
    says("needs the module for MPICH, since its launcher started this process");
    says("apt-get install mpich libmpich-dev");
}

RIG_TEST(a_module_whose_library_is_gone)
{
    forget_launchers();
    setenv("COMM_MODULE_PATH", COMM_TEST_MODULES, 1);
    IS(open_mpi(0, 0), COMM_ERR_UNSUPPORTED);
    says("libmpi_gone.so: cannot open shared object file");
    says("apt-get install openmpi-bin");
}

/* COMM_MPI_LIBRARY is binding: neither the launcher's MPI nor another MPI replaces it. */
RIG_TEST(a_library_that_is_not_there)
{
    forget_launchers();
    setenv("COMM_MODULE_PATH", COMM_TEST_REAL_MODULES, 1);
    setenv("COMM_MPI_LIBRARY", "/nowhere/libmpi_abi.so.1", 1);
    IS(open_mpi(0, 0), COMM_ERR_UNSUPPORTED);
    says("/nowhere/libmpi_abi.so.1");
}

RIG_TEST(a_library_without_the_standard_abi)
{
    forget_launchers();
    setenv("COMM_MODULE_PATH", COMM_TEST_REAL_MODULES, 1);
    setenv("COMM_MPI_LIBRARY", "libm.so.6", 1);
    IS(open_mpi(0, 0), COMM_ERR_UNSUPPORTED);
    says("libm.so.6");
}

RIG_TEST(a_library_whose_module_is_not_there)
{
    forget_launchers();
    setenv("COMM_MODULE_PATH", "/nowhere", 1);
    setenv("COMM_MPI_LIBRARY", "/nowhere/libmpi_abi.so.1", 1);
    IS(open_mpi(0, 0), COMM_ERR_UNSUPPORTED);
    says("needs the module for an MPI with the standard ABI, since COMM_MPI_LIBRARY names its library");
}

/* Every rank gets the error, and no rank waits for a rank that will not come. */
RIG_TEST(a_rank_without_it)
{
    forget_launchers();
    setenv("COMM_JOB", "a-rank-without-it", 1);
    pid_t other = fork();
    CHECK(other >= 0);
    setenv("COMM_MODULE_PATH", other ? "/nowhere" : COMM_TEST_REAL_MODULES, 1);
    enum comm_result r = open_mpi(other != 0, 2);
    if (!other && (r == COMM_ERR_UNSUPPORTED || strstr(text, "needs an MPI")))
        exit(r == COMM_ERR_UNSUPPORTED ? 77 : 1); /* this build has no module */
    if (!other) {
        EQUAL(r, COMM_ERR_CONFIG);
        says("rank 1 cannot have it (COMM_ERR_UNSUPPORTED)");
        exit(0);
    }
    EQUAL(r, COMM_ERR_UNSUPPORTED);
    says("backend mpi needs an MPI library");
    int status = 0;
    waitpid(other, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        rig_skip("no MPI was found when this was built");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Without a launcher of MPI, each rank would be a world of its own. */
RIG_TEST(no_launcher_of_mpi)
{
    forget_launchers();
    setenv("COMM_JOB", "no-launcher-of-mpi", 1);
    setenv("COMM_MODULE_PATH", COMM_TEST_REAL_MODULES, 1);
    pid_t other = fork();
    CHECK(other >= 0);
    enum comm_result r = open_mpi(other != 0, 2);
    if (r == COMM_ERR_UNSUPPORTED && !other)
        _exit(0);
    if (r == COMM_ERR_UNSUPPORTED)
        rig_skip("no MPI was found when this was built");
    EQUAL(r, COMM_ERR_CONFIG);
    says("launcher program says 2 ranks, but ");
    says("sees 1: it was not started by its own launcher");
    if (!other)
        _exit(0);
    int status = 0;
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status));
    EQUAL(WEXITSTATUS(status), 0);
}

/* ------------------------------------------------------------------------------------------------------------ modules that do not fit */
static struct module_interface handle;
static const struct module_core *seen;
static const struct module_interface *entry(const struct module_core *core)
{
    seen = core;
    return handle.size ? &handle : NULL;
}

static void *give_entry(const struct comm_env *env, const char *name, char *why, size_t bytes)
{
    module_entry_fn *fn = entry;
    void *at;
    (void)env, (void)name, (void)why, (void)bytes;
    memcpy(&at, &fn, sizeof at);
    return at;
}

RIG_TEST(a_module_of_another_version)
{
    struct comm_env env = *wire_default_env();
    env.module = give_entry;
    text[0] = 0;
    CHECK(!module_load(&env, "mpi_openmpi", text, sizeof text));
    says("module \"mpi_openmpi\" is of another version");
    EQUAL(seen->abi, MODULE_ABI);
    EQUAL(seen->size, sizeof *seen);
    handle = (struct module_interface){.abi = MODULE_ABI, .size = sizeof handle, .version = COMM_VERSION, .name = "mpi_openmpi"};
    CHECK(module_load(&env, "mpi_openmpi", text, sizeof text) == &handle);
    handle.version++;
    CHECK(!module_load(&env, "mpi_openmpi", text, sizeof text));
    handle.version--;
    handle.size++;
    CHECK(!module_load(&env, "mpi_openmpi", text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_module),
        cmocka_unit_test(not_the_launchers_module),
        cmocka_unit_test(a_module_whose_library_is_gone),
        cmocka_unit_test(a_library_that_is_not_there),
        cmocka_unit_test(a_library_without_the_standard_abi),
        cmocka_unit_test(a_library_whose_module_is_not_there),
        cmocka_unit_test(a_rank_without_it),
        cmocka_unit_test(no_launcher_of_mpi),
        cmocka_unit_test(a_module_of_another_version),
    };
    return cmocka_run_group_tests_name("mpi_missing", tests, NULL, NULL);
}
