/* Every slot of the Linux environment, alone; those of bells are in test_env_bell.c. */
#define _GNU_SOURCE
#include "base/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/child.h"
#include "net/posix/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct comm_env *const env = &env_posix;
enum { MS = 1000000 };

static int64_t kernel_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void table_is_complete(void **state)
{
    const void *const *slot = (const void *const *)env;

    (void)state;
    for (size_t i = 0; i < sizeof *env / sizeof *slot; i++)
        assert_non_null(slot[i]);
}

/* The word says 1 here and 0 in a child, which can neither use nor revive the library. */
static void fork_word(void **state)
{
    (void)state;
    assert_int_equal(env->start(env), 0);
    assert_int_equal(env->start(env), 0);
    assert_int_equal(atomic_load(env->alive), 1);
    pid_t child = fork();
    if (child == 0)
        _exit(atomic_load(env->alive) == 0 && env->start(env) == ECHILD && atomic_load(env->alive) == 0 ? 0 : 1);
    assert_int_equal(child_status(child), 0);
    assert_int_equal(atomic_load(env->alive), 1);
}

static void *start_once(void *arg)
{
    *(int *)arg = env->start(env);
    return NULL;
}

static int start_in_threads(void)
{
    pthread_t threads[8];
    int results[8], bad = 0;

    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, start_once, &results[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        bad += results[i] != 0;
    }
    return bad || atomic_load(env->alive) != 1;
}

/* In a child of a process that never started, which must run first: there the library is new. */
static void start_by_many_threads(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(env->alive), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(start_in_threads());
    assert_int_equal(child_status(child), 0);
}

/* Never backwards, and within a little of the kernel's own, for as long as a second and more (the clock finds its scale anew by then). */
static void clock_follows_kernel(void **state)
{
    int64_t last = 0, end = kernel_now() + INT64_C(1300) * MS, worst = 0;

    (void)state;
    assert_int_equal(env->start(env), 0);
    while (last < end) {
        int64_t before = kernel_now(), here = env->now(env), after = kernel_now();
        assert_true(here >= last);
        last = here;
        int64_t off = here < before ? before - here : here > after ? here - after : 0;
        worst = off > worst ? off : worst;
    }
    print_message("largest distance from CLOCK_MONOTONIC: %lld ns\n", (long long)worst);
    assert_true(worst < 20000);
}

struct racer {
    _Atomic int64_t *last;
    int64_t backwards; /* by how much at most */
};

static void *race_clock(void *arg)
{
    struct racer *racer = arg;

    for (int64_t end = kernel_now() + 300 * MS, here = 0; here < end;) {
        int64_t seen = atomic_load(racer->last);
        here = env->now(env);
        racer->backwards = seen - here > racer->backwards ? seen - here : racer->backwards;
        while (seen < here && !atomic_compare_exchange_weak(racer->last, &seen, here))
            ;
    }
    return NULL;
}

/* What one thread has read, another reads less of only by the error of the scale. */
static void clock_agrees_between_threads(void **state)
{
    _Atomic int64_t last = 0;
    struct racer racers[3];
    pthread_t threads[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        racers[i] = (struct racer){&last, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, race_clock, &racers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_true(racers[i].backwards < 20000);
    }
}

static void clock_cost(void **state)
{
    enum { CALLS = 2000000 };
    int64_t begin = kernel_now();
    uint64_t sum = 0; /* it wraps */

    (void)state;
    for (int i = 0; i < CALLS; i++)
        sum += (uint64_t)env->now(env);
    int64_t middle = kernel_now();
    for (int i = 0; i < CALLS; i++)
        sum += (uint64_t)kernel_now();
    int64_t end = kernel_now();
    print_message("now: %.1f ns, clock_gettime: %.1f ns\n", (double)(middle - begin) / CALLS, (double)(end - middle) / CALLS);
    assert_true(sum != 0);
}

struct pair {
    _Atomic uint32_t word, woken;
};

static void sleep_on_word(void *arg)
{
    struct pair *pair = arg;

    while (atomic_load(&pair->word) == 0)
        env->park(env, &pair->word, 0, ENV_FOREVER);
    atomic_fetch_add(&pair->woken, 1);
}

static void park_and_wake(void **state)
{
    struct pair pair = {0, 0};
    struct env_thread threads[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(env->spawn(env, sleep_on_word, &pair, &threads[i]), 0);
    assert_false(env->join(env, &threads[0], env->now(env) + 20 * MS));
    atomic_store(&pair.word, 1);
    env->wake(env, &pair.word, UINT32_MAX);
    for (int i = 0; i < 3; i++)
        assert_true(env->join(env, &threads[i], env->now(env) + INT64_C(5000) * MS));
    assert_int_equal(atomic_load(&pair.woken), 3);
}

static void park_ends_at_its_deadline(void **state)
{
    _Atomic uint32_t word = 7;
    int64_t begin = env->now(env), deadline = begin + 20 * MS;

    (void)state;
    env->park(env, &word, 6, ENV_FOREVER); /* another value: returns at once */
    env->park(env, &word, 7, begin - 1);   /* the past */
    env->park(env, &word, 7, -5);
    assert_true(env->now(env) < deadline);
    while (env->now(env) < deadline)
        env->park(env, &word, 7, deadline);
    assert_true(env->now(env) - deadline < 500 * MS);
}

static void note_mask(void *arg)
{
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    *(int *)arg = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1;
}

static void threads_block_signals(void **state)
{
    struct env_thread thread;
    sigset_t mask;
    int blocked = 0;

    (void)state;
    assert_int_equal(env->spawn(env, note_mask, &blocked, &thread), 0);
    assert_true(env->join(env, &thread, ENV_FOREVER));
    assert_int_equal(blocked, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGUSR1), 0);
}

static void store_self(void *arg)
{
    *(uint64_t *)arg = env->self(env);
}

static void self_names_a_thread(void **state)
{
    struct env_thread thread;
    uint64_t other = 0;

    (void)state;
    assert_int_equal(env->spawn(env, store_self, &other, &thread), 0);
    assert_true(env->join(env, &thread, ENV_FOREVER));
    assert_true(other != 0 && env->self(env) != 0);
    assert_true(env->self(env) == env->self(env));
    assert_true(other != env->self(env));
}

/* What was given back dirty comes again zeroed; alignments hold below and above a page. */
static void memory_is_zeroed_and_aligned(void **state)
{
    static const size_t bytes[] = {0, 1, 64, 4095, 262143, 262144, 300000, 4 << 20};
    static const size_t aligns[] = {1, 8, 64, 4096, 65536, 2 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        for (size_t j = 0; j < sizeof aligns / sizeof *aligns; j++)
            for (int round = 0; round < 2; round++) {
                unsigned char *memory = env->take(env, bytes[i], aligns[j]);
                assert_non_null(memory);
                assert_int_equal((uintptr_t)memory % aligns[j], 0);
                for (size_t k = 0; k < bytes[i]; k++)
                    if (memory[k])
                        fail_msg("byte %zu of %zu is not zero", k, bytes[i]);
                memset(memory, 0xa5, bytes[i]);
                env->give(env, memory, bytes[i]);
            }
    env->give(env, NULL, 0);
    env->give(env, NULL, 1 << 20);
    assert_null(env->take(env, SIZE_MAX - 10, 64));
    assert_null(env->take(env, SIZE_MAX - (1 << 20), 2 << 20));
}

static void random_differs(void **state)
{
    unsigned char a[32] = {0}, b[32] = {0};

    (void)state;
    assert_int_equal(env->random(env, a, sizeof a), 0);
    assert_int_equal(env->random(env, b, sizeof b), 0);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(env->random(env, a, 0), 0);
}

static void identity_is_told(void **state)
{
    struct env_identity here, there;

    (void)state;
    env->identity(env, &here);
    env->identity(env, &there);
    assert_true(here.host[0] != 0 && memchr(here.host, 0, sizeof here.host));
    assert_true(here.host_id != 0 && here.host_id == there.host_id);
    assert_int_equal(here.pid, getpid());
    assert_int_equal(here.parent, getppid());
    assert_int_equal(here.uid, getuid());
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void take_away(const char *folder, const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void numa_node_of_a_set_of_cpus(void **state)
{
    char folder[] = "/tmp/commstream-nodes-XXXXXX", path[64];
    uint64_t set[4][ENV_CPU_WORDS] = {{0x3}, {0x10, 0x1}, {0x11}, {0, 0, 1}};

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(posix_numa(folder, set[0]), 0); /* nothing there: a kernel without nodes */
    put(folder, "online", "0,2-3\n");
    for (int node = 0; node < 4; node += 1 + (node == 0)) {
        snprintf(path, sizeof path, "%s/node%d", folder, node);
        assert_int_equal(mkdir(path, 0700), 0);
        put(path, "cpulist", node == 0 ? "0-3\n" : node == 2 ? "4-7,64-65\n" : "\n");
    }
    assert_int_equal(posix_numa(folder, set[0]), 0);
    assert_int_equal(posix_numa(folder, set[1]), 2);
    assert_int_equal(posix_numa(folder, set[2]), -1);
    assert_int_equal(posix_numa(folder, set[3]), 0); /* CPUs that no node has */
    take_away(folder, "online");
    for (int node = 0; node < 4; node += 1 + (node == 0)) {
        snprintf(path, sizeof path, "%s/node%d", folder, node);
        take_away(path, "cpulist");
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

static void module_says_what_was_tried(void **state)
{
    char why[2048];

    (void)state;
    setenv("COMM_MODULE_PATH", "/first/folder:/second/folder", 1);
    assert_null(env->module(env, "absent", why, sizeof why));
    unsetenv("COMM_MODULE_PATH");
    assert_non_null(strstr(why, "\"absent\""));
    assert_non_null(strstr(why, "/first/folder/libcommstream_absent.so"));
    assert_non_null(strstr(why, "/second/folder/libcommstream_absent.so"));
    assert_non_null(strstr(why, "/lib"));
    assert_null(env->module(env, "../escape", why, sizeof why));
    assert_null(env->module(env, "absent", why, 8));
    assert_true(strlen(why) < 8);
    assert_null(env->module(env, "absent", NULL, 0));
}

static void files_are_written(void **state)
{
    char path[] = "/tmp/commstream_env_XXXXXX", back[8] = {0};
    int made = mkstemp(path);

    (void)state;
    assert_true(made >= 0);
    assert_int_equal(write(made, "longer before", 13), 13);
    close(made);
    int file = env->file.open(env, path);
    assert_true(file >= 0 && (fcntl(file, F_GETFD) & FD_CLOEXEC));
    assert_int_equal(env->file.write(env, file, "four", 4), 4);
    env->file.close(env, file);
    assert_int_equal(env->file.write(env, file, "four", 4), -EBADF);
    file = open(path, O_RDONLY);
    assert_int_equal(read(file, back, sizeof back), 4);
    assert_memory_equal(back, "four", 4);
    close(file);
    assert_int_equal(env->file.open(env, "/nowhere/at/all"), -ENOENT);
    memset(back, 0, sizeof back);
    assert_int_equal(env->file.read(env, path, back, sizeof back), 4);
    assert_memory_equal(back, "four\0\0\0", 8);
    assert_int_equal(env->file.read(env, path, back, 3), 3);
    assert_int_equal(env->file.read(env, path, back, 0), 0);
    unlink(path);
    assert_int_equal(env->file.read(env, path, back, sizeof back), -ENOENT);
    assert_int_equal(env->file.read(env, "/", back, sizeof back), -EISDIR);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(env->file.read(env, path, back, sizeof back), 0); /* nobody writes it: not a reason to wait */
    unlink(path);
}

static void lines_and_panic_reach_stderr(void **state)
{
    char text[64] = {0};
    int ends[2], status = 0;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        env->log.write(env, NULL, NULL, 2, "a line");
        env->panic(env, "the end");
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_int_equal(read(ends[0], text, sizeof text - 1), 15);
    assert_string_equal(text, "a line\nthe end\n");
    close(ends[0]);
}

static void lookup_reads_the_environment(void **state)
{
    (void)state;
    setenv("COMM_TEST_LOOKUP", "here", 1);
    assert_string_equal(env->lookup(env, "COMM_TEST_LOOKUP"), "here");
    unsetenv("COMM_TEST_LOOKUP");
    assert_null(env->lookup(env, "COMM_TEST_LOOKUP"));
    env->relax(env, false);
    env->relax(env, true);
    env->charge(env, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_by_many_threads), /* first: nothing has started yet */
        cmocka_unit_test(table_is_complete),
        cmocka_unit_test(fork_word),
        cmocka_unit_test(clock_follows_kernel),
        cmocka_unit_test(clock_agrees_between_threads),
        cmocka_unit_test(clock_cost),
        cmocka_unit_test(park_and_wake),
        cmocka_unit_test(park_ends_at_its_deadline),
        cmocka_unit_test(threads_block_signals),
        cmocka_unit_test(self_names_a_thread),
        cmocka_unit_test(bell_rings),
        cmocka_unit_test(bell_waits_until_its_deadline),
        cmocka_unit_test(bell_wakes_a_sleeper),
        cmocka_unit_test(bell_watches_descriptors),
        cmocka_unit_test(bell_says_why_it_cannot_open),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(random_differs),
        cmocka_unit_test(identity_is_told),
        cmocka_unit_test(numa_node_of_a_set_of_cpus),
        cmocka_unit_test(module_says_what_was_tried),
        cmocka_unit_test(files_are_written),
        cmocka_unit_test(lines_and_panic_reach_stderr),
        cmocka_unit_test(lookup_reads_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
