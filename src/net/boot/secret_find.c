/* Reads the job's secret. Like a private key, a file must belong to this user and be readable only by this user. The text is wiped after
 * the key is made. */
#define _GNU_SOURCE
#include "net/boot/secret_find.h"

#include "base/format.h"
#include "net/boot/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The length without the newline that editors and echo append. */
static size_t trimmed(const char *text, size_t bytes)
{
    while (bytes && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    return bytes;
}

/* A file that was made and not written, for want of room, has the right length and no secret. */
static bool is_blank(const char *text, size_t bytes)
{
    while (bytes && !text[bytes - 1])
        bytes--;
    return !bytes;
}

static enum comm_result read_file(const struct boot_config *c, const char *path, char *text, size_t *bytes)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    enum comm_result result = COMM_OK;

    if (fd < 0)
        return boot_fail(c, COMM_ERR_CONFIG, "COMM_SECRET_FILE=%s: %s", path,
                         errno == ELOOP ? "a symbolic link; expected the file itself" : strerror(errno));
    if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode))
        result = boot_fail(c, COMM_ERR_CONFIG, "COMM_SECRET_FILE=%s: expected a regular file", path);
    else if (about.st_uid != geteuid() || about.st_mode & 077)
        result = boot_fail(c, COMM_ERR_CONFIG,
                           "COMM_SECRET_FILE=%s: others own it or may read it; expected a file of this user alone: chmod 600", path);
    else if (about.st_size > SECRET_MOST)
        result = boot_fail(c, COMM_ERR_CONFIG, "COMM_SECRET_FILE=%s: longer than %d bytes", path, SECRET_MOST);
    ssize_t got = result == COMM_OK ? read(fd, text, SECRET_MOST) : 0;
    if (got < 0)
        result = boot_fail(c, COMM_ERR_CONFIG, "COMM_SECRET_FILE=%s: %s", path, strerror(errno));
    close(fd);
    *bytes = got > 0 ? trimmed(text, (size_t)got) : 0;
    if (result == COMM_OK && *bytes < SECRET_TEXT_LEAST)
        result = boot_fail(c, COMM_ERR_CONFIG,
                           "COMM_SECRET_FILE=%s: holds %zu characters; expected at least %d, as `comm-info --new-secret` prints them", path,
                           *bytes, SECRET_TEXT_LEAST);
    else if (result == COMM_OK && is_blank(text, *bytes))
        result = boot_fail(c, COMM_ERR_CONFIG, "COMM_SECRET_FILE=%s: all its bytes are 0; expected a secret", path);
    return result;
}

static enum comm_result make_key(const struct boot_config *c, const void *secret, size_t bytes, unsigned char key[CRYPTO_KEY], bool *there)
{
    const char *missing = crypto_missing();

    *there = !missing && secret_key(secret, bytes, key);
    if (*there)
        return COMM_OK;
    base_format(c->error_text, c->error_text_bytes, "a job secret is given, but %s", missing ? missing : "no memory is left to use it");
    return COMM_ERR_UNSUPPORTED;
}

enum comm_result secret_find(const struct boot_config *c, unsigned char key[CRYPTO_KEY], bool *there)
{
    const char *file = c->env->lookup(c->env, "COMM_SECRET_FILE"), *text = c->env->lookup(c->env, "COMM_SECRET");
    char read[SECRET_MOST];
    size_t bytes = 0;

    *there = false;
    if (c->secret && c->secret_implied && crypto_missing())
        return COMM_OK;
    if (c->secret && c->secret_bytes < SECRET_LEAST)
        return boot_fail(c, COMM_ERR_CONFIG, "config.secret_bytes=%zu; expected at least %d", c->secret_bytes, SECRET_LEAST);
    if (c->secret)
        return make_key(c, c->secret, c->secret_bytes, key, there);
    if (file && *file && text && *text)
        return boot_fail(c, COMM_ERR_CONFIG, "COMM_SECRET_FILE and COMM_SECRET are both set; expected one of them");
    if (text && *text && strlen(text) < SECRET_TEXT_LEAST)
        return boot_fail(c, COMM_ERR_CONFIG,
                         "COMM_SECRET has %zu characters; expected at least %d, as `comm-info --new-secret` prints them", strlen(text),
                         SECRET_TEXT_LEAST);
    if (text && *text)
        return make_key(c, text, strlen(text), key, there);
    if (!file || !*file)
        return COMM_OK;
    enum comm_result result = read_file(c, file, read, &bytes);
    if (result == COMM_OK)
        result = make_key(c, read, bytes, key, there);
    crypto_wipe(read, sizeof read);
    return result;
}

bool secret_is_set(const struct comm_env *env)
{
    const char *file = env->lookup(env, "COMM_SECRET_FILE"), *text = env->lookup(env, "COMM_SECRET");

    return (file && *file) || (text && *text);
}
