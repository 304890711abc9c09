/*
 * An engine without threads, on a mock machine: it is the process's default environment while it is there. Its monitor looks when it is
 * told to, and who waits lets time go by. WRAP in CMakeLists.txt: threadless_wraps.
 */
#ifndef TESTS_FUZZ_THREADLESS_H
#define TESTS_FUZZ_THREADLESS_H

#include "fuzz/mock.h"

void threadless_begin(struct mock *p);
void threadless_end(void);         /* as mock_end */
void threadless_watch(int64_t ns); /* the monitor's look, so much later */

#endif
