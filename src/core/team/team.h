/* team: who. The identity of a communicator, its members' world ranks, what split makes of it, and how a process learns its rank from
 * whoever launched it. */
#ifndef TEAM_TEAM_H
#define TEAM_TEAM_H

#include "wire/native.h"

struct team {
    uint64_t id; /* equal on all members: hash of (parent's id, sequence number, color) */
    int32_t rank, size;
    int32_t *world;           /* world rank of each member, owned */
    uint32_t depth, reserved; /* 0: the world itself */
};

enum comm_result team_world(const struct comm_env *env, uint64_t job, int32_t rank, int32_t size, struct team *team);
/* members: indices into the parent, in their new order. */
enum comm_result team_subset(const struct comm_env *env, const struct team *parent, uint64_t number, uint64_t color, const int32_t *members,
                             int32_t count, struct team *team);
void team_free(const struct comm_env *env, struct team *team);
int32_t team_find(const struct team *team, int32_t world); /* rank, or -1 */

/* What one rank offers for a new communicator: its wire's part, then its native's, which `has` says is there. */
struct team_offer {
    uint8_t wire[WIRE_OFFER_BYTES];
    uint8_t native[NATIVE_OFFER_BYTES];
    uint32_t has_native, reserved;
};

/* What one rank contributes to a split; gathered from all by the parent. */
struct team_ticket {
    int64_t color;       /* less than 0: takes no part */
    int32_t key, result; /* a rank that could not make its channel says so here, and all fail alike */
    struct team_offer offer;
};
/* The members of `mine`'s color by (key, old rank), written to members[]; their count. */
int32_t team_pick(const struct team_ticket *tickets, int32_t size, int32_t mine, int32_t *members);

/* Who launched this process, from the environment: comm-run, torchrun, Open MPI, hydra (MPICH), SLURM, Kubernetes, cobre's variables. */
struct team_launch {
    const char *launcher; /* "none" when nothing was found: a world of one */
    const char *why;      /* the variable that told */
    int32_t rank, ranks, local_rank, local_ranks;
    char job[128];     /* equal on all ranks of this job, unlike any other job's on this host */
    char address[288]; /* HOST:PORT of rank 0, where the launcher's variables say it; else empty */
};
/* CONFIG: variables that contradict each other or are out of range; every offender is in text. */
enum comm_result team_launch_find(const struct comm_env *env, struct team_launch *launch, char *text, size_t text_bytes);
/* The job of SLURM's in which this process runs, whoever launched it; "" outside of one. */
const char *team_slurm_job(const struct comm_env *env);
/* False: it spans several, and text says what that needs. */
bool team_launch_one_host(const struct team_launch *launch, char *text, size_t text_bytes);

#endif
