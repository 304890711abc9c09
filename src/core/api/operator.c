/* Types and user-defined operators. */
#include "api/api.h"

size_t comm_type_size(enum comm_type type)
{
    return data_type_bytes(type);
}

enum comm_result comm_op_create(struct comm_communicator *c, comm_op_fn *fn, void *arg, const struct comm_op_options *options, comm_op *op)
{
    enum comm_result r = engine_alive(c);

    if (r != COMM_OK)
        return r;
    if (!fn || !op || api_size(options, sizeof *options) != COMM_OK || !options->name)
        return engine_decline(
            c, COMM_ERR_ARGUMENT, NULL,
            "op_create: fn=%s op=%s options=%s options.size=%zu options.name=%s; expected a function, room for the operator, options, "
            "sizeof(struct comm_op_options), a name",
            fn ? "set" : "NULL", op ? "set" : "NULL", options ? "set" : "NULL", options ? options->size : 0,
            api_size(options, sizeof *options) == COMM_OK && options->name ? "set" : "NULL");
    if (api_sets_unknown(options, sizeof *options))
        return engine_decline(c, COMM_ERR_UNSUPPORTED, NULL,
                              "op_create: options.size=%zu; expected 0 in the fields that this library does not know", options->size);
    if (options->element_bytes < 1 || options->element_bytes > DATA_USER_BYTES_MAX)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "op_create: options.element_bytes=%zu; expected 1 to %d", options->element_bytes,
                              DATA_USER_BYTES_MAX);
    return engine_op_create(c, fn, arg, options, op);
}

void comm_op_free(struct comm_communicator *c, comm_op op)
{
    if (engine_alive(c) == COMM_OK)
        engine_op_free(c, op);
}
