/* What the files of the mpi module share. Each MPI library that is found gets a module of its own, compiled with its header: the ABIs of
 * Open MPI and MPICH differ. */
#ifndef NET_MPI_MODULE_H
#define NET_MPI_MODULE_H

#include <mpi.h>
#include <pthread.h>

#include "net/mpi/large.h"
#include "wire/module.h"

/* Codes of our own, beside MPI's, which are not negative. */
enum { MPI_OVER = -1, MPI_OTHER_THREAD = -2 };
enum mpi_join_state { MPI_JOINING = 0, MPI_JOINED = 1, MPI_JOIN_FAILED = 2 };
enum { MPI_TYPES = 64 /* above every enum comm_type */ };

/* What MPI has once per process. */
struct mpi_world {
    struct native handle; /* first */
    MPI_Comm base;        /* a copy of MPI_COMM_WORLD, ranks in our order; where the world is a part of that, MPI_COMM_NULL */
    MPI_Comm parent;      /* that communicators are created from: base, or MPI_COMM_WORLD where the world is a part of it */
    int parent_rank;      /* this rank's in parent */
    int rank, ranks, level;
    bool shared;    /* level is MULTIPLE: any thread of ours may call MPI */
    bool locks;     /* level is SERIALIZED: any thread of the program, one at a time */
    pthread_t only; /* below: this one */
    bool base_taken;
    bool has_rules; /* all ranks have agreed on them */
    int tags_each;  /* tags of MPI_Comm_create_group on parent that each of its ranks may give out at once, at most 64; 0: none */
    int first_tag;  /* of its rank 0 */
    _Atomic uint64_t *tags_taken;  /* of this rank's, a bit each */
    _Atomic uint64_t own_tags;     /* where parent is ours alone */
    uint32_t rules[MPI_TYPES];     /* by type, a bit per operator: on every rank MPI does it as this library does */
    const struct mpi_large *large; /* MPI's calls with MPI_Count; NULL: it has only those with int */
    size_t most, most_bytes;       /* elements that a call can count, and bytes that it can move */
};

struct mpi_pending {
    uint64_t cookie;
    void *vectors; /* v forms: counts and displacements of out, then of in, as MPI counts; in place until it ended; kept for the next */
    void *stage;   /* memory of ours for a result that MPI cannot put where it belongs; kept for the next */
    size_t stage_bytes;
    void *to; /* where that result belongs, or NULL */
    size_t to_bytes;
};

/* A communicator's. `request` and `pending` are dense and in step. */
struct mpi_channel {
    struct native_channel handle; /* first */
    struct mpi_world *world;
    MPI_Comm comm;
    int size, rank;
    bool owns_comm;
    bool begun; /* creating its MPI_Comm */
    uint32_t count, room;
    MPI_Request *request;
    struct mpi_pending *pending;
    int *index; /* of MPI_Testsome */
    MPI_Status *status;
    /* while it connects: a thread of its own, since MPI_Comm_create_group blocks */
    _Atomic int state;  /* enum mpi_join_state */
    _Atomic int owners; /* the communicator, and the thread while it runs: the last one frees */
    int *members;
    int tag, code; /* tag: -1 until it is known */
    int tag_taken; /* at its first member: which of this rank's, or -1 */
};

/* The issue lock: around every call of MPI at MPI_THREAD_SERIALIZED. The process's, as MPI is. */
extern pthread_mutex_t mpi_issue;
static inline void mpi_enter(const struct mpi_world *w)
{
    if (w->locks)
        pthread_mutex_lock(&mpi_issue);
}
static inline void mpi_exit(const struct mpi_world *w)
{
    if (w->locks)
        pthread_mutex_unlock(&mpi_issue);
}
/* Below MPI_THREAD_SERIALIZED only one thread may call MPI at all. */
static inline bool mpi_may_call(const struct mpi_world *w)
{
    return w->shared || w->locks || pthread_equal(w->only, pthread_self());
}

/* Finalised, by whomever, or just being so: no call of MPI may follow. */
extern _Atomic int mpi_over;
static inline bool mpi_is_over(void)
{
    return atomic_load_explicit(&mpi_over, memory_order_relaxed) != 0;
}

/* world.c: MPI's own life */
enum comm_result mpi_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES]);
enum comm_result mpi_open(const struct native_config *config, struct native **native);
void mpi_close(struct native *native);
void mpi_keep(void);   /* something unfinished stays: MPI is not finalised by us any more */
void mpi_failed(void); /* a communicator failed: the same */

void mpi_agree_on_rules(struct mpi_world *w, MPI_Comm comm); /* collective over comm, which has all ranks of the world */

/* channel.c */
enum comm_result mpi_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                          struct native_channel **channel);
enum comm_result mpi_joined(struct native_channel *channel);
uint32_t mpi_leave(struct native_channel *channel, enum wire_leave how);

/* types.c */
MPI_Datatype mpi_type_moved(size_t element_bytes); /* MPI_DATATYPE_NULL: there is none of that width */
MPI_Datatype mpi_type_number(enum comm_type type); /* MPI_DATATYPE_NULL: MPI does not calculate with it */
MPI_Op mpi_operator(comm_op op);                   /* MPI_OP_NULL: MPI has none like it */
/* Calculates on this rank with every type and operator that MPI has and compares. */
void mpi_rules_here(uint32_t rules[MPI_TYPES]);

/* accept.c */
enum comm_result mpi_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes);

/* issue.c: one call of MPI for an accepted call. False: no memory. */
bool mpi_prepare(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p);
int mpi_issue_one(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request);

/* calls.c */
enum comm_result mpi_start(struct native_channel *channel, const struct native_call *call, int32_t *code);
uint32_t mpi_advance(struct native_channel *channel, struct native_event *events, uint32_t max);

static inline struct mpi_channel *mpi_channel_of(struct native_channel *channel)
{
    return (struct mpi_channel *)channel;
}

#endif
