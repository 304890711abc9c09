#include "fuzz/lines.h"

#include <string.h>

enum { LINES = 32, BYTES = 2048 };
static char memory[BYTES];
static const char *name[LINES], *value[LINES];
static int lines;

/* Terminates the line at `at`. Returns the next one, or NULL. */
static char *cut_line(char *at)
{
    char *end = strchr(at, '\n');

    if (end)
        *end++ = 0;
    return end;
}

static void read_line(char *at)
{
    char *equals = strchr(at, '=');

    if (!equals)
        return;
    *equals = 0;
    name[lines] = at;
    value[lines++] = equals + 1;
}

const char *fuzz_lines_read(const unsigned char *bytes, size_t count, bool title)
{
    count = count < BYTES - 1 ? count : BYTES - 1;
    memcpy(memory, bytes, count);
    memory[count] = 0;
    lines = 0;
    for (char *at = title ? cut_line(memory) : memory, *next; at && lines < LINES; at = next) {
        next = cut_line(at);
        read_line(at);
    }
    return title ? memory : "";
}

const char *fuzz_lines_value(int index)
{
    return index < lines ? value[index] : NULL;
}

const char *fuzz_lines_lookup(const struct comm_env *env, const char *wanted)
{
    (void)env;
    for (int i = 0; i < lines; i++)
        if (!strcmp(name[i], wanted))
            return value[i];
    return NULL;
}
