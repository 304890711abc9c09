/*
 * Notes: the newest of each sort per rank, in a cell that its writer may overwrite at any time; readers check its
 * version before and after. One counter of the whole channel tells that some note is new. A note never waits for room
 * and is received even after an abort.
 */
#include "channel/shmchan.h"

#include <string.h>

static _Atomic uint64_t *words_of(struct shmchan_head *head, uint32_t sort)
{
    return sort == WIRE_NOTE_LONG ? head->long_word : head->note[sort].word;
}

enum wire_result shmchan_note_expose(struct shmchan_channel *c, const struct wire_expose *e)
{
    size_t bytes = e->nspans ? e->spans[0].bytes : 0;
    uint32_t sort = wire_key_edge(e->key);
    BASE_ASSERT(sort < WIRE_NOTE_SORTS && bytes <= wire_note_bytes(sort) && e->nspans <= 1);
    struct shmchan_note *note = &c->head->note[sort];
    _Atomic uint64_t *to = words_of(c->head, sort);
    bool is_long = sort == WIRE_NOTE_LONG;
    uint32_t words = is_long ? (uint32_t)bytes / 8 : WIRE_NOTE_BYTES / 8;
    uint64_t word[WIRE_NOTE_LONG_BYTES / 8] = {0};
    BASE_ASSERT(!is_long || bytes % 8 == 0);
    if (bytes)
        memcpy(word, e->spans[0].at, bytes);
    uint32_t version = atomic_load_explicit(&note->version, memory_order_relaxed);
    atomic_store_explicit(&note->version, version + 1, memory_order_relaxed);
    /* Release on each word and acquire on each load of one: a reader that sees a new word also sees the odd version. */
    atomic_store_explicit(&note->tag, e->fingerprint, memory_order_release);
    atomic_store_explicit(&note->sort_key, (e->key & ~UINT64_C(255)) | (is_long ? words : bytes), memory_order_release);
    for (uint32_t i = 0; i < words; i++)
        atomic_store_explicit(&to[i], word[i], memory_order_release);
    atomic_store_explicit(&note->version, version + 2, memory_order_release);
    atomic_fetch_add_explicit(c->shared_epoch, 1, memory_order_acq_rel);
    c->dirty = true;
    return WIRE_DONE;
}

/* False: unchanged, or being written. In the latter case the counter changes again when the note is complete. */
static bool read_note(struct shmchan_channel *c, struct shmchan_peer *p, uint32_t sort, uint64_t *word, struct wire_event *event)
{
    struct shmchan_note *note = &p->head->note[sort];
    uint32_t version = atomic_load_explicit(&note->version, memory_order_acquire);
    if (version == p->seen[sort] || version & 1)
        return false;
    uint32_t tag = atomic_load_explicit(&note->tag, memory_order_acquire);
    uint64_t key = atomic_load_explicit(&note->sort_key, memory_order_acquire);
    uint32_t length = key & 255, words = sort == WIRE_NOTE_LONG ? length : WIRE_NOTE_BYTES / 8;
    if (words > WIRE_NOTE_LONG_BYTES / 8)
        return false; /* the note was being overwritten */
    _Atomic uint64_t *from = words_of(p->head, sort);
    for (uint32_t i = 0; i < words; i++)
        word[i] = atomic_load_explicit(&from[i], memory_order_acquire);
    if (atomic_load_explicit(&note->version, memory_order_relaxed) != version)
        return false;
    p->seen[sort] = version;
    *event = (struct wire_event){.kind = WIRE_EVENT_ANNOUNCED,
                                 .result = WIRE_NOTE,
                                 .peer = (int32_t)(p - c->peer),
                                 .tag = tag,
                                 .key = (key & ~UINT64_C(255)) | sort,
                                 .bytes = sort == WIRE_NOTE_LONG ? 8 * length : length,
                                 .note = word};
    return true;
}

uint32_t shmchan_note_advance(struct shmchan_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t epoch = atomic_load_explicit(c->shared_epoch, memory_order_acquire), n = 0;
    max = max < SHMCHAN_NOTES_PASS ? max : SHMCHAN_NOTES_PASS;
    for (uint32_t i = 0; i < c->size; i++) {
        for (uint32_t sort = 0; sort < WIRE_NOTE_SORTS && i != c->rank; sort++) {
            if (n == max)
                return n; /* the rest follows in the next pass, because the counter still differs */
            n += read_note(c, &c->peer[i], sort, c->note[n], &events[n]);
        }
    }
    c->epoch = epoch;
    return n;
}
