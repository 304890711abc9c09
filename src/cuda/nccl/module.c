/* The entry point by which the library loads this module. */
#include "cuda/nccl/nccl.h"

#include "base/result.h"
#include "wire/module.h"

extern const struct native_class native_oneshot;

__attribute__((visibility("default"))) const struct module_interface *comm_module_entry(const struct module_core *core);

const struct module_interface *comm_module_entry(const struct module_core *core)
{
    static const struct module_interface interface = {.abi = MODULE_ABI,
                                                      .size = sizeof interface,
                                                      .version = COMM_VERSION,
                                                      .name = "cuda",
                                                      .library =
                                                          "CUDA driver 12.0 or newer, NCCL 2.18 or newer, both looked for when asked for",
                                                      .native = &native_nccl,
                                                      .oneshot = &native_oneshot,
                                                      .device = &device_cuda};

    return core && core->abi == MODULE_ABI ? &interface : NULL;
}
