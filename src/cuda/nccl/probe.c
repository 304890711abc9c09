/*
 * With option nccl_fallback a rank tries NCCL by itself before the ranks meet: a communicator of this rank alone, and a message to itself,
 * which runs a kernel of NCCL's. So all ranks learn of a rank whose device or NCCL does not work while they can still do without. What only
 * fails between ranks is not found here.
 */
#include "cuda/nccl/nccl.h"

#include "base/format.h"

#include <string.h>

enum { LOOK_NS = 500000 };
static const int64_t try_most_ns = 10000000000;

static enum comm_result await_joined(const struct comm_env *env, struct native_channel *channel)
{
    enum comm_result r = native_nccl.joined(channel);
    _Atomic uint32_t never = 0;

    while (r == COMM_PENDING) {
        env->park(env, &never, 0, env->now(env) + LOOK_NS);
        r = native_nccl.joined(channel);
    }
    return r;
}

static enum comm_result join_alone(const struct comm_env *env, struct native *native, int32_t rank)
{
    struct wire_team alone = {.rank = 0, .size = 1, .world = &rank};
    unsigned char offer[NATIVE_OFFER_BYTES] = {0};
    struct native_channel *channel = NULL;
    enum comm_result r = native_nccl.join(native, &alone, NULL, offer, &channel);

    if (r != COMM_OK)
        return r;
    r = native_nccl.join(native, &alone, offer, NULL, &channel);
    if (r != COMM_OK)
        return r;
    r = await_joined(env, channel);
    native_nccl.leave(channel, NATIVE_LEAVE_CLOSE);
    return r;
}

/* If all ranks are in this process, each one's device is tried. */
enum comm_result nccl_try(const struct native_config *config)
{
    const struct comm_env *env = config->env;
    struct native_config own = *config;
    struct native *native = NULL;
    int64_t now = env->now(env), some = (config->deadline - now) / 4;

    own.deadline = now + (some < try_most_ns ? some : try_most_ns);
    enum comm_result r = native_nccl.open(&own, &native);
    if (r != COMM_OK)
        return r;
    int32_t first = config->rank < 0 ? 0 : config->rank, last = config->rank < 0 ? config->ranks - 1 : first;
    for (int32_t rank = first; rank <= last && r == COMM_OK; rank++)
        r = join_alone(env, native, rank);
    native_nccl.close(native);
    if (r != COMM_OK)
        base_format(config->error_text, config->error_text_bytes, "NCCL does not work on this rank alone; the log says why");
    return r;
}
