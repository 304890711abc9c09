/*
 * The part of the backend mpi that is in the library itself. It chooses an MPI and loads the module for it. Several MPIs may be installed
 * on a machine, but only one is right for a process. The order of preference is: the one that COMM_MPI_LIBRARY names, the one that the
 * process has loaded already, the one whose launcher started the process, and the first one that can be loaded. After that the engine calls
 * the functions of the module directly.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/format.h"
#include "wire/module.h"

enum { WHY_BYTES = 640, MPIS = 3 };

struct mpi_family {
    const char *module, *name, *launcher, *starter, *packages;
    const char *library[3]; /* prefixes of file names that identify a loaded library */
};
/* In the order in which they are tried. A loaded file belongs to the first family that matches its name. So the library with the standard
 * ABI comes before the libraries that it may be built on. */
static const struct mpi_family families[MPIS] = {
    {"mpi_openmpi", "Open MPI", "open-mpi", "Open MPI's mpirun", "openmpi-bin libopenmpi-dev", {"libmpi.so.40", "libopen-pal.so", NULL}},
    {"mpi_mpich", "MPICH", "hydra", "MPICH's mpiexec.hydra", "mpich libmpich-dev", {"libmpich.so", "libmpi.so.12", NULL}},
    {"mpi_abi", "an MPI with the standard ABI", "hydra", "its own launcher", "mpich libmpich-dev", {"libmpi_abi.so", NULL}},
};
static const struct mpi_family *const with_abi = &families[MPIS - 1];
static const char *const abi_names[] = {"libmpi_abi.so.1", "libmpi_abi.so"};

/* ------------------------------------------------------------------------------------------------------------ which one */
struct loaded {
    const struct mpi_family *family; /* NULL: none */
    char path[PATH_MAX];
};

/* A library with the standard ABI may have loaded another MPI library itself. The one with the standard ABI is then used. */
static int look_at_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct loaded *found = arg;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

    (void)bytes;
    for (int i = 0; slash && i < MPIS; i++) {
        bool is = false;
        for (int k = 0; families[i].library[k]; k++)
            is |= strncmp(slash + 1, families[i].library[k], strlen(families[i].library[k])) == 0;
        if (!is || (found->family && &families[i] != with_abi))
            continue;
        found->family = &families[i];
        base_copy_text(found->path, sizeof found->path, info->dlpi_name);
    }
    return found->family == with_abi;
}

static bool is_started_by(const struct mpi_family *family, const char *launcher)
{
    return base_equal(family->launcher, launcher);
}

static const struct mpi_family *family_of_launcher(const char *launcher)
{
    for (int i = 0; i < MPIS; i++)
        if (is_started_by(&families[i], launcher))
            return &families[i];
    return NULL;
}

/* The launcher and the library of one MPI are installed together: this process's parent is prefix/bin/hydra_pmi_proxy, and the library is
 * in prefix/lib. */
static bool library_beside_launcher(char path[PATH_MAX])
{
    char of_parent[64], program[PATH_MAX];

    snprintf(of_parent, sizeof of_parent, "/proc/%d/exe", (int)getppid());
    ssize_t length = readlink(of_parent, program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
    for (size_t i = 0; i < sizeof abi_names / sizeof *abi_names; i++) {
        int written = snprintf(path, PATH_MAX, "%s/lib/%s", program, abi_names[i]);
        if (written < PATH_MAX && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

/* Searches the default path of the loader. The library stays loaded, because the module uses it. */
static bool library_of_loader(char path[PATH_MAX])
{
    for (size_t i = 0; i < sizeof abi_names / sizeof *abi_names; i++) {
        base_copy_text(path, PATH_MAX, abi_names[i]);
        if (dlopen(path, RTLD_NOW | RTLD_LOCAL))
            return true;
    }
    return false;
}

static enum comm_result complain(const struct native_config *config, enum comm_result result, const char *format, ...)
{
    va_list list;

    if (!config->error_text || !config->error_text_bytes)
        return result;
    va_start(list, format);
    base_format_list(config->error_text, config->error_text_bytes, format, list);
    va_end(list);
    return result;
}

struct chosen {
    const struct mpi_family *must; /* NULL: any */
    const char *since;             /* the reason for the choice */
    char library[PATH_MAX];        /* path of the library with the standard ABI; "": the loader's default */
};

/* Finds the family that must be used. With the launcher of one MPI and the library of another, each of N ranks would be a world of its
 * own. */
static enum comm_result choose(const struct native_config *config, struct chosen *chosen)
{
    const char *named = config->env->lookup(config->env, "COMM_MPI_LIBRARY");
    const struct mpi_family *started = family_of_launcher(config->launcher);
    struct loaded here = {NULL, ""};

    *chosen = (struct chosen){NULL, "", ""};
    dl_iterate_phdr(look_at_library, &here);
    if (here.family && started && !is_started_by(here.family, config->launcher))
        return complain(config, COMM_ERR_CONFIG,
                        "%s is loaded in this process, but %s (launcher %s) started it; start it with %s, or link it with %s",
                        here.family->name, started->starter, config->launcher, here.family->starter, started->name);
    if (named && *named) {
        if (here.family && here.family != with_abi)
            return complain(config, COMM_ERR_CONFIG, "COMM_MPI_LIBRARY=%s, but %s is loaded in this process: a process has one MPI", named,
                            here.family->name);
        *chosen = (struct chosen){with_abi, "COMM_MPI_LIBRARY names its library", ""};
        base_copy_text(chosen->library, sizeof chosen->library, named);
    } else if (here.family) {
        *chosen = (struct chosen){here.family, "that MPI is loaded in this process", ""};
        base_copy_text(chosen->library, sizeof chosen->library, here.path);
    } else if (started && is_started_by(with_abi, config->launcher) && library_beside_launcher(chosen->library)) {
        chosen->must = with_abi;
        chosen->since = "its library stands beside the launcher that started this process";
    } else if (started) {
        *chosen = (struct chosen){started, "its launcher started this process", ""};
    }
    return COMM_OK;
}

/* ------------------------------------------------------------------------------------------------------------ its module */
static const struct module_interface *load_one(const struct comm_env *env, const struct mpi_family *family, char *why, size_t *at)
{
    char reason[WHY_BYTES];
    const struct module_interface *handle = module_load(env, family->module, reason, sizeof reason);

    if (!handle)
        base_append(why, WHY_BYTES, at, "%s%s", *at ? "; " : "", reason);
    return handle;
}

/* Whether the launcher serves PMI on a socket, as srun --mpi=pmi2 does. MPICH and its family speak PMI; Open MPI needs PMIx, unless it was
 * built with SLURM's library of PMI, and ends the process otherwise. */
static bool is_served_pmi(const struct comm_env *env)
{
    return env->lookup(env, "PMI_FD") && !env->lookup(env, "PMIX_RANK");
}

/* Loads any module whose MPI is installed and whose launcher may have started this process. For the standard ABI only the loader's default
 * library is tried. */
static const struct module_interface *load_any(const struct native_config *config, struct chosen *chosen, char *why, size_t *at)
{
    const struct module_interface *handle = NULL;
    bool pmi = is_served_pmi(config->env);

    for (int k = 0; !handle && k < 2 * MPIS; k++) {
        int i = k % MPIS;
        bool fits = !chosen->must || is_started_by(&families[i], chosen->must->launcher),
             last = pmi && !is_started_by(&families[i], "hydra");
        if (fits && last == (k >= MPIS) && (&families[i] != with_abi || library_of_loader(chosen->library)))
            handle = load_one(config->env, &families[i], why, at);
    }
    return handle;
}

static enum comm_result find_module(const struct native_config *config, struct chosen *chosen, const struct module_interface **handle)
{
    char why[WHY_BYTES] = "";
    size_t at = 0;
    enum comm_result r = choose(config, chosen);

    if (r != COMM_OK)
        return r;
    bool settled = chosen->library[0] != 0; /* the library is fixed */
    *handle = settled ? load_one(config->env, chosen->must, why, &at) : load_any(config, chosen, why, &at);
    if (*handle)
        return COMM_OK;
    if (chosen->must)
        return complain(
            config, COMM_ERR_UNSUPPORTED,
            "backend mpi needs the module for %s, since %s; on Debian and Ubuntu: apt-get install %s, then build commstream again (%s)",
            chosen->must->name, chosen->since, chosen->must->packages, why);
    return complain(
        config, COMM_ERR_UNSUPPORTED,
        "backend mpi needs an MPI library and the module built for it; on Debian and Ubuntu: apt-get install %s (or %s), then build "
        "commstream again (%s)",
        families[0].packages, families[1].packages, why);
}

/* Chooses and loads a module, and sets the library that the module must open. */
static enum comm_result find(const struct native_config *config, struct native_config *with, struct chosen *chosen,
                             const struct module_interface **handle)
{
    enum comm_result r = find_module(config, chosen, handle);

    *with = *config;
    with->library = chosen->library[0] ? chosen->library : NULL;
    return r;
}

static enum comm_result probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    const struct module_interface *handle = NULL;
    struct native_config with;
    struct chosen chosen;
    enum comm_result r = find(config, &with, &chosen, &handle);

    return r == COMM_OK ? handle->native->probe(&with, version) : r;
}

static enum comm_result refuse_strangers(const struct native_config *config, const struct module_interface *handle)
{
    if (config->ranks == 1 || !base_equal(config->launcher, "comm-run"))
        return COMM_OK;
    return complain(
        config, COMM_ERR_CONFIG,
        "comm-run starts ranks that %s knows nothing of: each would be a world of one; start them with its own launcher (mpirun)",
        handle->library);
}

/* The same, where the launcher's ranks are ranks of that MPI too. */
static enum comm_result find_for_ranks(const struct native_config *config, struct native_config *with, struct chosen *chosen,
                                       const struct module_interface **handle)
{
    enum comm_result r = find(config, with, chosen, handle);

    return r == COMM_OK ? refuse_strangers(config, *handle) : r;
}

static enum comm_result before_store(const struct native_config *config)
{
    const struct module_interface *handle = NULL;
    struct native_config with;
    struct chosen chosen;
    enum comm_result r = find_for_ranks(config, &with, &chosen, &handle);

    return r == COMM_OK ? handle->native->before_store(&with) : r;
}

static enum comm_result open_native(const struct native_config *config, struct native **native)
{
    const struct module_interface *handle = NULL;
    struct native_config with;
    struct chosen chosen;
    enum comm_result r = find_for_ranks(config, &with, &chosen, &handle);

    return r == COMM_OK ? handle->native->open(&with, native) : r;
}

/* All functions after open are called through the native that open returned, which has the module's table. */
extern const struct native_class native_mpi;
const struct native_class native_mpi = {.name = "mpi", .probe = probe, .before_store = before_store, .open = open_native};

/* ------------------------------------------------------------------------------------------------------------ the wire */
/* A rank without a module fails before the others begin to connect. The guard of this wire is tcp, which opens first. It limits how long
 * ranks wait for each other, because MPI has no such limit. */
static enum comm_result open_beside(const struct wire_config *config, bool or_guard, struct wire **wire)
{
    struct native_config native = {.env = config->env,
                                   .log = config->log,
                                   .launcher = config->launcher,
                                   .rank = config->rank,
                                   .ranks = config->ranks,
                                   .error_text = config->error_text,
                                   .error_text_bytes = config->error_text_bytes};
    const struct module_interface *handle = NULL;
    const struct wire_class *tcp = config->guard_class;
    struct wire_config inner = *config;
    struct native_config with;
    struct chosen chosen;

    enum comm_result r = find_for_ranks(&native, &with, &chosen, &handle);
    if (r == COMM_OK)
        r = tcp->open(config, &inner.guard);
    if (r != COMM_OK)
        return r;
    inner.library = with.library;
    inner.or_guard = or_guard;
    r = handle->wire->open(&inner, wire);
    if (r != COMM_OK)
        inner.guard->class->close(inner.guard);
    return r;
}

static enum comm_result open_wire(const struct wire_config *config, struct wire **wire)
{
    return open_beside(config, false, wire);
}

static enum comm_result open_wire_or_tcp(const struct wire_config *config, struct wire **wire)
{
    return open_beside(config, true, wire);
}

/* All functions after open are called through the wire that open returned, which has the module's table, or is the guard. */
extern const struct wire_class wire_mpi;
const struct wire_class wire_mpi = {.name = "mpi", .open = open_wire};
/* The same, where MPI's own collectives do the rest: a world whose MPI does not allow this wire opens without it. */
extern const struct wire_class wire_mpi_or_tcp;
const struct wire_class wire_mpi_or_tcp = {.name = "mpi", .open = open_wire_or_tcp};
