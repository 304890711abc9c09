/*
 * Gives a file descriptor to another process of the host. Each process has a datagram socket with an abstract name, which the system
 * chooses, and tells the name to its peers. Nothing here blocks. Anybody on the host may send to such a socket: a letter says its
 * receiver's secret.
 */
#ifndef CUDA_POST_H
#define CUDA_POST_H

#include "base/env.h"

#include <stdbool.h>
#include <stdint.h>

enum { CUDA_POST_NAME_BYTES = 8 };
struct cuda_post {
    int32_t socket; /* -1: none */
    char name[CUDA_POST_NAME_BYTES];
};
struct cuda_letter {
    uint64_t secret; /* the receiver's */
    uint64_t bytes;
    int32_t from, unused;
};

bool cuda_post_open(const struct comm_env *env, struct cuda_post *post);
void cuda_post_close(const struct comm_env *env, struct cuda_post *post);
enum cuda_posted { CUDA_POSTED, CUDA_POST_FULL /* try again */, CUDA_POST_FAILED };
enum cuda_posted cuda_post_send(const struct cuda_post *post, const char to[CUDA_POST_NAME_BYTES], const struct cuda_letter *letter,
                                int descriptor);
/* False: there is no letter. The caller closes the descriptor; -1: the letter has none, or is not one. */
bool cuda_post_take(const struct cuda_post *post, struct cuda_letter *letter, int *descriptor);

#endif
