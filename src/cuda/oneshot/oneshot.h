/*
 * The native backend cuda: a short allreduce of device buffers is one kernel on each rank's device (cuda/oneshot_kernel.h), and a long one
 * goes through a pipeline (cuda/pipeline/pipeline.h). All else is the wire's: the core stages it. In a stream of the program's, where
 * nothing is staged, a longer one is several kernels, and reduce_scatter, allgather, broadcast and barrier are kernels too. One instance
 * per world, one channel per communicator. This header is shared by its files.
 */
#ifndef CUDA_ONESHOT_H
#define CUDA_ONESHOT_H

#include "cuda/buffers.h"
#include "cuda/oneshot_kernel.h"
#include "cuda/pipeline/pipeline.h"
#include "cuda/post.h"
#include "cuda/oneshot/share.h"
#include "wire/native.h"

#include <string.h>

/* What a rank's device can do. A communicator has what all can do; the kernel also needs a device for each rank. */
enum oneshot_serves { ONESHOT_HAS_KERNEL = 1, ONESHOT_HAS_PIPELINE = 2 };

/* What a rank sends to the others for a new communicator. */
struct oneshot_offer {
    uint64_t host, hardware; /* of its device */
    uint64_t where, life;    /* of its mailbox */
    uint64_t pages;          /* where those for long sums are, if it has a pipeline */
    uint64_t place, secret;  /* its processes reach each other's sockets; for letters to this rank */
    uint32_t slots;          /* where in the memory that it shares its slots may lie: 1 + index; 0: nowhere */
    uint32_t serves;         /* enum oneshot_serves */
    char post[CUDA_POST_NAME_BYTES];
};

/* What a mailbox begins with. */
struct oneshot_head {
    _Atomic uint64_t life; /* counts how often it was taken and left: odd while a communicator has it */
    _Atomic uint64_t vote; /* of its owner, on where the slots shall lie (choice.c) */
    uint64_t took[2];      /* what its owner has measured, valid with the vote */
};

/*
 * A mailbox of a rank of this process, in memory that its peers can reach. It is taken once and used by one communicator of its rank after
 * another. It may be taken again once all members of the last communicator have left theirs, because a peer's kernel may read it until
 * then.
 */
struct oneshot_box {
    struct oneshot_box *next;
    const struct wire_memory_class *memory;
    struct wire *wire;
    char *at;
    uint64_t where, life;
    char *pages; /* for long sums; NULL: it has none */
    uint64_t pages_where;
    int32_t rank;   /* of those in this process */
    uint32_t slots; /* in the memory that the rank shares: 1 + index; 0: nowhere */
    bool taken;
    int32_t peers;
    struct {
        const struct oneshot_head *head;
        uint64_t then;
    } peer[ONESHOT_RANKS];
};

/* A mailbox or the pages of a pipeline, of any rank, that devices of this process can access. */
struct oneshot_pin {
    struct oneshot_pin *next;
    char *at;
    cuda_address there;
    struct cuda_device *by; /* the memory is portable, so all devices may use it */
};

/* Memory of a peer's device that a device of this process has mapped. */
struct oneshot_map {
    struct oneshot_map *next;
    struct cuda_device *by;
    int32_t rank;    /* of its owner in the world */
    cuda_address at; /* 0: it could not be mapped */
    size_t bytes;
};

struct oneshot_call {
    const void *in;
    void *out;
    uint64_t elements, cookie, mark; /* mark: in a stream of the program's, it is done when so many are */
    uint64_t stride;
    uint32_t kind, root, type, op; /* as in oneshot_args */
    uint32_t scaled;
    uint64_t factor;
};

/* Where the slots of a communicator shall lie (choice.c). */
enum oneshot_stage {
    ONESHOT_COUNTING, /* the counters get their first values */
    ONESHOT_REACHING, /* this rank maps the memory of its peers */
    ONESHOT_VOTING,
    ONESHOT_TRYING,
    ONESHOT_CHECKING, /* the sums of the last trial */
    ONESHOT_COMPARING,
    ONESHOT_UNDOING, /* the choice was given up; the trial ends */
    ONESHOT_RESTING, /* the stream comes to its end */
    ONESHOT_CHOSEN
};
struct oneshot_choice {
    struct oneshot_channel *next; /* in the list of channels that are choosing */
    uint32_t stage;
    uint32_t trial;                    /* the number of trials that were launched */
    uint64_t before;                   /* numbers of operations that trials use up */
    struct oneshot_offer *offers;      /* of all members; NULL: there is nothing to choose */
    int32_t *world;                    /* their ranks in the world */
    cuda_address there[ONESHOT_RANKS]; /* the slots in memory of the devices; 0: not mapped yet */
    bool by_devices;                   /* the choice: the kernels exchange through it */
};

/* Operations end in order. In a stream of the library's own at most one is on the device: a hardware queue that several streams share then
 * never stands with one that waits for another. */
struct oneshot_channel {
    struct native_channel head;
    struct oneshot *owner;
    struct oneshot_channel *next; /* in the list of channels that are ending */
    struct cuda_device *d;
    struct CUstream_st *stream;
    uint32_t done, wrong, abort;     /* words of the device; 0: none */
    uint64_t issued, launched, told; /* numbers of operations, from 0 */
    struct oneshot_call *calls;      /* a ring, indexed by number */
    uint32_t room;
    struct oneshot_box *box;
    bool has_kernel;
    struct pipeline *pipeline; /* NULL: the core stages long sums */
    bool took_long;            /* the call that was accepted last is the pipeline's */
    struct oneshot_choice choice;
    struct oneshot_args args;  /* what is equal for all operations */
    struct CUstream_st *given; /* the program's stream, which gets the operations; NULL: `stream` does */
    uint32_t mark;             /* the word in which `given` counts what is done of the operations that are not captured */
    uint64_t marks, mark_base; /* how many it will count; the word's first value */
    bool is_unmarked;          /* `given` has kernels behind which it writes no word, since a call of CUDA's failed */
    struct cuda_capture held;  /* by graphs */
    uint32_t ways;             /* of the call that was accepted last */
    int64_t looked_ns;
    unsigned broken;  /* CUDA's error: nothing runs on the device any more */
    unsigned refused; /* CUDA's error when the next operation should have begun */
};

struct oneshot {
    struct native head;
    const struct comm_env *env;
    const struct base_log *log;
    struct base_lock lock;    /* protects the lists, except `pins` */
    struct base_lock pinning; /* protects `pins`; held while the driver pins, which may take long */
    struct oneshot_box *boxes;
    struct oneshot_pin *pins;
    struct oneshot_channel *ending, *choosing;
    uint64_t host, place;
    int32_t rank, here, ranks;   /* rank in the world, -1: all ranks are in this process; how many are; of the world */
    struct cuda_device **device; /* of each rank that is here */
    struct oneshot_shared {
        struct cuda_share memory;
        uint32_t used; /* slots that mailboxes have */
    } * shared;        /* of each rank that is here */
    struct oneshot_map *maps;
    struct cuda_post post; /* none if all ranks are in this process */
    uint64_t secret;
    bool *sent;                  /* by rank of the world: it was given the memory of this rank */
    _Atomic bool said, said_why; /* why a communicator stages; why it exchanges through the host's pages */
    _Atomic bool told;           /* what the world measured */
};

/* box.c. rank: of those in this process. NULL: no memory. */
struct oneshot_box *oneshot_take_box(struct oneshot *n, const struct wire_channel *wire, int32_t rank);
void oneshot_leave_box(struct oneshot *n, struct oneshot_box *box);
/* Gives the box pages for long sums, if it has none. False: there is not so much shared memory, or its rank has enough of them. */
bool oneshot_take_pages(struct oneshot *n, struct oneshot_box *box);
/* The device's address of a mailbox, or of the pages of a pipeline; or 0. */
cuda_address oneshot_pin(struct oneshot *n, struct cuda_device *d, char *at, size_t bytes);
void oneshot_free_boxes(struct oneshot *n);
static inline struct oneshot_head *oneshot_head_of(char *box)
{
    return (struct oneshot_head *)(void *)box;
}
/* slots.c: memory of devices for the slots of mailboxes. Without it the host's pages have them. */
void oneshot_share_slots(struct oneshot *n, int32_t rank); /* rank: of those in this process, whose device is open */
void oneshot_free_slots(struct oneshot *n);
uint32_t oneshot_take_slots(struct oneshot *n, int32_t rank); /* 1 + index; 0: none is left */
/* In these the lock is held. False: CUDA says that the channel's device cannot access a member's. */
bool oneshot_may_reach(struct oneshot_channel *c, uint32_t member);
/* The address at which the channel's device reaches a member's slots; 0: it is not known yet, or, with *why set, it does
 * not reach them. */
cuda_address oneshot_reach_slots(struct oneshot_channel *c, uint32_t member, const char **why);
/* choice.c: where the slots of a channel shall lie. */
enum comm_result oneshot_choose(struct oneshot_channel *c, const struct wire_team *team, const unsigned char *offers);
enum comm_result oneshot_joined(struct native_channel *channel);
void oneshot_vote_against(struct oneshot_channel *c);
void oneshot_stop_choosing(struct oneshot_channel *c);
const char *oneshot_how(struct native_channel *channel); /* how the devices do the call that was accepted last */
unsigned oneshot_rests(const struct oneshot_channel *c); /* CUDA's answer about the channel's own stream */
/* channel.c */
enum comm_result oneshot_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                              struct native_channel **channel);
uint32_t oneshot_leave(struct native_channel *channel, enum native_leave how);
/* Frees the closed channels whose kernels have ended. Returns how many are left. */
uint32_t oneshot_reap(struct oneshot *n);
/* issue.c */
enum comm_result oneshot_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes);
uint32_t oneshot_ways(struct native_channel *channel);
bool oneshot_reaches(struct native_channel *channel, const void *at, size_t align);
enum comm_result oneshot_start(struct native_channel *channel, const struct native_call *call, int32_t *code);
uint32_t oneshot_advance(struct native_channel *channel, struct native_event *events, uint32_t max);
bool oneshot_has_room(struct oneshot_channel *c);
/* An operation of the kernel: what one does of the call, from element `first` on. Its fingerprint is the whole call's. */
struct oneshot_args oneshot_args_of(const struct oneshot_channel *c, const struct oneshot_call *call, uint64_t first);
/* stream.c: a communicator that works in a stream of the program's. served: a call that the kernel serves, if its buffers are the device's.
 */
struct device *oneshot_stream(struct native_channel *channel, struct CUstream_st *given, struct CUstream_st **stream);
enum comm_result oneshot_accept_in_stream(struct oneshot_channel *c, const struct native_call *call, bool served, char *why,
                                          size_t why_bytes);
unsigned oneshot_launch_in_stream(struct oneshot_channel *c, struct oneshot_call *call);
uint64_t oneshot_marked(const struct oneshot_channel *c); /* how many are done */
bool oneshot_given_rests(struct oneshot_channel *c);      /* no kernel of the channel is on `given` */
enum comm_result oneshot_wait(struct native_channel *channel, const struct native_point *point, uint64_t cookie);
enum comm_result oneshot_keep_waits(struct native_channel *channel, uint32_t count);
void oneshot_reach(struct native_channel *channel, uint64_t cookie);
enum comm_result oneshot_await(struct native_channel *channel, uint64_t cookie, struct CUstream_st *stream);
enum comm_result oneshot_may_close(struct native_channel *channel, char *why, size_t why_bytes);
/* Does the device still run an operation? Asks CUDA too. */
bool oneshot_runs(struct oneshot_channel *c);
static inline int32_t oneshot_here(const struct oneshot *n, int32_t world_rank)
{
    return n->rank < 0 ? world_rank : 0;
}
static inline struct oneshot_offer oneshot_offer_at(const unsigned char *offers, int32_t rank)
{
    struct oneshot_offer offer;

    memcpy(&offer, offers + (size_t)rank * NATIVE_OFFER_BYTES, sizeof offer);
    return offer;
}

extern const struct native_class native_oneshot;

#endif
