/* A mock launcher: it speaks PMI's wire protocol over a socket to each rank, as a real one does (the dialects below, read from the sockets
 * of real ones), or with one wrong reply. It also starts the ranks in that launcher's environment. */
#ifndef NET_MOCK_PMI_H
#define NET_MOCK_PMI_H

#include "proc/proc.h"

#include <pthread.h>

enum { MOCK_RANKS = 4, MOCK_WORLDS = 2, MOCK_LINE = 1200 };

/* A launcher's replies of version 1, with %s for a value. Keys have at most 63 bytes and values 1,023. */
struct mock_dialect {
    const char *launcher; /* as comm_describe gives it */
    void (*set_variables)(int32_t rank);
    const char *init, *init_of_version_2; /* NULL: as that of version 1 */
    const char *space;                    /* the store's name */
    const char *named, *put, *missing, *got, *barrier, *finalized;
};
extern const struct mock_dialect mock_hydra, mock_flux;

/* The launcher's reply to this command instead of the right one. Empty: it hangs up. NULL: it sends nothing. */
struct mock_case {
    const char *command, *answer;
    enum comm_result result;
    const char *text;
};

struct mock {
    /* set by the test, before mock_run */
    const struct mock_dialect *dialect; /* NULL: hydra's */
    bool version_2;
    bool sealed;
    const char *address;           /* COMM_ADDRESS; NULL: none, or the store of version 2 */
    const char *given[MOCK_RANKS]; /* a secret set by hand; NULL: none */
    const struct mock_case *wrong; /* NULL: every reply is right */
    /* of the last run */
    int here[MOCK_RANKS], there[MOCK_RANKS];
    pthread_t thread;
    _Atomic int stop;
    int arrived, puts;
    char key[MOCK_WORLDS][64], value[MOCK_WORLDS][MOCK_LINE];
};
extern struct mock mock;

/* Runs main in each rank until all have ended. */
void mock_run(proc_main *main_of_rank);

#endif
