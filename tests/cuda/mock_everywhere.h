/* libcuda.so.1, mock, for staging alone: see mock_everywhere.c. What a test that is linked to it may do. */
#ifndef MOCK_EVERYWHERE_H
#define MOCK_EVERYWHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOCK_API __attribute__((visibility("default")))

/* Only what is taken here is a device's from now on. The CPU that touches it ends the test. */
MOCK_API void *mock_take(size_t bytes);
MOCK_API void mock_give(void *at);
/* The same bytes for the test, which looks at them and changes them. */
MOCK_API void *mock_peek(const void *at);
MOCK_API void mock_managed(const void *at, size_t bytes); /* of the driver's own moving */
MOCK_API void mock_late(long looks);                      /* before a device is opened: no stream memory operations */
MOCK_API void mock_stand(bool on);                        /* streams do nothing until off */
MOCK_API void mock_fail(uint64_t n);                      /* call number n from now on fails; 0: none */
MOCK_API uint64_t mock_calls(void);
MOCK_API uint64_t mock_objects(void); /* streams, events, registered memory that were ever made */

#endif
