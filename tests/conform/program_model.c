/* What a program's collectives leave in the memory of their ranks, computed at the moment when the program is made. */
#include "conform/program_model.h"

#include <string.h>

static void model_reduce(struct make_program *p, const struct make_action *parts, int32_t count, size_t n)
{
    const void *in[MAKE_RANKS];
    static unsigned char copy[MAKE_RANKS][MAKE_BUFFER_BYTES], result[MAKE_BUFFER_BYTES];
    const struct make_action *a = parts;
    size_t unit = oracle_type_bytes(make_type(a->out));
    for (int32_t i = 0; i < count; i++) {
        memcpy(copy[i], p->model[a->comm][parts[i].rank][parts[i].in < 0 ? parts[i].out : parts[i].in], n * unit);
        in[i] = copy[i];
    }
    oracle_reduce(in, count, n, make_type(a->out), a->op, result);
    for (int32_t i = 0; i < count; i++) {
        unsigned char *out = p->model[a->comm][parts[i].rank][parts[i].out];
        if (a->verb == MAKE_SCATTERED)
            memcpy(out + (parts[i].in < 0 ? (size_t)i * a->n * unit : 0), result + (size_t)i * a->n * unit, a->n * unit);
        else if (a->verb == MAKE_ALLREDUCE || a->root == i)
            memcpy(out, result, n * unit);
    }
}

void model_collective(struct make_program *p, const struct make_action *parts, int32_t count)
{
    static unsigned char blocks[MAKE_BUFFER_BYTES];
    const struct make_action *a = parts;
    size_t bytes = a->n * oracle_type_bytes(make_type(a->out));
    if (a->verb == MAKE_BARRIER)
        return;
    if (a->verb == MAKE_SCATTERED || a->verb == MAKE_ALLREDUCE || a->verb == MAKE_REDUCE) {
        model_reduce(p, parts, count, a->verb == MAKE_SCATTERED ? a->n * (size_t)count : a->n);
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        const struct make_action *from = &parts[a->verb == MAKE_BROADCAST ? a->root : i];
        const unsigned char *at = p->model[a->comm][from->rank][from->in < 0 ? from->out : from->in];
        bool placed = a->verb == MAKE_ALLGATHER && from->in < 0;
        memcpy(blocks + (a->verb == MAKE_BROADCAST ? 0 : (size_t)i * bytes), at + (placed ? (size_t)i * bytes : 0), bytes);
    }
    for (int32_t i = 0; i < count; i++)
        memcpy(p->model[a->comm][parts[i].rank][parts[i].out], blocks, a->verb == MAKE_BROADCAST ? bytes : bytes * (size_t)count);
}

void model_plan(struct make_program *p, const struct make_action *starts, int32_t count)
{
    struct make_action parts[3], all[MAKE_RANKS];
    int32_t length = make_plan_parts(parts);
    for (int32_t k = 0; k < length; k++) {
        for (int32_t i = 0; i < count; i++) {
            all[i] = parts[k];
            all[i].rank = starts[i].rank;
            all[i].comm = starts[i].comm;
        }
        model_collective(p, all, count);
    }
}
