/* A property that must hold for any input of a fuzzer. Otherwise prints it and aborts, in every build. */
#ifndef TESTS_FUZZ_HOLD_H
#define TESTS_FUZZ_HOLD_H

#include <stdio.h>
#include <stdlib.h>

#define HOLD(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))

#endif
