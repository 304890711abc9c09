/* Finds environment variables that look like misspelt names of options. */
#include "base/format.h"
#include "base/option.h"

#include <string.h>

enum { NAME_BYTES = 48, LONG_NAME = 12 /* bytes; two mistakes are likely in a long name alone */ };
static const char prefix[] = "COMM_";
/* What the library reads beside the options. */
static const char *const others[] = {"COMM_ADDRESS",     "COMM_HOST", "COMM_JOB",   "COMM_LOCAL_RANK",
                                     "COMM_LOCAL_RANKS", "COMM_RANK", "COMM_RANKS", "COMM_SECRET"};
enum { OTHERS = sizeof others / sizeof *others };

static uint32_t least_of(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t least = a < b ? a : b;

    return least < c ? least : c;
}

/* How many letters must be inserted, deleted or replaced; neighbours that changed places count once. Both are shorter than NAME_BYTES.
 * (R. Lowrance, R. A. Wagner: An Extension of the String-to-String Correction Problem, 1975, without changes between the two.) */
static uint32_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    uint32_t rows[3][NAME_BYTES], *before = rows[0], *last = rows[1], *now = rows[2];

    for (uint32_t k = 0; k <= b_length; k++)
        last[k] = k;
    for (uint32_t i = 1; i <= a_length; i++) {
        now[0] = i;
        for (uint32_t k = 1; k <= b_length; k++) {
            now[k] = least_of(last[k] + 1, now[k - 1] + 1, last[k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] && before[k - 2] + 1 < now[k])
                now[k] = before[k - 2] + 1;
        }
        uint32_t *free = before;
        before = last;
        last = now;
        now = free;
    }
    return last[b_length];
}

/* Name number `index` of all that the library reads, or NULL where there is none. */
static const char *name_at(uint32_t index)
{
    if (index < OTHERS)
        return others[index];
    index -= OTHERS;
    const struct base_option *row = &base_option_table[index / 2];
    return index % 2 ? row->also : row->environment;
}

static const char *nearest(const char *name, size_t length)
{
    uint32_t least = length < LONG_NAME ? 2 : 3;
    const char *found = NULL;

    for (uint32_t i = 0; i < OTHERS + 2 * base_option_count; i++) {
        const char *known = name_at(i);
        size_t bytes = known ? strlen(known) : NAME_BYTES;
        if (bytes >= NAME_BYTES)
            continue;
        uint32_t away = distance(name, length, known, bytes);
        if (away < least) {
            least = away;
            found = known;
        }
        if (!away)
            return NULL;
    }
    return found;
}

static size_t length_of_name(const char *variable)
{
    size_t length = 0;

    while (variable[length] && variable[length] != '=')
        length++;
    return length;
}

void base_option_misspelt(const struct comm_env *env, char *text, size_t room)
{
    const char *variable;
    size_t at = 0;

    text[0] = 0;
    for (size_t i = 0; env->variable && (variable = env->variable(env, i)); i++) {
        size_t length = length_of_name(variable);
        if (strncmp(variable, prefix, sizeof prefix - 1) != 0 || length >= NAME_BYTES)
            continue;
        const char *meant = nearest(variable, length);
        if (meant)
            base_append(text, room, &at, "%s%.*s is not a variable of this library; expected %s", at ? "; " : "", (int)length, variable,
                        meant);
    }
}
