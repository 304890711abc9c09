/* The medium file: a file in a folder that all hosts of a job see, which only this user can read. It is written under another name in the
 * same folder and renamed, so readers see the whole file or none. */
#define _GNU_SOURCE
#include "net/boot/meeting.h"

#include "base/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_beside(const char *path, const struct meeting *m)
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

static enum comm_result file_write(const struct boot_config *config, const char *path, const struct meeting *m, char *why, size_t why_bytes)
{
    int error = write_beside(path, m);

    (void)config;
    if (error)
        base_format(why, why_bytes, "%s", strerror(error));
    return error ? COMM_ERR_CONFIG : COMM_OK;
}

static bool read_whole(const char *path, struct meeting *m, char *why, size_t why_bytes)
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

static enum comm_result file_read(const struct boot_config *config, const char *path, struct meeting *m, char *why, size_t why_bytes)
{
    (void)config;
    return read_whole(path, m, why, why_bytes) ? COMM_OK : COMM_ERR_TIMEOUT;
}

/* Removes the file only if this run wrote it. */
static void file_remove(const char *path, uint64_t run)
{
    struct meeting m;
    char why[MEETING_WHY];

    if (read_whole(path, &m, why, sizeof why) && m.run == run)
        unlink(path);
    crypto_wipe(&m, sizeof m);
}

const struct meeting_medium meeting_file = {
    .prefix = "file:", .noun = "the file ", .write = file_write, .read = file_read, .remove = file_remove};
