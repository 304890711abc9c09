/*
 * device: whether an address is in device memory, which the CPU cannot access. Only the driver knows, and only a process that has loaded
 * the driver has such memory. So the driver is never loaded here. It is looked up if it is loaded (dlopen(3), RTLD_NOLOAD), and then kept.
 * Managed memory, which the driver moves by itself, counts as CPU memory.
 */
#define _GNU_SOURCE
#include "net/posix/posix.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Constants of the driver's interface, which is stable (cuda.h: CUresult, CUpointer_attribute, CUmemorytype). */
enum {
    CUDA_SUCCESS = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_DEINITIALIZED = 4,
    CUDA_NO_DEVICE = 100,
    CUDA_UNKNOWN = 999
};
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, TYPE_DEVICE = 2 };
typedef unsigned ask_fn(unsigned count, unsigned *attributes, void **data, uintptr_t pointer);
typedef unsigned count_fn(int *count);

static _Atomic(ask_fn *) ask;
static _Atomic(count_fn *) count_devices; /* NULL: the driver does not have the function */
_Atomic uint32_t posix_devices;
static _Atomic uint64_t looked; /* 1 + number of objects that were loaded at the last look */

static int count_loads(struct dl_phdr_info *info, size_t bytes, void *loads)
{
    (void)bytes;
    *(uint64_t *)loads = info->dlpi_adds;
    return 1;
}

/* Called for every new communicator. The lookup searches the library folders, so it is done only if something was loaded since
 * (dl_iterate_phdr(3)). */
void posix_find_devices(const struct comm_env *env)
{
    ask_fn *found;
    count_fn *counts;
    uint64_t loads = 0;

    (void)env;
    if (atomic_load_explicit(&posix_devices, memory_order_acquire))
        return;
    dl_iterate_phdr(count_loads, &loads);
    if (atomic_exchange_explicit(&looked, loads + 1, memory_order_relaxed) == loads + 1)
        return;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD),
         *symbol = driver ? dlsym(driver, "cuPointerGetAttributes") : NULL;
    if (!symbol) {
        if (driver)
            dlclose(driver);
        return;
    }
    memcpy(&found, &symbol, sizeof found);
    atomic_store_explicit(&ask, found, memory_order_relaxed);
    symbol = dlsym(driver, "cuDeviceGetCount");
    memcpy(&counts, &symbol, sizeof counts);
    atomic_store_explicit(&count_devices, counts, memory_order_relaxed);
    atomic_store_explicit(&posix_devices, 1, memory_order_release);
}

/* Without a device, or while the driver is not started, there is no device memory. */
static bool has_device(void)
{
    count_fn *counts = atomic_load_explicit(&count_devices, memory_order_relaxed);
    int count = 0;
    unsigned result = counts ? counts(&count) : CUDA_UNKNOWN;

    if (result == CUDA_SUCCESS)
        return count > 0;
    return result != CUDA_NOT_INITIALIZED && result != CUDA_DEINITIALIZED && result != CUDA_NO_DEVICE;
}

/* Asks the kernel, which gives an error where the CPU would fault. It may refuse to answer (process_vm_readv(2), in some containers). */
static bool host_reads(const void *at)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)at, 1};

    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

bool posix_on_device(const struct comm_env *env, const void *at)
{
    unsigned type = 0, managed = 0, attributes[] = {MEMORY_TYPE, IS_MANAGED};
    void *told[] = {&type, &managed};

    (void)env;
    if (!at || !atomic_load_explicit(&posix_devices, memory_order_acquire))
        return false;
    ask_fn *asked = atomic_load_explicit(&ask, memory_order_relaxed);
    unsigned result = asked(2, attributes, told, (uintptr_t)at);
    if (result == CUDA_SUCCESS) /* of an address that the driver does not know it tells zeros: it is the host's */
        return type == TYPE_DEVICE && !managed;
    if (result == CUDA_INVALID_VALUE)
        return false;
    return has_device() && !host_reads(at); /* on a thread without a context, or after a fault of the device */
}
