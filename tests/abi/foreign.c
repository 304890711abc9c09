/* The public handle beside foreign names, in C: a struct comm, the usual variables, and MPI where it is here (-DWITH_MPI). */
#include "foreign.h"
#ifdef WITH_MPI
#    include <mpi.h>
#endif
#include <commstream/comm.h>

struct comm {
    int rank;
};
typedef struct comm comm_t;

static int comm(struct comm *comm)
{
    return comm->rank;
}

int foreign(void);
int foreign(void)
{
    struct comm mine = {3};
    comm_t *event = &mine;
    struct comm_config *config = COMM_CONFIG(.ranks = 2, .rank = 1);
    struct comm_request request = COMM_REQUEST_NONE;
    return comm(event) + config->rank + (int)request.ticket;
}
