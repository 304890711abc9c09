/* Opens a library that has the standard ABI of MPI. It stays open until the process ends, as MPI does. */
#define _GNU_SOURCE
#include "net/mpi/library.h"

#include "net/mpi/large.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct mpi_abi mpi_abi;
static void *library;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* threads may open worlds at once, and need all of mpi_abi */

void *mpi_library_symbol(const char *name)
{
    return dlsym(library, name);
}

static enum comm_result complain(const struct native_config *config, const char *path, const char *what)
{
    if (config->error_text && config->error_text_bytes)
        snprintf(config->error_text, config->error_text_bytes, "%s: %s; expected libmpi_abi.so of an MPI 5.0, such as MPICH 5", path, what);
    return COMM_ERR_UNSUPPORTED;
}

static enum comm_result look_up(const struct native_config *config, const char *path)
{
    static const char *const names[] = {
#define MPI_ABI_NAME(name, parameters) "MPI_" #name,
        MPI_ABI_CALLS(MPI_ABI_NAME)
#undef MPI_ABI_NAME
    };
    char what[128];
    int version = 0, part = 0;

    _Static_assert(sizeof mpi_abi == sizeof names, "one pointer for each name");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *at = mpi_library_symbol(names[i]);
        if (!at) {
            snprintf(what, sizeof what, "it has no %s", names[i]);
            return complain(config, path, what);
        }
        memcpy((char *)&mpi_abi + i * sizeof at, &at, sizeof at);
    }
    if (!mpi_large_find())
        return complain(config, path, "it lacks nonblocking collectives that count with MPI_Count");
    if (MPI_Abi_get_version(&version, &part) != MPI_SUCCESS || version != MPI_ABI_VERSION) {
        snprintf(what, sizeof what, "its ABI is version %d.%d, and this module knows %d", version, part, MPI_ABI_VERSION);
        return complain(config, path, what);
    }
    return COMM_OK;
}

static enum comm_result open_once(const struct native_config *config)
{
    const char *path = config->library ? config->library : "libmpi_abi.so.1";

    if (library)
        return COMM_OK;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return complain(config, path, dlerror());
    enum comm_result r = look_up(config, path);
    if (r != COMM_OK) {
        dlclose(library);
        library = NULL;
    }
    return r;
}

enum comm_result mpi_library_open(const struct native_config *config)
{
    pthread_mutex_lock(&opening);
    enum comm_result r = open_once(config);
    pthread_mutex_unlock(&opening);
    return r;
}
