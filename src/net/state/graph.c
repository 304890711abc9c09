/* The state of links when not all of them are made at the world's opening (mesh/links.c has how and why): which peers are neighbours, and
 * which links are wanted. */
#include "net/state/graph.h"

static struct tcp_wire *wire_of(const struct tcp_link *link)
{
    return link->lane[0].port->wire;
}

bool tcp_is_base(const struct tcp_wire *w, int32_t peer)
{
    const struct tcp_graph *d = w->graph;
    bool is = false;

    for (uint32_t i = 0; i < d->steps; i++)
        is |= (w->rank + d->step[i]) % w->ranks == peer || (peer + d->step[i]) % w->ranks == w->rank;
    return is && peer != w->rank;
}

struct tcp_link *const *tcp_base_links(struct tcp_wire *w, uint32_t *count)
{
    struct tcp_graph *d = w->graph;

    for (uint32_t i = d->bases; i-- > 0;)
        if (d->base[i]->lane[TCP_BEAT].ended || d->base[i]->lane[TCP_LANE_SMALL].ended)
            d->base[i] = d->base[--d->bases];
    *count = d->bases;
    return d->base;
}

struct tcp_relay *tcp_relay_of(const struct tcp_wire *w)
{
    return w->graph ? w->graph->relay : NULL;
}

bool tcp_is_neighbour(const struct tcp_link *link)
{
    return link->lane[TCP_BEAT].fd >= 0 && link->lane[TCP_LANE_SMALL].fd >= 0;
}

bool tcp_stands(const struct tcp_link *link)
{
    return link->lane[TCP_LANE_SMALL].fd >= 0 && link->lane[TCP_LANE_BULK].fd >= 0 && (!link->wants_base || link->lane[TCP_BEAT].fd >= 0);
}

void tcp_want(struct tcp_link *link, bool base)
{
    struct tcp_wire *w = wire_of(link);
    struct tcp_graph *d = w->graph;

    if (!d || link->down || (link->wanted && (!base || link->wants_base)))
        return;
    link->wants_base |= base;
    if (tcp_stands(link))
        return;
    link->again_ns = 0;
    if (!link->wanted) {
        link->wanted = true;
        link->wanted_ns = w->env->now(w->env);
        d->want[d->wanting++] = link->peer;
    }
    w->env->bell_ring(w->env, w->watch);
}

/* A new link joins the base graph when it has both its heartbeat connection and its small lane. */
void tcp_add_neighbour(struct tcp_link *link)
{
    struct tcp_graph *d = wire_of(link)->graph;

    if (!d || link->neighbour || !tcp_is_neighbour(link))
        return;
    link->neighbour = true;
    d->base[d->bases++] = link;
}
