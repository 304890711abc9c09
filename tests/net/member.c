#define _GNU_SOURCE
#include "net/member.h"

#include "conform/rig.h"
#include "comm/state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 10000 };

void member_take(struct member *m, struct comm_communicator *world, int32_t victim)
{
    struct comm_state *b = atomic_load_explicit(&world->state, memory_order_relaxed);

    *m = (struct member){.c = tcp_of(b->channel), .victim = (uint32_t)victim};
    m->lane = m->c->member[victim].lane;
    struct tcp_wire *w = m->c->wire;
    for (bool still = false; !still; rig_nap(RIG_MS)) {
        base_lock(&w->lock, w->env);
        still = true;
        for (int k = 0; k < TCP_LANES; k++) {
            const struct tcp_lane *lane = &m->lane[k];
            still &= !lane->in_body && !lane->pad && lane->begin == lane->end && !lane->out && !lane->sending && !lane->ended;
        }
        if (!still)
            base_unlock(&w->lock, w->env);
    }
}

static bool send_all(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;

    while (count) {
        ssize_t n = send(fd, at, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (poll(&wait, 1, PATIENCE_MS) != 1)
                return false;
            continue;
        }
        if (n <= 0)
            return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

bool member_begin(struct member *m, uint32_t which, struct frame f, const void *payload, uint32_t given)
{
    struct tcp_lane *lane = &m->lane[which];
    unsigned char *all = calloc(1, FRAME_LINE + (size_t)given);
    uint32_t at = frame_payload_at(f.bytes);

    CHECK(all != NULL);
    f.from = (uint16_t)m->c->rank;
    f.channel = f.kind == FRAME_GOODBYE || f.kind == FRAME_PASS ? 0 : m->c->member[m->victim].channel;
    f.number = lane->out_number++;
    frame_encode(&f, all);
    if (given)
        memcpy(all + at, payload, given);
    bool sent = send_all(lane->fd, all, at + given);
    free(all);
    return sent;
}

bool member_finish(struct member *m, uint32_t which, const struct frame *f, const void *rest, uint32_t given)
{
    static const char zeros[FRAME_LINE];
    uint32_t pad = frame_span(f->bytes) - frame_payload_at(f->bytes) - f->bytes;

    return send_all(m->lane[which].fd, rest, f->bytes - given) && send_all(m->lane[which].fd, zeros, pad);
}

bool member_say(struct member *m, uint32_t which, struct frame f, const void *payload)
{
    return member_begin(m, which, f, payload, f.bytes) && member_finish(m, which, &f, "", f.bytes);
}

/* False: the connection has ended, or nothing came for a long time. */
static bool receive_all(int fd, void *bytes, size_t count)
{
    char *at = bytes;

    while (count) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ssize_t n = recv(fd, at, count, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (poll(&wait, 1, PATIENCE_MS) != 1)
                return false;
            continue;
        }
        if (n <= 0)
            return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

bool member_hear(struct member *m, uint32_t which, enum frame_kind kind, struct frame *f, void *payload, size_t room)
{
    static unsigned char all[FRAME_LINE + FRAME_PAYLOAD_MAX + FRAME_LINE];
    struct tcp_lane *lane = &m->lane[which];

    for (;;) {
        if (!receive_all(lane->fd, all, FRAME_LINE))
            return false;
        EQUAL(frame_decode(all, lane->in_number++, f), FRAME_SOUND);
        if (!receive_all(lane->fd, all + FRAME_LINE, frame_span(f->bytes) - FRAME_LINE))
            return false;
        if (f->kind == (uint8_t)kind)
            break;
    }
    if (f->bytes && payload)
        memcpy(payload, all + frame_payload_at(f->bytes), f->bytes < room ? f->bytes : room);
    return true;
}

bool member_is_refused(struct member *m, uint32_t which)
{
    char bytes[4096];
    int64_t until = rig_now() + 10 * RIG_S;

    while (rig_now() < until) {
        struct pollfd wait = {.fd = m->lane[which].fd, .events = POLLIN};
        ssize_t n = recv(wait.fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return true;
        if (n < 0)
            (void)poll(&wait, 1, 100);
    }
    return false;
}
