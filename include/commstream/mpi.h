/**
 * @file mpi.h
 * @brief Communicators of MPI become communicators of this library, and the other way round.
 *
 * These functions are compiled into the program, with the program's own mpi.h, which must be found when this header is included. The
 * library itself is linked with no MPI. They call MPI on the calling thread only, so MPI may have any thread level, and only inside
 * comm_mpi_open() and comm_mpi_give(). <commstream/commstream.h> does not include this header.
 *
 * MPI may be finalized before or after the communicators are closed. An exception is backend=mpi and backend=shm+mpi, which use MPI
 * underneath: close those first.
 */
#ifndef COMMSTREAM_MPI_H
#define COMMSTREAM_MPI_H

#include <commstream/open.h>
#include <commstream/result.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @cond */
/* Not for programs: how comm_mpi_open() lets ranks meet. */
static inline int comm_mpi_exchange(void *arg, const void *in, size_t bytes, void *out)
{
    return bytes > 0x7fffffff || MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, *(MPI_Comm *)arg) != MPI_SUCCESS;
}

/* Not for programs: says why in config's error_text. */
static inline enum comm_result comm_mpi_complain(const struct comm_config *config, enum comm_result result, const char *text)
{
    if (config->error_text && config->error_text_bytes)
        snprintf(config->error_text, config->error_text_bytes, "comm_mpi_open: %s", text);
    return result;
}

/* Not for programs: 1 where the ranks of mpi share a host, 0 where not, -1 after an error; equal on all ranks. */
static inline int comm_mpi_one_host(MPI_Comm mpi)
{
    MPI_Comm host;
    int all = 0, here = 0, one = 0;

    if (MPI_Comm_size(mpi, &all) != MPI_SUCCESS || MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) != MPI_SUCCESS)
        return -1;
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    here = here == all;
    return MPI_Allreduce(&here, &one, 1, MPI_INT, MPI_MIN, mpi) == MPI_SUCCESS ? one : -1;
}
/** @endcond */

/**
 * Opens a world of the ranks of an MPI communicator, in its order.
 *
 * Collective over mpi. The ranks meet by MPI_Allgather on it, so neither a launcher's variables nor an address is needed. Any backend can
 * be used: by default shared memory within a host and TCP between hosts. The communicator may have all ranks of MPI_COMM_WORLD or some, in
 * any order. backend=shm+mpi needs MPI_THREAD_MULTIPLE. Below that level, open one world of some of the ranks at a time with backend=mpi.
 * Like comm_open(), it blocks at most open_timeout_ns, except inside calls of MPI.
 *
 * @param mpi     a communicator (no intercommunicator) between MPI_Init and MPI_Finalize. The library keeps nothing of it
 * @param config  as for comm_open(); rank, ranks, address, id and exchange are ignored. NULL: all default
 * @param world   receives the communicator; close it with comm_close()
 * @return as comm_open(); COMM_ERR_STATE if MPI is not initialized or already finalized; COMM_ERR_ARGUMENT if mpi is an intercommunicator
 * or MPI_COMM_NULL; COMM_ERR_BACKEND after an error of MPI
 */
static inline enum comm_result comm_mpi_open(MPI_Comm mpi, const struct comm_config *config, struct comm_communicator **world)
{
    struct comm_config own;
    int started = 0, ended = 0, inter = 0, rank = 0, ranks = 0;

    memset(&own, 0, sizeof own);
    if (config)
        memcpy(&own, config, config->size < sizeof own ? config->size : sizeof own);
    own.size = sizeof own;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (!started || ended)
        return comm_mpi_complain(&own, COMM_ERR_STATE,
                                 started ? "MPI_Finalize was called" : "MPI is not initialized; call MPI_Init before");
    if (mpi == MPI_COMM_NULL || (MPI_Comm_test_inter(mpi, &inter) == MPI_SUCCESS && inter))
        return comm_mpi_complain(&own, COMM_ERR_ARGUMENT,
                                 inter ? "mpi is an intercommunicator; MPI_Intercomm_merge makes it one group of ranks"
                                       : "mpi is MPI_COMM_NULL; expected a communicator that this rank is in");
    int one_host = comm_mpi_one_host(mpi);
    if (one_host < 0 || MPI_Comm_rank(mpi, &rank) != MPI_SUCCESS || MPI_Comm_size(mpi, &ranks) != MPI_SUCCESS)
        return comm_mpi_complain(&own, COMM_ERR_BACKEND, "MPI reported an error of this communicator");
    own.rank = rank;
    own.ranks = ranks;
    own.address = NULL;
    own.id = NULL;
    own.exchange = comm_mpi_exchange;
    own.exchange_arg = &mpi;
    if (!own.backend && !one_host)
        own.backend = "shm+tcp";
    return comm_open(&own, world);
}

/**
 * Makes an MPI communicator of the members of c, in their order.
 *
 * Collective over the members of c. It blocks as long as MPI_Comm_create_group, which it calls.
 *
 * @param c      a communicator: the world, or one that was made from it, by comm_split() for example
 * @param world  the world that comm_mpi_open() opened from mpi
 * @param mpi    the MPI communicator that the world was opened from
 * @param tag    as in MPI_Comm_create_group: different for calls of overlapping members at the same time
 * @param made   receives the MPI communicator; the caller frees it with MPI_Comm_free
 * @return COMM_OK; COMM_ERR_ARGUMENT if a member of c is no rank of world; COMM_ERR_MEMORY; COMM_ERR_BACKEND after an error of MPI
 */
static inline enum comm_result comm_mpi_give(const struct comm_communicator *c, const struct comm_communicator *world, MPI_Comm mpi,
                                             int tag, MPI_Comm *made)
{
    int size = comm_size(c), known = 1;
    int *member = (int *)malloc((size_t)(size > 0 ? size : 1) * sizeof *member);
    MPI_Group all, group;
    int code;

    if (!member)
        return COMM_ERR_MEMORY;
    for (int i = 0; i < size; i++) {
        member[i] = comm_translate(c, i, world);
        known = known && member[i] >= 0;
    }
    if (!known || size < 1) {
        free(member);
        return COMM_ERR_ARGUMENT;
    }
    code = MPI_Comm_group(mpi, &all);
    if (code == MPI_SUCCESS) {
        code = MPI_Group_incl(all, size, member, &group);
        if (code == MPI_SUCCESS) {
            code = MPI_Comm_create_group(mpi, group, tag, made);
            MPI_Group_free(&group);
        }
        MPI_Group_free(&all);
    }
    free(member);
    return code == MPI_SUCCESS ? COMM_OK : COMM_ERR_BACKEND;
}

#ifdef __cplusplus
}
#endif

#endif
