/*
 * How symbols leave the library, and the names of its objects. Every object is an incomplete struct: it is made and given back by the
 * library and held by pointer. All tags, types, functions and macros begin with comm_ or COMM_; nothing else is declared. May change until
 * 0.1.
 */
#ifndef COMMSTREAM_EXPORT_H
#define COMMSTREAM_EXPORT_H

#include <stddef.h>
#include <stdint.h>

/* COMM_MUST: the result may not be ignored. Everything carries it except close, free, destroy, unregister and abort. */
#if defined(__GNUC__)
#    define COMM_API __attribute__((visibility("default")))
#    define COMM_MUST COMM_API __attribute__((warn_unused_result))
#else
#    define COMM_API
#    define COMM_MUST
#endif

struct comm_communicator; /* a group of ranks and its work queue */
struct comm_event;        /* a point that timelines wait for */
struct comm_plan;         /* recorded operations, started many times */
struct comm_window;       /* memory of all ranks, addressable by all */
struct comm_buckets;      /* gradient buckets */
struct CUstream_st;       /* cudaStream_t and CUstream are pointers to this; no CUDA header is needed */

#endif
