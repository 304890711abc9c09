/* An engine without threads, on a mock machine, which is the process's default environment while it exists. The monitor looks on request,
 * and waiting lets the mock time pass. WRAP in CMakeLists.txt: threadless_wraps. */
#ifndef TESTS_FUZZ_THREADLESS_H
#define TESTS_FUZZ_THREADLESS_H

#include "fuzz/mock.h"

void threadless_begin(struct mock *p);
void threadless_end(void);         /* like mock_end */
void threadless_watch(int64_t ns); /* lets the time pass, then runs the monitor's look */

#endif
