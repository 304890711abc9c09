/* One input of the fuzzer: any bytes as the two messages of a handshake. */
#ifndef TESTS_NET_FUZZ_HANDSHAKE_H
#define TESTS_NET_FUZZ_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

/* The hello that passes here, always the same; its length. */
size_t fuzz_handshake_right(unsigned char *bytes);
/* 1: it was let in. Ends the process when something passed that is not the right hello. */
int fuzz_handshake_one(const unsigned char *bytes, size_t count);

#endif
