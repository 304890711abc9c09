/* Shared by the files of the mpi module. Each MPI library that the build finds gets a module of its own, compiled with that library's
 * header, because Open MPI and MPICH have different ABIs. */
#ifndef NET_MPI_MODULE_H
#define NET_MPI_MODULE_H

#include <mpi.h>
#include <pthread.h>

#include "net/mpi/large.h"
#include "wire/module.h"

/* This library's own codes. They are negative, and MPI's codes are not. */
enum { MPI_OVER = -1, MPI_OTHER_THREAD = -2, MPI_NO_MEMORY = -3 };
enum mpi_join_state { MPI_JOINING = 0, MPI_JOINED = 1, MPI_JOIN_FAILED = 2, MPI_JOIN_LEFT = 3 /* the thread that connects it frees it */ };
enum { MPI_TYPES = 64 /* larger than every enum comm_type */ };

/* What a member of a new MPI_Comm tells the others. */
struct mpi_card {
    int tag; /* all members use the first member's tag */
    int parent_rank;
};

/* What may be inside a call of MPI when the program's MPI_Finalize begins (callers.c). */
struct mpi_caller {
    struct mpi_caller *next;
    pthread_mutex_t *lock; /* held around its calls; NULL: `inside` tells */
    _Atomic bool inside;
};

/* A process of the world (processes.c). */
struct mpi_process {
    uint64_t host; /* 0: unknown */
    int64_t pid;
    uint64_t began;
};

/* What MPI has once per process. */
struct mpi_world {
    struct native handle;   /* first */
    struct mpi_caller wire; /* of the wire over MPI that has this world to itself */
    MPI_Comm base;          /* the ranks in this library's order; MPI_COMM_NULL until the ranks have met and made it */
    MPI_Comm parent;        /* communicators are created from it: base, or MPI_COMM_WORLD until that is made */
    int parent_rank;        /* this rank's rank in parent */
    int rank, ranks, level;
    int *members;   /* room for the ranks of base in parent: taken early, because later the others would wait for a rank without memory */
    bool shared;    /* the level is MULTIPLE: any thread of this library may call MPI */
    bool locks;     /* the level is SERIALIZED: any thread of the program may call MPI, one at a time */
    pthread_t only; /* below SERIALIZED: the only thread that may call MPI */
    bool base_taken;
    int tags_each; /* how many tags of MPI_Comm_create_group each rank of parent can have in use at once, at most 64; 0: none */
    int first_tag; /* the first tag of rank 0 of parent */
    _Atomic uint64_t *tags_taken;  /* one bit for each tag of this rank that is in use */
    _Atomic uint64_t own_tags;     /* used if parent belongs to this library alone */
    uint32_t rules[MPI_TYPES];     /* by type, one bit per operator: set if MPI's result follows this library's rules on every rank */
    data_reduce_fn *average[2];    /* the core's kernels for averages, of f32 and of f64 */
    uint32_t own[MPI_TYPES];       /* the same for others: set if MPI has an operator of this library's for the pair, on every rank */
    const struct mpi_large *large; /* MPI's calls with MPI_Count; NULL: it has only those with int */
    const struct mpi_standing_large
        *standing_large; /* its persistent calls, in the form that has the counts of `large`; the other is NULL */
    const struct mpi_standing_int *standing_int;
    const struct base_log *log; /* NULL: none */
    size_t most, most_bytes;    /* the most elements that a call can count, and the most bytes that it can move */
    uint32_t without;           /* bit collective: this MPI does it wrong */
    uint32_t slow_standing;     /* bit collective: its persistent call is slower than the nonblocking one, unless short */
    uint32_t apart;             /* bit collective: it goes wrong if long and in place on some ranks only */
    bool dies_with_peers;       /* mpi_dies_with_peers */
};

struct mpi_standing;
struct mpi_pending {
    uint64_t cookie;
    struct mpi_standing *standing; /* a start of it; NULL: a nonblocking call. Then the rest is not used */
    void *vectors; /* v forms: counts and displacements of out, then of in; unchanged until the call completes; kept for the next call */
    void *stage;   /* buffer for data that MPI cannot use in place; kept for the next call */
    size_t stage_bytes;
    void *to; /* where the staged result must be copied, or NULL */
    size_t to_bytes;
    void *sums; /* of an average: what the number of ranks then divides; so many elements. 0: nothing */
    size_t averaged;
    enum comm_type type;
};

/* A call of a plan, which is started many times. */
struct mpi_standing {
    struct mpi_standing *next;
    MPI_Request request;
    struct mpi_pending place; /* its vectors and its stage */
    bool is_persistent;       /* otherwise each start is a nonblocking call */
    bool runs;
};

/* The channel of a communicator. `request` and `pending` are dense and have the same order. */
struct mpi_channel {
    struct native_channel handle; /* first */
    struct mpi_caller caller;
    struct mpi_world *world;
    MPI_Comm comm;
    int size, rank;
    bool begun;       /* has begun to create its MPI_Comm */
    bool makes_base;  /* the first channel of all ranks: its MPI_Comm will be base */
    bool told;        /* has logged why it failed */
    bool untouchable; /* a rank is gone, which MPI may not survive: no call of MPI for this channel follows */
    bool in_thread;   /* a thread creates its MPI_Comm; otherwise `joined` does */
    uint32_t count, room;
    MPI_Request *request;
    struct mpi_pending *pending;
    struct mpi_standing *standing; /* the list of them */
    int *index;                    /* result of MPI_Testsome */
    MPI_Status *status;
    /* Used while the channel connects, on a separate thread because MPI_Comm_create_group blocks. */
    _Atomic int state; /* enum mpi_join_state */
    int *members;
    int tag, code; /* tag: -1 until it is known */
    int tag_taken; /* on the first member: the index of this rank's tag that is in use, or -1 */
};

/* The issue lock: held around every call of MPI at MPI_THREAD_SERIALIZED. There is one per process, as there is one MPI. */
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

/* MPI was finalized, by the program or by this library, or is being finalized: no call of MPI may follow. */
extern _Atomic int mpi_over;
static inline bool mpi_is_over(void)
{
    return atomic_load_explicit(&mpi_over, memory_order_relaxed) != 0;
}

/* callers.c. Between the two, and not before, the caller looks whether MPI is over. */
static inline void mpi_go_in(struct mpi_caller *caller)
{
    atomic_store_explicit(&caller->inside, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* mpi_await_callers makes all CPUs keep this order */
}
static inline void mpi_go_out(struct mpi_caller *caller)
{
    atomic_store_explicit(&caller->inside, false, memory_order_release);
}
void mpi_caller_add(struct mpi_caller *caller);
void mpi_caller_remove(struct mpi_caller *caller); /* does nothing if it was not added */
/* Around calls that are rare, by a caller of their own. In between, the thread begins no other: that would wait for MPI_Finalize, which
 * waits for this one. */
void mpi_call_begin(struct mpi_caller *caller);
void mpi_call_end(struct mpi_caller *caller);
void mpi_await_callers(void);

/* processes.c */
struct mpi_process mpi_process_here(void);
/* Keeps those of the world's processes that are on this host. */
void mpi_processes_note(const struct mpi_process *mine, const struct mpi_process *all, int count);
bool mpi_process_has_ended(void); /* one of those that were noted */

/* The core's log, set when the module is loaded. */
extern void (*mpi_log)(const struct base_log *log, int level, const char *line);

/* world.c: start and end of MPI in this process */
extern const struct native_class mpi_native_class;
enum comm_result mpi_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES]);
enum comm_result mpi_open(const struct native_config *config, struct native **native);
void mpi_close(struct native *native);
void mpi_library_text(char *text, size_t bytes); /* the name and the version of the MPI library */
/* Starts MPI, unless it is running. Of no other rank. */
enum comm_result mpi_start_process(const struct native_config *config, int *level);
void mpi_end(int status); /* MPI_Finalize with a bound, in an exit handler. status: of the exit (end.c) */
void mpi_survive_broken_pipes(void);
void mpi_keep(void);   /* MPI still holds something unfinished, so this library must not finalize MPI */
void mpi_failed(void); /* a communicator failed, with the same consequence */
void mpi_tell(const struct mpi_world *w, const char *what, int code);            /* logs MPI's text of this code */
void mpi_explain(struct native *native, int32_t code, char *text, size_t bytes); /* MPI's text of this code, or ours */

/* Makes base. Collective over the ranks of the world, whose cards these are, in order. Blocks until all of them have called it. Gives the
 * tag back, unless it fails. Returns MPI's code. */
int mpi_make_base(struct mpi_world *w, const struct mpi_card *cards, int tag_index);
/* The same, of these ranks of parent. */
int mpi_make_base_of(struct mpi_world *w, const int *members, int tag, int tag_index);

/* channel.c */
int mpi_tag_take(struct mpi_world *w); /* the index of one of this rank's tags, which is now in use; -1: there is none */
void mpi_tag_give(struct mpi_world *w, int index);
struct mpi_card mpi_card_of(const struct mpi_world *w, int tag_index); /* tag_index -1: no tag */
/* Creates the communicator of these ranks of the parent, and waits until all of them have it. Returns MPI's code. */
int mpi_create_group(const struct mpi_world *w, const int *members, int size, int tag, MPI_Comm *comm);
enum comm_result mpi_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                          struct native_channel **channel);
enum comm_result mpi_joined(struct native_channel *channel);
uint32_t mpi_leave(struct native_channel *channel, enum native_leave how);

/* faults.c: what this library does wrong; the last row of the table if nothing is known */
struct mpi_fault {
    const char *library;
    size_t most_bytes; /* of a call */
    uint32_t without;  /* bit collective: programs serve it */
    uint32_t apart;    /* bit collective: a copy replaces its input in place */
    bool stands;       /* persistent collectives are right, as far as tests tell */
    uint32_t slow_standing;
};
const struct mpi_fault *mpi_faults_here(void);
bool mpi_is_later_mpich_over_ucx(void); /* later than 4.0 */
bool mpi_dies_with_peers(void);         /* a call may end this process or never return once another rank has died or exited */

/* types.c */
MPI_Datatype mpi_type_moved(size_t element_bytes); /* MPI_DATATYPE_NULL: MPI has no type of that width */
MPI_Datatype mpi_type_number(enum comm_type type); /* MPI_DATATYPE_NULL: MPI does not calculate with it */
MPI_Op mpi_operator(comm_op op);                   /* MPI_OP_NULL: MPI has no such operator */
/* Computes on this rank with every type and operator that MPI has, and compares the results with this library's rules. own: with the
 * operators that this library gives MPI instead; pairs that `except` has are left out. */
void mpi_rules_here(uint32_t rules[MPI_TYPES], bool own, const uint32_t *except);

/* operators.c */
extern data_reduce_fn *(*mpi_reducer)(enum comm_type type, comm_op op); /* the core's kernels, set when the module is loaded */
/* An operator of MPI that computes with this library's kernel: one for each pair and process, made at the first call, which must be one of
 * a thread that may call MPI. MPI_OP_NULL: MPI makes none, or the table is full. */
MPI_Op mpi_own_operator(enum comm_type type, comm_op op);
/* That of an accepted call. */
MPI_Op mpi_operator_of(const struct mpi_world *w, const struct native_call *call);
/* MPI has no averages. It adds, and this library divides the sums. */
static inline bool mpi_averages(const struct native_call *call)
{
    return call->op == COMM_AVG && (call->type == COMM_F32 || call->type == COMM_F64);
}
void mpi_divide(const struct mpi_channel *c, const struct mpi_pending *p);

/* accept.c */
enum comm_result mpi_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes);

/* issue.c: makes one call of MPI for an accepted call. False: no memory. */
bool mpi_prepare(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p);
int mpi_issue_one(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request);

/* Only the stage, as for one more start of a persistent call. */
bool mpi_prepare_stage(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p);
/* Makes a persistent call, which is not started. Collective: all ranks make theirs in the same order. */
int mpi_issue_standing(const struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request);

/* standing.c */
const char *mpi_algorithm(struct native_channel *channel, const struct native_call *call, const char **how);
int mpi_start_standing(struct mpi_channel *c, const struct native_call *call, struct mpi_pending *p, MPI_Request *request);
void mpi_standing_ended(struct mpi_standing *s, MPI_Request request); /* request: as MPI_Test left it */
void mpi_forget(struct native_channel *channel, void *standing);
/* Before the MPI_Comm is freed; none of them runs. */
void mpi_forget_all(struct mpi_channel *c);

/* calls.c */
enum comm_result mpi_start(struct native_channel *channel, const struct native_call *call, int32_t *code);
uint32_t mpi_advance(struct native_channel *channel, struct native_event *events, uint32_t max);

static inline struct mpi_channel *mpi_channel_of(struct native_channel *channel)
{
    return (struct mpi_channel *)channel;
}

#endif
