/* The only place that names wires, boots and environments. A row without a wire says why it is not available. */
#include "wire/table.h"

#include "base/format.h"

extern const struct comm_env env_posix;
extern const struct boot_class boot_tcp;
extern const struct boot_class boot_unix;
extern const struct native_class native_mpi;
extern const struct wire_class wire_local;
extern const struct wire_class wire_mixed;
extern const struct wire_class wire_mpi;
extern const struct wire_class wire_mpi_or_tcp;
extern const struct wire_class wire_shm;
extern const struct wire_class wire_tcp;
extern const struct native_class native_cuda_module;
extern const struct native_class native_nccl_module;

const struct wire_backend wire_backends[] = {
    {.name = "local", .wire = &wire_local, .fixed_order = 1},
    {.name = "shm", .wire = &wire_shm, .boot = &boot_unix, .fixed_order = 1},
    {.name = "tcp", .wire = &wire_tcp, .boot = &boot_tcp, .fixed_order = 1, .network = 1},
    {.name = "shm+tcp", .wire = &wire_mixed, .boot = &boot_tcp, .fixed_order = 1, .network = 1, .near = "shm", .far = "tcp"},
    {.name = "shm+mpi",
     .wire = &wire_mixed,
     .boot = &boot_tcp,
     .fixed_order = 1,
     .network = 1,
     .far_wire = &wire_mpi,
     .library = &native_mpi,
     .near = "shm",
     .far = "mpi"},
    {.name = "mpi", .wire = &wire_shm, .boot = &boot_unix, .native = &native_mpi, .fixed_order = 1},
    {.name = "nccl", .wire = &wire_shm, .boot = &boot_unix, .native = &native_nccl_module, .fixed_order = 1, .device_buffers = 1},
    {.name = "cuda",
     .wire = &wire_shm,
     .boot = &boot_unix,
     .native = &native_cuda_module,
     .fixed_order = 1,
     .device_buffers = 1,
     .keeps_order = 1},
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
    static const struct wire_backend forms[] = {
        {.name = "nccl", .wire = &wire_local, .native = &native_nccl_module, .fixed_order = 1},
        {.name = "cuda", .wire = &wire_local, .native = &native_cuda_module, .fixed_order = 1, .keeps_order = 1},
        {.name = "tcp", .wire = &wire_tcp, .fixed_order = 1, .network = 1},
        {.name = "shm+tcp", .wire = &wire_mixed, .fixed_order = 1, .network = 1, .near = "local", .far = "tcp"},
    };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (base_equal(forms[i].name, name))
            return &forms[i];
    return NULL;
}

const struct wire_backend *wire_backend_several_hosts(const char *name)
{
    static const struct wire_backend forms[] = {
        {.name = "mpi",
         .wire = &wire_mixed,
         .boot = &boot_tcp,
         .native = &native_mpi,
         .fixed_order = 1,
         .network = 1,
         .far_wire = &wire_mpi_or_tcp,
         .near = "shm",
         .far = "mpi"},
        {.name = "nccl",
         .wire = &wire_mixed,
         .boot = &boot_tcp,
         .native = &native_nccl_module,
         .fixed_order = 1,
         .device_buffers = 1,
         .network = 1,
         .near = "shm",
         .far = "tcp"},
        {.name = "cuda",
         .wire = &wire_mixed,
         .boot = &boot_tcp,
         .native = &native_cuda_module,
         .fixed_order = 1,
         .device_buffers = 1,
         .keeps_order = 1,
         .network = 1,
         .near = "shm",
         .far = "tcp"},
    };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (base_equal(forms[i].name, name))
            return &forms[i];
    return NULL;
}

const struct comm_env *wire_default_env(void)
{
    return &env_posix;
}
