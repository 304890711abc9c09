/* Option `check`: parses its value and computes what identifies call sites and buffer contents. Ranks agree on the
 * option when they open a world. */
#include "common/check.h"

#include "common/world.h"

#include <string.h>

enum { PAGE_OFFSET = 0xfff };

static const struct {
    const char *name;
    uint32_t bit;
} check_names[] = {{"calls", CHECK_CALLS}, {"buffers", CHECK_BUFFERS}, {"rendezvous", CHECK_RENDEZVOUS}};

bool check_parse(const char *text, uint32_t *bits)
{
    *bits = 0;
    while (*text) {
        size_t length = 0;
        uint32_t found = 0;
        while (text[length] && text[length] != ',')
            length++;
        for (size_t i = 0; i < sizeof check_names / sizeof *check_names; i++)
            if (strlen(check_names[i].name) == length && !strncmp(check_names[i].name, text, length))
                found = check_names[i].bit;
        if (!found)
            return false;
        *bits |= found;
        text += length + (text[length] == ',');
    }
    return true;
}

/* Load addresses of a program differ between ranks, but by whole pages, so the offset in the page is equal. */
uint32_t check_site(const void *address)
{
    return (uint32_t)((uintptr_t)address & PAGE_OFFSET);
}

/* Depends on every byte and its position. */
uint64_t check_sum(const void *at, size_t bytes)
{
    const char *from = at;
    uint64_t sum = bytes, word;
    size_t i = 0;

    for (; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, from + i, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 29;
    }
    for (; i < bytes; i++)
        sum = (sum ^ (unsigned char)from[i]) * UINT64_C(0x100000001b3);
    return sum;
}
