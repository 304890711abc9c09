/* Loads NVIDIA's libraries at run time. So a program also starts on a machine without them. It gets an error, which says what is missing,
 * when it asks for them. */
#define _GNU_SOURCE
#include "cuda/load.h"

#include "base/format.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

enum {
    DRIVER_OLDEST = 12000, /* CUDA 12.0: stream memory operations need no module parameter */
    DRIVER_NEWER = 12030,  /* has CUDA_NEWER_CALLS */
};

struct symbol {
    const char *name;
    size_t at; /* offset of its pointer in the table */
};
#define DRIVER_SYMBOL(field, symbol, result, parameters) {symbol, offsetof(struct cuda_calls, field)},
#define NCCL_SYMBOL(field, symbol, result, parameters) {symbol, offsetof(struct nccl_calls, field)},
static const struct symbol driver_symbols[] = {CUDA_CALLS(DRIVER_SYMBOL)};
static const struct symbol driver_newer[] = {CUDA_NEWER_CALLS(DRIVER_SYMBOL)};
static const struct symbol driver_share[] = {CUDA_SHARE_CALLS(DRIVER_SYMBOL)};
static const struct symbol nccl_symbols[] = {NCCL_CALLS(NCCL_SYMBOL)};
static const struct symbol nccl_memory[] = {NCCL_MEMORY_CALLS(NCCL_SYMBOL)};
static const struct symbol nccl_windows[] = {NCCL_WINDOW_CALLS(NCCL_SYMBOL)};
static const struct symbol nccl_newer[] = {NCCL_NEWER_CALLS(NCCL_SYMBOL)};

/* ------------------------------------------------------------------------------------------------------------ the dynamic loader */
static void *system_open(const char *name, char *why, size_t why_bytes)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *text = library ? NULL : dlerror();

    if (!library)
        base_copy_text(why, why_bytes, text ? text : name);
    return library;
}

static void *system_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

static void system_close(void *library)
{
    dlclose(library);
}

/* Finds the folder of Python packages that contains this module, if one does. */
static bool beside_us(char *folder, size_t bytes)
{
    Dl_info us;
    const char *path = dladdr(&cuda_source_system, &us) ? us.dli_fname : NULL, *end = path ? strstr(path, "-packages/") : NULL;

    if (!end)
        return false;
    base_format(folder, bytes, "%.*s", (int)(end - path) + (int)strlen("-packages"), path);
    return true;
}

static bool in_environment(const char *variable, char *folder, size_t bytes)
{
    char pattern[512];
    glob_t found;
    const char *root = getenv(variable);

    if (!root || !*root)
        return false;
    base_format(pattern, sizeof pattern, "%s/lib/python3*/site-packages", root);
    bool is_there = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc;
    if (is_there)
        base_copy_text(folder, bytes, found.gl_pathv[0]);
    globfree(&found);
    return is_there;
}

static bool system_packages(uint32_t n, char *folder, size_t bytes)
{
    static const char *const variables[] = {NULL, "VIRTUAL_ENV", "CONDA_PREFIX"};

    if (n >= sizeof variables / sizeof *variables)
        return false;
    bool found = variables[n] ? in_environment(variables[n], folder, bytes) : beside_us(folder, bytes);
    if (!found)
        folder[0] = 0;
    return true;
}

const struct cuda_source cuda_source_system = {system_open, system_symbol, system_close, system_packages};

/* Returns the first missing symbol, or NULL when all were found and the table is filled. */
static const char *fill(const struct cuda_source *source, void *library, const struct symbol *symbols, size_t count, void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *found = source->symbol(library, symbols[i].name);
        if (!found)
            return symbols[i].name;
        memcpy((char *)table + symbols[i].at, &found, sizeof found);
    }
    return NULL;
}

/* Sets the entry points that are there, and NULL for the rest. has: the library is new enough for any. */
static void fill_newer(const struct cuda_source *source, void *library, const struct symbol *symbols, size_t count, bool has, void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *found = has ? source->symbol(library, symbols[i].name) : NULL;
        memcpy((char *)table + symbols[i].at, &found, sizeof found);
    }
}

/* ------------------------------------------------------------------------------------------------------------ the driver */
static const char *driver_text(const struct cuda_calls *calls, unsigned result)
{
    const char *text = NULL;

    return calls->cuGetErrorName(result, &text) == CUDA_OK && text ? text : "unknown error";
}

static enum comm_result start_driver(const struct cuda_calls *calls, int *devices, char *why, size_t why_bytes)
{
    int version = 0;
    unsigned result = calls->cuDriverGetVersion(&version);

    *devices = 0;
    if (result == CUDA_OK && version > 0 && version < DRIVER_OLDEST) {
        base_format(why, why_bytes, "the NVIDIA driver is too old: it is for CUDA %d.%d; expected one for CUDA 12.0 or newer",
                    version / 1000, version % 1000 / 10);
        return COMM_ERR_UNSUPPORTED;
    }
    result = calls->cuInit(0);
    if (result == CUDA_STUB_LIBRARY)
        base_format(why, why_bytes, "no NVIDIA driver: libcuda.so.1 is the toolkit's stub; take its folder out of LD_LIBRARY_PATH");
    else if (result == CUDA_NO_DEVICE)
        base_format(why, why_bytes, "no NVIDIA device: the driver is here and finds none (is CUDA_VISIBLE_DEVICES empty?)");
    else if (result != CUDA_OK || version == 0)
        base_format(why, why_bytes, "the NVIDIA driver does not start: cuInit says %s (%u), version %d", driver_text(calls, result), result,
                    version);
    if (result != CUDA_OK || version == 0)
        return COMM_ERR_UNSUPPORTED;
    result = calls->cuDeviceGetCount(devices);
    if (result == CUDA_OK && *devices > 0)
        return COMM_OK;
    base_format(why, why_bytes, "no NVIDIA device: the driver counts %d (%s)", *devices, driver_text(calls, result));
    return COMM_ERR_UNSUPPORTED;
}

bool cuda_launches_block(void)
{
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");

    return text && *text && strcmp(text, "0") != 0;
}

static bool has_newer(const struct cuda_calls *calls)
{
    int version = 0;

    return calls->cuDriverGetVersion(&version) == CUDA_OK && version >= DRIVER_NEWER;
}

enum comm_result cuda_load_driver(const struct cuda_source *source, struct cuda_calls *calls, int *devices, char *why, size_t why_bytes)
{
    char text[256] = "";
    void *library = source->open("libcuda.so.1", text, sizeof text);

    if (!library) {
        base_format(why, why_bytes, "no NVIDIA driver (%s); install the driver of this machine's GPU", text);
        return COMM_ERR_UNSUPPORTED;
    }
    const char *missing = fill(source, library, driver_symbols, sizeof driver_symbols / sizeof *driver_symbols, calls);
    enum comm_result r = COMM_ERR_UNSUPPORTED;
    if (missing)
        base_format(why, why_bytes, "the NVIDIA driver is too old: it has no %s; expected one for CUDA 12.0 or newer", missing);
    else
        r = start_driver(calls, devices, why, why_bytes);
    if (r == COMM_OK) {
        fill_newer(source, library, driver_newer, sizeof driver_newer / sizeof *driver_newer, has_newer(calls), calls);
        fill_newer(source, library, driver_share, sizeof driver_share / sizeof *driver_share, true, calls);
    }
    if (r != COMM_OK)
        source->close(library);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ NCCL */
/*
 * Sets the environment variables that this backend relies on. Variables that the program has set stay as they are. NCCL reads them once,
 * when the first communicator is created.
 * - NCCL_RUNTIME_CONNECT=0: by default NCCL connects an algorithm in the first call that uses it, which blocks until all ranks call it.
 * - NCCL_LAUNCH_ORDER_IMPLICIT=1: by default two communicators whose kernels do not fit on the device together may wait for each other.
 * - NCCL_SOCKET_IFNAME: NCCL's connections use the network interfaces that the program chose for this library.
 */
static void prepare_nccl(void)
{
    const char *interfaces = getenv("COMM_SOCKET_IFNAME");

    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    if (interfaces && *interfaces && !strchr(interfaces, '/')) /* NCCL takes the same names, but no networks (10.0.0.0/8) */
        setenv("NCCL_SOCKET_IFNAME", interfaces, 0);
}

/* First asks the dynamic loader, which also finds a library of that name that the process has already loaded. Then looks in Python packages
 * (nvidia-nccl-cu12, nvidia-nccl-cu13). */
static void *open_nccl(const struct cuda_source *source, char *why, size_t why_bytes)
{
    char folder[512], path[600], ignored[256];
    void *library = source->open("libnccl.so.2", why, why_bytes);

    for (uint32_t n = 0; !library && source->packages(n, folder, sizeof folder); n++) {
        base_format(path, sizeof path, "%s/nvidia/nccl/lib/libnccl.so.2", folder);
        library = folder[0] ? source->open(path, ignored, sizeof ignored) : NULL;
    }
    return library;
}

enum comm_result cuda_load_nccl(const struct cuda_source *source, struct nccl_calls *calls, int *version, char *why, size_t why_bytes)
{
    char text[256] = "";

    prepare_nccl();
    void *library = open_nccl(source, text, sizeof text);

    *version = 0;
    if (!library) {
        base_format(why, why_bytes,
                    "no NCCL (%s); install it (Debian and Ubuntu: libnccl2 of NVIDIA's "
                    "repository; Python: nvidia-nccl-cu12 or -cu13 in the active environment) or put its folder on LD_LIBRARY_PATH",
                    text);
        return COMM_ERR_UNSUPPORTED;
    }
    const char *missing = fill(source, library, nccl_symbols, sizeof nccl_symbols / sizeof *nccl_symbols, calls);
    unsigned result = missing ? NCCL_INTERNAL_ERROR : calls->ncclGetVersion(version);
    if (!missing && result == NCCL_OK && *version >= NCCL_OLDEST) {
        fill_newer(source, library, nccl_memory, sizeof nccl_memory / sizeof *nccl_memory, *version >= NCCL_WITH_MEMORY, calls);
        fill_newer(source, library, nccl_windows, sizeof nccl_windows / sizeof *nccl_windows, *version >= NCCL_WITH_WINDOWS, calls);
        fill_newer(source, library, nccl_newer, sizeof nccl_newer / sizeof *nccl_newer, *version >= NCCL_WITH_REVOKE, calls);
        return COMM_OK;
    }
    if (missing)
        base_format(why, why_bytes, "NCCL is too old: libnccl.so.2 has no %s; expected 2.18 or newer", missing);
    else if (result != NCCL_OK)
        base_format(why, why_bytes, "NCCL does not tell its version: %s (%u)", calls->ncclGetErrorString(result), result);
    else
        base_format(why, why_bytes, "NCCL %d.%d.%d is too old; expected 2.18 or newer", *version / 10000, *version / 100 % 100,
                    *version % 100);
    source->close(library);
    return COMM_ERR_UNSUPPORTED;
}
