/* All existing wires, boots, natives, devices and environments. To add a backend, add one row here. */
#ifndef WIRE_TABLE_H
#define WIRE_TABLE_H

#include "wire/boot.h"
#include "wire/device.h"
#include "wire/native.h"
#include "wire/wire.h"

/* A backend by the name that users give it. */
struct wire_backend {
    const char *name;
    const struct wire_class *wire;      /* NULL: not built into this library */
    const struct boot_class *boot;      /* how its ranks meet; NULL: all ranks are in this process */
    const struct native_class *native;  /* does whole collectives, next to the wire; NULL: none */
    const char *missing;                /* why it is not available, and what to do; NULL: it is available */
    int32_t fixed_order;                /* evaluates reductions in the canonical order */
    int32_t network;                    /* its ranks may run on several hosts */
    int32_t device_buffers;             /* accepts device buffers */
    int32_t keeps_order;                /* its native evaluates reductions in the canonical order */
    const struct wire_class *far_wire;  /* the wire across hosts, if the wire consists of two; NULL: tcp */
    const struct native_class *library; /* the library that the wire needs, the same on all ranks; NULL: only the native's */
    const char *near, *far;             /* its two wires: for ranks of one host, and for ranks of different hosts; NULL: it is one wire */
};

extern const struct wire_backend wire_backends[];
extern const uint32_t wire_backend_count;
static inline const struct native_class *wire_backend_library(const struct wire_backend *b)
{
    return b->library ? b->library : b->native;
}
const struct wire_backend *wire_backend_find(const char *name);          /* NULL: no such name */
const struct wire_backend *wire_backend_one_process(const char *name);   /* its form with all ranks in this process; NULL: it has none */
const struct wire_backend *wire_backend_several_hosts(const char *name); /* its form with ranks on several hosts; NULL: it has none */
const struct comm_env *wire_default_env(void);

/* Names the wires that a backend's wire opens by itself. */
static inline void wire_backend_inner(const struct wire_backend *b, struct wire_config *config)
{
    const struct wire_backend *near = b->near ? wire_backend_find(b->near) : NULL;
    const struct wire_backend *far = b->far ? wire_backend_find(b->far) : NULL;
    const struct wire_backend *tcp = wire_backend_find("tcp");

    config->near = near ? near->wire : NULL;
    config->near_boot = near ? near->boot : NULL;
    config->far = b->far_wire || !far ? b->far_wire : far->wire;
    config->guard_class = tcp ? tcp->wire : NULL;
}

#endif
