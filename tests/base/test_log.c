/*
 * The log never blocks who writes it: a full pipe that nobody reads, a process that ends, a function of the program's
 * (test_log_function.c). Each case is a process of its own, since standard error and the ring belong to the process.
 */
#define _GNU_SOURCE
#include "base/cases.h"

#include "conform/rig.h"
#include "base/log.h"
#include "net/posix/posix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct comm_env *const env = &env_posix;
enum { FLOOD = 4000 };

/* ------------------------------------------------------------------------------------------------------------ a child and its pipe */
struct muted {
    int out;  /* what the child's standard error can be read from */
    int word; /* a byte comes here when the child is done with its deed */
    pid_t child;
};

/* The child does its deed with a standard error that holds some 4 KiB until somebody reads; then it says so, and ends as the deed says. */
static struct muted start_muted(void (*deed)(int say))
{
    struct muted m;
    int out[2], word[2];

    CHECK(pipe(out) == 0 && pipe(word) == 0);
    CHECK(fcntl(out[1], F_SETPIPE_SZ, 4096) > 0);
    m.child = fork();
    CHECK(m.child >= 0);
    if (m.child == 0) {
        close(out[0]);
        EQUAL(dup2(out[1], STDERR_FILENO), STDERR_FILENO);
        close(out[1]);
        CHECK(env->start(env) == 0 && env->log.start(env) == 0);
        deed(word[1]);
        _exit(0);
    }
    close(out[1]);
    close(word[1]);
    m.out = out[0];
    m.word = word[0];
    return m;
}

static void say(int word)
{
    CHECK(write(word, "x", 1) == 1);
}

static void await_word(const struct muted *m)
{
    struct pollfd ready = {.fd = m->word, .events = POLLIN};
    char byte;

    CHECK(poll(&ready, 1, (int)(RIG_PATIENCE / RIG_MS)) == 1);
    CHECK(read(m->word, &byte, 1) == 1);
}

static int end_of(const struct muted *m)
{
    int status = 0;

    for (int64_t end = rig_now() + RIG_PATIENCE; waitpid(m->child, &status, WNOHANG) == 0; rig_nap(RIG_MS))
        CHECK(rig_now() < end);
    return status;
}

/* Reads to the end. */
static char *all_of(const struct muted *m)
{
    static char text[1 << 20];
    size_t at = 0;

    for (ssize_t got; (got = read(m->out, text + at, sizeof text - 1 - at)) > 0;)
        at += (size_t)got;
    text[at] = 0;
    return text;
}

struct count {
    long lines, dropped, last;
};

/* Lines are numbered, and a number that is missing is one of those that are told as dropped just there. */
static struct count count_lines(char *text)
{
    struct count c = {0, 0, -1};
    long number, dropped, missing = 0;

    for (char *line = strtok_r(text, "\n", &text); line; line = strtok_r(NULL, "\n", &text)) {
        if (sscanf(line, "commstream: %ld lines dropped", &dropped) == 1) {
            c.dropped += dropped;
            missing += dropped;
        } else if (sscanf(line, "line %ld of the flood", &number) == 1) {
            EQUAL(number, c.last + 1 + missing);
            missing = 0;
            c.last = number;
            c.lines++;
        } else {
            rig_die(__FILE__, __LINE__, "what is this: %s", line);
        }
    }
    return c;
}

static void flood(int lines)
{
    char line[64];

    for (int i = 0; i < lines; i++) {
        snprintf(line, sizeof line, "line %d of the flood", i);
        env->log.write(env, NULL, NULL, LOG_WARNING, line);
    }
}

/* ------------------------------------------------------------------------------------------------------------ standard error */
static void flood_and_say(int word)
{
    flood(FLOOD);
    say(word);
    while (!env->log.drain(env, env->now(env) + RIG_S))
        rig_nap(RIG_MS);
}

RIG_TEST(log_blocked_pipe_blocks_nobody)
{
    struct muted m = start_muted(flood_and_say);

    await_word(&m); /* all of them written, and nobody has read anything */
    struct count c = count_lines(all_of(&m));
    EQUAL(end_of(&m), 0);
    CHECK(c.dropped > 0);
    EQUAL(c.lines + c.dropped, FLOOD);
}

static void leave_at_once(int word)
{
    (void)word;
    flood(40);
    exit(0);
}

RIG_TEST(log_lines_are_written_when_the_process_exits)
{
    struct muted m = start_muted(leave_at_once);
    struct count c = count_lines(all_of(&m));

    EQUAL(end_of(&m), 0);
    EQUAL(c.lines, 40);
    EQUAL(c.dropped, 0);
}

static void leave_blocked(int word)
{
    (void)word;
    flood(FLOOD);
    exit(7);
}

RIG_TEST(log_blocked_pipe_holds_up_no_exit)
{
    struct muted m = start_muted(leave_blocked);
    int status = end_of(&m);

    CHECK(WIFEXITED(status));
    EQUAL(WEXITSTATUS(status), 7);
}

static void panic_blocked(int word)
{
    (void)word;
    flood(FLOOD);
    env->panic(env, "the end");
}

RIG_TEST(log_blocked_pipe_holds_up_no_panic)
{
    struct muted m = start_muted(panic_blocked);
    int status = end_of(&m);

    CHECK(WIFSIGNALED(status));
    EQUAL(WTERMSIG(status), SIGABRT);
}

/* A file that somebody made non-blocking takes its lines all the same, when there is room. */
static void flood_non_blocking(int word)
{
    CHECK(fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK) == 0);
    flood_and_say(word);
}

RIG_TEST(log_waits_for_what_was_made_non_blocking)
{
    struct muted m = start_muted(flood_non_blocking);

    await_word(&m);
    struct count c = count_lines(all_of(&m));
    EQUAL(end_of(&m), 0);
    EQUAL(c.lines + c.dropped, FLOOD);
}

static void closed(int word)
{
    close(STDERR_FILENO);
    flood(FLOOD);
    CHECK(env->log.drain(env, env->now(env) + RIG_PATIENCE));
    say(word);
}

RIG_TEST(log_without_standard_error_goes_nowhere)
{
    struct muted m = start_muted(closed);

    await_word(&m);
    EQUAL(end_of(&m), 0);
}

/* Who waited in vain is not made to wait again: a rank whose waits all end badly is not slowed by each. */
static void drain_blocked(int word)
{
    flood(FLOOD);
    CHECK(!env->log.drain(env, env->now(env) + 50 * RIG_MS));
    int64_t since = rig_now();
    for (int i = 0; i < 1000; i++)
        CHECK(!env->log.drain(env, env->now(env) + RIG_PATIENCE));
    CHECK(rig_now() - since < RIG_PATIENCE);
    say(word);
}

RIG_TEST(log_nobody_waits_twice_for_a_line_that_is_stuck)
{
    struct muted m = start_muted(drain_blocked);

    await_word(&m);
    EQUAL(end_of(&m), 0);
}

/* As exit() does. AddressSanitizer's search for leaks would write of the parent's thread into the full pipe, and wait there for ever. */
_Noreturn static void end_child(int status)
{
#ifdef __SANITIZE_ADDRESS__
    _exit(status);
#else
    exit(status);
#endif
}

static void fork_and_write(int word)
{
    int status;

    flood(FLOOD); /* the parent's writer is stuck, and not the child's */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int64_t since = rig_now();
        env->log.write(env, NULL, NULL, LOG_WARNING, "of the child");
        CHECK(rig_now() - since < RIG_PATIENCE);
        end_child(3);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    say(word);
}

RIG_TEST(log_of_a_forked_child_blocks_nobody)
{
    struct muted m = start_muted(fork_and_write);

    await_word(&m);
    (void)end_of(&m);
}

/* ------------------------------------------------------------------------------------------------------------ room that another takes */
int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);

static bool taken_after_poll; /* whoever finds room in standard error loses it to another process before it writes */

static void fill_standard_error(void)
{
    char page[4096] = "another process's lines";
    int flags = fcntl(STDERR_FILENO, F_GETFL);

    CHECK(fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK) == 0);
    while (write(STDERR_FILENO, page, sizeof page) > 0)
        continue;
    CHECK(fcntl(STDERR_FILENO, F_SETFL, flags) == 0);
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    int ready = __real_poll(fds, count, ms);

    if (taken_after_poll && ready == 1 && fds->fd == STDERR_FILENO)
        fill_standard_error();
    return ready;
}

static void write_without_thread(int word)
{
    pid_t child = fork();
    int status;

    CHECK(child >= 0);
    if (child == 0) {
        taken_after_poll = true;
        env->log.write(env, NULL, NULL, LOG_WARNING, "of the child");
        _exit(3);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    say(word);
}

RIG_TEST(log_room_that_another_process_takes_blocks_nobody)
{
    struct muted m = start_muted(write_without_thread);

    await_word(&m);
    EQUAL(end_of(&m), 0);
}

/* ------------------------------------------------------------------------------------------------------------ the thread */
/* The thread is there while somebody uses the log; also where it could not end in time, because it was stuck. */
static int count_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int count = 0;

    CHECK(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void start_again(int word)
{
    int threads = count_threads() - 1; /* the log's own is among them */

    for (int i = 0; i < 20; i++) {
        env->log.write(env, NULL, NULL, LOG_WARNING, "line 0 of the flood");
        CHECK(env->log.drain(env, env->now(env) + RIG_PATIENCE));
        env->log.stop(env);
        CHECK(env->log.start(env) == 0);
    }
    flood(FLOOD);
    env->log.stop(env); /* it is stuck */
    CHECK(env->log.start(env) == 0);
    say(word);
    while (!env->log.drain(env, env->now(env) + RIG_S))
        rig_nap(RIG_MS);
    env->log.stop(env);
    for (int64_t end = rig_now() + RIG_PATIENCE; count_threads() > threads; rig_nap(RIG_MS))
        CHECK(rig_now() < end);
}

RIG_TEST(log_is_started_and_stopped)
{
    struct muted m = start_muted(start_again);
    char text[1 << 12];

    await_word(&m);
    while (read(m.out, text, sizeof text) > 0)
        ;
    EQUAL(end_of(&m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_blocked_pipe_blocks_nobody),
        cmocka_unit_test(log_lines_are_written_when_the_process_exits),
        cmocka_unit_test(log_blocked_pipe_holds_up_no_exit),
        cmocka_unit_test(log_blocked_pipe_holds_up_no_panic),
        cmocka_unit_test(log_waits_for_what_was_made_non_blocking),
        cmocka_unit_test(log_without_standard_error_goes_nowhere),
        cmocka_unit_test(log_nobody_waits_twice_for_a_line_that_is_stuck),
        cmocka_unit_test(log_of_a_forked_child_blocks_nobody),
        cmocka_unit_test(log_room_that_another_process_takes_blocks_nobody),
        cmocka_unit_test(log_lines_of_many_threads_keep_their_order),
        cmocka_unit_test(log_forgets_a_function_that_does_not_return),
        cmocka_unit_test(log_forgets_nothing_that_is_told_in_time),
        cmocka_unit_test(log_is_started_and_stopped),
    };

    return cmocka_run_group_tests_name("base_log", tests, NULL, NULL);
}
