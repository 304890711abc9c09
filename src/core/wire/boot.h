/* boot: how the ranks of a world meet before any wire lives: an allgather of small blobs, and descriptors passed between processes of one
 * host. Blocking, with a deadline; used while a world opens and never after. */
#ifndef WIRE_BOOT_H
#define WIRE_BOOT_H

#include <commstream/result.h>

#include "base/env.h"
#include "base/log.h"

struct wire_boot;

struct boot_config {
    const struct comm_env *env;
    const struct base_log *log;
    int32_t rank, ranks;
    const char *job;     /* equal on all ranks of one job, unlike any other job's on this host */
    const char *address; /* where rank 0 is met over a network: HOST:PORT; NULL or empty: all ranks are on one host */
    int64_t deadline;
    struct wire_boot *outer; /* the meeting inside which this one is; what is over there (is_over) is over here at once. NULL: none */
    int (*exchange)(void *arg, const void *in, size_t bytes, void *out); /* the host's own allgather, or NULL */
    void *exchange_arg;
    const void *secret; /* of the job, from the program; NULL: none, or the environment has it */
    size_t secret_bytes;
    bool secret_implied; /* nobody asked for it: where it cannot be used, that is no error */
    char *error_text;
    size_t error_text_bytes;
};

enum { BOOT_DESCRIPTORS_MAX = 4 };

struct boot_class {
    const char *name;
    enum comm_result (*open)(const struct boot_config *config, struct wire_boot **boot);
    /* out: ranks * bytes, by rank. Missing ranks are named in the error text when time is up. */
    enum comm_result (*allgather)(struct wire_boot *boot, const void *in, size_t bytes, void *out);
    /* Every rank gives `count` descriptors (kept by it) and receives those of all: all[rank * count + i], its own duplicated too; the
       caller owns what it received. UNSUPPORTED where ranks share no host. */
    enum comm_result (*pass)(struct wire_boot *boot, const int *given, uint32_t count, int *all);
    void (*close)(struct wire_boot *boot);
    /* Between two exchanges, without waiting: whether a rank is seen to be gone, or others are told why there will be no more. The next
       allgather then says so on every rank. NULL: nobody hears of that before. */
    bool (*is_over)(struct wire_boot *boot);
    /* HOST:PORT at which this process could be met; NULL: ranks that meet so are on one host. */
    bool (*offer)(const struct comm_env *env, char *address, size_t bytes);
    const char *(*proof)(void); /* by which library ranks prove a secret, or "none" and why; NULL: they never do */
};

struct wire_boot {
    const struct boot_class *class;
    char address[64]; /* numeric, at which the other ranks reach this one; empty: they are all on this host */
    /* 32 bytes that every rank of the job has and nobody else; NULL: there is no secret, and ranks cannot prove who they are. */
    const unsigned char *key;
};

#endif
