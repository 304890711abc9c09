/*
 * Random programs, run by one thread for all ranks and by one thread per rank, compared with the memory contents that
 * program_make expects. A failure prints the seed. COMM_TEST_SEED runs that program alone, COMM_TEST_STEPS shortens it,
 * COMM_TEST_PRINT prints it.
 */
#define _GNU_SOURCE
#include "conform/program_make.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stage {
    struct make_program *program;
    struct rig rig;
    struct comm_communicator *comm[MAKE_COMMS][MAKE_RANKS];
    struct comm_event *event[MAKE_RANKS][MAKE_EVENTS];
    struct comm_plan *plan[MAKE_COMMS][MAKE_RANKS];
};

/* ------------------------------------------------------------------------------------------------------------ one action */
static enum comm_result run_collective(struct stage *stage, struct comm_communicator *c, const struct make_action *a,
                                       struct comm_request *request)
{
    struct make_program *p = stage->program;
    void *out = p->memory[a->comm][a->rank][a->out];
    const void *in = a->in < 0 ? COMM_IN_PLACE : p->memory[a->comm][a->rank][a->in];
    enum comm_type type = make_type(a->out);
    switch ((int)a->verb) {
    case MAKE_BARRIER:
        return comm_barrier(c, request);
    case MAKE_BROADCAST:
        return comm_broadcast(c, out, a->n, type, a->root, request);
    case MAKE_REDUCE:
        return comm_reduce(c, in, out, a->n, type, a->op, a->root, request);
    case MAKE_ALLREDUCE:
        return comm_allreduce(c, in, out, a->n, type, a->op, request);
    case MAKE_ALLGATHER:
        return comm_allgather(c, in, out, a->n, type, request);
    case MAKE_SCATTERED:
        return comm_reduce_scatter(c, in, out, a->n, type, a->op, request);
    default:
        return comm_plan_start(stage->plan[a->comm][a->rank], request);
    }
}

static enum comm_result run_message(struct stage *stage, struct comm_communicator *c, struct make_action *a)
{
    struct make_program *p = stage->program;
    bool own = a->message >= 0, is_send = a->verb == MAKE_SEND;
    enum comm_type type = own ? COMM_BYTE : make_type(is_send ? a->in : a->out);
    size_t n = own ? p->message[a->message].bytes : a->n;
    if (is_send)
        return comm_send(c, own ? p->message[a->message].from : p->memory[a->comm][a->rank][a->in], n, type, a->peer, a->tag, &a->request);
    return comm_recv(c, own ? p->message[a->message].to : p->memory[a->comm][a->rank][a->out], n, type, a->root ? COMM_ANY_PEER : a->peer,
                     a->tag, NULL, &a->request);
}

static enum comm_result test_action(const struct make_program *p, const struct make_action *a)
{
    const struct make_action *target = &p->action[a->target];
    enum comm_result result = comm_test(target->request);
    if (a->step < target->shut)
        return result == COMM_PENDING ? COMM_OK : COMM_ERR_STATE;
    return result == COMM_PENDING ? COMM_OK : result;
}

static enum comm_result run_action(struct stage *stage, struct make_action *a)
{
    struct make_program *p = stage->program;
    struct comm_communicator *c = stage->comm[a->comm][a->rank];
    struct comm_event *event = stage->event[a->rank][a->event];
    switch ((int)a->verb) {
    case MAKE_SEND:
    case MAKE_RECV:
        return run_message(stage, c, a);
    case MAKE_RECORD:
        return comm_event_record(event, c);
    case MAKE_WAIT_EVENT:
        return comm_queue_wait_event(c, event);
    case MAKE_WAIT_REQUEST:
        return comm_queue_wait_request(c, p->action[a->target].request);
    case MAKE_RESET:
        return comm_event_reset(event);
    case MAKE_SET:
        return comm_event_set(event);
    case MAKE_HOST_WAIT:
        return comm_wait(p->action[a->target].request, RIG_PATIENCE);
    case MAKE_TEST:
        return test_action(p, a);
    case MAKE_SYNC:
        return comm_sync(c, COMM_FOREVER);
    default:
        return run_collective(stage, c, a, &a->request);
    }
}

static void run_checked(struct stage *stage, int32_t i)
{
    struct make_action *a = &stage->program->action[i];
    enum comm_result result = run_action(stage, a);
    if (result == COMM_OK)
        return;
    struct comm_error error = {.size = sizeof error};
    if (comm_error_detail(stage->comm[a->comm][a->rank], &error) != COMM_OK)
        error.text[0] = 0;
    make_print(stage->program);
    rig_die(__FILE__, __LINE__, "action %d of rank %d said %s: %s", i, a->rank, comm_result_name(result), error.text);
}

static void sync_rank(struct stage *stage, int32_t rank)
{
    for (int32_t c = 0; c < MAKE_COMMS; c++) {
        if (stage->comm[c][rank])
            MUST(comm_sync(stage->comm[c][rank], COMM_FOREVER));
    }
}

static void run_rank(void *arg, int32_t rank)
{
    struct stage *stage = arg;
    for (int32_t i = 0; i < stage->program->actions; i++) {
        if (stage->program->action[i].rank == rank)
            run_checked(stage, i);
    }
    sync_rank(stage, rank);
}

/* ------------------------------------------------------------------------------------------------------------ setting */
static void open_children(struct stage *stage)
{
    struct make_program *p = stage->program;
    struct comm_request request[2 * MAKE_RANKS];
    struct comm_communicator *half[MAKE_RANKS] = {NULL};
    for (int32_t r = 0; r < p->ranks; r++) {
        stage->comm[0][r] = stage->rig.world[r];
        MUST(comm_dup(stage->rig.world[r], NULL, &stage->comm[1][r], &request[2 * r]));
        MUST(comm_split(stage->rig.world[r], r % 2, r, &half[r], &request[2 * r + 1]));
    }
    rig_wait_all(request, 2 * (size_t)p->ranks);
    for (int32_t r = 0; r < p->ranks; r++) {
        EQUAL(comm_size(half[r]), make_members(p, 2 + r % 2));
        EQUAL(comm_rank(half[r]), make_rank(2, r));
        stage->comm[2 + r % 2][r] = half[r];
    }
}

static bool record_plan(struct stage *stage, int32_t comm, int32_t rank)
{
    struct make_action parts[3];
    struct comm_communicator *recorder = NULL;
    enum comm_result result = comm_plan_begin(stage->comm[comm][rank], &recorder);
    if (result == COMM_ERR_UNSUPPORTED)
        return false;
    MUST(result);
    for (int32_t i = 0, length = make_plan_parts(parts); i < length; i++) {
        parts[i].comm = comm;
        parts[i].rank = rank;
        MUST(run_collective(stage, recorder, &parts[i], NULL));
    }
    MUST(comm_plan_end(recorder, &stage->plan[comm][rank]));
    return true;
}

static void open_stage(struct stage *stage, const char *options, enum comm_progress_mode progress)
{
    struct make_program *p = stage->program;
    rig_open(&stage->rig, p->ranks, COMM_CONFIG(.progress = progress, .operation_timeout_ns = 20 * RIG_S, .options = options));
    open_children(stage);
    for (int32_t r = 0; r < p->ranks; r++) {
        for (int32_t e = 0; e < MAKE_EVENTS; e++)
            MUST(comm_event_create(stage->rig.world[r], &stage->event[r][e]));
        for (int32_t c = 0; c < 2; c++)
            CHECK(record_plan(stage, c, r));
    }
}

static void close_stage(struct stage *stage)
{
    struct make_program *p = stage->program;
    for (int32_t r = 0; r < p->ranks; r++) {
        for (int32_t e = 0; e < MAKE_EVENTS; e++)
            comm_event_free(stage->event[r][e]);
        comm_plan_free(stage->plan[0][r]);
        comm_plan_free(stage->plan[1][r]);
    }
    for (int32_t k = 0; k < MAKE_COMMS; k++) {
        int32_t c = (k + (int32_t)(p->seed >> 3 & 3)) % MAKE_COMMS;
        for (int32_t r = 0; r < p->ranks; r++) {
            if (stage->comm[c][r])
                MUST(comm_close(stage->comm[c][r], RIG_PATIENCE));
        }
    }
}

static void compare(const struct make_program *p)
{
    for (int32_t c = 0; c < MAKE_COMMS; c++) {
        for (int32_t r = 0; r < p->ranks; r++) {
            for (int32_t b = 0; b < MAKE_BUFFERS; b++) {
                size_t n = MAKE_BUFFER_BYTES / oracle_type_bytes(make_type(b));
                size_t bad = oracle_differ(p->memory[c][r][b], p->model[c][r][b], n, make_type(b));
                if (bad == n)
                    continue;
                char got[64], want[64];
                make_print(p);
                rig_die(__FILE__, __LINE__, "communicator %d rank %d buffer %d[%zu] is %s, must be %s", c, r, b, bad,
                        oracle_text(p->memory[c][r][b], bad, make_type(b), got), oracle_text(p->model[c][r][b], bad, make_type(b), want));
            }
        }
    }
    for (int32_t i = 0; i < p->messages; i++) {
        if (memcmp(p->message[i].from, p->message[i].to, p->message[i].bytes) == 0)
            continue;
        make_print(p);
        rig_die(__FILE__, __LINE__, "message %d of %zu bytes arrived wrong", i, p->message[i].bytes);
    }
}

static void run_program(uint64_t seed, bool threads)
{
    static const char *const options[] = {NULL, "window=4", "minimal=1", "window=4,minimal=1"};
    const char *steps = getenv("COMM_TEST_STEPS");
    struct stage stage = {.program = make_program(seed, steps ? (int)strtol(steps, NULL, 10) : MAKE_STEPS)};
    rig_note("seed %llu, %d ranks, options \"%s\"%s", (unsigned long long)seed, stage.program->ranks,
             options[seed / 4 % 4] ? options[seed / 4 % 4] : "", threads ? ", a thread each" : "");
    if (getenv("COMM_TEST_PRINT"))
        make_print(stage.program);
    open_stage(&stage, options[seed / 4 % 4], threads && seed % 3 == 0 ? COMM_PROGRESS_THREAD : COMM_PROGRESS_CALLER);
    if (threads) {
        rig_threads(stage.program->ranks, run_rank, &stage);
    } else {
        for (int32_t i = 0; i < stage.program->actions; i++)
            run_checked(&stage, i);
        for (int32_t r = 0; r < stage.program->ranks; r++)
            sync_rank(&stage, r);
    }
    compare(stage.program);
    close_stage(&stage);
    make_free(stage.program);
}

static void run_many(uint64_t first, uint64_t count, bool threads)
{
    const char *one = getenv("COMM_TEST_SEED");
    if (one) {
        run_program(strtoull(one, NULL, 10), threads);
        return;
    }
    for (uint64_t seed = first; seed < first + selected((uint32_t)count, (uint32_t)count / 3, (uint32_t)count / 10); seed++)
        run_program(seed, threads);
}

RIG_TEST(random_one_thread)
{
    run_many(1, 240, false);
}
RIG_TEST(random_thread_each)
{
    run_many(1, 160, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_one_thread),
        cmocka_unit_test(random_thread_each),
    };
    return cmocka_run_group_tests_name("conform_random", tests, NULL, NULL);
}
