/* The null device: ordinary memory, ready at once. */
#include "wire/device.h"

#include <string.h>

static enum device_kind null_kind(const void *pointer)
{
    (void)pointer;
    return DEVICE_HOST;
}

static enum comm_result null_pin(void *pointer, size_t bytes)
{
    (void)pointer;
    (void)bytes;
    return COMM_OK;
}

static void null_unpin(void *pointer)
{
    (void)pointer;
}

static enum comm_result null_copy(void *to, const void *from, size_t bytes, _Atomic uint64_t *word, uint64_t value)
{
    if (bytes)
        memmove(to, from, bytes);
    if (word)
        atomic_store_explicit(word, value, memory_order_release);
    return COMM_OK;
}

const struct device_class device_null = {.name = "null", .kind = null_kind, .pin = null_pin, .unpin = null_unpin, .copy = null_copy};
