#include "base/log.h"
#include "base/format.h"

enum { LOG_LINE_BYTES = 768 };

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
    if (log->sink)
        log->sink(log->arg, level, line);
    else
        log->env->write(log->env, level, line);
}
