/*
 * selection: how many of its cases a sweep runs. docs/internals/testing.md says which run has which.
 *
 *   all     COMM_TEST_LONG=1, over what else is set: every case (./dev test long)
 *   usual   nothing set: a fixed share, which continuous integration has time for
 *   few     COMM_TEST_QUICK=1: for builds that are slow, and for what the usual share of another test shows too
 */
#ifndef TESTS_SELECTION_H
#define TESTS_SELECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline bool selection_named(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value && strcmp(value, "0") != 0;
}

static inline bool selection_all(void)
{
    return selection_named("COMM_TEST_LONG");
}

static inline bool selection_few(void)
{
    return selection_named("COMM_TEST_QUICK") && !selection_all();
}

/* One number per selection. */
static inline uint32_t selected(uint32_t all, uint32_t usual, uint32_t few)
{
    return selection_all() ? all : selection_few() ? few : usual;
}

#endif
