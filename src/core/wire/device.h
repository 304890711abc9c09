/* device: one kind of memory, and how to copy, reduce and order work in it. The null device is ordinary memory. */
#ifndef WIRE_DEVICE_H
#define WIRE_DEVICE_H

#include <commstream/result.h>

#include "base/env.h"

enum device_kind { DEVICE_HOST = 0, DEVICE_CUDA = 1 };

struct device_class {
    const char *name;
    enum device_kind (*kind)(const void *pointer);
    enum comm_result (*pin)(void *pointer, size_t bytes);
    void (*unpin)(void *pointer);
    /* DONE at return on the null device; elsewhere *word reaches value when the bytes are there. */
    enum comm_result (*copy)(void *to, const void *from, size_t bytes, _Atomic uint64_t *word, uint64_t value);
};

extern const struct device_class device_null;

#endif
