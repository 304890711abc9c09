/* One input of the fuzzer: lines NAME=VALUE as the environment that a launcher left. */
#ifndef TESTS_TEAM_FUZZ_LAUNCHER_H
#define TESTS_TEAM_FUZZ_LAUNCHER_H

#include <stddef.h>
#include <stdint.h>

/* 1: a launcher was found. Ends the process when what was found cannot be. */
int fuzz_launcher_one(const unsigned char *bytes, size_t count);

#endif
