/* What a rank sends in an agreement on a failed communicator (failure/recover.c). It is validated like all notes (heard.c). */
#ifndef COMM_RECOVERY_NOTE_H
#define COMM_RECOVERY_NOTE_H

#include "wire/wire.h"

enum { RECOVERY_SETS = 3, RECOVERY_SET_WORDS = 16, RECOVERY_RANKS = 64 * RECOVERY_SET_WORDS };
enum recovery_set { SET_DEAD, SET_VALUE, SET_LAST };

/* Sets have one bit per rank of the communicator. */
struct recovery_note {
    uint32_t instance; /* the newest agreement that its rank has entered, counted from 1 */
    uint32_t offered;  /* the agreement after which `offer` was written; 0: none yet */
    uint32_t accepted; /* 1 + the coordinator of the proposal that its rank accepted last; 0: none in this agreement */
    int32_t could;     /* result of creating its part of the offer */
    uint32_t kind;     /* enum recovery_stage of this agreement */
    uint32_t decided;
    int32_t left; /* 0, or the result with which its rank left; after that it takes no more part */
    uint32_t reserved;
    uint64_t flags, value, last; /* its own flags; the value that it accepted; the result of the previous agreement */
    uint8_t offer[WIRE_OFFER_BYTES];
    uint64_t set[]; /* enum recovery_set: ranks it considers dead; the accepted set; the set of the previous agreement */
};
_Static_assert(sizeof(struct recovery_note) + sizeof(uint64_t) * RECOVERY_SETS * RECOVERY_SET_WORDS <= WIRE_NOTE_LONG_BYTES,
               "it is a note");

/* Those up to JOINED are agreements; in the others a rank waits for what it needs before it enters the next one. */
enum recovery_stage { RECOVERY_IDLE, RECOVERY_AGREE, RECOVERY_SET, RECOVERY_READY, RECOVERY_JOINED, RECOVERY_OFFERS, RECOVERY_JOINING };

static inline uint32_t recovery_words(int32_t size)
{
    return ((uint32_t)size + 63) / 64;
}
static inline size_t recovery_note_bytes(int32_t size)
{
    return sizeof(struct recovery_note) + sizeof(uint64_t) * RECOVERY_SETS * recovery_words(size);
}

#endif
