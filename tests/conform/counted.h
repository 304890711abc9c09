/* How often the library and its modules asked the C library for memory: the test's own calls, and those of the mock driver, do not count.
 */
#ifndef COUNTED_H
#define COUNTED_H

#include <stdbool.h>
#include <stdint.h>

bool counted_can(void); /* false: a sanitizer has an allocator of its own */
/* From now on calls are counted; returns how many were until now. */
uint64_t counted_calls(void);
void counted_tell(void); /* writes to stderr who asked last */

#endif
