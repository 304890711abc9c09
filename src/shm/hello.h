/* hello: what two processes must have alike before one may read the other's words: asked of all, and the first difference refused by name.
 */
#ifndef SHM_HELLO_H
#define SHM_HELLO_H

#include "wire/wire.h"

enum { SHM_ABI = 4, SHM_HELLO_TEXT = 128 };
struct shm_hello {
    uint64_t magic, host_id, segment_bytes, limits;
    uint32_t abi, endian, float_mode, page, pid, line_bytes, head_bytes, call_bytes, note_bytes, inlet_bytes;
    int32_t result; /* of making what this rank brings; its text follows */
    uint32_t light; /* this rank's env has the barrier; need not be alike: where one has none, all fence */
    char text[SHM_HELLO_TEXT];
};

void shm_hello_fill(struct shm_hello *hello, const struct comm_env *env, size_t segment_bytes);
/* COMM_OK, or the first rank's failure or difference, in text. */
enum comm_result shm_hello_check(const struct shm_hello *all, int32_t ranks, char *text, size_t text_bytes);

#endif
