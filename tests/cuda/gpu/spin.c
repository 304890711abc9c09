/* The kernel is text that the driver compiles, so it needs no toolkit. The mock driver has a kernel of the same name. */
#include "spin.h"
#include "suite.h"

#include <stdatomic.h>

/* Compares the device's clock of ns with the time at its start. The argument is struct spin_args. */
static const char image[] = ".version 6.4\n"
                            ".target sm_75\n"
                            ".address_size 64\n"
                            ".visible .entry comm_spin(.param .align 8 .b8 args[16])\n"
                            "{\n"
                            "    .reg .pred %stopped, %early;\n"
                            "    .reg .u64 %stop, %ns, %start, %now, %word;\n"
                            "    ld.param.u64 %stop, [args];\n"
                            "    ld.param.u64 %ns, [args+8];\n"
                            "    mov.u64 %start, %globaltimer;\n"
                            "again:\n"
                            "    ld.volatile.u64 %word, [%stop];\n"
                            "    setp.ne.u64 %stopped, %word, 0;\n"
                            "    @%stopped bra over;\n"
                            "    mov.u64 %now, %globaltimer;\n"
                            "    sub.u64 %now, %now, %start;\n"
                            "    setp.lt.u64 %early, %now, %ns;\n"
                            "    @%early bra again;\n"
                            "over:\n"
                            "    ret;\n"
                            "}\n";

struct spin_args {
    uint64_t *stop;
    uint64_t ns;
};

void spin_open(struct spin *s, struct bench *bench)
{
    *s = (struct spin){.bench = bench, .stop = bench_pinned(bench, sizeof *s->stop)};
    *s->stop = 0;
    bench_enter(bench);
    HOLDS(bench->calls->cuModuleLoadData(&s->module, image) == CUDA_OK);
    HOLDS(bench->calls->cuModuleGetFunction(&s->kernel, s->module, "comm_spin") == CUDA_OK);
    bench_leave(bench);
}

void spin_close(struct spin *s)
{
    bench_enter(s->bench);
    HOLDS(s->bench->calls->cuModuleUnload(s->module) == CUDA_OK);
    bench_leave(s->bench);
    bench_free_pinned(s->bench, s->stop);
}

void spin_start(struct spin *s, struct CUstream_st *stream, uint64_t ns)
{
    struct spin_args args = {s->stop, ns};

    atomic_store_explicit((_Atomic uint64_t *)s->stop, 0, memory_order_release);
    bench_enter(s->bench);
    HOLDS(s->bench->calls->cuLaunchKernel(s->kernel, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&args}, NULL) == CUDA_OK);
    bench_leave(s->bench);
}

void spin_stop(struct spin *s)
{
    atomic_store_explicit((_Atomic uint64_t *)s->stop, 1, memory_order_release);
}
