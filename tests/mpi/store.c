/* A program that uses MPI. Its ranks meet by the launcher's store, before MPI starts or while it runs. MPI and this library both use the
 * store, and neither closes it for the other. It opens two worlds, one after the other. */
#include "conform/rig.h"

#include <mpi.h>
#include <string.h>

static void use_a_world(void)
{
    struct comm_communicator *world;
    struct comm_info info = {.size = sizeof info};
    char text[512] = "";
    enum comm_result r = comm_open(COMM_CONFIG(.error_text = text, .error_text_bytes = sizeof text), &world);
    int32_t one = 1, sum = 0;
    struct comm_request q;

    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s: %s", comm_result_name(r), text);
    MUST(comm_describe(world, &info));
    CHECK(strstr(info.backend, "tcp") != NULL); /* as far as the library knows, the ranks are on several hosts */
    MUST(comm_allreduce(world, &one, &sum, 1, COMM_I32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    EQUAL(sum, comm_size(world));
    MUST(comm_close(world, RIG_PATIENCE));
}

int main(int argc, char **argv)
{
    bool early = argc > 1 && strcmp(argv[1], "early") == 0;

    if (!early)
        MPI_Init(&argc, &argv);
    use_a_world();
    use_a_world();
    if (early)
        MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
