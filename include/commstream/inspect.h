#ifndef COMMSTREAM_INSPECT_H
#define COMMSTREAM_INSPECT_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

COMM_MUST uint32_t comm_version(void); /* major << 16 | minor << 8 | patch */
COMM_MUST const char *comm_result_name(enum comm_result result); /* "COMM_ERR_PEER"; never NULL */
COMM_MUST const char *comm_result_text(enum comm_result result);
struct comm_error {
    size_t size;
    enum comm_result result;
    int32_t rank, peer;               /* who failed, who found out; -1 unknown              */
    int32_t system_errno;
    uint64_t sequence;
    int32_t backend_code, reserved;
    char operation[24], cause[24], text[512];
};
/* The sticky cause, or else the last refused call of this communicator. */
COMM_MUST enum comm_result comm_error_detail(struct comm_communicator *c, struct comm_error *error);
struct comm_backend_info { size_t size; char name[16], version[64], missing[160]; int32_t available, threads, fixed_order, device_buffers; };
COMM_MUST enum comm_result comm_describe_backend(size_t index, struct comm_backend_info *info); /* past the end: COMM_ERR_ARGUMENT */
struct comm_option_info { size_t size; const char *key, *environment, *type, *default_text, *unit, *help; };
COMM_MUST enum comm_result comm_describe_option(size_t index, struct comm_option_info *info);
struct comm_stats { size_t size; uint64_t operations, messages, bytes_out, bytes_in, waits_ns, progress_calls, wakeups, queue_high_water; };
COMM_MUST enum comm_result comm_statistics(struct comm_communicator *c, struct comm_stats *stats);
COMM_MUST enum comm_result comm_trace_dump(struct comm_communicator *c, const char *path);
struct comm_call { size_t size; const char *collective; size_t n; enum comm_type type; comm_op op; int32_t root, ranks; };
COMM_MUST enum comm_result comm_explain(struct comm_communicator *c, const struct comm_call *call, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
