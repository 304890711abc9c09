/* What the process was given: CPUs, host name, modules. Read from /proc, /sys and the loader when a world opens, and never while operations
 * run. */
#define _GNU_SOURCE
#include "net/posix/posix.h"

#include "base/format.h"
#include "base/hash.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, TEXT_BYTES = 8192, CPUS_MAX = 1 << 16, NODES_MAX = 1024 };

/* Reads a whole small file as text; false if it cannot be read. */
static bool read_text(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t at = 0;
    ssize_t got = -1;

    if (file < 0)
        return false;
    while (at + 1 < room && (got = read(file, text + at, room - 1 - at)) != 0) {
        if (got > 0)
            at += (size_t)got;
        else if (errno != EINTR)
            break;
    }
    close(file);
    text[at] = 0;
    return got >= 0;
}

/* ------------------------------------------------------------------------------------------------------------ CPUs */
/* The kernel refuses a set smaller than its own; this one is larger than any that it can be built for. */
struct cpus {
    cpu_set_t part[CPUS_MAX / CPU_SETSIZE];
};

static bool own_cpus(struct cpus *cpus)
{
    memset(cpus, 0, sizeof *cpus);
    return sched_getaffinity(0, sizeof *cpus, cpus->part) == 0;
}

static uint32_t affinity_cpus(void)
{
    struct cpus cpus;
    int count = own_cpus(&cpus) ? CPU_COUNT_S(sizeof cpus, cpus.part) : 0;

    return count > 0 ? (uint32_t)count : 1;
}

static uint32_t whole_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return UINT32_MAX;
    long long cpus = (quota + period - 1) / period;
    return cpus > CPUS_MAX ? UINT32_MAX : (uint32_t)cpus;
}

/* The file has "max 100000" or "150000 100000". */
static uint32_t quota_v2(const char *folder)
{
    char path[PATH_BYTES], text[128], *end;

    base_format(path, sizeof path, "%s/cpu.max", folder);
    if (!read_text(path, text, sizeof text) || strncmp(text, "max", 3) == 0)
        return UINT32_MAX;
    long long quota = strtoll(text, &end, 10);
    return whole_cpus(quota, strtoll(end, NULL, 10));
}

static uint32_t quota_v1(const char *folder)
{
    char path[PATH_BYTES], quota[64], period[64];

    base_format(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_text(path, quota, sizeof quota))
        return UINT32_MAX;
    base_format(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_text(path, period, sizeof period))
        return UINT32_MAX;
    return whole_cpus(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* The lowest quota from a group up to the root of its mount. In a container the group's path may not exist below the mount; then its root
 * is the container's own group. */
static uint32_t lowest_quota(const char *mount, const char *group, uint32_t (*quota)(const char *folder))
{
    char folder[PATH_BYTES];
    uint32_t lowest = UINT32_MAX;
    size_t length = base_format(folder, sizeof folder, "%s%s", mount, group), root = strlen(mount);

    if (length >= sizeof folder)
        return lowest;
    for (;;) {
        while (length > root && folder[length - 1] == '/')
            length--;
        folder[length] = 0;
        uint32_t cpus = quota(folder);
        lowest = cpus < lowest ? cpus : lowest;
        if (length <= root)
            return lowest;
        while (length > root && folder[length - 1] != '/')
            length--;
    }
}

/* Whether the comma-separated list contains the word. */
static bool lists(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == 0 || at[length] == ','))
            return true;
    }
    return false;
}

static uint32_t cgroup_cpus(void)
{
    char text[TEXT_BYTES], mount[512], *rest = text, *line;
    uint32_t lowest = UINT32_MAX, found;

    if (!read_text("/proc/self/cgroup", text, sizeof text))
        return lowest;
    while ((line = strsep(&rest, "\n"))) { /* "4:cpu,cpuacct:/path"; the unified hierarchy is "0::/path" */
        char *number = strsep(&line, ":"), *controllers = strsep(&line, ":");
        if (!number || !controllers || !line)
            continue;
        if (controllers[0] == 0) {
            found = lowest_quota("/sys/fs/cgroup", line, quota_v2);
        } else if (lists(controllers, "cpu")) {
            base_format(mount, sizeof mount, "/sys/fs/cgroup/%s", controllers);
            found = lowest_quota(access(mount, F_OK) == 0 ? mount : "/sys/fs/cgroup/cpu", line, quota_v1);
        } else {
            continue;
        }
        lowest = found < lowest ? found : lowest;
    }
    return lowest;
}

uint32_t posix_cpus(const struct comm_env *env)
{
    uint32_t affinity = affinity_cpus(), quota = cgroup_cpus();

    (void)env;
    return quota < affinity ? quota : affinity;
}

/* ------------------------------------------------------------------------------------------------------------ identity */
static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0;

    for (; *text; text++)
        hash = base_hash(hash, (unsigned char)*text);
    return hash;
}

static void list_cpus(uint64_t *cpu)
{
    struct cpus cpus;

    if (own_cpus(&cpus))
        for (size_t i = 0; i < (size_t)ENV_CPU_WORDS * 64; i++)
            cpu[i / 64] |= (uint64_t)(CPU_ISSET_S(i, sizeof cpus, cpus.part) != 0) << i % 64;
}

/* Reads the first range of a list in the kernel's format, "0-3,8", and advances *text. False: there is none. */
static bool next_range(const char **text, unsigned long *first, unsigned long *last)
{
    char *end;

    *first = *last = strtoul(*text, &end, 10);
    if (end == *text)
        return false;
    if (*end == '-')
        *last = strtoul(end + 1, &end, 10);
    *text = end + (*end == ',');
    return true;
}

static bool meets(const char *list, const uint64_t *cpu)
{
    unsigned long first, last;

    while (next_range(&list, &first, &last))
        for (unsigned long i = first; i <= last && i < (unsigned long)ENV_CPU_WORDS * 64; i++)
            if (cpu[i / 64] >> i % 64 & 1)
                return true;
    return false;
}

/* Documentation/ABI/stable/sysfs-devices-node has the format. */
int32_t posix_numa(const char *nodes, const uint64_t cpu[ENV_CPU_WORDS])
{
    char path[PATH_BYTES], online[512], cpus[TEXT_BYTES];
    const char *list = online;
    unsigned long first, last;
    int32_t found = -1;

    base_format(path, sizeof path, "%s/online", nodes);
    if (!read_text(path, online, sizeof online))
        return 0;
    while (next_range(&list, &first, &last)) {
        for (unsigned long node = first; node <= last && node < NODES_MAX; node++) {
            base_format(path, sizeof path, "%s/node%lu/cpulist", nodes, node);
            if (!read_text(path, cpus, sizeof cpus) || !meets(cpus, cpu))
                continue;
            if (found >= 0)
                return -1;
            found = (int32_t)node;
        }
    }
    return found < 0 ? 0 : found;
}

/* On AMD's processors a line that two caches share costs its next writer several times as much as one that a single cache has modified. On
 * Intel's it costs no more, and the reader's write is in vain (docs/internals/memory.md has the figures). */
static bool gains_nothing_by_dirtying(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

void posix_identity(const struct comm_env *env, struct env_identity *identity)
{
    char boot[64];

    (void)env;
    *identity = (struct env_identity){.pid = (uint32_t)getpid(), .uid = (uint32_t)getuid(), .parent = (uint32_t)getppid()};
    list_cpus(identity->cpu);
    identity->only_reads = gains_nothing_by_dirtying();
    identity->numa = posix_numa("/sys/devices/system/node", identity->cpu);
    if (gethostname(identity->host, sizeof identity->host) != 0 || identity->host[0] == 0)
        base_copy_text(identity->host, sizeof identity->host, "localhost");
    identity->host[sizeof identity->host - 1] = 0;
    /* Without /proc only the name distinguishes hosts. */
    identity->host_id = hash_text(read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot) ? boot : identity->host);
    /* Abstract sockets, at which processes of one host meet, belong to a network namespace. */
    struct stat space;
    identity->place_id = stat("/proc/self/ns/net", &space) == 0 ? base_hash(identity->host_id, space.st_ino) : identity->host_id;
}

/* ------------------------------------------------------------------------------------------------------------ modules */
struct search {
    const char *name;
    char *why;
    size_t room, at;
    void *entry;
};

/* Tries one folder. A failure is appended to the reason; dlerror includes the path. */
static void try_folder(struct search *search, const char *folder, size_t length)
{
    char path[PATH_BYTES];

    if (search->entry || length == 0)
        return;
    if (base_format(path, sizeof path, "%.*s/libcommstream_%s.so", (int)length, folder, search->name) >= sizeof path)
        return;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    search->entry = library ? dlsym(library, "comm_module_entry") : NULL;
    if (search->entry)
        return;
    const char *text = dlerror();
    base_append(search->why, search->room, &search->at, "; %s", text ? text : path);
    if (library)
        dlclose(library);
}

static void try_folders(struct search *search, const char *folders)
{
    for (const char *end; folders; folders = *end ? end + 1 : NULL) {
        end = strchrnul(folders, ':');
        try_folder(search, folders, (size_t)(end - folders));
    }
}

/* An installed library has its modules in a folder of its version, a build tree has them beside the library. */
static void try_library_folder(struct search *search, const char *library)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(library, '/');
    int length = slash ? (int)(slash - library) : 1;

    library = slash ? library : ".";
    if (base_format(folder, sizeof folder, "%.*s/commstream-" COMM_ABI_VERSION, length, library) < sizeof folder)
        try_folder(search, folder, strlen(folder));
    try_folder(search, library, (size_t)length);
}

void *posix_module(const struct comm_env *env, const char *name, char *why, size_t why_bytes)
{
    struct search search = {.name = name, .why = why, .room = why_bytes};
    Dl_info here;

    (void)env;
    base_append(why, why_bytes, &search.at, "module \"%s\" cannot be loaded", name);
    if (strchr(name, '/'))
        return NULL;
    if (!getauxval(AT_SECURE))
        try_folders(&search, getenv("COMM_MODULE_PATH"));
    if (dladdr(&env_posix, &here) && here.dli_fname)
        try_library_folder(&search, here.dli_fname);
    try_folder(&search, COMM_MODULE_FOLDER, strlen(COMM_MODULE_FOLDER));
    if (search.entry && why_bytes)
        why[0] = 0;
    return search.entry;
}
