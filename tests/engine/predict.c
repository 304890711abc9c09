/* What the library reports of algorithms and prices, and how the figures of a machine choose. */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, TEXT_BYTES = 16384 };

static struct comm_call call_of(const char *collective, size_t n)
{
    return (struct comm_call){.size = sizeof(struct comm_call), .collective = collective, .n = n, .type = COMM_F32, .op = COMM_SUM};
}

/* Copies the figures, with one replaced. */
static void with_figure(const char *from, const char *key, const char *value, char *to)
{
    size_t at = 0, length = strlen(key);
    for (const char *line = from; *line; line = strchr(line, '\n') + 1) {
        bool this_one = !strncmp(line, key, length) && line[length] == ' ';
        at += (size_t)snprintf(to + at, TEXT_BYTES - at, "%.*s\n", this_one ? (int)strlen(value) : (int)strcspn(line, "\n"),
                               this_one ? value : line);
    }
}

static bool serves(const struct comm_algorithm_info *info, int32_t ranks, size_t bytes)
{
    return ranks >= info->ranks_min && ranks <= info->ranks_max && (!info->bounded || bytes * (size_t)ranks <= 65536);
}

RIG_TEST(every_algorithm_is_told_and_has_a_price)
{
    struct rig rig;
    struct comm_algorithm_info info = {.size = sizeof info};
    static char text[TEXT_BYTES], roomy[TEXT_BYTES];
    size_t count = 0, cells = 0;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_describe_machine(rig.world[0], text, sizeof text));
    with_figure(text, "cpus", "cpus 16 cpus", roomy); /* ranks that take turns on a CPU may be lucky in their order */
    for (; comm_describe_algorithm(count, &info) == COMM_OK; count++) {
        int64_t last = 0, ns;
        CHECK(info.name[0] && info.help[0] && info.ranks_min >= 1 && info.ranks_max >= info.ranks_min);
        for (size_t n = 2; n <= 1 << 20 && serves(&info, RANKS, n * 4); n *= 8, cells++) {
            struct comm_call call = call_of(info.collective, n);
            MUST(comm_predict(rig.world[0], &call, info.name, roomy, &ns));
            if (ns <= 0 || ns * 6 / 5 < last)
                rig_die(__FILE__, __LINE__, "%s/%s, %zu elements: %lld ns, an eighth of them %lld", info.collective, info.name, n,
                        (long long)ns, (long long)last);
            last = ns;
            for (int32_t r = 1; r < RANKS; r++) { /* every rank computes the same price */
                int64_t theirs;
                MUST(comm_predict(rig.world[r], &call, info.name, roomy, &theirs));
                CHECK(theirs == ns);
            }
        }
        info = (struct comm_algorithm_info){.size = sizeof info};
    }
    CHECK(count > 10 && cells > count);
    IS(comm_describe_algorithm(count, &info), COMM_ERR_ARGUMENT);
    rig_close(&rig);
}

RIG_TEST(wrong_questions_are_told)
{
    struct rig rig;
    struct comm_call call = call_of("allreduce", 100), none = call_of("allreduc", 100);
    struct comm_error error = {.size = sizeof error};
    struct comm_algorithm_info small = {.size = 4};
    static char text[TEXT_BYTES], spoiled[TEXT_BYTES];
    int64_t ns = 7;
    rig_open(&rig, RANKS, NULL);
    struct comm_communicator *c = rig.world[0];
    IS(comm_predict(c, &none, NULL, NULL, &ns), COMM_ERR_ARGUMENT);
    IS(comm_predict(c, &call, NULL, NULL, NULL), COMM_ERR_ARGUMENT);
    IS(comm_predict(c, NULL, NULL, NULL, &ns), COMM_ERR_ARGUMENT);
    call.ranks = -1;
    IS(comm_predict(c, &call, NULL, NULL, &ns), COMM_ERR_ARGUMENT);
    call.ranks = 0;
    IS(comm_predict(c, &call, "ring", NULL, &ns), COMM_ERR_UNSUPPORTED);
    MUST(comm_error_detail(c, &error));
    CHECK(strstr(error.text, "ring does not exist for allreduce"));
    call.n = 1 << 20;
    IS(comm_predict(c, &call, "read_all", NULL, &ns), COMM_ERR_UNSUPPORTED);
    MUST(comm_error_detail(c, &error));
    CHECK(strstr(error.text, "read_all cannot serve allreduce of 4194304 bytes over 4 ranks"));
    MUST(comm_describe_machine(c, text, sizeof text));
    with_figure(text, "turn", "turn round ns", spoiled);
    IS(comm_predict(c, &call, NULL, spoiled, &ns), COMM_ERR_CONFIG);
    MUST(comm_error_detail(c, &error));
    CHECK(strstr(error.text, "line ") && strstr(error.text, "round: expected a number"));
    CHECK(ns == 7);
    MUST(comm_predict(c, &call, NULL, text, &ns));
    CHECK(ns > 7);
    IS(comm_describe_machine(c, NULL, 10), COMM_ERR_ARGUMENT);
    MUST(comm_describe_machine(c, text, 10));
    CHECK(strlen(text) == 9);
    IS(comm_describe_algorithm(0, &small), COMM_ERR_ARGUMENT);
    IS(comm_describe_algorithm(0, NULL), COMM_ERR_ARGUMENT);
    rig_close(&rig);
}

/* Both calls refuse it, with a text that names the field. */
static void wrong_call(struct comm_communicator *c, struct comm_call call, const char *says)
{
    static const char *const name[] = {"explain: ", "predict: "};
    struct comm_error error = {.size = sizeof error};
    char text[TEXT_BYTES] = "untouched";
    int64_t ns = 7;
    for (int i = 0; i < 2; i++) {
        IS(i ? comm_predict(c, &call, NULL, NULL, &ns) : comm_explain(c, &call, text, sizeof text), COMM_ERR_ARGUMENT);
        MUST(comm_error_detail(c, &error));
        if (strncmp(error.text, name[i], strlen(name[i])) != 0 || !strstr(error.text, says))
            rig_die(__FILE__, __LINE__, "\"%s\" does not say \"%s%s\"", error.text, name[i], says);
    }
    CHECK(ns == 7 && !strcmp(text, "untouched"));
}

RIG_TEST(fields_without_a_meaning_are_refused)
{
    struct rig rig;
    struct comm_call call = call_of("allreduce", 100);
    int64_t ns;
    float factor = 2;
    rig_open(&rig, 1, NULL);
    struct comm_communicator *c = rig.world[0];
    call.collective = "allreduc";
    wrong_call(c, call, "call.collective=allreduc;");
    call.collective = "allreduce";
    call.type = (enum comm_type)99;
    wrong_call(c, call, "call.type=99;");
    call.type = (enum comm_type)(-1);
    wrong_call(c, call, "call.type=-1;");
    call.type = 0;
    call.op = 77;
    wrong_call(c, call, "call.op=77;");
    call.op = 0; /* any */
    MUST(comm_predict(c, &call, NULL, NULL, &ns));
    call.type = COMM_F32;
    MUST(comm_op_create_premul_sum(c, COMM_F32, &factor, &call.op));
    MUST(comm_predict(c, &call, NULL, NULL, &ns));
    comm_op_free(c, call.op);
    wrong_call(c, call, "expected an operator of this world");
    rig_close(&rig);
}

/* Simulating every chunk of a terabyte would not end. */
RIG_TEST(long_calls_have_a_price_in_proportion)
{
    static const char *const collectives[] = {"allreduce", "broadcast", "allgather", "alltoall", "scan"};
    const size_t mib = 1 << 18; /* elements */
    struct rig rig;

    rig_open(&rig, RANKS, NULL);
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++) {
        int64_t first = 0;
        for (size_t times = 1; times <= 1 << 14; times *= times == 1 ? 2 : 128) { /* of 32 MiB, which is simulated */
            struct comm_call call = call_of(collectives[i], 32 * times * mib);
            int64_t ns;
            MUST(comm_predict(rig.world[0], &call, NULL, NULL, &ns));
            first = times == 1 ? ns : first;
            double off = (double)ns / ((double)first * (double)times);
            if (off < 0.98 || off > 1.02)
                rig_die(__FILE__, __LINE__, "%s of %zu MiB: %lld ns, of 32 MiB: %lld", collectives[i], 32 * times, (long long)ns,
                        (long long)first);
        }
    }
    rig_close(&rig);
}

RIG_TEST(explain_tells_all_prices)
{
    struct rig rig;
    char text[4096] = "";
    struct comm_call call = call_of("allreduce", 16);
    rig_open(&rig, RANKS, NULL);
    MUST(comm_explain(rig.world[0], &call, text, sizeof text));
    CHECK(strstr(text, "read_all") && strstr(text, "predicted: read_all ") && strstr(text, "the others: doubling ") &&
          strstr(text, ", slices ") && strstr(text, " us") && strstr(text, "not measured here"));
    call.n = 1 << 20;
    MUST(comm_explain(rig.world[0], &call, text, sizeof text));
    CHECK(strstr(text, "predicted: slices ") && strstr(text, "the others: tree ") && !strstr(text, "hosts") && !strstr(text, "read_all"));
    call.ranks = 100000; /* more ranks than can be simulated */
    call.n = 2;
    MUST(comm_explain(rig.world[0], &call, text, sizeof text));
    CHECK(strstr(text, "ranks=100000") && strstr(text, "predicted: doubling "));
    rig_close(&rig);
}

/* Checks the algorithm that ran, on every rank. */
static void expect(struct rig *rig, size_t n, const char *algorithm, bool wanted)
{
    static int64_t in[4096], out[RANKS][4096];
    struct comm_request request[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_allreduce(rig->world[r], in, out[r], n, COMM_I64, COMM_SUM, &request[r]));
    rig_wait_all(request, RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        struct comm_request_info info = {.size = sizeof info};
        MUST(comm_describe_request(request[r], &info));
        if (!strcmp(info.algorithm, algorithm) != wanted)
            rig_die(__FILE__, __LINE__, "rank %d, %zu elements: %s, expected %s%s", r, n, info.algorithm, wanted ? "" : "not ", algorithm);
    }
}

static void open_with(struct rig *rig, const char *text, const char *more)
{
    char path[] = "/tmp/commstream-machine-XXXXXX", options[256];
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && close(file) == 0);
    snprintf(options, sizeof options, "machine=%s%s", path, more);
    rig_open_options(rig, RANKS, options);
    unlink(path); /* the file is read only once, when the world opens */
}

RIG_TEST(figures_choose)
{
    struct rig rig;
    static char text[TEXT_BYTES], changed[TEXT_BYTES];
    char back[TEXT_BYTES], why[4096];
    struct comm_call call = call_of("allreduce", 16);
    rig_open(&rig, RANKS, NULL);
    expect(&rig, 1, "read_all", true);
    MUST(comm_describe_machine(rig.world[0], text, sizeof text));
    rig_close(&rig);
    with_figure(text, "express", "express 900000 ns", changed); /* makes the fast path seem as slow as ten thousand calls */
    open_with(&rig, changed, "");
    for (int round = 0; round < 2; round++) /* first by price, then from the cache */
        for (size_t n = 1; n <= 4096; n += n / 2 + 1)
            expect(&rig, n, "read_all", false);
    MUST(comm_describe_machine(rig.world[3], back, sizeof back));
    CHECK(strstr(back, "express 900000 ns"));
    MUST(comm_explain(rig.world[1], &call, why, sizeof why));
    CHECK(strstr(why, "by the machine's figures the fastest") && strstr(why, "figures of option machine"));
    struct comm_communicator *sub[RANKS]; /* children have the same figures */
    struct comm_request request[RANKS];
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_dup(rig.world[r], NULL, &sub[r], &request[r]));
    rig_wait_all(request, RANKS);
    MUST(comm_describe_machine(sub[2], back, sizeof back));
    CHECK(strstr(back, "express 900000 ns"));
    for (int32_t r = 0; r < RANKS; r++)
        MUST(comm_close(sub[r], RIG_PATIENCE));
    rig_close(&rig);
    open_with(&rig, changed, ",algorithm=allreduce:read_all"); /* a name has precedence over prices */
    expect(&rig, 1, "read_all", true);
    rig_close(&rig);
}

/* Ranks write to the lines that they have read, unless the figures say that this gains nothing. */
RIG_TEST(figures_decide_about_lines)
{
    static const struct {
        const char *dirtied, *says;
    } cases[] = {{"shm.dirtied 8.001 ns", "readers do not write to what they have read; rewriting a line takes 8.0 ns then, otherwise 8.0"},
                 {"shm.dirtied 8 ns", "readers do not write to"},
                 {"shm.dirtied 7.999 ns", "readers write to"},
                 {"shm.dirtied 0.25 ns", "readers write to what they have read; rewriting a line takes 0.2 ns then, otherwise 8.0"}};
    static char text[TEXT_BYTES], changed[TEXT_BYTES], built_in[TEXT_BYTES];
    struct comm_call call = call_of("allreduce", 16);
    char why[4096];
    struct rig rig;
    rig_open(&rig, RANKS, NULL);
    MUST(comm_describe_machine(rig.world[0], built_in, sizeof built_in));
    rig_close(&rig);
    with_figure(built_in, "shm.read", "shm.read 8 ns", text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        with_figure(text, "shm.dirtied", cases[i].dirtied, changed);
        open_with(&rig, changed, "");
        for (int32_t r = 0; r < RANKS; r++) {
            MUST(comm_explain(rig.world[r], &call, why, sizeof why));
            if (!strstr(why, cases[i].says))
                rig_die(__FILE__, __LINE__, "rank %d, %s: %s", r, cases[i].dirtied, why);
        }
        rig_close(&rig);
    }
}

/* A forced algorithm that cannot serve the call is refused on all ranks, and the text names it. */
RIG_TEST(a_forced_algorithm_is_obeyed_or_refused)
{
    struct rig rig;
    int64_t in[8193] = {0}, out[8193];
    struct comm_request request;
    struct comm_error error = {.size = sizeof error};
    setenv("COMM_ALGO", "allreduce:doubling", 1); /* the short name of COMM_ALGORITHM */
    rig_open(&rig, RANKS, NULL);
    unsetenv("COMM_ALGO");
    expect(&rig, 8, "doubling", true);
    for (int32_t r = 0; r < RANKS; r++) {
        IS(comm_allreduce(rig.world[r], in, out, 8193, COMM_I64, COMM_SUM, &request), COMM_ERR_UNSUPPORTED);
        MUST(comm_error_detail(rig.world[r], &error));
        if (!strstr(error.text, "\"doubling\" cannot serve allreduce"))
            rig_die(__FILE__, __LINE__, "rank %d is told \"%s\"", r, error.text);
    }
    expect(&rig, 8, "doubling", true); /* all ranks refused it, so the communicator continues */
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_told_and_has_a_price),
        cmocka_unit_test(wrong_questions_are_told),
        cmocka_unit_test(fields_without_a_meaning_are_refused),
        cmocka_unit_test(long_calls_have_a_price_in_proportion),
        cmocka_unit_test(explain_tells_all_prices),
        cmocka_unit_test(figures_choose),
        cmocka_unit_test(figures_decide_about_lines),
        cmocka_unit_test(a_forced_algorithm_is_obeyed_or_refused),
    };
    return cmocka_run_group_tests_name("engine_predict", tests, NULL, NULL);
}
