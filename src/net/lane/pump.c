/* One look at all sockets: takes what was received, releases what was sent, and sends what became dirty. */
#include "net/lane/lane.h"

static struct tcp_lane *lane_of(const struct tcp_wire *w, uint32_t socket)
{
    return &w->links[socket / TCP_SOCKETS].lane[socket % TCP_SOCKETS];
}

void tcp_wake_monitor(struct tcp_wire *w)
{
    if (w->monitor.heeds && !w->monitor.came)
        w->env->bell_ring(w->env, &(struct env_bell){.ring_fd = w->monitor.heed, .wait_fd = -1});
    w->monitor.came = true;
}

/* A lane sends one piece at a time. So if the end of a collected send were not taken here, what is queued behind it would wait until
 * somebody looks. */
void tcp_submit(struct tcp_wire *w)
{
    struct poller_event events[32];
    uint32_t n = 1;

    for (int round = 0; w->poller->batch_least && n && round < TCP_ROUNDS; round++) {
        w->poller->class->submit(w->poller);
        n = w->poller->class->ends(w->poller, events, 32);
        for (uint32_t i = 0; i < n; i++)
            tcp_sent(lane_of(w, events[i].socket), events[i].result);
        if (w->dirty)
            tcp_send_dirty(w);
    }
}

uint32_t tcp_pump(struct tcp_wire *w, const uint32_t *hot, uint32_t hots)
{
    struct poller_event events[32];
    uint32_t all = 0, arrivals = w->arrivals;

    w->pumped = 0;
    tcp_unhold(w);
    for (int round = 0; round < TCP_ROUNDS && w->pumped < TCP_PUMP_BYTES; round++) {
        if (hot == w->hot) /* a waiter that got its frame in an earlier round no longer waits */
            hots = w->hots;
        if (hot == w->hot && !hots && round) /* no thread waits any more, so a look at all sockets would only delay what was received */
            break;
        uint32_t n = w->poller->class->reap(w->poller, events, 32, hot, hots);
        for (uint32_t i = 0; i < n; i++) {
            struct tcp_lane *lane = lane_of(w, events[i].socket);
            if (events[i].way == POLLER_RECEIVE)
                tcp_received(lane, events[i].result);
            else
                tcp_sent(lane, events[i].result);
        }
        if (w->dirty)
            tcp_send_dirty(w);
        all += n;
        w->dry = !n;
        if (!n || (hot && w->arrivals != arrivals))
            break;
    }
    tcp_submit(w); /* another thread's dirty lanes may have been sent here; its own flush will find nothing to do */
    if (all)
        tcp_wake_monitor(w);
    if (all && w->armed && !w->rung) { /* a sleeping thread may wait for what was just read here: data, or only a credit */
        w->rung = true;
        w->env->bell_ring(w->env, w->bell);
    }
    return all;
}

/* Does not read a peer again until all peers have sent something, or the others have nothing: in most programs each peer sends one frame in
 * turn. */
static void pump_missing(struct tcp_wire *w)
{
    uint32_t missing[TCP_FEW_BATCH], count = 0;

    for (uint32_t i = 0; i < w->fews; i++)
        if (lane_of(w, w->few[i])->in_number == w->few_number[i])
            missing[count++] = w->few[i];
    if (count && tcp_pump(w, missing, count))
        return;
    for (uint32_t i = 0; i < w->fews; i++)
        w->few_number[i] = lane_of(w, w->few[i])->in_number;
}

void tcp_pump_few(struct tcp_wire *w)
{
    if (w->poller->collects && w->fews <= TCP_FEW_BATCH)
        pump_missing(w);
    else
        tcp_pump(w, w->fews <= TCP_FEW ? w->few : NULL, w->fews);
}

void tcp_hear(struct tcp_channel *c, uint32_t peer)
{
    tcp_pump(c->wire, &c->member[peer].lane[TCP_LANE_SMALL].socket, 1);
}
