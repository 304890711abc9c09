/* One input of the fuzzer: any bytes as a header. */
#ifndef TESTS_NET_FUZZ_FRAME_H
#define TESTS_NET_FUZZ_FRAME_H

#include <stddef.h>
#include <stdint.h>

/* 1: it was sound. Ends the process when the codec believed what it must not. */
int fuzz_frame_one(const unsigned char *bytes, size_t count);

#endif
