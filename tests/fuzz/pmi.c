/*
 * For any replies of a launcher with PMI's simple wire protocol: rank 0's entry is read whole, or there is an error with a text. After a
 * malformed reply nothing is requested any more. The sources are included here, since their state belongs to the process and each
 * input must begin with none. Its reads and writes are mocked.
 *
 * An input is what the launcher replies. Each request gets the next line of it, in reads of up to 100 bytes.
 */
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

#include "net/boot/io.h"
#include "net/boot/meeting.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char *said, *said_end;
static uint32_t questions;

static ssize_t play_read(int fd, void *to, size_t room);
static ssize_t play_send(int fd, const void *bytes, size_t count, int flags);
#define read(fd, to, room) play_read(fd, to, room)
#define send(fd, bytes, count, flags) play_send(fd, bytes, count, flags)
#define atexit(fn) ((void)(fn))
#define boot_wait_for(config, fd, events) ((void)(config), IO_OK)
#include "net/boot/pmi.c"
#include "net/boot/meeting_pmi.c"
#undef read
#undef send
#undef atexit

static ssize_t play_read(int fd, void *to, size_t room)
{
    size_t count = 0;

    (void)fd;
    while (count < room && count < 100 && said < said_end) {
        ((unsigned char *)to)[count++] = *said;
        if (*said++ == '\n')
            break;
    }
    return (ssize_t)count;
}

static ssize_t play_send(int fd, const void *bytes, size_t count, int flags)
{
    (void)fd;
    (void)flags;
    HOLD(count && ((const char *)bytes)[count - 1] == '\n' && count <= LINE && !memchr(bytes, '\n', count - 1));
    questions++;
    return (ssize_t)count;
}

static const char *lookup(const struct comm_env *env, const char *name)
{
    (void)env;
    return strcmp(name, "PMI_FD") == 0 ? "1000000" : NULL;
}
static const struct comm_env env = {.lookup = lookup};

static void check(enum comm_result result, const char *why)
{
    HOLD(result == COMM_OK || result == COMM_ERR_SYSTEM || result == COMM_ERR_AUTH);
    HOLD(result == COMM_OK || (why[0] && strlen(why) < MEETING_WHY));
    HOLD(strlen(store) < sizeof store);
}

int fuzz_pmi(const unsigned char *bytes, size_t count)
{
    const struct meeting mine = {.job = 1, .ranks = 2, .host = "h", .port = 7, .keyed = 1};
    const struct boot_config config = {.env = &env, .ranks = 2};
    struct meeting m;
    char why[MEETING_WHY] = "";

    said = bytes;
    said_end = bytes + count;
    session.fd = -1;
    session.protocol = NULL;
    session.lost = false;
    store[0] = 0;
    enum comm_result result = meeting_pmi.read(&config, "0", &m, why, sizeof why);
    check(result, why);
    HOLD(result != COMM_OK || (m.ranks >= 1 && m.port >= 1 && m.host[0] && memchr(m.host, 0, sizeof m.host)));
    bool lost = session.lost;
    questions = 0;
    check(meeting_pmi.write(&config, "1", &mine, why, sizeof why), why);
    HOLD(!lost || !questions);
    return result == COMM_OK;
}
