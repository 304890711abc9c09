/*
 * comm-run: starts N ranks of a program, and is responsible for them until the last one has ended. It gives each rank its identity in
 * COMM_* variables, collects their output line by line, forwards signals, and names the first failure. No process is left behind: each rank
 * dies with this process, and if this process is killed, a keeper in its own session kills the ranks' process groups. On other hosts it
 * starts a comm-run each, its agent, which does the same for the ranks there (comm_run_hosts.c).
 *
 * One thread runs one poll loop, in which nothing blocks. A slow reader of the output can stall the ranks' output, but not signals or
 * deadlines. Of the library, comm-run knows only the names of the variables.
 */
#define _GNU_SOURCE
#include "comm_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TYPED_BYTES = 4096,
    PENDING_BYTES_MAX = 1 << 20, /* beyond this, the ranks' pipes are not read */
};
#define SECONDS(n) ((int64_t)(n)*1000000000)
static const int64_t grace_ns = SECONDS(5); /* time for ranks to learn from the library that one of them has failed */
static const int64_t term_ns = SECONDS(2);
static const int64_t drain_ns = SECONDS(1); /* for pipes that are held open by processes outside the ranks' groups */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return SECONDS(t.tv_sec) + t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------------------ input */
static bool may_read_terminal(const struct job *job)
{
    return job->input >= 0 && job->typed.used == 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void end_input(struct job *job)
{
    if (job->input >= 0)
        close(job->input);
    job->input = -1;
    job->typed.used = 0;
}

static void read_terminal(struct job *job)
{
    char bytes[TYPED_BYTES];
    ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);

    if (got > 0)
        run_append(&job->typed, bytes, (size_t)got);
    else if (got == 0 || (errno != EINTR && errno != EAGAIN))
        end_input(job);
}

static void write_input(struct job *job)
{
    ssize_t wrote = write(job->input, job->typed.data, job->typed.used);

    if (wrote > 0)
        run_drop_front(&job->typed, (size_t)wrote);
    else if (wrote < 0 && errno != EINTR && errno != EAGAIN)
        end_input(job);
}

/* ------------------------------------------------------------------------------------------------------------ endings */
/* What the ranks wrote before they ended is in their pipes. What comes later is from other processes. */
static void count_owed(struct job *job)
{
    for (int32_t i = 0; i < job->settings->children; i++)
        for (int s = 0; s < 2; s++) {
            struct stream *stream = &job->children[i].streams[s];
            int bytes = 0;
            if (stream->fd >= 0 && ioctl(stream->fd, FIONREAD, &bytes) == 0)
                stream->owed = (size_t)bytes;
        }
}

static void close_streams(struct job *job, bool all)
{
    for (int32_t i = 0; i < job->settings->children; i++)
        for (int s = 0; s < 2; s++)
            if (all || job->children[i].streams[s].owed == 0)
                run_end_stream(job, i, &job->children[i].streams[s]);
}

static void enter(struct job *job, enum phase phase, int64_t for_ns)
{
    job->phase = phase;
    job->phase_deadline = for_ns ? now_ns() + for_ns : INT64_MAX;
    if (phase == TERMINATING)
        run_signal_ranks(job, SIGTERM, false);
    if (phase == KILLING || phase == DRAINING)
        run_signal_ranks(job, SIGKILL, true);
    if (phase == DRAINING)
        count_owed(job);
}

/* The agents of hosts end their ranks and what these have printed arrives, or after a while the connections to them are cut. */
static void kill_ranks(struct job *job)
{
    if (job->phase == KILLING)
        run_cut_hosts(job);
    else
        enter(job, KILLING, job->settings->host_count ? term_ns : 0);
}

/* Both comm-runs end ranks after the grace. The ranks are asked once. */
static void take_order(struct job *job, int number)
{
    if (!job->running)
        return;
    if (number == SIGKILL)
        enter(job, KILLING, 0);
    else if (number == SIGTERM && job->phase == GRACE)
        enter(job, TERMINATING, term_ns);
    else if (number != SIGTERM || job->phase == RUNNING)
        run_signal_ranks(job, number, false);
}

/* Of an agent: each byte is a signal for the ranks. The end of its standard input is the end of the comm-run that started it. */
static void take_orders(struct job *job)
{
    char numbers[16];
    ssize_t got = read(STDIN_FILENO, numbers, sizeof numbers);

    for (ssize_t i = 0; i < got; i++)
        take_order(job, numbers[i]);
    if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN)))
        return;
    job->orderless = true;
    if (job->phase < TERMINATING)
        enter(job, TERMINATING, term_ns);
}

/* Of a host whose agent has reported nothing: ssh itself has failed, or the shell that it starts. */
static void name_host(struct job *job, const struct host *host, const siginfo_t *info)
{
    if (info->si_code != CLD_EXITED)
        run_say(job, "host %s: ssh was killed by signal %d (%s)", host->name, info->si_status, strsignal(info->si_status));
    else if (info->si_status == 255)
        run_say(job, "host %s: status 255, which ssh returns if it cannot reach a host or loses it", host->name);
    else if (info->si_status == RUN_STATUS_CANNOT_RUN || info->si_status == RUN_STATUS_CANNOT_RUN - 1)
        run_say(job, "host %s: the program, or comm-run, could not be started", host->name);
}

static void name_rank(struct job *job, int32_t rank, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        run_say(job, "rank %d exited with status %d", rank, info->si_status);
    else
        run_say(job, "rank %d was killed by signal %d (%s)%s", rank, info->si_status, strsignal(info->si_status),
                info->si_code == CLD_DUMPED ? ", core dumped" : "");
}

static void report_failure(struct job *job, int32_t index, const siginfo_t *info)
{
    job->status = info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
    run_begin_report(job);
    if (job->settings->host_count)
        name_host(job, &job->settings->hosts[index], info);
    else
        name_rank(job, job->settings->first + index, info);
}

/* What a host's agent has reported before the end of its ssh is in the pipe, which holds less than two reads. */
static void read_last_reports(struct job *job, int32_t index)
{
    struct stream *stream = &job->children[index].streams[1];

    for (int i = 0; i < 2 && stream->fd >= 0 && job->settings->host_count; i++)
        run_read_stream(job, index, stream);
}

/* Checks every rank without reaping it. If several are found dead at once, one that was killed by a signal is the likelier cause. */
static void look_for_deaths(struct job *job)
{
    siginfo_t worst = {0};
    int32_t who = -1;

    for (int32_t i = 0; i < job->settings->children; i++) {
        siginfo_t info = {0};
        struct child *child = &job->children[i];
        if (child->ended || waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            continue;
        child->ended = true;
        job->running--;
        read_last_reports(job, i);
        bool failed = info.si_code != CLD_EXITED || info.si_status != 0;
        if (failed && (who < 0 || (worst.si_code == CLD_EXITED && info.si_code != CLD_EXITED))) {
            worst = info;
            who = i;
        }
    }
    if (who >= 0 && job->status == 0)
        report_failure(job, who, &worst);
    if (job->running == 0 && job->phase != DRAINING)
        enter(job, DRAINING, drain_ns);
}

/* At the second interrupt, stop waiting for ranks and readers. */
static void give_up(struct job *job)
{
    if (job->running) {
        kill_ranks(job);
        return;
    }
    job->out.fd = job->err.fd = -1;
    job->out.pending.used = job->err.pending.used = 0;
    close_streams(job, true);
}

static void take_signals(struct job *job)
{
    struct signalfd_siginfo info;
    bool died = false;

    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            died = true;
        else if (number == SIGINT && job->interrupts++ > 0)
            give_up(job);
        else
            run_signal_ranks(job, number, false);
    }
    if (died)
        look_for_deaths(job);
}

static const char *children(const struct job *job)
{
    return job->settings->host_count ? "hosts" : "ranks";
}

static void look_at_time(struct job *job)
{
    int64_t now = now_ns();

    if (job->status && job->phase == RUNNING && job->running)
        enter(job, GRACE, grace_ns);
    if (now >= job->deadline && job->running && job->phase < TERMINATING) {
        run_say(job, "time is up after %.10g s: ending %d %s", (double)job->settings->timeout_ns / 1e9, job->running, children(job));
        job->status = job->status ? job->status : RUN_STATUS_TIMEOUT;
        enter(job, TERMINATING, term_ns);
    }
    if (now < job->phase_deadline)
        return;
    if (job->phase == GRACE) {
        run_say(job, "%d %s still run %d s after that: ending them", job->running, children(job), (int)(grace_ns / SECONDS(1)));
        enter(job, TERMINATING, term_ns);
    } else if (job->phase == TERMINATING) {
        kill_ranks(job);
    } else if (job->phase == KILLING) {
        kill_ranks(job);
        job->phase_deadline = INT64_MAX;
    } else if (job->phase == DRAINING) {
        close_streams(job, false);
        job->phase_deadline = now + drain_ns;
    }
}

/* ------------------------------------------------------------------------------------------------------------ the loop */
static bool finished(const struct job *job)
{
    if (job->running || job->out.pending.used || job->err.pending.used)
        return false;
    for (int32_t i = 0; i < job->settings->children; i++)
        if (job->children[i].streams[0].fd >= 0 || job->children[i].streams[1].fd >= 0)
            return false;
    return true;
}

static int wait_ms(const struct job *job)
{
    int64_t until = job->phase_deadline, now = now_ns();

    if (job->running && job->phase < TERMINATING && job->deadline < until)
        until = job->deadline;
    if (job->input >= 0 && until - now > SECONDS(1))
        until = now + SECONDS(1); /* to check whether this process is in the terminal's foreground again */
    if (until == INT64_MAX)
        return -1;
    int64_t ms = until > now ? (until - now + 999999) / 1000000 : 0;
    return ms > 1000000 ? 1000000 : (int)ms;
}

enum { AT_SIGNALS, AT_OUT, AT_ERR, AT_TYPED, AT_INPUT, AT_RANKS };

/* poll ignores a negative descriptor. */
static void set_poll(struct job *job, size_t at, int fd, bool wanted, short events)
{
    job->polls[at] = (struct pollfd){.fd = wanted ? fd : -1, .events = events};
}

static void wait_for_something(struct job *job)
{
    set_poll(job, AT_SIGNALS, job->signals, true, POLLIN);
    set_poll(job, AT_OUT, job->out.fd, job->out.pending.used > 0, POLLOUT);
    set_poll(job, AT_ERR, job->err.fd, job->err.pending.used > 0, POLLOUT);
    set_poll(job, AT_TYPED, STDIN_FILENO, job->settings->agent ? !job->orderless : may_read_terminal(job), POLLIN);
    set_poll(job, AT_INPUT, job->input, job->typed.used > 0, POLLOUT);
    for (int32_t i = 0; i < job->settings->children; i++)
        for (int s = 0; s < 2; s++) {
            struct stream *stream = &job->children[i].streams[s];
            set_poll(job, (size_t)(AT_RANKS + 2 * i + s), stream->fd, stream->out->pending.used < PENDING_BYTES_MAX, POLLIN);
        }
    poll(job->polls, (nfds_t)(AT_RANKS + 2 * job->settings->children), wait_ms(job));
}

static void turn(struct job *job)
{
    wait_for_something(job);
    for (int32_t i = 0; i < job->settings->children; i++)
        for (int s = 0; s < 2; s++)
            if (job->polls[AT_RANKS + 2 * i + s].revents)
                run_read_stream(job, i, &job->children[i].streams[s]);
    if (job->polls[AT_TYPED].revents && job->settings->agent)
        take_orders(job);
    else if (job->polls[AT_TYPED].revents)
        read_terminal(job);
    if (job->polls[AT_INPUT].revents)
        write_input(job);
    take_signals(job);
    look_at_time(job);
    if (job->out.pending.used)
        run_write_output(job, &job->out);
    if (job->err.pending.used)
        run_write_output(job, &job->err);
}

/* Not every child: the first process of a container also becomes the parent of processes that left their rank's group, which may never end.
 */
static void reap(const struct job *job)
{
    for (int32_t i = 0; i < job->settings->children; i++)
        waitpid(job->children[i].pid, NULL, 0);
    waitpid(job->keeper, NULL, 0);
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct job job = {.settings = &settings, .out.fd = STDOUT_FILENO, .err.fd = STDERR_FILENO, .input = -1, .phase_deadline = INT64_MAX};

    run_read_arguments(&settings, argc, argv);
    job.deadline = settings.timeout_ns ? now_ns() + settings.timeout_ns : INT64_MAX;
    run_start(&job);
    while (!finished(&job))
        turn(&job);
    kill(job.keeper, SIGKILL);
    reap(&job);
    free(job.out.pending.data);
    free(job.err.pending.data);
    free(job.typed.data);
    free(job.children);
    free(job.polls);
    run_forget(&settings);
    return job.status ? job.status : job.lossy;
}
