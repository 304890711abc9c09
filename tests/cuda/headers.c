/* Compares src/cuda/calls.h with NVIDIA's headers: every function type, constant and layout. The test is that this file compiles. It is
 * built only where the headers are installed. */
#include <cuda.h>
#include <nccl.h>

#define CUDA_MEMORY_KIND CUmemAllocationProp
#define CUDA_ACCESS CUmemAccessDesc
#define CUDA_ROWS CUDA_MEMCPY2D
#define NCCL_ID ncclUniqueId
#define NCCL_CONFIG ncclConfig_t
#include "cuda/calls.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* NVIDIA's header maps names to versioned symbols (cuMemAlloc to cuMemAlloc_v2). The module must load the same symbols. */
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define SAME(field, symbol, result, parameters)                                                                                            \
    static_assert(_Generic(&field, result(*) parameters : 1, default : 0), #field " has another type in NVIDIA's header");
CUDA_CALLS(SAME)
CUDA_SHARE_CALLS(SAME)
NCCL_CALLS(SAME)
#if CUDA_VERSION >= 12030
CUDA_NEWER_CALLS(SAME)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
NCCL_MEMORY_CALLS(SAME)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0) /* before, the type of a window has another name */
NCCL_WINDOW_CALLS(SAME)
static_assert(NCCL_WINDOW_SYMMETRIC == NCCL_WIN_COLL_SYMMETRIC && NCCL_WINDOW_ALIGN == NCCL_WIN_REQUIRED_ALIGNMENT, "windows");
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 9)
NCCL_NEWER_CALLS(SAME)
static_assert((uintptr_t)CUDA_STREAM_LEGACY == 1 && CUDA_STREAM_PER_THREAD == 2, "CU_STREAM_LEGACY and CU_STREAM_PER_THREAD");
#endif

#define EQUAL(ours, theirs) static_assert((int)(ours) == (int)(theirs), #ours " differs from " #theirs)
EQUAL(NCCL_SCALAR_OF_HOST, ncclScalarHostImmediate);
EQUAL(CUDA_OK, CUDA_SUCCESS);
EQUAL(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
EQUAL(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(CUDA_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
EQUAL(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
EQUAL(CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
EQUAL(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
EQUAL(CUDA_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
EQUAL(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
EQUAL(CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
EQUAL(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
EQUAL(CUDA_UNKNOWN, CUDA_ERROR_UNKNOWN);
EQUAL(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
EQUAL(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
EQUAL(CUDA_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ);
EQUAL(CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
EQUAL(CUDA_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
EQUAL(CUDA_OBJECT_NO_SYNC, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
EQUAL(CUDA_GRAPH_MOVES_OBJECT, CU_GRAPH_USER_OBJECT_MOVE);
EQUAL(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
EQUAL(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
EQUAL(CUDA_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
EQUAL(CUDA_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
EQUAL(CUDA_REGISTER_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
EQUAL(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
EQUAL(CUDA_POINTER_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
EQUAL(CUDA_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EQUAL(CUDA_MEMORY_HOST, CU_MEMORYTYPE_HOST);
EQUAL(CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
#if CUDA_VERSION >= 12000
EQUAL(CUDA_ATTRIBUTE_HOST_POINTERS, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
EQUAL(CUDA_ATTRIBUTE_MEMOPS_64, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
#endif
EQUAL(CUDA_ATTRIBUTE_MAPPINGS, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
EQUAL(CUDA_ATTRIBUTE_DESCRIPTORS, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
EQUAL(CUDA_MEMORY_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
EQUAL(CUDA_AT_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
EQUAL(CUDA_AS_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
EQUAL(CUDA_ACCESS_ALL, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
EQUAL(CUDA_GRANULARITY_LEAST, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
EQUAL(NCCL_OK, ncclSuccess);
EQUAL(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
EQUAL(NCCL_SYSTEM_ERROR, ncclSystemError);
EQUAL(NCCL_INTERNAL_ERROR, ncclInternalError);
EQUAL(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
EQUAL(NCCL_INVALID_USAGE, ncclInvalidUsage);
EQUAL(NCCL_REMOTE_ERROR, ncclRemoteError);
EQUAL(NCCL_IN_PROGRESS, ncclInProgress);
EQUAL(NCCL_SUM, ncclSum);
EQUAL(NCCL_PROD, ncclProd);
EQUAL(NCCL_MAX, ncclMax);
EQUAL(NCCL_MIN, ncclMin);
EQUAL(NCCL_AVG, ncclAvg);
EQUAL(NCCL_I8, ncclInt8);
EQUAL(NCCL_U8, ncclUint8);
EQUAL(NCCL_I32, ncclInt32);
EQUAL(NCCL_U32, ncclUint32);
EQUAL(NCCL_I64, ncclInt64);
EQUAL(NCCL_U64, ncclUint64);
EQUAL(NCCL_F16, ncclFloat16);
EQUAL(NCCL_F32, ncclFloat32);
EQUAL(NCCL_F64, ncclFloat64);
EQUAL(NCCL_BF16, ncclBfloat16);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
EQUAL(NCCL_F8E4M3, ncclFloat8e4m3);
EQUAL(NCCL_F8E5M2, ncclFloat8e5m2);
#endif
EQUAL(NCCL_UNSET, NCCL_CONFIG_UNDEF_INT);

static_assert(sizeof(struct nccl_id) == sizeof(ncclUniqueId) && _Alignof(struct nccl_id) == _Alignof(ncclUniqueId), "the id");
#define PLACE(ours, theirs)                                                                                                                \
    static_assert(offsetof(struct nccl_config, ours) == offsetof(ncclConfig_t, theirs) &&                                                  \
                      sizeof((struct nccl_config){0}.ours) == sizeof((ncclConfig_t){0}.theirs),                                            \
                  "config." #ours " lies elsewhere in NVIDIA's header")
PLACE(size, size);
PLACE(magic, magic);
PLACE(version, version);
PLACE(blocking, blocking);
PLACE(cga_cluster_size, cgaClusterSize);
PLACE(min_ctas, minCTAs);
PLACE(max_ctas, maxCTAs);
PLACE(net_name, netName);
PLACE(split_share, splitShare);

#define SHARED_PLACE(ours, theirs)                                                                                                         \
    static_assert(offsetof(struct cuda_memory_kind, ours) == offsetof(CUmemAllocationProp, theirs) &&                                      \
                      sizeof((struct cuda_memory_kind){0}.ours) == sizeof((CUmemAllocationProp){0}.theirs),                                \
                  "kind." #ours " lies elsewhere in NVIDIA's header")
SHARED_PLACE(type, type);
SHARED_PLACE(exported_as, requestedHandleTypes);
SHARED_PLACE(where, location);
SHARED_PLACE(where.id, location.id);
SHARED_PLACE(for_windows, win32HandleMetaData);
SHARED_PLACE(flags, allocFlags);
#define ROWS(ours, theirs)                                                                                                                 \
    static_assert(offsetof(struct cuda_rows, ours) == offsetof(CUDA_MEMCPY2D, theirs) &&                                                   \
                      sizeof((struct cuda_rows){0}.ours) == sizeof((CUDA_MEMCPY2D){0}.theirs),                                             \
                  #ours " differs from " #theirs)
ROWS(from_type, srcMemoryType);
ROWS(from_host, srcHost);
ROWS(from_pitch, srcPitch);
ROWS(to_type, dstMemoryType);
ROWS(to, dstDevice);
ROWS(to_pitch, dstPitch);
ROWS(width, WidthInBytes);
ROWS(height, Height);
static_assert(sizeof(struct cuda_rows) == sizeof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D");
static_assert(sizeof(struct cuda_memory_kind) == sizeof(CUmemAllocationProp) && sizeof(struct cuda_access) == sizeof(CUmemAccessDesc) &&
                  offsetof(struct cuda_access, flags) == offsetof(CUmemAccessDesc, flags),
              "memory that is shared");

#define NAMES(field, symbol, result, parameters) {TEXT(field), symbol},
static const struct {
    const char *theirs, *ours;
} names[] = {CUDA_CALLS(NAMES) CUDA_SHARE_CALLS(NAMES) NCCL_CALLS(NAMES)};

int main(void)
{
    static const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;

    if (fresh.magic != NCCL_MAGIC) {
        printf("the magic of ncclConfig_t is %x in NVIDIA's header\n", fresh.magic);
        return 1;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].theirs, names[i].ours) != 0) {
            printf("%s is loaded; NVIDIA's header calls %s\n", names[i].ours, names[i].theirs);
            return 1;
        }
    }
    printf("declarations agree with CUDA %d.%d and NCCL %d.%d.%d\n", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, NCCL_MAJOR, NCCL_MINOR,
           NCCL_PATCH);
    return 0;
}
