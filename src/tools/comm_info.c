/*
 * comm-info: describes this build, what it can use on this machine, and what it would choose. It uses only public calls.
 *
 *   comm-info                         everything below, one part after another
 *   comm-info version|backends|options|limits|algorithms
 *   comm-info explain COLLECTIVE [-n RANKS] [--bytes SIZE]      which algorithm, why, and at what predicted cost
 *   comm-info --options-markdown      the page docs/reference/options.md, from the same table
 *   comm-info --version               the library's version
 *   comm-info --new-secret            a job secret, for COMM_SECRET or the file that COMM_SECRET_FILE names
 *
 * For a backend that is not available it prints the reason. Alone it opens a world of one rank. Under a launcher it opens the launcher's
 * world, and rank 0 prints.
 */
#define _GNU_SOURCE
#include <commstream/commstream.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { TEXT_BYTES = 4096, RANKS_EXPLAINED = 8 };
static const char usage[] =
    "usage: comm-info [version] [backends] [options] [limits] [algorithms]      prints these parts; without any, all\n"
    "       comm-info explain COLLECTIVE [-n RANKS] [--bytes SIZE]      which algorithm a call of f32 uses, why, and\n"
    "                                         the predicted times of all algorithms; SIZE: 8, 64K, 1M\n"
    "       comm-info --options-markdown      prints all options as a Markdown page\n"
    "       comm-info --new-secret            prints a new secret for the ranks of a job on several hosts:\n"
    "                                         (umask 077; comm-info --new-secret > FILE), then set\n"
    "                                         COMM_SECRET_FILE=FILE on every rank\n"
    "       comm-info --version, --help\n";

static const char *or_dash(const char *text)
{
    return text && text[0] ? text : "-";
}

static int tell_version_as(const char *name)
{
    uint32_t version = comm_version();
    printf("%s %u.%u.%u\n", name, version >> 16, version >> 8 & 255, version & 255);
    return 0;
}

static int tell_version(struct comm_communicator *world)
{
    (void)world;
    return tell_version_as("commstream");
}

static int tell_backends(struct comm_communicator *world)
{
    (void)world;
    printf("\nbackends\n");
    struct comm_backend_info info = {.size = sizeof info};
    for (size_t i = 0; comm_describe_backend(i, &info) == COMM_OK; i++) {
        if (info.available)
            printf("  %-6s here   %s%s%s%s\n", info.name, info.version, info.fixed_order ? " order=fixed" : " its own order",
                   info.threads ? ", threads" : "", info.device_buffers ? ", device buffers" : "");
        else
            printf("  %-6s -      %s\n", info.name, info.missing);
        info = (struct comm_backend_info){.size = sizeof info};
    }
    return 0;
}

/* "64" gets its unit, "operations". "60s" has one already, and "auto" needs none. */
static const char *unit_of(const struct comm_option_info *info)
{
    size_t length = info->default_text ? strlen(info->default_text) : 0;
    bool bare = length > 0 && info->default_text[length - 1] >= '0' && info->default_text[length - 1] <= '9';
    return bare && info->unit ? info->unit : "";
}

static int tell_options(struct comm_communicator *world)
{
    (void)world;
    printf("\noptions: in the environment, or as key=value,... in comm_config.options\n");
    struct comm_option_info info = {.size = sizeof info};
    for (size_t i = 0; comm_describe_option(i, &info) == COMM_OK; i++) {
        printf("  %-20s %-28s %-8s %s%s%s\n    %s\n", info.key, or_dash(info.environment), or_dash(info.type), or_dash(info.default_text),
               unit_of(&info)[0] ? " " : "", unit_of(&info), or_dash(info.help));
        info = (struct comm_option_info){.size = sizeof info};
    }
    return 0;
}

/* A bar would end a cell of the table, so it is escaped. */
static void print_cell(const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            putchar('\\');
        putchar(*text);
    }
}

/* Prints text as code. Without text, prints only what goes around it. */
static void print_code(const char *text, const char *before, const char *after)
{
    if (text[0])
        printf("%s`%s`%s", before, text, after);
    else
        printf("%s%s", before, after);
}

static const char options_head[] =
    "# Options\n\n"
    "`comm-info --options-markdown` writes this page from the library's table of options; a test compares the two.\n\n"
    "Set an option in the environment, or in the program as `key=value,...` in `comm_config.options`; some have a field of\n"
    "`comm_config` too. The environment overrides the program, and the program overrides the default. If a value is wrong,\n"
    "`comm_open` returns `COMM_ERR_CONFIG` and names every wrong value. Options without a key are read from the environment\n"
    "only. A variable whose name is nearly one of the library's is named in a warning when a world opens. The environment\n"
    "does not override these:\n\n"
    "- The identity that the program gives: rank, ranks, address or exchange, id and secret. They override\n"
    "  [the variables below](#variables-that-say-who-a-rank-is).\n"
    "- A fixed order of reductions (`COMM_ORDER_FIXED`, or `order=fixed` in the options): with any other `COMM_ORDER`,\n"
    "  `comm_open` returns `COMM_ERR_CONFIG`.\n"
    "- Where callbacks run (`comm_config.notify`). It is no option.\n"
    "- What `comm_dup` is given for its communicator: order, operation timeout, algorithm.\n\n"
    "| key | environment | default | value | meaning |\n|---|---|---|---|---|\n";
static const char options_tail[] =
    "\n## Variables that say who a rank is\n\n"
    "comm-run sets those that its ranks need. Without a launcher, set them for each rank; other launchers have variables of\n"
    "their own ([several hosts](../how-to/several-hosts.md#launchers)). They are no options. If a program sets the field of\n"
    "`comm_config`, the variable is not used; if it sets `ranks`, none of the first four is.\n\n"
    "| environment | field | meaning |\n|---|---|---|\n"
    "| `COMM_RANK` | `rank`, with `ranks` | this rank, from 0 to ranks - 1 |\n"
    "| `COMM_RANKS` | `ranks` | number of ranks, from 1 to 65535 |\n"
    "| `COMM_LOCAL_RANK` |  | this rank among those of its host, by which it gets its device; default: the rank |\n"
    "| `COMM_LOCAL_RANKS` |  | number of ranks on this host; default: all; if fewer, the ranks of several hosts meet at `COMM_ADDRESS` |\n"
    "| `COMM_JOB` | with `ranks`: `id`, `address` | any text that all ranks of this job share and no other job has; needed with more than "
    "one rank |\n"
    "| `COMM_ADDRESS` | `address`, `exchange`, `id` | where ranks of several hosts meet: HOST:PORT of rank 0, with an IPv6 address in "
    "brackets; "
    "file:PATH, "
    "a file in a folder that all hosts see; or store:pmi, store:pmi2, store:pmix, the launcher's store. It overrides the launcher's "
    "address |\n"
    "| `COMM_SECRET` | `secret`, `id` | the job's secret, at least 32 characters, the same on all ranks; `COMM_SECRET_FILE`, the option, "
    "is "
    "safer, and both together are an error |\n"
    "| `COMM_HOST` |  | the name of this host, instead of the kernel's; or names with commas, of which rank r takes number r modulo their "
    "number: so one machine acts as several hosts |\n";

static int tell_options_page(void)
{
    printf("%s", options_head);
    struct comm_option_info info = {.size = sizeof info};
    for (size_t i = 0; comm_describe_option(i, &info) == COMM_OK; i++) {
        print_code(info.environment_only ? "" : info.key, "| ", " |");
        print_code(info.environment, " ", "");
        if (info.also)
            print_code(info.also, ", ", "");
        print_code(info.default_text, " | ", " | ");
        print_cell(info.values);
        printf(" | ");
        print_cell(info.help);
        printf(" |\n");
        info = (struct comm_option_info){.size = sizeof info};
    }
    printf("%s", options_tail);
    return 0;
}

static int tell_limits(struct comm_communicator *world)
{
    struct comm_info info = {.size = sizeof info};
    enum comm_result result = comm_describe(world, &info);
    if (result != COMM_OK) {
        fprintf(stderr, "comm-info: describe: %s\n", comm_result_text(result));
        return 1;
    }
    printf("\nthis world\n");
    printf("  library       %s\n  backend       %s\n  launcher      %s\n", info.library, info.backend, or_dash(info.launcher));
    if (info.slurm_job[0])
        printf("  slurm job     %s\n", info.slurm_job);
    printf("  rank          %d of %d, %d of %d on node %d of %d (%s)\n", info.rank, info.ranks, info.local_rank, info.local_ranks,
           info.node, info.nodes, info.host);
    printf("  usable cpus   %d\n", info.cpus);
    printf("  queue         %llu operations, %llu at once\n", (unsigned long long)info.queue_max, (unsigned long long)info.window);
    printf("  inline        up to %llu bytes\n", (unsigned long long)info.inline_bytes);
    printf("  memory        %llu bytes\n", (unsigned long long)info.memory_bytes);
    printf("  device        buffers %s, stream wait %s, graph capture %s\n", info.device_buffers ? "yes" : "no",
           info.stream_wait ? "yes" : "no", info.graph_capture ? "yes" : "no");
    printf("  bits          %s\n", info.fixed_order ? "the same on every wire (order=fixed)" : "in the order of the backend");
    return 0;
}

static void explain(struct comm_communicator *world, const char *collective, size_t n, int32_t ranks)
{
    char text[TEXT_BYTES] = "";
    struct comm_call call = {.size = sizeof call, .collective = collective, .n = n, .type = COMM_F32, .op = COMM_SUM, .ranks = ranks};
    enum comm_result result = comm_explain(world, &call, text, sizeof text);
    if (result == COMM_OK)
        printf("  %s\n", text);
    else
        printf("  %s of %zu f32 over %d ranks: %s\n", collective, n, ranks, comm_result_text(result));
}

static int tell_algorithms(struct comm_communicator *world)
{
    static const char *const names[] = {"barrier", "broadcast", "reduce", "allreduce", "allgather", "allgather_v", "reduce_scatter"};
    static const size_t counts[] = {2, 4096, 4u << 20};
    int32_t ranks = comm_size(world) > 1 ? comm_size(world) : RANKS_EXPLAINED;
    printf("\nwhat is chosen, and why\n");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            explain(world, names[i], counts[k], ranks);
            if (!strcmp(names[i], "barrier"))
                break;
        }
    }
    return 0;
}

static bool open_world(struct comm_communicator **world)
{
    char why[512] = "";
    enum comm_result result = comm_open(COMM_CONFIG(.error_text = why, .error_text_bytes = sizeof why), world);
    if (result != COMM_OK)
        fprintf(stderr, "comm-info: cannot open a world: %s%s%s\n", comm_result_text(result), why[0] ? ": " : "", why);
    return result == COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ explain */
enum { EXPLAIN_RANKS_MOST = 1 << 20 };
struct explained {
    const char *collective;
    unsigned long long ranks, bytes;
};

/* Digits, then K, M or G if units are allowed. */
static bool parse_amount(const char *text, bool units, unsigned long long *value)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    *value = strtoull(text, &end, 10);
    const char *unit = units && *end ? strchr("KMG", *end) : NULL;
    unsigned shift = unit ? (unsigned)(unit - "KMG" + 1) * 10 : 0;
    if (*end && (!unit || end[1]))
        return false;
    if (*value > (SIZE_MAX >> 1) >> shift)
        return false;
    *value <<= shift;
    return true;
}

static bool parse_explain(int argc, char **argv, struct explained *asked)
{
    for (int i = 2; i < argc; i++) {
        bool ranks = !strcmp(argv[i], "-n"), bytes = !strcmp(argv[i], "--bytes");
        if ((ranks || bytes) && i + 1 < argc) {
            i++;
            if (parse_amount(argv[i], bytes, ranks ? &asked->ranks : &asked->bytes) &&
                (!ranks || (asked->ranks >= 1 && asked->ranks <= EXPLAIN_RANKS_MOST)))
                continue;
            fprintf(stderr, "comm-info: %s is '%s'; expected %s\n", argv[i - 1], argv[i],
                    ranks ? "ranks, from 1 to 1048576" : "bytes, like 8, 64K or 1M");
            return false;
        }
        if (argv[i][0] == '-' || asked->collective) {
            fprintf(stderr, "comm-info: explain does not know '%s'; expected COLLECTIVE [-n RANKS] [--bytes SIZE]\n", argv[i]);
            return false;
        }
        asked->collective = argv[i];
    }
    if (!asked->collective)
        fprintf(stderr, "comm-info: explain what? expected COLLECTIVE [-n RANKS] [--bytes SIZE], like explain allreduce -n 8 --bytes 1M\n");
    return asked->collective != NULL;
}

static bool find_nccl(struct comm_backend_info *nccl)
{
    enum comm_result r = COMM_OK;

    for (size_t i = 0; r == COMM_OK; i++) {
        *nccl = (struct comm_backend_info){.size = sizeof *nccl};
        r = comm_describe_backend(i, nccl);
        if (r == COMM_OK && !strcmp(nccl->name, "nccl"))
            return true;
    }
    return false;
}

static bool is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names) != 0)
        names++;
    return *names != NULL;
}

/* How nccl does the call where buffers are on the device. Of what NCCL cannot do, comm_explain says it. */
static const char *way_of_nccl(const char *collective)
{
    static const char *const own[] = {"barrier", "broadcast", "reduce", "allreduce", "reduce_scatter", "allgather", NULL};

    return is_among(collective, own) ? "by NCCL's own call" : "by NCCL's sends and receives";
}

static void say_nothing(void *arg, int level, const char *line)
{
    (void)arg, (void)level, (void)line;
}

/* Has this machine a device with the kernels of backend cuda? A world of one rank knows. */
static bool finds_kernels(void)
{
    struct comm_communicator *world;
    const struct comm_call call = {.size = sizeof call, .collective = "allreduce", .n = 2, .type = COMM_F32, .op = COMM_SUM};
    char text[TEXT_BYTES] = "";

    /* The environment would override the program. */
    if (setenv("COMM_BACKEND", "cuda", 1) != 0 || comm_open_local(COMM_CONFIG(.log = say_nothing), 1, NULL, &world) != COMM_OK)
        return false;
    bool found = comm_explain(world, &call, text, sizeof text) == COMM_OK && strstr(text, "device buffers: cuda");
    return comm_close(world, COMM_DEFAULT_TIMEOUT) == COMM_OK && found;
}

/* Nothing chooses backend cuda by itself. */
static void tell_kernels(const char *backend, const char *collective)
{
    static const char *const served[] = {"allreduce", "reduce_scatter", "allgather", NULL};

    if (strcmp(backend, "cuda") != 0 && is_among(collective, served) && finds_kernels())
        printf("        backend=cuda would let the devices do short sums and long operations, without NCCL; it is meant for GPUs of one\n"
               "        host without peer access\n");
}

/* Which way buffers on a device go in this world. */
static void tell_devices(struct comm_communicator *world, const char *collective)
{
    struct comm_info info = {.size = sizeof info};
    struct comm_backend_info nccl;

    if (comm_describe(world, &info) != COMM_OK || !find_nccl(&nccl))
        return;
    if (info.device_order) {
        printf("    device buffers: nccl, %s (%s)\n", way_of_nccl(collective), nccl.version);
        return;
    }
    if (!strcmp(info.backend, "nccl"))
        printf("    device buffers: staged through pinned memory of the host, reduced by the host's kernels: this world does without NCCL "
               "(nccl_fallback)\n");
    else if (nccl.available)
        printf(
            "    device buffers: staged through pinned memory of the host, reduced by the host's kernels; backend=nccl would leave them on "
            "the device (%s)\n",
            nccl.version);
    else
        printf("    device buffers: staged through pinned memory of the host, where there is a driver; backend=nccl is not here: %s\n",
               nccl.missing);
    tell_kernels(info.backend, collective);
}

static int tell_explained(const struct explained *asked)
{
    struct comm_communicator *world;
    char text[TEXT_BYTES] = "";
    struct comm_error error = {.size = sizeof error};
    if (!open_world(&world))
        return 1;
    struct comm_call call = {.size = sizeof call,
                             .collective = asked->collective,
                             .n = (size_t)asked->bytes / sizeof(float),
                             .type = COMM_F32,
                             .op = COMM_SUM,
                             .ranks = (int32_t)asked->ranks};
    if (asked->bytes && !call.n) { /* fewer bytes than one element */
        call.n = (size_t)asked->bytes;
        call.type = COMM_BYTE;
    }
    enum comm_result result = comm_explain(world, &call, text, sizeof text);
    if (comm_rank(world) == 0 && text[0])
        printf("%s\n", text);
    else if (comm_rank(world) == 0)
        fprintf(stderr, "comm-info: %s\n",
                comm_error_detail(world, &error) == COMM_OK && error.text[0] ? error.text : comm_result_text(result));
    if (comm_rank(world) == 0 && result == COMM_OK && !strstr(text, "device buffers:"))
        tell_devices(world, asked->collective);
    return comm_close(world, COMM_DEFAULT_TIMEOUT) == COMM_OK && result == COMM_OK ? 0 : 1;
}

/* ------------------------------------------------------------------------------------------------------------ secrets */
enum { SECRET_BYTES = 32 };
static int make_secret(void)
{
    unsigned char secret[SECRET_BYTES];

    if (getrandom(secret, sizeof secret, 0) != (ssize_t)sizeof secret) {
        perror("comm-info: no random bytes");
        return 1;
    }
    for (size_t i = 0; i < sizeof secret; i++)
        printf("%02x", secret[i]);
    putchar('\n');
    return 0;
}

static const struct {
    const char *name;
    int (*tell)(struct comm_communicator *world);
    bool needs_world;
} parts[] = {
    {"version", tell_version, false}, {"backends", tell_backends, false},    {"options", tell_options, false},
    {"limits", tell_limits, true},    {"algorithms", tell_algorithms, true},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* A bit per part. 0: refused, with a message. */
static unsigned parse(int argc, char **argv)
{
    unsigned wanted = 0;
    for (int i = 1; i < argc; i++) {
        unsigned found = 0;
        for (unsigned k = 0; k < PARTS; k++) {
            if (!strcmp(argv[i], parts[k].name))
                found = 1u << k;
        }
        if (!found) {
            bool option = argv[i][0] == '-';
            fprintf(stderr, "comm-info: %s '%s'; expected %s\n", option ? "unknown option, or not alone:" : "no part is called", argv[i],
                    option ? "--options-markdown, --new-secret, --version or --help, and nothing else"
                           : "version, backends, options, limits or algorithms");
            return 0;
        }
        wanted |= found;
    }
    return wanted ? wanted : (1u << PARTS) - 1;
}

static int tell(int argc, char **argv)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        printf("%s", usage);
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return tell_version_as("comm-info (commstream)");
    if (argc == 2 && !strcmp(argv[1], "--options-markdown"))
        return tell_options_page();
    if (argc == 2 && !strcmp(argv[1], "--new-secret"))
        return make_secret();
    struct explained asked = {.ranks = RANKS_EXPLAINED, .bytes = 8};
    if (argc > 1 && !strcmp(argv[1], "explain"))
        return parse_explain(argc, argv, &asked) ? tell_explained(&asked) : 2;
    unsigned wanted = parse(argc, argv);
    if (!wanted)
        return 2;
    bool needs_world = false;
    for (unsigned k = 0; k < PARTS; k++)
        needs_world = needs_world || (parts[k].needs_world && (wanted & 1u << k));
    /* Parts that need no world are printed even if the world cannot be opened; that is when they are needed most. */
    struct comm_communicator *world = NULL;
    bool opened = needs_world && open_world(&world);
    int failed = needs_world && !opened;
    for (unsigned k = 0; k < PARTS; k++) {
        if ((wanted & 1u << k) && (opened ? comm_rank(world) == 0 : !parts[k].needs_world))
            failed |= parts[k].tell(world);
    }
    return comm_close(world, COMM_DEFAULT_TIMEOUT) == COMM_OK && !failed ? 0 : 1;
}

/* What could not be written was not told. */
int main(int argc, char **argv)
{
    int status = tell(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "comm-info: cannot write the output: %s\n", strerror(errno));
    return status ? status : 1;
}
