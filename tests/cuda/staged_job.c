/* Jobs on memory of the mock device. */
#include "staged_job.h"

#include "mock_everywhere.h"

#include <string.h>

static void region_put(struct job_region *region, unsigned char **host, bool on_device)
{
    *host = region->at;
    if (!region->at || !on_device)
        return;
    region->at = mock_take(region->total);
    memcpy(mock_peek(region->at), *host, region->total);
}

static void region_get(struct job_region *region, unsigned char *host)
{
    if (region->at == host)
        return;
    memcpy(host, mock_peek(region->at), region->total);
    mock_give(region->at);
    region->at = host;
}

/* Each ticket is one entry of the queue. */
uint64_t staged_job_parts(const struct rig *rig, const struct comm_request *before, const struct comm_request *q)
{
    for (int32_t r = 1; r < rig->ranks; r++)
        EQUAL(q[r].ticket - before[r].ticket, q[0].ticket - before[0].ticket);
    return q[0].ticket - before[0].ticket;
}

void staged_job_mark(const struct rig *rig, struct comm_request *before)
{
    for (int32_t r = 0; r < rig->ranks; r++)
        MUST(comm_barrier(rig->world[r], &before[r]));
    rig_wait_all(before, (size_t)rig->ranks);
}

/* Of a call with counts: of the longest block. */
static size_t elements_told(const struct job *job)
{
    size_t longest = 0;

    for (int32_t r = 0; job->shape.counts && r < job->ranks; r++)
        longest = job->shape.counts[r] > longest ? job->shape.counts[r] : longest;
    return job->shape.counts ? longest : job->shape.n;
}

uint64_t staged_job_run(struct rig *rig, const struct job_shape *shape, int sides)
{
    static struct job job;
    unsigned char *in[RIG_RANKS_MAX], *out[RIG_RANKS_MAX];
    struct comm_request before[RIG_RANKS_MAX];
    char text[160];

    job_prepare(&job, shape, rig->ranks);
    rig_note("%s, sides %d", job_text(&job, text), sides);
    for (int32_t r = 0; r < rig->ranks; r++) {
        region_put(&job.in[r], &in[r], sides & IN_ON_DEVICE);
        region_put(&job.out[r], &out[r], sides & OUT_ON_DEVICE);
    }
    staged_job_mark(rig, before);
    for (int32_t r = 0; r < rig->ranks; r++)
        MUST(job_issue(&job, r, rig->world[r]));
    rig_wait_all(job.request, (size_t)rig->ranks);
    uint64_t parts = staged_job_parts(rig, before, job.request);
    for (int32_t r = 0; r < rig->ranks; r++) {
        struct comm_request_info info = {.size = sizeof info};
        MUST(comm_describe_request(job.request[r], &info));
        EQUAL(info.bytes, elements_told(&job) * oracle_type_bytes(shape->type));
        EQUAL(info.flags, job.in[r].at != in[r] || job.out[r].at != out[r] ? COMM_INFO_STAGED : 0);
        region_get(&job.in[r], in[r]);
        region_get(&job.out[r], out[r]);
        job_verify(&job, r);
    }
    job_free(&job);
    return parts;
}
