/* What a rank says in an agreement of a failed communicator (failure/recover.c): it is checked where all notes are (heard.c). */
#ifndef COMM_RECOVERY_NOTE_H
#define COMM_RECOVERY_NOTE_H

#include "wire/wire.h"

enum { RECOVERY_SETS = 3, RECOVERY_SET_WORDS = 16, RECOVERY_RANKS = 64 * RECOVERY_SET_WORDS };
enum recovery_set { SET_DEAD, SET_VALUE, SET_LAST };

/* Sets are bits by rank of the communicator. */
struct recovery_note {
    uint32_t instance; /* the newest agreement that its rank has entered, from 1 */
    uint32_t offered;  /* the agreement after which `offer` was made; 0: none yet */
    uint32_t accepted; /* 1 + the coordinator whose proposal its rank took last; 0: none in this agreement */
    int32_t could;     /* the result of making its part of what is offered */
    uint32_t kind;     /* enum recovery_stage: of this agreement */
    uint32_t decided;
    int32_t left; /* 0, or with which result its rank left: it takes part in nothing more */
    uint32_t reserved;
    uint64_t flags, value, last; /* its own; what it accepted; what the agreement before this one came to */
    uint8_t offer[WIRE_OFFER_BYTES];
    uint64_t set[]; /* enum recovery_set: whom it takes for dead; of what it accepted; of the agreement before */
};
_Static_assert(sizeof(struct recovery_note) + sizeof(uint64_t) * RECOVERY_SETS * RECOVERY_SET_WORDS <= WIRE_NOTE_LONG_BYTES,
               "it is a note");

enum recovery_stage { RECOVERY_IDLE, RECOVERY_AGREE, RECOVERY_SET, RECOVERY_READY, RECOVERY_OFFERS };

static inline uint32_t recovery_words(int32_t size)
{
    return ((uint32_t)size + 63) / 64;
}
static inline size_t recovery_note_bytes(int32_t size)
{
    return sizeof(struct recovery_note) + sizeof(uint64_t) * RECOVERY_SETS * recovery_words(size);
}

#endif
