/* config.log_level: which lines reach the program's function. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

/* Bit n: a line of level n was heard. The library's one thread of the log calls it. */
static void hear(void *arg, int level, const char *line)
{
    uint32_t *heard = arg;
    CHECK(level >= COMM_LOG_ERROR && level <= COMM_LOG_TRACE && line[0]);
    *heard |= UINT32_C(1) << level;
}

/* Something is said of each level: how the world opened, an agreement that a close ends, and a call whose peer has closed. */
static uint32_t heard_at(enum comm_log_level level)
{
    struct comm_request request;
    uint64_t flags = 1;
    uint32_t heard = 0;
    struct rig rig;
    rig_open(&rig, 2, COMM_CONFIG(.progress = COMM_PROGRESS_CALLER, .log_level = level, .log = hear, .log_arg = &heard));
    MUST(comm_agree(rig.world[0], &flags, &request));
    IS(comm_close(rig.world[0], RIG_MS), COMM_ERR_TIMEOUT);
    enum comm_result result = comm_barrier(rig.world[1], &request);
    IS(result == COMM_OK ? comm_wait(request, RIG_PATIENCE) : result, COMM_ERR_CLOSED);
    MUST(comm_close(rig.world[1], RIG_PATIENCE));
    return heard;
}

enum { ERRORS = 1 << COMM_LOG_ERROR, WARNINGS = 1 << COMM_LOG_WARNING, INFOS = 1 << COMM_LOG_INFO };

RIG_TEST(log_level_of_the_program)
{
    unsetenv("COMM_LOG");
    EQUAL(heard_at(COMM_LOG_OFF), 0);
    EQUAL(heard_at(COMM_LOG_ERROR), ERRORS);
    EQUAL(heard_at(COMM_LOG_WARNING), ERRORS | WARNINGS);
    EQUAL(heard_at(COMM_LOG_DEFAULT), ERRORS | WARNINGS);
    EQUAL(heard_at(COMM_LOG_INFO), ERRORS | WARNINGS | INFOS);
}

RIG_TEST(log_level_of_the_environment_wins)
{
    setenv("COMM_LOG", "off", 1);
    EQUAL(heard_at(COMM_LOG_INFO), 0);
    setenv("COMM_LOG", "info", 1);
    EQUAL(heard_at(COMM_LOG_OFF), ERRORS | WARNINGS | INFOS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_level_of_the_program),
        cmocka_unit_test(log_level_of_the_environment_wins),
    };
    return cmocka_run_group_tests_name("api_log", tests, NULL, NULL);
}
