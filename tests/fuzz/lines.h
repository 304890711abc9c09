/* An environment made of a fuzzer's input: lines NAME=VALUE. */
#ifndef TESTS_FUZZ_LINES_H
#define TESTS_FUZZ_LINES_H

#include "base/env.h"

/* Takes the place of the input before. With `title` the first line is a text of its own, which is returned; other lines without a '=' are
 * passed over, as is what stands behind 2,047 bytes or 32 lines. */
const char *fuzz_lines_read(const unsigned char *bytes, size_t count, bool title);
/* The value of line `index`; NULL behind the last. */
const char *fuzz_lines_value(int index);
/* What comm_env's lookup answers: the first line with that name. */
const char *fuzz_lines_lookup(const struct comm_env *env, const char *name);

#endif
