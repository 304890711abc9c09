/* Looks up the collectives that the MPI library of this process may lack. */
#include "net/mpi/large.h"

#include "net/mpi/library.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(MPI_Count) == sizeof(size_t) && sizeof(MPI_Aint) == sizeof(size_t), "v forms fill one kind of words");

#define NAME_LARGE(name, persistent, parameters) "MPI_" #name "_c",
#define NAME_STANDING(name, persistent, parameters) "MPI_" #persistent,
#define NAME_STANDING_LARGE(name, persistent, parameters) "MPI_" #persistent "_c",

/* `to` is a structure of `bytes`, with a pointer for each name. */
static bool find(void *to, size_t bytes, const char *const *names)
{
    for (size_t at = 0; at < bytes; at += sizeof(void *)) {
        void *call = mpi_library_symbol(*names++);
        if (!call)
            return false;
        memcpy((char *)to + at, &call, sizeof call);
    }
    return true;
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
