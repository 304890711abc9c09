/* meeting: if the ranks were not given rank 0's address, rank 0 publishes its address and a secret in a medium that only the ranks of the
 * job can read: a file in a folder that all hosts see, or the store of the launcher. */
#ifndef NET_BOOT_MEETING_H
#define NET_BOOT_MEETING_H

#include "net/auth/crypto.h"
#include "wire/boot.h"

enum { MEETING_HOST = 64, MEETING_BYTES = 512, MEETING_WHY = 160 };
struct meeting {
    uint64_t job, run; /* run: random; identifies the file of this run */
    int32_t ranks, keyed;
    uint32_t port, reserved;
    char host[MEETING_HOST];
    unsigned char key[CRYPTO_KEY]; /* if keyed */
};

/* Convert to text and back. Pure. false: the text is invalid. */
size_t meeting_format(const struct meeting *m, char text[MEETING_BYTES]);
bool meeting_parse(const char *text, size_t bytes, struct meeting *m);

struct meeting_medium {
    const char *prefix; /* of COMM_ADDRESS; the rest of the address is the place in the medium */
    const char *noun;   /* for texts: "the file " PLACE */
    bool absent;        /* this library was built without it */
    bool of_one_job; /* ranks of other jobs and of earlier runs cannot read the medium. Its address is the prefix alone. The places are the
                        numbers of the job's worlds, since a key can be written only once */
    /* Called by rank 0 when it listens. If the result is not OK, why has the reason. May wait for the other ranks, until the world's
     * deadline. */
    enum comm_result (*write)(const struct boot_config *config, const char *place, const struct meeting *m, char *why, size_t why_bytes);
    /* Called by the other ranks until it is OK. TIMEOUT: nothing usable is there yet; why describes what is there. Any other result ends
     * the opening. */
    enum comm_result (*read)(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes);
    void (*remove)(const char *place,
                   uint64_t run); /* called by rank 0 when all ranks are there; NULL: the place disappears with the job */
};
extern const struct meeting_medium meeting_file, meeting_pmi, meeting_pmi2, meeting_pmix;
/* The medium whose prefix the address has, and the rest of the address. NULL: no medium has it. */
const struct meeting_medium *meeting_find(const char *address, const char **place);

#endif
