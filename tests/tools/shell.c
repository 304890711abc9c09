/* Shell scripts that run comm-run, with what they print in temporary files. */
#define _GNU_SOURCE
#include "tools/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static char *text_of(FILE *file)
{
    long length = (fseek(file, 0, SEEK_END), ftell(file));
    char *text = calloc(1, (size_t)length + 1);

    rewind(file);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)length, file), length);
    fclose(file);
    return text;
}

pid_t launch(const char *script, FILE **out, FILE **err)
{
    *out = tmpfile();
    *err = tmpfile();
    assert_true(*out && *err);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(fileno(*out), STDOUT_FILENO);
        dup2(fileno(*err), STDERR_FILENO);
        setenv("R", COMM_RUN, 1);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(126);
    }
    return pid;
}

struct result finish(pid_t pid, FILE *out, FILE *err, double begin)
{
    int status = 0;
    struct result result;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.seconds = seconds_now() - begin;
    result.out = text_of(out);
    result.err = text_of(err);
    return result;
}

struct result shell(const char *script)
{
    FILE *out, *err;
    double begin = seconds_now();
    pid_t pid = launch(script, &out, &err);
    return finish(pid, out, err, begin);
}

void forget(struct result *result)
{
    free(result->out);
    free(result->err);
}

void expect(const char *script, int status, const char *out, const char *err)
{
    struct result r = shell(script);
    if (r.status != status || (out && strcmp(r.out, out) != 0) || (err && strcmp(r.err, err) != 0))
        fail_msg("%s\nstatus %d, not %d\nout: %s\nerr: %s", script, r.status, status, r.out, r.err);
    forget(&r);
}
