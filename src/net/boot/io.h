/* Frames and descriptors over nonblocking sockets, with the deadline of the world's opening. */
#ifndef NET_BOOT_IO_H
#define NET_BOOT_IO_H

#include "wire/boot.h"

enum {
    BOOT_MAGIC = 0x434d4254,
    BOOT_TEXT = 240,
    BOOT_FDS_PACKET = 252,     /* the kernel's SCM_MAX_FD is 253 */
    BOOT_GRACE_NS = 500000000, /* rank 0 names the missing ranks; the others wait this much longer for its text */
};
enum frame_kind { FRAME_WELCOME = 1, FRAME_REFUSED, FRAME_DATA, FRAME_FDS, FRAME_ACK };

struct frame {
    uint32_t magic, kind;
    int32_t result; /* in REFUSED: a comm_result; its text follows */
    uint32_t count;
    uint64_t bytes; /* length of the payload that follows */
};
enum io { IO_OK = 0, IO_LATE, IO_GONE };

/* Formats the text into the opener's buffer, and returns the result. */
enum comm_result boot_fail(const struct boot_config *c, enum comm_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int boot_remaining_ms(const struct boot_config *c); /* the longest wait before the caller checks again; 0: the deadline has passed, or the
                                                       outer meeting is over */
bool boot_again(void);                              /* whether errno is not an error but a reason to retry */
enum io boot_wait_for(const struct boot_config *c, int fd, short events);
enum io boot_send_all(const struct boot_config *c, int fd, const void *bytes, size_t count);
enum io boot_receive_all(const struct boot_config *c, int fd, void *bytes, size_t count);
enum io boot_send_frame(const struct boot_config *c, int fd, uint32_t kind, const void *bytes, size_t count);
/* Does not block, since the receiver may be blocked itself. */
void boot_send_refusal(int fd, enum comm_result result, const char *text);
enum io boot_send_fds(const struct boot_config *c, int fd, const int *fds, uint32_t count);
/* Receives exactly `count` descriptors with one frame; otherwise returns GONE and closes all that came. */
enum io boot_receive_fds(const struct boot_config *c, int fd, struct frame *frame, int *fds, uint32_t count);

#endif
