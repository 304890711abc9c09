/* The rows of the simulator's library, instead of wire/table.c. The names are the same, so that programs need not know. */
#include "sim/inside.h"

#include "base/format.h"
#include "wire/table.h"

extern const struct boot_class boot_sim;
extern const struct wire_class wire_local;
extern const struct wire_class wire_mixed;
extern const struct wire_class wire_sim_lines;
extern const struct wire_class wire_sim_frames;

const struct wire_backend wire_backends[] = {
    {.name = "local", .wire = &wire_local, .fixed_order = 1},
    {.name = "shm", .wire = &wire_sim_lines, .boot = &boot_sim, .fixed_order = 1},
    {.name = "tcp", .wire = &wire_sim_frames, .boot = &boot_sim, .fixed_order = 1, .network = 1},
    {.name = "shm+tcp", .wire = &wire_mixed, .boot = &boot_sim, .fixed_order = 1, .network = 1, .near = "shm", .far = "tcp"},
    {.name = "mpi", .missing = "the simulator has no mpi"},
    {.name = "nccl", .missing = "the simulator has no nccl"},
    {.name = "cuda", .missing = "the simulator has no devices"},
};
const uint32_t wire_backend_count = sizeof wire_backends / sizeof *wire_backends;

const struct wire_backend *wire_backend_find(const char *name)
{
    for (uint32_t i = 0; i < wire_backend_count; i++)
        if (base_equal(wire_backends[i].name, name))
            return &wire_backends[i];
    return NULL;
}

const struct wire_backend *wire_backend_one_process(const char *name)
{
    (void)name;
    return NULL;
}

const struct wire_backend *wire_backend_several_hosts(const char *name)
{
    (void)name;
    return NULL;
}

const struct comm_env *wire_default_env(void)
{
    return &sim_self()->env;
}
