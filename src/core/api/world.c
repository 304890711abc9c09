/* Opening, creating and closing worlds and communicators. */
#include "api/api.h"

#include "base/format.h"

#include <string.h>

enum { LOCAL_RANKS_MAX = 1024, OPTIONS_MAX = 240 };

enum comm_result comm_open(const struct comm_config *config, struct comm_communicator **world)
{
    if (!world)
        return COMM_ERR_ARGUMENT;
    *world = NULL;
    return engine_open(config, world);
}

enum comm_result comm_open_local(const struct comm_config *config, int32_t ranks, const char *const *devices,
                                 struct comm_communicator **worlds)
{
    if (!worlds)
        return engine_complain(config, COMM_ERR_ARGUMENT, "open_local: worlds=NULL; expected room for one communicator per rank");
    if (ranks < 1 || ranks > LOCAL_RANKS_MAX) {
        char text[64];
        base_format(text, sizeof text, "open_local: ranks=%d; expected 1 to %d", ranks, LOCAL_RANKS_MAX);
        return engine_complain(config, COMM_ERR_ARGUMENT, text);
    }
    bool named = false;
    for (int32_t r = 0; devices && r < ranks; r++)
        named |= devices[r] != NULL;
    return engine_open_local(config, ranks, named ? devices : NULL, worlds);
}

enum comm_result comm_id_create(const struct comm_config *config, struct comm_id *id)
{
    return engine_id_create(config, id);
}

enum comm_result comm_close(struct comm_communicator *c, int64_t timeout_ns)
{
    if (!c)
        return COMM_OK;
    return timeout_ns < 0 && timeout_ns != COMM_DEFAULT_TIMEOUT ? COMM_ERR_ARGUMENT : engine_close(c, timeout_ns);
}

enum comm_result comm_abort(struct comm_communicator *c, int32_t code)
{
    return engine_abort(c, code);
}

enum comm_result comm_revoke(struct comm_communicator *c)
{
    return engine_revoke(c);
}

enum comm_result comm_shrink(struct comm_communicator *c, struct comm_communicator **survivors, struct comm_request *req)
{
    enum comm_result r = engine_alive(c);

    if (r == COMM_OK && !survivors)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "shrink: survivors=NULL; expected room for a communicator");
    if (r == COMM_OK && !req)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "shrink: req=NULL; expected room for a request");
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r == COMM_OK ? engine_shrink(c, survivors, req) : r;
}

enum comm_result comm_agree(struct comm_communicator *c, uint64_t *flags, struct comm_request *req)
{
    enum comm_result r = engine_alive(c);

    if (r == COMM_OK && !flags)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "agree: flags=NULL; expected the address of this rank's flags");
    if (r == COMM_OK && !req)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "agree: req=NULL; expected room for a request");
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r == COMM_OK ? engine_agree(c, flags, req) : r;
}

enum comm_result comm_split(struct comm_communicator *c, int32_t color, int32_t key, struct comm_communicator **out,
                            struct comm_request *req)
{
    enum comm_result r = engine_alive(c);

    if (r == COMM_OK && color < COMM_NO_COLOR)
        r = engine_refuse(c, COLLECTIVE_SPLIT, COMM_ERR_ARGUMENT, req, "split: color=%d; expected 0 or more, or COMM_NO_COLOR", color);
    else if (r == COMM_OK && !out)
        r = engine_refuse(c, COLLECTIVE_SPLIT, COMM_ERR_ARGUMENT, req, "split: out=NULL; expected room for a communicator");
    else if (r == COMM_OK)
        return engine_split(c, color, key, out, req);
    else if (req)
        *req = timeline_refusal(r);
    return r;
}

enum { NUMA_NODES = 1024, HARDWARE_BITS = 48, HARDWARE_HOSTS = 1 << 15 };

static enum comm_result split_device(struct comm_communicator *c, struct comm_communicator **out, struct comm_request *req)
{
    char text[256];
    uint64_t hardware = 0;
    enum comm_result r = engine_hardware(c, &hardware, text, sizeof text);

    if (r != COMM_OK)
        return engine_refuse(c, COLLECTIVE_SPLIT, r, req, "split_place: COMM_PLACE_DEVICE: this rank has no device: %s", text);
    if (engine_node(c) >= HARDWARE_HOSTS)
        return engine_refuse(c, COLLECTIVE_SPLIT, COMM_ERR_UNSUPPORTED, req,
                             "split_place: COMM_PLACE_DEVICE: host %d; expected fewer than %d", engine_node(c), HARDWARE_HOSTS);
    if (!out)
        return engine_refuse(c, COLLECTIVE_SPLIT, COMM_ERR_ARGUMENT, req, "split_place: out=NULL; expected room for a communicator");
    return engine_split(c, (int64_t)((uint64_t)engine_node(c) << HARDWARE_BITS | hardware), 0, out, req);
}

enum comm_result comm_split_place(struct comm_communicator *c, enum comm_place place, struct comm_communicator **out,
                                  struct comm_request *req)
{
    enum comm_result r = engine_alive(c);

    if (r == COMM_OK && place != COMM_PLACE_NODE && place != COMM_PLACE_NUMA && place != COMM_PLACE_DEVICE)
        return engine_refuse(c, COLLECTIVE_SPLIT, COMM_ERR_ARGUMENT, req, "split_place: place=%d; expected an enum comm_place", (int)place);
    if (r == COMM_OK && place == COMM_PLACE_DEVICE)
        return split_device(c, out, req);
    if (r != COMM_OK || place == COMM_PLACE_NODE)
        return comm_split(c, r == COMM_OK ? engine_node(c) : 0, 0, out, req);
    int32_t numa = engine_numa(c);
    if (numa < 0)
        return engine_refuse(c, COLLECTIVE_SPLIT, COMM_ERR_UNSUPPORTED, req,
                             "split_place: COMM_PLACE_NUMA: this rank may run on CPUs of several NUMA nodes; expected one that is bound to "
                             "those of one (comm-run --bind core, taskset, numactl)");
    return comm_split(c, engine_node(c) * NUMA_NODES + numa, 0, out, req);
}

/* Only the members call it, so a refusal here uses up no collective number. */
static enum comm_result check_subset(struct comm_communicator *c, const int32_t *ranks, size_t count, struct comm_communicator **out,
                                     struct comm_request *req)
{
    int32_t size = engine_size(c), rank = engine_rank(c);
    bool member = false;

    if (!out)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "subset: out=NULL; expected room for a communicator");
    if (!ranks || count < 1 || count > (size_t)size)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "subset: ranks=%s count=%zu; expected a list of 1 to %d ranks",
                              ranks ? "a list" : "NULL", count, size);
    for (size_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            return engine_decline(c, COMM_ERR_ARGUMENT, req, "subset: ranks[%zu]=%d; expected 0 to %d", i, ranks[i], size - 1);
        for (size_t k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return engine_decline(c, COMM_ERR_ARGUMENT, req, "subset: ranks[%zu]=%d; expected each rank once, it is ranks[%zu] too", i,
                                      ranks[i], k);
        member |= ranks[i] == rank;
    }
    if (!member)
        return engine_decline(c, COMM_ERR_ARGUMENT, req, "subset: ranks do not name rank %d, which calls; expected a call by members alone",
                              rank);
    return COMM_OK;
}

enum comm_result comm_subset(struct comm_communicator *c, const int32_t *ranks, size_t count, uint32_t tag, struct comm_communicator **out,
                             struct comm_request *req)
{
    enum comm_result r = engine_alive(c);

    if (r == COMM_OK)
        r = check_subset(c, ranks, count, out, req);
    else if (req)
        *req = timeline_refusal(r);
    return r == COMM_OK ? engine_subset(c, ranks, (int32_t)count, tag, out, req) : r;
}

enum comm_result comm_split_mesh(struct comm_communicator *c, const int32_t *shape, size_t axes, struct comm_communicator **axis,
                                 struct comm_request *req)
{
    struct api_check check;
    int64_t product = 1, size = engine_size(c);

    if (api_begin(&check, c, COLLECTIVE_SPLIT, req) != COMM_OK)
        return check.result;
    check.name = "split_mesh";
    api_need(&check, axes >= 1 && axes <= CREATE_AXES_MAX, "axes", (long long)axes, "1 to 16 axes");
    api_need(&check, shape && axis, shape ? "axis" : "shape", 0, "an array of as many as there are axes");
    for (size_t i = 0; check.result == COMM_OK && i < axes; i++) {
        char axis_name[32];
        base_format(axis_name, sizeof axis_name, "shape[%zu]", i);
        api_need(&check, shape[i] >= 1 && shape[i] <= size, axis_name, shape[i], "1 or more, and no more than there are ranks");
        product = check.result == COMM_OK && product <= size ? product * shape[i] : product;
    }
    api_need(&check, product == size, "shape[0] * shape[1] * ..", (long long)product, "the number of ranks");
    return check.result == COMM_OK ? engine_split_mesh(c, shape, axes, axis, req) : check.result;
}

static enum comm_result copy_options(struct comm_options *to, const struct comm_options *from)
{
    memset(to, 0, sizeof *to);
    if (!from)
        return COMM_OK;
    if (from->size < sizeof(size_t))
        return COMM_ERR_ARGUMENT;
    memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    if (api_sets_unknown(from, sizeof *to))
        return COMM_ERR_UNSUPPORTED;
    bool known = !to->options || !to->options[0] || !strncmp(to->options, "algorithm=", 10);
    if (to->options && !to->options[0])
        to->options = NULL;
    return !known || (to->options && strlen(to->options) > OPTIONS_MAX) ? COMM_ERR_UNSUPPORTED : COMM_OK;
}

enum comm_result comm_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                          struct comm_request *req)
{
    struct comm_options copy;
    enum comm_result r = engine_alive(c);

    if (r != COMM_OK) {
        if (req)
            *req = timeline_refusal(r);
        return r;
    }
    r = copy_options(&copy, options);
    if (r == COMM_ERR_UNSUPPORTED)
        return engine_refuse(c, COLLECTIVE_DUP, r, req,
                             "dup: options.options names something else than algorithm=, or a field that this library "
                             "does not know is set");
    bool ordered = (int32_t)copy.order >= COMM_ORDER_DEFAULT && (int32_t)copy.order <= COMM_ORDER_FREE;
    if (r != COMM_OK || !out || copy.operation_timeout_ns < 0 || copy.priority < -1 || copy.priority > 1 || !ordered)
        return engine_refuse(
            c, COLLECTIVE_DUP, COMM_ERR_ARGUMENT, req,
            "dup: out=%s options.size=%zu options.operation_timeout_ns=%lld options.priority=%d options.order=%d; expected "
            "room for a communicator, sizeof(struct comm_options), 0 or more, -1 to 1, 0 to 2",
            out ? "set" : "NULL", options ? options->size : 0, (long long)copy.operation_timeout_ns, copy.priority, (int)copy.order);
    if (copy.stream && !engine_can_work_in_streams(c))
        return engine_refuse(c, COLLECTIVE_DUP, COMM_ERR_UNSUPPORTED, req,
                             "dup: options.stream is set; expected NULL: only communicators of backends nccl and cuda, whose ranks have a "
                             "device each, work on streams");
    return engine_dup(c, &copy, out, req);
}

int32_t comm_rank(const struct comm_communicator *c)
{
    return engine_rank(c);
}

int32_t comm_size(const struct comm_communicator *c)
{
    return engine_size(c);
}

int32_t comm_translate(const struct comm_communicator *c, int32_t rank, const struct comm_communicator *other)
{
    return engine_translate((struct comm_communicator *)(uintptr_t)c, rank, (struct comm_communicator *)(uintptr_t)other);
}

enum comm_result comm_describe(struct comm_communicator *c, struct comm_info *info)
{
    enum comm_result r = api_size(info, sizeof(size_t));

    return r == COMM_OK ? engine_describe(c, info) : r;
}

enum comm_result comm_describe_peer(struct comm_communicator *c, int32_t peer, struct comm_peer_info *info)
{
    enum comm_result r = api_size(info, sizeof(size_t));

    return r == COMM_OK ? engine_describe_peer(c, peer, info) : r;
}
