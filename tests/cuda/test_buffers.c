/*
 * cuda/buffers.c, with a driver of this test's own: what it is asked about an address, memory that is mapped in pieces, threads without a
 * context, and which bytes of its buffers each collective uses.
 */
#include "cuda/buffers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Pieces of memory behind each other, from BASE on. */
enum { BASE = 0x10000, PIECE = 0x1000, PIECES = 5 };
static int owners[PIECES]; /* of each piece; -1: the driver does not know it */
static bool managed, wants_context, is_inside;
static unsigned fault;
static int questions, entries;

/* As the real driver: what is not known is 0, and no error. */
static unsigned ask(unsigned count, unsigned *attributes, void **data, cuda_address at)
{
    size_t piece = at < BASE ? PIECES : (size_t)(at - BASE) / PIECE;
    bool known = piece < PIECES && owners[piece] >= 0;

    questions++;
    if (fault || (wants_context && !is_inside))
        return fault ? fault : (unsigned)CUDA_INVALID_CONTEXT;
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = attributes[i] == CUDA_POINTER_MEMORY_TYPE   ? CUDA_MEMORY_DEVICE
                         : attributes[i] == CUDA_POINTER_MANAGED     ? managed
                         : attributes[i] == CUDA_POINTER_ORDINAL     ? (uint64_t)(known ? owners[piece] : 0)
                         : attributes[i] == CUDA_POINTER_RANGE_START ? BASE + piece * PIECE
                                                                     : PIECE;
        bool is_long = attributes[i] == CUDA_POINTER_RANGE_START || attributes[i] == CUDA_POINTER_RANGE_SIZE;
        value = known ? value : 0;
        memcpy(data[i], &value, is_long ? 8 : 4); /* little endian */
    }
    return CUDA_OK;
}

static unsigned push(struct CUctx_st *context)
{
    (void)context;
    entries++;
    is_inside = true;
    return CUDA_OK;
}

static unsigned pop(struct CUctx_st **context)
{
    *context = NULL;
    is_inside = false;
    return CUDA_OK;
}

static unsigned exchange(unsigned *mode)
{
    (void)mode;
    return CUDA_OK;
}

static const struct cuda_calls calls = {
    .cuPointerGetAttributes = ask, .cuCtxPushCurrent = push, .cuCtxPopCurrent = pop, .cuThreadExchangeStreamCaptureMode = exchange};
static struct cuda_device device;

static void begin(void)
{
    device = (struct cuda_device){.calls = &calls, .ordinal = 1};
    for (int i = 0; i < PIECES; i++)
        owners[i] = 1;
    managed = wants_context = false;
    fault = 0;
    questions = entries = 0;
}

static void *at(size_t offset)
{
    return (void *)(uintptr_t)(BASE + offset);
}

/* ------------------------------------------------------------------------------------------------------------ one address */
static void an_address_is_asked_about_once(void **state)
{
    (void)state;
    begin();
    struct cuda_memory is = cuda_ask(&device, at(8));
    assert_int_equal(is.owner, 1);
    assert_int_equal(is.past, BASE + PIECE);
    assert_false(is.managed);
    owners[0] = 3;
    managed = true;
    assert_int_equal(cuda_ask(&device, at(8)).owner, 3);
    assert_true(cuda_ask(&device, at(8)).managed);
    owners[0] = -1;
    assert_int_equal(cuda_ask(&device, at(8)).owner, CUDA_OWNER_HOST);
    assert_int_equal(questions, 4);
    assert_int_equal(cuda_ask(&device, NULL).owner, CUDA_OWNER_HOST);
    assert_int_equal(questions, 4);
    assert_int_equal(entries, 0);
}

static void without_a_context_the_device_is_asked_in_its_own(void **state)
{
    (void)state;
    begin();
    wants_context = true;
    assert_int_equal(cuda_ask(&device, at(0)).owner, 1);
    assert_int_equal(questions, 2);
    assert_int_equal(entries, 1);
    fault = CUDA_LAUNCH_FAILED;
    assert_int_equal(cuda_ask(&device, at(0)).owner, CUDA_OWNER_UNKNOWN);
    assert_false(is_inside);
}

static size_t bytes_of(size_t from, size_t bytes, int32_t owner)
{
    struct cuda_memory is = cuda_ask(&device, at(from));

    return cuda_bytes_of(&device, &is, at(from), bytes, owner);
}

static void memory_in_pieces(void **state)
{
    (void)state;
    begin();
    assert_int_equal(bytes_of(8, PIECE - 8, 1), PIECE - 8);
    assert_int_equal(questions, 1);
    assert_int_equal(bytes_of(8, PIECE - 7, 1), PIECE - 7); /* the last byte is in the next piece */
    assert_int_equal(questions, 3);
    assert_int_equal(bytes_of(0, PIECES * PIECE, 1), PIECES * PIECE);
    assert_true(bytes_of(0, PIECES * PIECE + 1, 1) < PIECES * PIECE + 1);
    owners[2] = 0;
    assert_int_equal(bytes_of(8, PIECES * PIECE - 8, 1), 2 * PIECE - 8);
    assert_int_equal(bytes_of(8, PIECES * PIECE - 8, CUDA_OWNER_ANY), PIECES * PIECE - 8);
    owners[2] = -1;
    assert_int_equal(bytes_of(8, PIECES * PIECE - 8, CUDA_OWNER_ANY), 2 * PIECE - 8);
    assert_int_equal(bytes_of(2 * PIECE, 1, CUDA_OWNER_ANY), 0);
}

/* ------------------------------------------------------------------------------------------------------------ calls */
static const size_t counts[] = {2, 0, 5}, displs[] = {7, 100, 1}, in_counts[] = {1, 1, 1}, in_displs[] = {0, 30, 4};

struct use {
    uint32_t collective;
    bool in_blocks, in_pairs; /* it has counts; it has in_counts */
    int32_t rank;
    size_t in, out; /* elements that it uses */
};

static void what_each_collective_uses(void **state)
{
    enum { N = 10, RANKS = 3, ELEMENT = 4 };
    static const struct use uses[] = {
        {COLLECTIVE_BARRIER, false, false, 0, 0, 0},
        {COLLECTIVE_ALLREDUCE, false, false, 0, N, N},
        {COLLECTIVE_REDUCE, false, false, 1, N, N},
        {COLLECTIVE_BROADCAST, false, false, 2, N, N},
        {COLLECTIVE_SCAN, false, false, 0, N, N},
        {COLLECTIVE_EXSCAN, false, false, 0, N, 0},
        {COLLECTIVE_EXSCAN, false, false, 1, N, N},
        {COLLECTIVE_ALLGATHER, false, false, 0, N, RANKS * N},
        {COLLECTIVE_GATHER, false, false, 0, N, RANKS * N},
        {COLLECTIVE_SCATTER, false, false, 0, RANKS * N, N},
        {COLLECTIVE_REDUCE_SCATTER, false, false, 0, RANKS * N, N},
        {COLLECTIVE_ALLTOALL, false, false, 0, RANKS * N, RANKS * N},
        {COLLECTIVE_ALLGATHER_V, true, false, 0, 2, 9},
        {COLLECTIVE_GATHER_V, true, false, 1, 0, 9},
        {COLLECTIVE_SCATTER_V, true, false, 2, 9, 5},
        {COLLECTIVE_REDUCE_SCATTER_V, true, false, 0, 9, 2},
        {COLLECTIVE_ALLTOALL_V, true, false, 0, 9, 9},
        {COLLECTIVE_ALLTOALL_V, true, true, 0, 31, 9},
    };

    (void)state;
    begin();
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct use *u = &uses[i];
        struct native_call call = {.collective = u->collective, .in = at(0), .out = at(2 * PIECE), .n = N, .element_bytes = ELEMENT};
        call.counts = u->in_blocks ? counts : NULL;
        call.displs = u->in_blocks ? displs : NULL;
        call.in_counts = u->in_pairs ? in_counts : NULL;
        call.in_displs = u->in_pairs ? in_displs : NULL;
        struct cuda_buffers b = cuda_ask_buffers(&device, &call, u->rank, RANKS);
        assert_int_equal(b.in.bytes, u->in * ELEMENT);
        assert_int_equal(b.out.bytes, u->out * ELEMENT);
        assert_string_equal(b.in.name, "in");
        assert_string_equal(b.out.name, "out");
    }
}

static struct cuda_buffers buffers_of(uint32_t collective, const void *in, const void *out)
{
    return cuda_ask_buffers(
        &device, &(struct native_call){.collective = collective, .in = in, .out = (void *)(uintptr_t)out, .n = 4, .element_bytes = 4}, 1,
        3);
}

static void a_buffer_of_both_is_asked_about_once(void **state)
{
    (void)state;
    begin();
    struct cuda_buffers b = buffers_of(COLLECTIVE_ALLREDUCE, at(16), at(16));
    assert_int_equal(b.in.bytes, 0);
    assert_int_equal(b.out.bytes, 16);
    assert_string_equal(b.out.name, "out");
    b = buffers_of(COLLECTIVE_ALLGATHER, at(32), at(16)); /* the own block of three */
    assert_int_equal(b.in.bytes, 0);
    b = buffers_of(COLLECTIVE_SCATTER, at(16), at(32));
    assert_int_equal(b.out.bytes, 0);
    assert_string_equal(b.in.name, "in");
    b = buffers_of(COLLECTIVE_REDUCE_SCATTER, at(16), at(32));
    assert_int_equal(b.out.bytes, 0);
    assert_string_equal(b.in.name, "out");
    b = buffers_of(COLLECTIVE_BROADCAST, at(16), at(16));
    assert_string_equal(b.out.name, "buf");
    assert_int_equal(questions, 5);
    b = buffers_of(COLLECTIVE_REDUCE, at(16), NULL);
    assert_int_equal(b.out.bytes, 0);
    assert_int_equal(b.out.is.owner, CUDA_OWNER_HOST);
    assert_int_equal(questions, 6);
    wants_context = true;
    b = buffers_of(COLLECTIVE_ALLREDUCE, at(16), at(64));
    assert_int_equal(b.in.is.owner, 1);
    assert_int_equal(b.out.is.owner, 1);
    assert_int_equal(entries, 1); /* for both */
}

static void the_end_is_checked(void **state)
{
    char why[160] = "";

    (void)state;
    begin();
    owners[1] = -1;
    struct cuda_buffers b = buffers_of(COLLECTIVE_ALLREDUCE, at(PIECE - 16), at(PIECE - 12));
    assert_int_equal(cuda_check_end(&device, &b.in, why, sizeof why), COMM_OK);
    assert_int_equal(cuda_check_end(&device, &b.out, why, sizeof why), COMM_ERR_ARGUMENT);
    assert_string_equal(why, "out=0x10ff4; expected 16 bytes of memory of cuda:1: it ends after 12");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_asked_about_once),
        cmocka_unit_test(without_a_context_the_device_is_asked_in_its_own),
        cmocka_unit_test(memory_in_pieces),
        cmocka_unit_test(what_each_collective_uses),
        cmocka_unit_test(a_buffer_of_both_is_asked_about_once),
        cmocka_unit_test(the_end_is_checked),
    };
    return cmocka_run_group_tests_name("cuda_buffers", tests, NULL, NULL);
}
