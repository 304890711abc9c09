/* The output of comm-run: lines of ranks, its own, and the reports of hosts' agents. */
#define _GNU_SOURCE
#include "comm_run.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_BYTES = 65536,
    WRITE_BYTES = 4096,        /* a pipe that polls writable accepts this much without blocking */
    LINE_BYTES_MAX = 64 << 20, /* a longer line is split */
};

/* ------------------------------------------------------------------------------------------------------------ text */
void run_append(struct text *text, const char *bytes, size_t count)
{
    if (text->used + count > text->room) {
        text->room = (text->used + count) * 2;
        text->data = realloc(text->data, text->room);
        if (!text->data)
            run_stop(RUN_STATUS_USAGE, "out of memory for %zu bytes of output", text->room);
    }
    memcpy(text->data + text->used, bytes, count);
    text->used += count;
}

void run_drop_front(struct text *text, size_t count)
{
    text->used -= count;
    memmove(text->data, text->data + count, text->used);
}

void run_say(struct job *job, const char *format, ...)
{
    char line[512];
    va_list list;

    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (job->err.fd < 0)
        return;
    run_append(&job->err.pending, "comm-run: ", 10);
    run_append(&job->err.pending, line, strlen(line));
    run_append(&job->err.pending, length < (int)sizeof line ? "\n" : "...\n", length < (int)sizeof line ? 1 : 4);
}

/* ------------------------------------------------------------------------------------------------------------ output */
/* An agent's report of the first failure on its host is a line of standard error: REPORT_MARK, the status, a space, and the text. The first
 * report of all hosts is printed and gives the status. No rank's line begins so: it has a tag, or with --quiet-tags hardly ever the mark.
 */
#define REPORT_MARK "\001comm-run "

void run_begin_report(struct job *job)
{
    char begin[32];

    if (job->settings->agent && job->err.fd >= 0)
        run_append(&job->err.pending, begin, (size_t)snprintf(begin, sizeof begin, REPORT_MARK "%d ", job->status));
}

/* Returns whether the line is a report; *line and *count are then the text, which is to be printed. */
static bool hear_report(struct job *job, const struct output *out, const char **line, size_t *count)
{
    const size_t mark = sizeof REPORT_MARK - 1;
    char *text;

    if (!job->settings->host_count || out != &job->err || *count <= mark || memcmp(*line, REPORT_MARK, mark) != 0 ||
        !isdigit((unsigned char)(*line)[mark]))
        return false;
    long status = strtol(*line + mark, &text, 10);
    *count -= (size_t)(text + 1 - *line);
    *line = text + 1;
    if (*text != ' ' || status < 1 || status > UINT8_MAX || job->status)
        *count = 0;
    else
        job->status = (int)status;
    return true;
}

/* ended: the line has its newline. */
static void emit(struct job *job, int32_t index, struct output *out, const char *line, size_t count, bool ended)
{
    char tag[16];

    if (ended && hear_report(job, out, &line, &count) && !count)
        return;
    if (out->fd < 0)
        return;
    if (job->settings->tags && !job->settings->host_count) /* a host's agent has tagged the lines */
        run_append(&out->pending, tag, (size_t)snprintf(tag, sizeof tag, "[%d] ", job->settings->first + index));
    run_append(&out->pending, line, count);
    if (!ended)
        run_append(&out->pending, "\n", 1);
}

/* Emits whole lines; the rest after the last newline waits. The bytes before `fresh` have no newline. */
static void split_lines(struct job *job, int32_t index, struct stream *stream, size_t fresh)
{
    size_t begin = 0, at = fresh;
    char *data = stream->line.data, *end;

    while ((end = memchr(data + at, '\n', stream->line.used - at))) {
        at = (size_t)(end - data) + 1;
        emit(job, index, stream->out, data + begin, at - begin, true);
        begin = at;
    }
    run_drop_front(&stream->line, begin);
    if (stream->line.used >= LINE_BYTES_MAX) {
        emit(job, index, stream->out, stream->line.data, stream->line.used, false);
        stream->line.used = 0;
    }
}

void run_end_stream(struct job *job, int32_t index, struct stream *stream)
{
    if (stream->fd < 0)
        return;
    if (stream->line.used)
        emit(job, index, stream->out, stream->line.data, stream->line.used, false);
    close(stream->fd);
    free(stream->line.data);
    *stream = (struct stream){.fd = -1, .out = stream->out};
}

void run_read_stream(struct job *job, int32_t index, struct stream *stream)
{
    static char bytes[READ_BYTES];
    size_t fresh = stream->line.used;
    ssize_t got = read(stream->fd, bytes, sizeof bytes);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    /* If our reader is gone, close the pipe, so that the rank notices as if it wrote to the reader itself. Agents still report. */
    bool reports = job->settings->host_count && stream->out == &job->err;
    if (got <= 0 || (stream->out->fd < 0 && !reports)) {
        run_end_stream(job, index, stream);
        return;
    }
    stream->owed -= (size_t)got < stream->owed ? (size_t)got : stream->owed;
    run_append(&stream->line, bytes, (size_t)got);
    split_lines(job, index, stream, fresh);
}

/* A reader that leaves, as head does, has what it wanted. */
static void stop_output(struct job *job, struct output *out, int error)
{
    out->fd = -1;
    out->pending.used = 0;
    if (error == EPIPE)
        return;
    run_say(job, "cannot write to standard output: %s", strerror(error));
    job->lossy = true;
}

void run_write_output(struct job *job, struct output *out)
{
    size_t done = 0;
    struct pollfd ready = {.fd = out->fd, .events = POLLOUT};

    while (done < out->pending.used && poll(&ready, 1, 0) == 1) {
        size_t left = out->pending.used - done;
        ssize_t wrote = write(out->fd, out->pending.data + done, left < WRITE_BYTES ? left : WRITE_BYTES);
        if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
            stop_output(job, out, errno);
            return;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    run_drop_front(&out->pending, done);
}
