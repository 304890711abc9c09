/* The table of buckets grows by doubling. Bucket b of the larger table gets nodes only from bucket b & old mask, so each list keeps its
 * order. */
#include "message/match.h"

#include "base/check.h"
#include "base/hash.h"

#define NODE_NEAR(link) ((struct message_node *)(void *)((char *)(link)-offsetof(struct message_node, near)))
#define NODE_LINE(link) ((struct message_node *)(void *)((char *)(link)-offsetof(struct message_node, line)))

static void list_clear(struct message_link *list)
{
    list->next = list->before = list;
}

static void list_append(struct message_link *list, struct message_link *link)
{
    link->next = list;
    link->before = list->before;
    list->before->next = link;
    list->before = link;
}

static void list_remove(struct message_link *link)
{
    link->before->next = link->next;
    link->next->before = link->before;
}

static bool is_wild(int32_t peer, uint32_t tag)
{
    return peer == COMM_ANY_PEER || tag == COMM_ANY_TAG;
}

/* Does a receive for peer and tag accept a message from rank `from` with tag `with`? */
static bool fits(int32_t peer, uint32_t tag, int32_t from, uint32_t with)
{
    return (peer == COMM_ANY_PEER || peer == from) && (tag == COMM_ANY_TAG || tag == with);
}

static struct message_link *bucket_of(const struct message_match *match, int32_t peer, uint32_t tag)
{
    return &match->bucket[base_mix((uint64_t)(uint32_t)peer << 32 | tag) & match->mask];
}

/* The oldest node of this peer and tag. All such nodes are receives, or all are arrivals: a fitting pair never waits. */
static struct message_node *first_of(const struct message_match *match, int32_t peer, uint32_t tag)
{
    const struct message_link *list = bucket_of(match, peer, tag);
    for (struct message_link *link = list->next; link != list; link = link->next) {
        struct message_node *node = NODE_NEAR(link);
        if (node->peer == peer && node->tag == tag)
            return node;
    }
    return NULL;
}

void message_match_open(struct message_match *match, const struct comm_env *env)
{
    match->env = env;
    match->bucket = &match->only;
    match->mask = 0;
    match->posts = 0;
    list_clear(&match->only);
    list_clear(&match->wild);
    list_clear(&match->posted);
    list_clear(&match->arrivals);
}

static void give_buckets(struct message_match *match)
{
    if (match->bucket != &match->only)
        match->env->give(match->env, match->bucket, (match->mask + (size_t)1) * sizeof *match->bucket);
}

void message_match_close(struct message_match *match)
{
    give_buckets(match);
    match->bucket = NULL;
}

void message_match_grow(struct message_match *match, uint32_t nodes)
{
    size_t wanted = (size_t)match->mask + 1;
    while (wanted < nodes)
        wanted *= 2;
    if (wanted == (size_t)match->mask + 1)
        return;
    struct message_link *bucket = match->env->take(match->env, wanted * sizeof *bucket, _Alignof(struct message_link));
    if (!bucket)
        return;
    struct message_match old = *match;
    match->bucket = bucket;
    match->mask = (uint32_t)(wanted - 1);
    for (size_t i = 0; i < wanted; i++)
        list_clear(&bucket[i]);
    struct message_link *from = old.bucket == &match->only ? &match->only : old.bucket;
    for (size_t i = 0; i <= old.mask; i++) {
        while (from[i].next != &from[i]) {
            struct message_node *node = NODE_NEAR(from[i].next);
            list_remove(&node->near);
            list_append(bucket_of(match, node->peer, node->tag), &node->near);
        }
    }
    if (from != &match->only)
        match->env->give(match->env, from, ((size_t)old.mask + 1) * sizeof *from);
}

void message_match_add(struct message_match *match, struct message_node *node)
{
    bool receive = node->state == MESSAGE_POSTED;
    BASE_DEBUG_ASSERT(receive || node->state == MESSAGE_EARLY || node->state == MESSAGE_SELF);
    node->order = match->posts++;
    list_append(receive && is_wild(node->peer, node->tag) ? &match->wild : bucket_of(match, node->peer, node->tag), &node->near);
    list_append(receive ? &match->posted : &match->arrivals, &node->line);
}

void message_match_remove(struct message_node *node)
{
    list_remove(&node->near);
    list_remove(&node->line);
}

struct message_node *message_match_receive(const struct message_match *match, int32_t peer, uint32_t tag)
{
    struct message_node *named = first_of(match, peer, tag);
    if (named && named->state != MESSAGE_POSTED)
        return NULL; /* older messages of this peer and tag still wait, so no receive that accepts them is waiting */
    for (struct message_link *link = match->wild.next; link != &match->wild; link = link->next) {
        struct message_node *open = NODE_NEAR(link);
        if (named && named->order < open->order)
            break;
        if (fits(open->peer, open->tag, peer, tag))
            return open;
    }
    return named;
}

struct message_node *message_match_arrival(const struct message_match *match, int32_t peer, uint32_t tag)
{
    if (!is_wild(peer, tag)) {
        struct message_node *node = first_of(match, peer, tag);
        return node && node->state != MESSAGE_POSTED ? node : NULL;
    }
    for (struct message_link *link = match->arrivals.next; link != &match->arrivals; link = link->next) {
        struct message_node *node = NODE_LINE(link);
        if (fits(peer, tag, node->peer, node->tag))
            return node;
    }
    return NULL;
}

struct message_node *message_match_oldest_posted(const struct message_match *match)
{
    return match->posted.next == &match->posted ? NULL : NODE_LINE(match->posted.next);
}

struct message_node *message_match_posted_slot(const struct message_match *match, uint32_t slot)
{
    for (struct message_link *link = match->posted.next; link != &match->posted; link = link->next) {
        struct message_node *node = NODE_LINE(link);
        if (node->slot == slot)
            return node;
    }
    return NULL;
}
