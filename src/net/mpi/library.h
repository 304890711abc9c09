/* Where a module's MPI comes from: it is linked with one (library.c), or opens one while the program runs (abi/library.c). */
#ifndef NET_MPI_LIBRARY_H
#define NET_MPI_LIBRARY_H

#include <mpi.h>

#include "wire/native.h"

/* Before any call of MPI. UNSUPPORTED: there is none, and why. */
enum comm_result mpi_library_open(const struct native_config *config);
/* A call that the library may have; NULL: it has not. */
void *mpi_library_symbol(const char *name);

#endif
