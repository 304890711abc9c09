/* How the ranks of a run meet: in rounds of cells that every rank fills, and that are read when all are full. A world
 * is found by its job. */
#include "sim/inside.h"

#include "base/format.h"

#include <string.h>

enum { ROUNDS_MAX = 16, JOBS_MAX = 8 + SIM_RANKS_MAX };

struct round {
    unsigned char *blobs;
    size_t bytes;
    int32_t arrived;
    bool here[SIM_RANKS_MAX];
};
struct meeting {
    char job[80];
    int32_t ranks;
    struct round round[ROUNDS_MAX];
};
static struct meeting meetings[JOBS_MAX];
static uint32_t meeting_count;

struct sim_boot {
    struct wire_boot boot;
    struct boot_config config;
    struct meeting *meeting;
    uint32_t round;
};

void sim_boot_reset(void);
void sim_boot_reset(void)
{
    memset(meetings, 0, meeting_count * sizeof *meetings);
    meeting_count = 0;
}

extern const struct boot_class boot_sim;

static enum comm_result boot_open(const struct boot_config *config, struct wire_boot **boot)
{
    struct sim_boot *b = config->env->take(config->env, sizeof *b, 64);

    if (!b) {
        base_format(config->error_text, config->error_text_bytes, "no memory to meet");
        return COMM_ERR_MEMORY;
    }
    *b = (struct sim_boot){.boot = {.class = &boot_sim}, .config = *config};
    for (uint32_t i = 0; i < meeting_count && !b->meeting; i++)
        if (!strcmp(meetings[i].job, config->job))
            b->meeting = &meetings[i];
    if (!b->meeting && meeting_count < JOBS_MAX) {
        b->meeting = &meetings[meeting_count++];
        base_copy_text(b->meeting->job, sizeof b->meeting->job, config->job);
        b->meeting->ranks = config->ranks;
    }
    if (!b->meeting || b->meeting->ranks != config->ranks) {
        base_format(config->error_text, config->error_text_bytes, "nowhere to meet, or another number of ranks");
        config->env->give(config->env, b, sizeof *b);
        return COMM_ERR_CONFIG;
    }
    *boot = &b->boot;
    return COMM_OK;
}

static enum comm_result missing(struct sim_boot *b, const struct round *r)
{
    size_t at = 0;

    base_append(b->config.error_text, b->config.error_text_bytes, &at, "time is up; missing ranks:");
    for (int32_t i = 0; i < b->config.ranks; i++)
        if (!r->here[i])
            base_append(b->config.error_text, b->config.error_text_bytes, &at, " %d", i);
    return COMM_ERR_TIMEOUT;
}

static enum comm_result boot_allgather(struct wire_boot *boot, const void *in, size_t bytes, void *out)
{
    struct sim_boot *b = (struct sim_boot *)boot;
    size_t ranks = (size_t)b->config.ranks;

    if (b->round == ROUNDS_MAX)
        return COMM_ERR_FULL;
    struct round *r = &b->meeting->round[b->round++];
    if (!r->blobs) {
        r->blobs = sim_memory_take(ranks * bytes + 1, 64);
        r->bytes = bytes;
    }
    if (!r->blobs || r->bytes != bytes) {
        base_format(b->config.error_text, b->config.error_text_bytes, "the ranks do not speak of the same");
        return COMM_ERR_CONFIG;
    }
    memcpy(r->blobs + (size_t)b->config.rank * bytes, in, bytes);
    r->here[b->config.rank] = true;
    if (++r->arrived == b->config.ranks)
        sim_wake(-1, r, UINT32_MAX);
    int64_t ahead = sim_self()->clock_ahead;
    while (r->arrived < b->config.ranks) {
        if (sim.clock + ahead >= b->config.deadline)
            return missing(b, r);
        sim_wait(r, b->config.deadline - ahead, "meeting");
        ahead = sim_self()->clock_ahead;
    }
    memcpy(out, r->blobs, ranks * bytes);
    return COMM_OK;
}

static enum comm_result boot_pass(struct wire_boot *boot, const int *given, uint32_t count, int *all)
{
    (void)boot;
    (void)given;
    (void)count;
    (void)all;
    return COMM_ERR_UNSUPPORTED;
}

static void boot_close(struct wire_boot *boot)
{
    struct sim_boot *b = (struct sim_boot *)boot;

    b->config.env->give(b->config.env, b, sizeof *b);
}

const struct boot_class boot_sim = {.name = "sim", .open = boot_open, .allgather = boot_allgather, .pass = boot_pass, .close = boot_close};
