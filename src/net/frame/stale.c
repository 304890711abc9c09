/* Decides which frames are stale, that is, arrive after the channel or operation they refer to has ended. Pure. */
#include "net/frame/stale.h"

/* Numbers wrap, so the sign of the difference decides. */
static bool reached(uint32_t at, uint32_t wanted)
{
    return (int32_t)(at - wanted) >= 0;
}

uint32_t stale_name(uint32_t count, uint32_t place)
{
    return count << 16 | place;
}

uint32_t stale_place(uint32_t name)
{
    return name & 0xffff;
}

bool stale_is_for(uint32_t said, uint32_t name)
{
    return said == name;
}

bool stale_is_member(uint32_t from, uint32_t size, const int32_t *world, int32_t peer)
{
    return from < size && world[from] == peer;
}

bool stale_is_done(uint32_t retired, wire_key key)
{
    return reached(retired, wire_key_seq(key));
}

uint32_t stale_retired(uint32_t known, uint32_t told)
{
    return reached(told, known) ? told : known;
}

wire_key stale_ack(wire_key known, uint32_t retired, wire_key told)
{
    uint32_t seq = wire_key_seq(told);

    if (reached(retired, seq) || (wire_key_seq(known) == seq && wire_key_round(known) > wire_key_round(told)))
        return known;
    return told;
}
