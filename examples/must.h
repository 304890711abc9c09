/* What all examples do with an error: say it and end. The other ranks learn of the death by themselves. */
#ifndef EXAMPLES_MUST_H
#define EXAMPLES_MUST_H

#include <commstream/commstream.h>

#include <stdio.h>
#include <stdlib.h>

static inline void must(enum comm_result result, const char *what)
{
    if (result == COMM_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, comm_result_text(result), comm_result_name(result));
    exit(1);
}

/* For what the library has promised and this program checks. */
static inline void expect(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "not as promised: %s\n", what);
    exit(1);
}

#endif
