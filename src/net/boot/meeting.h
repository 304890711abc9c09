/*
 * meeting: where nobody said by which address rank 0 is met, rank 0 says it itself, with a secret, in a medium that all ranks of the job
 * have and nobody else reads: a file in a folder that all hosts see, or the store of the launcher that started them.
 */
#ifndef NET_BOOT_MEETING_H
#define NET_BOOT_MEETING_H

#include "net/auth/crypto.h"
#include "wire/boot.h"

enum { MEETING_HOST = 64, MEETING_BYTES = 512, MEETING_WHY = 160 };
struct meeting {
    uint64_t job, run; /* run: random, so that a file is known again */
    int32_t ranks, keyed;
    uint32_t port, reserved;
    char host[MEETING_HOST];
    unsigned char key[CRYPTO_KEY]; /* when keyed */
};

/* Its text and back. Pure; false: it is no such text. */
size_t meeting_format(const struct meeting *m, char text[MEETING_BYTES]);
bool meeting_parse(const char *text, size_t bytes, struct meeting *m);

struct meeting_medium {
    const char *prefix; /* of COMM_ADDRESS; what is behind it says which place */
    const char *noun;   /* "the file " PLACE, in texts */
    bool of_one_job;    /* ranks of other jobs and of earlier runs cannot read it. Its address is the prefix alone; places are the job's
                           worlds, by their number, since nothing may be put twice */
    /* Rank 0's, once it listens. Not OK: why says the reason. May wait for the others, until the world's deadline. */
    enum comm_result (*write)(const struct boot_config *config, const char *place, const struct meeting *m, char *why, size_t why_bytes);
    /* The others', until it is OK. TIMEOUT: nothing usable is there yet, and why says what is. Another result ends the opening. */
    enum comm_result (*read)(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes);
    void (*remove)(const char *place, uint64_t run); /* rank 0's, when all are there; NULL: it goes with the job */
};
extern const struct meeting_medium meeting_file, meeting_pmi, meeting_pmi2, meeting_pmix;
/* Whose prefix the address has, and the rest of it; NULL: it is no medium's. */
const struct meeting_medium *meeting_find(const char *address, const char **place);

#endif
