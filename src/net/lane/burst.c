/* Bursts: frames that are sent in a row leave together, because a packet costs as much as a hundred frames in it. */
#include "net/lane/lane.h"

#include <sys/timerfd.h>

static void set_timer(const struct tcp_wire *w, long ns)
{
    struct itimerspec until = {.it_value = {.tv_nsec = ns}};

    timerfd_settime(w->burst.timer, 0, &until, NULL);
}

/* Sets a timer, because something is held back. To set and cancel a timer costs as much as three packets if a hypervisor owns the clock. So
 * for a caller that ends row after row itself, the timer is set far ahead, and set again only when it comes near. */
static void guard(struct tcp_wire *w, int64_t now)
{
    if (w->burst.rows_ended < TCP_ROWS_ENDED) {
        w->burst.guard_ns = 0;
        set_timer(w, TCP_HOLD_NS);
    } else if (w->burst.guard_ns - now < TCP_GUARD_NS / 2) {
        w->burst.guard_ns = now + TCP_GUARD_NS;
        set_timer(w, TCP_GUARD_NS);
    }
}

/* Continues the row, or ends it if its last send was too long ago. */
void tcp_burst_goes_on(struct tcp_wire *w)
{
    int64_t now = w->env->now(w->env);

    if (now - w->burst.row_ns > TCP_ROW_GAP_NS) {
        w->burst.row = 0;
        w->burst.rows_long = w->burst.held ? 0 : w->burst.rows_long;
    }
    if (now - w->burst.row_ns > TCP_ROWS_GAP_NS)
        w->burst.rows_ended = w->burst.rows_long = 0;
    w->burst.row_ns = now;
}

void tcp_burst_sent(struct tcp_wire *w)
{
    w->burst.row_ns = w->env->now(w->env);
}

/*
 * A packet costs as much as a hundred frames in it. So if a caller sends several times in a row without looking into the library, the first
 * sends leave at once and the rest together: when a thread polls, when a thread goes to sleep, or when the timer wakes the monitor,
 * whichever is first.
 *
 * Two sends are not yet a row. A caller that waits for each operation also makes two sends if a peer was ahead, and the timer costs more
 * than a packet. Sends with time between them are no row either, so a thread that sends now and then and never looks (as in answers to a
 * sleeping event loop) is not delayed. After many long rows that the caller itself ended at once, the next row is held from its first send
 * on. A short row ends this.
 */
void tcp_hold_or_send(struct tcp_wire *w)
{
    tcp_burst_goes_on(w);
    bool hold = (w->burst.row >= (w->burst.messages ? TCP_ROW_MESSAGES : TCP_ROW) || w->burst.rows_long == TCP_ROWS_ENDED) && !w->armed;

    for (const struct tcp_lane *lane = w->dirty; lane && hold; lane = lane->next_dirty)
        hold = lane->lane == TCP_LANE_SMALL && !tcp_backed_up(lane);
    if (hold) {
        if (!w->burst.held)
            guard(w, w->burst.row_ns);
        w->burst.waits++;
        w->burst.held = true;
        return;
    }
    w->burst.row++;
    w->burst.messages = false;
    tcp_send_dirty(w);
    tcp_submit(w);
    tcp_burst_sent(w);
}

void tcp_unhold(struct tcp_wire *w)
{
    w->burst.row = 0;
    w->burst.messages = false;
    if (!w->burst.held)
        return;
    w->burst.held = false;
    w->burst.rows_long = w->burst.waits < TCP_ROW_LONG ? 0 : w->burst.rows_long < TCP_ROWS_ENDED ? w->burst.rows_long + 1 : TCP_ROWS_ENDED;
    w->burst.waits = 0;
    if (w->burst.rows_ended < TCP_ROWS_ENDED) {
        w->burst.rows_ended++;
        set_timer(w, 0);
    }
    tcp_send_dirty(w);
}
