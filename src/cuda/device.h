/*
 * One CUDA device of this process: its context, and places on its streams. A place has a CUDA event, by which streams wait for it, and a
 * word in pinned memory, by which the host sees it: the stream itself writes the word behind the event (a stream memory operation), so
 * looking is a load and costs no CUDA call. Where the device lacks those operations, `poll` asks the events and writes the words.
 *
 * Only streams of this room's own ever park on a word that the host writes; the caller's streams wait for events alone. The pinned memory,
 * the events and the streams are made when the device is first opened or a slot is first used, and kept.
 */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "base/lock.h"
#include "cuda/load.h"
#include "wire/device.h"

enum {
    CUDA_DEVICES = 64,
    CUDA_SLOTS = 1024, /* places that are not reached yet, per device */
    CUDA_PARKS = 4,    /* streams that may stand still at once: each may hold a hardware queue, and there are 8 by default */
    CUDA_WORDS = 1024, /* of channels, behind those of the slots */
};

/* What a process has once. */
struct cuda {
    struct base_lock lock; /* of everything here, and of opening and closing devices */
    const struct comm_env *env;
    struct cuda_calls calls;
    struct nccl_calls nccl;
    bool has_driver, has_nccl;
    int devices, nccl_version;
    struct nccl_id id; /* of no communicator yet, with has_id */
    bool has_id;
    struct nccl *left;                                  /* worlds with communicators whose end did not come in time */
    _Atomic(struct cuda_device *) device[CUDA_DEVICES]; /* changed under the lock */
};
extern struct cuda cuda_process;

struct cuda_slot {
    struct CUevent_st *event;
    uint64_t value;   /* of the place it holds, or held last */
    uint32_t next;    /* in the list of free or of pending ones: 1 + index, 0: none */
    uint32_t gives;   /* a word that is free again with this place; 0: none */
    bool host_writes; /* the word is the host's to write: a park */
};

struct cuda_device {
    struct device head;
    const struct comm_env *env;
    const struct cuda_calls *calls;
    struct base_lock lock; /* the issue lock: of everything put on streams of this device by this library */
    uint32_t references;   /* under the process's lock; at 0 it goes once nothing on any stream may still write its words */
    int32_t ordinal;
    struct CUctx_st *context;
    bool memops;
    _Atomic uint64_t *words;  /* CUDA_SLOTS of places, CUDA_WORDS of channels, CUDA_PARKS, pinned */
    cuda_address words_there; /* as the device sees them */
    cuda_address scratch;     /* a few bytes: what a barrier adds up */
    struct cuda_slot slot[CUDA_SLOTS];
    uint32_t free, free_last, pending_first, pending_last; /* lists of slots, by 1 + index; 0: none */
    uint64_t word_taken[CUDA_WORDS / 64];                  /* in a channel's hands, or lost: a stream may still write it */
    _Atomic uint32_t pending;
    struct CUstream_st *park[CUDA_PARKS];
    bool recount[CUDA_PARKS];
    uint64_t parks[CUDA_PARKS]; /* put on each; the stream counts in its word those that it got behind */
    struct cuda_copies {
        struct CUstream_st *stream; /* made at the first copy of this way */
        uint32_t word;              /* in which the stream counts; 0: it cannot, and places are of slots */
        uint64_t begun;
    } copies[DEVICE_WAYS];
    const void *known[64]; /* memory of this device: asking the driver is not free */
};

extern const struct device_class device_cuda;

/* Loads what is missing yet. with_nccl: that too. */
enum comm_result cuda_load(const struct comm_env *env, bool with_nccl, char *why, size_t why_bytes);
/* Makes the device's context current for this thread, and its calls harmless to a capture elsewhere; false: CUDA refused, and nothing
 * is to be left. */
struct cuda_inside {
    unsigned mode;
};
bool cuda_enter(struct cuda_device *d, struct cuda_inside *inside);
void cuda_leave(struct cuda_device *d, const struct cuda_inside *inside);
/* Enters and takes the lock; false: neither. */
bool cuda_begin(struct cuda_device *d, struct cuda_inside *inside);
void cuda_end(struct cuda_device *d, const struct cuda_inside *inside);
/* The device of a stream, begun, where the stream may take calls and is not being captured; NULL: *r says why not. */
struct cuda_device *cuda_begin_on(struct device *device, struct CUstream_st *stream, struct cuda_inside *inside, enum comm_result *r);
/* copy.c: of the class */
enum comm_result cuda_move(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                           struct device_place *place);
void cuda_hold(struct device *device);
void *cuda_take(struct device *device, size_t bytes);
void cuda_give(struct device *device, void *memory);
enum comm_result cuda_put(struct device *device, struct CUstream_st *stream, void *to, const void *from, size_t bytes);
/* With the device entered and its lock held. */
enum comm_result cuda_place(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place);
enum comm_result cuda_wait(struct cuda_device *d, struct CUstream_st *stream, const struct device_place *place);
enum comm_result cuda_park(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place);
/* The stream waits until the device's `word` is at least value, which another stream, or the host in its place, writes. */
enum comm_result cuda_wait_word(struct cuda_device *d, struct CUstream_st *stream, uint32_t word, uint64_t value);
/* A word of a channel's own: its index in `words`, 0: none is left. What it holds already stays: values go on from there. */
uint32_t cuda_take_word(struct cuda_device *d);
void cuda_give_word(struct cuda_device *d, uint32_t word);
/* Once everything that is on the stream now is done. With the device entered. */
enum comm_result cuda_give_word_behind(struct cuda_device *d, uint32_t word, struct CUstream_st *stream);
static inline cuda_address cuda_word_there(const struct cuda_device *d, uint32_t word)
{
    return d->words_there + word * sizeof *d->words;
}
/* Whose memory it is: a device's ordinal, or one of these. With the device entered. */
enum { CUDA_OWNER_HOST = -1, CUDA_OWNER_UNKNOWN = -2 };
int32_t cuda_owner(struct cuda_device *d, const void *pointer);
enum device_kind cuda_kind(struct cuda_device *d, const void *pointer);
/* Looks at places; true: something on a stream may still touch a word. */
bool cuda_poll(struct cuda_device *d);
enum comm_result cuda_result(unsigned result); /* OK, MEMORY, UNSUPPORTED or BACKEND */

#endif
