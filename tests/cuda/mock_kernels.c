/*
 * Kernels of the mock driver. The module's kernels are compiled here for the CPU, from the source that nvcc compiles for devices. A launch
 * of comm_fold runs all threads of all blocks, one after the other. The order is a permutation that the seed chooses, since a device has no
 * order. A launch of comm_allreduce waits for other devices, so it is stepped: one phase of one block at a time, and as many blocks at once
 * as the seed chooses. While all of them wait, the machine runs what else it has. So is one of comm_trial, on whose clock an exchange takes
 * what the options say. comm_spin (gpu/spin.c) is the tests' own: its stream stands for a time, or until a word is not 0.
 */
#define _GNU_SOURCE
#include "mock_inside.h"

#include <stdint.h>

static uint64_t device_clock;
#define ONESHOT_NOW() device_clock
#include "cuda/combine_kernel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

CUDA_CALLS(CUDA_EXPORT)

enum { UNSUPPORTED_PTX = 222, NOT_FOUND = 500 };
struct CUmod_st {
    int device;
};
struct CUfunc_st {
    const char *name;
    size_t bytes;                                                 /* of its argument */
    void (*thread)(const void *args, size_t index, size_t count); /* NULL: it is stepped */
};
struct launched {
    const struct CUfunc_st *function;
    size_t threads;
    uint64_t order;
    bool recorded; /* it belongs to a graph */
    _Alignas(16) unsigned char args[sizeof(struct oneshot_trial)];
};

static void fold(const void *args, size_t index, size_t count)
{
    fold_thread(args, index, count);
}

static void combine(const void *args, size_t index, size_t count)
{
    combine_thread(args, index, count, false);
}

static void combine_many(const void *args, size_t index, size_t count)
{
    combine_thread(args, index, count, true);
}

struct spin_args {
    const uint64_t *stop;
    uint64_t ns;
};
static const char spin_name[] = "comm_spin";
static struct CUfunc_st functions[] = {{spin_name, sizeof(struct spin_args), NULL},
                                       {"comm_fold", sizeof(struct fold_args), fold},
                                       {"comm_combine", sizeof(struct combine_args), combine},
                                       {"comm_combine_many", sizeof(struct combine_args), combine_many},
                                       {"comm_allreduce", sizeof(struct oneshot_args), NULL},
                                       {"comm_trial", sizeof(struct oneshot_trial), NULL}};

unsigned mock_cuModuleLoadData(struct CUmod_st **module, const void *image)
{
    CUDA_BEGIN_INSIDE;
    if (mock.options.no_kernels || !image)
        CUDA_END(UNSUPPORTED_PTX);
    *module = malloc(sizeof **module);
    (*module)->device = mock_device();
    mock_add(THING_MODULE, *module, 0, mock_device());
    CUDA_END(CUDA_OK);
}

unsigned mock_cuModuleUnload(struct CUmod_st *module)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_remove(THING_MODULE, module))
        CUDA_END(CUDA_INVALID_VALUE);
    free(module);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
    CUDA_BEGIN_INSIDE;
    if (mock_find(module) != THING_MODULE)
        CUDA_END(CUDA_INVALID_VALUE);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        *function = &functions[i];
        CUDA_END(CUDA_OK);
    }
    CUDA_END(NOT_FOUND);
}

/* i * odd + shift is a permutation of a power of two; those beyond the end are left out. */
static void run(void *arg)
{
    struct launched *l = arg;
    _Alignas(16) unsigned char args[sizeof l->args];
    size_t most = 1;

    memcpy(args, l->args, sizeof args);
    mock_reach_all(args, l->function->bytes);
    while (most < l->threads)
        most *= 2;
    for (size_t i = 0; i < most; i++) {
        size_t index = (i * (l->order | 1) + (l->order >> 32)) & (most - 1);
        if (index < l->threads)
            l->function->thread(args, index, l->threads);
    }
    if (!l->recorded)
        free(l);
}

/* ------------------------------------------------------------------------------------------------------------ kernels that wait */
struct stepped {
    struct oneshot_trial trial; /* of comm_allreduce: its arguments, and no rounds */
    uint64_t clock;
    uint32_t phases, begun, over, room; /* begun, over, room: blocks */
    struct {
        struct oneshot_trial_block *block; /* NULL: it has not begun, or is over */
        uint32_t phase, done;              /* threads that have done the phase */
        bool is_done[ONESHOT_THREADS];
    } at[];
};

static bool by_devices(const struct oneshot_args *a)
{
    return a->slots[0] != a->box[0];
}

static bool step_thread(struct stepped *s, uint32_t i, uint32_t thread)
{
    device_clock = s->clock;
    if (s->trial.rounds)
        return oneshot_try(&s->trial, s->at[i].block, s->at[i].phase, thread, ONESHOT_THREADS);
    return oneshot_step(&s->trial.args, &s->at[i].block->block, s->at[i].phase, thread, ONESHOT_THREADS);
}

static void pass_time(struct stepped *s)
{
    uint64_t host = mock.options.host_ns ? (uint64_t)mock.options.host_ns : 900;
    uint64_t peer = mock.options.peer_ns ? (uint64_t)mock.options.peer_ns : 400;

    s->clock += by_devices(&s->trial.args) ? peer : host;
}

/* Lets each thread of the block that has not done the phase try to. Returns true if anything moved. */
static bool step_block(struct stepped *s, uint32_t i)
{
    uint32_t before = s->at[i].done, shift = (uint32_t)mock_draw(ONESHOT_THREADS);

    for (uint32_t t = 0; t < ONESHOT_THREADS; t++) {
        uint32_t thread = (t * 77 + shift) % ONESHOT_THREADS;
        if (s->at[i].is_done[thread] || !step_thread(s, i, thread))
            continue;
        s->at[i].is_done[thread] = true;
        s->at[i].done++;
    }
    bool moved = s->at[i].done != before;
    if (s->at[i].done == ONESHOT_THREADS) {
        memset(s->at[i].is_done, 0, sizeof s->at[i].is_done);
        s->at[i].done = 0;
        if (s->at[i].phase++ % ONESHOT_PHASES == ONESHOT_COLLECT)
            pass_time(s);
    }
    if (s->at[i].phase == s->phases) {
        free(s->at[i].block);
        s->at[i].block = NULL;
        s->over++;
    }
    return moved;
}

static bool may_begin(const struct stepped *s)
{
    return s->begun < s->trial.args.parts && s->begun - s->over < s->room;
}

static bool stepped_ready(struct mock_op *op)
{
    struct stepped *s = op->arg;

    if (op->stream->running != op || may_begin(s) || s->over == s->trial.args.parts)
        return true;
    for (uint32_t i = 0; i < s->begun; i++)
        if (s->at[i].block && (s->at[i].phase % ONESHOT_PHASES != ONESHOT_AWAIT || step_block(s, i)))
            return true;
    return false;
}

/* As on a real device, a kernel that has begun is in no hardware queue any more. Here it gets a queue of its own. False: none is free. */
static bool leave_queue(struct mock_op *op)
{
    struct CUstream_st *stream = op->stream;
    int d = stream->device, q = MOCK_STREAM_QUEUES;

    if (stream->running == op)
        return true;
    while (q < MOCK_QUEUES && mock.first[d][q])
        q++;
    if (q == MOCK_QUEUES)
        return false;
    mock.first[d][stream->queue] = op->next;
    if (!op->next)
        mock.last[d][stream->queue] = NULL;
    op->next = NULL;
    mock.first[d][q] = mock.last[d][q] = op;
    stream->running = op;
    return true;
}

static bool stepped_go(struct mock_op *op)
{
    struct stepped *s = op->arg;

    if (!leave_queue(op))
        return false;
    if (may_begin(s) && mock_draw(2))
        s->at[s->begun++].block = calloc(1, sizeof(struct oneshot_trial_block));
    uint32_t from = s->begun ? (uint32_t)mock_draw(s->begun) : 0;
    for (uint32_t i = 0; i < s->begun; i++)
        if (s->at[(from + i) % s->begun].block && step_block(s, (from + i) % s->begun))
            break;
    if (s->over < s->trial.args.parts)
        return false;
    op->stream->running = NULL;
    free(s);
    return true;
}

static void push_stepped(void *arg, struct CUstream_st *stream)
{
    struct launched *l = arg;
    const struct oneshot_args *args = (const struct oneshot_args *)(const void *)l->args; /* a trial begins with them */
    struct stepped *s = calloc(1, sizeof *s + args->parts * sizeof s->at[0]);

    memcpy(&s->trial, l->args, l->function->bytes);
    mock_reach_all(&s->trial, l->function->bytes);
    s->phases = s->trial.rounds ? oneshot_trial_phases(&s->trial) : ONESHOT_PHASES;
    s->room = 1 + (uint32_t)mock_draw(args->parts);
    struct mock_op *op = mock_push(stream, OP_FOREIGN);
    op->ready = stepped_ready;
    op->go = stepped_go;
    op->arg = s;
}

/* ------------------------------------------------------------------------------------------------------------ a kernel that takes time */
struct spun {
    struct spin_args args;
    uint64_t until;
};

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* It begins when it is first looked at: at the head of its queue. The machine runs other streams meanwhile. */
static bool spin_ready(struct mock_op *op)
{
    struct spun *s = op->arg;
    uint64_t now = clock_ns();

    s->until = s->until ? s->until : now + s->args.ns;
    return now >= s->until || atomic_load_explicit((const _Atomic uint64_t *)s->args.stop, memory_order_acquire);
}

static bool spin_go(struct mock_op *op)
{
    free(op->arg);
    return true;
}

static unsigned launch_spin(struct CUstream_st *stream, const void *args)
{
    struct spun *s = stream->graph ? NULL : calloc(1, sizeof *s);

    if (!s)
        return CUDA_NOT_SUPPORTED;
    memcpy(&s->args, args, sizeof s->args);
    struct mock_op *op = mock_push(stream, OP_FOREIGN);
    op->ready = spin_ready;
    op->go = spin_go;
    op->arg = s;
    return CUDA_OK;
}

static bool is_within(const char *what, const void *at, size_t bytes)
{
    return what >= (const char *)at && what < (const char *)at + bytes;
}

bool mock_is_read(const void *at, size_t bytes)
{
    for (int d = 0; d < MOCK_DEVICES; d++) {
        for (int q = 0; q < MOCK_QUEUES; q++) {
            for (const struct mock_op *op = mock.first[d][q]; op; op = op->next) {
                const struct stepped *s = op->go == stepped_go ? op->arg : NULL;
                for (uint32_t r = 0; s && r < s->trial.args.ranks; r++)
                    if (is_within(s->trial.args.slots[r], at, bytes) || is_within(s->trial.args.box[r], at, bytes))
                        return true;
            }
        }
    }
    return false;
}

/* A device can access its own memory, registered memory of the host, and what is mapped for it; no other. */
static bool sees(const void *at)
{
    enum mock_thing kind = mock_find(at);

    if (mock_maps(at, mock_device()))
        return true;
    return kind == THING_REGISTERED || kind == THING_HOST_MEMORY || (kind == THING_DEVICE_MEMORY && mock_owner(at) == mock_device());
}

static bool sees_all(const struct oneshot_args *a)
{
    bool has_data = a->kind != ONESHOT_BARRIER, buffers = sees(a->in) && sees(a->out);
    bool all = has_data == buffers && sees(a->state) && sees(a->done) && sees(a->wrong) && sees(a->abort);

    for (uint32_t r = 0; r < a->ranks; r++)
        all = all && sees(a->box[r]) && sees(a->box[r] + ONESHOT_BOX_BYTES - 1) && sees(a->slots[r]) &&
              sees(a->slots[r] + ONESHOT_BOX_BYTES - 1);
    return all;
}

static bool sees_inputs(const struct combine_args *a)
{
    bool all = sees(a->to) && (!a->copy || sees(a->copy));

    for (uint32_t r = 0; r < a->ranks; r++)
        all = all && sees(a->from[r]) && sees(a->from[r] + a->elements * fold_bytes(a->type) - 1);
    return all;
}

static void count(const struct oneshot_args *a, size_t bytes)
{
    mock.launched.all += bytes == sizeof *a;
    mock.launched.by_devices += bytes == sizeof *a && by_devices(a);
}

static void launch_stepped(struct launched *l, struct CUstream_st *stream)
{
    if (!sees_all((const struct oneshot_args *)(const void *)l->args))
        mock.misused = "a kernel got memory that the device cannot access";
    count((const struct oneshot_args *)(const void *)l->args, l->function->bytes);
    if (!l->recorded) {
        push_stepped(l, stream);
        free(l);
        return;
    }
    struct mock_op *op = mock_push(stream, OP_AGAIN);
    op->again = push_stepped;
    op->drop = free;
    op->arg = l;
}

unsigned mock_cuLaunchKernel(struct CUfunc_st *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                             unsigned threads_y, unsigned threads_z, unsigned shared_bytes, struct CUstream_st *stream, void **parameters,
                             void **extra)
{
    CUDA_BEGIN_INSIDE;
    if (!mock_usable(stream) || !blocks_x || blocks_y != 1 || blocks_z != 1 || threads_x > 1024 || threads_y != 1 || threads_z != 1 ||
        shared_bytes || extra)
        CUDA_END(CUDA_INVALID_VALUE);
    if (function->name == spin_name)
        CUDA_END(launch_spin(mock_stream(stream), parameters[0]));
    struct launched *l = calloc(1, sizeof *l);
    l->function = function;
    l->threads = (size_t)blocks_x * threads_x;
    l->order = mock_draw(UINT32_MAX) << 32 | mock_draw(UINT32_MAX);
    l->recorded = mock_stream(stream)->graph != NULL;
    memcpy(l->args, parameters[0], function->bytes);
    if (!function->thread) {
        launch_stepped(l, mock_stream(stream));
        while (getenv("CUDA_LAUNCH_BLOCKING") && mock.running && mock_stream(stream)->pending)
            pthread_cond_wait(&mock.changed, &mock.lock);
        CUDA_END(CUDA_OK);
    }
    if ((function->thread == combine || function->thread == combine_many) &&
        !sees_inputs((const struct combine_args *)(const void *)l->args))
        mock.misused = "a kernel got memory that the device cannot access";
    struct mock_op *op = mock_push(mock_stream(stream), OP_KERNEL);
    op->fn = run;
    op->arg = l;
    op->drop = l->recorded ? free : NULL;
    CUDA_END(CUDA_OK);
}

struct mock_launches mock_launched(void)
{
    pthread_mutex_lock(&mock.lock);
    struct mock_launches launched = mock.launched;
    pthread_mutex_unlock(&mock.lock);
    return launched;
}
