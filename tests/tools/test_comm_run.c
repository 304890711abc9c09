/* comm-run end to end: its output, its exit status, and that it leaves no process behind. The ranks are shell scripts. */
#define _GNU_SOURCE
#include "tools/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void ranks_know_who_they_are(void **state)
{
    (void)state;
    expect("$R -n 3 sh -c 'echo $COMM_RANK/$COMM_RANKS $COMM_LOCAL_RANK/$COMM_LOCAL_RANKS' | sort", 0,
           "[0] 0/3 0/3\n[1] 1/3 1/3\n[2] 2/3 2/3\n", "");
    expect("$R -n 3 --quiet-tags sh -c 'echo ${#COMM_JOB} $COMM_JOB' | sort -u | cut -c1-3", 0, "32 \n", "");
    expect("test \"$($R -n 1 sh -c 'echo $COMM_JOB')\" != \"$($R -n 1 sh -c 'echo $COMM_JOB')\"", 0, "", "");
}

static void output_is_tagged_by_line(void **state)
{
    (void)state;
    expect("$R -n 2 sh -c 'test $COMM_RANK = 1 || printf \"a\\n\\nb\"'", 0, "[0] a\n[0] \n[0] b\n", "");
    expect("$R -n 2 sh -c 'test $COMM_RANK = 0 || echo bad >&2'", 0, "", "[1] bad\n");
    expect("$R -n 2 --quiet-tags sh -c 'test $COMM_RANK = 1 || printf \"a\\nb\"'", 0, "a\nb\n", "");
    expect("$R -n 1 printf 'a\\nb'", 0, "a\nb", ""); /* a single rank writes directly */
}

static void long_lines_lose_nothing(void **state)
{
    const char *script = "$R -n 3 sh -c 'for i in 1 2 3 4; do head -c 200000 /dev/zero | tr \"\\0\" $COMM_RANK; echo; done'";
    struct result r = shell(script);
    int lines[3] = {0};

    (void)state;
    assert_int_equal(r.status, 0);
    char *rest = r.out, *line;
    while ((line = strsep(&rest, "\n")) && *line) {
        int rank = line[1] - '0';
        assert_true(line[0] == '[' && rank >= 0 && rank < 3 && line[2] == ']' && line[3] == ' ');
        assert_int_equal(strlen(line), 200004);
        assert_int_equal(strspn(line + 4, (char[]){line[1], 0}), 200000);
        lines[rank]++;
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(lines[i], 4);
    forget(&r);
}

/* More output than pipes and buffers hold, for a reader that starts late, from ranks that die in the meantime. */
static void slow_readers_lose_nothing(void **state)
{
    (void)state;
    expect("$R -n 2 sh -c 'yes 0123456789 | head -n 300000; kill -9 $$' | (sleep 0.5; wc -l)", 0, "600000\n", NULL);
}

static void a_closed_reader_ends_the_ranks(void **state)
{
    struct result r = shell("$R -n 2 yes | head -n 3");

    (void)state;
    assert_true(r.seconds < 4);
    assert_int_equal(strlen(r.out), 3 * strlen("[0] y\n"));
    assert_non_null(strstr(r.err, "was killed by signal 13 (Broken pipe)"));
    forget(&r);
}

/* A full disk, say. */
static void lost_output_is_a_failure(void **state)
{
    (void)state;
    expect("$R -n 2 echo hi >/dev/full", 1, "", "comm-run: cannot write to standard output: No space left on device\n");
    expect("$R -n 2 sh -c 'echo hi; exit 3' >/dev/full", 3, "", NULL);
    expect("$R -n 2 echo hi 2>/dev/full | wc -l", 0, "2\n", NULL);
}

static void failures_are_named(void **state)
{
    (void)state;
    expect("$R -n 3 sh -c 'exit $((COMM_RANK == 1 ? 3 : 0))'", 3, "", "comm-run: rank 1 exited with status 3\n");
    expect("$R -n 3 sh -c 'test $COMM_RANK = 2 && kill -9 $$ || true'", 137, "", "comm-run: rank 2 was killed by signal 9 (Killed)\n");
    expect("$R -n 1 sh -c 'kill -TERM $$'", 143, "", "comm-run: rank 0 was killed by signal 15 (Terminated)\n");
    expect("$R -n 2 sh -c 'echo before; kill -9 $$' | sort", 0, "[0] before\n[1] before\n", NULL);
}

/* The process id of a rank that has printed "ready PID", from comm-run's tagged output. */
static pid_t ready_rank(FILE *out, int rank, int ranks)
{
    char tag[16];

    snprintf(tag, sizeof tag, "[%d] ready ", rank);
    for (double end = seconds_now() + 20; seconds_now() < end; usleep(10000)) {
        char text[1024] = {0}, *at = text;
        int count = 0;
        if (pread(fileno(out), text, sizeof text - 1, 0) < 0)
            break;
        while ((at = strstr(at, "ready ")) && strchr(at, '\n')) {
            count++;
            at++;
        }
        if (count == ranks && (at = strstr(text, tag)))
            return (pid_t)strtol(at + strlen(tag), NULL, 10);
    }
    fail_msg("the ranks are not ready");
    return -1;
}

/* In a job that communicates, comm-run names the killed rank first, and every survivor names it in the library's words. */
static void survivors_name_the_dead(void **state)
{
    FILE *out, *err;
    pid_t pid = launch("exec $R -n 4 --backend shm " CRASH_SURVIVOR, &out, &err);
    pid_t victim = ready_rank(out, 2, 4);
    double begin = seconds_now();

    (void)state;
    assert_int_equal(kill(victim, SIGKILL), 0);
    struct result r = finish(pid, out, err, begin);
    const char *report = strstr(r.err, "comm-run: ");
    if (r.status != 128 + SIGKILL || r.seconds > 3 || !report ||
        strncmp(report, "comm-run: rank 2 was killed by signal 9 (Killed)\n",
                strlen("comm-run: rank 2 was killed by signal 9 (Killed)\n")) != 0)
        fail_msg("status %d after %.2f s\nout: %s\nerr: %s", r.status, r.seconds, r.out, r.err);
    for (int rank = 0; rank < 4; rank++) {
        char want[128];
        snprintf(want, sizeof want, "[%d] survivor %d: COMM_ERR_PEER rank=2 comm=world ", rank, rank);
        const char *line = strstr(r.err, want);
        /* Between two calls there is no operation to name. */
        if ((rank == 2) != !line || (line && !strstr(line, ": rank 2 died; found by rank ")))
            fail_msg("rank %d, expected: %s\nerr: %s", rank, want, r.err);
    }
    forget(&r);
}

/* One log line of a rank says what was chosen, why, and which options decided. */
static void the_choice_is_told(void **state)
{
    static const struct {
        const char *script, *want[3];
    } cases[] = {
        {"COMM_LOG=info $R -n 2 " LIMITS,
         {"open: ranks=2 backend=shm (auto: several ranks of one host) launcher=comm-run ", "progress=", "options: COMM_LOG=info\n"}},
        {"COMM_LOG=info COMM_PROGRESS=caller COMM_WINDOW=8 $R -n 2 --backend shm " LIMITS,
         {"backend=shm (requested by the environment)", "progress=caller (requested by the environment)",
          "options: COMM_BACKEND=shm COMM_PROGRESS=caller COMM_LOG=info COMM_WINDOW=8\n"}},
        {"COMM_LOG=info COBRE_COMM_BACKEND=local " LIMITS,
         {"backend=local (requested by the environment) launcher=none ", "progress=caller (auto: one rank)",
          "options: COBRE_COMM_BACKEND=local COMM_LOG=info\n"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct result r = shell(cases[i].script);
        for (int k = 0; k < 3; k++)
            if (r.status != 0 || !strstr(r.err, cases[i].want[k]))
                fail_msg("%s\nstatus %d, expected: %s\nerr: %s", cases[i].script, r.status, cases[i].want[k], r.err);
        forget(&r);
    }
    expect(LIMITS " > /dev/null", 0, "", ""); /* nothing is logged unless requested */
}

static void a_program_that_is_not_there(void **state)
{
    struct result r = shell("$R -n 3 /no/such/program");

    (void)state;
    assert_int_equal(r.status, 127);
    assert_non_null(strstr(r.err, "comm-run: cannot run /no/such/program: No such file or directory\n"));
    forget(&r);
}

static void others_may_end_by_themselves(void **state)
{
    struct result r = shell("$R -n 2 sh -c 'test $COMM_RANK = 0 && exit 9; sleep 1; echo told'");

    (void)state;
    assert_int_equal(r.status, 9);
    assert_string_equal(r.out, "[1] told\n");
    assert_true(r.seconds >= 1 && r.seconds < 4);
    forget(&r);
}

/* One rank ignores SIGTERM, so all steps happen: 5 s of grace, SIGTERM, 2 s, SIGKILL. */
static void others_are_ended_after_the_grace(void **state)
{
    struct result r = shell("$R -n 3 sh -c 'test $COMM_RANK = 0 && exit 9; test $COMM_RANK = 1 && trap \"\" TERM; "
                            "test $COMM_RANK = 2 && trap \"echo asked; exit 0\" TERM; while :; do sleep 0.1; done'");

    (void)state;
    assert_int_equal(r.status, 9);
    assert_string_equal(r.out, "[2] asked\n");
    assert_non_null(strstr(r.err, "comm-run: rank 0 exited with status 9\ncomm-run: 2 ranks still run 5 s after that: ending them\n"));
    assert_true(r.seconds >= 6.9 && r.seconds < 10);
    forget(&r);
}

static void time_runs_out(void **state)
{
    struct result r = shell("$R -n 2 --timeout 2 sh -c 'echo begun; sleep 60'");

    (void)state;
    assert_int_equal(r.status, 124);
    assert_string_equal(r.err, "comm-run: time is up after 2 s: ending 2 ranks\n");
    assert_true(strlen(r.out) == 2 * strlen("[0] begun\n"));
    assert_true(r.seconds >= 2 && r.seconds < 6);
    forget(&r);
}

static void input_goes_to_rank_0(void **state)
{
    (void)state;
    expect("echo typed | $R -n 3 sh -c 'cat; echo end' | sort", 0, "[0] end\n[0] typed\n[1] end\n[2] end\n", "");
}

/* comm-run forwards the input of a terminal, since rank 0 is not in its foreground group. */
static void a_terminal_is_passed_on(void **state)
{
    struct result have = shell("command -v script");
    bool missing = have.status != 0;

    (void)state;
    forget(&have);
    if (missing)
        group_skip("no program called script, which makes a terminal");
    struct result r = shell("(sleep 0.3; echo typed; sleep 0.3; printf '\\004'; sleep 0.3) | "
                            "timeout 10 script -qec \"$R -n 2 sh -c 'read line; echo got \\$line'\" /dev/null");
    if (!strstr(r.out, "[0] got typed") || !strstr(r.out, "[1] got"))
        fail_msg("out: %s err: %s", r.out, r.err);
    forget(&r);
}

static void variables_are_set(void **state)
{
    (void)state;
    expect("A=1 $R -n 2 -x A -x B=two=2 --backend shm sh -c 'echo $A $B $COMM_BACKEND' | sort", 0, "[0] 1 two=2 shm\n[1] 1 two=2 shm\n",
           "");
    expect("unset A; $R -n 2 -x A true", 2, "", "comm-run: -x A: not set here; use -x A=VALUE\n");
}

static void wrong_arguments_are_refused(void **state)
{
    static const char *const scripts[] = {"$R",
                                          "$R true",
                                          "$R -n 0 true",
                                          "$R -n x true",
                                          "$R -n 5000 true",
                                          "$R -n 2",
                                          "$R -n 2 --bind x true",
                                          "$R -n 2 --timeout -1 true",
                                          "$R -n 2 --timeout x true",
                                          "$R -n 2 --nothing true"};

    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        expect(scripts[i], 2, "", NULL);
    expect("$R --version | grep -c '^comm-run (commstream) [0-9]'", 0, "1\n", "");
    expect("$R -h | grep -c '^usage: comm-run -n N'", 0, "1\n", "");
    expect("$R -n 1 --timeout 1e10 true", 2, "", "comm-run: --timeout 1e10: expected seconds, above 0 and at most 1e9\n");
    expect("$R --help | grep -c usage", 0, "1\n", "");
    expect("$R -n 1 sh -c 'echo $1' - --help", 0, "--help\n", ""); /* arguments after the program belong to the program */
}

static void cores_are_shared_out(void **state)
{
    cpu_set_t set;

    (void)state;
    sched_getaffinity(0, sizeof set, &set);
    expect("$R -n 1 --bind core sh -c 'grep -c Cpus_allowed_list /proc/self/status'", 0, "1\n", "");
    expect("$R -n 4000 --bind core true 2>&1 | grep -c 'comm-run: --bind core: 4000 ranks, but this process may use'", 0, "1\n", "");
    if (CPU_COUNT(&set) > 1 && access("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", R_OK) == 0) {
        struct result r = shell("$R -n 2 --bind core --quiet-tags sh -c 'grep Cpus_allowed_list /proc/self/status' | sort -u | wc -l");
        assert_true(strcmp(r.out, "2\n") == 0 || strstr(r.err, "--bind core") || strcmp(r.out, "0\n") == 0);
        forget(&r);
    }
}

/* ------------------------------------------------------------------------------------------------------------ signals, orphans */
/* Starts comm-run without a shell around it. Its ranks run `script`. Returns when all of them have printed "up". */
static pid_t launch_ranks(const char *script, FILE **out)
{
    *out = tmpfile();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fileno(*out), STDOUT_FILENO);
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        execl(COMM_RUN, COMM_RUN, "-n", "2", "sh", "-c", script, (char *)NULL);
        _exit(126);
    }
    for (double end = seconds_now() + 10; seconds_now() < end; usleep(10000)) {
        char text[64] = {0};
        ssize_t got = pread(fileno(*out), text, sizeof text - 1, 0);
        if (got > 0 && strstr(text, "[0] up\n") && strstr(text, "[1] up\n"))
            return pid;
    }
    fail_msg("the ranks did not start");
    return -1;
}

/* How many processes sleep for exactly this time. Only this test uses the number, so it identifies the ranks' children. */
static int sleepers(const char *seconds)
{
    char script[128];
    snprintf(script, sizeof script, "ps -eo args | grep -c '^sleep %s$'", seconds);
    struct result r = shell(script);
    int count = (int)strtol(r.out, NULL, 10);
    forget(&r);
    return count;
}

static bool sleepers_end(const char *seconds)
{
    for (double end = seconds_now() + 5; seconds_now() < end; usleep(50000))
        if (sleepers(seconds) == 0)
            return true;
    return false;
}

static void nobody_survives_a_kill(void **state)
{
    char seconds[32], script[128];
    FILE *out;
    int status;

    (void)state;
    /* The shell is the rank. Its sleeping children do not die with it by themselves. */
    snprintf(seconds, sizeof seconds, "%d", 100000 + (int)getpid());
    snprintf(script, sizeof script, "sleep %s & echo up; sleep %s; true", seconds, seconds);
    pid_t pid = launch_ranks(script, &out);
    for (double end = seconds_now() + 5;
         sleepers(seconds) != 4 && seconds_now() < end;) /* the shell prints "up" before its second sleep exists */
        usleep(10000);
    assert_int_equal(sleepers(seconds), 4);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(sleepers_end(seconds));
    fclose(out);
}

static void nobody_survives_a_good_end(void **state)
{
    char seconds[32], script[128];

    (void)state;
    snprintf(seconds, sizeof seconds, "%d", 200000 + (int)getpid());
    snprintf(script, sizeof script, "$R -n 2 sh -c 'sleep %s & echo up'", seconds);
    struct result r = shell(script);
    assert_int_equal(r.status, 0);
    assert_true(r.seconds < 3);
    forget(&r);
    assert_true(sleepers_end(seconds));
}

/* As the first process of a container comm-run becomes the parent of what has left its rank, and does not wait for that. */
static void strangers_are_not_awaited(void **state)
{
    struct result r = shell("unshare -pf true 2>&- || exit 77; unshare -pf $R -n 2 sh -c 'setsid sleep 20 & sleep 0.2'");

    (void)state;
    int status = r.status;
    double seconds = r.seconds;
    forget(&r);
    if (status == 77)
        group_skip("this user may not make a namespace of processes");
    assert_int_equal(status, 0);
    assert_true(seconds < 10);
}

static int end_by(int number, int times, const char *script, char *text, size_t room)
{
    FILE *out;
    int status = 0;
    pid_t pid = launch_ranks(script, &out);

    for (int i = 0; i < times; i++) {
        kill(pid, number);
        usleep(200000);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    memset(text, 0, room);
    assert_true(pread(fileno(out), text, room - 1, 0) > 0);
    fclose(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const struct {
    int number;
    const char *name;
} signals[] = {{SIGTERM, "TERM"}, {SIGHUP, "HUP"}, {SIGINT, "INT"}};

/* In the background, or under nohup, some signals are ignored when these tests start, and a shell cannot trap those. */
static void hear_all_signals(void)
{
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i].number, SIG_DFL);
}

static void signals_are_handed_on(void **state)
{
    char script[128], text[256];

    (void)state;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        snprintf(script, sizeof script, "trap 'echo heard; exit 7' %s; echo up; while :; do sleep 0.05; done", signals[i].name);
        assert_int_equal(end_by(signals[i].number, 1, script, text, sizeof text), 7);
        assert_non_null(strstr(text, "[0] heard\n"));
        assert_non_null(strstr(text, "[1] heard\n"));
    }
}

static void a_second_interrupt_kills(void **state)
{
    char text[256];
    double begin = seconds_now();

    (void)state;
    assert_int_equal(end_by(SIGINT, 2, "trap '' INT; echo up; while :; do sleep 0.05; done", text, sizeof text), 128 + SIGKILL);
    assert_true(seconds_now() - begin < 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_know_who_they_are),
        cmocka_unit_test(output_is_tagged_by_line),
        cmocka_unit_test(long_lines_lose_nothing),
        cmocka_unit_test(slow_readers_lose_nothing),
        cmocka_unit_test(a_closed_reader_ends_the_ranks),
        cmocka_unit_test(lost_output_is_a_failure),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(survivors_name_the_dead),
        cmocka_unit_test(the_choice_is_told),
        cmocka_unit_test(a_program_that_is_not_there),
        cmocka_unit_test(others_may_end_by_themselves),
        cmocka_unit_test(others_are_ended_after_the_grace),
        cmocka_unit_test(time_runs_out),
        cmocka_unit_test(input_goes_to_rank_0),
        cmocka_unit_test(a_terminal_is_passed_on),
        cmocka_unit_test(variables_are_set),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(cores_are_shared_out),
        cmocka_unit_test(nobody_survives_a_kill),
        cmocka_unit_test(nobody_survives_a_good_end),
        cmocka_unit_test(strangers_are_not_awaited),
        cmocka_unit_test(signals_are_handed_on),
        cmocka_unit_test(a_second_interrupt_kills),
    };
    hear_all_signals();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
