/*
 * A sent frame may come again after its time: a frame of a communicator that its receiver has closed since, or that has
 * failed there; of room that was released; or of an operation that is over. It comes as the next frame of its stream,
 * so only its contents can reveal it, and it must have no effect. Or bytes come with their old frame number: a
 * connection does not survive that. Which frames are past their time is decided here from what happened, not by the
 * code that must detect them.
 */
#include "sim/frames.h"

#include "net/frame/stale.h"

#include <string.h>

static struct frames_wire *newest[SIM_RANKS_MAX];

void frames_stale_reset(void)
{
    memset(newest, 0, sizeof newest);
}

void frames_stale_wire(struct frames_wire *w)
{
    w->older = newest[w->port->rank];
    newest[w->port->rank] = w;
}

static struct frame *copy(const struct frame *f)
{
    struct frame *kept = frame_make(f->from, f->to, f->kind, f->key, f->data, f->bytes);

    kept->tag = f->tag;
    kept->edge = f->edge;
    kept->total = f->total;
    kept->begin = f->begin;
    kept->again = true;
    memcpy(kept->head, f->head, sizeof kept->head);
    return kept;
}

void frames_keep(const struct frame *f)
{
    struct frames_channel *c = f->from;
    struct frame **place = &c->kept[c->keeps % FRAMES_KEPT];

    if (!sim.keeps || f->again || f->bytes > FRAMES_KEPT_BYTES)
        return;
    if (*place)
        frame_free(*place);
    *place = copy(f);
    c->keeps++;
}

/* ------------------------------------------------------------------------------------------------------------ which may come */
static bool reached(uint32_t at, uint32_t wanted)
{
    return (int32_t)(at - wanted) >= 0;
}

static bool has_had_its_time(const struct frame *f)
{
    const struct frames_channel *to = f->from->peer[f->to].channel;

    if (to->closed || f->kind == FRAME_ACK || f->kind == FRAME_RETIRED)
        return true;
    if (f->kind == FRAME_NOTE) /* only the newest counts, and a connection keeps their order */
        return false;
    return to->aborted || (f->kind == FRAME_BYTES && reached(to->retired, wire_key_seq(f->key)));
}

/* From the rarest kind to the one that always exists. */
enum choice { OTHERS_PLACE, GONE, ANY, CHOICES };

static bool may_come(const struct frame *f, const struct sim_fault *fault, enum choice choice)
{
    const struct frames_channel *to = f->from->peer[f->to].channel;
    int32_t a = fault->victim, b = to->wire->port->rank;

    if (frames_net_broken(a, b) || sim.member[b].dead || sim.member[b].ended)
        return false;
    if (fault->kind == SIM_REPLAY)
        return b == fault->peer && sim_host_of(a) != sim_host_of(b);
    if (choice == ANY)
        return b == fault->peer && has_had_its_time(f);
    return to->closed && (choice == GONE || to->wire->channel[stale_place(to->name)]);
}

/* The `which`-th frame that may come again. NULL: there are fewer; *which is reduced by their number. */
static struct frame *find(const struct sim_fault *fault, enum choice choice, uint32_t *which)
{
    for (struct frames_wire *w = newest[fault->victim]; w; w = w->older)
        for (struct frames_channel *c = w->newest; c; c = c->before)
            for (uint32_t i = 0; i < FRAMES_KEPT && c->kept[i]; i++)
                if (may_come(c->kept[i], fault, choice) && !(*which)--)
                    return c->kept[i];
    return NULL;
}

static struct frame *choose(const struct sim_fault *fault, enum choice choice, uint32_t turn)
{
    uint32_t rest = UINT32_MAX, which;

    find(fault, choice, &rest);
    if (rest == UINT32_MAX)
        return NULL;
    which = (fault->amount + turn) % (UINT32_MAX - rest);
    return find(fault, choice, &which);
}

/* Frames of communicators that are gone come first, because there are few. */
bool frames_come_again(const struct sim_fault *fault)
{
    bool late = fault->kind == SIM_STALE;
    uint32_t came = 0;

    for (uint32_t turn = 0; turn < (late ? FRAMES_AGAIN : 1); turn++) {
        struct frame *f = NULL;
        for (enum choice choice = late && turn ? OTHERS_PLACE : ANY; choice < CHOICES && !f; choice++)
            f = choose(fault, choice, turn);
        if (!f)
            continue;
        frame_launch(copy(f), late);
        came++;
        if (late)
            SIM_PROBE("frames: something comes late, and again");
    }
    return came != 0;
}
