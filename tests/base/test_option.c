/* Options: defaults, precedence, every kind of refusal and its text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fuzz/fuzz.h"

#include "base/format.h"
#include "base/log.h"
#include "base/option.h"

#include <commstream/open.h>

#include <stdio.h>
#include <string.h>

_Static_assert((int)OPTION_ORDER_FIXED == (int)COMM_ORDER_FIXED && (int)OPTION_ORDER_FREE == (int)COMM_ORDER_FREE, "same numbers");
_Static_assert((int)OPTION_PROGRESS_CALLER == (int)COMM_PROGRESS_CALLER, "same numbers");
_Static_assert((int)OPTION_PROGRESS_THREAD == (int)COMM_PROGRESS_THREAD, "same numbers");

/* An environment of pairs, ended by NULL. */
static const char *const *variables;

static const char *lookup(const struct comm_env *env, const char *name)
{
    (void)env;
    for (const char *const *v = variables; v && *v; v += 2)
        if (base_equal(*v, name))
            return v[1];
    return NULL;
}

static const struct comm_env env = {.lookup = lookup};
static struct base_options options;
static char text[2048];

#define READ(program, ...)                                                                                                                 \
    (variables = (const char *const[]){__VA_ARGS__, NULL}, base_options_read(&env, program, &options, text, sizeof text))

static void defaults(void **state)
{
    (void)state;
    assert_true(READ(NULL, NULL));
    assert_string_equal(text, "");
    assert_string_equal(options.backend, "auto");
    assert_string_equal(options.algorithm, "");
    assert_int_equal(options.progress, OPTION_PROGRESS_AUTO);
    assert_int_equal(options.order, OPTION_ORDER_DEFAULT);
    assert_int_equal(options.log, LOG_WARNING);
    assert_int_equal(options.window, 64);
    assert_int_equal(options.queue, 65536);
    assert_int_equal(options.open_timeout_ns, INT64_C(60000000000));
    assert_int_equal(options.operation_timeout_ns, INT64_C(1800000000000));
    assert_int_equal(options.spin_ns, 50000);
    assert_int_equal(options.yield_ns, 100000);
    assert_int_equal(options.chunk, 0);
    assert_int_equal(options.minimal + options.isa, 0);
    assert_int_equal(options.cpus, 0);
    assert_int_equal(base_option_source(&options, "window"), OPTION_FROM_DEFAULT);
}

static void environment_wins_over_program(void **state)
{
    (void)state;
    assert_true(READ("window=8,queue=16,log=trace", "COMM_WINDOW", "128", "COMM_QUEUE", ""));
    assert_int_equal(options.window, 128);
    assert_int_equal(options.queue, 16);
    assert_int_equal(options.log, LOG_TRACE);
    assert_int_equal(base_option_source(&options, "window"), OPTION_FROM_ENVIRONMENT);
    assert_int_equal(base_option_source(&options, "queue"), OPTION_FROM_PROGRAM);
    assert_true(READ("", "COBRE_COMM_BACKEND", "shm"));
    assert_string_equal(options.backend, "shm");
    assert_true(READ("", "COBRE_COMM_BACKEND", "shm", "COMM_BACKEND", "local"));
    assert_string_equal(options.backend, "local");
    assert_true(READ("open_timeout=5", "COBRE_TCP_TIMEOUT_SECS", "90", "COBRE_TCP_CONNECT_TIMEOUT_MS", "30000"));
    assert_int_equal(options.operation_timeout_ns, INT64_C(90000000000));
    assert_int_equal(options.open_timeout_ns, INT64_C(30000000000)); /* its unit is in its name */
    assert_true(READ("", "COBRE_TCP_CONNECT_TIMEOUT_MS", "1.5", "COBRE_TCP_TIMEOUT_SECS", "2m"));
    assert_int_equal(options.open_timeout_ns, 1500000);
    assert_int_equal(options.operation_timeout_ns, INT64_C(120000000000));
    assert_true(READ("", "COBRE_TCP_CONNECT_TIMEOUT_MS", "30000", "COMM_OPEN_TIMEOUT", "7"));
    assert_int_equal(options.open_timeout_ns, INT64_C(7000000000));
}

static void every_type_is_read(void **state)
{
    (void)state;
    assert_true(READ("open_timeout=5,operation_timeout=1.5m,spin=0,yield=250ns,chunk=16K,minimal=on,cpus=3,isa=avx2", NULL));
    assert_int_equal(options.open_timeout_ns, INT64_C(5000000000));
    assert_int_equal(options.operation_timeout_ns, INT64_C(90000000000));
    assert_int_equal(options.spin_ns, 0);
    assert_int_equal(options.yield_ns, 250);
    assert_int_equal(options.chunk, 16384);
    assert_int_equal(options.minimal, 1);
    assert_int_equal(options.cpus, 3);
    assert_int_equal(options.isa, OPTION_ISA_AVX2);
    assert_true(READ("open_timeout=10ms,chunk=4096,minimal=false,", NULL));
    assert_int_equal(options.open_timeout_ns, 10000000);
    assert_true(READ("chunk=64KiB", NULL));
    assert_int_equal(options.chunk, 65536);
}

static void text_may_hold_commas(void **state)
{
    (void)state;
    assert_true(READ("algorithm=allreduce:slices,broadcast:pipeline,window=8", NULL));
    assert_string_equal(options.algorithm, "allreduce:slices,broadcast:pipeline");
    assert_int_equal(options.window, 8);
    assert_true(READ("algorithm=", NULL));
    assert_string_equal(options.algorithm, "");
}

static void refused(const char *program, const char *name, const char *value, const char *expected)
{
    static const char *pair[3]; /* what a test looks up after it still stands there */
    const struct base_options before = options;

    pair[0] = name;
    pair[1] = value;
    variables = pair;
    if (base_options_read(&env, program, &options, text, sizeof text))
        fail_msg("accepted: %s %s=%s", program ? program : "", name ? name : "", value ? value : "");
    if (strcmp(text, expected) != 0)
        fail_msg("got: %s\nnot: %s", text, expected);
    assert_memory_equal(&before, &options, sizeof options);
}

static void each_refusal_says_what_was_expected(void **state)
{
    (void)state;
    refused(NULL, "COMM_WINDOW", "63", "COMM_WINDOW=63 in the environment: expected a power of two from 4 to 1024");
    refused("window=2", NULL, NULL, "window=2 in the options string: expected a power of two from 4 to 1024");
    refused("window=2048", NULL, NULL, "window=2048 in the options string: expected a power of two from 4 to 1024");
    refused("window=-8", NULL, NULL, "window=-8 in the options string: expected a power of two from 4 to 1024");
    refused("window=", NULL, NULL, "window= in the options string: expected a power of two from 4 to 1024");
    refused("window=8x", NULL, NULL, "window=8x in the options string: expected a power of two from 4 to 1024");
    refused("window=8,x", NULL, NULL, "window=8,x in the options string: expected a power of two from 4 to 1024");
    refused("window=99999999999999999999", NULL, NULL,
            "window=99999999999999999999 in the options string: expected a power of two from 4 to 1024");
    refused("queue=15", NULL, NULL, "queue=15 in the options string: expected a whole number from 16 to 16777216");
    refused("queue=16.5", NULL, NULL, "queue=16.5 in the options string: expected a whole number from 16 to 16777216");
    refused(NULL, "COMM_PROGRESS", "Thread", "COMM_PROGRESS=Thread in the environment: expected one of auto, caller, thread");
    refused(NULL, "COMM_PROGRESS", "aut", "COMM_PROGRESS=aut in the environment: expected one of auto, caller, thread");
    refused(NULL, "COMM_LOG", "3", "COMM_LOG=3 in the environment: expected one of off, error, warning, info, debug, trace");
    refused(NULL, "COMM_MINIMAL", "2", "COMM_MINIMAL=2 in the environment: expected yes or no");
    refused(NULL, "COMM_CHUNK", "128K", "COMM_CHUNK=128K in the environment: expected 0 or a power of two from 4K to 64K");
    refused(NULL, "COMM_CHUNK", "5000", "COMM_CHUNK=5000 in the environment: expected 0 or a power of two from 4K to 64K");
    refused(NULL, "COMM_OPEN_TIMEOUT", "0",
            "COMM_OPEN_TIMEOUT=0 in the environment: expected a time from 1ms to 24h (units: ns us ms s m h; none: seconds)");
    refused(NULL, "COMM_SPIN", "50",
            "COMM_SPIN=50 in the environment: expected a time from 0 to 1s (units: ns us ms s m h; none: seconds)");
    refused(NULL, "COMM_SPIN", "1 us",
            "COMM_SPIN=1 us in the environment: expected a time from 0 to 1s (units: ns us ms s m h; none: seconds)");
    refused(NULL, "COBRE_COMM_BACKEND", "sixteen-and-more",
            "COBRE_COMM_BACKEND=sixteen-and-more in the environment: expected at most 15 characters");
    refused(NULL, "COBRE_TCP_CONNECT_TIMEOUT_MS", "0",
            "COBRE_TCP_CONNECT_TIMEOUT_MS=0ms in the environment: expected a time from 1ms to 24h (units: ns us ms s m h; none: seconds)");
    refused(NULL, "COBRE_TCP_TIMEOUT_SECS", "never",
            "COBRE_TCP_TIMEOUT_SECS=never in the environment: expected a time from 1ms to 8760h (units: ns us ms s m h; none: seconds)");
    refused("module_path=/x", NULL, NULL, "module_path=/x in the options string: only the environment can set it, as COMM_MODULE_PATH");
    refused("window", NULL, NULL, "\"window\" in the options string: expected key=value,...");
    refused("Window=8", NULL, NULL, "\"Window=8\" in the options string: expected key=value,...");
}

static void unknown_keys_are_told_the_known_ones(void **state)
{
    (void)state;
    refused("wnidow=8", NULL, NULL,
            "wnidow=8 in the options string: no such option; options are backend progress log window queue order order_block algorithm "
            "check machine trace_dir open_timeout operation_timeout peer_timeout link_timeout isa spin yield chunk minimal cpus "
            "nccl_min_ctas nccl_max_ctas nccl_cga_cluster_size nccl_split_share nccl_fallback");
}

static void every_offender_is_named(void **state)
{
    (void)state;
    assert_false(READ("queue=1,window=8,cpus=x", "COMM_LOG", "loud", "COMM_WINDOW", "3"));
    assert_non_null(strstr(text, "queue=1 in the options string"));
    assert_non_null(strstr(text, "cpus=x in the options string"));
    assert_non_null(strstr(text, "COMM_LOG=loud in the environment"));
    assert_non_null(strstr(text, "COMM_WINDOW=3 in the environment"));
    assert_null(strstr(text, "window=8"));
}

static void fixed_order_is_firm(void **state)
{
    (void)state;
    refused("order=fixed", "COMM_ORDER", "free",
            "COMM_ORDER=free in the environment: the program set another value, which cannot be overridden");
    assert_true(READ("order=fixed", "COMM_ORDER", "fixed"));
    assert_true(READ("order=free", "COMM_ORDER", "fixed"));
    assert_int_equal(options.order, OPTION_ORDER_FIXED);
    assert_false(READ("order=fixed", "COMM_ORDER", "default"));
}

/* Checked with all others, and read by whom it concerns. */
static void environment_only_rows_are_checked(void **state)
{
    int64_t value = 0;

    (void)state;
    assert_true(READ(NULL, "COMM_SHM_SEGMENT_BYTES", "1M", "COMM_SHM_DEATH", "socket"));
    assert_true(base_option_lookup(&env, "shm_segment_bytes", &value));
    assert_int_equal(value, 1 << 20);
    assert_true(base_option_lookup(&env, "shm_death", &value));
    assert_int_equal(value, 1);
    refused(NULL, "COMM_SHM_SEGMENT_BYTES", "100000",
            "COMM_SHM_SEGMENT_BYTES=100000 in the environment: expected a power of two from 64K to 1024G");
    assert_false(base_option_lookup(&env, "shm_segment_bytes", &value));
    refused(NULL, "COMM_SHM_DEATH", "sudden", "COMM_SHM_DEATH=sudden in the environment: expected one of pidfd, socket");
    refused("shm_death=socket", NULL, NULL, "shm_death=socket in the options string: only the environment can set it, as COMM_SHM_DEATH");
}

static void small_buffers_hold(void **state)
{
    char small[20];

    (void)state;
    variables = NULL;
    assert_false(base_options_read(&env, "window=3", &options, small, sizeof small));
    assert_int_equal(strlen(small), sizeof small - 1);
    assert_false(base_options_read(&env, "window=3", &options, NULL, 0));
}

/* A choice that was a switch once is set by a switch's words too; others are not. */
static void switches_with_a_third_state(void **state)
{
    static const struct {
        const char *word;
        int64_t choice; /* of auto|yes|no */
    } cases[] = {{"auto", 0}, {"yes", 1}, {"no", 2}, {"1", 1}, {"on", 1}, {"true", 1}, {"0", 2}, {"off", 2}, {"false", 2}};
    int64_t value = -1;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        variables = (const char *const[]){"COMM_TCP_SEAL", cases[i].word, NULL};
        assert_true(base_option_lookup(&env, "tcp_seal", &value));
        assert_int_equal(value, cases[i].choice);
    }
    variables = (const char *const[]){"COMM_TCP_SEAL", "maybe", "COMM_TCP_LINKS", "yes", NULL};
    assert_false(base_option_lookup(&env, "tcp_seal", &value));
    assert_false(base_option_lookup(&env, "tcp_links", &value));
}

static void rows_are_complete(void **state)
{
    char expected[124];
    int64_t value;

    (void)state;
    variables = NULL;
    for (uint32_t i = 0; i < base_option_count; i++) {
        const struct base_option *row = &base_option_table[i];
        base_option_expected(row, expected, sizeof expected);
        assert_true(strlen(expected) > 0 && strlen(expected) < sizeof expected - 1); /* as it fits comm_option_info */
        assert_true(strncmp(row->environment, "COMM_", 5) == 0);
        assert_non_null(row->help);
        assert_non_null(base_option_type_name(row->type));
        assert_ptr_equal(base_option_find(row->key), row);
        assert_true(row->type != OPTION_CHOICE || row->choices);
        assert_true(row->type == OPTION_TEXT || base_option_lookup(&env, row->key, &value));
    }
    assert_null(base_option_find("nothing"));
}

/* The fuzzer's inputs without the fuzzer: what people write, changed in a few places, from a seed. */
static void mutations(void **state)
{
    static const char *const real[] = {
        "window=128,spin=20us,chunk=64K\nCOMM_WINDOW=32\nCOMM_LOG=info\n",
        "algorithm=allreduce:slices,broadcast:pipeline,progress=caller\nCOMM_ORDER=fixed\n",
        "open_timeout=90s,operation_timeout=1h,order=fixed\nCOMM_PEER_TIMEOUT=2s\nCOMM_CHECK=all\n",
        "backend=tcp,queue=100\nCOMM_TCP_POLLER=epoll\nCOMM_TCP_SEAL=yes\nCOMM_CHUNK=1M\n",
        "\nCOMM_YIELD=0\nCOMM_ISA=avx2\nCOMM_MINIMAL=no\nCOMM_CPUS=3\n",
    };
    uint64_t seed = 1;
    int taken = 0;

    (void)state;
    for (int i = 0; i < 60000; i++) {
        char bytes[512];
        size_t count = strlen(real[i % 5]);
        memcpy(bytes, real[i % 5], count);
        for (int k = 0; k < i / 5 % 4; k++) {
            static const char likely[] = "0123456789-+.,=:kKMGusmh\n\0 \xff";
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes[(seed >> 33) % count] = likely[(seed >> 20) % (sizeof likely - 1)];
        }
        taken += fuzz_option((const unsigned char *)bytes, count);
    }
    assert_in_range(taken, 3000, 60000);
}

/* ------------------------------------------------------------------------------------------------------------ misspelt names */
static const char *const *present;

static const char *variable(const struct comm_env *e, size_t index)
{
    (void)e;
    return present[index];
}

#define MISSPELT(...)                                                                                                                      \
    (present = (const char *const[]){__VA_ARGS__, NULL},                                                                                   \
     base_option_misspelt(&(struct comm_env){.variable = variable}, text, sizeof text), text)

static void misspelt_names_are_found(void **state)
{
    (void)state;
    assert_string_equal(MISSPELT("COMM_BACKEN=tcp"), "COMM_BACKEN is not a variable of this library; expected COMM_BACKEND");
    assert_string_equal(MISSPELT("COMM_BAKCEND=tcp"), "COMM_BAKCEND is not a variable of this library; expected COMM_BACKEND");
    assert_string_equal(
        MISSPELT("HOME=/", "COMM_ADRESS=a:1", "COMM_LOGG=info"),
        "COMM_ADRESS is not a variable of this library; expected COMM_ADDRESS; COMM_LOGG is not a variable of this library; "
        "expected COMM_LOG");
    assert_string_equal(MISSPELT("COMM_OPERATON_TIMOUT=1s"),
                        "COMM_OPERATON_TIMOUT is not a variable of this library; expected COMM_OPERATION_TIMEOUT");
}

/* Names that are right, and those that other programs may have. */
static void other_names_are_not(void **state)
{
    char known[64];
    char longest[4096];

    (void)state;
    assert_string_equal(MISSPELT("COMM_RANK=1", "COMM_RANKS=2", "COMM_LOCAL_RANK=0", "COMM_JOB=x", "COMM_TEST_QUICK=1", "COMM_PORT=1",
                                 "COMM_=1", "COMM=1", "MY_COMM_BACKEN=1", "COMM_THEME=dark"),
                        "");
    for (uint32_t i = 0; i < base_option_count; i++) {
        snprintf(known, sizeof known, "%s=1", base_option_table[i].environment);
        assert_string_equal(MISSPELT(known), "");
    }
    memset(longest, 'A', sizeof longest);
    memcpy(longest, "COMM_", 5);
    longest[sizeof longest - 1] = 0;
    assert_string_equal(MISSPELT(longest), "");
    base_option_misspelt(&env, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misspelt_names_are_found),
        cmocka_unit_test(other_names_are_not),
        cmocka_unit_test(defaults),
        cmocka_unit_test(environment_wins_over_program),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(text_may_hold_commas),
        cmocka_unit_test(each_refusal_says_what_was_expected),
        cmocka_unit_test(unknown_keys_are_told_the_known_ones),
        cmocka_unit_test(every_offender_is_named),
        cmocka_unit_test(fixed_order_is_firm),
        cmocka_unit_test(environment_only_rows_are_checked),
        cmocka_unit_test(small_buffers_hold),
        cmocka_unit_test(switches_with_a_third_state),
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
