/*
 * Whether MPI may carry what goes between hosts beside MPI's own collectives. It may not below MPI_THREAD_MULTIPLE, since this library's
 * threads look at MPI too, and not where a send to a rank that died may end the process or never return. Then the guard is the wire.
 * Also, into which pieces the wire cuts long data.
 */
#define _GNU_SOURCE
#include "net/mpiwire/mpiwire.h"

#include "base/log.h"
#include "wire/boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MACHINE_BYTES = 64 };

enum fit { FITS = 0, BELOW_MULTIPLE = 1, DIES_WITH_PEERS = 2 };

struct fit_card {
    int32_t result; /* of starting MPI */
    int32_t fit;
};

/* Whether rank 0 has a peer on another host. (With the program's own exchange function a world of one host is opened like one of several.)
 */
static bool has_far_peer(const struct wire_config *config)
{
    for (int32_t i = 1; i < config->ranks; i++)
        if (wire_joins(config, 0, i))
            return true;
    return false;
}

static void warn(const struct wire_config *config, const char *line)
{
    if (config->rank == 0 && mpi_log && config->log && has_far_peer(config))
        mpi_log(config->log, LOG_WARNING, line);
}

void mpiwire_tell_of_guard(const struct wire_config *config, const char *why)
{
    char line[512];

    snprintf(line, sizeof line, "mpi: messages and this library's own algorithms go over tcp between hosts: %s", why);
    warn(config, line);
}

void mpiwire_warn_of_deaths(const struct wire_config *config)
{
    char line[512], version[NATIVE_VERSION_BYTES];

    if (!mpi_dies_with_peers())
        return;
    mpi_library_text(version, sizeof version);
    snprintf(
        line, sizeof line,
        "shm+mpi: %s may not survive a send to a rank that died, so a death may end other ranks, or not be reported; backend=mpi sends "
        "over tcp",
        version);
    warn(config, line);
}

static void tell(const struct wire_config *config, int32_t rank, int32_t fit)
{
    char why[256], version[NATIVE_VERSION_BYTES];

    mpi_library_text(version, sizeof version);
    if (fit == BELOW_MULTIPLE)
        snprintf(why, sizeof why, "on rank %d MPI was started below MPI_THREAD_MULTIPLE", rank);
    else
        snprintf(why, sizeof why, "%s may not survive a send to a rank that died (but shm+mpi uses it)", version);
    mpiwire_tell_of_guard(config, why);
}

static enum comm_result judge(const struct wire_config *config, const struct fit_card *cards, bool *fits)
{
    for (int32_t i = 0; i < config->ranks; i++)
        if (cards[i].result != COMM_OK) {
            snprintf(config->error_text, config->error_text_bytes, "rank %d could not start MPI; its own error says why", i);
            return cards[i].result < 0 ? (enum comm_result)cards[i].result : COMM_ERR_CORRUPT;
        }
    *fits = true;
    for (int32_t i = 0; i < config->ranks && *fits; i++) {
        *fits = cards[i].fit == FITS;
        if (!*fits)
            tell(config, i, cards[i].fit);
    }
    return COMM_OK;
}

enum comm_result mpiwire_fits(const struct wire_config *config, bool *fits)
{
    struct native_config native = mpiwire_native_config(config);
    struct fit_card mine = {COMM_OK, FITS}, *cards = calloc((size_t)config->ranks, sizeof *cards);
    int level = MPI_THREAD_SINGLE;

    if (!cards)
        return COMM_ERR_MEMORY;
    enum comm_result started = mpi_start_process(&native, &level), r;
    mine.result = (int32_t)started;
    if (started == COMM_OK)
        mine.fit = level < MPI_THREAD_MULTIPLE ? BELOW_MULTIPLE : mpi_dies_with_peers() ? DIES_WITH_PEERS : FITS;
    r = config->boot->class->allgather(config->boot, &mine, sizeof mine, cards);
    if (started != COMM_OK)
        r = started;
    else if (r == COMM_OK)
        r = judge(config, cards, fits);
    free(cards);
    return r;
}

enum comm_result mpiwire_choose_piece(const struct wire_config *config, uint64_t *piece)
{
    char mine[MACHINE_BYTES] = "", *all = calloc((size_t)config->ranks, sizeof mine);
    bool near = true;

    if (!all)
        return COMM_ERR_MEMORY;
    (void)gethostname(mine, sizeof mine);
    enum comm_result r = config->boot->class->allgather(config->boot, mine, sizeof mine, all);
    for (int32_t i = 0; r == COMM_OK && i < config->ranks; i++)
        near &= memcmp(all + (size_t)i * sizeof mine, mine, sizeof mine) == 0;
    *piece = near ? MPIWIRE_DATA_NEAR : MPIWIRE_DATA;
    free(all);
    return r;
}
