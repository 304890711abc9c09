/* Streams, memory and arithmetic as the real CUDA and NCCL have them: default streams, memory with an owner, sums in the type itself. */
#define _GNU_SOURCE
#include "real.h"

#include "now.h"

#include <commstream/cuda.h>

#include <stdatomic.h>
#include <string.h>

static void set_flag(void *arg)
{
    atomic_store((_Atomic int *)arg, 1);
}

static struct CUstream_st *numbered(uintptr_t number)
{
    return (struct CUstream_st *)number;
}

/* The rank's device need not be current. Default streams belong to the device that is current. */
RIG_CASE(default_streams)
{
    struct real set;
    struct comm_event *event;
    real_open(&set, 1, &(struct mock_options){.seed = 1});
    struct real_side *s = &set.side[0];
    MUST(comm_event_create(set.rig.world[0], &event));
    for (uintptr_t number = 0; number < 3; number++) {
        _Atomic int ran = 0;
        struct comm_request q;
        struct CUctx_st *mine;
        EQUAL(s->bench.calls->cuCtxPushCurrent(s->bench.context), 0);
        bench_fill(&s->bench, numbered(number), s->in, (uint32_t)number + 5, WORDS);
        MUST(comm_queue_wait_stream(set.rig.world[0], numbered(number)));
        MUST(comm_allreduce(set.rig.world[0], s->in, s->out, WORDS, COMM_U32, COMM_SUM, &q));
        MUST(comm_stream_wait_request(numbered(number), q));
        mock_kernel(numbered(number), set_flag, &ran);
        MUST(comm_event_record_stream(event, numbered(number)));
        MUST(comm_event_sync(event, RIG_PATIENCE));
        EQUAL(atomic_load(&ran), 1);
        uint32_t got[WORDS];
        bench_read(&s->bench, numbered(number), got, s->out, WORDS);
        EQUAL(got[WORDS - 1], number + 5);
        EQUAL(s->bench.calls->cuCtxPopCurrent(&mine), 0);
    }
    comm_event_free(event);
    real_close(&set);
}

static enum comm_result dup_on(struct comm_communicator *c, struct CUstream_st *stream, struct comm_communicator **out)
{
    return NOW(comm_dup, c, &(struct comm_options){.size = sizeof(struct comm_options), .stream = stream}, out);
}

RIG_CASE(streams_that_a_communicator_may_have)
{
    struct real set;
    struct comm_communicator *c;
    struct bench other;
    real_open(&set, 1, &(struct mock_options){.seed = 1});
    bench_open(&other, 3);
    struct CUstream_st *elsewhere = bench_stream(&other);
    IS(dup_on(set.rig.world[0], elsewhere, &c), COMM_ERR_ARGUMENT);
    IS(dup_on(set.rig.world[0], numbered(2), &c), COMM_ERR_ARGUMENT); /* a different stream on each thread */
    MUST(dup_on(set.rig.world[0], numbered(1), &c));
    real_sums(&c, &set);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
    bench_drop_stream(&other, elsewhere);
    bench_close(&other);
    (void)!comm_sync(set.rig.world[0], COMM_FOREVER);
    real_close(&set);
}

static const char *detail(struct comm_communicator *c)
{
    static struct comm_error error;

    error = (struct comm_error){.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    return error.text;
}

RIG_CASE(memory_of_another_device_is_refused)
{
    struct real set;
    uint32_t host[WORDS] = {0};
    real_open(&set, 2, &(struct mock_options){.seed = 1});
    struct comm_communicator *c = set.rig.world[0];
    IS(comm_allreduce(c, set.side[1].in, set.side[0].out, WORDS, COMM_U32, COMM_SUM, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "in is memory of cuda:1; expected memory of cuda:0"));
    IS(comm_allreduce(c, set.side[0].in, set.side[1].out, WORDS, COMM_U32, COMM_SUM, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "out is memory of cuda:1"));
    IS(comm_allreduce(c, host, set.side[0].out, WORDS, COMM_U32, COMM_BXOR, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "in is host memory"));
    IS(comm_allreduce(c, set.side[0].in, set.side[1].out, WORDS, COMM_U32, COMM_BXOR, NULL), COMM_ERR_ARGUMENT);
    CHECK(strstr(detail(c), "out is memory of cuda:1"));
    for (int r = 0; r < 2; r++)
        (void)!comm_close(set.rig.world[r], COMM_DEFAULT_TIMEOUT);
    real_free(&set);
}

/* The test thread has no current context, which a pointer query needs. Device memory must still be detected, and not reach the CPU. */
RIG_CASE(pointers_are_asked_about_inside_a_context)
{
    struct real set;
    real_open(&set, 1, &(struct mock_options){.seed = 1});
    struct comm_communicator *c = set.rig.world[0];
    struct comm_request q;
    bench_fill(&set.side[0].bench, set.side[0].stream, set.side[0].in, 7, WORDS);
    MUST(comm_queue_wait_stream(c, set.side[0].stream));
    MUST(comm_scan(c, set.side[0].in, set.side[0].out, WORDS, COMM_U32, COMM_BXOR, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    uint32_t got[WORDS];
    bench_read(&set.side[0].bench, set.side[0].stream, got, set.side[0].out, WORDS);
    EQUAL(got[0], 7);
    IS(comm_recv(c, set.side[0].out, WORDS, COMM_U32, COMM_ANY_PEER, 0, NULL, NULL), COMM_ERR_UNSUPPORTED);
    (void)!comm_sync(c, COMM_FOREVER);
    real_close(&set);
}

/* ------------------------------------------------------------------------------------------------------------ arithmetic */
/* The values are small integers, which each type holds exactly: the sum of 1, 2 and 3 is 6, the average 2, the product 6. */
RIG_CASE(sums_of_small_types)
{
    static const struct {
        enum comm_type type;
        size_t bytes;
        uint16_t one, two, three, six;
    } types[] = {{COMM_I8, 1, 1, 2, 3, 6},
                 {COMM_F16, 2, 0x3c00, 0x4000, 0x4200, 0x4600},
                 {COMM_BF16, 2, 0x3f80, 0x4000, 0x4040, 0x40c0},
                 {COMM_F8E4M3, 1, 0x38, 0x40, 0x44, 0x4c},
                 {COMM_F8E5M2, 1, 0x3c, 0x40, 0x42, 0x46}};
    struct real set;
    struct comm_request q[RANKS];
    real_open(&set, RANKS, &(struct mock_options){.seed = 1});
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        rig_note("type %d", (int)types[i].type);
        const uint16_t in[RANKS] = {types[i].one, types[i].two, types[i].three};
        static const comm_op ops[] = {COMM_SUM, COMM_PROD};
        for (size_t k = 0; k < 2; k++) {
            for (int r = 0; r < RANKS; r++) {
                uint32_t word = types[i].bytes == 1 ? in[r] * 0x01010101u : in[r] * 0x00010001u;
                bench_fill(&set.side[r].bench, set.side[r].stream, set.side[r].in, word, WORDS);
                MUST(comm_queue_wait_stream(set.rig.world[r], set.side[r].stream));
                MUST(comm_allreduce(set.rig.world[r], set.side[r].in, set.side[r].out, WORDS * 4 / types[i].bytes, types[i].type, ops[k],
                                    &q[r]));
            }
            rig_wait_all(q, RANKS);
            uint32_t got[WORDS], want = types[i].bytes == 1 ? types[i].six * 0x01010101u : types[i].six * 0x00010001u;
            bench_read(&set.side[1].bench, set.side[1].stream, got, set.side[1].out, WORDS);
            EQUAL(got[0], want);
            EQUAL(got[WORDS - 1], want);
        }
    }
    real_close(&set);
}

RIG_CASE(types_that_an_old_library_lacks)
{
    struct real set;
    real_open(&set, 1, &(struct mock_options){.seed = 1, .nccl = 22300});
    struct comm_communicator *c = set.rig.world[0];
    MUST(comm_allreduce(c, set.side[0].in, set.side[0].out, WORDS, COMM_F8E4M3, COMM_SUM, NULL)); /* the host reduces */
    MUST(comm_allreduce(c, set.side[0].in, set.side[0].out, WORDS, COMM_BF16, COMM_SUM, NULL));
    MUST(comm_sync(c, COMM_FOREVER));
    real_close(&set);
}
