/* Types, user-defined operators and pre-multiplied sums. */
#include "api/api.h"

#include <string.h>

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
    return engine_op_create(c, &(struct data_user){fn, arg, options->element_bytes, {COMM_BYTE, DATA_SCALAR, {0}}}, options, op);
}

enum comm_result comm_op_create_premul_sum(struct comm_communicator *c, enum comm_type type, const void *factor, comm_op *op)
{
    enum comm_result r = engine_alive(c);
    struct data_user user = {.element_bytes = 1, .scale = {.type = type}};
    struct comm_op_options options = {.name = "premul_sum", .element_bytes = data_type_bytes(type)};

    if (r != COMM_OK)
        return r;
    if (!options.element_bytes || !factor || !op)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL,
                              "op_create_premul_sum: type=%d factor=%s op=%s; expected an enum comm_type, an element of it in host memory, "
                              "room for the operator",
                              (int)type, factor ? "set" : "NULL", op ? "set" : "NULL");
    if (data_check(type, COMM_PROD, NULL) != COMM_OK)
        return engine_decline(c, COMM_ERR_UNSUPPORTED, NULL,
                              "op_create_premul_sum: type=%s(%d); expected an integer, floating or complex type", data_type_name(type),
                              (int)type);
    r = engine_need_host(c, "op_create_premul_sum", "factor", factor, NULL);
    if (r != COMM_OK)
        return r;
    memcpy(user.scale.factor, factor, options.element_bytes);
    return engine_op_create(c, &user, &options, op);
}

void comm_op_free(struct comm_communicator *c, comm_op op)
{
    if (engine_alive(c) == COMM_OK)
        engine_op_free(c, op);
}
