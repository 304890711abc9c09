#define _GNU_SOURCE
#include "net/meeting_file.h"

#include "base/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* "NAME value\n" at *at; the value without its newline. */
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

int meeting_write(const char *path, const struct meeting *m)
{
    char text[MEETING_BYTES], beside[4096];
    size_t bytes = meeting_format(m, text);
    int error = 0;

    if (base_format(beside, sizeof beside, "%s.%016llx", path, (unsigned long long)m->run) >= sizeof beside)
        return ENAMETOOLONG;
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    errno = 0;
    if (write(fd, text, bytes) != (ssize_t)bytes || fsync(fd) < 0)
        error = errno ? errno : ENOSPC;
    if (close(fd) < 0 && !error)
        error = errno;
    if (!error && rename(beside, path) < 0)
        error = errno;
    if (error)
        unlink(beside);
    crypto_wipe(text, sizeof text);
    return error;
}

bool meeting_read(const char *path, struct meeting *m, char *why, size_t why_bytes)
{
    char text[MEETING_BYTES + 1];
    struct stat about;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool done = false;

    if (fd < 0) {
        base_format(why, why_bytes, "%s", strerror(errno));
        return false;
    }
    if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid() || about.st_mode & 077) {
        base_format(why, why_bytes, "it is not a file of this user alone (mode 600)");
    } else {
        ssize_t got = read(fd, text, sizeof text);
        done = got > 0 && got <= MEETING_BYTES && meeting_parse(text, (size_t)got, m);
        if (!done)
            base_format(why, why_bytes, "it is of another version, or no file of a meeting");
    }
    close(fd);
    crypto_wipe(text, sizeof text);
    return done;
}

void meeting_remove(const char *path, uint64_t run)
{
    struct meeting m;
    char why[80];

    if (meeting_read(path, &m, why, sizeof why) && m.run == run)
        unlink(path);
    crypto_wipe(&m, sizeof m);
}
