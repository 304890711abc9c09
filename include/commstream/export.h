/* How symbols leave the library, and the names of its objects. */
#ifndef COMMSTREAM_EXPORT_H
#define COMMSTREAM_EXPORT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define COMM_API __attribute__((visibility("default")))
#define COMM_MUST COMM_API __attribute__((warn_unused_result)) /* everything except close, free, destroy, abort */
#else
#define COMM_API
#define COMM_MUST
#endif

struct comm_communicator; /* a group of ranks and its work queue                          */
struct comm_event;        /* a point that timelines wait for                               */
struct comm_plan;         /* recorded operations, started many times                       */
struct comm_window;       /* memory of all ranks, addressable by all                       */
struct comm_buckets;      /* gradient buckets                                              */
struct CUstream_st;       /* cudaStream_t and CUstream are pointers to this; no CUDA header */

#endif
