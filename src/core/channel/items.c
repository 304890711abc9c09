/* The table of a channel's messages between their announcement and their end, by side, peer and number. */
#include "channel/shmchan.h"

#include <string.h>

static inline uint32_t bucket_of(const struct shmchan_channel *c, uint64_t name)
{
    uint64_t mixed = (name ^ name >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32) & (c->items.room - 1);
}

/* Doubles the table. Happens only when more messages than ever before are between announcement and delivery. */
static bool grow_items(struct shmchan_channel *c)
{
    const struct comm_env *env = c->host->env;
    uint32_t old = c->items.room, more = old ? 2 * old : 64;
    struct shmchan_item *item = env->take(env, more * sizeof *item, 64);
    uint32_t *bucket = env->take(env, more * sizeof *bucket, 64);
    if (!item || !bucket) {
        env_give_back(env, item, more * sizeof *item);
        env_give_back(env, bucket, more * sizeof *bucket);
        return false;
    }
    if (old) {
        memcpy(item, c->items.item, old * sizeof *item);
        env->give(env, c->items.item, old * sizeof *item);
        env->give(env, c->items.bucket, old * sizeof *bucket);
    }
    c->items.room = more;
    c->items.item = item;
    c->items.bucket = bucket;
    for (uint32_t i = 1; i < old; i++) {
        uint32_t *head = &bucket[bucket_of(c, item[i].name)];
        item[i].next = *head;
        *head = i;
    }
    c->items.free = 0;
    for (uint32_t i = more - 1; i >= (old ? old : 1); i--) {
        item[i].next = c->items.free;
        c->items.free = i;
    }
    return true;
}

struct shmchan_item *shmchan_item_new(struct shmchan_channel *c, uint64_t name)
{
    if (!c->items.free && !grow_items(c))
        return NULL;
    uint32_t i = c->items.free;
    struct shmchan_item *item = &c->items.item[i];
    c->items.free = item->next;
    uint32_t *head = &c->items.bucket[bucket_of(c, name)];
    item->name = name;
    item->done = 0;
    item->next = *head;
    *head = i;
    return item;
}

uint32_t shmchan_item_find(const struct shmchan_channel *c, uint64_t name)
{
    uint32_t i = c->items.room ? c->items.bucket[bucket_of(c, name)] : 0;
    while (i && c->items.item[i].name != name)
        i = c->items.item[i].next;
    BASE_ASSERT(i);
    return i;
}

void shmchan_item_drop(struct shmchan_channel *c, uint32_t index)
{
    uint32_t *link = &c->items.bucket[bucket_of(c, c->items.item[index].name)];
    while (*link != index)
        link = &c->items.item[*link].next;
    *link = c->items.item[index].next;
    c->items.item[index].next = c->items.free;
    c->items.free = index;
}

void shmchan_items_forget(struct shmchan_channel *c)
{
    if (!c->items.room)
        return;
    c->host->env->give(c->host->env, c->items.item, c->items.room * sizeof *c->items.item);
    c->host->env->give(c->host->env, c->items.bucket, c->items.room * sizeof *c->items.bucket);
    c->items.room = c->items.free = 0;
}
