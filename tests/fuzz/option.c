/* For any configuration: it is refused with a text, and nothing of it is kept. Or every option has a value that its row allows, from the
 * source that it reports. */
#include "fuzz/fuzz.h"

#include "fuzz/lines.h"
#include "base/option.h"

#include <string.h>

static const struct comm_env env = {.lookup = fuzz_lines_lookup};

static void in_range(const struct base_options *o)
{
    const char *const texts[] = {o->backend, o->algorithm, o->check, o->machine, o->trace_dir};
    const size_t rooms[] = {sizeof o->backend, sizeof o->algorithm, sizeof o->check, sizeof o->machine, sizeof o->trace_dir};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        HOLD(memchr(texts[i], 0, rooms[i]));
    HOLD(o->window >= 4 && !(o->window & (o->window - 1)) && o->queue >= 1);
    HOLD(!(o->chunk & (o->chunk - 1)));
    HOLD(o->open_timeout_ns > 0 && o->operation_timeout_ns > 0 && o->peer_timeout_ns > 0 && o->link_timeout_ns > 0);
    HOLD(o->spin_ns >= 0 && o->yield_ns >= 0);
    HOLD(o->progress >= OPTION_PROGRESS_AUTO && o->progress <= OPTION_PROGRESS_THREAD);
    HOLD(o->order >= OPTION_ORDER_DEFAULT && o->order <= OPTION_ORDER_FREE);
    HOLD(o->isa >= OPTION_ISA_AUTO && o->isa <= OPTION_ISA_AVX512 && (o->minimal == 0 || o->minimal == 1));
    for (uint32_t i = 0; i < base_option_count; i++)
        HOLD(base_option_source(o, base_option_table[i].key) <= OPTION_FROM_ENVIRONMENT);
}

int fuzz_option(const unsigned char *bytes, size_t count)
{
    const char *program = fuzz_lines_read(bytes, count, true);
    struct base_options options, before;
    char text[512];

    memset(&options, 0x5a, sizeof options);
    before = options;
    if (!base_options_read(&env, program, &options, text, sizeof text)) {
        HOLD(text[0] && memchr(text, 0, sizeof text) && !memcmp(&options, &before, sizeof options));
        return 0;
    }
    HOLD(!text[0]);
    in_range(&options);
    return 1;
}
