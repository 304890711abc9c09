/* Members of communicators. A team is created with its communicator and never changes. */
#include "team/team.h"

#include "base/check.h"
#include "base/hash.h"

#include <string.h>

/* 0 means "no team" in the wires' tables. */
static uint64_t never_zero(uint64_t id)
{
    return id ? id : 1;
}

static int32_t *take_ranks(const struct comm_env *env, int32_t count)
{
    return env->take(env, (size_t)count * sizeof(int32_t), _Alignof(int32_t));
}

enum comm_result team_world(const struct comm_env *env, uint64_t job, int32_t rank, int32_t size, struct team *team)
{
    BASE_ASSERT(size > 0 && rank >= 0 && rank < size);
    int32_t *world = take_ranks(env, size);
    if (!world)
        return COMM_ERR_MEMORY;
    for (int32_t i = 0; i < size; i++)
        world[i] = i;
    *team = (struct team){.id = never_zero(base_hash(base_hash(0, job), (uint64_t)size)), .rank = rank, .size = size, .world = world};
    return COMM_OK;
}

/* Maps members to world ranks. ARGUMENT if a member is out of range or named twice, or if this rank is not among them. */
static enum comm_result map_members(const struct team *parent, const int32_t *members, int32_t count, uint8_t *seen, int32_t *world,
                                    int32_t *rank)
{
    *rank = -1;
    for (int32_t i = 0; i < count; i++) {
        int32_t member = members[i];
        if (member < 0 || member >= parent->size || seen[member])
            return COMM_ERR_ARGUMENT;
        seen[member] = 1;
        world[i] = parent->world[member];
        if (member == parent->rank)
            *rank = i;
    }
    return *rank < 0 ? COMM_ERR_ARGUMENT : COMM_OK;
}

enum comm_result team_subset(const struct comm_env *env, const struct team *parent, uint64_t number, uint64_t color, const int32_t *members,
                             int32_t count, struct team *team)
{
    enum comm_result result = COMM_ERR_MEMORY;
    int32_t rank = -1;

    if (count <= 0 || count > parent->size)
        return COMM_ERR_ARGUMENT;
    uint8_t *seen = env->take(env, (size_t)parent->size, 1);
    int32_t *world = take_ranks(env, count);
    if (seen && world)
        result = map_members(parent, members, count, seen, world, &rank);
    env_give_back(env, seen, (size_t)parent->size);
    if (result == COMM_OK) {
        uint64_t id = base_hash(base_hash(base_hash(0, parent->id), number), color);
        *team = (struct team){.id = never_zero(id), .rank = rank, .size = count, .world = world, .depth = parent->depth + 1};
    } else if (world) {
        env->give(env, world, (size_t)count * sizeof *world);
    }
    return result;
}

void team_free(const struct comm_env *env, struct team *team)
{
    env_give_back(env, team->world, (size_t)team->size * sizeof *team->world);
    *team = (struct team){.rank = -1};
}

int32_t team_find(const struct team *team, int32_t world)
{
    if (world >= 0 && world < team->size && team->world[world] == world)
        return world; /* true for the world itself and for each prefix of it */
    for (int32_t i = 0; i < team->size; i++)
        if (team->world[i] == world)
            return i;
    return -1;
}

/* ------------------------------------------------------------------------------------------------------------ split */
static bool comes_before(const struct team_ticket *tickets, int32_t a, int32_t b)
{
    if (tickets[a].key != tickets[b].key)
        return tickets[a].key < tickets[b].key;
    return a < b;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Restores the heap below `at`; the member that comes last is on top. */
static void sift(const struct team_ticket *tickets, int32_t *members, int32_t at, int32_t count)
{
    while (at < count / 2) {
        int32_t child = 2 * at + 1;
        if (child + 1 < count && comes_before(tickets, members[child], members[child + 1]))
            child++;
        if (!comes_before(tickets, members[at], members[child]))
            return;
        swap(&members[at], &members[child]);
        at = child;
    }
}

/* A heap sort: in place, without recursion, and n log n even for a hundred thousand ranks in reverse order. */
int32_t team_pick(const struct team_ticket *tickets, int32_t size, int32_t mine, int32_t *members)
{
    int32_t count = 0;

    BASE_ASSERT(mine >= 0 && mine < size);
    if (tickets[mine].color < 0)
        return 0;
    for (int32_t i = 0; i < size; i++)
        if (tickets[i].color == tickets[mine].color)
            members[count++] = i;
    for (int32_t at = count / 2; at-- > 0;)
        sift(tickets, members, at, count);
    for (int32_t left = count; left-- > 1;) {
        swap(&members[0], &members[left]);
        sift(tickets, members, 0, left);
    }
    return count;
}
