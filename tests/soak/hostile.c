/*
 * hostile: a rank that joins normally and then sends what no correct rank sends. The linker redirects every header that the library in this
 * process encodes, and all notes, announcements and grants that it posts, to this file. Once the rank is hostile, some are sent with
 * another kind, edge, key, length or channel, with other contents, or twice. Their checksums and numbers are correct, and they are sealed
 * if the wire is. So the other ranks meet them during their collectives, messages and windows.
 */
#include "soak/soak.h"

#include "conform/oracle.h"
#include "net/lane/lane.h"

#include <string.h>

void __real_frame_encode(const struct frame *frame, unsigned char head[FRAME_HEAD]);
void __wrap_frame_encode(const struct frame *frame, unsigned char head[FRAME_HEAD]);

bool __real_tcp_post(struct tcp_channel *c, uint32_t peer, enum frame_kind kind, wire_key key, uint32_t tag, const void *bytes,
                     size_t count);
bool __wrap_tcp_post(struct tcp_channel *c, uint32_t peer, enum frame_kind kind, wire_key key, uint32_t tag, const void *bytes,
                     size_t count);

static _Atomic uint64_t turned; /* 0: the rank is correct */

void soak_turn_hostile(uint64_t seed)
{
    atomic_store(&turned, seed | 1);
}

static uint64_t next(void)
{
    uint64_t state = atomic_load(&turned), value = oracle_random(&state);
    atomic_store(&turned, state ? state : 1); /* threads may draw the same value: it is random nevertheless */
    return value;
}

static uint32_t near_bound(void)
{
    static const uint32_t bounds[] = {0, 1, 8, 32, 33, 64, 512, 513, 4096, 4160, 4161, 16384, 16385, 65536, 65537, 1 << 20, UINT32_MAX};
    return bounds[next() % (sizeof bounds / sizeof *bounds)];
}

static void change(struct frame *f)
{
    switch (next() % 9) {
    case 0:
        f->kind = (uint8_t)(1 + next() % (FRAME_KINDS - 1));
        break;
    case 1:
        f->edge = (uint8_t)next();
        break;
    case 2:
        f->edge ^= (uint8_t)(1u << next() % 8);
        break;
    case 3:
        f->from = (uint16_t)(next() % 5);
        break;
    case 4:
        f->channel = (uint32_t)(next() % 8);
        break;
    case 5:
        f->key ^= UINT64_C(1) << next() % 64;
        break;
    case 6:
        f->key += next() % 5 - 2;
        break;
    case 7:
        f->tag = next() % 2 ? near_bound() : f->tag ^ 1u << next() % 32;
        break;
    default:
        f->bytes = next() % 2 ? near_bound() : f->bytes + (uint32_t)(next() % 130) - 65;
    }
}

void __wrap_frame_encode(const struct frame *frame, unsigned char head[FRAME_HEAD])
{
    struct frame f = *frame;

    if (atomic_load(&turned) && next() % 6 == 0)
        change(&f);
    __real_frame_encode(&f, head);
}

/* Changes one word: to a value near some bound, or to any value. */
static void change_payload(unsigned char *at, size_t count)
{
    uint64_t words[] = {0, 1, UINT32_MAX, UINT64_MAX, INT64_MAX, (uint64_t)INT64_MAX + 1, next(), next() % 64, near_bound()};
    uint64_t word = words[next() % (sizeof words / sizeof *words)];
    size_t width = next() % 2 ? 4 : 8, place = count < width ? 0 : next() % (count / 4) * 4;

    if (place + width > count)
        width = count - place < 4 ? count - place : 4;
    memcpy(at + place, &word, width);
}

bool __wrap_tcp_post(struct tcp_channel *c, uint32_t peer, enum frame_kind kind, wire_key key, uint32_t tag, const void *bytes,
                     size_t count)
{
    unsigned char changed[FRAME_CONTROL_MAX];
    bool here = atomic_load(&turned) && count <= sizeof changed;
    uint64_t what = here ? next() % 12 : 12;

    if (what < 2 && count) {
        memcpy(changed, bytes, count);
        change_payload(changed, count);
        bytes = changed;
    } else if (what == 2) {
        (void)!__real_tcp_post(c, peer, kind, key, tag, bytes, count);
    } else if (what == 3 && !count) {
        memset(changed, (int)next(), 64);
        bytes = changed;
        count = next() % 64;
    }
    return __real_tcp_post(c, peer, kind, key, tag, bytes, count);
}
