/* Backend cuda: the orders that a pipeline (cuda/pipeline/pipeline.h) puts on streams. Each, left out alone, shows as wrong data. */
#include "orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { WORDS = (256 << 10) / 4 /* the shortest that goes through a pipeline */ };

static const struct orders_config with_words = {.backend = "cuda", .words = WORDS, .queues = 32, .devices = 2};
static const struct orders_config without_words = {.backend = "cuda", .words = WORDS, .queues = 32, .devices = 2, .no_memops = true};

RIG_TEST(sums_stand_in_the_order_of_streams)
{
    uint32_t seeds = selected(2000, 100, 10);

    orders_open(&with_words);
    orders_hold(BY_EVENTS, seeds);
    orders_hold(BY_REQUEST, seeds / 2);
    orders_close();
    orders_open(&without_words);
    orders_hold(BY_HOST, seeds / 2);
    orders_close();
}

RIG_TEST(every_missing_order_is_found)
{
    orders_open(&with_words);
    orders_find_each(BY_EVENTS);
    orders_find_each(BY_REQUEST);
    orders_close();
    orders_open(&without_words);
    orders_find_each(BY_HOST);
    orders_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_stand_in_the_order_of_streams),
        cmocka_unit_test(every_missing_order_is_found),
    };
    return cmocka_run_group_tests_name("cuda_pipeline_orders", tests, NULL, NULL);
}
