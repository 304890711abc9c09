/*
 * Slots in memory of devices. Each rank here has one piece of such memory, made when the world opens, which peers map at the first
 * communicator that they share with it. Between processes it goes by letters (cuda/post.h), one to each peer. Mappings are kept until the
 * world closes, when no kernel of this process runs any more; memory that is freed stays while peers still have it mapped.
 */
#include "cuda/kernels.h"
#include "cuda/oneshot/oneshot.h"

#include <unistd.h>

enum { SHARED_BYTES = 2 << 20, MOST = SHARED_BYTES / ONESHOT_BOX_BYTES, LETTERS = 64, LONGEST = 64 << 20 };

/* ------------------------------------------------------------------------------------------------------------ the own memory */
/* Without it, or where peers cannot be given it, nothing is offered. */
void oneshot_share_slots(struct oneshot *n, int32_t rank)
{
    struct cuda_device *d = n->device[rank];
    struct cuda_inside inside;

    if (n->rank >= 0 && n->post.socket < 0 && (n->env->random(n->env, &n->secret, sizeof n->secret) || !cuda_post_open(n->env, &n->post)))
        return;
    if (!cuda_enter(d, &inside))
        return;
    if (cuda_can_try(d) && cuda_can_share(d))
        (void)cuda_share_make(d, SHARED_BYTES, &n->shared[rank].memory);
    cuda_leave(d, &inside);
}

uint32_t oneshot_take_slots(struct oneshot *n, int32_t rank)
{
    struct oneshot_shared *shared = &n->shared[rank];

    base_lock(&n->lock, n->env);
    uint32_t slots = shared->memory.at && shared->used < MOST ? ++shared->used : 0;
    base_unlock(&n->lock, n->env);
    return slots;
}

void oneshot_free_slots(struct oneshot *n)
{
    struct cuda_inside inside;

    for (struct oneshot_map *m = n->maps, *next; m; m = next) {
        next = m->next;
        if (m->at && cuda_enter(m->by, &inside)) {
            cuda_share_unmap(m->by, m->at, m->bytes);
            cuda_leave(m->by, &inside);
        }
        n->env->give(n->env, m, sizeof *m);
    }
    n->maps = NULL;
    for (int32_t i = 0; n->shared && n->device && i < n->here; i++) {
        if (!n->shared[i].memory.at || !cuda_enter(n->device[i], &inside))
            continue;
        cuda_share_free(n->device[i], &n->shared[i].memory);
        cuda_leave(n->device[i], &inside);
    }
    cuda_post_close(n->env, &n->post);
}

/* ------------------------------------------------------------------------------------------------------------ that of peers */
static struct oneshot_map *find(const struct oneshot *n, const struct cuda_device *by, int32_t rank)
{
    struct oneshot_map *m = n->maps;

    while (m && (m->by != by || m->rank != rank))
        m = m->next;
    return m;
}

/* descriptor -1: the owner is in this process. */
static struct oneshot_map *map(struct oneshot *n, struct cuda_device *by, int32_t rank, size_t bytes, int descriptor)
{
    struct oneshot_map *m = n->env->take(n->env, sizeof *m, 64);
    struct cuda_inside inside;

    if (!m)
        return NULL;
    *m = (struct oneshot_map){.next = n->maps, .by = by, .rank = rank, .bytes = bytes};
    n->maps = m;
    if (!cuda_enter(by, &inside))
        return m;
    unsigned result = descriptor < 0 ? cuda_share_map(by, n->shared[rank].memory.memory, bytes, &m->at)
                                     : cuda_share_import(by, descriptor, bytes, &m->at);
    if (result != CUDA_OK)
        m->at = 0;
    cuda_leave(by, &inside);
    return m;
}

/* Letters may come before this rank joins the communicator that they are for. */
static void take_letters(struct oneshot *n)
{
    struct cuda_letter letter;
    int descriptor;

    for (uint32_t i = 0; i < LETTERS && cuda_post_take(&n->post, &letter, &descriptor); i++) {
        bool sound = descriptor >= 0 && letter.secret == n->secret && letter.from >= 0 && letter.from < n->ranks &&
                     letter.bytes >= SHARED_BYTES && letter.bytes <= LONGEST;
        if (sound && !find(n, n->device[0], letter.from))
            (void)map(n, n->device[0], letter.from, (size_t)letter.bytes, descriptor);
        if (descriptor >= 0)
            close(descriptor);
    }
}

/* False: the peer cannot be given this rank's memory. */
static bool send(struct oneshot_channel *c, const struct oneshot_offer *to, int32_t rank)
{
    struct oneshot *n = c->owner;
    const struct cuda_share *mine = &n->shared[0].memory;
    struct cuda_letter letter = {.secret = to->secret, .bytes = mine->bytes, .from = n->rank};
    enum cuda_posted posted = CUDA_POST_FAILED;
    struct cuda_inside inside;
    int descriptor = -1;

    if (n->sent[rank])
        return true;
    if (!cuda_enter(c->d, &inside))
        return false;
    if (cuda_share_export(c->d, mine, &descriptor) == CUDA_OK) {
        posted = cuda_post_send(&n->post, to->post, &letter, descriptor);
        close(descriptor);
    }
    cuda_leave(c->d, &inside);
    n->sent[rank] = posted == CUDA_POSTED;
    return posted != CUDA_POST_FAILED;
}

bool oneshot_may_reach(struct oneshot_channel *c, uint32_t member)
{
    struct cuda_inside inside;

    if (member == c->args.rank)
        return true;
    if (!cuda_enter(c->d, &inside))
        return false;
    bool may = cuda_may_reach(c->d, c->choice.offers[member].hardware);
    cuda_leave(c->d, &inside);
    return may;
}

cuda_address oneshot_reach_slots(struct oneshot_channel *c, uint32_t member, const char **why)
{
    struct oneshot *n = c->owner;
    const struct oneshot_offer *offer = &c->choice.offers[member];
    int32_t rank = c->choice.world[member];
    cuda_address at = (cuda_address)(offer->slots - 1) * ONESHOT_BOX_BYTES;

    if (member == c->args.rank)
        return n->shared[oneshot_here(n, rank)].memory.at + at;
    if (n->rank >= 0 && (offer->place != n->place || !send(c, offer, rank))) {
        *why = "a rank's memory cannot be given to a process";
        return 0;
    }
    if (n->rank >= 0)
        take_letters(n);
    struct oneshot_map *m = find(n, c->d, rank);
    if (!m && n->rank < 0)
        m = map(n, c->d, rank, n->shared[rank].memory.bytes, -1);
    if (!m && n->rank >= 0)
        return 0;
    if (!m || !m->at || at + ONESHOT_BOX_BYTES > m->bytes)
        *why = "memory of a peer's device cannot be mapped";
    return *why ? 0 : m->at + at;
}
