/* Backend nccl: the orders that the library puts on streams for a collective that NCCL does, and for one that NCCL moves and a kernel or
 * the host reduces. Each, left out alone, shows as wrong data. */
#include "orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { WORDS = 64, CONFIGS = 4 + 2 * HAS_KERNELS };
#define NCCL .backend = "nccl", .words = WORDS, .devices = 2
static const struct orders_config configs[CONFIGS] = {
    {NCCL, .algorithm = "nccl"},
    {NCCL, .algorithm = "nccl", .no_memops = true},
    {NCCL, .algorithm = "nccl+host", .by_xor = true, .no_kernels = true},
    {NCCL, .algorithm = "nccl+host", .by_xor = true, .no_kernels = true, .no_memops = true},
#if HAS_KERNELS
    {NCCL, .algorithm = "nccl+kernel", .by_xor = true},
    {NCCL, .algorithm = "nccl+kernel", .by_xor = true, .no_memops = true},
#endif
};

RIG_TEST(calls_stand_in_the_order_of_streams)
{
    for (int i = 0; i < CONFIGS; i++)
        for (int queues = 1; queues <= 8; queues++) {
            struct orders_config config = configs[i];
            config.queues = queues;
            orders_open(&config);
            for (int way = BY_EVENTS; way <= BY_HOST_ALONE; way++)
                orders_hold((enum orders_way)way, selected(500, 20, 2)); /* with each number of queues */
            orders_close();
        }
}

RIG_TEST(every_missing_order_is_found)
{
    for (int i = 0; i < CONFIGS; i++) {
        struct orders_config config = configs[i];
        config.queues = 32; /* one queue would order its streams anyway */
        orders_open(&config);
        for (int way = BY_EVENTS; way <= BY_HOST_ALONE; way++)
            orders_find_each((enum orders_way)way);
        orders_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_stand_in_the_order_of_streams),
        cmocka_unit_test(every_missing_order_is_found),
    };
    return cmocka_run_group_tests_name("cuda_nccl_orders", tests, NULL, NULL);
}
