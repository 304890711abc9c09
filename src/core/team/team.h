/* team: the members of a communicator, with their world ranks and identity; how split divides them; and how a process learns its rank from
 * its launcher. */
#ifndef TEAM_TEAM_H
#define TEAM_TEAM_H

#include "wire/native.h"

enum { TEAM_RANKS_MAX = 65535 }; /* of a world: a wire names peers in 16 bits */

struct team {
    uint64_t id; /* equal on all members: hash of (parent's id, sequence number, color) */
    int32_t rank, size;
    int32_t *world;           /* world rank of each member; owned by the team */
    uint32_t depth, reserved; /* 0: the world itself */
};

enum comm_result team_world(const struct comm_env *env, uint64_t job, int32_t rank, int32_t size, struct team *team);
/* members: ranks of the parent, in their new order. */
enum comm_result team_subset(const struct comm_env *env, const struct team *parent, uint64_t number, uint64_t color, const int32_t *members,
                             int32_t count, struct team *team);
void team_free(const struct comm_env *env, struct team *team);
int32_t team_find(const struct team *team, int32_t world); /* the rank, or -1 */

/* What one rank offers for a new communicator: its wire's part, then its native's part, if has_native is set. */
struct team_offer {
    uint8_t wire[WIRE_OFFER_BYTES];
    uint8_t native[NATIVE_OFFER_BYTES];
    uint32_t has_native, reserved;
};

/* What one rank contributes to a split; the parent gathers it from all ranks. */
struct team_ticket {
    int64_t color;       /* negative: the rank takes no part */
    int32_t key, result; /* result: not OK if the rank could not create its channel; then all ranks fail alike */
    struct team_offer offer;
};
/* Picks the members with the color of rank `mine`, sorted by (key, old rank), into members[]. Returns their count. */
int32_t team_pick(const struct team_ticket *tickets, int32_t size, int32_t mine, int32_t *members);

/* The launcher of this process, found from the environment: comm-run, torchrun, Open MPI, hydra (MPICH), SLURM, Kubernetes, or the
 * variables of cobre. */
struct team_launch {
    const char *launcher; /* "none" if no launcher was found: a world of one rank */
    const char *why;      /* the variable that identified it */
    int32_t rank, ranks, local_rank, local_ranks;
    char job[128];     /* equal on all ranks of this job, and different from any other job on this host */
    char address[288]; /* HOST:PORT of rank 0, if the launcher's variables tell it; otherwise empty */
    const char *store; /* in which ranks without a secret may meet instead of at `address`; NULL: there is none, or `address` is it */
};
/* CONFIG: variables contradict each other or are out of range; the text names each of them. */
enum comm_result team_launch_find(const struct comm_env *env, struct team_launch *launch, char *text, size_t text_bytes);
/* The SLURM job that this process runs in, whatever its launcher; "" outside of one. */
const char *team_slurm_job(const struct comm_env *env);
/* False: the job spans several hosts, and the text says what that needs. */
bool team_launch_one_host(const struct team_launch *launch, char *text, size_t text_bytes);

#endif
