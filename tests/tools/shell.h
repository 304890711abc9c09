/* Shell scripts that run comm-run: what they print, their status, and how long they take. */
#ifndef TESTS_TOOLS_SHELL_H
#define TESTS_TOOLS_SHELL_H

#include <stdio.h>
#include <sys/types.h>

struct result {
    int status; /* 128 + signal if killed, as in a shell */
    double seconds;
    char *out, *err;
};

double seconds_now(void);
/* Begins a shell in which $R is comm-run. Its output goes to the two files. */
pid_t launch(const char *script, FILE **out, FILE **err);
/* Waits for the end of that shell, which was launched at `begin`, and closes the files. */
struct result finish(pid_t pid, FILE *out, FILE *err, double begin);
/* Runs the shell to its end. */
struct result shell(const char *script);
void forget(struct result *result); /* frees its texts */
/* Runs the shell, which must end with this status and these outputs; NULL: any. */
void expect(const char *script, int status, const char *out, const char *err);

#endif
