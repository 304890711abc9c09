/* comm-run --hosts end to end. The hosts are this machine: a script stands in for ssh ($S). */
#define _GNU_SOURCE
#include "group.h"
#include "tools/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHO "sh -c 'echo $COMM_RANK/$COMM_RANKS $COMM_LOCAL_RANK/$COMM_LOCAL_RANKS $COMM_HOST' | sort"

static void ranks_are_spread(void **state)
{
    (void)state;
    expect("$R --hosts a,b --ssh $S " WHO, 0, "[0] 0/2 0/1 a\n[1] 1/2 0/1 b\n", "");
    expect("$R --hosts a:1,b:2 --ssh $S " WHO, 0, "[0] 0/3 0/1 a\n[1] 1/3 0/2 b\n[2] 2/3 1/2 b\n", "");
    expect("$R --hosts a,a,b --ssh $S " WHO, 0, "[0] 0/3 0/2 a\n[1] 1/3 1/2 a\n[2] 2/3 0/1 b\n", "");
    expect("$R -n 5 --hosts a,b,c --ssh $S " WHO, 0, "[0] 0/5 0/2 a\n[1] 1/5 1/2 a\n[2] 2/5 0/2 b\n[3] 3/5 1/2 b\n[4] 4/5 0/1 c\n", "");
    expect("$R -n 3 --hosts a:2,b:2,c:2 --ssh $S " WHO, 0, "[0] 0/3 0/2 a\n[1] 1/3 1/2 a\n[2] 2/3 0/1 b\n", "");
    expect("$R -n 1 --hosts a,b --ssh $S " WHO, 0, "[0] 0/1 0/1 a\n", "");
    expect("f=$(mktemp); printf '# ours\\na slots=2 # two\\n\\nb:1\\nc\\n' >$f; $R --hostfile $f --ssh $S " WHO "; rm $f", 0,
           "[0] 0/4 0/2 a\n[1] 1/4 1/2 a\n[2] 2/4 0/1 b\n[3] 3/4 0/1 c\n", "");
}

static void ranks_get_what_they_need(void **state)
{
    (void)state;
    expect("cd /tmp && $R --hosts a,b --ssh $S --quiet-tags pwd", 0, "/tmp\n/tmp\n", "");
    expect("A=1 $R --hosts u@a,b --ssh $S -x A -x B=\"it's two\" sh -c 'test $COMM_RANK = 0 || echo $A $B ${COMM_ADDRESS%:*}'", 0,
           "[1] 1 it's two a\n", "");
    expect("COBRE_COMM_BACKEND=tcp $R --hosts a --ssh $S sh -c 'echo $COBRE_COMM_BACKEND'", 0, "[0] tcp\n", "");
    expect("A=1 COMM_LOG=off COMM_ADDRESS=h:9 $R --hosts a --ssh $S sh -c 'echo ${A-none} $COMM_LOG $COMM_ADDRESS'", 0,
           "[0] none off h:9\n", "");
    /* One job and one secret for all, in no command line. */
    expect("$R --hosts a,b --ssh $S --quiet-tags sh -c 'echo ${#COMM_JOB} $COMM_JOB ${#COMM_SECRET} $COMM_SECRET' | sort -u | wc -l", 0,
           "1\n", "");
    expect("$R --hosts a --ssh $S sh -c 'case $(cat /proc/[0-9]*/cmdline 2>&-) in *$COMM_SECRET*) echo seen ;; *) echo hidden ;; esac'", 0,
           "[0] hidden\n", NULL);
    expect("COMM_TCP_INSECURE=1 $R --hosts a --ssh $S sh -c 'echo ${#COMM_SECRET}'", 0, "[0] 0\n", "");
    expect("echo typed | $R --hosts a --ssh $S wc -c", 0, "[0] 0\n", ""); /* standard input stays here */
}

static void failures_are_named(void **state)
{
    (void)state;
    expect("$R --hosts a:2,b:2 --ssh $S sh -c 'exit $((COMM_RANK == 3 ? 5 : 0))'", 5, "", "comm-run: rank 3 exited with status 5\n");
    expect("$R --hosts a,b --ssh $S sh -c 'test $COMM_RANK = 0 || kill -9 $$'", 137, "",
           "comm-run: rank 1 was killed by signal 9 (Killed)\n");
    expect("$R --hosts gone --ssh $S true", 255, "",
           "as_ssh: gone: no route\ncomm-run: host gone: status 255, which ssh returns if it cannot reach a host or loses it\n");
    expect("$R --hosts a --ssh $S /no/such/program", 127, "", NULL);
    expect("$R --hosts a --ssh /no/ssh true", 127, "", NULL);
    struct result r = shell("$R --hosts a,gone --ssh $S sleep 60");
    assert_int_equal(r.status, 255);
    assert_true(r.seconds < 40); /* the grace of 5 s, and then the rank is ended */
    assert_non_null(strstr(r.err, "1 hosts still run 5 s after that"));
    forget(&r);
    r = shell("$R --timeout 1 --hosts a,b --ssh $S sleep 60");
    assert_int_equal(r.status, 124);
    assert_true(r.seconds < 40);
    forget(&r);
}

/* An agent reports a failure at once, although it waits for the host's other ranks, and only the first of all hosts counts. */
static void the_first_failure_is_told(void **state)
{
    (void)state;
    expect("$R --hosts a:2,b --ssh $S sh -c 'case $COMM_RANK in 0) kill -9 $$ ;; 1) sleep 3 ;; 2) sleep 1; exit 3 ;; esac'", 137, "",
           "comm-run: rank 0 was killed by signal 9 (Killed)\n");
    expect("$R --hosts a --ssh $S sh -c 'exit 255'", 255, "", "comm-run: rank 0 exited with status 255\n");
    expect("$R --hosts a:2 --ssh $S sh -c 'exit 126'", 126, "", NULL);
    expect("$R --timeout 1 --hosts a,b --ssh $S sleep 60", 124, "", "comm-run: time is up after 1 s: ending 2 hosts\n");
    /* What looks like a report and is none. */
    expect("$R --hosts a --ssh $S --quiet-tags sh -c 'printf \"\\1comm-run \\n\\1comm-run 9\\n\\1comm-run x y\\n\" >&2'", 0, "", NULL);
}

/* Both comm-runs know of the grace. The ranks that still run are asked once, and killed 2 s later. */
static void ranks_are_asked_once(void **state)
{
    struct result r = shell("$R --hosts a:2,b --ssh $S sh -c 'test $COMM_RANK = 0 && exit 9; trap \"echo asked\" TERM; "
                            "while :; do sleep 0.1; done' | sort");

    (void)state;
    assert_string_equal(r.out, "[1] asked\n[2] asked\n");
    assert_true(r.seconds < 12);
    forget(&r);
}

/* ssh is no rank: it gets neither the secret nor the variables of -x. */
static void ssh_gets_no_variables(void **state)
{
    (void)state;
    expect("unset A; $R --hosts a --ssh 'printenv COMM_SECRET A' -x A=1 true", 1, "", NULL);
    expect("$R --hosts a --ssh \"sh $S\" -x PATH=/nowhere /bin/sh -c 'echo $PATH'", 0, "[0] /nowhere\n", "");
    expect("A=1 $R --hosts a --ssh $S -x A -x A=2 -x B= sh -c 'echo $A ${B-none}'", 0, "[0] 2\n", "");
}

/* It asks for no password, and ends if a host does not answer any more. */
static void without_an_option_it_is_ssh(void **state)
{
    (void)state;
    expect(
        "d=$(mktemp -d); printf '#!/bin/sh\\necho $1 $2 $3 $4 $5 $6' >$d/ssh; chmod +x $d/ssh; PATH=$d:$PATH $R --hosts a true; rm -r $d",
        0, "-x -o BatchMode=yes -o ServerAliveInterval=15 a\n", "");
}

/* The words come through the shell of a host, which may be sh, csh or fish. */
static void words_reach_the_ranks(void **state)
{
    (void)state;
    expect("$R --hosts a --ssh $S printf '<%s>\\n' \"it's\" 'a  b' '$HOME' '`id`' '' '*' 'x!y' '\\\\' '\\' -n", 0,
           "[0] <it's>\n[0] <a  b>\n[0] <$HOME>\n[0] <`id`>\n[0] <>\n[0] <*>\n[0] <x!y>\n[0] <\\\\>\n[0] <\\>\n[0] <-n>\n", "");
    expect("$R --hosts a --ssh echo x \"'\" '!' 'a\\b' | sed 's/.* -- //'", 0, "'x' ''\\''' ''\\!'' 'a'\\\\'b'\n", "");
}

static void hosts_have_all_kinds_of_names(void **state)
{
#define ADDRESS "sh -c 'echo $COMM_RANK ${COMM_ADDRESS%:*} $COMM_HOST' | sort"
    (void)state;
    expect("$R --hosts '[::1]:2' --ssh $S --quiet-tags " ADDRESS, 0, "0 [::1] ::1\n1 [::1] ::1\n", "");
    expect("$R --hosts 'u@[fe80::1%eth0]' --ssh $S --quiet-tags " ADDRESS, 0, "0 [fe80::1%eth0] u@fe80::1%eth0\n", "");
    expect("f=$(mktemp); printf '::1 slots=1\\r\\n[::2]:1\\r\\n\\r\\nc\\r\\n' >$f; $R --hostfile $f --ssh $S --quiet-tags " ADDRESS
           "; rm $f",
           0, "0 [::1] ::1\n1 [::1] ::2\n2 [::1] c\n", "");
}

/* The ids of `count` processes, which a rank has printed as "pid N". */
static void await_pids(FILE *out, int count, pid_t *pids)
{
    int found = 0;

    for (double end = seconds_now() + 20; found < count && seconds_now() < end; usleep(10000)) {
        char text[1024] = {0}, *at = text;
        assert_true(pread(fileno(out), text, sizeof text - 1, 0) >= 0);
        for (found = 0; found < count && (at = strstr(at, "pid ")) && strchr(at, '\n'); at++)
            pids[found++] = (pid_t)strtol(at + 4, NULL, 10);
    }
    assert_int_equal(found, count);
}

static pid_t parent_of(pid_t pid)
{
    char path[64];
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %*c %d", &parent), 1);
    fclose(file);
    assert_true(parent > 1);
    return parent;
}

static void are_gone(const pid_t *pids, int count)
{
    double end = seconds_now() + 20;

    for (int i = 0; i < count; i++)
        while (kill(pids[i], 0) == 0) {
            if (seconds_now() > end)
                fail_msg("process %d is left", (int)pids[i]);
            usleep(10000);
        }
}

static void signals_reach_the_ranks(void **state)
{
    FILE *out, *err;
    double begin = seconds_now();
    pid_t ranks[2],
        pid = launch("exec $R --hosts a,b --ssh $S sh -c 'trap \"echo got; exit 0\" TERM; echo pid $$; while :; do sleep 0.05; done'", &out,
                     &err);

    (void)state;
    await_pids(out, 2, ranks);
    assert_int_equal(kill(pid, SIGTERM), 0);
    struct result r = finish(pid, out, err, begin);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "[0] got\n"));
    assert_non_null(strstr(r.out, "[1] got\n"));
    forget(&r);
}

/* Whatever ends comm-run, or the connection to a host, ends the ranks there. */
static void nothing_is_left(void **state)
{
    const char *script = "exec $R --hosts a,b --ssh $S sh -c 'echo pid $$; exec sleep 60'";
    FILE *out, *err;
    pid_t ranks[2];

    (void)state;
    for (int connection = 0; connection < 2; connection++) {
        double begin = seconds_now();
        pid_t pid = launch(script, &out, &err);
        await_pids(out, 2, ranks);
        if (connection) {
            kill(parent_of(ranks[0]), SIGKILL); /* its agent */
            are_gone(ranks, 1);
            kill(pid, SIGTERM);
        } else {
            kill(pid, SIGKILL);
        }
        struct result r = finish(pid, out, err, begin);
        are_gone(ranks, 2);
        forget(&r);
    }
}

/* Nothing runs on a host any more when comm-run ends, also if a rank has not listened. */
static void ranks_end_before_comm_run(void **state)
{
    (void)state;
    expect("$R --timeout 1 --hosts a --ssh $S --quiet-tags sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' | "
           "{ read rank; cat; kill -0 $rank; } 2>&- || echo gone",
           0, "gone\n", NULL);
    /* An ssh that passes no order on is killed itself. */
    struct result r = shell("$R --timeout 1 --hosts a --ssh 'tail -f /dev/null' true");
    assert_int_equal(r.status, 124);
    assert_true(r.seconds < 20);
    forget(&r);
}

/* Under nohup comm-run does not pass a hangup on: only its own ranks would ignore it, not those of other hosts. */
static void an_ignored_signal_is_not_passed_on(void **state)
{
    struct result have = shell("env --default-signal=HUP true");
    bool missing = have.status != 0;

    (void)state;
    forget(&have);
    if (missing)
        group_skip("env has no --default-signal, with which a rank hears a hangup as on another host");
    expect("trap '' HUP; f=$(mktemp); $R --hosts a --ssh \"env --default-signal=HUP $S\" --quiet-tags sh -c 'echo up; sleep 1; echo heard' "
           ">$f & "
           "while ! grep -q up $f; do sleep 0.05; done; kill -HUP $!; wait $!; tail -n 1 $f; rm $f",
           0, "heard\n", "");
}

/* The kernel gives a user who has many pipes only small ones. The superuser has no such limit, so this runs as someone else. */
static void variables_need_no_large_pipe(void **state)
{
    FILE *out = tmpfile(), *err = tmpfile();
    double begin = seconds_now();
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        int ends[2];
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(77);
        for (int i = 0; i < 400 && pipe(ends) == 0 && fcntl(ends[0], F_SETPIPE_SZ, 1 << 20) > 0; i++)
            ;
        if (access(COMM_RUN, X_OK) != 0 || access(AS_SSH, X_OK) != 0 || pipe(ends) != 0 || fcntl(ends[0], F_GETPIPE_SZ) > 1 << 14)
            _exit(77);
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        setenv("R", COMM_RUN, 1);
        execl("/bin/sh", "sh", "-c", "cd /; A=$(printf %050000d 0); export A; $R --hosts a --ssh $S -x A sh -c 'echo ${#A}'", (char *)NULL);
        _exit(126);
    }
    struct result r = finish(pid, out, err, begin);
    bool missing = r.status == 77;
    if (!missing && strcmp(r.out, "[0] 50000\n") != 0)
        fail_msg("status %d\nout: %s\nerr: %s", r.status, r.out, r.err);
    forget(&r);
    if (missing)
        group_skip("no user without rights can run comm-run here with small pipes");
}

static void wrong_hosts_are_refused(void **state)
{
    static const struct {
        const char *script, *text;
    } wrong[] = {
        {"$R --hosts a:0 true", "comm-run: host a: \"0\" ranks; expected a number from 1 to 4096\n"},
        {"$R --hosts a:x true", "comm-run: host a: \"x\" ranks; expected a number from 1 to 4096\n"},
        {"$R --hosts [a]b true", "comm-run: host [a]b: expected [ADDRESS] or [ADDRESS]:RANKS\n"},
        {"$R --hosts a --ssh ' ' true", "comm-run: --ssh: expected a command\n"},
        {"echo a:2 slots=3 | $R --hostfile /dev/stdin true", "comm-run: host a:2 slots=3: expected its ranks once\n"},
        {"$R --hosts a -x =b true", "comm-run: -x =b: expected NAME or NAME=VALUE\n"},
        {"$R --hosts a,,b true", "comm-run: host \"\": expected a name or an address\n"},
        {"$R --hosts -oProxyCommand=x true", "comm-run: host \"-oProxyCommand=x\": expected a name or an address\n"},
        {"$R --hosts a,b,a true", "comm-run: host a: named twice; expected all its ranks in one place, as a:RANKS\n"},
        {"$R -n 5 --hosts a:2,b true", "comm-run: -n 5: the hosts have 3 ranks; expected at least as many, and at most 4096\n"},
        {"$R --hostfile /no/file true", "comm-run: --hostfile /no/file: No such file or directory\n"},
        {"$R --hostfile /dev/null true", "comm-run: --hostfile /dev/null: it names no host\n"},
        {"f=$(mktemp); echo a 2 >$f; cd ${f%/*}; $R --hostfile ${f##*/} true 2>&1 | sed \"s/${f##*/}/F/\" >&2; rm $f; exit 2",
         "comm-run: --hostfile F: \"2\" behind host a; expected slots=RANKS\n"},
        {"$R --agent 0/2 -n 1 true </dev/null",
         "comm-run: --agent is for comm-run --hosts, which gives the variables of the ranks through standard input\n"},
        {"$R --agent 2 -n 1 true", "comm-run: --agent 2: expected FIRST/RANKS; comm-run --hosts gives it\n"},
        {"$R --hosts a --ssh $S -x LONG=$(head -c 60000 /dev/zero | tr '\\0' x) true",
         "comm-run: the COMM_* variables and those of -x have more than 60000 bytes\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect(wrong[i].script, 2, "", wrong[i].text);
}

/* Ranks of the library, with the address and the secret that comm-run gave them. */
static void worlds_open_over_hosts(void **state)
{
    (void)state;
    expect("$R -n 4 --hosts 127.0.0.1,localhost --ssh $S " PERF " allreduce --check --max 64 2>&1 | grep -c 'over shm+tcp, 4 ranks'", 0,
           "1\n", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_spread),
        cmocka_unit_test(ranks_get_what_they_need),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(the_first_failure_is_told),
        cmocka_unit_test(ranks_are_asked_once),
        cmocka_unit_test(ssh_gets_no_variables),
        cmocka_unit_test(without_an_option_it_is_ssh),
        cmocka_unit_test(words_reach_the_ranks),
        cmocka_unit_test(hosts_have_all_kinds_of_names),
        cmocka_unit_test(signals_reach_the_ranks),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(ranks_end_before_comm_run),
        cmocka_unit_test(an_ignored_signal_is_not_passed_on),
        cmocka_unit_test(variables_need_no_large_pipe),
        cmocka_unit_test(wrong_hosts_are_refused),
        cmocka_unit_test(worlds_open_over_hosts),
    };

    setenv("S", AS_SSH, 1);
    return cmocka_run_group_tests_name("comm_run_hosts", tests, NULL, NULL);
}
