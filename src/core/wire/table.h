/* All wires, boots, natives, devices and environments that exist: the one place that names them. Adding a backend is one row here. */
#ifndef WIRE_TABLE_H
#define WIRE_TABLE_H

#include "wire/boot.h"
#include "wire/device.h"
#include "wire/native.h"
#include "wire/wire.h"

/* A backend as a user names it. */
struct wire_backend {
    const char *name;
    const struct wire_class *wire;     /* NULL: not built into this library */
    const struct boot_class *boot;     /* how its ranks meet; NULL: they are all in this process */
    const struct native_class *native; /* does whole collectives, beside the wire; NULL: there is none */
    const char *missing;               /* why it cannot be had, and what to do; NULL: it is here */
    int32_t fixed_order;               /* evaluates the canonical order */
    int32_t network;                   /* its ranks may run on several hosts */
    int32_t device_buffers, reserved;  /* it takes buffers of a device */
    const char *near, *far;            /* of which it is made: for ranks of one host, and of different ones; NULL: of itself */
};

extern const struct wire_backend wire_backends[];
extern const uint32_t wire_backend_count;
const struct wire_backend *wire_backend_find(const char *name); /* NULL: no such name */
const struct wire_backend *wire_backend_here(const char *name); /* a form of it that has all ranks in this process; NULL: none of its own */
const struct wire_backend *wire_backend_across(const char *name); /* a form of it whose ranks run on several hosts; NULL: none of its own */
const struct comm_env *wire_default_env(void);

#endif
