/* Actions as calls of the library, and misuse: the same call, made differently. */
#include "sim/random_run.h"

#include "now.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void random_fail(struct random_run *run, int32_t index, const char *format, ...)
{
    char text[1024];
    int length = snprintf(text, sizeof text, "seed %llu", (unsigned long long)run->p->seed);
    if (index >= 0) {
        const struct random_action *a = &run->p->action[index];
        length += snprintf(text + length, sizeof text - (size_t)length, ", rank %d, communicator %d, statement %d (%s), action %d", a->rank,
                           a->comm, a->id, random_verb_names[a->verb], index);
    }
    length += snprintf(text + length, sizeof text - (size_t)length, ": ");
    va_list list;
    va_start(list, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, list);
    va_end(list);
    run->stage->fail(text);
}

/* ------------------------------------------------------------------------------------------------------------ collectives */
static enum comm_type other_type(enum comm_type type)
{
    switch ((int)type) {
    case COMM_F32:
        return COMM_I32;
    case COMM_I32:
        return COMM_F32;
    case COMM_BF16:
        return COMM_F16;
    default:
        return COMM_I8;
    }
}

struct form {
    int32_t verb, root, flags;
    enum comm_type type;
    comm_op op;
    size_t n;
};

/* The call as this rank makes it. */
static struct form form_of(const struct random_run *run, const struct random_action *a)
{
    const struct random_comm *comm = &run->view[a->rank].comm[a->comm];
    struct form f = {a->verb, a->root >= 0 ? comm->rank_of[a->root] : 0, a->flags, random_types[a->type], (comm_op)a->op, (size_t)a->n};
    switch (a->misuse) {
    case RANDOM_OTHER_OP:
        f.op = f.op == COMM_MIN ? COMM_MAX : COMM_MIN;
        break;
    case RANDOM_OTHER_COUNT:
        f.n = f.n ? f.n - 1 : 1;
        break;
    case RANDOM_OTHER_TYPE:
        f.type = other_type(f.type);
        break;
    case RANDOM_OTHER_ROOT:
        f.root = (f.root + 1) % comm->members;
        break;
    case RANDOM_OTHER_VERB:
        f.verb = f.verb == RANDOM_BARRIER ? RANDOM_BROADCAST : RANDOM_BARRIER;
        f.flags &= ~RANDOM_RAGGED;
        break;
    case RANDOM_REFUSES:
        f.verb = RANDOM_REFUSED;
        f.flags &= ~RANDOM_RAGGED;
        break;
    default:
        break;
    }
    return f;
}

static enum comm_result call_reducing(struct comm_communicator *c, const struct form *f, const void *in, void *out,
                                      struct comm_request *req)
{
    switch (f->verb) {
    case RANDOM_REDUCE:
        return comm_reduce(c, in, out, f->n, f->type, f->op, f->root, req);
    case RANDOM_ALLREDUCE:
        return comm_allreduce(c, in, out, f->n, f->type, f->op, req);
    case RANDOM_SCAN:
        return comm_scan(c, in, out, f->n, f->type, f->op, req);
    case RANDOM_EXSCAN:
        return comm_exscan(c, in, out, f->n, f->type, f->op, req);
    default:
        return comm_reduce_scatter(c, in, out, f->n, f->type, f->op, req);
    }
}

/* Makes the v form of the call. If blocks are dense, displs may be omitted. */
static enum comm_result call_ragged(struct random_run *run, struct comm_communicator *c, int32_t index, const struct form *f,
                                    const void *in, void *out, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    const struct random_comm *comm = &run->view[a->rank].comm[a->comm];
    int32_t members = comm->members, me = comm->rank_of[a->rank];
    size_t give[RANDOM_RANKS], take[RANDOM_RANKS], give_at[RANDOM_RANKS], take_at[RANDOM_RANKS];
    for (int32_t i = 0; i < members; i++) {
        give[i] = (size_t)random_block(a, me, i);
        take[i] = (size_t)random_block(a, i, me);
        give_at[i] = (size_t)random_in_at(a, members, me, i);
        take_at[i] = (size_t)random_out_at(a, members, me, i);
    }
    switch (f->verb) {
    case RANDOM_BROADCAST:
        run->length[index] = f->n * (size_t)random_unit(a->type);
        return comm_broadcast_bytes(c, out, &run->length[index], f->root, req);
    case RANDOM_ALLGATHER:
        return comm_allgather_v(c, in, out, take, a->key & 1 ? take_at : NULL, f->type, req);
    case RANDOM_GATHER:
        return comm_gather_v(c, in, give[0], out, take, take_at, f->type, f->root, req);
    case RANDOM_SCATTER:
        return comm_scatter_v(c, in, give, give_at, out, take[0], f->type, f->root, req);
    case RANDOM_ALLTOALL:
        return comm_alltoall_v(c, in, give, give_at, out, take, take_at, f->type, req);
    default:
        return comm_reduce_scatter_v(c, in, out, give, f->type, f->op, req);
    }
}

static enum comm_result call_collective(struct random_run *run, struct comm_communicator *c, int32_t index, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    unsigned char *arena = random_arena(run, a->rank, a->type);
    size_t unit = (size_t)random_unit(a->type);
    void *out = arena + (size_t)a->out * unit;
    const void *in = a->in < 0 ? COMM_IN_PLACE : arena + (size_t)a->in * unit;
    struct form f = form_of(run, a);
    if (f.flags & RANDOM_RAGGED)
        return call_ragged(run, c, index, &f, in, out, req);
    switch (f.verb) {
    case RANDOM_BARRIER:
        return comm_barrier(c, req);
    case RANDOM_BROADCAST:
        return comm_broadcast(c, out, f.n, f.type, f.root, req);
    case RANDOM_ALLGATHER:
        return comm_allgather(c, in, out, f.n, f.type, req);
    case RANDOM_GATHER:
        return comm_gather(c, in, out, f.n, f.type, f.root, req);
    case RANDOM_SCATTER:
        return comm_scatter(c, in, out, f.n, f.type, f.root, req);
    case RANDOM_ALLTOALL:
        return comm_alltoall(c, in, out, f.n, f.type, req);
    case RANDOM_REFUSED:
        return comm_broadcast(c, out, f.n, f.type, -7, req);
    case RANDOM_DUP:
        return comm_dup(c, NULL, &run->comm[a->child][a->rank], req);
    case RANDOM_SPLIT:
        return comm_split(c, a->color < 0 ? COMM_NO_COLOR : a->color, a->key,
                          a->child < 0 ? &run->nobody[a->rank] : &run->comm[a->child][a->rank], req);
    default:
        return call_reducing(c, &f, in, out, req);
    }
}

/* ------------------------------------------------------------------------------------------------------------ other calls */
static enum comm_result call_message(struct random_run *run, struct comm_communicator *c, int32_t index, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    unsigned char *arena = random_arena(run, a->rank, a->type);
    size_t unit = (size_t)random_unit(a->type);
    int32_t peer = a->flags & RANDOM_ANY_PEER ? COMM_ANY_PEER : run->view[a->rank].comm[a->comm].rank_of[a->peer];
    uint32_t tag = a->flags & RANDOM_ANY_TAG ? COMM_ANY_TAG : (uint32_t)a->tag;
    if (a->verb == RANDOM_SEND)
        return comm_send(c, arena + (size_t)a->in * unit, (size_t)a->n, random_types[a->type], peer, tag, req);
    return comm_recv(c, arena + (size_t)a->out * unit, (size_t)a->n, random_types[a->type], peer, tag, &run->status[index], req);
}

/* Passes the members in the child's order, which is that of their list. */
static enum comm_result call_subset(struct random_run *run, struct comm_communicator *c, int32_t index, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    const struct random_comm *child = &run->view[a->rank].comm[a->child], *parent = &run->view[a->rank].comm[a->comm];
    int32_t ranks[RANDOM_RANKS];
    for (int32_t i = 0; i < child->members; i++)
        ranks[i] = parent->rank_of[child->world[i]];
    return comm_subset(c, ranks, (size_t)child->members, (uint32_t)a->tag, &run->comm[a->child][a->rank], req);
}

static enum comm_result call_agree(struct random_run *run, struct comm_communicator *c, int32_t index)
{
    run->agreed[index] = random_gives(run->p->action[index].rank);
    return NOW(comm_agree, c, &run->agreed[index]);
}

/* Recorded anew for each try, because the end consumes the recording. */
static enum comm_result call_group(struct random_run *run, struct comm_communicator *c, int32_t index, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_communicator *recorder = NULL;
    enum comm_result result = comm_group_begin(c, &recorder);
    if (result != COMM_OK && req)
        *req = (struct comm_request){NULL, (uint64_t)(int64_t)result};
    for (int32_t i = 0; result == COMM_OK && i < index; i++) {
        const struct random_action *b = &run->p->action[i];
        if (b->rank != a->rank || b->plan != a->plan || random_absent(b, &run->view[a->rank]))
            continue;
        bool message = b->verb == RANDOM_SEND || b->verb == RANDOM_RECV;
        enum comm_result one = message ? call_message(run, recorder, i, NULL) : call_collective(run, recorder, i, NULL);
        if (one != COMM_OK && run->strict)
            random_fail(run, i, "recording it says %s", comm_result_name(one));
    }
    return result == COMM_OK ? comm_group_end(recorder, req) : result;
}

static enum comm_result call_plan(struct random_run *run, struct comm_communicator *c, int32_t index, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_communicator **recorder = &run->recorder[a->plan][a->rank];
    struct comm_plan **plan = &run->plan[a->plan][a->rank];
    enum comm_result result;
    switch (a->verb) {
    case RANDOM_PLAN_BEGIN:
        return comm_plan_begin(c, recorder);
    case RANDOM_PLAN_END:
        result = *recorder ? comm_plan_end(*recorder, plan) : COMM_ERR_STATE;
        *recorder = NULL;
        return result;
    case RANDOM_PLAN_FREE:
        comm_plan_free(*plan);
        *plan = NULL;
        return COMM_OK;
    case RANDOM_PLAN_START:
        if (!*plan && req) /* the plan could not be made */
            *req = (struct comm_request){NULL, (uint64_t)(int64_t)COMM_ERR_STATE};
        return *plan ? comm_plan_start(*plan, req) : COMM_ERR_STATE;
    default:
        return *recorder ? call_collective(run, *recorder, index, NULL) : COMM_ERR_STATE;
    }
}

static enum comm_result renew(struct random_run *run, struct comm_communicator *c, const struct random_action *a)
{
    struct comm_event **event = &run->event[a->rank][a->event];
    comm_event_free(*event);
    *event = NULL;
    return comm_event_create(c, event);
}

static enum comm_result call_event(struct random_run *run, struct comm_communicator *c, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_event *event = run->event[a->rank][a->event];
    if (!event && a->verb != RANDOM_RENEW)
        return COMM_ERR_STATE;
    switch (a->verb) {
    case RANDOM_RECORD:
        return comm_event_record(event, c);
    case RANDOM_RESET:
        return comm_event_reset(event);
    case RANDOM_SET:
        return a->misuse == RANDOM_DESTROYS ? renew(run, c, a) : comm_event_set(event);
    case RANDOM_WAIT_EVENT:
        return comm_queue_wait_event(c, event);
    case RANDOM_EVENT_SYNC:
        return comm_event_sync(event, random_patience(run));
    default:
        return renew(run, c, a);
    }
}

static void make_extra(struct random_run *run, struct comm_communicator *c, int32_t rank)
{
    int64_t *memory = run->extra_memory[rank], end = run->stage->now() + RANDOM_S;
    enum comm_result result;
    do {
        result = comm_allreduce(c, COMM_IN_PLACE, memory, 3, COMM_I64, COMM_PROD, &run->extra[rank]);
        if (result == COMM_ERR_FULL && comm_progress(c) == COMM_OK)
            run->stage->spend(20000);
    } while (result == COMM_ERR_FULL && run->stage->now() < end);
    run->extra_made = result == COMM_OK;
}

static bool creates(uint32_t verb)
{
    return verb == RANDOM_SPLIT || verb == RANDOM_DUP || verb == RANDOM_SUBSET || verb == RANDOM_SHRINK || verb == RANDOM_WINDOW;
}

static enum comm_result call_with(struct random_run *run, struct comm_communicator *c, int32_t index, struct comm_request *req)
{
    const struct random_action *a = &run->p->action[index];
    if (a->verb == RANDOM_GROUP)
        return call_group(run, c, index, req);
    if (a->plan >= RANDOM_GROUPS)
        return COMM_OK; /* until its group is made */
    if (a->plan >= 0)
        return call_plan(run, c, index, req);
    if (a->verb == RANDOM_SEND || a->verb == RANDOM_RECV)
        return call_message(run, c, index, req);
    if (a->verb == RANDOM_WINDOW || a->verb == RANDOM_WINDOW_FENCE || a->verb == RANDOM_ATOMIC)
        return random_window_call(run, index, req);
    if (a->verb == RANDOM_BUCKETS)
        return random_bucket_begin(run, index);
    if (random_is_collective(a->verb))
        return call_collective(run, c, index, req);
    switch (a->verb) {
    case RANDOM_SUBSET:
        return call_subset(run, c, index, req);
    case RANDOM_SHRINK:
        return comm_shrink(c, &run->comm[a->child][a->rank], req);
    case RANDOM_AGREE:
        return call_agree(run, c, index);
    case RANDOM_REVOKE:
        return comm_revoke(c);
    case RANDOM_ABORT:
        return comm_abort(c, 7);
    case RANDOM_WAIT_REQUEST:
        return comm_queue_wait_request(c, run->request[random_find(run->p, a->target, a->rank, index)]);
    default:
        return call_event(run, c, index);
    }
}

/* The next statement may use a created object: without a request of its own the program waits for it here. */
static enum comm_result call_once(struct random_run *run, struct comm_communicator *c, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    bool apart = !(a->flags & RANDOM_NO_REQUEST), waits = !apart && a->plan < 0 && creates((uint32_t)a->verb);
    struct comm_request own = COMM_REQUEST_NONE;
    enum comm_result result = call_with(run, c, index, apart ? &run->request[index] : waits ? &own : NULL);

    return waits && result == COMM_OK ? comm_wait(own, COMM_FOREVER) : result;
}

/* Repeats the call until there is room for it. */
enum comm_result random_call(struct random_run *run, int32_t index)
{
    const struct random_action *a = &run->p->action[index];
    struct comm_communicator *c = run->comm[a->comm][a->rank];
    int64_t start = run->stage->now(), end = start + random_patience(run), nap = 20000;
    run->entered[index] = true;
    if (a->misuse == RANDOM_EXTRA)
        make_extra(run, c, a->rank);
    enum comm_result gave_up = a->misuse == RANDOM_REVOKES ? comm_revoke(c) : a->misuse == RANDOM_ABORTS ? comm_abort(c, 7) : COMM_OK;
    if (gave_up != COMM_OK)
        random_fail(run, index, "%s: it says %s", random_misuse_names[a->misuse], comm_result_name(gave_up));
    for (;;) {
        enum comm_result result = call_once(run, c, index);
        if (result != COMM_ERR_FULL) {
            if (run->stage->now() - start > RANDOM_S)
                run->no_room = true;
            return result;
        }
        enum comm_result moved = comm_progress(c);
        if (moved != COMM_OK && moved != COMM_PENDING)
            return moved;
        if (run->stage->now() > end)
            random_fail(run, index, "I4: no room in the queue for %d s", (int)(random_patience(run) / RANDOM_S));
        if (moved == COMM_OK)
            run->stage->spend(nap);
        nap = nap < 10 * RANDOM_MS ? 2 * nap : nap;
    }
}
