/*
 * Shared by the files of the mock NCCL. A clique is the state that the ranks of one communicator share. It is in memory that all processes
 * of a test share (mock_shared.c), under a lock in that memory. A struct ncclComm is private to its process.
 */
#ifndef MOCK_CLIQUE_H
#define MOCK_CLIQUE_H

#include "mock_inside.h"

/* The entry points, from the lists that the module loads. A call releases both locks before it returns. */
#define NCCL_EXPORT(field, symbol, result, parameters) MOCK_API result mock_##field parameters __asm__(symbol);
NCCL_CALLS(NCCL_EXPORT)
NCCL_MEMORY_CALLS(NCCL_EXPORT)
NCCL_WINDOW_CALLS(NCCL_EXPORT)
NCCL_NEWER_CALLS(NCCL_EXPORT)
#define NCCL_BEGIN                                                                                                                         \
    if (mock_begin(__func__))                                                                                                              \
        return NCCL_INTERNAL_ERROR;                                                                                                        \
    mock_shared_lock()
#define NCCL_END(result)                                                                                                                   \
    do {                                                                                                                                   \
        unsigned told = (unsigned)(result);                                                                                                \
        mock_shared_unlock();                                                                                                              \
        mock_end();                                                                                                                        \
        return told;                                                                                                                       \
    } while (0)

enum { RANKS = 128, FEW_RANKS = 16 };
enum what { NOTHING, ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER };
/* The algorithms, which NCCL connects separately. Each pair of ranks is connected separately too. */
enum path { PATH_TREE = 1, PATH_RING = 2, PATH_ALL = PATH_TREE | PATH_RING };

/* One collective of a clique, with the part of each rank. */
struct meeting {
    struct meeting *next;
    uint64_t number;
    enum what what;
    size_t count;
    unsigned type, op;
    int root, arrived, read, left;
    int place; /* among the collectives of its group */
    bool differs;
    int windowed; /* ranks whose buffers are in windows */
    int given;    /* ranks that have issued it */
    void *input[RANKS];
};
/* The n-th transfer from one rank to another. */
struct transfer {
    struct transfer *next;
    int from, to;
    uint64_t number;
    bool sender, receiver, filled, taken, differs; /* sender, receiver: that end is on its stream */
    size_t bytes;
    void *data;
};
struct member {
    bool in;
    int device, color, key;
    uint64_t splits;
    unsigned paths;      /* algorithms that it asked to connect */
    bool peers[RANKS];   /* ranks that it asked to connect to */
    uint64_t windows;    /* that it asked to register */
    size_t window_bytes; /* of the last one */
    uint64_t sent[RANKS], received[RANKS];
};
struct clique {
    struct clique *next;
    struct nccl_id id;
    int size, joined, left;
    struct member member[RANKS];
    struct meeting *meetings;
    struct transfer *transfers[RANKS]; /* from each rank */
};
/* An operator of ncclRedOpCreatePreMulSum. type: 1 + NCCL's number; 0: none. */
struct premul {
    unsigned type;
    _Alignas(8) unsigned char factor[8];
};
enum { PREMULS = 8 };
struct ncclComm {
    struct clique *clique;
    struct premul op[PREMULS];
    int rank, device, blocking, asks, pending, inside;
    int graphs; /* recorded operations: while there are any, the communicator cannot be freed */
    unsigned state;
    bool aborted, revoked, gone;
    uint64_t issued, windows;
    struct launch *launches; /* of a nonblocking communicator: not on their streams yet */
    /* a split under way */
    struct ncclComm **child;
    uint64_t splits;
    int child_blocking;
};
/* A call that waits for the end of its group, or that a nonblocking communicator has accepted. */
struct launch {
    struct launch *next;
    struct ncclComm *comm;
    enum what what; /* NOTHING: a transfer */
    const void *in;
    void *out;
    size_t count;
    unsigned type, op;
    struct premul by;
    int root; /* or the peer */
    struct CUstream_st *stream;
};

/* mock_shared.c */
struct mock_shared {
    uint64_t ids, listeners; /* listeners: ids whose ranks have not all joined */
    struct clique *cliques;
};
extern struct mock_shared *mock_shared;
void mock_shared_lock(void);
void mock_shared_unlock(void);
void *mock_shared_take(size_t bytes); /* zeroed */
void mock_shared_give(void *memory);
/* mock_math.c */
size_t mock_type_bytes(unsigned type); /* 0: no such type */
void mock_fold(void *to, const void *from, size_t n, unsigned type, unsigned op);
void mock_scale(void *to, size_t n, unsigned type, double by);
void mock_premultiply(void *to, size_t bytes, const struct premul *by);
/* mock_work.c: the caller holds the shared lock */
unsigned mock_refuse(unsigned result, const char *text);
const char *mock_last_error(void);
void mock_put(const struct launch *first); /* puts the launches of one communicator on their streams */
void mock_leave_clique(struct ncclComm *c);
void mock_wait_a_little(void);                                           /* the caller does not hold the shared lock */
bool mock_reads(const struct ncclComm *c, const void *at, size_t bytes); /* an operation on a stream has a buffer there */
/* mock_window.c: the caller holds both locks */
bool mock_has_window(const struct ncclComm *c, const void *at);
bool mock_is_registered(const void *memory); /* in a window of any communicator of this process */
void mock_forget_windows(const struct ncclComm *c);
/* mock_premul.c: gives the launch its factor, and its operator a number that is the same on all ranks. The caller holds both locks. */
unsigned mock_find_op(struct launch *l);
bool mock_has_op(const struct ncclComm *c);
/* mock_comm.c, mock_nccl.c: the caller holds both locks */
void mock_nccl_wait(void);
void mock_free_launches(struct launch *l);

#endif
