/* The formatter against what snprintf says, its limits, and the log that stands on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/format.h"
#include "base/log.h"
#include "net/posix/posix.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SAME(...)                                                                                                                          \
    do {                                                                                                                                   \
        char ours[256], theirs[256];                                                                                                       \
        size_t length = base_format(ours, sizeof ours, __VA_ARGS__);                                                                       \
        int wanted = snprintf(theirs, sizeof theirs, __VA_ARGS__);                                                                         \
        assert_string_equal(ours, theirs);                                                                                                 \
        assert_int_equal(length, wanted);                                                                                                  \
    } while (0)

static void as_snprintf(void **state)
{
    (void)state;
    SAME("%s", "plain");
    SAME("%s|%c|%%|%s", "a", 'z', "");
    SAME("%d %i %d", 0, -1, INT_MIN);
    SAME("%ld %lld", LONG_MIN, LLONG_MIN);
    SAME("%ld %lld", LONG_MAX, LLONG_MAX);
    SAME("%u %lu %llu %zu", UINT_MAX, ULONG_MAX, ULLONG_MAX, SIZE_MAX);
    SAME("%zd", (ptrdiff_t)-3);
    SAME("%x %lx %llx %zx", 0xdeadbeefu, 0x1ul, ULLONG_MAX, (size_t)16);
    SAME("%p and %d", (void *)theirs, 7);
    SAME("[%5d][%5u][%5x][%1d]", 42, 42u, 0x42u, 12345);
    SAME("[%05d][%08x][%03u][%016lx]", 42, 0xbeefu, 7u, 0x123ul);
    SAME("[%05d][%08ld][%5d][%01d]", -42, LONG_MIN, -42, -7);
    SAME("[%12ld][%20llu]", -123456789L, ULLONG_MAX);
    SAME("%.*s|%.*s|%.*s", 3, "abcdef", 0, "abc", 9, "short");
}

static void string_is_not_read_past_its_precision(void **state)
{
    char text[16];
    const char unended[3] = {'a', 'b', 'c'};

    (void)state;
    assert_int_equal(base_format(text, sizeof text, "%.*s", 3, unended), 3);
    assert_string_equal(text, "abc");
    const char *volatile none = NULL;
    base_format(text, sizeof text, "%s", none);
    assert_string_equal(text, "(null)");
}

static void text_is_cut_and_ended(void **state)
{
    char text[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(base_format(text, 5, "%d", 123456), 6);
    assert_string_equal(text, "1234");
    assert_int_equal(text[5], 'x');
    assert_int_equal(base_format(text, 1, "abc"), 3);
    assert_string_equal(text, "");
    text[0] = 'y';
    assert_int_equal(base_format(text, 0, "abc"), 3);
    assert_int_equal(text[0], 'y');
    assert_int_equal(base_format(NULL, 0, "%s %d", "abc", 5), 5);
}

static void append_never_passes_room(void **state)
{
    char text[8];
    size_t at = 0;

    (void)state;
    base_append(text, sizeof text, &at, "ab%d", 3);
    assert_int_equal(at, 3);
    base_append(text, sizeof text, &at, "%s", "defghijk");
    assert_int_equal(at, 7);
    assert_string_equal(text, "ab3defg");
    base_append(text, sizeof text, &at, "more");
    assert_int_equal(at, 7);
    assert_string_equal(text, "ab3defg");
    at = 0;
    base_append(NULL, 0, &at, "more");
    assert_int_equal(at, 0);
}

static void small_helpers(void **state)
{
    char text[4];
    uint64_t value = 77;

    (void)state;
    base_copy_text(text, sizeof text, "abcdef");
    assert_string_equal(text, "abc");
    base_copy_text(text, sizeof text, NULL);
    assert_string_equal(text, "");
    assert_true(base_equal("ab", "ab") && base_equal(NULL, NULL) && base_equal("", ""));
    assert_false(base_equal("ab", "abc") || base_equal("abc", "ab") || base_equal(NULL, "") || base_equal("a", NULL));
    assert_true(base_parse_u64("18446744073709551615", &value) && value == UINT64_MAX);
    assert_true(base_parse_u64("0", &value) && value == 0);
    value = 77;
    assert_false(base_parse_u64("18446744073709551616", &value));
    assert_false(base_parse_u64("99999999999999999999", &value));
    assert_false(base_parse_u64("", &value) || base_parse_u64(NULL, &value));
    assert_false(base_parse_u64("-1", &value) || base_parse_u64("1 ", &value) || base_parse_u64("+1", &value));
    assert_int_equal(value, 77);
}

struct heard {
    int count, level;
    char line[1024];
};

static void hear(void *arg, int level, const char *line)
{
    struct heard *heard = arg;
    heard->count++;
    heard->level = level;
    base_copy_text(heard->line, sizeof heard->line, line);
}

static void log_obeys_its_level(void **state)
{
    struct heard heard = {0};
    struct base_log log = {.env = &env_posix, .sink = hear, .arg = &heard, .level = LOG_INFO, .rank = -1};

    (void)state;
    base_log(&log, LOG_DEBUG, "not heard");
    assert_int_equal(heard.count, 0);
    base_log(&log, LOG_INFO, "value %d", 5);
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.level, LOG_INFO);
    assert_string_equal(heard.line, "commstream: value 5");
    log.rank = 3;
    base_log(&log, LOG_ERROR, "%s", "bad");
    assert_string_equal(heard.line, "commstream: rank 3: bad");
}

static void log_cuts_long_lines(void **state)
{
    struct heard heard = {0};
    struct base_log log = {.env = &env_posix, .sink = hear, .arg = &heard, .level = LOG_TRACE, .rank = 0};
    char text[2000];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    base_log(&log, LOG_WARNING, "%s", text);
    assert_int_equal(heard.count, 1);
    assert_int_equal(strlen(heard.line), 767);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_snprintf),           cmocka_unit_test(string_is_not_read_past_its_precision),
        cmocka_unit_test(text_is_cut_and_ended), cmocka_unit_test(append_never_passes_room),
        cmocka_unit_test(small_helpers),         cmocka_unit_test(log_obeys_its_level),
        cmocka_unit_test(log_cuts_long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
