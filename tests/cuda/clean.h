/* The end of a test on the mock devices: nothing was misused, and nothing is left. */
#ifndef CLEAN_H
#define CLEAN_H

#include "conform/rig.h"
#include "mock.h"

#include <stdio.h>

/* A communicator of NCCL that did not end in its time is freed when a later world ends. */
static inline void clean_reap(void)
{
    for (int turn = 0; mock_live() && turn < 40; turn++) {
        struct rig one;
        rig_nap(50 * RIG_MS);
        rig_open(&one, 1, COMM_CONFIG(.backend = "nccl"));
        rig_close(&one);
    }
}

static inline void clean_end(void)
{
    mock_run(false);
    if (mock_misused())
        rig_die(__FILE__, __LINE__, "%s", mock_misused());
    if (mock_live())
        mock_list_live();
    fflush(stdout);
    EQUAL(mock_live(), 0);
}

#endif
