/*
 * Options. One table has a row per option: key, environment variable, type, default, range, unit and help. Parsing,
 * range errors, comm_describe_option and the documentation all use that table. A new option needs one field here and
 * one row in option_table.c.
 *
 * The environment overrides the program's "key=value,..." string, which overrides the default: options are for tuning,
 * and an operator must be able to change them without rebuilding. The rank's own identity is not an option.
 */
#ifndef BASE_OPTION_H
#define BASE_OPTION_H

#include "base/env.h"

enum option_progress { OPTION_PROGRESS_AUTO, OPTION_PROGRESS_CALLER, OPTION_PROGRESS_THREAD };
enum option_order { OPTION_ORDER_DEFAULT, OPTION_ORDER_FIXED, OPTION_ORDER_FREE };
enum option_isa { OPTION_ISA_AUTO, OPTION_ISA_SCALAR, OPTION_ISA_AVX2, OPTION_ISA_AVX512 };

enum option_source { OPTION_FROM_DEFAULT = 0, OPTION_FROM_PROGRAM = 1, OPTION_FROM_ENVIRONMENT = 2 };
enum { OPTION_COUNT_MAX = 40 };

struct base_options {
    int64_t open_timeout_ns, operation_timeout_ns, peer_timeout_ns, link_timeout_ns;
    int64_t spin_ns, yield_ns;
    uint64_t chunk; /* bytes; 0: the wire's own choice */
    uint32_t window, queue;
    uint32_t cpus; /* 0: as detected */
    uint32_t order_block;
    int32_t progress; /* enum option_progress, equal to enum comm_progress_mode */
    int32_t order;    /* enum option_order, equal to enum comm_order */
    int32_t log;      /* enum log_level; 0: silent */
    int32_t isa;
    int32_t minimal;                                     /* every limit at its minimum */
    uint32_t nccl_min_ctas, nccl_max_ctas, nccl_cluster; /* 0: NCCL's own choice */
    int32_t nccl_split_share, nccl_fallback;
    char backend[16];
    char algorithm[256];
    char check[32];
    char machine[256];
    char trace_dir[256];
    uint8_t from[OPTION_COUNT_MAX]; /* enum option_source, by row */
};

enum option_type { OPTION_TEXT, OPTION_NUMBER, OPTION_BOOL, OPTION_CHOICE, OPTION_TIME, OPTION_BYTES };
enum option_flag {
    OPTION_POWER_OF_TWO = 1,
    OPTION_ZERO = 2,             /* 0 is also allowed, outside the range */
    OPTION_ENVIRONMENT_ONLY = 4, /* read where it is needed; a program cannot set it */
};

struct base_option {
    const char *key, *environment;
    const char *also;      /* another environment variable that is already in use, or NULL; `environment` has precedence */
    const char *also_unit; /* unit of a bare number in `also`; NULL: as in `environment` */
    enum option_type type;
    uint32_t flags;
    uint32_t offset, room; /* in struct base_options; room of a text includes its zero byte; room 0: checked but not stored */
    const char *choices;   /* "first|second": values 0, 1, ... */
    const char *default_text;
    int64_t min, max; /* for numbers, times (ns) and bytes */
    int32_t firm;     /* if the program chose this value, the environment cannot choose another; 0: none */
    uint32_t reserved;
    const char *unit, *help;
};

extern const struct base_option base_option_table[];
extern const uint32_t base_option_count;
const struct base_option *base_option_find(const char *key); /* NULL: no such key */
const char *base_option_type_name(enum option_type type);
/* Describes the valid values: "a power of two from 4 to 1024". */
void base_option_expected(const struct base_option *row, char *text, size_t room);
/* The environment's value of an environment-only option, or its default, as a number; for a choice, its index. False:
 * malformed. */
bool base_option_lookup(const struct comm_env *env, const char *key, int64_t *value);

/* Sets the field and returns true if `value` is well formed and in range. */
bool base_option_set(const struct base_option *row, const char *value, struct base_options *options);
/* program: "key=value,..." or NULL. False: a CONFIG error; text names every wrong value, where it came from and what
 * was expected, and *options is unchanged. A comma belongs to a text value unless "name=" follows it. */
bool base_options_read(const struct comm_env *env, const char *program, struct base_options *options, char *text, size_t room);
/* Names the variables of the environment that are none of the library's and look like one, and that one; "" if there are none. */
void base_option_misspelt(const struct comm_env *env, char *text, size_t room);
enum option_source base_option_source(const struct base_options *options, const char *key);

#endif
