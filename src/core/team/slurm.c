/* Reads SLURM's lists without expanding them: it counts up to the wanted host. A bracket has numbers and ranges, with the leading zeros of
 * their lower ends. Several brackets in one name mean all their combinations; the last bracket changes fastest. */
#include "team/slurm.h"

#include "base/format.h"

#include <string.h>

enum { BRACKETS_MOST = 8, DIGITS_MOST = 9 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads a number at *at; *width: its digits. */
static bool read_number(const char **at, const char *end, uint64_t *number, size_t *width)
{
    const char *from = *at;

    *number = 0;
    while (*at < end && is_digit(**at) && *at - from < DIGITS_MOST)
        *number = *number * 10 + (uint64_t)(*(*at)++ - '0');
    *width = (size_t)(*at - from);
    return *width > 0;
}

/* Reads the inside of a bracket: *count is the number of its entries, and text is the entry at index if there is one. */
static bool bracket(const char *at, const char *end, uint64_t index, uint64_t *count, char *text, size_t room)
{
    *count = 0;
    while (at < end) {
        uint64_t low, high;
        size_t width, other;
        if (!read_number(&at, end, &low, &width))
            return false;
        high = low;
        if (at < end && *at == '-') {
            at++;
            if (!read_number(&at, end, &high, &other) || high < low)
                return false;
        }
        if (index >= *count && index - *count <= high - low) {
            char digits[32];
            size_t n = base_format(digits, sizeof digits, "%llu", (unsigned long long)(low + index - *count)), used = 0;
            text[0] = 0;
            while (used + n < width && used + n + 1 < room)
                text[used++] = '0';
            base_copy_text(text + used, room - used, digits);
        }
        *count += high - low + 1;
        if (*count > SLURM_HOSTS_MOST || (at < end && *at++ != ',') || (at == end && at[-1] == ','))
            return false;
    }
    return *count > 0;
}

struct name {
    const char *begin[BRACKETS_MOST], *end[BRACKETS_MOST]; /* the inside of each bracket */
    uint64_t count[BRACKETS_MOST];
    uint32_t brackets;
    uint64_t hosts;
    const char *from, *to;
};

/* Reads one name, up to a comma outside brackets. */
static bool read_name(const char **at, struct name *n)
{
    char text[32];

    *n = (struct name){.from = *at, .hosts = 1};
    for (; **at && **at != ','; ++*at) {
        if (**at == ']' || (unsigned char)**at <= ' ')
            return false;
        if (**at != '[')
            continue;
        const char *close = ++*at;
        while (*close && *close != ']' && *close != '[')
            close++;
        if (*close != ']' || n->brackets == BRACKETS_MOST)
            return false;
        uint64_t *count = &n->count[n->brackets];
        if (!bracket(*at, close, 0, count, text, sizeof text))
            return false;
        n->hosts *= *count;
        if (n->hosts > SLURM_HOSTS_MOST)
            return false;
        n->begin[n->brackets] = *at;
        n->end[n->brackets++] = close;
        *at = close;
    }
    n->to = *at;
    return n->to > n->from;
}

static bool write_host(const struct name *n, uint64_t index, char *host, size_t room)
{
    uint64_t which[BRACKETS_MOST], count;
    size_t at = 0;
    uint32_t k = n->brackets;
    const char *from = n->from;
    char text[32];

    while (k-- > 0) {
        which[k] = index % n->count[k];
        index /= n->count[k];
    }
    host[0] = 0;
    for (k = 0; k < n->brackets; k++) {
        base_append(host, room, &at, "%.*s", (int)(n->begin[k] - 1 - from), from);
        if (!bracket(n->begin[k], n->end[k], which[k], &count, text, sizeof text))
            return false;
        base_append(host, room, &at, "%s", text);
        from = n->end[k] + 1;
    }
    base_append(host, room, &at, "%.*s", (int)(n->to - from), from);
    return at + 1 < room;
}

bool slurm_host(const char *list, uint64_t index, char *host, size_t room)
{
    struct name n;

    if (!slurm_hosts(list))
        return false;
    while (read_name(&list, &n)) {
        if (index < n.hosts)
            return write_host(&n, index, host, room);
        index -= n.hosts;
        if (!*list)
            break;
        list++;
    }
    return false;
}

uint64_t slurm_hosts(const char *list)
{
    uint64_t all = 0;
    struct name n;

    for (;; list++) {
        if (!read_name(&list, &n))
            return 0;
        all += n.hosts;
        if (all > SLURM_HOSTS_MOST)
            return 0;
        if (!*list)
            return all;
    }
}

bool slurm_tasks(const char *text, uint64_t node, uint64_t *tasks, uint64_t *all)
{
    const char *end = text + strlen(text);
    uint64_t nodes = 0;

    *all = 0;
    for (;; text++) {
        uint64_t each, times = 1;
        size_t width;
        if (!read_number(&text, end, &each, &width))
            return false;
        if (*text == '(') {
            if (text[1] != 'x')
                return false;
            text += 2;
            if (!read_number(&text, end, &times, &width) || !times || *text++ != ')')
                return false;
        }
        if (node >= nodes && node - nodes < times)
            *tasks = each;
        nodes += times;
        *all += each * times;
        if (!*text)
            return node < nodes;
        if (*text != ',')
            return false;
    }
}
