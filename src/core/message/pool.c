/* Block b has FIRST << b nodes, so the block of an index is given by the highest set bit of index + FIRST. */
#include "message/pool.h"

#include "base/check.h"

_Static_assert((MESSAGE_POOL_FIRST_NODES & (MESSAGE_POOL_FIRST_NODES - 1)) == 0, "a power of two");
_Static_assert((uint64_t)MESSAGE_POOL_FIRST_NODES << MESSAGE_POOL_BLOCKS_MAX <= MESSAGE_COOKIE, "an index fits beside the cookie's bit");

static size_t block_bytes(uint32_t block)
{
    return ((size_t)MESSAGE_POOL_FIRST_NODES << block) * sizeof(struct message_node);
}

static bool add_block(struct message_pool *pool)
{
    if (pool->blocks == MESSAGE_POOL_BLOCKS_MAX)
        return false;
    struct message_node *block = pool->env->take(pool->env, block_bytes(pool->blocks), _Alignof(struct message_node));
    if (!block)
        return false;
    uint32_t count = (uint32_t)MESSAGE_POOL_FIRST_NODES << pool->blocks;
    for (uint32_t i = count; i-- > 0;) {
        block[i].index = pool->nodes + i;
        block[i].next = pool->free;
        pool->free = &block[i];
    }
    pool->block[pool->blocks++] = block;
    pool->nodes += count;
    return true;
}

struct message_node *message_pool_take(struct message_pool *pool)
{
    if (BASE_UNLIKELY(!pool->free) && !add_block(pool))
        return NULL;
    struct message_node *node = pool->free;
    pool->free = node->next;
    node->next = NULL;
    return node;
}

void message_pool_give(struct message_pool *pool, struct message_node *node)
{
    BASE_ASSERT(node->state != MESSAGE_FREE);
    node->state = MESSAGE_FREE;
    node->generation++;
    node->next = pool->free;
    pool->free = node;
}

struct message_node *message_pool_at(const struct message_pool *pool, uint32_t index)
{
    uint32_t place = index + MESSAGE_POOL_FIRST_NODES;
    uint32_t block = (uint32_t)__builtin_clz(MESSAGE_POOL_FIRST_NODES) - (uint32_t)__builtin_clz(place);
    return &pool->block[block][place - ((uint32_t)MESSAGE_POOL_FIRST_NODES << block)];
}

void message_pool_close(struct message_pool *pool)
{
    while (pool->blocks > 0) {
        pool->blocks--;
        pool->env->give(pool->env, pool->block[pool->blocks], block_bytes(pool->blocks));
    }
}
