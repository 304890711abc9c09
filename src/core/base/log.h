/* Log lines by level, in lower case, each value behind its name. Volume: errors and warnings are rare; info logs once
 * per world, debug once per object, trace once per operation. Nothing is logged between issue and completion of an
 * operation that succeeds. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/env.h"

enum log_level { LOG_ERROR = 1, LOG_WARNING = 2, LOG_INFO = 3, LOG_DEBUG = 4, LOG_TRACE = 5 };
enum { LOG_LINE_BYTES = 768 };

struct base_log {
    const struct comm_env *env;
    env_sink_fn *sink; /* NULL: standard error */
    void *arg;
    int32_t level, rank; /* rank -1: not known yet */
};

void base_log(const struct base_log *log, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Waits a moment until the queued lines are written. For callers that report an error, after which a program often
 * ends. */
void base_log_drain(const struct comm_env *env);
/* Called before the log's sink may disappear: waits likewise, then discards what is not written. */
void base_log_end(const struct base_log *log);

#endif
