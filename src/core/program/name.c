/* The names of the collectives, as in options and traces. */
#include "program/program.h"

#include "base/format.h"

struct collective_row {
    uint32_t collective;
    const char *name;
};

static const struct collective_row collective_rows[] = {
#define COLLECTIVE_ROW(name, value, text) {value, text},
    COMM_COLLECTIVES(COLLECTIVE_ROW)
#undef COLLECTIVE_ROW
};

const char *collective_name(uint32_t collective)
{
    for (size_t i = 0; i < sizeof collective_rows / sizeof *collective_rows; i++) {
        if (collective_rows[i].collective == collective)
            return collective_rows[i].name;
    }
    return "?";
}

uint32_t collective_parse(const char *name)
{
    for (size_t i = 0; i < sizeof collective_rows / sizeof *collective_rows; i++) {
        if (name && base_equal(collective_rows[i].name, name))
            return collective_rows[i].collective;
    }
    return 0;
}
