/* The end of a test on the mock devices: nothing was misused, and nothing is left. */
#ifndef CLEAN_H
#define CLEAN_H

#include "conform/rig.h"
#include "mock.h"

#include <stdio.h>

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
