/*
 * in_hosts COMMAND...: runs the command on the first of two hosts (net/hosts.h) and exits as the command did. HOST_HOLDERS lists the
 * processes that hold the namespaces of the hosts. in_host.sh, by which a launcher reaches the second host, uses it. When the file CUT is
 * not empty, the cable of the second host is unplugged. It is plugged in again after UNPLUGGED_NS, so that the launcher can end the job.
 */
#define _GNU_SOURCE
#include "net/hosts.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS = 2, WORDS = 32 };
#define UNPLUGGED_NS (6 * RIG_S)

static char cut[] = "/tmp/commstream-cut-XXXXXX";

static pid_t run(const struct hosts *h, char **command)
{
    char holder[16], *word[WORDS + 8] = {"nsenter", "-t", holder, "-n", "-u", "-i"};
    int words = 6;

    snprintf(holder, sizeof holder, "%ld", (long)h->holder[0]);
    for (int i = 0; command[i] && i < WORDS; i++)
        word[words++] = command[i];
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execvp(word[0], word);
        _exit(127);
    }
    return pid;
}

/* Waits for the command to end. Returns 0 while it runs. */
static int watch(const struct hosts *h, pid_t pid)
{
    int status = 0;
    struct stat flag;
    int64_t pulled = 0;

    for (;; rig_nap(RIG_MS)) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return status;
        CHECK(ended == 0 || errno == EINTR);
        if (!pulled && stat(cut, &flag) == 0 && flag.st_size > 0) {
            hosts_cable(h, HOSTS - 1, false);
            pulled = rig_now();
        }
        if (pulled > 1 && rig_now() - pulled > UNPLUGGED_NS) {
            hosts_cable(h, HOSTS - 1, true);
            pulled = 1;
        }
    }
}

int main(int count, char **argument)
{
    struct hosts h;
    char holders[64];

    CHECK(count > 1);
    hosts_open(&h, HOSTS, 1);
    snprintf(holders, sizeof holders, "%ld %ld", (long)h.holder[0], (long)h.holder[1]);
    setenv("HOST_HOLDERS", holders, 1);
    int file = mkstemp(cut);
    CHECK(file >= 0);
    close(file);
    setenv("CUT", cut, 1);
    int status = watch(&h, run(&h, argument + 1));
    unlink(cut);
    hosts_close(&h);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
