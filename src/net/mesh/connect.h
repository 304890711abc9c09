/*
 * mesh: how the connections of the tcp wire are made. What the wire needs of it; all but tcp_acceptor_hear under the wire's lock.
 */
#ifndef NET_MESH_CONNECT_H
#define NET_MESH_CONNECT_H

#include "net/lane/state.h"

/* While a world opens: COMM_OK, or an error whose text stands in config->error_text. tcp_mesh_here: all ranks are in this process. */
enum comm_result tcp_mesh(struct tcp_wire *w, const struct wire_config *config);
enum comm_result tcp_mesh_here(struct tcp_wire *w, const struct wire_config *config);

/* Where not all links are made when a world opens (links.c). make: before the mesh, if such links are wanted. */
enum comm_result tcp_acceptor_make(struct tcp_wire *w, const struct wire_config *config);
void tcp_acceptor_close(struct tcp_wire *w);
void tcp_acceptor_turn(struct tcp_wire *w, bool tick); /* the monitor's */
void tcp_acceptor_hear(struct tcp_wire *w);            /* the monitor's too, without the lock */
bool tcp_acceptor_busy(struct tcp_wire *w);            /* something that was sent waits for its link */
/* Others have told its end, and nothing of our own says otherwise. */
bool tcp_ends_as_told(struct tcp_wire *w, struct tcp_link *link, int64_t now);
bool tcp_has_said_all(const struct tcp_wire *w, const struct tcp_link *link, int64_t now); /* of a link whose connection has ended */
void tcp_link_lost(struct tcp_wire *w, struct tcp_link *link);                             /* it has just gone down */

#endif
