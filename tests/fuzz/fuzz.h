/*
 * The fuzz targets. Each takes any bytes, and aborts if a property does not hold. It returns 0 if everything in the input was refused. A
 * target is one file and one row in CMakeLists.txt. Each is built twice: with libFuzzer (libfuzzer.c; ./dev fuzz), and in every build as a
 * test that runs the corpus (replay.c).
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "fuzz/hold.h"

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_INPUT_MOST = 4096 };

int fuzz_frame(const unsigned char *bytes, size_t count);     /* a header of a frame */
int fuzz_handshake(const unsigned char *bytes, size_t count); /* the two messages of a handshake */
int fuzz_relay(const unsigned char *bytes, size_t count);     /* words that neighbours forward, from any of them in any order */
int fuzz_launcher(const unsigned char *bytes, size_t count);  /* lines NAME=VALUE: the environment that a launcher sets */
int fuzz_option(const unsigned char *bytes, size_t count);    /* the program's string, followed by lines NAME=VALUE */
int fuzz_machine(const unsigned char *bytes, size_t count);   /* a machine file */
int fuzz_meeting(const unsigned char *bytes, size_t count);   /* what rank 0 publishes about itself, in a file or a store */
int fuzz_pmi(const unsigned char *bytes, size_t count);       /* the replies of a launcher with a store */
int fuzz_receive(const unsigned char *bytes, size_t count);   /* the actions of hostile peers of a tcp wire, and of the honest side */
int fuzz_notes(const unsigned char *bytes, size_t count);     /* what a member sends to an engine in addition to its exposures */

/* The hello that passes in fuzz_handshake; always the same. Returns its length. */
size_t fuzz_handshake_right(unsigned char *bytes);

#endif
