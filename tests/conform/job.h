/*
 * job: one call of one collective on all ranks of a communicator, with its data, the expected contents of every rank's
 * memory (canaries on both sides, holes, inputs that nobody may write), and the comparison. Jobs are prepared before
 * anything is issued, so that many can be in flight and any thread may issue a rank's part.
 */
#ifndef CONFORM_JOB_H
#define CONFORM_JOB_H

#include "conform/oracle.h"
#include "conform/rig.h"

enum job_kind {
    JOB_BARRIER,
    JOB_BROADCAST,
    JOB_REDUCE,
    JOB_ALLREDUCE,
    JOB_ALLGATHER,
    JOB_ALLGATHER_V,
    JOB_REDUCE_SCATTER,
    JOB_SCAN,
    JOB_EXSCAN,
    JOB_GATHER,
    JOB_GATHER_V,
    JOB_SCATTER,
    JOB_SCATTER_V,
    JOB_ALLTOALL,
    JOB_ALLTOALL_V,
    JOB_REDUCE_SCATTER_V,
    JOB_KINDS
};
extern const char *const job_kind_names[JOB_KINDS];
bool job_kind_reduces(enum job_kind kind);
bool job_kind_has_root(enum job_kind kind);
bool job_kind_in_place(enum job_kind kind); /* whether the kind has such a form */

struct job_shape {
    enum job_kind kind;
    enum comm_type type;
    comm_op op;
    int32_t root;
    size_t n;
    bool in_place;
    bool exact; /* inputs whose reduction has one result in every order of operands: oracle_has_exact */
    uint64_t seed;
    const size_t *counts; /* of each rank's block, in allgather_v and reduce_scatter_v; NULL: drawn, up to n */
};

/* A rank's buffer between canaries: its contents, and the expected ones. */
struct job_region {
    unsigned char *at, *want;
    size_t lead, bytes, total; /* the payload is at + lead, `bytes` long */
};

/* Where each rank's block lies in one rank's buffer. */
struct job_layout {
    size_t counts[RIG_RANKS_MAX], displs[RIG_RANKS_MAX];
    bool dense; /* displs are not passed */
};

struct job {
    struct job_shape shape;
    int32_t ranks;
    struct job_region in[RIG_RANKS_MAX], out[RIG_RANKS_MAX];
    size_t pair[RIG_RANKS_MAX][RIG_RANKS_MAX]; /* elements that one rank sends to another */
    struct job_layout from[RIG_RANKS_MAX], to[RIG_RANKS_MAX];
    struct comm_request request[RIG_RANKS_MAX];
};

void job_prepare(struct job *job, const struct job_shape *shape, int32_t ranks);
/* Makes the call of one rank; returns its result unchanged. */
enum comm_result job_issue(struct job *job, int32_t rank, struct comm_communicator *c);
/* All requests are complete: compares all memory of one rank, and fails at the first difference. */
void job_verify(const struct job *job, int32_t rank);
void job_free(struct job *job);
const char *job_text(const struct job *job, char text[160]);

#endif
