/*
 * The processes of this host whose ranks have met this one over MPI. If one of them ends without MPI_Finalize, this process may wait for it
 * at its own end (end.c), and MPI does not tell. The kernel does. A process is named by its number and by when it began, because numbers
 * are used again.
 */
#define _GNU_SOURCE
#include "net/mpi/mpi_module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_TO_BEGAN = 19 /* fields of /proc/PID/stat from the state to when it began: proc(5) */ };

static struct {
    pthread_mutex_t lock;
    struct mpi_process *at;
    size_t count, room;
} met = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* UNKNOWN: the kernel did not say, for want of a descriptor for example. */
enum look { LOOK_NONE, LOOK_FOUND, LOOK_UNKNOWN };

static enum look look_up(int64_t pid, char *state, uint64_t *began)
{
    char path[48], text[1024];

    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? LOOK_NONE : LOOK_UNKNOWN;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *at = strrchr(text, ')'); /* the end of its name, in which any character may be */
    if (!at || at[1] != ' ')
        return LOOK_NONE;
    at += 2;
    *state = *at;
    for (int field = 0; at && field < STATE_TO_BEGAN; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    *began = at ? strtoull(at, NULL, 10) : 0;
    return *began ? LOOK_FOUND : LOOK_UNKNOWN;
}

static uint64_t hash_of(const char *text, size_t bytes, uint64_t hash)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Equal for processes that see each other's numbers; 0: unknown. */
static uint64_t host_of_this(void)
{
    char boot[64], self[32], mine[32];
    struct stat space;

    ssize_t length = readlink("/proc/self", self, sizeof self - 1);
    self[length < 0 ? 0 : length] = 0;
    snprintf(mine, sizeof mine, "%lld", (long long)getpid());
    if (strcmp(self, mine) != 0 || stat("/proc/self/ns/pid", &space)) /* /proc may be another namespace's */
        return 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t bytes = file ? fread(boot, 1, sizeof boot, file) : 0;
    if (file)
        fclose(file);
    uint64_t number = (uint64_t)space.st_ino;
    return bytes ? hash_of((const char *)&number, sizeof number, hash_of(boot, bytes, UINT64_C(0xcbf29ce484222325))) : 0;
}

struct mpi_process mpi_process_here(void)
{
    struct mpi_process mine = {.pid = (int64_t)getpid()};
    char state;

    if (look_up(mine.pid, &state, &mine.began) == LOOK_FOUND)
        mine.host = host_of_this();
    return mine;
}

static void note(const struct mpi_process *one)
{
    for (size_t i = 0; i < met.count; i++)
        if (met.at[i].pid == one->pid && met.at[i].began == one->began)
            return;
    if (met.count == met.room) {
        size_t room = met.room ? 2 * met.room : 16;
        struct mpi_process *more = realloc(met.at, room * sizeof *more);
        if (!more)
            return; /* without it the wait at the end has no bound, as between hosts */
        met.at = more;
        met.room = room;
    }
    met.at[met.count++] = *one;
}

void mpi_processes_note(const struct mpi_process *mine, const struct mpi_process *all, int count)
{
    pthread_mutex_lock(&met.lock);
    for (int i = 0; mine->host && i < count; i++)
        if (all[i].host == mine->host && all[i].pid != mine->pid)
            note(&all[i]);
    pthread_mutex_unlock(&met.lock);
}

/* What nobody has waited for yet (Z) has ended too. */
static bool has_ended(const struct mpi_process *one)
{
    uint64_t began = 0;
    char state = 0;

    enum look found = look_up(one->pid, &state, &began);
    return found == LOOK_NONE || (found == LOOK_FOUND && (began != one->began || state == 'Z' || state == 'X'));
}

bool mpi_process_has_ended(void)
{
    bool ended = false;

    pthread_mutex_lock(&met.lock);
    for (size_t i = 0; !ended && i < met.count; i++)
        ended = has_ended(&met.at[i]);
    pthread_mutex_unlock(&met.lock);
    return ended;
}
