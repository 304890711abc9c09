/* What the fake native keeps of calls that are started many times (NATIVE_STANDS), and what it notices about them. */
#ifndef TESTS_ENGINE_NATIVE_FAKE_NOTES_H
#define TESTS_ENGINE_NATIVE_FAKE_NOTES_H

#include "engine/native_fake.h"
#include "wire/native.h"

#include <stdlib.h>

/* Of one such call. The ranks' starts must belong to the same one: they number them. */
struct note {
    struct note *next;
    uint64_t number;
    const void *in;
    void *out;
    size_t n;
    bool runs;
};
struct notes {
    struct note *first;
    uint64_t made;
};

static inline struct note *note_start(struct notes *notes, const struct native_call *call)
{
    struct note *n = *call->standing;
    if (!n) {
        n = *call->standing = calloc(1, sizeof *n);
        *n = (struct note){notes->first, ++notes->made, call->in, call->out, call->n, false};
        notes->first = n;
        atomic_fetch_add(&fake.noted, 1);
    }
    atomic_fetch_add(&fake.moved, n->in != call->in || n->out != call->out || n->n != call->n);
    atomic_fetch_add(&fake.overlaps, n->runs);
    n->runs = true;
    return n;
}

static inline void note_forget(struct notes *notes, struct note *gone)
{
    struct note **at = &notes->first;
    atomic_fetch_add(&fake.overlaps, gone->runs);
    atomic_fetch_add(&fake.forgotten, 1);
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    free(gone);
}

static inline void notes_free(struct notes *notes)
{
    for (struct note *n = notes->first, *next; n; n = next) {
        next = n->next;
        free(n);
    }
}

#endif
