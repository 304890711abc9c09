/**
 * @file export.h
 * @brief How symbols are exported, and the names of the library's objects.
 *
 * Every object is an opaque struct that the library makes and frees; programs hold a pointer to it. All names begin with comm_ or COMM_.
 */
#ifndef COMMSTREAM_EXPORT_H
#define COMMSTREAM_EXPORT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
/** An exported function. */
#    define COMM_API __attribute__((visibility("default")))
/** An exported function whose result must not be ignored: all but close, free, unregister and abort. */
#    define COMM_MUST COMM_API __attribute__((warn_unused_result))
#else
#    define COMM_API
#    define COMM_MUST
#endif

struct comm_communicator; /**< a group of ranks and its work queue */
struct comm_event;        /**< a point that queues, streams and the host wait for */
struct comm_plan;         /**< recorded operations that can be started many times */
struct comm_window;       /**< memory of all ranks that all of them can access */
struct comm_buckets;      /**< gradient buckets */
struct CUstream_st;       /**< cudaStream_t and CUstream are pointers to this; no CUDA header is needed */

#endif
