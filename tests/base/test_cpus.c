/* How many CPUs this process may use: by its affinity, and by the quotas of its control groups, as every kernel and container shows them.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "base/child.h"
#include "net/posix/posix.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct comm_env *const env = &env_posix;

static void cpus_follow_affinity(void **state)
{
    cpu_set_t one;

    (void)state;
    uint32_t all = env->cpus(env);
    assert_true(all >= 1);
    pid_t child = fork();
    if (child == 0) {
        sched_getaffinity(0, sizeof one, &one);
        int first = 0;
        while (!CPU_ISSET((size_t)first, &one))
            first++;
        CPU_ZERO(&one);
        CPU_SET((size_t)first, &one);
        sched_setaffinity(0, sizeof one, &one);
        _exit((int)env->cpus(env));
    }
    assert_int_equal(child_status(child), 1);
}

/* Groups of processors' time, as the kernel would show them: in a mount name space of the child's own, where /proc and /sys/fs/cgroup are
 * what the case says. The groups of a process, then folders, files and their text. */
struct quota {
    const char *groups, *files[6];
    int cpus; /* at most; 0: all that there are */
};
static const struct quota quotas[] = {
    {"0::/\n", {"cpu.max", "100000 100000\n"}, 1},
    {"0::/\n", {"cpu.max", "max 100000\n"}, 0},
    {"0::/pod/one\n", {"pod/one/cpu.max", "max 100000\n", "pod/cpu.max", "20000 100000\n"}, 1},  /* the lowest on the way up */
    {"0::/pod/one\n", {"pod/one/cpu.max", "100001 100000\n", "pod/cpu.max", "max 100000\n"}, 2}, /* a part is a whole one */
    {"0::/not/here\n", {"cpu.max", "90000 100000\n"}, 1},                                        /* a container's own root */
    {"7:cpuset:/\n4:cpu,cpuacct:/box\n0::/\n",
     {"cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n", "cpu,cpuacct/box/cpu.cfs_period_us", "100000\n"},
     1},
    {"4:cpuacct,cpu:/box\n", {"cpu/box/cpu.cfs_quota_us", "100000\n", "cpu/box/cpu.cfs_period_us", "100000\n"}, 1},
    {"4:cpu:/box\n", {"cpu/box/cpu.cfs_quota_us", "-1\n", "cpu/box/cpu.cfs_period_us", "100000\n"}, 0},
    {"4:cpuset:/box\n", {"cpuset/box/cpu.cfs_quota_us", "100000\n", "cpuset/box/cpu.cfs_period_us", "100000\n"}, 0},
};

static bool write_at(const char *root, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = strchr(path + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0755);
        *at = '/';
    }
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool fine = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    return file >= 0 && close(file) == 0 && fine;
}

/* As root of a user name space of its own where this process is not root. */
static bool own_mounts(void)
{
    char user[64], group[64];

    snprintf(user, sizeof user, "0 %u 1", (unsigned)geteuid());
    snprintf(group, sizeof group, "0 %u 1", (unsigned)getegid());
    if (unshare(CLONE_NEWNS) && (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !write_at("/proc/self", "uid_map", user) ||
                                 !write_at("/proc/self", "setgroups", "deny") || !write_at("/proc/self", "gid_map", group)))
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0 &&
           mount("tmpfs", "/proc", "tmpfs", 0, NULL) == 0;
}

/* The first few of those that this process may use, so that a count fits in how a child ends. */
static int few_cpus(cpu_set_t *few)
{
    cpu_set_t all;
    int count = 0;

    CPU_ZERO(few);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (size_t i = 0; i < CPU_SETSIZE && count < 4; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, few);
            count++;
        }
    return count;
}

enum { NO_NAME_SPACE = 77, NO_FILES = 78 };
static int cpus_with(const struct quota *q, const cpu_set_t *few)
{
    sched_setaffinity(0, sizeof *few, few);
    if (!own_mounts())
        return NO_NAME_SPACE;
    if (!write_at("/proc", "self/cgroup", q->groups))
        return NO_FILES;
    for (int i = 0; i < 6 && q->files[i]; i += 2)
        if (!write_at("/sys/fs/cgroup", q->files[i], q->files[i + 1]))
            return NO_FILES;
    return (int)env->cpus(env);
}

static void cpus_follow_a_groups_quota(void **state)
{
    cpu_set_t few;
    int all = few_cpus(&few);

    (void)state;
    if (all < 2)
        group_skip("with one CPU a quota changes nothing");
    for (size_t i = 0; i < sizeof quotas / sizeof *quotas; i++) {
        const struct quota *q = &quotas[i];
        pid_t child = fork();
        if (child == 0)
            _exit(cpus_with(q, &few));
        int status = child_status(child), want = q->cpus && q->cpus < all ? q->cpus : all;
        if (status == NO_NAME_SPACE)
            group_skip("this process may not make a mount namespace");
        if (status != want)
            fail_msg("%d CPUs for case %zu, expected %d", status, i, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_follow_affinity),
        cmocka_unit_test(cpus_follow_a_groups_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
