/*
 * mpi, seen from the library: which MPI, and its module. Several may stand side by side on a machine, and exactly one of them is right for
 * a process: the one that is in it already, else the one whose launcher started it, else the first that is there. From then on the module's
 * table is what the engine calls; this file only finds it.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "wire/module.h"

enum { WHY_BYTES = 640, MPIS = 2 };

struct mpi_family {
    const char *module, *name, *launcher, *starter, *packages;
    const char *library[3]; /* beginnings of file names, by which a loaded one is known */
};
static const struct mpi_family families[MPIS] = {
    {"mpi_openmpi", "Open MPI", "open-mpi", "Open MPI's mpirun", "openmpi-bin libopenmpi-dev", {"libmpi.so.40", "libopen-pal.so", NULL}},
    {"mpi_mpich", "MPICH", "hydra", "MPICH's mpiexec.hydra", "mpich libmpich-dev", {"libmpich.so", "libmpi.so.12", NULL}},
};

/* ------------------------------------------------------------------------------------------------------------ which one */
static int look_at_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const struct mpi_family **found = arg;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

    (void)bytes;
    for (int i = 0; slash && i < MPIS && !*found; i++)
        for (int k = 0; families[i].library[k]; k++)
            if (strncmp(slash + 1, families[i].library[k], strlen(families[i].library[k])) == 0)
                *found = &families[i];
    return *found != NULL;
}

static const struct mpi_family *family_in_process(void)
{
    const struct mpi_family *found = NULL;

    dl_iterate_phdr(look_at_library, &found);
    return found;
}

static const struct mpi_family *family_of_launcher(const char *launcher)
{
    for (int i = 0; i < MPIS; i++)
        if (base_equal(families[i].launcher, launcher))
            return &families[i];
    return NULL;
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

/* The one that must be taken, or NULL: any. A launcher of one MPI with the library of another would make N worlds of one. */
static enum comm_result choose(const struct native_config *config, const struct mpi_family **chosen)
{
    const struct mpi_family *here = family_in_process(), *started = family_of_launcher(config->launcher);

    if (here && started && here != started)
        return complain(config, COMM_ERR_CONFIG,
                        "%s is loaded in this process, but %s (launcher %s) started it; start it with %s, or link it with %s", here->name,
                        started->starter, config->launcher, here->starter, started->name);
    *chosen = here ? here : started;
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

static enum comm_result find_module(const struct native_config *config, const struct module_interface **handle)
{
    const struct mpi_family *must = NULL;
    char why[WHY_BYTES] = "";
    size_t at = 0;
    enum comm_result r = choose(config, &must);

    if (r != COMM_OK)
        return r;
    *handle = must ? load_one(config->env, must, why, &at) : NULL;
    for (int i = 0; !must && !*handle && i < MPIS; i++)
        *handle = load_one(config->env, &families[i], why, &at);
    if (*handle)
        return COMM_OK;
    if (must)
        return complain(
            config, COMM_ERR_UNSUPPORTED,
            "backend mpi needs the module for %s, since %s; on Debian and Ubuntu: apt-get install %s, then build commstream again (%s)",
            must->name, family_in_process() ? "that MPI is loaded in this process" : "its launcher started this process", must->packages,
            why);
    return complain(
        config, COMM_ERR_UNSUPPORTED,
        "backend mpi needs an MPI library and the module built for it; on Debian and Ubuntu: apt-get install %s (or %s), then build "
        "commstream again (%s)",
        families[0].packages, families[1].packages, why);
}

static enum comm_result probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    const struct module_interface *handle = NULL;
    enum comm_result r = find_module(config, &handle);

    return r == COMM_OK ? handle->native->probe(config, version) : r;
}

static enum comm_result open_native(const struct native_config *config, struct native **native)
{
    const struct module_interface *handle = NULL;
    enum comm_result r = find_module(config, &handle);

    if (r == COMM_OK && config->ranks > 1 && !family_of_launcher(config->launcher) && base_equal(config->launcher, "comm-run"))
        r = complain(
            config, COMM_ERR_CONFIG,
            "comm-run starts ranks that %s knows nothing of: each would be a world of one; start them with its own launcher (mpirun)",
            handle->library);
    return r == COMM_OK ? handle->native->open(config, native) : r;
}

/* What comes after open is called through the native that open gave, whose table is the module's. */
extern const struct native_class native_mpi;
const struct native_class native_mpi = {.name = "mpi", .probe = probe, .open = open_native};
