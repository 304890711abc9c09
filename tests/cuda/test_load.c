/* The loader reports each missing piece with its own text. This test provides the libraries. It hides a file or a symbol, or makes the mock
 * driver answer like a broken one. */
#define _GNU_SOURCE
#include "cuda/load.h"
#include "mock.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *hidden;
static int opened;

static void *test_open(const char *name, char *why, size_t why_bytes)
{
    if (hidden && strcmp(hidden, name) == 0) {
        snprintf(why, why_bytes, "%s: no such file", name);
        return NULL;
    }
    void *library = dlopen(name, RTLD_NOW);
    opened += library != NULL;
    return library;
}

static void *test_symbol(void *library, const char *name)
{
    return hidden && strcmp(hidden, name) == 0 ? NULL : dlsym(library, name);
}

static void test_close(void *library)
{
    opened--;
    dlclose(library);
}

static bool no_packages(uint32_t n, char *folder, size_t bytes)
{
    (void)n;
    (void)folder;
    (void)bytes;
    return false;
}

static const struct cuda_source source = {test_open, test_symbol, test_close, no_packages};

static struct cuda_calls cuda; /* what the newest load found */

/* Returns the error text, which is empty if loading succeeded. */
static const char *load(bool nccl, const char *hide, const struct mock_options *options)
{
    static char why[512];
    struct nccl_calls calls;
    int devices, version;

    why[0] = 0;
    hidden = hide;
    opened = 0;
    mock_reset(options ? options : &(struct mock_options){.seed = 1});
    enum comm_result r = cuda_load_driver(&source, &cuda, &devices, why, sizeof why);
    if (r == COMM_OK && nccl)
        r = cuda_load_nccl(&source, &calls, &version, why, sizeof why);
    assert_int_equal(r == COMM_OK ? COMM_OK : COMM_ERR_UNSUPPORTED, r);
    assert_int_equal(r == COMM_OK, why[0] == 0);
    assert_int_equal(opened, r == COMM_OK ? 1 + nccl : nccl && strstr(why, "NCCL") != NULL);
    return why;
}

#define SAYS(text, part) assert_non_null(strstr((text), (part)))

static void everything_is_here(void **state)
{
    (void)state;
    assert_string_equal(load(false, NULL, NULL), "");
    assert_string_equal(load(true, NULL, NULL), "");
}

static void the_driver_is_not_here(void **state)
{
    (void)state;
    SAYS(load(true, "libcuda.so.1", NULL), "no NVIDIA driver (libcuda.so.1: no such file); install the driver of this machine's GPU");
}

static void the_driver_is_too_old(void **state)
{
    (void)state;
    SAYS(load(true, "cuStreamWriteValue64_v2", NULL), "driver is too old: it has no cuStreamWriteValue64_v2; expected one for CUDA 12.0");
    SAYS(load(true, NULL, &(struct mock_options){.driver = 11080}), "driver is too old: it is for CUDA 11.8; expected one for CUDA 12.0");
}

/* Calls that only newer drivers have are not required. */
static void a_driver_without_newer_calls(void **state)
{
    (void)state;
    assert_string_equal(load(false, NULL, NULL), "");
    assert_non_null(cuda.cuStreamGetCaptureInfo_v3);
    assert_string_equal(load(false, NULL, &(struct mock_options){.driver = 12020}), "");
    assert_null(cuda.cuStreamGetCaptureInfo_v3);
    assert_string_equal(load(false, "cuStreamGetCaptureInfo_v3", NULL), "");
    assert_null(cuda.cuStreamGetCaptureInfo_v3);
    assert_non_null(cuda.cuMemSetAccess);
    assert_string_equal(load(false, "cuMemSetAccess", NULL), "");
    assert_null(cuda.cuMemSetAccess);
}

static void the_driver_does_not_start(void **state)
{
    (void)state;
    SAYS(load(true, NULL, &(struct mock_options){.init_result = CUDA_STUB_LIBRARY}), "libcuda.so.1 is the toolkit's stub");
    SAYS(load(true, NULL, &(struct mock_options){.init_result = CUDA_UNKNOWN}), "does not start: cuInit says MOCK_ERROR_999 (999)");
}

static void no_device_is_here(void **state)
{
    (void)state;
    SAYS(load(true, NULL, &(struct mock_options){.init_result = CUDA_NO_DEVICE}), "no NVIDIA device");
    SAYS(load(true, NULL, &(struct mock_options){.devices = -1}), "no NVIDIA device: the driver counts 0");
}

static void nccl_is_not_here(void **state)
{
    (void)state;
    SAYS(load(true, "libnccl.so.2", NULL), "no NCCL (libnccl.so.2: no such file); install it");
}

static char environment[200], tried[600];

static void *open_in_packages(const char *name, char *why, size_t why_bytes)
{
    snprintf(tried, sizeof tried, "%s", name);
    if (strcmp(name, "libnccl.so.2") == 0) {
        snprintf(why, why_bytes, "%s: no such file", name);
        return NULL;
    }
    return dlopen(strchr(name, '/') ? "libnccl.so.2" : name, RTLD_NOW);
}

/* NCCL that pip installed is found in the active environment, for any version of Python. */
static void nccl_is_in_a_python_package(void **state)
{
    struct cuda_source system = cuda_source_system;
    struct nccl_calls calls;
    char why[512] = "", folder[400];
    int version;

    (void)state;
    snprintf(environment, sizeof environment, "/tmp/commstream-load-XXXXXX");
    assert_non_null(mkdtemp(environment));
    static const char *const parts[] = {"lib", "lib/python3.99", "lib/python3.99/site-packages"};
    for (int i = 0; i < 3; i++) {
        snprintf(folder, sizeof folder, "%s/%s", environment, parts[i]);
        assert_int_equal(mkdir(folder, 0700), 0);
    }
    setenv("VIRTUAL_ENV", environment, 1);
    mock_reset(&(struct mock_options){.seed = 1});
    system.open = open_in_packages;
    enum comm_result r = cuda_load_nccl(&system, &calls, &version, why, sizeof why);
    unsetenv("VIRTUAL_ENV");
    for (int i = 3; i-- > 0;) {
        snprintf(folder, sizeof folder, "%s/%s", environment, parts[i]);
        rmdir(folder);
    }
    rmdir(environment);
    assert_int_equal(r, COMM_OK);
    snprintf(folder, sizeof folder, "%s/lib/python3.99/site-packages/nvidia/nccl/lib/libnccl.so.2", environment);
    assert_string_equal(tried, folder);
}

static void nccl_is_too_old(void **state)
{
    (void)state;
    SAYS(load(true, "ncclCommSplit", NULL), "NCCL is too old: libnccl.so.2 has no ncclCommSplit; expected 2.18 or newer");
    SAYS(load(true, NULL, &(struct mock_options){.nccl = 21704}), "NCCL 2.17.4 is too old; expected 2.18 or newer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_here),
        cmocka_unit_test(the_driver_is_not_here),
        cmocka_unit_test(the_driver_is_too_old),
        cmocka_unit_test(a_driver_without_newer_calls),
        cmocka_unit_test(the_driver_does_not_start),
        cmocka_unit_test(no_device_is_here),
        cmocka_unit_test(nccl_is_not_here),
        cmocka_unit_test(nccl_is_too_old),
        cmocka_unit_test(nccl_is_in_a_python_package),
    };
    return cmocka_run_group_tests_name("cuda_load", tests, NULL, NULL);
}
