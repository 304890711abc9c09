/* Logs what was chosen while a world opened, and why: one line at level info. */
#include "world/open.h"

#include "base/format.h"

bool open_by_environment(const struct opening *o, const char *key)
{
    return base_option_source(&o->options, key) == OPTION_FROM_ENVIRONMENT;
}

static const char *why_backend(const struct opening *o)
{
    const char *asked = o->options.backend;

    if (base_equal(o->launch.launcher, "local"))
        return "comm_open_local";
    if (!asked[0] || base_equal(asked, "auto"))
        return o->launch.ranks == 1 ? "auto: one rank" : open_several_hosts(o) ? "auto: several hosts" : "auto: several ranks of one host";
    return open_by_environment(o, "backend") ? "requested by the environment" : "requested by the program";
}

static const char *why_progress(const struct opening *o)
{
    if (o->options.progress == OPTION_PROGRESS_AUTO)
        return o->launch.ranks == 1           ? "auto: one rank"
               : engine_has_thread(o->engine) ? "auto: more CPUs than ranks"
               : o->config.engine_of != NULL  ? "auto: as its engine was opened"
                                              : "auto: no CPU to spare";
    return open_by_environment(o, "progress") ? "requested by the environment" : "requested by the program";
}

/* Lists every option that does not have its default, as its source wrote it. */
static void list_options(const struct opening *o, char *text, size_t bytes)
{
    size_t at = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < base_option_count; i++) {
        const struct base_option *row = &base_option_table[i];
        const char *name = row->environment, *value = o->env->lookup(o->env, name);
        if (o->options.from[i] == OPTION_FROM_PROGRAM)
            base_append(text, bytes, &at, " %s (program)", row->key);
        if (o->options.from[i] != OPTION_FROM_ENVIRONMENT)
            continue;
        if ((!value || !*value) && row->also) {
            name = row->also;
            value = o->env->lookup(o->env, name);
        }
        base_append(text, bytes, &at, " %s=%s", name, value ? value : "");
    }
    if (!at)
        base_append(text, bytes, &at, " all by default");
}

/* One rank says it, since most often all have the same environment. */
void open_tell_misspelt(const struct opening *o)
{
    char names[400];

    if (o->launch.rank > 0)
        return;
    base_option_misspelt(o->env, names, sizeof names);
    if (names[0])
        base_log(&o->log, LOG_WARNING, "open: %s", names);
}

void open_tell(const struct opening *o)
{
    char set[400];

    if (o->log.level < LOG_INFO)
        return;
    list_options(o, set, sizeof set);
    bool met = o->backend->network && o->address && o->address[0];
    base_log(&o->log, LOG_INFO, "open: ranks=%d backend=%s (%s) launcher=%s (%s)%s%s%s%s cpus=%u progress=%s (%s) options:%s",
             o->launch.ranks, o->backend->name, why_backend(o), o->launch.launcher, o->launch.why, met ? " met at " : "",
             met ? o->address : "", met ? ", said by " : "", met ? o->met : "", o->engine->cpus,
             engine_has_thread(o->engine) ? "thread" : "caller", why_progress(o), set);
}
