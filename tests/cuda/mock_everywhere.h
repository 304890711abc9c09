/* A mock libcuda.so.1 for staging only; see mock_everywhere.c. This is the interface for tests that link to it. */
#ifndef MOCK_EVERYWHERE_H
#define MOCK_EVERYWHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOCK_API __attribute__((visibility("default")))

/* After the first call only memory taken here is device memory. If the CPU accesses it, the test ends. */
MOCK_API void *mock_take(size_t bytes);
MOCK_API void mock_give(void *at);
/* Returns another address of the same bytes, by which the test reads and changes them. */
MOCK_API void *mock_peek(const void *at);
MOCK_API void mock_managed(const void *at, size_t bytes); /* makes this range managed memory */
MOCK_API void mock_late(long looks);                      /* call before a device is opened; the device has no stream memory operations */
MOCK_API void mock_stand(bool on);                        /* on: streams do nothing */
MOCK_API bool mock_step(bool to_device);                  /* while they stand: runs the next copy in this direction; false: there is none */
MOCK_API bool mock_stands_at(bool to_device);             /* whether there is one */
MOCK_API void mock_fail(uint64_t n);                      /* the n-th call from now fails; 0: none */
MOCK_API uint64_t mock_calls(void);
MOCK_API uint64_t mock_objects(void); /* streams, events and registrations ever made */
MOCK_API size_t mock_pinned(void);    /* bytes that are registered */

#endif
