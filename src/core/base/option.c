/* Reads option values from the defaults, the program's string and the environment. Collects every error before it
 * refuses. */
#include "base/option.h"
#include "base/check.h"
#include "base/format.h"

#include <string.h>

enum { VALUE_BYTES = 512, EXPECTED_BYTES = 256, FRACTION_DIGITS = 9 };

/* ------------------------------------------------------------------------------------------------------------ values */
struct unit {
    const char *name;
    int64_t amount;
};
static const struct unit time_units[] = {
    {"", INT64_C(1000000000)},     {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", INT64_C(1000000000)}, {"m", INT64_C(60000000000)},
    {"h", INT64_C(3600000000000)}, {NULL, 0},
};
static const struct unit byte_units[] = {
    {"", 1},        {"B", 1},         {"K", 1 << 10}, {"k", 1 << 10},   {"KiB", 1 << 10}, {"M", 1 << 20},
    {"m", 1 << 20}, {"MiB", 1 << 20}, {"G", 1 << 30}, {"GiB", 1 << 30}, {NULL, 0},
};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "1.5ms": digits, a fraction of at most nine digits, and a unit in which the amount is a whole number. */
static bool parse_amount(const char *text, const struct unit *units, int64_t *amount)
{
    int64_t whole = 0, fraction = 0, scale = 1;

    if (!is_digit(*text))
        return false;
    for (; is_digit(*text); text++)
        if (__builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, *text - '0', &whole))
            return false;
    if (*text == '.') {
        text++;
        for (int digits = 0; is_digit(*text) && digits < FRACTION_DIGITS; digits++, text++) {
            fraction = fraction * 10 + *text - '0';
            scale *= 10;
        }
        if (scale == 1)
            return false;
    }
    for (; units->name; units++) {
        if (!base_equal(units->name, text))
            continue;
        int64_t part;
        if (__builtin_mul_overflow(whole, units->amount, &whole) || __builtin_mul_overflow(fraction, units->amount, &part))
            return false;
        if (part % scale || __builtin_add_overflow(whole, part / scale, amount))
            return false;
        return true;
    }
    return false;
}

static bool parse_bool(const char *text, int64_t *value)
{
    static const char *const words[] = {"0", "1", "no", "yes", "off", "on", "false", "true"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (base_equal(text, words[i])) {
            *value = i & 1;
            return true;
        }
    return false;
}

static bool parse_choice(const char *text, const char *choices, int64_t *value)
{
    size_t length = strlen(text);

    for (*value = 0;; ++*value) {
        size_t span = 0;
        while (choices[span] && choices[span] != '|')
            span++;
        if (span == length && strncmp(choices, text, length) == 0)
            return true;
        if (!choices[span])
            return false;
        choices += span + 1;
    }
}

/* An option that was a switch and now has a third value still accepts the words of a switch. */
static bool parse_bool_choice(const char *text, const char *choices, int64_t *value)
{
    int64_t yes = 0;

    return parse_bool(text, &yes) && parse_choice(yes ? "yes" : "no", choices, value);
}

static bool in_range(const struct base_option *row, int64_t value)
{
    if (value == 0 && row->flags & OPTION_ZERO)
        return true;
    if (value < row->min || value > row->max)
        return false;
    return !(row->flags & OPTION_POWER_OF_TWO) || (value & (value - 1)) == 0;
}

static bool parse_value(const struct base_option *row, const char *text, int64_t *value)
{
    switch (row->type) {
    case OPTION_BOOL:
        return parse_bool(text, value);
    case OPTION_CHOICE:
        return parse_choice(text, row->choices, value) || parse_bool_choice(text, row->choices, value);
    case OPTION_TIME:
        return parse_amount(text, time_units, value) && in_range(row, *value);
    case OPTION_BYTES:
        return parse_amount(text, byte_units, value) && in_range(row, *value);
    case OPTION_NUMBER:
        return parse_amount(text, no_units, value) && in_range(row, *value);
    case OPTION_TEXT:
        break;
    }
    return false;
}

bool base_option_set(const struct base_option *row, const char *text, struct base_options *options)
{
    char *field = (char *)options + row->offset;
    int64_t value;

    if (row->type == OPTION_TEXT) {
        if (row->room && strlen(text) >= row->room)
            return false;
        if (row->room)
            base_copy_text(field, row->room, text);
        return true;
    }
    if (!parse_value(row, text, &value))
        return false;
    if (!row->room)
        return true;
    if (row->room == sizeof(uint32_t)) {
        uint32_t narrow = (uint32_t)value;
        memcpy(field, &narrow, sizeof narrow);
    } else {
        BASE_ASSERT(row->room == sizeof value);
        memcpy(field, &value, sizeof value);
    }
    return true;
}

bool base_option_lookup(const struct comm_env *env, const char *key, int64_t *value)
{
    const struct base_option *row = base_option_find(key);

    BASE_ASSERT(row != NULL);
    const char *text = env->lookup(env, row->environment);
    return parse_value(row, text && *text ? text : row->default_text, value);
}

enum option_source base_option_source(const struct base_options *options, const char *key)
{
    const struct base_option *row = base_option_find(key);

    BASE_ASSERT(row != NULL);
    return options->from[row - base_option_table];
}

/* ------------------------------------------------------------------------------------------------------------ sources */
struct reader {
    struct base_options options;
    char *text;
    size_t room, at;
    bool failed, unknown;
};

static void complain(struct reader *reader, const char *name, const char *value, const char *where, const char *what, const char *expected)
{
    base_append(reader->text, reader->room, &reader->at, "%s%s=%s in the %s: %s%s", reader->failed ? "; " : "", name, value, where, what,
                expected);
    reader->failed = true;
}

/* The environment must not override a choice that the program insisted on, because the results would change. */
static bool overrides_firm(const struct reader *reader, const struct base_option *row, const char *value)
{
    int32_t chosen;
    int64_t wanted;

    if (!row->firm || reader->options.from[row - base_option_table] != OPTION_FROM_PROGRAM)
        return false;
    memcpy(&chosen, (const char *)&reader->options + row->offset, sizeof chosen);
    return chosen == row->firm && parse_choice(value, row->choices, &wanted) && wanted != chosen;
}

static void take_value(struct reader *reader, const struct base_option *row, const char *name, const char *value, enum option_source from)
{
    static const char *const places[] = {"defaults", "options string", "environment"};
    char expected[EXPECTED_BYTES];

    if (from == OPTION_FROM_ENVIRONMENT && overrides_firm(reader, row, value)) {
        complain(reader, name, value, places[from], "the program set another value, which cannot be overridden", "");
        return;
    }
    if (!base_option_set(row, value, &reader->options)) {
        base_option_expected(row, expected, sizeof expected);
        complain(reader, name, value, places[from], "expected ", expected);
        return;
    }
    reader->options.from[row - base_option_table] = (uint8_t)from;
}

static size_t name_length(const char *at)
{
    size_t length = 0;

    while ((at[length] >= 'a' && at[length] <= 'z') || at[length] == '_' || is_digit(at[length]))
        length++;
    return length;
}

/* The length of a value: it ends at the end of the string, or at a comma that is the last character or precedes another
 * "name=". */
static size_t value_length(const char *at)
{
    for (size_t length = 0;; length++) {
        if (!at[length])
            return length;
        if (at[length] != ',')
            continue;
        const char *next = at + length + 1;
        if (!*next || (name_length(next) && next[name_length(next)] == '='))
            return length;
    }
}

static void read_pair(struct reader *reader, const char *key, size_t key_bytes, const char *value, size_t value_bytes)
{
    char name[64], text[VALUE_BYTES];
    const struct base_option *row;

    base_format(name, sizeof name, "%.*s", (int)key_bytes, key);
    size_t length = base_format(text, sizeof text, "%.*s", (int)value_bytes, value);
    row = key_bytes < sizeof name ? base_option_find(name) : NULL;
    if (!row) {
        complain(reader, name, text, "options string", "no such option", "");
        reader->unknown = true;
    } else if (row->flags & OPTION_ENVIRONMENT_ONLY) {
        complain(reader, name, text, "options string", "only the environment can set it, as ", row->environment);
    } else if (length >= sizeof text) {
        complain(reader, name, text, "options string", "too long", "");
    } else {
        take_value(reader, row, name, text, OPTION_FROM_PROGRAM);
    }
}

static void read_program(struct reader *reader, const char *at)
{
    while (at && *at) {
        size_t key = name_length(at);
        if (key == 0 || at[key] != '=') {
            base_append(reader->text, reader->room, &reader->at, "%s\"%s\" in the options string: expected key=value,...",
                        reader->failed ? "; " : "", at);
            reader->failed = true;
            return;
        }
        size_t value = value_length(at + key + 1);
        read_pair(reader, at, key, at + key + 1, value);
        at += key + 1 + value;
        at += *at == ',';
    }
}

/* Appends the unit that the name of a variable implies (COBRE_TCP_CONNECT_TIMEOUT_MS). A text that does not fit is not
 * a valid number either. */
static const char *with_unit(const struct base_option *row, const char *value, char *text, size_t room)
{
    size_t length = value && row->also_unit ? strlen(value) : 0;

    if (!length || !is_digit(value[length - 1]) || base_format(text, room, "%s%s", value, row->also_unit) >= room)
        return value;
    return text;
}

/* An empty variable counts as unset, because shells and job files leave such variables. */
static void read_environment(struct reader *reader, const struct comm_env *env, const struct base_option *row)
{
    const char *name = row->environment, *value = env->lookup(env, name);
    char united[VALUE_BYTES];

    if ((!value || !*value) && row->also) {
        name = row->also;
        value = with_unit(row, env->lookup(env, name), united, sizeof united);
    }
    if (value && *value)
        take_value(reader, row, name, value, OPTION_FROM_ENVIRONMENT);
}

bool base_options_read(const struct comm_env *env, const char *program, struct base_options *options, char *text, size_t room)
{
    struct reader reader = {.text = text, .room = room};

    if (room)
        text[0] = 0;
    for (uint32_t i = 0; i < base_option_count; i++)
        BASE_ASSERT(base_option_set(&base_option_table[i], base_option_table[i].default_text, &reader.options));
    read_program(&reader, program);
    for (uint32_t i = 0; i < base_option_count; i++)
        read_environment(&reader, env, &base_option_table[i]);
    if (reader.unknown) {
        base_append(text, room, &reader.at, "; options are");
        for (uint32_t i = 0; i < base_option_count; i++)
            if (!(base_option_table[i].flags & OPTION_ENVIRONMENT_ONLY))
                base_append(text, room, &reader.at, " %s", base_option_table[i].key);
    }
    if (reader.failed)
        return false;
    *options = reader.options;
    return true;
}
