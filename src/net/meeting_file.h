/*
 * meeting_file: a file in a folder that all hosts of a job see and nobody else reads: rank 0 writes where it listens, and a secret, and the
 * others wait for it. It is whole or not there: written beside its name and renamed.
 */
#ifndef NET_MEETING_FILE_H
#define NET_MEETING_FILE_H

#include "net/crypto.h"
#include "wire/boot.h"

enum { MEETING_HOST = 64, MEETING_BYTES = 512 };
struct meeting {
    uint64_t job, run; /* run: random, so that a file is known again */
    int32_t ranks, keyed;
    uint32_t port, reserved;
    char host[MEETING_HOST];
    unsigned char key[CRYPTO_KEY]; /* when keyed */
};

/* The file's text and back. Pure; false: it is no such text. */
size_t meeting_format(const struct meeting *m, char text[MEETING_BYTES]);
bool meeting_parse(const char *text, size_t bytes, struct meeting *m);

/* 0, or an errno. */
int meeting_write(const char *path, const struct meeting *m);
/* False: there is none that can be used, and why says what is there. */
bool meeting_read(const char *path, struct meeting *m, char *why, size_t why_bytes);
/* If it is still that run's. */
void meeting_remove(const char *path, uint64_t run);

#endif
