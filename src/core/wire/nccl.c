/* The native nccl as the table knows it. The implementation is in the module `cuda`, which is loaded on demand. The
 * native that open returns is the module's own; its calls do not go through this file. */
#include "wire/module.h"

static const struct native_class *load(const struct native_config *config)
{
    const struct module_interface *handle = module_load(config->env, "cuda", config->error_text, config->error_text_bytes);

    return handle ? handle->native : NULL;
}

static enum comm_result nccl_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    const struct native_class *class = load(config);

    return class ? class->probe(config, version) : COMM_ERR_UNSUPPORTED;
}

static enum comm_result nccl_open(const struct native_config *config, struct native **native)
{
    const struct native_class *class = load(config);

    return class ? class->open(config, native) : COMM_ERR_UNSUPPORTED;
}

const struct native_class native_nccl_module = {.name = "nccl", .probe = nccl_probe, .open = nccl_open};
