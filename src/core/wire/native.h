/* native: a library that does whole collectives itself (MPI, NCCL), beside the wires. A native's operation is an entry of the timeline
 * whose completion it tells through poll. No native is built yet; the engine drives this table for those that come as modules. */
#ifndef WIRE_NATIVE_H
#define WIRE_NATIVE_H

#include <commstream/type.h>

#include "base/env.h"

struct native;
struct native_channel;

struct native_call {
    uint32_t collective; /* enum comm_collective of the program room */
    enum comm_type type;
    comm_op op;
    int32_t root;
    const void *in;
    void *out;
    size_t n;
    const size_t *counts, *displs;
};

struct native_class {
    const char *name;
    /* COMM_OK, or UNSUPPORTED with what is missing and the paths tried in `why`. Loads nothing that stays loaded. */
    enum comm_result (*probe)(const struct comm_env *env, char *why, size_t why_bytes);
    enum comm_result (*open)(const struct comm_env *env, struct native **native);
    enum comm_result (*join)(struct native *native, int32_t rank, int32_t size, struct native_channel **channel);
    /* UNSUPPORTED for what it lacks: the caller then takes a wire. Otherwise the buffers are its own until the cookie. */
    enum comm_result (*start)(struct native_channel *channel, const struct native_call *call, uint64_t cookie);
    uint32_t (*poll)(struct native *native, uint64_t *cookies, enum comm_result *results, uint32_t max);
    void (*leave)(struct native_channel *channel);
    void (*close)(struct native *native);
};

#endif
