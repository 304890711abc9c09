/* The floating-point control word: checks it, and sets it for a kernel. On a CPU whose control word is not known here,
 * the default is assumed. */
#include "data/kernel.h"

#if DATA_X86

enum { MXCSR_DAZ = 0x0040, MXCSR_ROUNDING = 0x6000, MXCSR_FTZ = 0x8000 };

uint32_t data_float_mode(void)
{
    return _mm_getcsr() & (MXCSR_DAZ | MXCSR_ROUNDING | MXCSR_FTZ);
}

bool data_float_is_plain(void)
{
    return data_float_is_default();
}

/* The kernel is called through a pointer between the two writes, so that the compiler moves no arithmetic across them. */
void data_reduce_pinned(const struct data_reduce *reduce, data_reduce_fn *kernel)
{
    const uint32_t callers = _mm_getcsr();
    _mm_setcsr(DATA_MXCSR_DEFAULT);
    kernel(reduce);
    _mm_setcsr(callers);
}

#else

uint32_t data_float_mode(void)
{
    return 0;
}

bool data_float_is_plain(void)
{
    return true;
}

void data_reduce_pinned(const struct data_reduce *reduce, data_reduce_fn *kernel)
{
    kernel(reduce);
}

#endif
