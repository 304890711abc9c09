/* How a module gets its MPI library: it is linked with one (library.c), or it opens one at run time (abi/library.c). */
#ifndef NET_MPI_LIBRARY_H
#define NET_MPI_LIBRARY_H

#include <mpi.h>

#include "wire/native.h"

/* Must precede every call of MPI. Returns UNSUPPORTED, with the reason, if there is no library. */
enum comm_result mpi_library_open(const struct native_config *config);
/* Looks up a call that the library may lack. Returns NULL if it does. */
void *mpi_library_symbol(const char *name);

#endif
