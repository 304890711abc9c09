/*
 * Ranks that are stopped, late or gone are distinguished: a process that stops and continues in time, one that does not continue, one with
 * a busy application, and one that closed normally. The times are for COMM_PEER_TIMEOUT=2s. The default is 30 s, with the same proportions.
 */
#define _GNU_SOURCE
#include "now.h"
#include "proc/proc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PEER_TIMEOUT_S = 2 };
#define TOLD (INT64_C(1) << 40)   /* the stage of a rank that reported a failure */
#define CLOSED (INT64_C(1) << 41) /* ... and that has closed its world */

/* ------------------------------------------------------------------------------------------------------------ the output of the ranks */
/* Starts the ranks with their standard error in a file; the message of a failure names the file. */
static void start_heard(struct proc *proc, int32_t ranks, proc_main *main, char *path)
{
    int file = mkstemp(path), keep = dup(STDERR_FILENO);
    CHECK(file >= 0 && keep >= 0);
    rig_note("what the ranks say is in %s", path);
    fflush(NULL);
    EQUAL(dup2(file, STDERR_FILENO), STDERR_FILENO);
    proc_start(proc, ranks, main);
    dup2(keep, STDERR_FILENO);
    close(file);
    close(keep);
}

static char *heard(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    CHECK(unlink(path) == 0);
    return text;
}

static void give_timeout(struct proc *proc)
{
    proc->options = "peer_timeout=2s";
    unsetenv("COMM_PEER_TIMEOUT");
    unsetenv("COMM_LOG");
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
/* Computes sums until one fails, or until *go is set. Rank 0 alone looks at *go, and tells the others in the sum itself; so all ranks end
 * after the same one, however fast they are. */
static void sum_as(struct proc *proc, int32_t rank, struct comm_communicator *world, size_t longest)
{
    static float in[1 << 21], out[1 << 21];
    struct proc_page *page = &proc->page[rank];
    for (int64_t i = 0; out[1] == 0; i++) {
        struct comm_request request;
        for (size_t k = 0; k < longest; k += 997)
            in[k] = (float)(rank + 1) + (float)(i % 50);
        in[1] = rank == 0 && atomic_load(proc->go);
        enum comm_result result = comm_allreduce(world, in, out, i % 3 ? 5 : longest, COMM_F32, COMM_SUM, &request);
        if (result == COMM_OK)
            result = comm_wait(request, RIG_PATIENCE);
        if (result != COMM_OK) {
            proc_tell_failure(page, world, result);
            break;
        }
        float want = (float)(proc->ranks * (proc->ranks + 1) / 2) + (float)(proc->ranks * (i % 50));
        CHECK(out[0] == want && (i % 3 || out[997 * 20] == want));
        atomic_store(&page->stage, i + 1);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

static void sum_on(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    sum_as(proc, rank, world, 20000);
}

static void check_told(struct proc *proc, int32_t r, int32_t victim)
{
    struct proc_page *page = &proc->page[r];
    if (page->result != COMM_ERR_PEER || page->rank != victim || !strstr(page->text, "heartbeat"))
        rig_die(__FILE__, __LINE__, "rank %d was told %s of rank %d: %s", r, comm_result_name((enum comm_result)page->result), page->rank,
                page->text);
}

/* ------------------------------------------------------------------------------------------------------------ stopped */
RIG_TEST(stopped_comes_back)
{
    char path[] = "/tmp/comm-stopped-XXXXXX", *said;
    struct proc proc = {0};
    proc_needs_shm();
    give_timeout(&proc);
    start_heard(&proc, 3, sum_on, path);
    proc_await(&proc, 2, 50);
    kill(proc.pid[2], SIGSTOP);
    rig_nap(RIG_S);
    int64_t stopped = atomic_load(&proc.page[2].stage);
    kill(proc.pid[2], SIGCONT);
    proc_await(&proc, 2, stopped + 50);
    rig_nap(RIG_S / 2); /* so that the monitors of the others have run */
    atomic_store(proc.go, 1);
    proc_finish(&proc, -1, RIG_PATIENCE);
    said = heard(path);
    CHECK(strstr(said, "rank 0: rank 2 is stopped or starved: no heartbeat for "));
    CHECK(strstr(said, "rank 1: rank 2 is stopped or starved: no heartbeat for "));
    CHECK(strstr(said, "its process is alive"));
    CHECK(strstr(said, "rank 2 is back after "));
    CHECK(!strstr(said, "rank 2: rank")); /* it does not blame the others for its own silence */
}

struct stop {
    struct proc proc;
    int32_t victim;
    bool comes_back; /* too late */
    int64_t since;
};

static void judge_stop(struct stop *s)
{
    struct proc *proc = &s->proc;

    rig_note("rank %d stopped, and %s", s->victim, s->comes_back ? "too late back" : "not back");
    for (int32_t r = 0; r < 3; r++) {
        if (r == s->victim)
            continue;
        proc_await(proc, r, TOLD);
        check_told(proc, r, s->victim);
        CHECK(proc->page[r].time - s->since >= PEER_TIMEOUT_S * RIG_S * 9 / 10);
        CHECK(proc->page[r].time - s->since <= 2 * PEER_TIMEOUT_S * RIG_S);
    }
    kill(proc->pid[s->victim], s->comes_back ? SIGCONT : SIGKILL);
    proc_finish(proc, s->comes_back ? -1 : s->victim, RIG_PATIENCE);
    if (s->comes_back)
        check_told(proc, s->victim, s->victim);
}

/* Both cases at the same time, because most of the time is waiting. */
RIG_TEST(stopped_for_good)
{
    static struct stop stops[2] = {{.victim = 2}, {.victim = 0, .comes_back = true}};

    proc_needs_shm();
    for (int i = 0; i < 2; i++) {
        struct stop *s = &stops[i];
        give_timeout(&s->proc);
        proc_start(&s->proc, 3, sum_on);
        proc_await(&s->proc, s->victim, 50);
        s->since = rig_now();
        kill(s->proc.pid[s->victim], SIGSTOP);
    }
    for (int i = 0; i < 2; i++)
        judge_stop(&stops[i]);
}

/* Stops before its monitor runs for the first time. */
static void stop_oneself(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    if (rank == 1)
        raise(SIGSTOP);
    sum_on(proc, rank, world);
}

RIG_TEST(stopped_at_once)
{
    struct proc proc = {0};
    proc_needs_shm();
    give_timeout(&proc);
    int64_t since = rig_now();
    proc_start(&proc, 3, stop_oneself);
    for (int32_t r = 0; r < 3; r += 2) {
        proc_await(&proc, r, TOLD);
        check_told(&proc, r, 1);
        CHECK(proc.page[r].time - since <= 3 * PEER_TIMEOUT_S * RIG_S);
    }
    kill(proc.pid[1], SIGKILL);
    proc_finish(&proc, 1, RIG_PATIENCE);
}

/* As if a virtual machine is paused: no rank saw another's silence, so no rank is given up. */
static void pause_all(struct proc *proc)
{
    for (int32_t r = 0; r < 3; r++)
        kill(proc->pid[r], SIGSTOP);
    rig_nap((PEER_TIMEOUT_S + 1) * RIG_S);
    for (int32_t r = 0; r < 3; r++) {
        kill(proc->pid[r], SIGCONT);
        rig_nap(RIG_S / 10);
    }
    rig_nap(RIG_S / 2);
    int64_t before = atomic_load(&proc->page[0].stage);
    atomic_store(proc->go, 1);
    proc_finish(proc, -1, RIG_PATIENCE);
    for (int32_t r = 0; r < 3; r++) {
        int64_t stage = atomic_load(&proc->page[r].stage);
        CHECK(stage > before && stage < TOLD);
        EQUAL(stage, atomic_load(&proc->page[0].stage));
    }
}

RIG_TEST(stopped_all_at_once)
{
    struct proc proc = {0};
    proc_needs_shm();
    give_timeout(&proc);
    proc_start(&proc, 3, sum_on);
    for (int32_t r = 0; r < 3; r++)
        proc_await(&proc, r, 50);
    pause_all(&proc);
}

static void stop_before_long_sums(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    if (rank == 1)
        raise(SIGSTOP);
    sum_as(proc, rank, world, 1 << 21);
}

/* One stops a little earlier, before it has read anything, and what the others send fills the window of its kernel. Their kernels must not
 * give it up while all are stopped. */
RIG_TEST(stopped_all_with_full_windows)
{
    struct proc proc = {0};
    int status = 0;
    proc_needs_shm();
    give_timeout(&proc);
    proc_start(&proc, 3, stop_before_long_sums);
    EQUAL(waitpid(proc.pid[1], &status, WUNTRACED), proc.pid[1]);
    CHECK(WIFSTOPPED(status));
    rig_nap(RIG_S / 5);
    pause_all(&proc);
}

/* ------------------------------------------------------------------------------------------------------------ its connections are full */
enum { FLOODED = 3, FLOOD_VICTIM = 2, FLOOD_WAITS = 256 };

/* The queues of many communicators wait for a sum that the stopped rank does not join. The notes about these waits are more than the
 * kernels take until it is given up. Then the others close and exit. What they say of their reason waits behind those notes, and is lost.
 */
static void flood(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static struct comm_communicator *waits[FLOOD_WAITS];
    struct comm_request sum;
    int32_t one = 1, all = 0;

    for (int i = 0; i < FLOOD_WAITS; i++)
        MUST(NOW(comm_dup, world, NULL, &waits[i]));
    atomic_store(&proc->page[rank].stage, 1);
    while (!atomic_load(proc->go))
        rig_nap(RIG_MS); /* the victim is stopped here */
    enum comm_result result = comm_allreduce(world, &one, &all, 1, COMM_I32, COMM_SUM, &sum);
    for (int i = 0; i < FLOOD_WAITS && result == COMM_OK && rank != FLOOD_VICTIM; i++)
        MUST(comm_queue_wait_request(waits[i], sum));
    while (result == COMM_OK && (result = comm_wait(sum, RIG_PATIENCE)) == COMM_OK) /* the victim may have all of the first sum */
        result = comm_allreduce(world, &one, &all, 1, COMM_I32, COMM_SUM, &sum);
    proc_tell_failure(&proc->page[rank], world, result);
    for (int i = 0; i < FLOOD_WAITS; i++)
        MUST(comm_close(waits[i], RIG_PATIENCE));
    MUST(comm_close(world, RIG_PATIENCE));
    atomic_store(&proc->page[rank].stage, CLOSED);
}

static void make_links_when_needed(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    setenv("COMM_TCP_LINKS", "needed", 1);
}

struct flooding {
    const char *what;
    void (*enter)(struct proc *proc, int32_t rank);
    bool told; /* rank 0 does not find the victim silent itself: rank 1 tells it, and it closes */
    struct proc proc;
};

static void judge_flood(struct flooding *f)
{
    struct proc *proc = &f->proc;

    rig_note("more is sent to the stopped rank than there is room for%s", f->what);
    for (int32_t r = 0; r < FLOODED; r++)
        if (r != FLOOD_VICTIM) {
            proc_await(proc, r, CLOSED);
            check_told(proc, r, FLOOD_VICTIM);
        }
    kill(proc->pid[FLOOD_VICTIM], SIGCONT);
    proc_finish(proc, -1, RIG_PATIENCE);
    check_told(proc, FLOOD_VICTIM, FLOOD_VICTIM);
}

RIG_TEST(stopped_with_full_connections_learns_why)
{
    static struct flooding floods[] = {
        {.what = ""},
        {.what = "; links are made when needed", .enter = make_links_when_needed},
        {.what = "; rank 0 is told by rank 1", .told = true},
    };
    enum { N = sizeof floods / sizeof *floods };

    proc_needs_shm();
    for (int i = 0; i < N; i++) {
        struct proc *proc = &floods[i].proc;
        proc->enter = floods[i].enter;
        give_timeout(proc);
        proc_start(proc, FLOODED, flood);
        for (int32_t r = 0; r < FLOODED; r++)
            proc_await(proc, r, 1);
        kill(proc->pid[FLOOD_VICTIM], SIGSTOP);
        atomic_store(proc->go, 1);
    }
    for (int i = 0; i < N; i++) /* the time during which a rank is stopped does not count as the silence of others */
        if (floods[i].told)
            kill(floods[i].proc.pid[0], SIGSTOP);
    rig_nap(RIG_S / 2);
    for (int i = 0; i < N; i++)
        if (floods[i].told)
            kill(floods[i].proc.pid[0], SIGCONT);
    for (int i = 0; i < N; i++)
        judge_flood(&floods[i]);
}

/* ------------------------------------------------------------------------------------------------------------ late */
static void busy_in_rank_1(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request request;
    int32_t in = rank, out = 0;
    volatile double x = 1;
    for (int64_t end = rig_now() + 6 * RIG_S; rank == 1 && rig_now() < end;)
        x = x * 1.000001;
    MUST(comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    EQUAL(out, proc->ranks * (proc->ranks - 1) / 2);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* The warning says that the rank is late, with its number, and not that it is silent. */
RIG_TEST(busy_is_not_stopped)
{
    char path[] = "/tmp/comm-busy-XXXXXX", *said;
    struct proc proc = {0};
    proc_needs_shm();
    give_timeout(&proc);
    start_heard(&proc, 3, busy_in_rank_1, path);
    proc_finish(&proc, -1, RIG_PATIENCE);
    said = heard(path);
    CHECK(strstr(said, "rank 0: comm=world call=1 op=allreduce is late: waiting for 5 s; not called yet by ranks: 1\n"));
    CHECK(strstr(said, "rank 2: comm=world call=1 op=allreduce is late: waiting for 5 s; not called yet by ranks: 1\n"));
    CHECK(!strstr(said, "COMM_ERR"));
}

/* ------------------------------------------------------------------------------------------------------------ closed */
static void wait_for_closed(struct proc *proc, struct proc_page *page, struct comm_communicator *world)
{
    struct comm_request sum, receive;
    int32_t in = 1, out = 0, got = 0, early = 0;
    MUST(comm_recv(world, &got, 1, COMM_I32, 1, 7, NULL, &receive));
    rig_nap((PEER_TIMEOUT_S + 1) * RIG_S); /* rank 1 is gone for longer than a rank may be silent */
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(world, &error));
    EQUAL(error.result, COMM_OK);
    IS(comm_wait(receive, RIG_PATIENCE), COMM_ERR_CLOSED); /* only the receive ends */
    MUST(comm_recv(world, &early, 1, COMM_I32, 1, 6, NULL, &receive));
    MUST(comm_wait(receive, RIG_PATIENCE)); /* what it sent before is still available */
    EQUAL(early, 66);
    atomic_store(&page->stage, 1);
    while (atomic_load(&proc->page[0].stage) == 0 || atomic_load(&proc->page[2].stage) == 0)
        rig_nap(RIG_MS); /* the failure of the first one fails all ranks */
    int64_t since = rig_now();
    enum comm_result result = comm_allreduce(world, &in, &out, 1, COMM_I32, COMM_SUM, &sum);
    proc_tell_failure(page, world, result == COMM_OK ? comm_wait(sum, RIG_PATIENCE) : result);
    CHECK(page->time - since < 2 * RIG_S);
}

static void close_in_rank_1(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    struct comm_request request;
    int32_t word = 66;
    MUST(comm_barrier(world, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    for (int32_t r = 0; rank == 1 && r < proc->ranks; r += 2)
        MUST(comm_send(world, &word, 1, COMM_I32, r, 6, NULL));
    if (rank != 1)
        wait_for_closed(proc, &proc->page[rank], world);
    MUST(comm_close(world, RIG_PATIENCE));
    while (rank == 1 && atomic_load(proc->go) == 0)
        rig_nap(RIG_MS);
}

/* The process of rank 1 exits at once, or continues without the library. */
static void judge_close(struct proc *proc, bool ends)
{
    rig_note("rank 1 closes, and its process %s", ends ? "ends" : "lives on");
    for (int32_t r = 0; r < 3; r += 2)
        proc_await(proc, r, TOLD);
    atomic_store(proc->go, 1);
    proc_finish(proc, -1, RIG_PATIENCE);
    for (int32_t r = 0; r < 3; r += 2) {
        struct proc_page *page = &proc->page[r];
        if (page->result != COMM_ERR_CLOSED || page->rank != 1 || !strstr(page->text, "rank 1 closed after its call 1"))
            rig_die(__FILE__, __LINE__, "rank %d was told %s: %s", r, comm_result_name((enum comm_result)page->result), page->text);
    }
}

RIG_TEST(closed_is_not_dead)
{
    static struct proc proc[2];

    proc_needs_shm();
    for (int ends = 0; ends < 2; ends++) {
        give_timeout(&proc[ends]);
        proc_start(&proc[ends], 3, close_in_rank_1);
        atomic_store(proc[ends].go, ends);
    }
    for (int ends = 0; ends < 2; ends++)
        judge_close(&proc[ends], ends);
}

/* With a name (or a pattern) as argument: runs only that test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_comes_back),
        cmocka_unit_test(stopped_for_good),
        cmocka_unit_test(stopped_at_once),
        cmocka_unit_test(stopped_all_at_once),
        cmocka_unit_test(stopped_all_with_full_windows),
        cmocka_unit_test(stopped_with_full_connections_learns_why),
        cmocka_unit_test(busy_is_not_stopped),
        cmocka_unit_test(closed_is_not_dead),
    };
    return cmocka_run_group_tests_name("proc_stopped", tests, NULL, NULL);
}
