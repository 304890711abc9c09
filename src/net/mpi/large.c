/* Looks up the collectives that the MPI library of this process may lack. */
#include "net/mpi/large.h"

#include "net/mpi/library.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(MPI_Count) == sizeof(size_t) && sizeof(MPI_Aint) == sizeof(size_t), "v forms fill one kind of words");

#define NAME_LARGE(name, persistent, parameters) "MPI_" #name "_c",
#define NAME_STANDING(name, persistent, parameters) "MPI_" #persistent,
#define NAME_STANDING_LARGE(name, persistent, parameters) "MPI_" #persistent "_c",

/* `to` is a structure of `bytes`, with a pointer for each name. Several threads may look; the first one fills it, before any calls it. */
static bool find(void *to, size_t bytes, const char *const *names)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool all = true;

    pthread_mutex_lock(&lock);
    for (size_t at = 0; all && at < bytes; at += sizeof(void *)) {
        void *call = mpi_library_symbol(*names++);
        all = call != NULL;
        if (all && memcmp((char *)to + at, &call, sizeof call) != 0)
            memcpy((char *)to + at, &call, sizeof call);
    }
    pthread_mutex_unlock(&lock);
    return all;
}

const struct mpi_large *mpi_large_find(void)
{
    static struct mpi_large found;
    static const char *const names[] = {MPI_COLLECTIVES(NAME_LARGE, , , )};

    _Static_assert(sizeof found == sizeof names, "one pointer for each name");
    return find(&found, sizeof found, names) ? &found : NULL;
}

const struct mpi_standing_large *mpi_standing_large_find(void)
{
    static struct mpi_standing_large found;
    static const char *const names[] = {MPI_COLLECTIVES(NAME_STANDING_LARGE, , , ) "MPI_Barrier_init"};

    _Static_assert(sizeof found == sizeof names, "one pointer for each name");
    return find(&found, sizeof found, names) ? &found : NULL;
}

const struct mpi_standing_int *mpi_standing_int_find(void)
{
    static struct mpi_standing_int found;
    static const char *const names[] = {MPI_COLLECTIVES(NAME_STANDING, , , ) "MPI_Barrier_init"};

    _Static_assert(sizeof found == sizeof names, "one pointer for each name");
    return find(&found, sizeof found, names) ? &found : NULL;
}
