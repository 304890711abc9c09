/*
 * The entry points, types and constants of the NVIDIA driver and of NCCL that this room uses. They are declared here, so the module builds
 * on machines without the real headers and does not link to either library. Where the real headers are installed, tests/cuda/headers.c
 * compares every declaration with them.
 *
 * The enumerations of the real headers are unsigned here, because compilers represent them so. Handles keep their struct tags.
 */
#ifndef CUDA_CALLS_H
#define CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphEdgeData_st;
struct CUuserObject_st;
struct CUmod_st;
struct CUfunc_st;
struct ncclComm;
struct ncclWindow_vidmem;

typedef unsigned long long cuda_address; /* CUdeviceptr */

enum cuda_result {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_STUB_LIBRARY = 34,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_INVALID_HANDLE = 400,
    CUDA_NOT_READY = 600,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_UNKNOWN = 999,
};
enum { CUDA_STREAM_NON_BLOCKING = 1, CUDA_EVENT_DISABLE_TIMING = 2, CUDA_WAIT_GEQ = 0, CUDA_CAPTURE_NONE = 0, CUDA_CAPTURE_RELAXED = 2 };
enum { CUDA_CAPTURE_ACTIVE = 1, CUDA_OBJECT_NO_SYNC = 1, CUDA_GRAPH_MOVES_OBJECT = 1 };
enum { CUDA_HOST_PORTABLE = 1, CUDA_HOST_MAPPED = 2, CUDA_REGISTER_PORTABLE = 1, CUDA_REGISTER_MAPPED = 2 };
enum { CUDA_POINTER_RANGE_START = 11, CUDA_POINTER_RANGE_SIZE = 12 };
enum { CUDA_POINTER_MEMORY_TYPE = 2, CUDA_POINTER_MANAGED = 8, CUDA_POINTER_ORDINAL = 9, CUDA_MEMORY_HOST = 1, CUDA_MEMORY_DEVICE = 2 };
/* Special stream handles: 0 and 1 are the legacy default stream of the current context, 2 is the calling thread's default stream. */
enum { CUDA_STREAM_LEGACY = 1, CUDA_STREAM_PER_THREAD = 2 };
enum { CUDA_ATTRIBUTE_HOST_POINTERS = 91 /* of registered memory are valid on the device */, CUDA_ATTRIBUTE_MEMOPS_64 = 122 };

/* Memory of a device that other devices map too. The layouts are NVIDIA's. */
enum { CUDA_ATTRIBUTE_MAPPINGS = 102 /* of memory */, CUDA_ATTRIBUTE_DESCRIPTORS = 103 /* memory can be exported as a file descriptor */ };
enum { CUDA_MEMORY_PINNED = 1, CUDA_AT_DEVICE = 1, CUDA_AS_DESCRIPTOR = 1, CUDA_ACCESS_ALL = 3, CUDA_GRANULARITY_LEAST = 0 };
typedef unsigned long long cuda_memory; /* CUmemGenericAllocationHandle */
struct cuda_where {
    unsigned type;
    int id;
};
struct cuda_memory_kind {
    unsigned type, exported_as;
    struct cuda_where where;
    void *for_windows;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};
struct cuda_access {
    struct cuda_where where;
    unsigned flags;
};
/* Rows of bytes that are copied, from memory of the host or of a device to the other. */
struct cuda_rows {
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    cuda_address from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    unsigned to_type;
    void *to_host;
    cuda_address to;
    void *to_array;
    size_t to_pitch, width, height;
};
/* tests/cuda/headers.c defines these as the types of the real header. */
#ifndef CUDA_MEMORY_KIND
#    define CUDA_ROWS struct cuda_rows
#    define CUDA_MEMORY_KIND struct cuda_memory_kind
#    define CUDA_ACCESS struct cuda_access
#endif

/* X(name in the table, symbol, result type, parameters) */
#define CUDA_CALLS(X)                                                                                                                      \
    X(cuInit, "cuInit", unsigned, (unsigned flags))                                                                                        \
    X(cuDriverGetVersion, "cuDriverGetVersion", unsigned, (int *version))                                                                  \
    X(cuGetErrorName, "cuGetErrorName", unsigned, (unsigned error, const char **text))                                                     \
    X(cuDeviceGetCount, "cuDeviceGetCount", unsigned, (int *count))                                                                        \
    X(cuDeviceGet, "cuDeviceGet", unsigned, (int *device, int ordinal))                                                                    \
    X(cuDeviceGetName, "cuDeviceGetName", unsigned, (char *name, int bytes, int device))                                                   \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", unsigned, (int *value, unsigned attribute, int device))                                \
    X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", unsigned, (char *id, int bytes, int device))                                             \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", unsigned, (struct CUctx_st * *context, int device))                            \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", unsigned, (int device))                                                   \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", unsigned, (struct CUctx_st * context))                                                      \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", unsigned, (struct CUctx_st * *context))                                                       \
    X(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", unsigned, (int *least, int *greatest))                                   \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", unsigned, (unsigned *mode))                                  \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", unsigned, (struct CUstream_st * *stream, unsigned flags, int priority))    \
    X(cuStreamDestroy, "cuStreamDestroy_v2", unsigned, (struct CUstream_st * stream))                                                      \
    X(cuStreamQuery, "cuStreamQuery", unsigned, (struct CUstream_st * stream))                                                             \
    X(cuStreamGetCtx, "cuStreamGetCtx", unsigned, (struct CUstream_st * stream, struct CUctx_st * *context))                               \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", unsigned, (struct CUstream_st * stream, unsigned *status))                               \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", unsigned, (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags))          \
    X(cuStreamWriteValue64, "cuStreamWriteValue64_v2", unsigned,                                                                           \
      (struct CUstream_st * stream, cuda_address word, uint64_t value, unsigned flags))                                                    \
    X(cuStreamWaitValue64, "cuStreamWaitValue64_v2", unsigned,                                                                             \
      (struct CUstream_st * stream, cuda_address word, uint64_t value, unsigned flags))                                                    \
    X(cuEventCreate, "cuEventCreate", unsigned, (struct CUevent_st * *event, unsigned flags))                                              \
    X(cuEventRecord, "cuEventRecord", unsigned, (struct CUevent_st * event, struct CUstream_st * stream))                                  \
    X(cuEventQuery, "cuEventQuery", unsigned, (struct CUevent_st * event))                                                                 \
    X(cuEventDestroy, "cuEventDestroy_v2", unsigned, (struct CUevent_st * event))                                                          \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", unsigned,                                                                          \
      (unsigned count, unsigned *attributes, void **data, cuda_address pointer))                                                           \
    X(cuMemHostAlloc, "cuMemHostAlloc", unsigned, (void **memory, size_t bytes, unsigned flags))                                           \
    X(cuMemFreeHost, "cuMemFreeHost", unsigned, (void *memory))                                                                            \
    X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", unsigned, (cuda_address * device, void *host, unsigned flags))            \
    X(cuMemHostRegister, "cuMemHostRegister_v2", unsigned, (void *memory, size_t bytes, unsigned flags))                                   \
    X(cuMemHostUnregister, "cuMemHostUnregister", unsigned, (void *memory))                                                                \
    X(cuMemAlloc, "cuMemAlloc_v2", unsigned, (cuda_address * memory, size_t bytes))                                                        \
    X(cuMemFree, "cuMemFree_v2", unsigned, (cuda_address memory))                                                                          \
    X(cuMemsetD32Async, "cuMemsetD32Async", unsigned, (cuda_address to, unsigned value, size_t count, struct CUstream_st *stream))         \
    X(cuMemsetD8Async, "cuMemsetD8Async", unsigned, (cuda_address to, unsigned char value, size_t count, struct CUstream_st *stream))      \
    X(cuMemsetD16Async, "cuMemsetD16Async", unsigned, (cuda_address to, unsigned short value, size_t count, struct CUstream_st *stream))   \
    X(cuMemsetD2D32Async, "cuMemsetD2D32Async", unsigned,                                                                                  \
      (cuda_address to, size_t pitch, unsigned value, size_t width, size_t height, struct CUstream_st *stream))                            \
    X(cuMemcpyAsync, "cuMemcpyAsync", unsigned, (cuda_address to, cuda_address from, size_t bytes, struct CUstream_st * stream))           \
    X(cuMemcpy2DAsync, "cuMemcpy2DAsync_v2", unsigned, (const CUDA_ROWS *rows, struct CUstream_st *stream))                                \
    X(cuLaunchHostFunc, "cuLaunchHostFunc", unsigned, (struct CUstream_st * stream, void (*fn)(void *arg), void *arg))                     \
    X(cuModuleLoadData, "cuModuleLoadData", unsigned, (struct CUmod_st * *module, const void *image))                                      \
    X(cuModuleUnload, "cuModuleUnload", unsigned, (struct CUmod_st * module))                                                              \
    X(cuModuleGetFunction, "cuModuleGetFunction", unsigned, (struct CUfunc_st * *function, struct CUmod_st * module, const char *name))    \
    X(cuLaunchKernel, "cuLaunchKernel", unsigned,                                                                                          \
      (struct CUfunc_st * function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y,       \
       unsigned threads_z, unsigned shared_bytes, struct CUstream_st *stream, void **parameters, void **extra))

/* What graphs need. They are NULL with a driver for less than CUDA 12.3. */
#define CUDA_NEWER_CALLS(X)                                                                                                                \
    X(cuStreamGetCaptureInfo_v3, "cuStreamGetCaptureInfo_v3", unsigned,                                                                    \
      (struct CUstream_st * stream, unsigned *status, uint64_t *id, struct CUgraph_st **graph, struct CUgraphNode_st *const **before,      \
       const struct CUgraphEdgeData_st **edges, size_t *count))                                                                            \
    X(cuUserObjectCreate, "cuUserObjectCreate", unsigned,                                                                                  \
      (struct CUuserObject_st * *object, void *arg, void (*destroy)(void *arg), unsigned count, unsigned flags))                           \
    X(cuUserObjectRelease, "cuUserObjectRelease", unsigned, (struct CUuserObject_st * object, unsigned count))                             \
    X(cuGraphRetainUserObject, "cuGraphRetainUserObject", unsigned,                                                                        \
      (struct CUgraph_st * graph, struct CUuserObject_st * object, unsigned count, unsigned flags))

/* What memory needs that several devices map. Without any of them there is none. */
#define CUDA_SHARE_CALLS(X)                                                                                                                \
    X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", unsigned, (int *can, int device, int peer))                                          \
    X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", unsigned,                                                            \
      (size_t * bytes, const CUDA_MEMORY_KIND *kind, unsigned option))                                                                     \
    X(cuMemCreate, "cuMemCreate", unsigned, (cuda_memory * memory, size_t bytes, const CUDA_MEMORY_KIND *kind, unsigned long long flags))  \
    X(cuMemRelease, "cuMemRelease", unsigned, (cuda_memory memory))                                                                        \
    X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", unsigned,                                                              \
      (void *exported, cuda_memory memory, unsigned as, unsigned long long flags))                                                         \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", unsigned, (cuda_memory * memory, void *exported, unsigned as))     \
    X(cuMemAddressReserve, "cuMemAddressReserve", unsigned,                                                                                \
      (cuda_address * at, size_t bytes, size_t align, cuda_address wish, unsigned long long flags))                                        \
    X(cuMemAddressFree, "cuMemAddressFree", unsigned, (cuda_address at, size_t bytes))                                                     \
    X(cuMemMap, "cuMemMap", unsigned, (cuda_address at, size_t bytes, size_t offset, cuda_memory memory, unsigned long long flags))        \
    X(cuMemUnmap, "cuMemUnmap", unsigned, (cuda_address at, size_t bytes))                                                                 \
    X(cuMemSetAccess, "cuMemSetAccess", unsigned, (cuda_address at, size_t bytes, const CUDA_ACCESS *access, size_t count))

/* ------------------------------------------------------------------------------------------------------------ NCCL */
enum nccl_result {
    NCCL_OK = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};
enum { NCCL_SUM = 0, NCCL_PROD = 1, NCCL_MAX = 2, NCCL_MIN = 3, NCCL_AVG = 4 };
enum {
    NCCL_I8 = 0,
    NCCL_U8 = 1,
    NCCL_I32 = 2,
    NCCL_U32 = 3,
    NCCL_I64 = 4,
    NCCL_U64 = 5,
    NCCL_F16 = 6,
    NCCL_F32 = 7,
    NCCL_F64 = 8,
    NCCL_BF16 = 9,
    NCCL_F8E4M3 = 10,
    NCCL_F8E5M2 = 11
};
enum {
    NCCL_OLDEST = 21800 /* ncclCommSplit, with a configuration for the child */,
    NCCL_WITH_MEMORY = 21900,
    NCCL_WITH_F8 = 22400,
    NCCL_WITH_WINDOWS = 22700,
    NCCL_WITH_REVOKE = 22800,
    NCCL_UNSET = INT32_MIN
};
enum { NCCL_SCALAR_OF_HOST = 1 }; /* read when the operator is made */
#define NCCL_MAGIC 0xcafebeefu
enum { NCCL_WINDOW_SYMMETRIC = 1, NCCL_WINDOW_ALIGN = 4096 };

struct nccl_id {
    char internal[128];
};
/* The first fields of ncclConfig_t, unchanged since 2.18. `size` and `version` tell NCCL how many fields the caller knows. A newer library
 * uses its defaults for the rest. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
    int end_of_2_18; /* padding in the real struct */
};

/* tests/cuda/headers.c defines these as the types of the real header. */
#ifndef NCCL_ID
#    define NCCL_ID struct nccl_id
#    define NCCL_CONFIG struct nccl_config
#endif

#define NCCL_CALLS(X)                                                                                                                      \
    X(ncclGetVersion, "ncclGetVersion", unsigned, (int *version))                                                                          \
    X(ncclGetUniqueId, "ncclGetUniqueId", unsigned, (NCCL_ID * id))                                                                        \
    X(ncclGetErrorString, "ncclGetErrorString", const char *, (unsigned result))                                                           \
    X(ncclGetLastError, "ncclGetLastError", const char *, (struct ncclComm * comm))                                                        \
    X(ncclCommInitRankConfig, "ncclCommInitRankConfig", unsigned,                                                                          \
      (struct ncclComm * *comm, int ranks, NCCL_ID id, int rank, NCCL_CONFIG *config))                                                     \
    X(ncclCommSplit, "ncclCommSplit", unsigned,                                                                                            \
      (struct ncclComm * comm, int color, int key, struct ncclComm **child, NCCL_CONFIG *config))                                          \
    X(ncclCommGetAsyncError, "ncclCommGetAsyncError", unsigned, (struct ncclComm * comm, unsigned *result))                                \
    X(ncclCommDestroy, "ncclCommDestroy", unsigned, (struct ncclComm * comm))                                                              \
    X(ncclCommAbort, "ncclCommAbort", unsigned, (struct ncclComm * comm))                                                                  \
    X(ncclAllReduce, "ncclAllReduce", unsigned,                                                                                            \
      (const void *in, void *out, size_t count, unsigned type, unsigned op, struct ncclComm *comm, struct CUstream_st *stream))            \
    X(ncclBroadcast, "ncclBroadcast", unsigned,                                                                                            \
      (const void *in, void *out, size_t count, unsigned type, int root, struct ncclComm *comm, struct CUstream_st *stream))               \
    X(ncclReduce, "ncclReduce", unsigned,                                                                                                  \
      (const void *in, void *out, size_t count, unsigned type, unsigned op, int root, struct ncclComm *comm, struct CUstream_st *stream))  \
    X(ncclAllGather, "ncclAllGather", unsigned,                                                                                            \
      (const void *in, void *out, size_t count, unsigned type, struct ncclComm *comm, struct CUstream_st *stream))                         \
    X(ncclReduceScatter, "ncclReduceScatter", unsigned,                                                                                    \
      (const void *in, void *out, size_t count, unsigned type, unsigned op, struct ncclComm *comm, struct CUstream_st *stream))            \
    X(ncclSend, "ncclSend", unsigned,                                                                                                      \
      (const void *in, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream))                          \
    X(ncclRecv, "ncclRecv", unsigned,                                                                                                      \
      (void *out, size_t count, unsigned type, int peer, struct ncclComm *comm, struct CUstream_st *stream))                               \
    X(ncclGroupStart, "ncclGroupStart", unsigned, (void))                                                                                  \
    X(ncclGroupEnd, "ncclGroupEnd", unsigned, (void))                                                                                      \
    X(ncclRedOpCreatePreMulSum, "ncclRedOpCreatePreMulSum", unsigned,                                                                      \
      (unsigned *op, void *scalar, unsigned type, unsigned residence, struct ncclComm *comm))                                              \
    X(ncclRedOpDestroy, "ncclRedOpDestroy", unsigned, (unsigned op, struct ncclComm *comm))

/* Entry points that exist since NCCL_WITH_MEMORY, NCCL_WITH_WINDOWS and NCCL_WITH_REVOKE. They are NULL with an older library. */
#define NCCL_MEMORY_CALLS(X)                                                                                                               \
    X(ncclMemAlloc, "ncclMemAlloc", unsigned, (void **memory, size_t bytes))                                                               \
    X(ncclMemFree, "ncclMemFree", unsigned, (void *memory))                                                                                \
    X(ncclCommRegister, "ncclCommRegister", unsigned, (struct ncclComm * comm, void *memory, size_t bytes, void **handle))                 \
    X(ncclCommDeregister, "ncclCommDeregister", unsigned, (struct ncclComm * comm, void *handle))
#define NCCL_WINDOW_CALLS(X) /* the window may be NULL without an error */                                                                 \
    X(ncclCommWindowRegister, "ncclCommWindowRegister", unsigned,                                                                          \
      (struct ncclComm * comm, void *memory, size_t bytes, struct ncclWindow_vidmem **window, int flags))                                  \
    X(ncclCommWindowDeregister, "ncclCommWindowDeregister", unsigned, (struct ncclComm * comm, struct ncclWindow_vidmem * window))
#define NCCL_NEWER_CALLS(X) X(ncclCommRevoke, "ncclCommRevoke", unsigned, (struct ncclComm * comm, int flags)) /* 2.28 */

/* ------------------------------------------------------------------------------------------------------------ the tables */
#define CUDA_CALLS_FIELD(name, symbol, result, parameters) result(*name) parameters;
struct cuda_calls {
    CUDA_CALLS(CUDA_CALLS_FIELD)
    CUDA_NEWER_CALLS(CUDA_CALLS_FIELD)
    CUDA_SHARE_CALLS(CUDA_CALLS_FIELD)
};
struct nccl_calls {
    NCCL_CALLS(CUDA_CALLS_FIELD)
    NCCL_MEMORY_CALLS(CUDA_CALLS_FIELD)
    NCCL_WINDOW_CALLS(CUDA_CALLS_FIELD)
    NCCL_NEWER_CALLS(CUDA_CALLS_FIELD)
};
#undef CUDA_CALLS_FIELD

#endif
