/* Loads a module. env finds the file; this code checks that it fits. */
#include "wire/module.h"

#include "base/format.h"
#include "base/result.h"

static void module_log(const struct base_log *log, int level, const char *line)
{
    if (log)
        base_log(log, level, "%s", line);
}

static data_reduce_fn *module_reducer(enum comm_type type, comm_op op)
{
    return data_reducer(type, op, data_isa_best());
}

const struct module_interface *module_load(const struct comm_env *env, const char *name, char *why, size_t why_bytes)
{
    static const struct module_core core = {
        .abi = MODULE_ABI, .size = sizeof core, .version = COMM_VERSION, .log = module_log, .reducer = module_reducer};
    module_entry_fn *entry;
    void *found = env->module(env, name, why, why_bytes);

    if (!found)
        return NULL;
    __builtin_memcpy(&entry, &found, sizeof entry); /* converts the loader's object pointer to a function pointer */
    const struct module_interface *handle = entry(&core);
    if (handle && handle->abi == MODULE_ABI && handle->size == sizeof *handle && handle->version == COMM_VERSION)
        return handle;
    base_format(why, why_bytes, "module \"%s\" is of another version (%x) than this library (%x): install the one that belongs to it", name,
                handle ? handle->version : 0, COMM_VERSION);
    return NULL;
}
