/* How one rank of the tests opens its world. */
#include "mpi/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mpi_rank me;

/* Describing the backends must not choose an MPI other than the launcher's. */
static void ask_backends(void)
{
    struct comm_backend_info b;
    for (size_t i = 0; b = (struct comm_backend_info){.size = sizeof b}, comm_describe_backend(i, &b) == COMM_OK; i++)
        if (strcmp(b.name, "mpi") == 0) {
            CHECK(b.available && strstr(b.version, "MPI"));
            snprintf(me.library, sizeof me.library, "%s", b.version);
        }
}

struct comm_communicator *rank_open(const char *options)
{
    struct comm_communicator *world = NULL;
    char text[512] = "";
    struct comm_info info = {.size = sizeof info};
    bool own = options && strstr(options, "operation_timeout");
    struct comm_config config = *COMM_CONFIG(.backend = "mpi", .options = options, .operation_timeout_ns = own ? 0 : 20 * RIG_S,
                                             .error_text = text, .error_text_bytes = sizeof text);
    const char *address = getenv("OWN_ADDRESS"); /* the program gives the rank and the meeting address itself */
    if (address) {
        config.rank = (int32_t)strtol(getenv("OMPI_COMM_WORLD_RANK"), NULL, 10);
        config.ranks = (int32_t)strtol(getenv("OMPI_COMM_WORLD_SIZE"), NULL, 10);
        config.address = address;
    }
    ask_backends();
    enum comm_result r = comm_open(&config, &world);
    if (r != COMM_OK) {
        fprintf(stderr, "open: %s: %s\n", comm_result_name(r), text);
        exit(3);
    }
    me.rank = comm_rank(world);
    me.ranks = comm_size(world);
    MUST(comm_describe(world, &info));
    me.programs = strcmp(info.backend, "shm+mpi") == 0;
    CHECK(me.programs || strcmp(info.backend, "mpi") == 0);
    EQUAL(info.nodes, getenv("COMM_TEST_HOSTS") ? strtol(getenv("COMM_TEST_HOSTS"), NULL, 10) : 1);
    return world;
}

static bool was_said(const char *path, const char *text)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, text, strlen(text)) == 0;
    if (file)
        fclose(file);
    return found;
}

void rank_await(int32_t rank, const char *what)
{
    char text[80];
    const char *path = getenv("SAY_TO");
    snprintf(text, sizeof text, "rank %d: %s", rank, what);
    CHECK(path != NULL);
    for (int64_t until = rig_now() + RIG_PATIENCE; !was_said(path, text); rig_nap(5 * RIG_MS))
        CHECK(rig_now() < until);
}

bool rank_exact(const struct job_shape *s, bool fixed)
{
    bool rounds = s->type >= COMM_F8E4M3 && s->op != COMM_MIN && s->op != COMM_MAX;
    return fixed || me.ranks <= 2 || !job_kind_reduces(s->kind) || !rounds;
}
