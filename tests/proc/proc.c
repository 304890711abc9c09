/* Starts ranks as processes, waits for them, and reads their reports (proc.h). */
#define _GNU_SOURCE
#include "proc/proc.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void proc_needs_shm(void)
{
    struct comm_backend_info info;
    for (size_t i = 0;; i++) {
        info = (struct comm_backend_info){.size = sizeof info};
        if (comm_describe_backend(i, &info) != COMM_OK)
            rig_skip("this library has no backend called shm");
        if (strcmp(info.name, "shm") == 0)
            break;
    }
    if (!info.available)
        rig_skip(info.missing);
}

static void *shared_memory(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

struct comm_communicator *proc_open(struct proc *proc, int32_t rank)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    struct comm_config *config =
        COMM_CONFIG(.backend = "shm", .options = proc->options, .error_text = text, .error_text_bytes = sizeof text,
                    .open_timeout_ns = 20 * RIG_S, .operation_timeout_ns = 60 * RIG_S);
    enum comm_result result = comm_open(config, &world);
    if (result != COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: comm_open: %s: %s", rank, comm_result_name(result), text);
    EQUAL(comm_rank(world), rank);
    EQUAL(comm_size(world), proc->ranks);
    rig_poller(config->backend, proc->ranks);
    return world;
}

static void child_set(const char *name, int32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

_Noreturn static void child_run(struct proc *proc, int32_t rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    child_set("COMM_RANK", rank);
    child_set("COMM_RANKS", proc->ranks);
    child_set("COMM_LOCAL_RANK", rank);
    child_set("COMM_LOCAL_RANKS", proc->ranks);
    setenv("COMM_JOB", proc->job, 1);
    if (proc->enter)
        proc->enter(proc, rank);
    proc->main(proc, rank, proc->raw ? NULL : proc_open(proc, rank));
    fflush(NULL);
    exit(0);
}

void proc_start(struct proc *proc, int32_t ranks, proc_main *main)
{
    static int started;
    proc->ranks = ranks;
    proc->main = main;
    proc->page = shared_memory(sizeof *proc->page * PROC_RANKS_MAX);
    proc->go = shared_memory(sizeof *proc->go);
    snprintf(proc->job, sizeof proc->job, "test-%ld-%d-%lld", (long)getpid(), ++started, (long long)rig_now());
    fflush(NULL);
    for (int32_t r = 0; r < ranks; r++) {
        proc->pid[r] = fork();
        CHECK(proc->pid[r] >= 0);
        if (proc->pid[r] == 0)
            child_run(proc, r);
    }
}

static void kill_all(struct proc *proc)
{
    for (int32_t r = 0; r < proc->ranks; r++) {
        if (proc->pid[r] > 0)
            kill(proc->pid[r], SIGKILL);
    }
}

/* Checks whether this rank has ended, without waiting. */
static void reap(struct proc *proc, int32_t r, int32_t except)
{
    int status = 0;
    if (proc->pid[r] <= 0 || waitpid(proc->pid[r], &status, WNOHANG) != proc->pid[r])
        return;
    proc->pid[r] = 0;
    if (r == except || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return;
    kill_all(proc);
    if (WIFSIGNALED(status))
        rig_die(__FILE__, __LINE__, "rank %d ended by signal %d", r, WTERMSIG(status));
    rig_die(__FILE__, __LINE__, "rank %d ended with %d", r, WEXITSTATUS(status));
}

static int32_t still_running(const struct proc *proc)
{
    int32_t count = 0;
    for (int32_t r = 0; r < proc->ranks; r++)
        count += proc->pid[r] > 0;
    return count;
}

/* Naps, and returns how much longer that took than busy CPUs explain. */
static int64_t nap_of(int64_t ns)
{
    int64_t before = rig_now();
    rig_nap(ns);
    int64_t over = rig_now() - before - ns - 100 * RIG_MS;
    return over > 0 ? over : 0;
}

void proc_finish(struct proc *proc, int32_t except, int64_t patience)
{
    proc->stood_ns = 0;
    for (int64_t end = rig_now() + patience; still_running(proc) && rig_now() < end + proc->stood_ns; proc->stood_ns += nap_of(RIG_MS)) {
        for (int32_t r = 0; r < proc->ranks; r++)
            reap(proc, r, except);
    }
    for (int32_t r = 0; r < proc->ranks; r++) {
        if (proc->pid[r] > 0) {
            kill_all(proc);
            rig_die(__FILE__, __LINE__, "rank %d has not ended; it is at stage %lld", r, (long long)proc->page[r].stage);
        }
    }
}

void proc_await(struct proc *proc, int32_t rank, int64_t stage)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; atomic_load(&proc->page[rank].stage) < stage; rig_nap(RIG_MS)) {
        for (int32_t r = 0; r < proc->ranks; r++)
            reap(proc, r, -1);
        if (rig_now() < end)
            continue;
        kill_all(proc);
        rig_die(__FILE__, __LINE__, "rank %d does not reach stage %lld", rank, (long long)stage);
    }
}

void proc_tell_failure(struct proc_page *page, struct comm_communicator *c, enum comm_result result)
{
    struct comm_error error = {.size = sizeof error, .rank = -99};
    atomic_store(&page->time, rig_now());
    if (comm_error_detail(c, &error) == COMM_OK) {
        memcpy(page->cause, error.cause, sizeof page->cause);
        memcpy(page->operation, error.operation, sizeof page->operation);
        memcpy(page->text, error.text, sizeof page->text);
    }
    page->sequence = (int64_t)error.sequence;
    page->rank = error.rank;
    page->result = result;
    atomic_fetch_add(&page->stage, INT64_C(1) << 40);
}

int64_t proc_entries(const char *path, const char *part)
{
    int64_t count = 0;
    DIR *directory = opendir(path);
    CHECK(directory || part); /* a missing folder has no such name; but the folders of a process must exist */
    if (!directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        count += !part || strstr(entry->d_name, part);
    closedir(directory);
    return count;
}

int64_t proc_lines(const char *path, const char *part)
{
    char line[512];
    int64_t count = 0;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        count += strstr(line, part) != NULL;
    fclose(file);
    return count;
}

struct proc_held proc_hold(void)
{
    return (struct proc_held){proc_entries("/proc/self/fd", NULL), proc_entries("/proc/self/task", NULL),
                              proc_lines("/proc/self/maps", "commstream") + proc_lines("/proc/self/maps", "memfd:")};
}

int64_t proc_holdings(void)
{
    struct proc_held now = proc_hold();
    return now.descriptors + now.threads + now.mappings;
}

/* ThreadSanitizer starts a thread of its own with the first thread. */
static bool holds(const struct proc_held *before, const struct proc_held *now)
{
#if defined(__SANITIZE_THREAD__)
    bool threads = now->threads <= before->threads + 1;
#else
    bool threads = now->threads == before->threads;
#endif
    return now->descriptors == before->descriptors && threads && now->mappings == before->mappings;
}

void proc_holds_as(const struct proc_held *before)
{
    struct proc_held now = proc_hold();
    for (int i = 0; i < 1000 && !holds(before, &now); i++, now = proc_hold())
        rig_nap(10 * RIG_MS);
    if (!holds(before, &now))
        rig_die(__FILE__, __LINE__, "left behind: %lld descriptors, %lld threads, %lld mappings",
                (long long)(now.descriptors - before->descriptors), (long long)(now.threads - before->threads),
                (long long)(now.mappings - before->mappings));
}

void proc_holds_more(const struct proc_held *before)
{
    struct proc_held now = proc_hold();
    CHECK(now.descriptors > before->descriptors);
    CHECK(now.threads >= before->threads);
    /* over a network, a rank shares memory with no other rank, or only with those of its host */
    const char *backend = getenv("COMM_BACKEND");
    CHECK(now.mappings > before->mappings || (backend && strstr(backend, "tcp")));
}

int64_t proc_names(const struct proc *proc)
{
    return proc_lines("/proc/net/unix", proc->job);
}
