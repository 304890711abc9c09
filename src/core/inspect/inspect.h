/* What a program can ask about its communicators. */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include <commstream/inspect.h>

#include "comm/call.h"
#include "model/cost.h"

/* What rank 0 read for option machine; sent to all ranks when they meet. */
struct machine_given {
    struct cost_machine figures;
    uint32_t measured, failed;
    char error[224];
};
void machine_read(const struct comm_env *env, const char *path, struct machine_given *given);

int32_t engine_node(struct comm_communicator *c); /* at least 0, equal for ranks of one host */
int32_t engine_translate(struct comm_communicator *c, int32_t rank, struct comm_communicator *other);
int32_t engine_numa(const struct comm_communicator *c); /* the NUMA node that the calling thread may run on; -1: several */

enum comm_result engine_error_detail(struct comm_communicator *c, struct comm_error *error);
enum comm_result engine_describe_backend(size_t index, struct comm_backend_info *info);
enum comm_result engine_describe(struct comm_communicator *c, struct comm_info *info);
enum comm_result engine_describe_peer(struct comm_communicator *c, int32_t peer, struct comm_peer_info *info);
enum comm_result engine_describe_request(struct comm_request request, struct comm_request_info *info);
enum comm_result engine_statistics(struct comm_communicator *c, struct comm_stats *stats);
enum comm_result engine_trace_dump(struct comm_communicator *c, const char *path);
/* has_operator: call->op is an operator, or 0. This room does not know those that the program made. */
enum comm_result engine_explain(struct comm_communicator *c, const struct comm_call *call, bool has_operator, char *text, size_t bytes);
enum comm_result engine_describe_machine(struct comm_communicator *c, char *text, size_t bytes);
enum comm_result engine_describe_algorithm(size_t index, struct comm_algorithm_info *info);
enum comm_result engine_predict(struct comm_communicator *c, const struct comm_call *call, bool has_operator, const char *algorithm,
                                const char *machine, int64_t *ns);

#endif
