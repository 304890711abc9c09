/* One input of the fuzzer: what neighbours pass on, said by any of them in any order. */
#ifndef TESTS_NET_FUZZ_PASS_H
#define TESTS_NET_FUZZ_PASS_H

#include <stddef.h>
#include <stdint.h>

/* How many of them were new. Ends the process when something was believed, lost or passed on that must not be. */
int fuzz_pass_one(const unsigned char *bytes, size_t count);

#endif
