/**
 * @file inspect.h
 * @brief Versions, error details, options, statistics, traces, and predictions.
 *
 * All functions here are local and change no state of a communicator, except that an error of theirs becomes the detail that
 * comm_error_detail() returns. Any thread may call, inside callbacks too. Returned strings are never freed.
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

/**
 * Returns the version of the library that is running. Like MPI_Get_library_version and ncclGetVersion.
 *
 * It may be newer than the headers; compare with COMM_VERSION.
 *
 * @return major << 16 | minor << 8 | patch
 */
COMM_MUST uint32_t comm_version(void);

/**
 * Returns the name of a result, such as "COMM_ERR_PEER".
 *
 * @param result  any number
 * @return a name; never NULL
 */
COMM_MUST const char *comm_result_name(enum comm_result result);

/**
 * Describes a result in a few words. Like MPI_Error_string and ncclGetErrorString.
 *
 * @param result  any number
 * @return a text; never NULL
 */
COMM_MUST const char *comm_result_text(enum comm_result result);

/** What comm_error_detail() returns. */
struct comm_error {
    size_t size;             /**< sizeof(struct comm_error) */
    enum comm_result result; /**< COMM_OK: there is no error */
    int32_t rank;            /**< the rank that failed; -1: unknown */
    int32_t peer;            /**< the rank that noticed; -1: unknown */
    int32_t system_errno;    /**< errno of a system call; 0: none */
    uint64_t sequence;       /**< sequence number of the operation; if a refused call has none: of the last collective before it, or 0 */
    int32_t backend_code;    /**< error code of MPI, NCCL or CUDA */
    int32_t reserved;        /**< 0 */
    char operation[24];      /**< name of the operation */
    char cause[24];          /**< kind of the cause, in a word or two */
    char text[512];          /**< what happened and what was expected */
};

/**
 * Returns what caused an error: the one cause for which c failed, or otherwise its last refused call. Like ncclGetLastError.
 *
 * An error that ended one request alone (TRUNCATED, CANCELLED, the deadline of a receive) has no detail; use comm_result_text().
 *
 * After an agree or shrink that ended with an error (except COMM_ERR_ABORTED), it returns the cause of that. If several threads make calls
 * that are refused, it returns the last one.
 *
 * @param c      communicator
 * @param error  receives the detail; the caller sets error->size
 * @return COMM_OK, COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_error_detail(struct comm_communicator *c, struct comm_error *error);

/** What comm_describe_backend() returns. */
struct comm_backend_info {
    size_t size;            /**< sizeof(struct comm_backend_info) */
    char name[16];          /**< its name */
    char version[64];       /**< version of its library; empty: none */
    char missing[160];      /**< why it is not available */
    int32_t available;      /**< 1: it can be used */
    int32_t threads;        /**< 1: any thread may call */
    int32_t fixed_order;    /**< 1: reductions have a fixed order of operands */
    int32_t device_buffers; /**< 1: works on device memory in place */
};

/**
 * Describes a backend by its number.
 *
 * @param index  0, 1, ...
 * @param info   receives the description; the caller sets info->size
 * @return COMM_OK; COMM_ERR_ARGUMENT past the last backend
 */
COMM_MUST enum comm_result comm_describe_backend(size_t index, struct comm_backend_info *info);

/** What comm_describe_option() returns. */
struct comm_option_info {
    size_t size;              /**< sizeof(struct comm_option_info) */
    const char *key;          /**< key in config.options */
    const char *environment;  /**< environment variable */
    const char *type;         /**< type of the value */
    const char *default_text; /**< default value */
    const char *unit;         /**< unit of the value; NULL: none */
    const char *help;         /**< one line */
    const char *also;         /**< another environment variable that is read; NULL: none */
    int32_t environment_only; /**< 1: a program cannot set it */
    char values[124];         /**< which values are allowed, such as "a power of two from 4 to 1024" */
};

/**
 * Describes an option by its number. Similar to the control variables of MPI_T.
 *
 * @param index  0, 1, ...
 * @param info   receives the description; the caller sets info->size
 * @return COMM_OK; COMM_ERR_ARGUMENT past the last option
 */
COMM_MUST enum comm_result comm_describe_option(size_t index, struct comm_option_info *info);

/** Counters of a communicator since it was made. Bytes are counted as they are sent (sums of half-precision types in 32 bits). */
struct comm_stats {
    size_t size;               /**< sizeof(struct comm_stats) */
    uint64_t operations;       /**< collectives; a call that is several pieces of work, such as a split, counts as many */
    uint64_t messages;         /**< sends, receives and calls on windows */
    uint64_t bytes_out;        /**< bytes published or sent, counted once for any number of readers */
    uint64_t bytes_in;         /**< bytes read or received */
    uint64_t queue_high_water; /**< the most operations that were in the queue */
    uint64_t network_out;      /**< bytes sent on connections, with headers; 0 where ranks share memory */
    uint64_t network_in;       /**< bytes received on connections, with headers; 0 where ranks share memory */
};

/**
 * Reads the counters of a communicator. Operations that are running count as far as they got.
 *
 * @param c      communicator
 * @param stats  receives the counters; the caller sets stats->size
 * @return COMM_OK, COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_statistics(struct comm_communicator *c, struct comm_stats *stats);

/**
 * Writes the last 2,000 operations of c, and all that are running, to a file that chrome://tracing and Perfetto read.
 *
 * Each operation is a bar with the times when it was queued, started and done (in microseconds of CLOCK_MONOTONIC), its bytes, algorithm
 * and result, and `waited_for`: the last rank that it had to wait for, or, while it runs, the lowest rank that has not made the call. The
 * cause of a failed communicator is included. With option trace_dir (COMM_TRACE_DIR), every rank writes such a file when a communicator
 * fails. It blocks as long as the file system does.
 *
 * @param c     communicator
 * @param path  the file to write
 * @return COMM_OK; COMM_ERR_SYSTEM if it cannot be written; COMM_ERR_STATE if c is a recorder; COMM_ERR_MEMORY, COMM_ERR_ARGUMENT, or
 *         COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_trace_dump(struct comm_communicator *c, const char *path);

/** What comm_describe_algorithm() returns. */
struct comm_algorithm_info {
    size_t size;         /**< sizeof(struct comm_algorithm_info) */
    int32_t ranks_min;   /**< the smallest communicator it serves */
    int32_t ranks_max;   /**< the largest communicator it serves */
    int32_t bounded;     /**< 1: it serves blocks up to a length that the backend sets */
    int32_t over_hosts;  /**< 1: it is for several hosts; on one host it is used only if named */
    char collective[24]; /**< the collective it serves */
    char name[24];       /**< its name in option `algorithm` */
    char help[128];      /**< one line */
};

/**
 * Describes an algorithm by its number.
 *
 * @param index  0, 1, ...
 * @param info   receives the description; the caller sets info->size
 * @return COMM_OK; COMM_ERR_ARGUMENT past the last algorithm
 */
COMM_MUST enum comm_result comm_describe_algorithm(size_t index, struct comm_algorithm_info *info);

/**
 * Writes the machine figures that the world of c uses for predictions, as the text of a machine file.
 *
 * They come from option machine, or else are built in.
 *
 * @param c      communicator
 * @param text   receives the text, truncated to fit and always terminated
 * @param bytes  its size; 16 KiB is enough
 * @return COMM_OK, COMM_ERR_ARGUMENT, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_describe_machine(struct comm_communicator *c, char *text, size_t bytes);

/** A collective call that a program might make. */
struct comm_call {
    size_t size;            /**< sizeof(struct comm_call) */
    const char *collective; /**< its name, such as "allreduce" */
    size_t n;               /**< number of elements, as in the call */
    enum comm_type type;    /**< element type; 0: COMM_BYTE */
    comm_op op;             /**< operator; 0: any */
    int32_t root;           /**< root */
    int32_t ranks;          /**< number of ranks; 0: those of c */
};

/**
 * Explains which algorithm a call would use, why, and how long it and the other algorithms are predicted to take. Runs nothing.
 *
 * @param c      communicator
 * @param call   the call
 * @param text   receives several lines of text, truncated to fit and always terminated
 * @param bytes  its size
 * @return COMM_OK; COMM_ERR_UNSUPPORTED if no algorithm serves the call (`text` then says so), and for a field of the call that this
 *         library does not know; COMM_ERR_ARGUMENT, COMM_ERR_STATE on a recorder, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_explain(struct comm_communicator *c, const struct comm_call *call, char *text, size_t bytes);

/**
 * Predicts how long a call takes when all ranks make it repeatedly, one after another. Runs nothing.
 *
 * @param c          communicator
 * @param call       the call
 * @param algorithm  name of the algorithm; NULL: the one that would be chosen
 * @param machine    text of a machine file; NULL: the figures that the world of c uses
 * @param ns         receives the predicted time in nanoseconds
 * @return COMM_OK; COMM_ERR_CONFIG for a wrong machine text (the detail names the line); COMM_ERR_UNSUPPORTED if the algorithm does not
 *         exist or cannot serve the call; COMM_ERR_ARGUMENT, COMM_ERR_MEMORY, COMM_ERR_STATE on a recorder, or COMM_ERR_CLOSED
 */
COMM_MUST enum comm_result comm_predict(struct comm_communicator *c, const struct comm_call *call, const char *algorithm,
                                        const char *machine, int64_t *ns);

#ifdef __cplusplus
}
#endif

#endif
