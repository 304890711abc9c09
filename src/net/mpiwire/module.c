/* What a module offers to the library: the native, and the wire. Here because this is the only room that knows both. */
#include "net/mpiwire/mpiwire.h"

#include <commstream/version.h>

#include "net/mpi/family.h"

static const struct module_interface interface = {.abi = MODULE_ABI,
                                                  .size = sizeof interface,
                                                  .version = COMM_VERSION,
                                                  .name = MODULE_NAME,
                                                  .library = MODULE_LIBRARY,
                                                  .native = &mpi_native_class,
                                                  .wire = &mpiwire_class};

__attribute__((visibility("default"))) const struct module_interface *comm_module_entry(const struct module_core *core);
const struct module_interface *comm_module_entry(const struct module_core *core)
{
    if (core->abi != MODULE_ABI || core->size != sizeof *core || core->version != COMM_VERSION)
        return NULL;
    mpi_log = core->log;
    mpi_reducer = core->reducer;
    return &interface;
}
