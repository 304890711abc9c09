/* A mock driver that answers only queries about memory: one range is device memory, another one is managed memory. It is loaded under the
 * name of the real driver. */
#include <stddef.h>
#include <stdint.h>

void mock_fault(unsigned result);
void mock_ranges(void *device, size_t device_bytes, void *managed, size_t managed_bytes);
unsigned cuPointerGetAttribute(void *data, unsigned attribute, uintptr_t pointer);

static struct {
    uintptr_t at;
    size_t bytes;
} device, managed;
static unsigned fault;

/* From now on every query gives this error, as after a fault of the device; 0: no more. */
void mock_fault(unsigned result)
{
    fault = result;
}

void mock_ranges(void *d, size_t device_bytes, void *m, size_t managed_bytes)
{
    device.at = (uintptr_t)d;
    device.bytes = device_bytes;
    managed.at = (uintptr_t)m;
    managed.bytes = managed_bytes;
}

/* As in the real driver: attribute 2 is the memory type (2: device), attribute 8 is whether it is managed. For ordinary memory the call
 * returns CUDA_ERROR_INVALID_VALUE (1). */
unsigned cuPointerGetAttribute(void *data, unsigned attribute, uintptr_t pointer)
{
    int is_device = pointer - device.at < device.bytes, is_managed = pointer - managed.at < managed.bytes;

    if (fault)
        return fault;
    if (!is_device && !is_managed)
        return 1;
    if (attribute == 2)
        *(unsigned *)data = 2;
    else if (attribute == 8)
        *(unsigned *)data = (unsigned)is_managed;
    return attribute == 2 || attribute == 8 ? 0 : 1;
}
