/*
 * What two processes of this machine can reach with shared memory in an allreduce of f32: hand-written loops without a library and without
 * calls. comm-perf is compared with this figure. Hence the method is that of comm-perf: rotating buffers within 64 MiB, a tight loop per
 * batch, the median batch.
 *
 *   shm_floor [--touch] [--max BYTES]      the columns of comm-perf, as CSV; the time is the first rank's
 *
 * Three methods, by size. Up to 48 bytes, one cache line in each direction holds number and data. Up to 64 KiB, each side copies its vector
 * into a slot and adds the other's slot to its own. Above, each side owns half of the vector. Chunks of the other half are staged, added
 * and read back, with three stages in flight. From 2 MiB on, stores to the caller's memory bypass the cache. There is no barrier: counters
 * only grow, and a slot is reused when the peer's counter shows that it was read.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#    include <immintrin.h>
#endif

enum { LINE_BYTES_MAX = 48, SLOT_BYTES = 65536, SLOTS = 8, LINES = 4, BATCHES = 11, WARM_BATCHES = 75, ROTATE = 16 };
static const size_t BUFFER_BYTES = 32u << 20, BYPASS_BYTES = 2u << 20, BYTES_MAX = 8u << 20;

struct line {
    _Alignas(64) _Atomic uint32_t number;
    float data[14];
};
struct counter {
    _Alignas(128) _Atomic uint64_t value;
};
/* Memory that one side writes and the other reads. */
struct side {
    struct line line[LINES];
    struct counter staged, reduced;
    _Alignas(4096) char input[SLOTS][SLOT_BYTES];
    char result[SLOTS][SLOT_BYTES];
};
struct rank {
    struct side *mine, *theirs;
    size_t index;    /* 0 or 1 */
    uint64_t chunks; /* number of chunks staged so far; equal on both sides between calls */
    uint32_t lines;
    bool bypass;
};

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static uint64_t seen(const struct counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_acquire);
}

static void show(struct counter *counter, uint64_t value)
{
    atomic_store_explicit(&counter->value, value, memory_order_release);
}

/* ------------------------------------------------------------------------------------------------------------ kernels */
/* Both return how many elements they processed: whole vectors stored past the cache, if the machine has such stores and the address is
 * aligned. */
static size_t copy_past(float *to, const float *from, size_t n)
{
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
    _mm_sfence();
#elif defined(__AVX__)
    for (; i + 8 <= n; i += 8)
        _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
    _mm_sfence();
#else
    (void)to, (void)from, (void)n;
#endif
    return i;
}

static size_t add_past(float *to, float *also, const float *x, const float *y, size_t n)
{
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        __m512 sum = _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i));
        _mm512_stream_ps(to + i, sum);
        _mm512_storeu_ps(also + i, sum);
    }
    _mm_sfence();
#elif defined(__AVX__)
    for (; i + 8 <= n; i += 8) {
        __m256 sum = _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i));
        _mm256_stream_ps(to + i, sum);
        _mm256_storeu_ps(also + i, sum);
    }
    _mm_sfence();
#else
    (void)to, (void)also, (void)x, (void)y, (void)n;
#endif
    return i;
}

static bool goes_past(const struct rank *rank, const void *to)
{
    return rank->bypass && ((uintptr_t)to & 63) == 0;
}

static void copy_out(const struct rank *rank, float *to, const float *from, size_t n)
{
    size_t done = goes_past(rank, to) ? copy_past(to, from, n) : 0;
    memcpy(to + done, from + done, (n - done) * sizeof *to);
}

static void add(float *restrict to, const float *restrict x, const float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = x[i] + y[i];
}

static void add_twice(const struct rank *rank, float *restrict to, float *restrict also, const float *restrict x, const float *restrict y,
                      size_t n)
{
    for (size_t i = goes_past(rank, to) ? add_past(to, also, x, y, n) : 0; i < n; i++)
        also[i] = to[i] = x[i] + y[i];
}

/* ------------------------------------------------------------------------------------------------------------ three methods */
static void by_line(struct rank *rank, const float *in, float *out, size_t n)
{
    uint32_t number = ++rank->lines;
    struct line *mine = &rank->mine->line[number % LINES];
    const struct line *theirs = &rank->theirs->line[number % LINES];
    memcpy(mine->data, in, n * sizeof *in);
    atomic_store_explicit(&mine->number, number, memory_order_release);
    while (atomic_load_explicit(&theirs->number, memory_order_acquire) != number)
        relax();
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] + theirs->data[i];
    atomic_signal_fence(memory_order_seq_cst);
}

static void by_slot(struct rank *rank, const float *in, float *out, size_t n)
{
    uint64_t chunk = rank->chunks++;
    while (seen(&rank->theirs->reduced) + SLOTS <= chunk)
        relax();
    memcpy(rank->mine->input[chunk % SLOTS], in, n * sizeof *in);
    show(&rank->mine->staged, chunk + 1);
    while (seen(&rank->theirs->staged) <= chunk)
        relax();
    add(out, in, (const float *)(const void *)rank->theirs->input[chunk % SLOTS], n);
    show(&rank->mine->reduced, chunk + 1);
}

/* A call by halves: chunk k has number first + k among all chunks ever staged. */
struct halves {
    const float *in;
    float *out;
    size_t own, other; /* the start of this rank's half, and of the peer's */
    size_t half, chunk, count;
    uint64_t first;
    size_t staged, reduced, taken;
};

static size_t length_of(const struct halves *call, size_t k)
{
    size_t left = call->half - k * call->chunk;
    return left < call->chunk ? left : call->chunk;
}

static void stage_next(struct rank *rank, struct halves *call)
{
    size_t k = call->staged++, slot = (call->first + k) % SLOTS;
    memcpy(rank->mine->input[slot], call->in + call->other + k * call->chunk, length_of(call, k) * sizeof *call->in);
    show(&rank->mine->staged, call->first + call->staged);
}

static void reduce_next(struct rank *rank, struct halves *call)
{
    size_t k = call->reduced++, slot = (call->first + k) % SLOTS, at = call->own + k * call->chunk;
    add_twice(rank, call->out + at, (float *)(void *)rank->mine->result[slot], call->in + at,
              (const float *)(const void *)rank->theirs->input[slot], length_of(call, k));
    show(&rank->mine->reduced, call->first + call->reduced);
}

static void take_next(struct rank *rank, struct halves *call)
{
    size_t k = call->taken++, slot = (call->first + k) % SLOTS;
    copy_out(rank, call->out + call->other + k * call->chunk, (const float *)(const void *)rank->theirs->result[slot], length_of(call, k));
}

/* This rank may reuse an input slot after it has read the peer's result for that chunk: the chunk was reduced, so it was read. A result
 * slot is free when the peer has staged SLOTS more chunks, which it does only after reading the result. */
static void by_halves(struct rank *rank, const float *in, float *out, size_t n)
{
    size_t half = n / 2, chunk = half / 4 > SLOT_BYTES / sizeof *in ? SLOT_BYTES / sizeof *in : half / 4;
    struct halves call = {.in = in, .out = out, .half = half, .chunk = chunk, .count = (half + chunk - 1) / chunk, .first = rank->chunks};
    call.own = rank->index * half;
    call.other = half - call.own;
    while (call.taken < call.count) {
        if (call.staged < call.count && call.staged < call.taken + SLOTS)
            stage_next(rank, &call);
        if (call.reduced < call.count && seen(&rank->theirs->staged) > call.first + call.reduced)
            reduce_next(rank, &call);
        if (call.taken < call.reduced && seen(&rank->theirs->reduced) > call.first + call.taken)
            take_next(rank, &call);
    }
    rank->chunks += call.count;
}

static void allreduce(struct rank *rank, const float *in, float *out, size_t bytes)
{
    if (bytes <= LINE_BYTES_MAX)
        by_line(rank, in, out, bytes / sizeof *in);
    else if (bytes <= SLOT_BYTES)
        by_slot(rank, in, out, bytes / sizeof *in);
    else
        by_halves(rank, in, out, bytes / sizeof *in);
}

/* ------------------------------------------------------------------------------------------------------------ measurement */
static void touch_in(float *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        ((volatile char *)at)[i] = 1;
}

static void touch_out(const float *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        (void)((const volatile char *)at)[i];
}

struct loop {
    float *in, *out;
    size_t bytes, iterations, slots;
    bool touch, call;
};

/* A barrier: neither side continues before the other has left its last call. */
static void meet(struct rank *rank)
{
    float nothing = 0;
    by_line(rank, &nothing, &nothing, 1);
}

static double run_batch(struct rank *rank, const struct loop *loop)
{
    meet(rank);
    double begin = now_us();
    for (size_t i = 0; i < loop->iterations; i++) {
        size_t at = i % loop->slots * (loop->bytes / sizeof(float));
        if (loop->touch)
            touch_in(loop->in + at, loop->bytes);
        if (loop->call)
            allreduce(rank, loop->in + at, loop->out + at, loop->bytes);
        if (loop->touch)
            touch_out(loop->out + at, loop->bytes);
    }
    return (now_us() - begin) / (double)loop->iterations;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the batches and stores minimum, median and maximum. */
static void run_batches(struct rank *rank, const struct loop *loop, double time[3])
{
    double batch[BATCHES];
    for (int i = 0; i < BATCHES; i++)
        batch[i] = run_batch(rank, loop);
    qsort(batch, BATCHES, sizeof batch[0], by_value);
    time[0] = batch[0];
    time[1] = batch[BATCHES / 2];
    time[2] = batch[BATCHES - 1];
}

static bool is_right(const float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (out[i] != (float)(2 * (i % 7) + 1))
            return false;
    }
    return true;
}

/* Runs before the first size, as in the other benchmarks: CPUs leave sleep states and train their predictors. */
static void warm_up(struct rank *rank, struct loop loop)
{
    loop.iterations = 5000;
    loop.call = true;
    loop.slots = 1;
    for (int batch = 0; batch < WARM_BATCHES; batch++)
        (void)run_batch(rank, &loop);
}

static void measure(struct rank *rank, struct loop loop)
{
    double time[3], touched[3] = {0, 0, 0};
    loop.slots = BUFFER_BYTES / loop.bytes < ROTATE ? BUFFER_BYTES / loop.bytes : ROTATE;
    loop.iterations = loop.bytes <= 4096 ? 5000 : loop.bytes <= 262144 ? 300 : loop.bytes <= (2u << 20) ? 30 : 8;
    loop.call = true;
    rank->bypass = loop.bytes >= BYPASS_BYTES;
    for (size_t i = 0; i < loop.slots * loop.bytes / sizeof(float); i++) /* fill all elements: zeros are summed and moved a tenth faster */
        loop.in[i] = (float)(i % (loop.bytes / sizeof(float)) % 7 + rank->index);
    meet(rank);
    allreduce(rank, loop.in, loop.out, loop.bytes);
    if (!is_right(loop.out, loop.bytes / sizeof(float))) {
        fprintf(stderr, "shm_floor: a sum of %zu bytes is wrong\n", loop.bytes);
        exit(1);
    }
    run_batches(rank, &loop, time);
    if (loop.touch) {
        loop.call = false;
        run_batches(rank, &loop, touched);
    }
    if (rank->index == 0) {
        printf("allreduce,floor,2,f32,%zu,request,%.3f,%.3f,%.3f,0.0\n", loop.bytes, time[0] - touched[1], time[1] - touched[1],
               time[2] - touched[1]);
        fflush(stdout);
    }
}

/* Starts two processes, each on a CPU of its own if there are two. A spinning orphan would spoil all later measurements. */
static struct rank start_ranks(void)
{
    struct side *sides = mmap(NULL, 2 * sizeof *sides, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sides == MAP_FAILED) {
        perror("shm_floor: mmap");
        exit(1);
    }
    memset(sides, 0, 2 * sizeof *sides);
    pid_t parent = getpid(), child = fork();
    if (child < 0) {
        perror("shm_floor: fork");
        exit(1);
    }
    struct rank rank = {.index = child == 0};
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    rank.mine = &sides[rank.index];
    rank.theirs = &sides[!rank.index];
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank.index, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
    return rank;
}

int main(int argc, char **argv)
{
    struct loop loop = {.touch = false};
    size_t max = BYTES_MAX;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--touch")) {
            loop.touch = true;
        } else if (!strcmp(argv[i], "--max") && i + 1 < argc) {
            max = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "usage: shm_floor [--touch] [--max BYTES]; '%s' is neither\n", argv[i]);
            return 2;
        }
    }
    struct rank rank = start_ranks();
    loop.in = aligned_alloc(4096, BUFFER_BYTES);
    loop.out = aligned_alloc(4096, BUFFER_BYTES);
    if (!loop.in || !loop.out) {
        fprintf(stderr, "shm_floor: no memory for buffers of %zu bytes\n", BUFFER_BYTES);
        return 1;
    }
    memset(loop.in, 0, BUFFER_BYTES);
    memset(loop.out, 0, BUFFER_BYTES);
    if (rank.index == 0)
        printf("collective,backend,ranks,type,bytes,mode,min_us,median_us,max_us,overlap_pct\n");
    loop.bytes = 8;
    warm_up(&rank, loop);
    for (; loop.bytes <= max && loop.bytes <= BUFFER_BYTES; loop.bytes *= 4)
        measure(&rank, loop);
    int status = 0;
    if (rank.index == 1)
        _exit(0);
    wait(&status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
