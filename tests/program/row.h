/* Finds a row of the table of algorithms, which must exist. */
#ifndef TESTS_PROGRAM_ROW_H
#define TESTS_PROGRAM_ROW_H

#include "select/select.h"

#include <string.h>

static inline const struct algo_row *row_named(uint32_t collective, const char *name)
{
    uint32_t i = 0;
    while (algo_table[i].collective != collective || strcmp(algo_table[i].name, name) != 0)
        i++;
    return &algo_table[i];
}

#endif
