#define _GNU_SOURCE
#include "cuda/post.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FAMILY_BYTES = offsetof(struct sockaddr_un, sun_path), NAME_BYTES = 6 /* a zero, and five digits that Linux chooses */ };
_Static_assert((int)NAME_BYTES <= (int)CUDA_POST_NAME_BYTES, "an offer has room for it");

union control { /* aligned as a header is */
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

bool cuda_post_open(const struct comm_env *env, struct cuda_post *post)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof name;

    post->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (post->socket < 0)
        return false;
    if (bind(post->socket, (struct sockaddr *)&name, FAMILY_BYTES) == 0 &&
        getsockname(post->socket, (struct sockaddr *)&name, &bytes) == 0 && bytes == (socklen_t)FAMILY_BYTES + NAME_BYTES) {
        memcpy(post->name, name.sun_path, NAME_BYTES);
        env->own(env, post->socket, true);
        return true;
    }
    close(post->socket);
    post->socket = -1;
    return false;
}

void cuda_post_close(const struct comm_env *env, struct cuda_post *post)
{
    if (post->socket < 0)
        return;
    env->own(env, post->socket, false);
    close(post->socket);
    post->socket = -1;
}

enum cuda_posted cuda_post_send(const struct cuda_post *post, const char to[CUDA_POST_NAME_BYTES], const struct cuda_letter *letter,
                                int descriptor)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct cuda_letter copy = *letter;
    struct iovec piece = {&copy, sizeof copy};
    union control control = {0};
    struct msghdr message = {.msg_name = &name,
                             .msg_namelen = (socklen_t)FAMILY_BYTES + NAME_BYTES,
                             .msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    memcpy(name.sun_path, to, NAME_BYTES);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (sendmsg(post->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof copy)
        return CUDA_POSTED;
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? CUDA_POST_FULL : CUDA_POST_FAILED;
}

/* There is room for one descriptor: the system closes any others. */
bool cuda_post_take(const struct cuda_post *post, struct cuda_letter *letter, int *descriptor)
{
    struct iovec piece = {letter, sizeof *letter};
    union control control;
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof *descriptor)};
    ssize_t got = recvmsg(post->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = got < 0 ? NULL : CMSG_FIRSTHDR(&message);

    *descriptor = -1;
    if (got < 0)
        return false;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof *descriptor))
        memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
    if (*descriptor >= 0 && (got != (ssize_t)sizeof *letter || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        close(*descriptor);
        *descriptor = -1;
    }
    return true;
}
