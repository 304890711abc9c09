/* Fills and compares the hellos of all ranks. */
#define _GNU_SOURCE
#include "shm/hello.h"

#include "base/format.h"
#include "base/hash.h"
#include "base/result.h"
#include "data/data.h"
#include "channel/shmchan.h"

#include <string.h>
#include <unistd.h>

#define SHM_MAGIC UINT64_C(0x636f6d6d73686d31)

void shm_hello_fill(struct shm_hello *hello, const struct comm_env *env, size_t segment_bytes)
{
    struct env_identity who;
    env->identity(env, &who);
    *hello = (struct shm_hello){.magic = SHM_MAGIC,
                                .host_id = who.host_id,
                                .segment_bytes = segment_bytes,
                                .abi = SHM_ABI,
                                .endian = 0x01020304,
                                .float_mode = data_float_mode(),
                                .page = (uint32_t)sysconf(_SC_PAGESIZE),
                                .pid = (uint32_t)getpid(),
                                .line_bytes = sizeof(struct shmchan_line),
                                .head_bytes = sizeof(struct shmchan_head),
                                .call_bytes = sizeof(struct wire_call),
                                .note_bytes = sizeof(struct shmchan_note),
                                .inlet_bytes = sizeof(struct shmchan_inlet)};
    const uint32_t limits[] = {
        SHMCHAN_INLINE,      SHMCHAN_BRIEF_PLACES,  SHMCHAN_BRIEF_BYTES,   SHMCHAN_SPARE_PLACES, SHMCHAN_SPARE_BYTES, SHMCHAN_LONG_PLACES,
        SHMCHAN_AREAS,       SHMCHAN_CREDITS,       SHMCHAN_CREDITS_LEAST, SHMCHAN_EDGE_BYTES,   SHMCHAN_PLACE_BYTES, SHMCHAN_WINDOW,
        SHMCHAN_EAGER_SLOTS, SHMCHAN_EAGER_LEAST,   SHMCHAN_EAGER_ALL,     SHMCHAN_EAGER_BYTES,  SHMCHAN_CHUNKS,      SHMCHAN_GRANTS,
        SHMCHAN_WINDOWS,     SHMCHAN_AHEAD_WINDOWS, SHMCHAN_AHEAD_PLACES,  SHMCHAN_CHUNK_BYTES};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        hello->limits = base_hash(hello->limits, limits[i]);
}

struct field {
    const char *name;
    size_t at, bytes;
};
#define FIELD(name, text)                                                                                                                  \
    {                                                                                                                                      \
        text, offsetof(struct shm_hello, name), sizeof(((struct shm_hello *)0)->name)                                                      \
    }
static const struct field fields[] = {
    FIELD(magic, "protocol"),
    FIELD(abi, "version of the shared memory protocol"),
    FIELD(endian, "byte order"),
    FIELD(host_id, "host: shared memory joins the processes of one host"),
    FIELD(page, "page size"),
    FIELD(segment_bytes, "segment size"),
    FIELD(line_bytes, "size of a line"),
    FIELD(head_bytes, "size of a channel's head"),
    FIELD(call_bytes, "size of a published call"),
    FIELD(note_bytes, "size of a note"),
    FIELD(inlet_bytes, "size of a message inlet"),
    FIELD(limits, "set of built-in limits"),
    FIELD(float_mode, "floating-point mode (rounding, flush to zero)"),
};

static uint64_t value_of(const struct shm_hello *hello, const struct field *field)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    memcpy(field->bytes == 8 ? (void *)&wide : (void *)&narrow, (const char *)hello + field->at, field->bytes);
    return wide | narrow;
}

enum comm_result shm_hello_check(const struct shm_hello *all, int32_t ranks, char *text, size_t text_bytes)
{
    for (int32_t i = 0; i < ranks; i++) {
        if (all[i].magic == SHM_MAGIC && all[i].result != COMM_OK) {
            base_format(text, text_bytes, "rank %d: %.*s", i, SHM_HELLO_TEXT - 1, all[i].text);
            return base_result_told(all[i].result);
        }
    }
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        for (int32_t i = 1; i < ranks; i++) {
            uint64_t here = value_of(&all[i], &fields[f]), first = value_of(&all[0], &fields[f]);
            if (here == first)
                continue;
            base_format(text, text_bytes, "rank %d and rank 0 differ in their %s: %llx, %llx", i, fields[f].name, (unsigned long long)here,
                        (unsigned long long)first);
            return COMM_ERR_CONFIG;
        }
    }
    return COMM_OK;
}
