/* Formats log lines and passes them to the log of the env. */
#include "base/log.h"
#include "base/format.h"

static const int64_t patience_ns = 200000000;

void base_log(const struct base_log *log, int level, const char *format, ...)
{
    char line[LOG_LINE_BYTES];
    size_t at = 0;
    va_list list;

    if (level > log->level)
        return;
    base_append(line, sizeof line, &at, "commstream: ");
    if (log->rank >= 0)
        base_append(line, sizeof line, &at, "rank %d: ", log->rank);
    va_start(list, format);
    base_format_list(line + at, sizeof line - at, format, list);
    va_end(list);
    log->env->log.write(log->env, log->sink, log->arg, level, line);
}

void base_log_drain(const struct comm_env *env)
{
    (void)env->log.drain(env, env->now(env) + patience_ns);
}

void base_log_end(const struct base_log *log)
{
    log->env->log.forget(log->env, log->sink, log->arg, patience_ns);
}
