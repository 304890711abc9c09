/* What the mock driver of mock_everywhere.c says about its device, and the calls that do nothing. */
#include "mock_everywhere_inside.h"

#include <stdio.h>

#define IDLE(field, parameters)                                                                                                            \
    unsigned mock_##field parameters                                                                                                       \
    {                                                                                                                                      \
        return CUDA_OK;                                                                                                                    \
    }

struct CUctx_st {
    int none;
};
static struct CUctx_st context;

unsigned mock_cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_OK;
}

unsigned mock_cuGetErrorName(unsigned error, const char **text)
{
    *text = "mock";
    return CUDA_OK;
}

unsigned mock_cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_OK;
}

unsigned mock_cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return CUDA_OK;
}

unsigned mock_cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "everywhere");
    return CUDA_OK;
}

unsigned mock_cuDeviceGetPCIBusId(char *id, int bytes, int device)
{
    snprintf(id, (size_t)bytes, "0000:01:00.0");
    return CUDA_OK;
}

unsigned mock_cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    *value = attribute == CUDA_ATTRIBUTE_MEMOPS_64 && !mock_is_late();
    return CUDA_OK;
}

unsigned mock_cuDevicePrimaryCtxRetain(struct CUctx_st **made, int device)
{
    *made = &context;
    return CUDA_OK;
}

unsigned mock_cuCtxPushCurrent(struct CUctx_st *pushed)
{
    BEGIN;
    return CUDA_OK;
}

unsigned mock_cuCtxPopCurrent(struct CUctx_st **popped)
{
    *popped = &context;
    return CUDA_OK;
}

unsigned mock_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return CUDA_OK;
}

unsigned mock_cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **of)
{
    *of = &context;
    return CUDA_OK;
}

unsigned mock_cuStreamIsCapturing(struct CUstream_st *stream, unsigned *status)
{
    *status = CUDA_CAPTURE_NONE;
    return CUDA_OK;
}

IDLE(cuInit, (unsigned flags))
IDLE(cuDevicePrimaryCtxRelease, (int device))
IDLE(cuThreadExchangeStreamCaptureMode, (unsigned *mode))
IDLE(cuStreamWaitEvent, (struct CUstream_st * stream, struct CUevent_st *event, unsigned flags))
IDLE(cuStreamWaitValue64, (struct CUstream_st * stream, cuda_address word, uint64_t value, unsigned flags))
IDLE(cuLaunchHostFunc, (struct CUstream_st * stream, void (*fn)(void *arg), void *arg))
IDLE(cuModuleLoadData, (struct CUmod_st * *module, const void *image))
IDLE(cuModuleUnload, (struct CUmod_st * module))
IDLE(cuModuleGetFunction, (struct CUfunc_st * *function, struct CUmod_st *module, const char *name))
IDLE(cuLaunchKernel,
     (struct CUfunc_st * function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y,
      unsigned threads_z, unsigned shared_bytes, struct CUstream_st *stream, void **parameters, void **extra))
IDLE(cuMemsetD32Async, (cuda_address to, unsigned value, size_t count, struct CUstream_st *stream))
IDLE(cuMemsetD8Async, (cuda_address to, unsigned char value, size_t count, struct CUstream_st *stream))
IDLE(cuMemsetD16Async, (cuda_address to, unsigned short value, size_t count, struct CUstream_st *stream))
IDLE(cuMemsetD2D32Async, (cuda_address to, size_t pitch, unsigned value, size_t width, size_t height, struct CUstream_st *stream))
