/* What a process that has loaded a driver has of it, as far as memory goes: whoever asks is told that one range is a device's, and another
 * one is managed. Loaded by the name of the real one. */
#include <stddef.h>
#include <stdint.h>

void mock_ranges(void *device, size_t device_bytes, void *managed, size_t managed_bytes);
unsigned cuPointerGetAttribute(void *data, unsigned attribute, uintptr_t pointer);

static struct {
    uintptr_t at;
    size_t bytes;
} device, managed;

void mock_ranges(void *d, size_t device_bytes, void *m, size_t managed_bytes)
{
    device.at = (uintptr_t)d;
    device.bytes = device_bytes;
    managed.at = (uintptr_t)m;
    managed.bytes = managed_bytes;
}

/* As the real one: 2 memory type (2: a device's), 8 is managed; ordinary memory is an invalid value. */
unsigned cuPointerGetAttribute(void *data, unsigned attribute, uintptr_t pointer)
{
    int is_device = pointer - device.at < device.bytes, is_managed = pointer - managed.at < managed.bytes;

    if (!is_device && !is_managed)
        return 1;
    if (attribute == 2)
        *(unsigned *)data = 2;
    else if (attribute == 8)
        *(unsigned *)data = (unsigned)is_managed;
    return attribute == 2 || attribute == 8 ? 0 : 1;
}
