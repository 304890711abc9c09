/*
 * steps: what a rank does in each step of a program, and how it checks the result. The step alone determines which ranks take part, and
 * with what. A step ends when all of its requests have ended, with or without an error.
 */
#define _GNU_SOURCE
#include "soak/soak.h"

#include "conform/job.h"
#include "now.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS_MAX = 256, JOBS_MAX = 4 };

static enum comm_result first_of(enum comm_result a, enum comm_result b)
{
    return a != COMM_OK ? a : b;
}

/* ------------------------------------------------------------------------------------------------------------ waiting */
static enum comm_result poll_all(struct comm_request *requests, size_t count)
{
    enum comm_result first = COMM_OK;
    for (size_t i = 0; i < count; i++) {
        enum comm_result one;
        while ((one = comm_test(requests[i])) == COMM_PENDING)
            sched_yield();
        first = first_of(first, one);
    }
    return first;
}

static enum comm_result wait_backwards(struct comm_request *requests, size_t count)
{
    enum comm_result first = COMM_OK;
    for (size_t i = count; i-- > 0;)
        first = first_of(comm_wait(requests[i], COMM_FOREVER), first);
    return first;
}

static enum comm_result wait_for_any(struct comm_request *requests, size_t count)
{
    enum comm_result first = COMM_OK;
    size_t index = 0;
    for (;;) {
        enum comm_result one = comm_wait_any(requests, count, COMM_FOREVER, &index);
        if (index == COMM_NO_INDEX)
            return first;
        first = first_of(first, one);
    }
}

/* As in a program that sleeps on the engine's descriptor. Whatever ended before the arming wakes no thread, so it tests once more. most_ms:
 * -1 if this is the only loop of the engine; then an event that does not make the descriptor readable is a hang, and not one second late.
 * Loops of ranks that share an engine disarm each other. */
static void sleep_on_descriptor(struct comm_request request, int fd, int most_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (fd < 0)
        return;
    enum comm_result armed = comm_arm(request.comm);
    if (comm_test(request) == COMM_PENDING && armed == COMM_OK)
        (void)!poll(&p, 1, most_ms);
    (void)!comm_progress(request.comm);
}

static enum comm_result loop_on_descriptor(struct comm_request *requests, size_t count, int most_ms)
{
    enum comm_result first = COMM_OK;
    for (size_t i = 0; i < count; i++) {
        enum comm_result one;
        int fd = -1;
        if (comm_fd(requests[i].comm, &fd) != COMM_OK) /* complete or closed: comm_test returns at once */
            fd = -1;
        while ((one = comm_test(requests[i])) == COMM_PENDING)
            sleep_on_descriptor(requests[i], fd, most_ms);
        first = first_of(first, one);
    }
    return first;
}

enum comm_result soak_await(const struct soak_rank *r, struct comm_request *requests, size_t count, uint64_t *chance)
{
    switch (oracle_random(chance) % 7) {
    case 0:
        return poll_all(requests, count);
    case 1:
        return wait_backwards(requests, count);
    case 2:
        return wait_for_any(requests, count);
    case 3:
        return loop_on_descriptor(requests, count, r->program->local ? 1000 : -1);
    default:
        return comm_wait_all(requests, count, COMM_FOREVER);
    }
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
static struct job_shape draw_shape(const struct soak_step *s, int32_t ranks, uint64_t *chance)
{
    struct job_shape shape = {.kind = (enum job_kind)(oracle_random(chance) % JOB_KINDS), .op = COMM_SUM};

    shape.type = oracle_types[oracle_random(chance) % ORACLE_TYPES];
    for (uint64_t at = oracle_random(chance); job_kind_reduces(shape.kind); at++) {
        shape.op = oracle_ops[at % ORACLE_OPS];
        bool scans = shape.kind == JOB_SCAN || shape.kind == JOB_EXSCAN;
        if (oracle_pair(shape.type, shape.op) && !(scans && shape.op == COMM_AVG))
            break;
    }
    shape.root = (int32_t)(oracle_random(chance) % (uint64_t)ranks);
    shape.n = s->n > 2000 ? s->n % 2000 : s->n; /* every rank computes the data of all ranks */
    shape.in_place = oracle_random(chance) % 4 == 0 && job_kind_in_place(shape.kind);
    shape.seed = oracle_random(chance);
    return shape;
}

static enum comm_result step_jobs(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    struct job *job = calloc(JOBS_MAX, sizeof *job);
    struct comm_request request[JOBS_MAX];
    uint64_t chance = s->seed;
    enum comm_result result = COMM_OK;
    uint32_t issued = 0;

    CHECK(job);
    for (uint32_t i = 0; i < s->count; i++) {
        struct job_shape shape = draw_shape(s, at->size, &chance);
        job_prepare(&job[i], &shape, at->size);
    }
    for (; issued < s->count && result == COMM_OK; issued += result == COMM_OK) {
        result = job_issue(&job[issued], at->me, at->c);
        request[issued] = job[issued].request[at->me];
    }
    chance += (uint64_t)r->rank;
    result = first_of(result, soak_await(r, request, issued, &chance));
    for (uint32_t i = 0; i < s->count; i++) {
        if (result == COMM_OK && !r->program->hostile)
            job_verify(&job[i], at->me);
        job_free(&job[i]);
    }
    free(job);
    return result;
}

static enum comm_result step_many(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    struct comm_request request[REQUESTS_MAX];
    int64_t in[REQUESTS_MAX], out[REQUESTS_MAX];
    uint64_t chance = s->seed + (uint64_t)r->rank;
    enum comm_result result = COMM_OK;
    uint32_t issued = 0;

    for (; issued < s->count && result == COMM_OK; issued += result == COMM_OK) {
        in[issued] = at->me + (int64_t)issued;
        result = comm_allreduce(at->c, &in[issued], &out[issued], 1, COMM_I64, COMM_SUM, &request[issued]);
    }
    result = first_of(result, soak_await(r, request, issued, &chance));
    for (int64_t i = 0; i < s->count && result == COMM_OK && !r->program->hostile; i++)
        EQUAL(out[i], at->size * (at->size - 1) / 2 + at->size * i);
    return result;
}

static enum comm_result step_shared(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    size_t n = s->n + 1;
    void *in = NULL, *out = NULL;
    struct comm_request request;
    enum comm_result result = comm_mem_alloc(at->c, n * 4, &in);

    if (result == COMM_OK)
        result = comm_mem_alloc(at->c, n * 4, &out);
    for (size_t i = 0; i < n && result == COMM_OK; i++)
        ((int32_t *)in)[i] = (int32_t)i + at->me;
    if (result == COMM_OK)
        result = comm_allreduce(at->c, in, out, n, COMM_I32, COMM_SUM, &request);
    if (result == COMM_OK)
        result = comm_wait(request, COMM_FOREVER);
    for (size_t i = 0; i < n && result == COMM_OK && !r->program->hostile; i += 1 + n / 64)
        EQUAL(((int32_t *)out)[i], at->size * (int32_t)i + at->size * (at->size - 1) / 2);
    comm_mem_free(at->c, out);
    comm_mem_free(at->c, in);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ messages */
/* A rank that is a step ahead already sends messages, and no receive of this step may accept them, not even a receive from any peer. */
static uint32_t tag_of(const struct soak_step *s, uint32_t number)
{
    return (uint32_t)(s->seed >> 40 << 2) + number;
}

static unsigned char payload_byte(const struct soak_step *s, int32_t from, uint32_t number, size_t i)
{
    return (unsigned char)(s->seed + (uint64_t)from * 31 + number * 7 + i * 3);
}

static unsigned char *write_payload(const struct soak_step *s, int32_t from, uint32_t number)
{
    unsigned char *at = malloc(s->n);
    CHECK(at);
    for (size_t i = 0; i < s->n; i++)
        at[i] = payload_byte(s, from, number, i);
    return at;
}

static void read_setup_message(const struct soak_rank *r, const struct soak_step *s, const unsigned char *at, int32_t from, uint32_t number)
{
    for (size_t i = 0; i < s->n && !r->program->hostile; i++)
        if (at[i] != payload_byte(s, from, number, i))
            rig_die(__FILE__, __LINE__, "rank %d: message %u from %d: byte %zu of %zu is %d, must be %d", r->rank, number, from, i, s->n,
                    at[i], payload_byte(s, from, number, i));
}

static enum comm_result step_ring(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    struct comm_request request[2 * JOBS_MAX];
    unsigned char *out[JOBS_MAX], *in[JOBS_MAX];
    int32_t next = (at->me + 1) % at->size, before = (at->me + at->size - 1) % at->size;
    uint64_t chance = s->seed + (uint64_t)r->rank;
    enum comm_result result = COMM_OK;
    size_t issued = 0;

    for (uint32_t k = 0; k < s->count; k++) {
        out[k] = write_payload(s, at->me, k);
        in[k] = calloc(1, s->n);
        CHECK(in[k]);
    }
    for (uint32_t k = 0; k < s->count && result == COMM_OK; k++) {
        result = comm_recv(at->c, in[k], s->n, COMM_BYTE, before, tag_of(s, k), NULL, &request[issued]);
        issued += result == COMM_OK;
        if (result == COMM_OK)
            result = comm_send(at->c, out[k], s->n, COMM_BYTE, next, tag_of(s, k), &request[issued]);
        issued += result == COMM_OK && issued % 2;
    }
    result = first_of(result, soak_await(r, request, issued, &chance));
    for (uint32_t k = 0; k < s->count; k++) {
        if (result == COMM_OK)
            read_setup_message(r, s, in[k], before, k);
        free(out[k]);
        free(in[k]);
    }
    return result;
}

static enum comm_result send_to(struct soak_rank *r, const struct soak_step *s, int32_t root)
{
    struct soak_slot *at = &r->slot[s->slot];
    struct comm_request request[JOBS_MAX];
    unsigned char *out[JOBS_MAX];
    uint64_t chance = s->seed + (uint64_t)r->rank;
    enum comm_result result = COMM_OK;
    uint32_t issued = 0;

    for (uint32_t k = 0; k < s->count; k++)
        out[k] = write_payload(s, at->me, k);
    for (; issued < s->count && result == COMM_OK; issued += result == COMM_OK)
        result = comm_send(at->c, out[issued], s->n, COMM_BYTE, root, tag_of(s, issued), &request[issued]);
    result = first_of(result, soak_await(r, request, issued, &chance));
    for (uint32_t k = 0; k < s->count; k++)
        free(out[k]);
    return result;
}

/* Receives by tag: for each tag, one message comes from each other rank. */
static enum comm_result step_crowd(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    int32_t root = (int32_t)(s->seed % (uint64_t)at->size);
    unsigned char *in = calloc(1, s->n);
    enum comm_result result = COMM_OK;

    CHECK(in);
    for (uint32_t k = 0; k < s->count && at->me == root; k++) {
        for (int32_t i = 1; i < at->size && result == COMM_OK; i++) {
            struct comm_status status = {0};
            struct comm_request request;
            result = comm_recv(at->c, in, s->n, COMM_BYTE, COMM_ANY_PEER, tag_of(s, k), &status, &request);
            result = result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
            if (result != COMM_OK || r->program->hostile)
                continue;
            CHECK(status.bytes == s->n && status.tag == tag_of(s, k) && status.peer != root);
            read_setup_message(r, s, in, status.peer, k);
        }
    }
    free(in);
    return at->me == root ? result : send_to(r, s, root);
}

/* ------------------------------------------------------------------------------------------------------------ communicators */
static enum comm_result step_create(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *to = &r->slot[s->to];
    struct comm_communicator *c = r->slot[s->slot].c, *made = NULL;
    int32_t ranks[SOAK_RANKS_MAX], count = 0, color = (int32_t)(s->members >> r->rank & 1);
    enum comm_result result = COMM_OK;

    *to = (struct soak_slot){0};
    for (int32_t i = 0; i < r->program->ranks; i++)
        if (s->members >> i & 1)
            ranks[count++] = i;
    if (s->kind == STEP_DUP)
        result = NOW(comm_dup, c, NULL, &made);
    else if (s->kind == STEP_SPLIT)
        result = NOW(comm_split, c, !color && s->count == 1 ? COMM_NO_COLOR : color, s->count == 2 ? -r->rank : r->rank, &made);
    else if (color)
        result = NOW(comm_subset, c, ranks, (size_t)count, 5, &made);
    if (result == COMM_OK && made)
        *to = (struct soak_slot){.c = made, .size = comm_size(made), .me = comm_rank(made)};
    return result;
}

static enum comm_result step_close(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    enum comm_result result = comm_window_free(at->window);

    at->window = NULL;
    if (result != COMM_OK)
        return result;
    if (!r->program->hostile)
        MUST(comm_close(at->c, RIG_PATIENCE));
    else
        (void)!comm_close(at->c, RIG_PATIENCE);
    *at = (struct soak_slot){0};
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ recorded calls */
struct recorded {
    int64_t in[2], out[2];
    unsigned char *sent, *got;
};

/* Records two sums and a message to the next rank. */
static enum comm_result record(const struct soak_slot *at, const struct soak_step *s, struct comm_communicator *recorder,
                               struct recorded *d)
{
    int32_t next = (at->me + 1) % at->size, before = (at->me + at->size - 1) % at->size;
    enum comm_result result = COMM_OK;

    for (int i = 0; i < 2 && result == COMM_OK; i++) {
        d->in[i] = at->me + 10 * i;
        result = comm_allreduce(recorder, &d->in[i], &d->out[i], 1, COMM_I64, COMM_SUM, NULL);
    }
    if (result == COMM_OK)
        result = comm_recv(recorder, d->got, s->n, COMM_BYTE, before, tag_of(s, 0), NULL, NULL);
    if (result == COMM_OK)
        result = comm_send(recorder, d->sent, s->n, COMM_BYTE, next, tag_of(s, 0), NULL);
    return result;
}

static void check_recorded(const struct soak_rank *r, const struct soak_slot *at, const struct soak_step *s, const struct recorded *d)
{
    for (int i = 0; i < 2 && !r->program->hostile; i++)
        EQUAL(d->out[i], at->size * (at->size - 1) / 2 + 10 * i * at->size);
    read_setup_message(r, s, d->got, (at->me + at->size - 1) % at->size, 0);
}

static enum comm_result run_group(struct soak_slot *at, const struct soak_step *s, struct recorded *d)
{
    struct comm_communicator *recorder = NULL;
    struct comm_request request = COMM_REQUEST_NONE;
    enum comm_result result = comm_group_begin(at->c, &recorder);

    if (result != COMM_OK)
        return result;
    result = record(at, s, recorder, d);
    result = first_of(comm_group_end(recorder, &request), result);
    return first_of(result, comm_wait(request, COMM_FOREVER));
}

static enum comm_result run_plan(struct soak_slot *at, const struct soak_step *s, struct recorded *d)
{
    struct comm_communicator *recorder = NULL;
    struct comm_plan *plan = NULL;
    enum comm_result result = comm_plan_begin(at->c, &recorder);

    if (result != COMM_OK)
        return result;
    result = record(at, s, recorder, d);
    result = first_of(comm_plan_end(recorder, &plan), result);
    for (uint32_t i = 0; i < s->count && result == COMM_OK; i++) {
        struct comm_request request;
        result = comm_plan_start(plan, &request);
        result = result == COMM_OK ? comm_wait(request, COMM_FOREVER) : result;
    }
    comm_plan_free(plan);
    return result;
}

static enum comm_result step_recorded(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    struct recorded d = {.sent = write_payload(s, at->me, 0), .got = calloc(1, s->n)};

    CHECK(d.got);
    enum comm_result result = s->kind == STEP_PLAN ? run_plan(at, s, &d) : run_group(at, s, &d);
    if (result == COMM_OK)
        check_recorded(r, at, s, &d);
    free(d.sent);
    free(d.got);
    return result;
}

/* The duplicate waits for the world's sum, and only then starts its own. */
static enum comm_result step_queue(struct soak_rank *r, const struct soak_step *s)
{
    struct soak_slot *at = &r->slot[s->slot];
    int32_t in = r->rank, sum = 0, twice = 0, n = r->program->ranks;
    uint64_t chance = s->seed + (uint64_t)r->rank;
    struct comm_request request[2];
    enum comm_result result = comm_allreduce(r->slot[0].c, &in, &sum, 1, COMM_I32, COMM_SUM, &request[0]);

    if (result != COMM_OK)
        return result;
    result = comm_queue_wait_request(at->c, request[0]);
    size_t count = 1;
    if (result == COMM_OK)
        result = comm_allreduce(at->c, &sum, &twice, 1, COMM_I32, COMM_SUM, &request[count]);
    count += result == COMM_OK;
    result = first_of(result, soak_await(r, request, count, &chance));
    if (result == COMM_OK && !r->program->hostile)
        EQUAL(twice, n * (n * (n - 1) / 2));
    return result;
}

/* A rank that has failed before takes part too, with another word. Then this rank fails as well. */
static enum comm_result step_agree(struct soak_rank *r)
{
    uint64_t word = 1;
    enum comm_result result = NOW(comm_agree, r->slot[0].c, &word);

    if (result == COMM_OK && word == 1)
        return COMM_OK;
    r->agreed = result == COMM_OK;
    return result == COMM_OK ? COMM_ERR_PEER : result;
}

enum comm_result soak_step_run(struct soak_rank *r, const struct soak_step *s)
{
    if (!r->slot[s->slot].c)
        return COMM_OK;
    switch (s->kind) {
    case STEP_JOBS:
        return step_jobs(r, s);
    case STEP_MANY:
        return step_many(r, s);
    case STEP_SHARED:
        return step_shared(r, s);
    case STEP_RING:
        return step_ring(r, s);
    case STEP_CROWD:
        return step_crowd(r, s);
    case STEP_WINDOW:
        return soak_step_window(r, s);
    case STEP_QUEUE:
        return step_queue(r, s);
    case STEP_PLAN:
    case STEP_GROUP:
        return step_recorded(r, s);
    case STEP_CLOSE:
        return step_close(r, s);
    case STEP_AGREE:
        return step_agree(r);
    case STEP_NAP:
        rig_nap((int64_t)((s->seed >> r->rank) % 1000) * 1000);
        return COMM_OK;
    default:
        return step_create(r, s);
    }
}
