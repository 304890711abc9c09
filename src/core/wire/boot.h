/* boot: how the ranks of a world meet before there is a wire: an allgather of small blobs, and passing of file
 * descriptors between processes of one host. Blocking, with a deadline; used only while a world opens. */
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
    const char *job;     /* equal on all ranks of one job, different from any other job's on this host */
    const char *address; /* where ranks reach rank 0 over a network: HOST:PORT; NULL or empty: all ranks are on one host */
    int64_t deadline;
    struct wire_boot *outer; /* the boot inside which this one runs; if that one is over (is_over), so is this one at once. NULL: none */
    int (*exchange)(void *arg, const void *in, size_t bytes, void *out); /* the launcher's own allgather, or NULL */
    void *exchange_arg;
    enum comm_result failed; /* not OK, only with `exchange`: this rank cannot open, as error_text says. Then open comes to the exchange to
                              * say so, since the others would wait for it there, and returns this */
    const void *secret;      /* of the job, from the program; NULL: there is none, or the environment has it */
    size_t secret_bytes;
    bool secret_implied; /* the secret was not requested explicitly: it is no error if it cannot be used */
    char *error_text;
    size_t error_text_bytes;
};

enum { BOOT_DESCRIPTORS_MAX = 4 };

struct boot_class {
    const char *name;
    enum comm_result (*open)(const struct boot_config *config, struct wire_boot **boot);
    /* out: ranks * bytes, by rank. When time is up the error text names the missing ranks. */
    enum comm_result (*allgather)(struct wire_boot *boot, const void *in, size_t bytes, void *out);
    /* Every rank gives `count` descriptors, which it keeps, and receives those of all ranks: all[rank * count + i],
     * duplicates of its own among them. The caller owns what it receives. UNSUPPORTED if the ranks are not on one host. */
    enum comm_result (*pass)(struct wire_boot *boot, const int *given, uint32_t count, int *all);
    void (*close)(struct wire_boot *boot);
    /* Called between two exchanges, does not wait: whether a rank is known to be gone, or other ranks have been told
     * why no exchange will follow. The next allgather then says so on every rank. NULL: such news arrives only with the
     * next exchange. */
    bool (*is_over)(struct wire_boot *boot);
    /* HOST:PORT at which other ranks could reach this process. NULL: a boot for ranks of one host. */
    bool (*offer)(const struct comm_env *env, char *address, size_t bytes);
    /* Whether ranks can meet in this store of their launcher, and get a secret there: this library was built for both, and the environment
     * has no secret and does not do without one. NULL: never. */
    bool (*has_store)(const struct comm_env *env, const char *store);
    const char *(*proof)(void); /* the library with which ranks prove that they know the secret, or "none" and why; NULL: they never prove
                                 * it */
};

struct wire_boot {
    const struct boot_class *class;
    char address[64]; /* numeric address at which other ranks reach this one; empty: all ranks are on this host */
    /* 32 bytes known to every rank of the job and nobody else; NULL: there is no secret, and ranks cannot prove their
     * identity. */
    const unsigned char *key;
};

#endif
