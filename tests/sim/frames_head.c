/* The header of a frame, as bytes: written and read by the codec of the network backend. Separate from frames.h,
 * because both have a struct frame. */
#include "sim/frames_head.h"

#include "net/frame/frame.h"

_Static_assert((int)FRAMES_HEAD == (int)FRAME_HEAD, "the codec's");

static const uint8_t kinds[HEAD_KINDS] = {[HEAD_BYTES] = FRAME_EXPOSE, [HEAD_ACK] = FRAME_ACK,     [HEAD_RETIRED] = FRAME_RETIRED,
                                          [HEAD_NOTE] = FRAME_NOTE,    [HEAD_EAGER] = FRAME_EAGER, [HEAD_ANNOUNCE] = FRAME_ANNOUNCE,
                                          [HEAD_GRANT] = FRAME_GRANT,  [HEAD_DATA] = FRAME_DATA,   [HEAD_CONSUMED] = FRAME_CONSUMED};

/* Only the length is the simulator's: a payload may be longer than the codec allows, and for two kinds it is an
 * eight-byte number. */
static uint32_t length_of(const struct head_said *said)
{
    if (said->kind == HEAD_ANNOUNCE || said->kind == HEAD_GRANT)
        return 8;
    return said->bytes < FRAME_PAYLOAD_MAX ? (uint32_t)said->bytes : FRAME_PAYLOAD_MAX;
}

void head_write(const struct head_said *said, unsigned char head[FRAMES_HEAD])
{
    struct frame f = {.kind = kinds[said->kind],
                      .edge = (uint8_t)said->edge,
                      .from = (uint16_t)said->from,
                      .channel = said->channel,
                      .key = said->key,
                      .tag = said->tag,
                      .bytes = length_of(said),
                      .number = said->number};

    frame_encode(&f, head);
}

bool head_read(const unsigned char head[FRAMES_HEAD], uint32_t number, struct head_said *said)
{
    struct frame f;

    if (frame_decode(head, number, &f) != FRAME_SOUND)
        return false;
    *said = (struct head_said){
        .edge = f.edge, .from = f.from, .channel = f.channel, .tag = f.tag, .number = f.number, .key = f.key, .bytes = f.bytes};
    while (kinds[said->kind] != f.kind)
        said->kind++;
    return true;
}
