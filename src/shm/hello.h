/* hello: what must be equal in two processes before one may read the other's memory. All ranks exchange it, and the error names the first
 * difference. */
#ifndef SHM_HELLO_H
#define SHM_HELLO_H

#include "wire/wire.h"

enum { SHM_ABI = 5, SHM_HELLO_TEXT = 128 };
struct shm_hello {
    uint64_t magic, host_id, segment_bytes, limits;
    uint32_t abi, endian, float_mode, page, pid, line_bytes, head_bytes, call_bytes, note_bytes, inlet_bytes;
    int32_t result; /* of preparing this rank's segment; if it failed, text has the reason */
    uint32_t light; /* whether this rank's env has the barrier. It may differ: if one rank has none, all ranks use fences */
    char text[SHM_HELLO_TEXT];
};

void shm_hello_fill(struct shm_hello *hello, const struct comm_env *env, size_t segment_bytes);
/* Returns COMM_OK, or text names the first failure or difference. */
enum comm_result shm_hello_check(const struct shm_hello *all, int32_t ranks, char *text, size_t text_bytes);

#endif
