/*
 * module: the interface between the library and an optional module (mpi, cuda). A module is a shared object of its own
 * that is loaded on demand. It exports one function, comm_module_entry, links nothing of the library, and gets what it
 * needs from the core's table. So it also serves a static or renamed build. Its native and device are the same tables
 * that a built-in one would provide.
 *
 * A module belongs to one version of the library. Both sides state abi, size and version first; nothing else is read
 * unless all three agree.
 */
#ifndef WIRE_MODULE_H
#define WIRE_MODULE_H

#include "wire/device.h"
#include "wire/native.h"

enum { MODULE_ABI = 8 };
#define MODULE_ENTRY "comm_module_entry"

/* The core's side. Constant for the life of the process. */
struct module_core {
    uint32_t abi, size, version, reserved; /* version of the library, as comm_version */
    void (*log)(const struct base_log *log, int level, const char *line);
    /* The kernel that reduces a built-in type by a built-in operator, with the fastest instructions of this CPU; for a pair that data_check
     * accepts. */
    data_reduce_fn *(*reducer)(enum comm_type type, comm_op op);
};

/* The module's side. Constant; NULL for what the module does not have. */
struct module_interface {
    uint32_t abi, size, version, reserved;
    const char *name;    /* as it was requested */
    const char *library; /* what it was built with: "Open MPI 4.1.4" */
    const struct native_class *native;
    const struct native_class *oneshot; /* of the module cuda: native is NCCL's, and this one needs only the driver */
    const struct device_class *device;
    const struct wire_class *wire;
};
/* Returns NULL if it does not serve a core like this one. */
typedef const struct module_interface *module_entry_fn(const struct module_core *core);

/* Finds module `name` with env->module and checks both sides' versions. NULL: not available; the reason is in why. */
const struct module_interface *module_load(const struct comm_env *env, const char *name, char *why, size_t why_bytes);

#endif
