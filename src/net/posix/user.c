/*
 * The peer's user according to the kernel (SO_PEERCRED, unix(7)). The uid is relative to this process's user namespace. A user without a
 * number there is shown as the overflow uid, 65534, which is also nobody's. So two processes with uid 65534 may belong to different users
 * (user_namespaces(7)), unless the namespace maps all users, as the initial one does.
 */
#define _GNU_SOURCE
#include "net/posix/user.h"

#include "base/format.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OVERFLOW_USER = 65534 /* DEFAULT_OVERFLOWUID */ };

/* Reads the words of a short file, separated by single blanks. Empty: the file cannot be read, or is longer. */
static void read_words(const char *path, char words[64])
{
    char text[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
    size_t at = 0;

    if (fd >= 0)
        close(fd);
    words[0] = 0;
    if (n >= (ssize_t)sizeof text)
        return;
    for (ssize_t i = 0; i < n && at < 63; i++) {
        bool blank = text[i] == ' ' || text[i] == '\n' || text[i] == '\t';
        if (!blank || (at && words[at - 1] != ' '))
            words[at++] = blank ? ' ' : text[i];
    }
    while (at && words[at - 1] == ' ')
        at--;
    words[at] = 0;
}

static uint32_t overflow_user(void)
{
    char words[64];
    uint64_t number;

    read_words("/proc/sys/kernel/overflowuid", words);
    return base_parse_u64(words, &number) && number <= UINT32_MAX ? (uint32_t)number : OVERFLOW_USER;
}

static bool has_all_users(void)
{
    char words[64];

    read_words("/proc/self/uid_map", words);
    return base_equal(words, "0 0 4294967295");
}

bool user_is_same(uint32_t seen, uint32_t expected, uint32_t overflow, bool complete, char why[USER_WHY])
{
    why[0] = 0;
    if (seen != expected)
        base_format(why, USER_WHY, "it is uid %u's; expected uid %u", seen, expected);
    else if (seen == overflow && !complete)
        base_format(
            why, USER_WHY,
            "it is shown as uid %u, like every user without a number in this user namespace; expected a user with a number, or a secret",
            seen);
    return !why[0];
}

bool user_is_ours(int fd, char why[USER_WHY])
{
    struct ucred peer;
    socklen_t length = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0) {
        base_format(why, USER_WHY, "its user cannot be determined; expected uid %u", (unsigned)geteuid());
        return false;
    }
    uint32_t overflow = overflow_user();
    return user_is_same(peer.uid, geteuid(), overflow, peer.uid != overflow || has_all_users(), why);
}
