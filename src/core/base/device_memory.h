/*
 * Memory of a device, for rooms that know a communicator only through the public calls (base/heap.h): the gradient buckets. A device that
 * was found is held until it is dropped, also after the communicator was closed. Any thread; no call waits for the device's work but
 * base_heap_device_give, where the driver does.
 */
#ifndef BASE_DEVICE_MEMORY_H
#define BASE_DEVICE_MEMORY_H

#include <commstream/result.h>

#include <stdbool.h>
#include <stddef.h>

struct comm_communicator;
struct device;
struct CUstream_st;

/* Whether `at` is memory of a device. False also where no driver is. */
bool base_heap_is_on_device(struct comm_communicator *c, const void *at);
/* The device of c's operations. UNSUPPORTED: there is none; the log says what is missing. */
enum comm_result base_heap_device_find(struct comm_communicator *c, struct device **device);
void base_heap_device_drop(struct device *device);
/* Not zeroed; NULL: there is no such memory. */
void *base_heap_device_take(struct device *device, size_t bytes);
void base_heap_device_give(struct device *device, void *memory);
/* The stream copies, or with `from` NULL writes zeros. UNSUPPORTED: the stream is being captured, or of no open device; with bytes 0 that
 * alone is asked. */
enum comm_result base_heap_device_put(struct device *device, struct CUstream_st *stream, void *to, const void *from, size_t bytes);

#endif
