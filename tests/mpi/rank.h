/* What the files of mpi_ranks share: one rank of a world over MPI. */
#ifndef TESTS_MPI_RANK_H
#define TESTS_MPI_RANK_H

#include "conform/job.h"

struct mpi_rank {
    int32_t rank, ranks;
    char library[64]; /* MPI's name and version */
    bool programs;    /* backend shm+mpi: the library's own programs run the collectives, and MPI is only their wire */
};
extern struct mpi_rank me;

/* rank.c: opens the world and sets me. */
struct comm_communicator *rank_open(const char *options);
/* Whether results can be compared: MPI may sum floats in another order, which matters from three ranks on. */
bool rank_exact(const struct job_shape *s, bool fixed);

/* Waits until that rank has printed "rank N: what...". A launcher may end all ranks when the first one has exited with MPI open. */
void rank_await(int32_t rank, const char *what);

/* calls.c */
void rank_calls(void); /* the calls that no other test over MPI makes */

/* cells.c */
void rank_cells(void); /* for each collective, type and operator: the way that the table gives is taken, and explain reports the same */
void rank_large(void); /* more elements than an int can count */

/* apart.c */
void rank_apart(bool in_place); /* some ranks give their input in place; or one rank is far ahead */

/* many.c */
void rank_many(void); /* more ranks than have connections to all others */

/* broken.c */
void rank_differ(size_t n); /* calls that differ */
void rank_edge(void);       /* rank 1 sends the root more than the root receives */
void rank_killed(void);
void rank_cut(void);
void rank_leave(void); /* exits while its world is open */

/* exits.c: rank 1 dies, and the others exit all the same */
void rank_dies_last(void);      /* when all have closed */
void rank_dies_beside(void);    /* when only a communicator without MPI_Comm is open */
void rank_dies_meanwhile(void); /* while the others close */

/* late.c */
void rank_late(void);    /* ranks that wait for each other, a call that comes late, and one that comes after its deadline */
void rank_stopped(void); /* a rank is stopped, and continues in time, or too late */

#endif
