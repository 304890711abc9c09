/*
 * The fuzz targets. Each takes any bytes and ends the process when something does not hold; what it returns says whether the input reached
 * anything: 0 if everything in it was refused. A target is one file and one row in CMakeLists.txt here. Each is built twice: with libFuzzer
 * (libfuzzer.c; ./dev fuzz), and as a test of every build that runs the corpus (replay.c).
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "fuzz/hold.h"

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_INPUT_MOST = 4096 };

int fuzz_frame(const unsigned char *bytes, size_t count);     /* a header of a frame */
int fuzz_handshake(const unsigned char *bytes, size_t count); /* the two messages of a handshake */
int fuzz_relay(const unsigned char *bytes, size_t count);     /* what neighbours pass on, said by any of them in any order */
int fuzz_launcher(const unsigned char *bytes, size_t count);  /* lines NAME=VALUE: the environment that a launcher left */
int fuzz_option(const unsigned char *bytes, size_t count);    /* the program's string, and lines NAME=VALUE behind it */
int fuzz_machine(const unsigned char *bytes, size_t count);   /* a file with a machine's figures */
int fuzz_meeting(const unsigned char *bytes, size_t count);   /* what rank 0 says of itself, in a file or a store */
int fuzz_pmi(const unsigned char *bytes, size_t count);       /* the answers of a launcher that has a store */
int fuzz_receive(const unsigned char *bytes, size_t count);   /* what hostile peers of a tcp wire do, and the honest side meanwhile */
int fuzz_notes(const unsigned char *bytes, size_t count);     /* what a member says to an engine beside its exposures */

/* The hello that passes in fuzz_handshake, always the same; its length. */
size_t fuzz_handshake_right(unsigned char *bytes);

#endif
