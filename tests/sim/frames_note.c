/* Notes on the simulated frames wire: each peer has room for one of each sort, the newest, until the receiver looks. */
#include "sim/frames.h"

#include "base/check.h"

#include <string.h>

void frames_note_arrives(struct frames_channel *c, uint32_t peer, const struct frame *f)
{
    struct frames_peer *p = &c->peer[peer];

    if (!p->note)
        p->note = sim_memory_take(WIRE_NOTE_SORTS * sizeof *p->note, 64);
    BASE_ASSERT(p->note);
    struct note *n = &p->note[wire_key_edge(f->key)];
    c->fresh_notes += !n->fresh;
    n->fresh = true;
    n->tag = f->tag;
    n->bytes = (uint32_t)f->bytes;
    n->key = f->key;
    memset(n->data, 0, sizeof n->data);
    memcpy(n->data, f->data, f->bytes);
}

uint32_t frames_advance_notes(struct frames_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;

    for (uint32_t i = 0; c->fresh_notes && i < c->size * WIRE_NOTE_SORTS && n < max && n < sizeof c->note / sizeof *c->note; i++) {
        struct frames_peer *p = &c->peer[i / WIRE_NOTE_SORTS];
        struct note *note = p->note ? &p->note[i % WIRE_NOTE_SORTS] : NULL;
        if (!note || !note->fresh)
            continue;
        note->fresh = false;
        c->fresh_notes--;
        memcpy(c->note[n], note->data, sizeof note->data);
        events[n] = (struct wire_event){.kind = WIRE_EVENT_ANNOUNCED,
                                        .result = WIRE_NOTE,
                                        .peer = (int32_t)(i / WIRE_NOTE_SORTS),
                                        .tag = note->tag,
                                        .key = note->key,
                                        .bytes = note->bytes,
                                        .note = c->note[n]};
        n++;
    }
    return n;
}
