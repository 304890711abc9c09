/*
 * Which receive gets which arrival. A receive takes the oldest arrival that fits it; an arrival goes to the receive that fits it and was
 * posted first, whether it names its peer and tag or leaves them open. As whoever comes second is matched at once, a receive and an arrival
 * that fit each other never wait both.
 *
 * Those of one peer and tag share a bucket, so the common case looks at one node whatever else waits. Receives with a wildcard stand in a
 * list of their own, and look through the arrivals in the order in which they came. The wire is not known here.
 */
#ifndef MESSAGE_MATCH_H
#define MESSAGE_MATCH_H

#include "message/pool.h"

struct message_match {
    const struct comm_env *env;
    struct message_link *bucket; /* mask + 1 lists, in order of posting or arrival */
    uint32_t mask;
    uint64_t posts;
    struct message_link only;     /* the one bucket before there is memory for more */
    struct message_link wild;     /* receives with a wildcard, by `near` */
    struct message_link posted;   /* all receives, by `line` */
    struct message_link arrivals; /* all arrivals, by `line` */
};

void message_match_open(struct message_match *match, const struct comm_env *env);
void message_match_close(struct message_match *match);
/* As many buckets as nodes; without memory for them the lists stay longer, no more. */
void message_match_grow(struct message_match *match, uint32_t nodes);
/* POSTED, or else EARLY or SELF, by its state. */
void message_match_add(struct message_match *match, struct message_node *node);
void message_match_remove(struct message_node *node);
/* NULL: none waits. peer and tag of an arrival are never wildcards. */
struct message_node *message_match_receive(const struct message_match *match, int32_t peer, uint32_t tag);
struct message_node *message_match_arrival(const struct message_match *match, int32_t peer, uint32_t tag);
struct message_node *message_match_oldest_posted(const struct message_match *match);
struct message_node *message_match_posted_slot(const struct message_match *match, uint32_t slot); /* walks; cancelling is rare */

#endif
