#include "cuda/oneshot/share.h"

bool cuda_can_share(struct cuda_device *d)
{
    const struct cuda_calls *calls = d->calls;
    int maps = 0, exports = 0;

    return calls->cuDeviceCanAccessPeer && calls->cuMemGetAllocationGranularity && calls->cuMemCreate && calls->cuMemRelease &&
           calls->cuMemExportToShareableHandle && calls->cuMemImportFromShareableHandle && calls->cuMemAddressReserve &&
           calls->cuMemAddressFree && calls->cuMemMap && calls->cuMemUnmap && calls->cuMemSetAccess &&
           calls->cuDeviceGetAttribute(&maps, CUDA_ATTRIBUTE_MAPPINGS, d->ordinal) == CUDA_OK && maps &&
           calls->cuDeviceGetAttribute(&exports, CUDA_ATTRIBUTE_DESCRIPTORS, d->ordinal) == CUDA_OK && exports;
}

/* A process may see fewer devices than its peers have (CUDA_VISIBLE_DEVICES). Of the others CUDA says it when their memory is mapped. */
bool cuda_may_reach(struct cuda_device *d, uint64_t hardware)
{
    for (int i = 0; i < cuda_process.devices; i++) {
        uint64_t there = 0;
        int can = 0;
        if (cuda_hardware(d->calls, i, &there) != COMM_OK || there != hardware)
            continue;
        return d->calls->cuDeviceCanAccessPeer(&can, d->ordinal, i) == CUDA_OK && can;
    }
    return true;
}

unsigned cuda_share_map(struct cuda_device *d, cuda_memory memory, size_t bytes, cuda_address *at)
{
    const struct cuda_calls *calls = d->calls;
    struct cuda_access access = {{CUDA_AT_DEVICE, d->ordinal}, CUDA_ACCESS_ALL};
    unsigned result = calls->cuMemAddressReserve(at, bytes, 0, 0, 0);

    if (result != CUDA_OK)
        return result;
    result = calls->cuMemMap(*at, bytes, 0, memory, 0);
    if (result != CUDA_OK)
        goto free_range;
    result = calls->cuMemSetAccess(*at, bytes, &access, 1);
    if (result == CUDA_OK)
        return CUDA_OK;
    calls->cuMemUnmap(*at, bytes);
free_range:
    calls->cuMemAddressFree(*at, bytes);
    *at = 0;
    return result;
}

void cuda_share_unmap(struct cuda_device *d, cuda_address at, size_t bytes)
{
    if (d->calls->cuMemUnmap(at, bytes) == CUDA_OK)
        d->calls->cuMemAddressFree(at, bytes);
}

unsigned cuda_share_make(struct cuda_device *d, size_t bytes, struct cuda_share *share)
{
    const struct cuda_calls *calls = d->calls;
    struct cuda_memory_kind kind = {.type = CUDA_MEMORY_PINNED, .exported_as = CUDA_AS_DESCRIPTOR, .where = {CUDA_AT_DEVICE, d->ordinal}};
    size_t grain = 0;
    unsigned result = calls->cuMemGetAllocationGranularity(&grain, &kind, CUDA_GRANULARITY_LEAST);

    *share = (struct cuda_share){0};
    if (result != CUDA_OK || !grain)
        return result != CUDA_OK ? result : CUDA_NOT_SUPPORTED;
    bytes = (bytes + grain - 1) / grain * grain;
    result = calls->cuMemCreate(&share->memory, bytes, &kind, 0);
    if (result != CUDA_OK)
        return result;
    share->bytes = bytes;
    result = cuda_share_map(d, share->memory, bytes, &share->at);
    if (result != CUDA_OK)
        calls->cuMemRelease(share->memory);
    return result;
}

void cuda_share_free(struct cuda_device *d, struct cuda_share *share)
{
    if (!share->at)
        return;
    cuda_share_unmap(d, share->at, share->bytes);
    d->calls->cuMemRelease(share->memory);
    share->at = 0;
}

unsigned cuda_share_export(struct cuda_device *d, const struct cuda_share *share, int *descriptor)
{
    return d->calls->cuMemExportToShareableHandle(descriptor, share->memory, CUDA_AS_DESCRIPTOR, 0);
}

/* The mapping keeps the memory, so the handle is not needed any more. */
unsigned cuda_share_import(struct cuda_device *d, int descriptor, size_t bytes, cuda_address *at)
{
    cuda_memory memory = 0;
    unsigned result = d->calls->cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)descriptor, CUDA_AS_DESCRIPTOR);

    *at = 0;
    if (result != CUDA_OK)
        return result;
    result = cuda_share_map(d, memory, bytes, at);
    d->calls->cuMemRelease(memory);
    return result;
}
