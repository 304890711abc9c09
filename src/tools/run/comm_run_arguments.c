/* The command line of comm-run. */
#define _GNU_SOURCE
#include "comm_run.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ssh gives up a host that has not answered for 45 s (ServerAliveCountMax is 3). */
#define RUN_SSH "ssh -x -o BatchMode=yes -o ServerAliveInterval=15"

static const char usage[] =
    "usage: comm-run -n N [options] PROGRAM [ARGUMENTS]\n"
    "Starts N ranks of PROGRAM, on this host or by ssh on others.\n\n"
    "  -n N               number of ranks; with --hosts by default as many as the hosts have\n"
    "  --hosts LIST       HOST[:RANKS],... : starts the ranks there. Without numbers they are spread evenly, or one on each\n"
    "  --hostfile FILE    the same, a line for each host: HOST, HOST:RANKS or HOST slots=RANKS\n"
    "  --ssh COMMAND      what reaches a host; default: " RUN_SSH "\n"
    "  --backend NAME     sets COMM_BACKEND: auto, shm, tcp, ...\n"
    "  --bind core|none   core: binds each rank to a core of its own; default: none\n"
    "  --timeout SECONDS  end all ranks after this time, with status 124\n"
    "  -x NAME[=VALUE]    sets an environment variable of the ranks; with --hosts they get these and all COMM_* ones\n"
    "  --quiet-tags       prints lines of output without \"[rank] \" in front\n"
    "  --version, --help\n\n"
    "Standard input goes to rank 0, unless that runs by ssh. When a rank fails, the others have 5 seconds to end by\n"
    "themselves. The exit status is that of the first rank that failed, or 128 + the number of the signal that killed it.\n";

__attribute__((noreturn, format(printf, 2, 3))) void run_stop(int status, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fputs("comm-run: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(status);
}

static long long number_of(const char *what, const char *text, long long low, long long high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        run_stop(RUN_STATUS_USAGE, "%s %s: expected a number from %lld to %lld", what, text, low, high);
    return value;
}

static int64_t timeout_of(const char *text)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds > 0 && seconds <= 1e9))
        run_stop(RUN_STATUS_USAGE, "--timeout %s: expected seconds, above 0 and at most 1e9", text);
    return (int64_t)(seconds * 1e9);
}

void run_set_variable(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0)
        run_stop(RUN_STATUS_USAGE, "cannot set %s: %s", name, strerror(errno));
}

static void export_variable(struct settings *settings, char *text)
{
    if (*text == '=' || !*text)
        run_stop(RUN_STATUS_USAGE, "-x %s: expected NAME or NAME=VALUE", text);
    if (!strchr(text, '=') && !getenv(text))
        run_stop(RUN_STATUS_USAGE, "-x %s: not set here; use -x %s=VALUE", text, text);
    settings->exported = realloc(settings->exported, (settings->exports + 1) * sizeof *settings->exported);
    if (!settings->exported)
        run_stop(RUN_STATUS_USAGE, "out of memory for -x %s", text);
    settings->exported[settings->exports++] = text;
}

/* Here too, for ranks of this host. ssh gets only COMM_* variables: it would look for itself in the PATH of the ranks. */
static void set_exported(const struct settings *settings)
{
    for (size_t i = 0; i < settings->exports; i++) {
        char *text = settings->exported[i], *equals = strchr(text, '=');
        if (!equals || (settings->host_count && strncmp(text, "COMM_", 5) != 0))
            continue;
        *equals = 0;
        run_set_variable(text, equals + 1);
        *equals = '=';
    }
}

/* FIRST/RANKS, from another comm-run. */
static void become_agent(struct settings *settings, char *text)
{
    char *slash = strchr(text, '/');
    if (!slash)
        run_stop(RUN_STATUS_USAGE, "--agent %s: expected FIRST/RANKS; comm-run --hosts gives it", text);
    *slash = 0;
    settings->agent = true;
    settings->first = (int32_t)number_of("--agent", text, 0, RUN_RANKS_MAX - 1);
    settings->ranks = (int32_t)number_of("--agent", slash + 1, 1, RUN_RANKS_MAX);
}

static bool bind_of(const char *text)
{
    if (strcmp(text, "core") != 0 && strcmp(text, "none") != 0)
        run_stop(RUN_STATUS_USAGE, "--bind %s: expected core or none", text);
    return strcmp(text, "core") == 0;
}

__attribute__((noreturn)) static void print_and_exit(const char *text)
{
    fputs(text, stdout);
    exit(fflush(stdout) == 0 ? 0 : 1);
}

enum { OPT_BACKEND = 256, OPT_BIND, OPT_TIMEOUT, OPT_QUIET, OPT_HOSTS, OPT_HOSTFILE, OPT_SSH, OPT_AGENT, OPT_VERSION, OPT_HELP };
static const struct option options[] = {
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"bind", required_argument, NULL, OPT_BIND},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"quiet-tags", no_argument, NULL, OPT_QUIET},
    {"host", required_argument, NULL, OPT_HOSTS},
    {"hosts", required_argument, NULL, OPT_HOSTS},
    {"hostfile", required_argument, NULL, OPT_HOSTFILE},
    {"ssh", required_argument, NULL, OPT_SSH},
    {"agent", required_argument, NULL, OPT_AGENT},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static void take_option(struct settings *settings, int option)
{
    switch (option) {
    case 'n':
        settings->children = (int32_t)number_of("-n", optarg, 1, RUN_RANKS_MAX);
        break;
    case 'x':
        export_variable(settings, optarg);
        break;
    case OPT_BACKEND:
        run_set_variable("COMM_BACKEND", optarg);
        break;
    case OPT_BIND:
        settings->bind = bind_of(optarg);
        break;
    case OPT_TIMEOUT:
        settings->timeout_ns = timeout_of(optarg);
        break;
    case OPT_QUIET:
        settings->tags = false;
        break;
    case OPT_HOSTS:
        run_add_hosts(settings, optarg);
        break;
    case OPT_HOSTFILE:
        run_add_hostfile(settings, optarg);
        break;
    case OPT_SSH:
        settings->ssh = optarg;
        if (!optarg[strspn(optarg, " ")])
            run_stop(RUN_STATUS_USAGE, "--ssh: expected a command");
        break;
    case OPT_AGENT:
        become_agent(settings, optarg);
        break;
    case OPT_VERSION:
        print_and_exit("comm-run (commstream) " COMM_VERSION "\n");
    case 'h':
    case OPT_HELP:
        print_and_exit(usage);
    default:
        exit(RUN_STATUS_USAGE); /* getopt has printed the reason */
    }
}

void run_forget(const struct settings *settings)
{
    for (int32_t i = 0; i < settings->host_names; i++)
        free(settings->hosts[i].name);
    free(settings->hosts);
    free(settings->exported);
}

void run_read_arguments(struct settings *settings, int argc, char **argv)
{
    int option;

    *settings = (struct settings){.tags = true, .ssh = RUN_SSH};
    while ((option = getopt_long(argc, argv, "+hn:x:", options, NULL)) != -1)
        take_option(settings, option);
    settings->command = argv + optind;
    bool counted = settings->children || settings->host_count;
    if (!counted || !settings->command[0])
        run_stop(RUN_STATUS_USAGE, "%s\n%s", counted ? "which program?" : "how many ranks? give -n N", usage);
    if (!settings->agent)
        settings->ranks = settings->children;
    set_exported(settings);
    if (settings->host_count)
        run_spread(settings);
}
