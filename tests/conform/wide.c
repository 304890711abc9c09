/*
 * Counts and displacements that need more than 32 bits. Displacements point into address space of which few pages are
 * ever touched. For long counts the same pages are mapped again and again in both buffers, so that all bytes pass
 * through the library but little memory is needed.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS = 2, FEW = 3000, TURN = 2 << 20 };
#define FAR ((size_t)1 << 32)
#define LONG (FAR + 13)

/* ------------------------------------------------------------------------------------------------------------ displacements */
/* Room for FEW elements at the beginning and FEW behind FAR, and some between. */
static unsigned char *sparse(void)
{
    void *at = mmap(NULL, FAR + 2 * FEW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        rig_skip("this system gives no address space that it could not fill");
    return at;
}

static void fill(unsigned char *at, int value)
{
    memset(at, value, FEW);
    memset(at + FAR + FEW / 2, value + 100, FEW);
}

static void holds(const unsigned char *at, int value)
{
    for (size_t i = 0; i < FEW; i++)
        EQUAL(at[i], value);
}

struct wide {
    struct rig rig;
    unsigned char *in[RANKS], *out[RANKS], few[RANKS][FEW];
};

static void open_wide(struct wide *w)
{
    rig_open(&w->rig, RANKS, NULL);
    for (int32_t r = 0; r < RANKS; r++) {
        w->in[r] = sparse();
        w->out[r] = sparse();
        fill(w->in[r], r + 1);
        memset(w->few[r], 50 + r, FEW);
    }
}

/* Block 1 lies behind 4 GiB in every buffer that has displacements; the bytes a little further on must be unchanged. */
static void all_done(struct wide *w, struct comm_request *request)
{
    rig_wait_all(request, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        EQUAL(w->out[r][FAR + FEW / 2 + FEW], 0);
}

RIG_TEST(displacements_of_more_than_32_bits)
{
    static struct wide w;
    const size_t counts[RANKS] = {FEW, FEW}, displs[RANKS] = {0, FAR + FEW / 2};
    struct comm_request q[RANKS];

    open_wide(&w);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allgather_v(w.rig.world[r], w.few[r], w.out[r], counts, displs, COMM_U8, &q[r]));
    all_done(&w, q);
    for (int32_t r = 0; r < RANKS; r++) {
        holds(w.out[r], 50);
        holds(w.out[r] + displs[1], 51);
    }
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_alltoall_v(w.rig.world[r], w.in[r], counts, displs, w.out[r], counts, displs, COMM_U8, &q[r]));
    all_done(&w, q);
    for (int32_t r = 0; r < RANKS; r++) {
        holds(w.out[r], r ? 101 : 1);
        holds(w.out[r] + displs[1], r ? 102 : 2);
    }
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_scatter_v(w.rig.world[r], w.in[1], counts, displs, w.few[r], FEW, COMM_U8, 1, &q[r]));
    all_done(&w, q);
    holds(w.few[0], 2);
    holds(w.few[1], 102);
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_gather_v(w.rig.world[r], w.few[r], FEW, w.out[0], counts, displs, COMM_U8, 0, &q[r]));
    all_done(&w, q);
    holds(w.out[0], 2);
    holds(w.out[0] + displs[1], 102);
    rig_close(&w.rig);
}

/* ------------------------------------------------------------------------------------------------------------ counts */
/* LONG bytes, which are the same TURN bytes again and again. */
static unsigned char *repeated(int *file)
{
    unsigned char *at = mmap(NULL, LONG + TURN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *file = memfd_create("wide", MFD_CLOEXEC);
    if (at == MAP_FAILED || *file < 0 || ftruncate(*file, TURN))
        rig_skip("this system gives no memory that stands in several places");
    for (size_t k = 0; k <= LONG; k += TURN)
        CHECK(mmap(at + k, TURN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *file, 0) == at + k);
    return at;
}

static unsigned char of(int32_t rank, size_t i)
{
    return (unsigned char)(i * 7 + (i >> 8) + (size_t)rank * 64);
}

enum what { MOVED, REDUCED, SENT, WHATS };
static void pass(struct rig *rig, enum what what, unsigned char *const *in, unsigned char *const *out)
{
    struct comm_request q[RANKS];
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *c = rig->world[r];
        if (what == MOVED)
            MUST(comm_broadcast(c, r ? out[r] : in[r], LONG, COMM_U8, 0, &q[r]));
        else if (what == REDUCED)
            MUST(comm_allreduce(c, in[r], out[r], LONG, COMM_U8, COMM_BXOR, &q[r]));
        else if (r)
            MUST(comm_recv(c, out[r], LONG, COMM_U8, 0, 1, NULL, &q[r]));
        else
            MUST(comm_send(c, in[r], LONG, COMM_U8, 1, 1, &q[r]));
    }
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_wait(q[r], 5 * RIG_PATIENCE));
}

RIG_TEST(counts_of_more_than_32_bits)
{
    unsigned char *in[RANKS], *out[RANKS];
    int file[RANKS][2];
    struct rig rig;

    if (rig_quick())
        rig_skip("the long selection alone");
    rig_open(&rig, RANKS, &(struct comm_config){.size = sizeof(struct comm_config), .operation_timeout_ns = 5 * RIG_PATIENCE});
    for (int32_t r = 0; r < RANKS; r++) {
        in[r] = repeated(&file[r][0]);
        out[r] = repeated(&file[r][1]);
        for (size_t i = 0; i < TURN; i++)
            in[r][i] = of(r, i);
    }
    for (enum what what = MOVED; what < WHATS; what++) {
        memset(out[1], 0, TURN);
        rig_note("way %d", (int)what);
        pass(&rig, what, in, out);
        for (size_t i = 0; i < TURN; i++)
            CHECK(out[1][i] == (what == REDUCED ? of(0, i) ^ of(1, i) : of(0, i)));
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(displacements_of_more_than_32_bits),
        cmocka_unit_test(counts_of_more_than_32_bits),
    };
    return cmocka_run_group_tests_name("conform_wide", tests, NULL, NULL);
}
