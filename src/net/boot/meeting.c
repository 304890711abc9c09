/* The text form of what rank 0 publishes about itself, and the table of media in which it can do so. */
#define _GNU_SOURCE
#include "net/boot/meeting.h"

#include "base/format.h"

#include <string.h>

static const char first_line[] = "commstream meeting 1\n";

size_t meeting_format(const struct meeting *m, char text[MEETING_BYTES])
{
    size_t at = 0;

    base_append(text, MEETING_BYTES, &at, "%sjob %016llx\nrun %016llx\nranks %d\nhost %s\nport %u\nkey ", first_line,
                (unsigned long long)m->job, (unsigned long long)m->run, m->ranks, m->host, m->port);
    for (size_t i = 0; i < sizeof m->key && m->keyed; i++)
        base_append(text, MEETING_BYTES, &at, "%02x", m->key[i]);
    base_append(text, MEETING_BYTES, &at, "%s\nend\n", m->keyed ? "" : "none");
    return at;
}

/* Parses "NAME value\n" at *at. value excludes the newline. */
static bool take_line(const char **at, const char *end, const char *name, char *value, size_t room)
{
    size_t length = strlen(name);
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));

    if (!newline || (size_t)(newline - *at) <= length + 1 || memcmp(*at, name, length) || (*at)[length] != ' ')
        return false;
    const char *from = *at + length + 1;
    *at = newline + 1;
    if ((size_t)(newline - from) >= room || memchr(from, 0, (size_t)(newline - from)))
        return false;
    base_format(value, room, "%.*s", (int)(newline - from), from);
    return true;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_hex(const char *text, unsigned char *bytes, size_t count)
{
    if (strlen(text) != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static uint64_t big_endian(const unsigned char bytes[8])
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

bool meeting_parse(const char *text, size_t bytes, struct meeting *m)
{
    const char *at = text, *end = text + bytes;
    char value[2 * CRYPTO_KEY + 1];
    unsigned char word[8];
    uint64_t number;

    memset(m, 0, sizeof *m);
    if (bytes < sizeof first_line - 1 || memcmp(at, first_line, sizeof first_line - 1))
        return false;
    at += sizeof first_line - 1;
    if (!take_line(&at, end, "job", value, sizeof value) || !take_hex(value, word, sizeof word))
        return false;
    m->job = big_endian(word);
    if (!take_line(&at, end, "run", value, sizeof value) || !take_hex(value, word, sizeof word))
        return false;
    m->run = big_endian(word);
    if (!take_line(&at, end, "ranks", value, sizeof value) || !base_parse_u64(value, &number) || number < 1 || number > 65535)
        return false;
    m->ranks = (int32_t)number;
    if (!take_line(&at, end, "host", m->host, sizeof m->host))
        return false;
    if (!take_line(&at, end, "port", value, sizeof value) || !base_parse_u64(value, &number) || number < 1 || number > 65535)
        return false;
    m->port = (uint32_t)number;
    if (!take_line(&at, end, "key", value, sizeof value))
        return false;
    m->keyed = !base_equal(value, "none");
    if (m->keyed && !take_hex(value, m->key, sizeof m->key))
        return false;
    crypto_wipe(value, sizeof value);
    return end - at == 4 && !memcmp(at, "end\n", 4);
}

/* ------------------------------------------------------------------------------------------------------------ media */
static const struct meeting_medium *const media[] = {&meeting_file, &meeting_pmi, &meeting_pmi2, &meeting_pmix};

const struct meeting_medium *meeting_find(const char *address, const char **place)
{
    for (size_t i = 0; i < sizeof media / sizeof *media; i++) {
        size_t prefix = strlen(media[i]->prefix);
        if (strncmp(address, media[i]->prefix, prefix) != 0 || (media[i]->of_one_job && address[prefix]))
            continue;
        *place = address + prefix;
        return media[i];
    }
    return NULL;
}
