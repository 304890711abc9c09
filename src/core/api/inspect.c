/* Calls that report the state of the library. */
#include "api/api.h"

#include "base/format.h"
#include "base/option.h"
#include "base/result.h"

#include <string.h>

uint32_t comm_version(void)
{
    return COMM_VERSION;
}

const char *comm_result_name(enum comm_result result)
{
    return base_result_name(result);
}

const char *comm_result_text(enum comm_result result)
{
    return base_result_text(result);
}

enum comm_result comm_error_detail(struct comm_communicator *c, struct comm_error *error)
{
    enum comm_result r = api_size(error, sizeof(size_t));

    return r == COMM_OK ? engine_error_detail(c, error) : r;
}

enum comm_result comm_describe_backend(size_t index, struct comm_backend_info *info)
{
    enum comm_result r = api_size(info, sizeof(size_t));

    return r == COMM_OK ? engine_describe_backend(index, info) : r;
}

enum comm_result comm_describe_option(size_t index, struct comm_option_info *info)
{
    enum comm_result r = api_size(info, sizeof(size_t));

    if (r != COMM_OK || index >= base_option_count)
        return COMM_ERR_ARGUMENT;
    const struct base_option *o = &base_option_table[index];
    struct comm_option_info made = {.size = info->size,
                                    .key = o->key,
                                    .environment = o->environment,
                                    .type = base_option_type_name(o->type),
                                    .default_text = o->default_text,
                                    .unit = o->unit,
                                    .help = o->help,
                                    .also = o->also,
                                    .environment_only = (o->flags & OPTION_ENVIRONMENT_ONLY) != 0};
    base_option_expected(o, made.values, sizeof made.values);
    size_t size = info->size;
    memset(info, 0, size);
    memcpy(info, &made, size < sizeof made ? size : sizeof made);
    return COMM_OK;
}

enum comm_result comm_statistics(struct comm_communicator *c, struct comm_stats *stats)
{
    enum comm_result r = api_size(stats, sizeof(size_t));

    return r == COMM_OK ? engine_statistics(c, stats) : r;
}

enum comm_result comm_trace_dump(struct comm_communicator *c, const char *path)
{
    return path ? engine_trace_dump(c, path) : COMM_ERR_ARGUMENT;
}

static enum comm_result check_call(const struct comm_call *call)
{
    enum comm_result r = api_size(call, sizeof *call);

    if (r != COMM_OK || !call->collective || call->ranks < 0)
        return COMM_ERR_ARGUMENT;
    return api_sets_unknown(call, sizeof *call) ? COMM_ERR_UNSUPPORTED : COMM_OK;
}

/* Whether op is an operator, or 0: any. */
static bool is_operator(struct comm_communicator *c, comm_op op)
{
    enum comm_type type;

    if (op & OPERATOR_USER)
        return engine_op_bytes(c, op, &type) != 0;
    return !op || data_check(COMM_I32, op, NULL) != COMM_ERR_ARGUMENT;
}

enum comm_result comm_explain(struct comm_communicator *c, const struct comm_call *call, char *text, size_t bytes)
{
    enum comm_result r = text && bytes ? check_call(call) : COMM_ERR_ARGUMENT;

    return r == COMM_OK ? engine_explain(c, call, is_operator(c, call->op), text, bytes) : r;
}

enum comm_result comm_predict(struct comm_communicator *c, const struct comm_call *call, const char *algorithm, const char *machine,
                              int64_t *ns)
{
    enum comm_result r = ns ? check_call(call) : COMM_ERR_ARGUMENT;

    return r == COMM_OK ? engine_predict(c, call, is_operator(c, call->op), algorithm, machine, ns) : r;
}

enum comm_result comm_describe_algorithm(size_t index, struct comm_algorithm_info *info)
{
    enum comm_result r = api_size(info, sizeof(size_t));

    return r == COMM_OK ? engine_describe_algorithm(index, info) : r;
}

enum comm_result comm_describe_machine(struct comm_communicator *c, char *text, size_t bytes)
{
    return text && bytes ? engine_describe_machine(c, text, bytes) : COMM_ERR_ARGUMENT;
}
