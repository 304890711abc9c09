/*
 * Ranks on other hosts. comm-run starts an agent on each host by ssh: another comm-run, which starts that host's ranks. Through the agent's
 * standard input go first the variables of the ranks, so the secret is in no command line, and then orders: each byte is the number of a
 * signal. Its end tells the agent to end the ranks, so none is left when this process or the connection dies.
 */
#define _GNU_SOURCE
#include "comm_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum {
    VARIABLES_MAX = 60000, /* a pair of sockets takes so much without a reader */
    LENGTH_DIGITS = 8,
    PORT_FIRST = 20000,
    PORTS = 12000,
};

static void *sound(void *memory)
{
    if (!memory)
        run_stop(RUN_STATUS_USAGE, "out of memory");
    return memory;
}

/* ------------------------------------------------------------------------------------------------------------ hosts and their ranks */
static int32_t ranks_of(const char *text, const char *host)
{
    char *end;
    long ranks = strtol(text, &end, 10);

    if (end == text || *end || ranks < 1 || ranks > RUN_RANKS_MAX)
        run_stop(RUN_STATUS_USAGE, "host %s: \"%s\" ranks; expected a number from 1 to %d", host, text, RUN_RANKS_MAX);
    return (int32_t)ranks;
}

/* ranks 0: not said. A host that is named again at once gets more ranks, as in other launchers. */
static void add(struct settings *settings, const char *name, int32_t ranks)
{
    struct host *last = settings->host_count ? &settings->hosts[settings->host_count - 1] : NULL;

    if (!*name || *name == '-')
        run_stop(RUN_STATUS_USAGE, "host \"%s\": expected a name or an address", name);
    if (last && strcmp(last->name, name) == 0) {
        last->ranks = (last->ranks ? last->ranks : 1) + (ranks ? ranks : 1);
        return;
    }
    for (int32_t i = 0; i < settings->host_count; i++)
        if (strcmp(settings->hosts[i].name, name) == 0)
            run_stop(RUN_STATUS_USAGE, "host %s: named twice; expected all its ranks in one place, as %s:RANKS", name, name);
    settings->hosts = sound(realloc(settings->hosts, (size_t)(settings->host_count + 1) * sizeof *settings->hosts));
    settings->hosts[settings->host_count++] = (struct host){.name = sound(strdup(name)), .ranks = ranks};
}

/* HOST or HOST:RANKS; slots: the ranks, if they are not in the word. An IPv6 address with a number is in brackets, which ssh does not know.
 */
static void add_word(struct settings *settings, char *word, const char *slots)
{
    char *open = strchr(word, '['), *close = open ? strchr(open, ']') : NULL, *colon = strchr(close ? close : word, ':');

    if (!close && colon && strchr(colon + 1, ':'))
        colon = NULL; /* an IPv6 address */
    if (colon && slots)
        run_stop(RUN_STATUS_USAGE, "host %s slots=%s: expected its ranks once", word, slots);
    if (colon) {
        *colon = 0;
        slots = colon + 1;
    }
    if (!open != !close || (close && close[1]))
        run_stop(RUN_STATUS_USAGE, "host %s: expected [ADDRESS] or [ADDRESS]:RANKS", word);
    if (close) {
        *close = 0;
        memmove(open, open + 1, strlen(open));
    }
    add(settings, word, slots ? ranks_of(slots, word) : 0);
}

void run_add_hosts(struct settings *settings, const char *list)
{
    char *copy = sound(strdup(list)), *rest = copy, *word;

    while ((word = strsep(&rest, ",")))
        add_word(settings, word, NULL);
    free(copy);
}

/* Open MPI writes "slots=2" behind the name, MPICH ":2". */
static void add_line(struct settings *settings, char *line, const char *path)
{
    static const char blank[] = " \t\r\n";
    char *rest = line, *name = strtok_r(line, blank, &rest), *more = name ? strtok_r(NULL, blank, &rest) : NULL;

    if (!name)
        return;
    if (more && strncmp(more, "slots=", 6) != 0)
        run_stop(RUN_STATUS_USAGE, "--hostfile %s: \"%s\" behind host %s; expected slots=RANKS", path, more, name);
    add_word(settings, name, more ? more + 6 : NULL);
}

void run_add_hostfile(struct settings *settings, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;

    if (!file)
        run_stop(RUN_STATUS_USAGE, "--hostfile %s: %s", path, strerror(errno));
    while (getline(&line, &room, file) >= 0) {
        line[strcspn(line, "#")] = 0;
        add_line(settings, line, path);
    }
    free(line);
    fclose(file);
    if (!settings->host_count)
        run_stop(RUN_STATUS_USAGE, "--hostfile %s: it names no host", path);
}

static bool has_numbers(const struct settings *settings)
{
    for (int32_t i = 0; i < settings->host_count; i++)
        if (settings->hosts[i].ranks)
            return true;
    return false;
}

/* Hosts without a number, with -n: the same number on each; the first ones have one more if it does not divide. */
static void spread_evenly(struct settings *settings)
{
    for (int32_t i = 0; i < settings->host_count; i++)
        settings->hosts[i].ranks = settings->ranks / settings->host_count + (i < settings->ranks % settings->host_count);
}

void run_spread(struct settings *settings)
{
    int32_t wanted = settings->ranks, first = 0, used = 0;

    settings->host_names = settings->host_count;
    if (settings->agent)
        run_stop(RUN_STATUS_USAGE, "an agent starts ranks on its own host; expected no --hosts");
    if (wanted && !has_numbers(settings))
        spread_evenly(settings);
    for (int32_t i = 0; i < settings->host_count && (!wanted || first < wanted); i++) {
        struct host *host = &settings->hosts[i];
        int32_t here = host->ranks ? host->ranks : 1;
        host->ranks = wanted && here > wanted - first ? wanted - first : here;
        host->first = first;
        first += host->ranks;
        used += host->ranks > 0;
    }
    if (first < wanted || first > RUN_RANKS_MAX)
        run_stop(RUN_STATUS_USAGE, "-n %d: the hosts have %d ranks; expected at least as many, and at most %d", wanted, first,
                 RUN_RANKS_MAX);
    settings->ranks = first;
    settings->children = settings->host_count = used;
}

/* ------------------------------------------------------------------------------------------------------------ what an agent is given */
void run_choose_address(const struct settings *settings, const char *job)
{
    const char *name = settings->hosts[0].name, *at = strrchr(name, '@');
    char address[512];
    unsigned long number = strtoul((char[]){job[0], job[1], job[2], job[3], job[4], job[5], 0}, NULL, 16);

    if (getenv("COMM_ADDRESS"))
        return;
    name = at ? at + 1 : name;
    int length = snprintf(address, sizeof address, strchr(name, ':') ? "[%s]:%lu" : "%s:%lu", name, PORT_FIRST + number % PORTS);
    if (length >= (int)sizeof address)
        run_stop(RUN_STATUS_USAGE, "host %s: expected a name of fewer than 500 characters", name);
    run_set_variable("COMM_ADDRESS", address);
}

static bool is_for_ranks(const struct settings *settings, const char *entry)
{
    if (strncmp(entry, "COMM_", 5) == 0 || strncmp(entry, "COBRE_COMM_", 11) == 0) /* the second name of an option */
        return true;
    for (size_t i = 0; i < settings->exports; i++) {
        size_t length = strlen(settings->exported[i]);
        if (strncmp(entry, settings->exported[i], length) == 0 && entry[length] == '=')
            return true;
    }
    return false;
}

static size_t add_variable(char *block, size_t used, const char *entry)
{
    size_t length = strlen(entry) + 1;

    if (used + length > LENGTH_DIGITS + VARIABLES_MAX)
        run_stop(RUN_STATUS_USAGE, "the COMM_* variables and those of -x have more than %d bytes", VARIABLES_MAX);
    memcpy(block + used, entry, length);
    return used + length;
}

/* A length in decimal digits, then NAME=VALUE after NAME=VALUE, each with its 0. */
void run_send_variables(const struct settings *settings, int fd)
{
    static char block[LENGTH_DIGITS + VARIABLES_MAX + 1];
    char digits[LENGTH_DIGITS + 1];
    size_t used = LENGTH_DIGITS;

    for (char **entry = environ; *entry; entry++)
        if (is_for_ranks(settings, *entry))
            used = add_variable(block, used, *entry);
    for (size_t i = 0; i < settings->exports; i++)
        if (strchr(settings->exported[i], '='))
            used = add_variable(block, used, settings->exported[i]);
    snprintf(digits, sizeof digits, "%0*zu", LENGTH_DIGITS, (used - LENGTH_DIGITS) % 100000000);
    memcpy(block, digits, LENGTH_DIGITS);
    ssize_t wrote = write(fd, block, used);
    if (wrote != (ssize_t)used)
        run_stop(RUN_STATUS_USAGE, "cannot give a host its variables: %s", wrote < 0 ? strerror(errno) : "no room for them");
    explicit_bzero(block, sizeof block);
}

static void read_all(char *at, size_t count)
{
    while (count) {
        ssize_t got = read(STDIN_FILENO, at, count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            run_stop(RUN_STATUS_USAGE, "--agent is for comm-run --hosts, which gives the variables of the ranks through standard input");
        at += got;
        count -= (size_t)got;
    }
}

void run_take_variables(void)
{
    static char block[VARIABLES_MAX + 1];
    char digits[LENGTH_DIGITS + 1] = "";

    read_all(digits, LENGTH_DIGITS);
    size_t count = strtoul(digits, NULL, 10);
    if (count > VARIABLES_MAX)
        run_stop(RUN_STATUS_USAGE, "--agent: %zu bytes of variables; expected at most %d: is that comm-run the same version?", count,
                 VARIABLES_MAX);
    read_all(block, count);
    for (char *entry = block; entry < block + count; entry += strlen(entry) + 1) {
        char *equals = strchr(entry, '=');
        if (!equals)
            continue;
        *equals = 0;
        run_set_variable(entry, equals + 1);
        *equals = '=';
    }
    explicit_bzero(block, sizeof block);
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
}

/* ------------------------------------------------------------------------------------------------------------ the command of a host */
/* A word in single quotes. Between those, csh takes a ! for an old command and fish a \ for an escape, so these stand outside. Only an end
 * of a line cannot be written for csh and other shells alike. */
static void put_word(FILE *out, const char *word)
{
    fputs(" '", out);
    for (; *word; word++)
        fprintf(out, strchr("'!\\", *word) ? "'\\%c'" : "%c", *word);
    fputc('\'', out);
}

/* The agent runs in the same folder, from the same path. */
static char *remote_command(const struct settings *settings, const struct host *host)
{
    char self[PATH_MAX] = "", folder[PATH_MAX] = "", *text = NULL;
    size_t bytes;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    FILE *out = open_memstream(&text, &bytes);

    if (length <= 0 || !getcwd(folder, sizeof folder) || !out)
        run_stop(RUN_STATUS_USAGE, "cannot find this folder, or the path of comm-run: %s", strerror(errno));
    fputs("cd", out);
    put_word(out, folder);
    fputs(" && exec", out);
    put_word(out, self);
    fprintf(out, " --agent %d/%d -n %d%s%s --", host->first, settings->ranks, host->ranks, settings->bind ? " --bind core" : "",
            settings->tags ? "" : " --quiet-tags");
    for (char **word = settings->command; *word; word++)
        put_word(out, *word);
    fclose(out);
    return sound(text);
}

char **run_host_command(const struct settings *settings, int32_t index)
{
    const struct host *host = &settings->hosts[index];
    char *copy = sound(strdup(settings->ssh)), *rest = copy, *word, **command = sound(calloc(strlen(copy) + 3, sizeof *command));
    size_t words = 0;

    while ((word = strsep(&rest, " ")))
        if (*word)
            command[words++] = word;
    command[words++] = host->name;
    command[words++] = remote_command(settings, host);
    return command;
}
