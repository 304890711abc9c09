/* One input of the fuzzer: the program's string on the first line, and lines NAME=VALUE, the environment, behind it. */
#ifndef TESTS_BASE_FUZZ_OPTION_H
#define TESTS_BASE_FUZZ_OPTION_H

#include <stddef.h>

/* 1: the options were taken. Ends the process when what was taken, or how it was refused, cannot be. */
int fuzz_option_one(const unsigned char *bytes, size_t count);

#endif
