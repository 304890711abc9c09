/* A mock driver that answers only queries about memory: one range is device memory, another one is managed memory. It is loaded under the
 * name of the real driver. */
#include <stddef.h>
#include <stdint.h>

void mock_fault(unsigned result);
void mock_ranges(void *device, size_t device_bytes, void *managed, size_t managed_bytes);
unsigned cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data, uintptr_t pointer);

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

/* As in the real driver: attribute 2 is the memory type (2: device), attribute 8 is whether it is managed. For ordinary memory all is 0. */
unsigned cuPointerGetAttributes(unsigned count, unsigned *attributes, void **data, uintptr_t pointer)
{
    unsigned is_device = pointer - device.at < device.bytes, is_managed = pointer - managed.at < managed.bytes;

    if (fault)
        return fault;
    for (unsigned i = 0; i < count; i++) {
        if (attributes[i] != 2 && attributes[i] != 8)
            return 1;
        *(unsigned *)data[i] = attributes[i] == 8 ? is_managed : is_device || is_managed ? 2 : 0;
    }
    return 0;
}
