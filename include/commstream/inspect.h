/*
 * Looking at the library: version, results as text, the cause of an error, what is built in, what is running and why. Everything here is
 * local, changes nothing, and may be called from any thread, inside callbacks too; texts that are returned live for ever. May change until
 * 0.1.
 */
#ifndef COMMSTREAM_INSPECT_H
#define COMMSTREAM_INSPECT_H

#include <commstream/export.h>
#include <commstream/request.h>
#include <commstream/result.h>
#include <commstream/type.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * major << 16 | minor << 8 | patch of the library that is running, which may be newer than the headers. MPI_Get_library_version,
 * ncclGetVersion.
 */
COMM_MUST uint32_t comm_version(void);
/*
 * The name of a result as it stands in the code, "COMM_ERR_PEER"; never NULL, also for numbers that are none.
 */
COMM_MUST const char *comm_result_name(enum comm_result result);
/*
 * A result in a few words; never NULL, also for numbers that are none. MPI_Error_string, ncclGetErrorString.
 */
COMM_MUST const char *comm_result_text(enum comm_result result);

struct comm_error {
    size_t size; /* sizeof(struct comm_error) */
    enum comm_result result;
    int32_t rank, peer; /* who failed, who found out; -1: unknown */
    int32_t system_errno;
    uint64_t sequence;
    int32_t backend_code, reserved;
    char operation[24], cause[24], text[512];
};
/*
 * The one cause for which c failed, or else its last refused call; behind an agree or shrink that ended with an error (but ABORTED), why it
 * did: rank, operation, number, and a text that says what happened and what was expected. The caller sets error->size; everything is
 * copied. With nothing to tell, error->result is COMM_OK. After comm_close: CLOSED. ncclGetLastError.
 */
COMM_MUST enum comm_result comm_error_detail(struct comm_communicator *c, struct comm_error *error);

struct comm_backend_info {
    size_t size; /* sizeof(struct comm_backend_info) */
    char name[16], version[64], missing[160];
    int32_t available, threads, fixed_order, device_buffers;
};
/*
 * Backend number `index`, from 0: its name, and where it cannot be had what is missing. The caller sets info->size. Past the end: ARGUMENT.
 */
COMM_MUST enum comm_result comm_describe_backend(size_t index, struct comm_backend_info *info);

struct comm_option_info {
    size_t size; /* sizeof(struct comm_option_info) */
    const char *key, *environment, *type, *default_text, *unit, *help;
    const char *also;         /* another environment variable that is read, or NULL */
    int32_t environment_only; /* a program cannot set it */
    char values[124];         /* what a value must be: "a power of two from 4 to 1024" */
};
/*
 * Row number `index`, from 0, of the option table: key for config.options, environment variable, type, default, unit, help, and what a
 * value must be. The caller sets info->size. Past the end: ARGUMENT. MPI_T cvars are the relative.
 */
COMM_MUST enum comm_result comm_describe_option(size_t index, struct comm_option_info *info);

struct comm_stats {
    size_t size; /* sizeof(struct comm_stats) */
    uint64_t operations, messages, bytes_out, bytes_in, waits_ns, progress_calls, wakeups, queue_high_water;
    uint64_t network_out, network_in;
};
/*
 * Counters of c since it was made. The caller sets stats->size. bytes_out: what this rank showed or sent to others, counted once however
 * many of them read it; bytes_in: what it read or received of others; in bytes as they travel (sums of half-precision types in 32 bits), in
 * operations under way as far as they came. network_out, network_in: what of it this rank sent over connections and received from them, for
 * each peer, with everything that stands beside it in its frames; 0 where ranks share memory. Counted today: operations, messages,
 * bytes_out, bytes_in, queue_high_water, network_out, network_in; the others stay 0.
 */
COMM_MUST enum comm_result comm_statistics(struct comm_communicator *c, struct comm_stats *stats);
/*
 * Writes what is remembered of c's last 2,000 operations and messages, and all that are under way, to `path`, as JSON that chrome://tracing
 * and Perfetto read: a bar from start to end, and with it when the operation was queued, started and done (microseconds of
 * CLOCK_MONOTONIC), its bytes, algorithm, result, and `waited_for`: the rank whose part came last of what was not there when this rank
 * looked for it; of an operation under way, the lowest rank that has not made the call. A failed communicator's cause stands in it too.
 * With option trace_dir (COMM_TRACE_DIR) every rank writes such a file by itself when a communicator fails. Blocks as long as the file
 * system does; SYSTEM when it cannot be written, MEMORY where there is none for a copy.
 */
COMM_MUST enum comm_result comm_trace_dump(struct comm_communicator *c, const char *path);

struct comm_algorithm_info {
    size_t size; /* sizeof(struct comm_algorithm_info) */
    int32_t ranks_min, ranks_max;
    int32_t bounded;    /* it serves blocks up to a length that the backend sets */
    int32_t over_hosts; /* it is made of the ranks of several hosts, and on one is taken only where it is named */
    char collective[24], name[24], help[128];
};
/*
 * Row number `index`, from 0, of the table of algorithms: what option algorithm may name. The caller sets info->size. Past the end:
 * ARGUMENT.
 */
COMM_MUST enum comm_result comm_describe_algorithm(size_t index, struct comm_algorithm_info *info);
/*
 * The figures of the machine that c's world has agreed on, as text of a machine file into text[0 .. bytes), cut to fit and always ended:
 * those of option machine, else built-in ones. 16 KiB hold it.
 */
COMM_MUST enum comm_result comm_describe_machine(struct comm_communicator *c, char *text, size_t bytes);

/* A call that one might make. */
struct comm_call {
    size_t size;            /* sizeof(struct comm_call) */
    const char *collective; /* "allreduce" */
    size_t n;
    enum comm_type type;
    comm_op op;
    int32_t root, ranks; /* ranks 0: those of c */
};
/*
 * Which algorithm that call would take, why, and what time is predicted for it and for the others, as text of several lines into
 * text[0 .. bytes), cut to fit and always ended. Runs nothing.
 */
COMM_MUST enum comm_result comm_explain(struct comm_communicator *c, const struct comm_call *call, char *text, size_t bytes);
/*
 * How many nanoseconds such a call takes, predicted, where all ranks make it one time behind the other: by `algorithm`, or NULL, the one
 * that would be chosen; on the machine whose file has the text `machine`, or NULL, the one that c's world has agreed on. Runs nothing, and
 * takes memory. A machine text that is wrong: CONFIG, comm_error_detail names its line. An algorithm that cannot serve the call:
 * UNSUPPORTED.
 */
COMM_MUST enum comm_result comm_predict(struct comm_communicator *c, const struct comm_call *call, const char *algorithm,
                                        const char *machine, double *ns);

#ifdef __cplusplus
}
#endif

#endif
