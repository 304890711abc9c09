/* The natives nccl and cuda as the table knows them. The implementations are in the module `cuda`, which is loaded on demand. The
 * native that open returns is the module's own; its calls do not go through this file. */
#include "wire/module.h"

static const struct native_class *load(const struct native_config *config, bool oneshot)
{
    const struct module_interface *handle = module_load(config->env, "cuda", config->error_text, config->error_text_bytes);

    if (!handle)
        return NULL;
    return oneshot ? handle->oneshot : handle->native;
}

static enum comm_result probe(const struct native_class *class, const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    return class ? class->probe(config, version) : COMM_ERR_UNSUPPORTED;
}

static enum comm_result open(const struct native_class *class, const struct native_config *config, struct native **native)
{
    return class ? class->open(config, native) : COMM_ERR_UNSUPPORTED;
}

static enum comm_result nccl_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    return probe(load(config, false), config, version);
}

static enum comm_result nccl_open(const struct native_config *config, struct native **native)
{
    return open(load(config, false), config, native);
}

static enum comm_result cuda_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    return probe(load(config, true), config, version);
}

static enum comm_result cuda_open(const struct native_config *config, struct native **native)
{
    return open(load(config, true), config, native);
}

const struct native_class native_nccl_module = {.name = "nccl", .probe = nccl_probe, .open = nccl_open};
const struct native_class native_cuda_module = {.name = "cuda", .probe = cuda_probe, .open = cuda_open};
