/* The list of collectives that bits.h runs and compares. */
#include "proc/bits.h"

#include "conform/job.h"
#include "selection.h"

static int32_t shape_list(struct job_shape *shapes, int32_t ranks)
{
    static const enum comm_type types[] = {COMM_F32, COMM_BF16, COMM_I32};
    static const size_t counts[] = {97, 5000, 1, 40009};
    int32_t count = 0;
    for (int kind = 0; kind < JOB_KINDS; kind++) {
        for (int t = 0; t < 3; t++) {
            for (int n = 0; n < (int)selected(4, 3, 2); n++) {
                struct job_shape shape = {.kind = (enum job_kind)kind, .type = types[t], .op = COMM_SUM, .n = counts[n]};
                shape.seed = (uint64_t)(kind * 100 + t * 10 + n);
                shape.root = (int32_t)shape.seed % ranks;
                shape.in_place = shape.seed % 3 == 0;
                shapes[count++] = shape;
            }
        }
    }
    return count;
}

static uint64_t job_hash(const struct job *job, int32_t rank)
{
    const struct job_region *out = &job->out[rank];
    enum comm_type type = job->shape.type;
    return out->at ? oracle_hash(out->at + out->lead, out->bytes / oracle_type_bytes(type), type, job->shape.seed) : 1;
}

void bits_run(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    static struct job_shape shapes[PROC_HASHES];
    static struct job job;
    int32_t count = shape_list(shapes, proc->ranks);
    for (int32_t i = 0; i < count; i++) {
        job_prepare(&job, &shapes[i], proc->ranks);
        MUST(job_issue(&job, rank, world));
        rig_wait_all(&job.request[rank], 1);
        job_verify(&job, rank);
        proc->page[rank].hash[i] = job_hash(&job, rank);
        job_free(&job);
    }
    MUST(comm_close(world, RIG_PATIENCE));
}

void bits_compare(const struct proc *proc)
{
    static struct job_shape shapes[PROC_HASHES];
    static struct job job;
    struct rig rig;
    int32_t count = shape_list(shapes, proc->ranks);
    char text[160];
    rig_open(&rig, proc->ranks, NULL);
    for (int32_t i = 0; i < count; i++) {
        job_prepare(&job, &shapes[i], proc->ranks);
        for (int32_t r = 0; r < proc->ranks; r++)
            MUST(job_issue(&job, r, rig.world[r]));
        rig_wait_all(job.request, (size_t)proc->ranks);
        for (int32_t r = 0; r < proc->ranks; r++) {
            if (proc->page[r].hash[i] != job_hash(&job, r))
                rig_die(__FILE__, __LINE__, "%s: rank %d has other bits as a process", job_text(&job, text), r);
        }
        job_free(&job);
    }
    rig_close(&rig);
}
