#define _GNU_SOURCE
#include "net/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 32, PORT = 4711 };
static const int spaces[] = {CLONE_NEWNET, CLONE_NEWUTS, CLONE_NEWIPC};
static const char *const space_files[] = {"net", "uts", "ipc"};
static char said[1024];

const char *hosts_said(void)
{
    return said;
}

/* ------------------------------------------------------------------------------------------------------------ namespaces */
static void skip(const char *what, int error)
{
    char why[256];
    snprintf(why, sizeof why, "%s: %s", what, strerror(error));
    rig_skip(why);
}

static void write_to(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        skip(path, errno);
    close(file);
}

/* A user other than root becomes root of a user namespace, if that is allowed. */
static void become_root(void)
{
    char map[64];
    if (geteuid() == 0)
        return;
    uid_t user = geteuid();
    gid_t group = getegid();
    if (unshare(CLONE_NEWUSER) < 0)
        skip("neither root nor allowed a user namespace", errno);
    write_to("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", user);
    write_to("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", group);
    write_to("/proc/self/gid_map", map);
}

static pid_t hold(const char *name)
{
    int ready[2], error = 0;
    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC) < 0 || sethostname(name, strlen(name)) < 0)
            error = errno;
        if (write(ready[1], &error, sizeof error) != sizeof error)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &error, sizeof error) == sizeof error);
    close(ready[0]);
    close(ready[1]);
    if (error)
        skip("namespaces are refused", error);
    return pid;
}

static void go_to(pid_t holder)
{
    char path[64];
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        snprintf(path, sizeof path, "/proc/%ld/ns/%s", (long)holder, space_files[i]);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0 || setns(file, spaces[i]) < 0)
            _exit(126);
        close(file);
    }
}

int hosts_run(const struct hosts *h, int32_t host, const char *format, ...)
{
    char line[512], *word[WORDS_MAX + 1] = {NULL}, *rest = line;
    int words = 0, status = 0, out[2];
    va_list list;

    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    size_t length = (size_t)snprintf(said, sizeof said, "host %d: %s: ", host, line);
    while (rest && words < WORDS_MAX)
        word[words++] = strsep(&rest, " ");
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(out[1], STDERR_FILENO);
        dup2(out[1], STDOUT_FILENO);
        go_to(h->holder[host < 0 ? h->count : host]);
        execvp(word[0], word);
        _exit(127);
    }
    close(out[1]);
    for (ssize_t n; length < sizeof said - 1 && (n = read(out[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)n;
    said[length] = 0;
    close(out[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* ------------------------------------------------------------------------------------------------------------ the hosts */
static void plug(const struct hosts *h, int32_t i)
{
    if (hosts_run(h, -1, "ip link add port%d type veth peer name eth0 netns %ld", i, (long)h->holder[i]))
        rig_skip(said);
    HOSTS_MUST(h, -1, "ip link set port%d master switch up", i);
    HOSTS_MUST(h, i, "ip addr add 10.77.0.%d/24 dev eth0", i + 1);
    hosts_run(h, i, "ip -6 addr add fd77::%d/64 dev eth0 nodad", i + 1); /* the kernel may lack IPv6 */
    HOSTS_MUST(h, i, "ip link set lo up");
    HOSTS_MUST(h, i, "ip link set eth0 up");
}

void hosts_open(struct hosts *h, int32_t count, int32_t each)
{
    char name[16];
    CHECK(count <= HOSTS_MAX);
    *h = (struct hosts){.count = count, .each = each, .family = AF_INET};
    become_root();
    for (int32_t i = 0; i <= count; i++) {
        snprintf(name, sizeof name, i < count ? "node%d" : "switch", i);
        h->holder[i] = hold(name);
    }
    int status = hosts_run(h, -1, "ip link add switch type bridge");
    if (status == 127)
        rig_skip("iproute2 (the program ip) is not installed");
    if (status)
        rig_skip(said);
    HOSTS_MUST(h, -1, "ip link set switch up");
    for (int32_t i = 0; i < count; i++)
        plug(h, i);
}

void hosts_close(struct hosts *h)
{
    for (int32_t i = 0; i <= h->count; i++) {
        kill(h->holder[i], SIGKILL);
        waitpid(h->holder[i], NULL, 0);
    }
}

void hosts_cable(const struct hosts *h, int32_t host, bool in)
{
    HOSTS_MUST(h, -1, "ip link set port%d %s", host, in ? "up" : "down");
}

/* Sends the frames to a MAC address that nobody has, so they are lost. */
void hosts_lose(const struct hosts *h, int32_t from, int32_t to)
{
    HOSTS_MUST(h, from, "ip neigh replace 10.77.0.%d lladdr 02:00:00:00:77:77 dev eth0 nud permanent", to + 1);
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
static void say(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const char *name, const char *format, ...)
{
    char text[128];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    setenv(name, text, 1);
}

static void enter(struct proc *proc, int32_t rank)
{
    const struct hosts *h = proc->place;
    go_to(h->holder[rank / h->each]);
    say("COMM_BACKEND", "tcp");
    if (!h->guarded)
        say("COMM_TCP_INSECURE", "1");
    say("COMM_LOCAL_RANK", "%d", rank % h->each);
    say("COMM_LOCAL_RANKS", "%d", h->each);
    if (h->name)
        say("COMM_ADDRESS", "%s:%d", h->name, PORT);
    else
        say("COMM_ADDRESS", h->family == AF_INET6 ? "[fd77::1]:%d" : "10.77.0.1:%d", PORT);
}

void hosts_place(struct hosts *h, struct proc *proc)
{
    proc->place = h;
    proc->enter = enter;
}
