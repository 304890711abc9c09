#include "lost_orders.h"

#include "mock.h"

#include <stdio.h>

enum { SEEDS_MOST = 1000 };
static uint64_t chance;
static uint32_t pace;

static uint32_t draw(uint32_t below)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (uint32_t)(chance % below);
}

void orders_begin(uint64_t seed, uint64_t drop)
{
    pace = 2u << seed % 3;
    mock_seed(seed);
    mock_drop_order(drop);
    chance = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
}

void orders_turn(struct comm_communicator *c)
{
    for (uint32_t steps = draw(pace); steps; steps--)
        mock_step();
    enum comm_result moved = comm_progress(c);
    CHECK(moved == COMM_OK || moved == COMM_PENDING);
}

void orders_finish(struct comm_communicator *c)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !mock_idle(); orders_turn(c)) {
        if (rig_now() > end)
            mock_list_live();
        CHECK(rig_now() <= end);
    }
}

void orders_hold_all(const struct orders_game *game, uint64_t seeds)
{
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        rig_note("%s, seed %llu", game->name, (unsigned long long)seed);
        CHECK(game->play(game->arg, seed, 0));
    }
}

/* Each seed has the same orders, so a number means the same one. */
static uint64_t count(const struct orders_game *game)
{
    uint64_t before = mock_orders(), orders;

    CHECK(game->play(game->arg, 1, 0));
    orders = mock_orders() - before;
    for (uint64_t seed = 2; seed <= 20; seed++) {
        before = mock_orders();
        CHECK(game->play(game->arg, seed, 0));
        EQUAL(mock_orders() - before, orders);
    }
    return orders;
}

uint64_t orders_find_all(const struct orders_game *game)
{
#if defined(__SANITIZE_THREAD__)
    rig_skip("what is left out is a race, which ThreadSanitizer finds by itself");
#endif
    uint64_t orders = count(game), most = 0;

    for (uint64_t order = 1; order <= orders; order++) {
        uint64_t seed = 1;
        rig_note("%s, order %llu", game->name, (unsigned long long)order);
        while (seed <= SEEDS_MOST && game->play(game->arg, seed, order))
            seed++;
        if (seed > SEEDS_MOST)
            rig_die(__FILE__, __LINE__, "%s: order %llu of %llu was lost and not found", game->name, (unsigned long long)order,
                    (unsigned long long)orders);
        most = seed > most ? seed : most;
    }
    printf("%s: each of %llu orders found, the last after %llu seeds\n", game->name, (unsigned long long)orders, (unsigned long long)most);
    return orders;
}
