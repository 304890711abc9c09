/*
 * Matches receives and arrivals. A receive takes the oldest arrival that fits it. An arrival goes to the fitting receive that was posted
 * first, with or without wildcards. The second one of a pair is matched at once, so a receive and an arrival that fit each other never both
 * wait.
 *
 * Nodes of one peer and tag share a bucket, so the common case looks at one node, however many others wait. Receives with a wildcard are in
 * a separate list, and search the arrivals in order of arrival. This file does not know the wire.
 */
#ifndef MESSAGE_MATCH_H
#define MESSAGE_MATCH_H

#include "message/pool.h"

struct message_match {
    const struct comm_env *env;
    struct message_link *bucket; /* mask + 1 lists, in order of posting or arrival */
    uint32_t mask;
    uint64_t posts;
    struct message_link only;     /* the only bucket until there is memory for more */
    struct message_link wild;     /* receives with a wildcard, linked by `near` */
    struct message_link posted;   /* all receives, linked by `line` */
    struct message_link arrivals; /* all arrivals, linked by `line` */
};

void message_match_open(struct message_match *match, const struct comm_env *env);
void message_match_close(struct message_match *match);
/* Grows the table to as many buckets as there are nodes. Without memory, the lists only stay longer. */
void message_match_grow(struct message_match *match, uint32_t nodes);
/* Adds a receive (state POSTED) or an arrival (state EARLY or SELF). */
void message_match_add(struct message_match *match, struct message_node *node);
void message_match_remove(struct message_node *node);
/* They return NULL if none fits. peer and tag of an arrival are never wildcards. */
struct message_node *message_match_receive(const struct message_match *match, int32_t peer, uint32_t tag);
struct message_node *message_match_arrival(const struct message_match *match, int32_t peer, uint32_t tag);
struct message_node *message_match_oldest_posted(const struct message_match *match);
struct message_node *message_match_posted_slot(const struct message_match *match, uint32_t slot); /* walks the list; cancelling is rare */

#endif
