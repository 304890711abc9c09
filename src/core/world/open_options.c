/* The options that the program and the environment set for a new world: the configuration, and the options that it overrides. */
#include "world/communicators.h"
#include "world/open.h"

#include "base/format.h"

#include <stddef.h>
#include <string.h>

#define OPEN_LONGEST_NS (INT64_C(365) * 86400 * 1000000000) /* COMM_FOREVER too, so that a deadline does not overflow */

enum comm_result engine_complain(const struct comm_config *config, enum comm_result r, const char *text)
{
    size_t known = offsetof(struct comm_config, error_text_bytes) + sizeof config->error_text_bytes;

    if (config && config->size >= known && config->error_text && config->error_text_bytes)
        base_copy_text(config->error_text, config->error_text_bytes, text);
    return r;
}

enum comm_result open_complain(struct opening *o, enum comm_result result)
{
    if (!o->text[0])
        base_copy_text(o->text, sizeof o->text, base_result_text(result));
    if (o->log.env)
        base_log(&o->log, LOG_ERROR, "open: %s: %s", base_result_name(result), o->text);
    return engine_complain(&o->config, result, o->text);
}

static bool tail_is_zero(const void *from, size_t ours, size_t theirs)
{
    for (size_t i = ours; i < theirs; i++)
        if (((const unsigned char *)from)[i])
            return false;
    return true;
}

enum comm_result open_copy_config(struct comm_config *config, const struct comm_config *given, char *text, size_t text_bytes)
{
    size_t size = given ? given->size : 0;

    if (!given)
        return COMM_OK;
    if (size < sizeof(size_t)) {
        base_format(text, text_bytes, "config.size is %zu; expected sizeof(struct comm_config): use COMM_CONFIG()", size);
        return COMM_ERR_ARGUMENT;
    }
    memcpy(config, given, size < sizeof *config ? size : sizeof *config);
    if (!tail_is_zero(given, sizeof *config, size)) {
        base_format(text, text_bytes, "config has fields that this library (version %x) does not know", COMM_VERSION);
        return COMM_ERR_UNSUPPORTED;
    }
    return COMM_OK;
}

static bool program_decides(struct opening *o, const char *key, bool given)
{
    if (!given || open_by_environment(o, key))
        return false;
    o->options.from[base_option_find(key) - base_option_table] = OPTION_FROM_PROGRAM;
    return true;
}

/* Validates the enum fields of the configuration. */
static bool check_choices(struct opening *o)
{
    const struct comm_config *c = &o->config;
    const struct {
        const char *name;
        int32_t value, low, high;
    } choice[] = {
        {"progress", (int32_t)c->progress, COMM_PROGRESS_AUTO, COMM_PROGRESS_THREAD},
        {"notify", (int32_t)c->notify, COMM_NOTIFY_DEFAULT, COMM_NOTIFY_PROGRESS},
        {"order", (int32_t)c->order, COMM_ORDER_DEFAULT, COMM_ORDER_FREE},
        {"log_level", (int32_t)c->log_level, COMM_LOG_OFF, COMM_LOG_TRACE},
    };

    for (size_t i = 0; i < sizeof choice / sizeof *choice; i++)
        if (choice[i].value < choice[i].low || choice[i].value > choice[i].high) {
            base_format(o->text, sizeof o->text, "config.%s=%d; expected %d to %d", choice[i].name, choice[i].value, choice[i].low,
                        choice[i].high);
            return false;
        }
    return true;
}

static enum comm_result merge_options(struct opening *o)
{
    struct comm_config *c = &o->config;
    struct base_options *p = &o->options;

    if (!base_options_read(o->env, c->options, p, o->text, sizeof o->text))
        return COMM_ERR_CONFIG;
    if (!check_parse(p->check, &o->check)) {
        base_format(o->text, sizeof o->text, "check: \"%s\"; expected calls, buffers or rendezvous, several with commas", p->check);
        return COMM_ERR_CONFIG;
    }
    if (!check_choices(o))
        return COMM_ERR_CONFIG;
    if (c->order == COMM_ORDER_FIXED && open_by_environment(o, "order") && p->order != OPTION_ORDER_FIXED) {
        base_format(o->text, sizeof o->text, "COMM_ORDER=%s contradicts the program, which asks for order fixed; unset it",
                    p->order == OPTION_ORDER_FREE ? "free" : "default");
        return COMM_ERR_CONFIG;
    }
    if (program_decides(o, "backend", c->backend != NULL))
        base_copy_text(p->backend, sizeof p->backend, c->backend);
    if (program_decides(o, "progress", c->progress != 0))
        p->progress = (int32_t)c->progress;
    if (program_decides(o, "order", c->order != 0))
        p->order = (int32_t)c->order;
    if (program_decides(o, "log", c->log_level != 0))
        p->log = c->log_level == COMM_LOG_OFF ? 0 : (int32_t)c->log_level;
    if (program_decides(o, "open_timeout", c->open_timeout_ns != 0))
        p->open_timeout_ns = c->open_timeout_ns < OPEN_LONGEST_NS ? c->open_timeout_ns : OPEN_LONGEST_NS;
    if (program_decides(o, "operation_timeout", c->operation_timeout_ns != 0))
        p->operation_timeout_ns = c->operation_timeout_ns;
    if (p->open_timeout_ns <= 0 || p->operation_timeout_ns <= 0) {
        base_format(o->text, sizeof o->text, "open_timeout_ns=%lld operation_timeout_ns=%lld; expected more than 0",
                    (long long)p->open_timeout_ns, (long long)p->operation_timeout_ns);
        return COMM_ERR_CONFIG;
    }
    return COMM_OK;
}

/* For errors of the options: how much to log may be right where another option is wrong. */
static int32_t level_of_errors(const struct opening *o)
{
    const char *said = o->env->lookup(o->env, "COMM_LOG");
    int64_t level;

    if (o->config.log_level != COMM_LOG_DEFAULT && !(said && *said))
        return o->config.log_level == COMM_LOG_OFF ? 0 : (int32_t)o->config.log_level;
    return base_option_lookup(o->env, "log", &level) ? (int32_t)level : LOG_WARNING;
}

enum comm_result open_begin(struct opening *o, const struct comm_config *given)
{
    enum comm_result r;
    int failed;

    memset(o, 0, sizeof *o);
    o->env = wire_default_env();
    failed = o->env->start(o->env);
    if (!failed)
        o->env->find_devices(o->env);
    if (failed) {
        base_format(o->text, sizeof o->text, "the environment cannot start, errno=%d%s", failed,
                    failed == ENV_FORKED ? ": called in a forked child" : "");
        r = failed == ENV_FORKED ? COMM_ERR_FORKED : COMM_ERR_SYSTEM;
        return open_copy_config(&o->config, given, o->text, sizeof o->text) == COMM_OK ? r : COMM_ERR_ARGUMENT;
    }
    r = open_copy_config(&o->config, given, o->text, sizeof o->text);
    if (r == COMM_OK)
        r = merge_options(o);
    o->log = (struct base_log){o->env, o->config.log, o->config.log_arg, r == COMM_OK ? o->options.log : level_of_errors(o), -1};
    o->deadline = o->env->now(o->env) + o->options.open_timeout_ns;
    return r;
}
