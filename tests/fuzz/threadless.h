/*
 * An engine without threads, on a played machine: it is the process's default environment while it is there. Its watcher looks when it is
 * told to, and who waits lets time go by. WRAP in CMakeLists.txt: threadless_wraps.
 */
#ifndef TESTS_FUZZ_THREADLESS_H
#define TESTS_FUZZ_THREADLESS_H

#include "fuzz/played.h"

void threadless_begin(struct played *p);
void threadless_end(void);         /* as played_end */
void threadless_watch(int64_t ns); /* the watcher's look, so much later */

#endif
