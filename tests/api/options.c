/* Structs of options of a later version, longer than the library knows: accepted if the rest is 0, otherwise UNSUPPORTED. */
#define _GNU_SOURCE
#include "conform/rig.h"
#include "now.h"

#include <commstream/bucket.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { NOBODY = 0, SOMEBODY = 7 }; /* values of the field that the library does not know */

/* The text of the refusal says which call it was. */
static void says(struct comm_communicator *c, const char *call)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    if (!strstr(error.text, call) || !strstr(error.text, "does not know"))
        rig_die(__FILE__, __LINE__, "\"%s\" does not say \"%s\" and \"does not know\"", error.text, call);
}

RIG_TEST(unknown_options_of_a_window)
{
    struct {
        struct comm_window_options known;
        uint64_t later;
    } o = {{.size = sizeof o, .signals = 1}, SOMEBODY};
    struct rig rig;
    struct comm_window *w = NULL;
    struct comm_request request;
    rig_open(&rig, 1, NULL);
    IS(comm_window_create(rig.world[0], 64, &o.known, &w, &request), COMM_ERR_UNSUPPORTED);
    IS(comm_test(request), COMM_ERR_UNSUPPORTED);
    says(rig.world[0], "window_create");
    CHECK(!w);
    o.later = NOBODY;
    MUST(NOW(comm_window_create, rig.world[0], 64, &o.known, &w));
    MUST(comm_window_signal(w, 0, 0, 1, NULL)); /* the fields that it knows are read */
    MUST(comm_window_free(w));
    rig_close(&rig);
}

static void add(void *inout, const void *in, size_t elements, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < elements; i++)
        ((uint64_t *)inout)[i] += ((const uint64_t *)in)[i];
}

RIG_TEST(unknown_options_of_an_operator)
{
    struct {
        struct comm_op_options known;
        uint64_t later;
    } o = {{.size = sizeof o, .name = "add", .element_bytes = 8}, SOMEBODY};
    struct rig rig;
    comm_op op;
    rig_open(&rig, 1, NULL);
    IS(comm_op_create(rig.world[0], add, NULL, &o.known, &op), COMM_ERR_UNSUPPORTED);
    says(rig.world[0], "op_create");
    o.later = NOBODY;
    MUST(comm_op_create(rig.world[0], add, NULL, &o.known, &op));
    comm_op_free(rig.world[0], op);
    rig_close(&rig);
}

RIG_TEST(unknown_options_of_a_dup_and_of_buckets)
{
    struct {
        struct comm_options known;
        uint64_t later;
    } o = {{.size = sizeof o}, SOMEBODY};
    struct {
        struct comm_bucket_options known;
        uint64_t later;
    } p = {{.size = sizeof p}, SOMEBODY};
    float values[4] = {0};
    const struct comm_gradient gradient = {.data = values, .count = 4, .type = COMM_F32};
    struct rig rig;
    struct comm_communicator *copy;
    struct comm_buckets *buckets;
    struct comm_request request;
    rig_open(&rig, 1, NULL);
    IS(comm_dup(rig.world[0], &o.known, &copy, &request), COMM_ERR_UNSUPPORTED);
    says(rig.world[0], "dup");
    IS(comm_buckets_create(rig.world[0], &gradient, 1, &p.known, &buckets), COMM_ERR_UNSUPPORTED);
    o.later = p.later = NOBODY;
    MUST(NOW(comm_dup, rig.world[0], &o.known, &copy));
    MUST(comm_close(copy, RIG_PATIENCE));
    MUST(comm_buckets_create(rig.world[0], &gradient, 1, &p.known, &buckets));
    comm_buckets_free(buckets);
    rig_close(&rig);
}

RIG_TEST(unknown_fields_of_a_call_and_of_a_world)
{
    struct {
        struct comm_call known;
        uint64_t later;
    } call = {{.size = sizeof call, .collective = "allreduce", .n = 10, .type = COMM_I32, .op = COMM_SUM}, SOMEBODY};
    struct {
        struct comm_config known;
        uint64_t later;
    } config = {{.size = sizeof config}, SOMEBODY};
    struct rig rig;
    struct comm_communicator *world;
    char text[4096];
    int64_t ns;
    rig_open(&rig, 2, NULL);
    IS(comm_explain(rig.world[0], &call.known, text, sizeof text), COMM_ERR_UNSUPPORTED);
    IS(comm_predict(rig.world[0], &call.known, NULL, NULL, &ns), COMM_ERR_UNSUPPORTED);
    call.later = NOBODY;
    MUST(comm_explain(rig.world[0], &call.known, text, sizeof text));
    MUST(comm_predict(rig.world[0], &call.known, NULL, NULL, &ns));
    rig_close(&rig);
    IS(comm_open_local(&config.known, 1, NULL, &world), COMM_ERR_UNSUPPORTED);
    config.later = NOBODY;
    MUST(comm_open_local(&config.known, 1, NULL, &world));
    MUST(comm_close(world, RIG_PATIENCE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_options_of_a_window),
        cmocka_unit_test(unknown_options_of_an_operator),
        cmocka_unit_test(unknown_options_of_a_dup_and_of_buckets),
        cmocka_unit_test(unknown_fields_of_a_call_and_of_a_world),
    };
    return cmocka_run_group_tests_name("api_options", tests, NULL, NULL);
}
