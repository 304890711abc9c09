/*
 * Memory of the mock devices that several devices map, in this process or in others. It is a file without a name, so processes share it,
 * and it lives as long as somebody has it open or mapped, as CUDA says of the real one. The file's name in /proc tells whose memory it is.
 * Before cuMemSetAccess a mapping cannot be accessed at all.
 */
#define _GNU_SOURCE
#include "mock_inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

CUDA_SHARE_CALLS(CUDA_EXPORT)

enum { GRAIN = 2 << 20 };
#define NAME "mock-memory-"
struct shared {
    int file, hardware; /* hardware: whose memory it is */
    size_t bytes;
};
static struct mapping {
    struct mapping *next;
    char *at;
    size_t bytes;
    int hardware, access; /* access: bits of the devices that may */
} * mappings;

int mock_hardware(int device)
{
    return mock.options.backwards ? MOCK_DEVICES - 1 - device : device;
}

bool mock_may_access(int device, int hardware)
{
    int island = mock.options.island ? mock.options.island : MOCK_DEVICES;

    return mock_hardware(device) / island == hardware / island;
}

static struct mapping *mapping_of(const void *at)
{
    struct mapping *m = mappings;

    while (m && ((const char *)at < m->at || (const char *)at >= m->at + m->bytes))
        m = m->next;
    return m;
}

bool mock_maps(const void *at, int device)
{
    const struct mapping *m = mapping_of(at);

    return m && m->access >> device & 1;
}

unsigned mock_cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    CUDA_BEGIN;
    *can = device != peer && mock_may_access(device, mock_hardware(peer));
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemGetAllocationGranularity(size_t *bytes, const struct cuda_memory_kind *kind, unsigned option)
{
    CUDA_BEGIN;
    *bytes = GRAIN;
    CUDA_END(kind->where.type == CUDA_AT_DEVICE && option == CUDA_GRANULARITY_LEAST ? CUDA_OK : CUDA_INVALID_VALUE);
}

static cuda_memory add(int file, int hardware, size_t bytes)
{
    struct shared *s = malloc(sizeof *s);

    *s = (struct shared){file, hardware, bytes};
    mock_add(THING_SHARED, s, 0, -1);
    return (uintptr_t)s;
}

static struct shared *shared_of(cuda_memory memory)
{
    struct shared *s = (struct shared *)(uintptr_t)memory;

    return mock_find(s) == THING_SHARED ? s : NULL;
}

unsigned mock_cuMemCreate(cuda_memory *memory, size_t bytes, const struct cuda_memory_kind *kind, unsigned long long flags)
{
    char name[32];

    CUDA_BEGIN;
    if (mock.options.no_share)
        CUDA_END(CUDA_NOT_SUPPORTED);
    if (flags || bytes % GRAIN || kind->type != CUDA_MEMORY_PINNED || kind->exported_as != CUDA_AS_DESCRIPTOR)
        CUDA_END(CUDA_INVALID_VALUE);
    snprintf(name, sizeof name, NAME "%d", mock_hardware(kind->where.id));
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes))
        abort();
    *memory = add(file, mock_hardware(kind->where.id), bytes);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemRelease(cuda_memory memory)
{
    CUDA_BEGIN;
    struct shared *s = shared_of(memory);
    if (!s)
        CUDA_END(CUDA_INVALID_VALUE);
    mock_remove(THING_SHARED, s);
    close(s->file);
    free(s);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemExportToShareableHandle(void *exported, cuda_memory memory, unsigned as, unsigned long long flags)
{
    CUDA_BEGIN;
    const struct shared *s = shared_of(memory);
    if (!s || as != CUDA_AS_DESCRIPTOR || flags)
        CUDA_END(CUDA_INVALID_VALUE);
    *(int *)exported = fcntl(s->file, F_DUPFD_CLOEXEC, 0);
    CUDA_END(CUDA_OK);
}

/* Another file than one of the mock's is refused. */
unsigned mock_cuMemImportFromShareableHandle(cuda_memory *memory, void *exported, unsigned as)
{
    char path[40], name[64] = "";
    int file = (int)(intptr_t)exported;

    CUDA_BEGIN;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ssize_t length = readlink(path, name, sizeof name - 1);
    const char *number = length > 0 ? strstr(name, NAME) : NULL;
    if (!number || as != CUDA_AS_DESCRIPTOR)
        CUDA_END(CUDA_INVALID_VALUE);
    off_t bytes = lseek(file, 0, SEEK_END);
    *memory = add(fcntl(file, F_DUPFD_CLOEXEC, 0), (int)strtol(number + strlen(NAME), NULL, 10), (size_t)bytes);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemAddressReserve(cuda_address *at, size_t bytes, size_t align, cuda_address wish, unsigned long long flags)
{
    CUDA_BEGIN;
    if (bytes % GRAIN || align || wish || flags)
        CUDA_END(CUDA_INVALID_VALUE);
    void *range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        abort();
    mock_add(THING_RANGE, range, 0, -1);
    *at = (uintptr_t)range;
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemAddressFree(cuda_address at, size_t bytes)
{
    CUDA_BEGIN;
    if (mapping_of((void *)(uintptr_t)at))
        mock.misused = "cuMemAddressFree of addresses that are mapped";
    if (!mock_remove(THING_RANGE, (void *)(uintptr_t)at))
        CUDA_END(CUDA_INVALID_VALUE);
    munmap((void *)(uintptr_t)at, bytes);
    CUDA_END(CUDA_OK);
}

/* deaf: a device that is not the owner gets other memory. */
unsigned mock_cuMemMap(cuda_address at, size_t bytes, size_t offset, cuda_memory memory, unsigned long long flags)
{
    CUDA_BEGIN;
    const struct shared *s = shared_of(memory);
    if (!s || flags || offset || bytes > s->bytes || mock_find((void *)(uintptr_t)at) != THING_RANGE || mapping_of((void *)(uintptr_t)at))
        CUDA_END(CUDA_INVALID_VALUE);
    bool is_deaf = mock.options.deaf && mock_device() >= 0 && mock_hardware(mock_device()) != s->hardware;
    void *made = mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_FIXED | (is_deaf ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED),
                      is_deaf ? -1 : s->file, 0);
    struct mapping *m = calloc(1, sizeof *m);
    if (made == MAP_FAILED)
        abort();
    *m = (struct mapping){mappings, made, bytes, s->hardware, 0};
    mappings = m;
    mock_add(THING_MAPPED, m, 0, -1);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemUnmap(cuda_address at, size_t bytes)
{
    CUDA_BEGIN;
    struct mapping **m = &mappings, *gone;
    while (*m && (*m)->at != (char *)(uintptr_t)at)
        m = &(*m)->next;
    if (!*m || (*m)->bytes != bytes)
        CUDA_END(CUDA_INVALID_VALUE);
    if (mock_is_read((void *)(uintptr_t)at, bytes))
        mock.misused = "cuMemUnmap of memory that a kernel reads";
    gone = *m;
    *m = gone->next;
    mock_remove(THING_MAPPED, gone);
    if (mmap(gone->at, bytes, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        abort();
    free(gone);
    CUDA_END(CUDA_OK);
}

unsigned mock_cuMemSetAccess(cuda_address at, size_t bytes, const struct cuda_access *access, size_t count)
{
    CUDA_BEGIN;
    struct mapping *m = mapping_of((void *)(uintptr_t)at);
    if (!m || m->bytes != bytes)
        CUDA_END(CUDA_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        if (access[i].where.type != CUDA_AT_DEVICE || !mock_may_access(access[i].where.id, m->hardware))
            CUDA_END(CUDA_INVALID_DEVICE);
        m->access |= 1 << access[i].where.id;
    }
    CUDA_END(mprotect(m->at, bytes, PROT_READ | PROT_WRITE) ? CUDA_INVALID_VALUE : CUDA_OK);
}
