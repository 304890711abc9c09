/* Sends and receives whole frames, or returns why it could not. Every received descriptor is either passed on or closed. */
#define _GNU_SOURCE
#include "net/boot/io.h"

#include "base/format.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_NS INT64_C(1000000000)
#define LOOK_NS INT64_C(50000000) /* between two checks of the outer meeting */

enum comm_result boot_fail(const struct boot_config *c, enum comm_result result, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    base_format_list(c->error_text, c->error_text_bytes, format, list);
    va_end(list);
    return result;
}

int boot_remaining_ms(const struct boot_config *c)
{
    const struct wire_boot *outer = c->outer;
    int64_t deadline = c->deadline, most = outer ? LOOK_NS : WAIT_NS;

    if (outer && outer->class->is_over && outer->class->is_over(c->outer))
        return 0;
    if (c->rank && deadline < INT64_MAX - BOOT_GRACE_NS)
        deadline += BOOT_GRACE_NS;
    int64_t left = deadline - c->env->now(c->env);
    if (left <= 0)
        return 0;
    return left > most ? (int)(most / 1000000) : (int)(left / 1000000) + 1;
}

enum io boot_wait_for(const struct boot_config *c, int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        int ms = boot_remaining_ms(c), n = poll(&p, 1, ms);
        if (n > 0)
            return IO_OK;
        if (!ms)
            return IO_LATE;
    }
}

bool boot_again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

enum io boot_send_all(const struct boot_config *c, int fd, const void *bytes, size_t count)
{
    for (const char *at = bytes; count;) {
        ssize_t n = send(fd, at, count, MSG_NOSIGNAL);
        if (n < 0 && !boot_again())
            return IO_GONE;
        if (n < 0) {
            enum io io = boot_wait_for(c, fd, POLLOUT);
            if (io != IO_OK)
                return io;
            continue;
        }
        at += n;
        count -= (size_t)n;
    }
    return IO_OK;
}

enum io boot_receive_all(const struct boot_config *c, int fd, void *bytes, size_t count)
{
    for (char *at = bytes; count;) {
        ssize_t n = recv(fd, at, count, 0);
        if (!n || (n < 0 && !boot_again()))
            return IO_GONE;
        if (n < 0) {
            enum io io = boot_wait_for(c, fd, POLLIN);
            if (io != IO_OK)
                return io;
            continue;
        }
        at += n;
        count -= (size_t)n;
    }
    return IO_OK;
}

enum io boot_send_frame(const struct boot_config *c, int fd, uint32_t kind, const void *bytes, size_t count)
{
    struct frame frame = {.magic = BOOT_MAGIC, .kind = kind, .bytes = count};
    enum io io = boot_send_all(c, fd, &frame, sizeof frame);
    return io == IO_OK ? boot_send_all(c, fd, bytes, count) : io;
}

/* Does not block, since the receiver may be blocked itself. */
void boot_send_refusal(int fd, enum comm_result result, const char *text)
{
    char packet[sizeof(struct frame) + BOOT_TEXT];
    size_t length = strlen(text) < BOOT_TEXT - 1 ? strlen(text) : BOOT_TEXT - 1;
    struct frame frame = {.magic = BOOT_MAGIC, .kind = FRAME_REFUSED, .result = result, .bytes = length};
    memcpy(packet, &frame, sizeof frame);
    memcpy(packet + sizeof frame, text, length);
    if (send(fd, packet, sizeof frame + length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the peer is gone and will notice it */
}

union control {
    char bytes[CMSG_SPACE(BOOT_FDS_PACKET * sizeof(int))];
    struct cmsghdr align;
};

enum io boot_send_fds(const struct boot_config *c, int fd, const int *fds, uint32_t count)
{
    union control control;
    struct frame frame = {.magic = BOOT_MAGIC, .kind = FRAME_FDS, .count = count};
    struct iovec bytes = {&frame, sizeof frame};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    memset(&control, 0, sizeof control);
    struct cmsghdr *control_head = CMSG_FIRSTHDR(&message);
    control_head->cmsg_level = SOL_SOCKET;
    control_head->cmsg_type = SCM_RIGHTS;
    control_head->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(control_head), fds, count * sizeof(int));
    for (;;) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n == (ssize_t)sizeof frame)
            return IO_OK;
        if (n >= 0 || !boot_again()) /* the rest of a partly sent frame cannot follow without the descriptors */
            return IO_GONE;
        enum io io = boot_wait_for(c, fd, POLLOUT);
        if (io != IO_OK)
            return io;
    }
}

/* Receives exactly `count` descriptors with one frame. A refusal may come instead; *frame then has its header, and the caller reads the
 * rest. */
enum io boot_receive_fds(const struct boot_config *c, int fd, struct frame *frame, int *fds, uint32_t count)
{
    union control control;
    struct iovec bytes = {frame, sizeof *frame};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n;
    while ((n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0) {
        if (!boot_again())
            return IO_GONE;
        enum io io = boot_wait_for(c, fd, POLLIN);
        if (io != IO_OK)
            return io;
    }
    struct cmsghdr *control_head = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    uint32_t got =
        control_head && control_head->cmsg_type == SCM_RIGHTS ? (uint32_t)((control_head->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
    bool whole = n == (ssize_t)sizeof *frame && got == count && !(message.msg_flags & MSG_CTRUNC) && frame->magic == BOOT_MAGIC;
    if (whole && count != 0)
        memcpy(fds, CMSG_DATA(control_head), count * sizeof(int));
    for (uint32_t i = 0; i < got && !whole; i++) {
        int extra;
        memcpy(&extra, CMSG_DATA(control_head) + i * sizeof(int), sizeof extra);
        close(extra);
    }
    return whole ? IO_OK : IO_GONE;
}
