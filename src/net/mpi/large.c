/* Finds the calls with MPI_Count in the MPI library of this process. */
#include "net/mpi/large.h"

#include "net/mpi/library.h"

#include <string.h>

_Static_assert(sizeof(MPI_Count) == sizeof(size_t) && sizeof(MPI_Aint) == sizeof(size_t), "v forms fill one kind of words");

const struct mpi_large *mpi_large_find(void)
{
    static struct mpi_large found;
    static const char *const names[] = {
#define MPI_LARGE_NAME(name, parameters) "MPI_" #name "_c",
        MPI_LARGE_CALLS(MPI_LARGE_NAME)
#undef MPI_LARGE_NAME
    };

    _Static_assert(sizeof found == sizeof names, "one pointer for each name");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *at = mpi_library_symbol(names[i]);
        if (!at)
            return NULL;
        memcpy((char *)&found + i * sizeof at, &at, sizeof at);
    }
    return &found;
}
