/* For any machine file: it is refused with a line number and a text, and nothing of it is kept. Or every parameter is within its range, and
 * printing and parsing it gives the same machine. */
#include "fuzz/fuzz.h"

#include "model/cost.h"

#include <string.h>

enum { FIGURE_MOST = 1000000000 }; /* in the file's own unit; at most three decimal places are kept */

static uint64_t figure_of(const struct cost_machine *machine, uint32_t i)
{
    uint64_t value;

    memcpy(&value, (const char *)machine + cost_figures[i].offset, sizeof value);
    return value;
}

int fuzz_machine(const unsigned char *bytes, size_t count)
{
    static char file[COST_MACHINE_BYTES_MAX];
    struct cost_machine machine, again;
    char text[200];

    memset(text, 0, sizeof text);
    memset(&machine, 0x5a, sizeof machine);
    again = machine;
    if (!cost_machine_parse((const char *)bytes, count, &machine, text, sizeof text)) {
        HOLD(memchr(text, 0, sizeof text) && !strncmp(text, "line ", 5) && strstr(text, "expected ") &&
             !memcmp(&machine, &again, sizeof again));
        return 0;
    }
    HOLD(!text[0] && machine.cpus >= 1 && machine.cpus <= 65536);
    for (uint32_t i = 0; i < cost_figure_count; i++)
        HOLD(figure_of(&machine, i) <= UINT64_C(1000) * FIGURE_MOST + 999);
    size_t length = cost_machine_print(&machine, file, sizeof file);
    HOLD(length < sizeof file && strlen(file) == length);
    HOLD(cost_machine_parse(file, length, &again, text, sizeof text) && !memcmp(&machine, &again, sizeof again));
    return 1;
}
