/*
 * One CUDA device of this process: its context, and places on its streams. A place has a CUDA event, which streams wait for, and a word in
 * pinned memory, which the host reads. The stream writes the word after the event with a stream memory operation. So the host checks a
 * place with one load and no CUDA call. If the device lacks stream memory operations, `poll` queries the events and writes the words.
 *
 * Only streams that this room created wait for a word that the host writes. The caller's streams wait only for events. The pinned memory is
 * allocated when the device is opened, an event or a stream at its first use. All are kept until the device is closed.
 */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "base/lock.h"
#include "cuda/load.h"
#include "wire/device.h"

enum {
    CUDA_DEVICES = 64,
    CUDA_SLOTS = 1024, /* places not yet reached, per device */
    CUDA_PARKS = 4,    /* streams that may block at once: each may block a hardware queue, and there are 8 by default */
    CUDA_WORDS = 1024, /* words for channels, after the words of the slots */
    CUDA_SCRATCH_BYTES = 256,
    CUDA_COUNTERS_BYTES = 64,
};
enum { CUDA_UNLOADED, CUDA_LOADING, CUDA_LOADED };

/* The state of the process, shared by all devices. */
struct cuda {
    struct base_lock lock; /* protects this struct, and opening and closing devices */
    const struct comm_env *env;
    struct cuda_calls calls;
    struct nccl_calls nccl;
    bool has_driver, has_nccl;
    int devices, nccl_version;
    struct nccl_id id; /* if has_id: an id that no communicator uses yet */
    bool has_id;
    struct nccl *left;                                  /* worlds with communicators that did not end in time */
    _Atomic(struct cuda_device *) device[CUDA_DEVICES]; /* changed under the lock */
};
extern struct cuda cuda_process;

struct cuda_slot {
    struct CUevent_st *event;
    uint64_t value;   /* of its current or last place */
    uint32_t next;    /* in the free or the pending list: 1 + index, or 0 at the end. Slots from `used` on are in neither */
    uint32_t gives;   /* a word to free when this place is reached, or 0 */
    bool host_writes; /* the host writes the word: a park waits for it */
};

/* A stream of the library that waits in place of others until a word has a value. Its waits end in order. */
struct cuda_park {
    struct CUstream_st *stream; /* created at the first wait */
    struct CUevent_st *event;   /* recorded behind each wait: a stream that waits for it waits for the record of that moment */
    uint64_t waits;             /* put on the stream, which writes the number that it has passed to its word */
    uint32_t gate;              /* the gate whose waits it has, or has had; 0: another kind of wait */
    bool kept;                  /* for that gate */
    bool recount;               /* the stream could not be told to write the number */
};

struct cuda_device {
    struct device head;
    const struct comm_env *env;
    const struct cuda_calls *calls;
    struct base_lock lock; /* the issue lock: held while this library puts work on streams of the device */
    uint32_t references;   /* under the process's lock; the last owner frees the device when no stream can still write its words */
    int32_t ordinal;
    struct CUctx_st *context;
    bool memops;
    _Atomic uint64_t *words;  /* pinned: CUDA_SLOTS for places, CUDA_WORDS for channels, CUDA_PARKS */
    cuda_address words_there; /* their device address */
    cuda_address scratch;     /* a few bytes, which a barrier sums; then counters for kernels, CUDA_COUNTERS_BYTES with each word */
    struct cuda_slot slot[CUDA_SLOTS];
    uint32_t free, free_last, pending_first, pending_last; /* lists of slots: 1 + index, or 0 */
    uint32_t used, spare, sweep_at;       /* slots that were ever used; of them on the free list; pending places at which to sweep next */
    uint64_t word_taken[CUDA_WORDS / 64]; /* used by a channel, or lost because a stream may still write it */
    _Atomic uint32_t pending;
    _Atomic int64_t rest_until; /* without memops: when the events should be queried again */
    struct cuda_park park[CUDA_PARKS];
    struct cuda_copies {
        struct CUstream_st *stream; /* created at the first copy in this direction */
        uint32_t word;              /* the stream counts copies here; 0: it cannot, and places use slots */
        uint64_t begun;
    } copies[DEVICE_WAYS];
    struct cuda_kernels {
        _Atomic uint32_t asked; /* CUDA_LOADING: by one thread, and others wait for it */
        struct CUmod_st *module;
        _Atomic(struct CUfunc_st *) fold;    /* NULL: the host does it */
        _Atomic(struct CUfunc_st *) oneshot; /* NULL: it is staged */
        _Atomic(struct CUfunc_st *) trial;
        _Atomic(struct CUfunc_st *) combine, combine_many; /* NULL: the host reduces */
    } kernels;
};

extern const struct device_class device_cuda;

/* device.c: functions of device_cuda. An open device is shared; each open has its own close. */
enum comm_result cuda_open(const struct device_config *config, struct device **device);
void cuda_close(struct device *device);
/* Loads the driver if it is not loaded yet, and with with_nccl also NCCL. */
enum comm_result cuda_load(const struct comm_env *env, bool with_nccl, char *why, size_t why_bytes);
/* Makes the device's context current for this thread, and selects the relaxed capture mode, so that its calls do not break a capture on
 * another thread. Returns false if CUDA refused; the caller must then not call cuda_leave. */
struct cuda_inside {
    unsigned mode;
};
bool cuda_enter(struct cuda_device *d, struct cuda_inside *inside);
void cuda_leave(struct cuda_device *d, const struct cuda_inside *inside);
/* Takes the lock and enters. On false it did neither. */
bool cuda_begin(struct cuda_device *d, struct cuda_inside *inside);
void cuda_end(struct cuda_device *d, const struct cuda_inside *inside);
/* Finds the device of a stream and begins on it. Returns NULL, with the reason in *r, if it has none or the stream is being captured. */
struct cuda_device *cuda_begin_on(struct device *device, struct CUstream_st *stream, struct cuda_inside *inside, enum comm_result *r);
/* copy.c: functions of device_cuda */
enum comm_result cuda_move(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                           struct device_place *place);
/* The same for pieces whose other end may be pinned memory too. */
enum comm_result cuda_move_whole(struct device *device, enum device_way way, const struct device_piece *pieces, uint32_t count,
                                 struct device_place *place);
/* A stream whose priority is by so much below the greatest, or the least. The caller has entered the device. */
unsigned cuda_make_stream(struct cuda_device *d, int below, struct CUstream_st **stream);
void cuda_hold(struct device *device);
void *cuda_take(struct device *device, size_t bytes);
void cuda_give(struct device *device, void *memory);
enum comm_result cuda_put(struct device *device, struct CUstream_st *stream, void *to, const void *from, size_t bytes);
/* The caller has entered the device and holds its lock. */
enum comm_result cuda_place(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place);
bool cuda_has_place(struct cuda_device *d);       /* false: cuda_place would return FULL */
bool cuda_has_parks(const struct cuda_device *d); /* a park stream waits for the host */
enum comm_result cuda_wait(struct cuda_device *d, struct CUstream_st *stream, const struct device_place *place);
enum comm_result cuda_park(struct cuda_device *d, struct CUstream_st *stream, struct device_place *place);
/* The stream waits until the device's `word` is at least value. Another stream, or the host instead of it, writes the word. */
enum comm_result cuda_wait_word(struct cuda_device *d, struct CUstream_st *stream, uint32_t word, uint64_t value);
/* The same for a gate: a word that only the host writes, and for which one stream waits, with larger and larger values. However many of
 * these waits are open, they take one of the parks. *counts: a park stream waits, so the host must write the value, after an error too.
 */
enum comm_result cuda_wait_gate(struct cuda_device *d, struct CUstream_st *stream, uint32_t gate, uint64_t value, bool *counts);
/* Between the two calls cuda_wait_gate is not FULL for this gate. False: all parks stand for others, and nothing is kept. */
bool cuda_keep_park(struct cuda_device *d, uint32_t gate);
void cuda_leave_park(struct cuda_device *d, uint32_t gate);
/* Takes a word for a channel. Returns its index in `words`, or 0 if none is left. The channel counts on from the word's present value. */
uint32_t cuda_take_word(struct cuda_device *d);
void cuda_give_word(struct cuda_device *d, uint32_t word);
/* Gives the word back when everything now on the stream is done. The caller has entered the device. */
enum comm_result cuda_give_word_behind(struct cuda_device *d, uint32_t word, struct CUstream_st *stream);
static inline cuda_address cuda_word_there(const struct cuda_device *d, uint32_t word)
{
    return d->words_there + word * sizeof *d->words;
}
/* Counters in memory of the device, which belong to whoever took the word. Their first values are not known. */
static inline cuda_address cuda_counters(const struct cuda_device *d, uint32_t word)
{
    return d->scratch + CUDA_SCRATCH_BYTES + (word - CUDA_SLOTS) * (cuda_address)CUDA_COUNTERS_BYTES;
}
/* capture.c: a stream of the program's, in which a channel works, and the graphs that hold the channel. The caller has entered the device,
 * except for cuda_has_stream, cuda_ask_capture and cuda_may_close. */
struct cuda_capture {
    uint64_t id;             /* of the newest capture whose graph holds the channel; 0: none */
    _Atomic uint32_t graphs; /* graphs that hold it; CUDA counts down */
};
bool cuda_is_capturing(struct cuda_device *d, struct CUstream_st *stream);
/* Whether the stream is being captured; then its graph holds the channel from now on. An error: what is put on it now cannot be captured,
 * with the reason in `why`. */
enum comm_result cuda_capture(struct cuda_device *d, struct CUstream_st *stream, struct cuda_capture *k, bool *captured, char *why,
                              size_t why_bytes);
/* The same for a caller that has not entered the device. It is entered only if need be. */
enum comm_result cuda_ask_capture(struct cuda_device *d, struct CUstream_st *stream, struct cuda_capture *k, bool *captured, char *why,
                                  size_t why_bytes);
/* STATE, with the reason in why: graphs still hold it. Waits a moment for those that the program has just destroyed. */
enum comm_result cuda_may_close(const struct comm_env *env, struct cuda_capture *k, char *why, size_t why_bytes);
/* Is it a stream of this device, which is the same one on all threads? If not, the log says so. */
bool cuda_has_stream(struct cuda_device *d, const struct base_log *log, const char *who, struct CUstream_st *stream);
/* Checks the pending places. Returns true if work on a stream may still write or read a word. */
bool cuda_poll(struct cuda_device *d);
/* A number that is the device's alone on this host. */
enum comm_result cuda_hardware(const struct cuda_calls *calls, int ordinal, uint64_t *hardware);
enum comm_result cuda_result(unsigned result); /* returns OK, MEMORY, UNSUPPORTED or BACKEND */

#endif
