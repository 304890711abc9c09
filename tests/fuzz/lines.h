/* An environment made of a fuzzer's input: lines NAME=VALUE. */
#ifndef TESTS_FUZZ_LINES_H
#define TESTS_FUZZ_LINES_H

#include "base/env.h"

/* Replaces the previous input. With `title`, the first line is separate and is returned. Lines without '=' are skipped, and so is
 * everything after 2,047 bytes or 32 lines. */
const char *fuzz_lines_read(const unsigned char *bytes, size_t count, bool title);
/* The value of line `index`; NULL after the last. */
const char *fuzz_lines_value(int index);
/* comm_env's lookup: the first line with that name. */
const char *fuzz_lines_lookup(const struct comm_env *env, const char *name);

#endif
