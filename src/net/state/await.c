/* The sockets on which threads wait for a frame. The poller tries them first. */
#include "net/state/await.h"

static void await_on(struct tcp_wire *w, struct tcp_lane *lane, bool on)
{
    lane->looks += on ? 1 : UINT32_MAX;
    if (on && lane->looks == 1 && lane->fd >= 0) {
        w->hot[w->hots++] = lane->socket;
        lane->hot = w->hots;
    } else if (!lane->looks && lane->hot) {
        uint32_t last = w->hot[--w->hots];
        w->hot[lane->hot - 1] = last;
        w->links[last / TCP_SOCKETS].lane[last % TCP_SOCKETS].hot = lane->hot;
        lane->hot = 0;
    }
}

/* A thread that waits for bulk data also waits on the small lane: the acknowledgements there permit this rank's own sends. */
void tcp_await(struct tcp_channel *c, uint32_t peer, uint32_t which, bool on)
{
    for (uint32_t lane = 0; lane <= which; lane++)
        await_on(c->wire, &c->member[peer].lane[lane], on);
}
