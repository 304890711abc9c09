/* Where the job secret comes from: a variable or a file, and which files are refused. No error shows the secret. */
#define _GNU_SOURCE
#include "net/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/boot/secret_find.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ours[] = "0123456789abcdef0123456789abcdef";

static const char *variable[4]; /* name, value, ... */
static const char *lookup(const struct comm_env *env, const char *name)
{
    (void)env;
    for (int i = 0; i < 4; i += 2)
        if (variable[i] && !strcmp(variable[i], name))
            return variable[i + 1];
    return NULL;
}

static void looks(const char *file, const char *text, const char *error, bool there)
{
    static const struct comm_env env = {.lookup = lookup};
    char said[400] = "";
    unsigned char key[CRYPTO_KEY], same[CRYPTO_KEY];
    struct boot_config config = {.env = &env, .error_text = said, .error_text_bytes = sizeof said};
    bool found = false;

    variable[0] = "COMM_SECRET_FILE", variable[1] = file, variable[2] = "COMM_SECRET", variable[3] = text;
    assert_int_equal(secret_find(&config, key, &found), error ? COMM_ERR_CONFIG : COMM_OK);
    if (error && !strstr(said, error))
        fail_msg("said \"%s\"; expected \"%s\"", said, error);
    assert_true(!strstr(said, ours) && found == there);
    if (there) {
        assert_true(secret_key(ours, strlen(ours), same));
        assert_memory_equal(key, same, sizeof key);
    }
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
    close(fd);
}

void sources(void **state)
{
    char folder[] = "/tmp/commstream-secret-XXXXXX", path[64], link[64], line[80];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/secret", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(line, sizeof line, "%s\n", ours);
    looks(NULL, NULL, NULL, false);
    looks("", "", NULL, false);
    looks(NULL, ours, NULL, true);
    looks(NULL, "too short", "COMM_SECRET has 9 characters", false);
    looks(path, NULL, "No such file", false);
    write_file(path, line, 0600);
    looks(path, NULL, NULL, true);
    looks(path, ours, "both set", false);
    write_file(path, line, 0640);
    looks(path, NULL, "chmod 600", false);
    write_file(path, "short\n", 0600);
    looks(path, NULL, "holds 5 characters", false);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, 64), 0);
    looks(path, NULL, "bytes are 0", false);
    looks(folder, NULL, "regular file", false);
    assert_int_equal(symlink(path, link), 0);
    looks(link, NULL, "symbolic link", false);
    unlink(link);
    unlink(path);
    rmdir(folder);
}
