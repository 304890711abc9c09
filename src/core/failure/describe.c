/* Describes a failure: the text and the fields of comm_error_detail. */
#include "failure/failure.h"

#include "comm/state.h"

#include "base/format.h"

#include <string.h>

static void describe_call(const struct comm_state *b, int32_t rank, uint64_t seq, char *text, size_t bytes, size_t *at)
{
    struct made_call call;

    if (rank < 0 || rank >= b->team.size || !state_read_call(b, rank, (uint32_t)seq, &call)) {
        /* Over a network, the rank may have made the call although its announcement has not arrived yet. */
        base_append(text, bytes, at, b->channel->board ? "rank %d has not made call %llu" : "rank %d's call %llu is not known here", rank,
                    (unsigned long long)seq);
        return;
    }
    base_append(text, bytes, at, "rank %d called %s%s%s%s%s%s%s n=%llu", rank, call.flags & ENGINE_CALL_PLAN ? "a planned " : "",
                call.flags & ENGINE_CALL_GROUP && call.collective != COLLECTIVE_GROUP ? "in a group " : "",
                call.flags & ENGINE_CALL_TOGETHER ? "together with the call before " : "",
                call.flags & ENGINE_CALL_RECORDED ? "into a CUDA graph " : "",
                call.flags & ENGINE_CALL_FOLDED ? "on device memory with the host's operator " : "",
                call.flags & ENGINE_CALL_DEVICE ? "on device memory " : "", collective_name(call.collective), (unsigned long long)call.n);
    if (call.collective == COLLECTIVE_GROUP) { /* its op tells what was packed */
        base_append(text, bytes, at, " bytes of small allreduces");
        return;
    }
    if (call.type)
        base_append(text, bytes, at, " type=%s", data_type_name((enum comm_type)call.type));
    /* For ragged collectives op holds a balance, for a dup a hash of its options. */
    if (call.op && !collective_is_ragged(call.collective) && call.collective != COLLECTIVE_DUP)
        base_append(text, bytes, at, " op=%s",
                    operator_is_premul(call.op) ? "premul_sum"
                    : call.op & OPERATOR_USER   ? "of its own"
                                                : data_op_name(call.op));
    base_append(text, bytes, at, " root=%d", call.root);
}

static bool same_call(const struct comm_state *b, int32_t first, int32_t second, uint64_t seq)
{
    struct made_call one, other;

    return state_read_call(b, first, (uint32_t)seq, &one) && state_read_call(b, second, (uint32_t)seq, &other) &&
           one.fingerprint == other.fingerprint;
}

/* Planned calls that look alike, of a library that also compares their plans (native/standing.h). v forms may differ in their counts. */
static bool differ_only_in_plan(const struct comm_state *b, int32_t first, int32_t second, uint64_t seq)
{
    struct made_call one, other;

    if (!(b->library_work.flags & NATIVE_STANDS) || !state_read_call(b, first, (uint32_t)seq, &one) ||
        !state_read_call(b, second, (uint32_t)seq, &other) || !(one.flags & other.flags & ENGINE_CALL_PLAN))
        return false;
    bool counted = one.collective == COLLECTIVE_ALLGATHER_V || one.collective == COLLECTIVE_REDUCE_SCATTER_V;
    return !counted && one.collective == other.collective && one.type == other.type && one.op == other.op && one.root == other.root &&
           one.n == other.n;
}

static bool differ_in_options(const struct comm_state *b, int32_t first, int32_t second, uint64_t seq)
{
    struct made_call one, other;

    return state_read_call(b, first, (uint32_t)seq, &one) && state_read_call(b, second, (uint32_t)seq, &other) &&
           one.collective == COLLECTIVE_DUP && other.collective == COLLECTIVE_DUP && one.op != other.op;
}

/* A text that is appended to until its buffer is full. */
struct text {
    char *text;
    size_t bytes, at;
};
#define SAY(to, ...) base_append((to)->text, (to)->bytes, &(to)->at, __VA_ARGS__)

static void describe_mismatch(const struct comm_state *b, const struct cause *c, struct text *to)
{
    bool same = same_call(b, c->rank, c->peer, c->number);

    if (same && collective_is_ragged(c->collective) && c->rank == c->peer) {
        SAY(to, "what some rank gives another has another length than that one takes; rank %d's call: ", c->rank);
        describe_call(b, c->rank, c->number, to->text, to->bytes, &to->at);
        return;
    }
    if (same && collective_is_ragged(c->collective)) {
        SAY(to, "what rank %d gives rank %d, or takes from it, has another length there", c->rank, c->peer);
        return;
    }
    if (same && !(b->world->check & CHECK_CALLS)) {
        SAY(to, "ranks %d and %d made different calls before this one, too long ago to say which", c->rank, c->peer);
        return;
    }
    describe_call(b, c->rank, c->number, to->text, to->bytes, &to->at);
    SAY(to, ", but ");
    describe_call(b, c->peer, c->number, to->text, to->bytes, &to->at);
    if (differ_only_in_plan(b, c->rank, c->peer, c->number))
        SAY(to, "; they are of different plans, or only one has device buffers: all ranks start the same plans in the same order");
    else if (differ_in_options(b, c->rank, c->peer, c->number))
        SAY(to, "; options.order or options.options differ: expected the same on all ranks");
    else if (b->world->check & CHECK_CALLS)
        SAY(to, "; check=calls: alike calls come from different places of the program");
}

static void describe_refusal(const struct comm_state *b, const struct cause *c, struct text *to)
{
    (void)b;
    SAY(to, "rank %d refused call %llu (%s): %s", c->rank, (unsigned long long)c->number, base_result_name((enum comm_result)c->code),
        base_result_text((enum comm_result)c->code));
}

static void describe_silence(const struct comm_state *b, const struct cause *c, struct text *to)
{
    (void)b;
    if (c->code < 0)
        SAY(to, "rank %d cannot be reached: nothing sent to it was acknowledged for %d ms; found by rank %d", c->rank, -c->code, c->peer);
    else if (c->code)
        SAY(to, "rank %d is stopped: its process lives, but has sent no heartbeat for %d ms; found by rank %d", c->rank, c->code, c->peer);
    else
        SAY(to, "rank %d died; found by rank %d", c->rank, c->peer);
}

static void describe_closed(const struct comm_state *b, const struct cause *c, struct text *to)
{
    unsigned long long number = c->number;

    (void)b;
    if (c->rank == c->peer)
        SAY(to, "rank %d closed while its call %llu was unfinished", c->rank, number);
    else if (c->point && c->collective)
        SAY(to, "rank %d closed after its call %d, and something of call %llu was lost on its way to rank %d", c->rank, c->code, number,
            c->peer);
    else if (c->point)
        SAY(to, "rank %d closed after its call %d, and a message was lost on its way to rank %d", c->rank, c->code, c->peer);
    else if (c->collective)
        SAY(to, "rank %d closed after its call %d, and call %llu needs it", c->rank, c->code, number);
    else
        SAY(to, "rank %d closed after its call %d, and a message of rank %d needs it", c->rank, c->code, c->peer);
}

static void describe_timeout(const struct comm_state *b, const struct cause *c, struct text *to)
{
    SAY(to, "the deadline of %lld ms passed on rank %d", (long long)(b->timeout_ns / 1000000), c->rank);
    if (c->peer >= 0 && c->peer != c->rank)
        SAY(to, ", which waited for rank %d", c->peer);
}

static void describe_corruption(const struct comm_state *b, const struct cause *c, struct text *to)
{
    (void)b;
    SAY(to, "rank %d sent rank %d something that no call of the library sends", c->rank, c->peer);
}

/* code > 0: the collective at the head of the other queue; 0: a queue wait; < 0: a message with rank -1 - code. */
static void describe_deadlock(const struct comm_state *b, const struct cause *c, struct text *to)
{
    (void)b;
    if (c->code < 0) {
        SAY(to, "rank %d waits in its queue for a message from or to rank %d of that communicator, whose queue waits for it in turn",
            c->rank, -1 - c->code);
        return;
    }
    SAY(to, "call %llu of rank %d is blocked by a queue wait for another communicator, ", (unsigned long long)c->number, c->rank);
    SAY(to, c->code ? "whose call %d waits for ranks that wait for this one" : "which waits for this one", c->code);
}

static void describe_abort(const struct comm_state *b, const struct cause *c, struct text *to)
{
    (void)b;
    if (c->rank < 0)
        SAY(to, "a rank that is no member called comm_abort with code %d", c->code);
    else
        SAY(to, "rank %d called comm_abort with code %d", c->rank, c->code);
}

/* All ranks have the same library, so any rank can translate its error number into text. A wire over the library has no number. */
static void describe_backend_error(const struct comm_state *b, const struct cause *c, struct text *to)
{
    struct native *native = b->world->native;
    char why[256] = "";

    if (c->point) {
        SAY(to, "rank %d: the device refused a copy between its memory and pinned memory of the host, or a fault has stopped it", c->rank);
        return;
    }
    if (c->rank != c->peer) {
        SAY(to, "the library that carries the data of rank %d %s", c->rank,
            c->result == COMM_ERR_STATE ? "was finalized while the communicator was open (MPI_Finalize)" : "has lost some");
        return;
    }
    if (native)
        native->class->explain(native, c->code, why, sizeof why);
    SAY(to, "%s on rank %d reported error %d: %s", native ? native->class->name : "the library", c->rank, c->code,
        why[0] ? why : "it has no text for it");
}

static void describe_dependency(const struct comm_state *b, const struct cause *c, struct text *to)
{
    (void)b;
    SAY(to, c->collective ? "rank %d did not get it, because its parent failed: %s" : "rank %d waited for a point that failed: %s", c->rank,
        base_result_text((enum comm_result)(int32_t)c->point));
}

static void describe_result(const struct comm_state *b, const struct cause *c, struct text *to)
{
    (void)b;
    SAY(to, "%s on rank %d", base_result_text((enum comm_result)c->result), c->rank);
}

static const struct describer {
    enum comm_result result;
    void (*describe)(const struct comm_state *b, const struct cause *c, struct text *to);
} describers[] = {
    {COMM_ERR_MISMATCH, describe_mismatch},     {COMM_ERR_REFUSED, describe_refusal}, {COMM_ERR_PEER, describe_silence},
    {COMM_ERR_CLOSED, describe_closed},         {COMM_ERR_TIMEOUT, describe_timeout}, {COMM_ERR_CORRUPT, describe_corruption},
    {COMM_ERR_DEADLOCK, describe_deadlock},     {COMM_ERR_ABORTED, describe_abort},   {COMM_ERR_BACKEND, describe_backend_error},
    {COMM_ERR_STATE, describe_backend_error}, /* the library cannot be called: the program ended it, or this is the wrong thread */
    {COMM_ERR_DEPENDENCY, describe_dependency},
};

static void describe_cause(const struct comm_state *b, const struct cause *c, struct text *to)
{
    for (size_t i = 0; i < sizeof describers / sizeof *describers; i++)
        if (describers[i].result == (enum comm_result)c->result) {
            describers[i].describe(b, c, to);
            return;
        }
    describe_result(b, c, to);
}

void cause_describe(const struct comm_state *b, const struct cause *c, struct comm_error *error)
{
    struct text to = {error->text, sizeof error->text, 0};
    const char *operation = c->collective ? collective_name(c->collective) : "";

    *error = (struct comm_error){.size = sizeof *error,
                                 .result = (enum comm_result)c->result,
                                 .rank = c->rank,
                                 .peer = c->peer,
                                 .system_errno = c->system_errno,
                                 .sequence = c->number,
                                 .backend_code = c->result == COMM_ERR_BACKEND ? c->code : 0};
    base_copy_text(error->operation, sizeof error->operation, operation);
    base_copy_text(error->cause, sizeof error->cause, base_result_name((enum comm_result)c->result) + strlen("COMM_ERR_"));
    SAY(&to, "%s rank=%d comm=%s seq=%llu op=%s: ", base_result_name((enum comm_result)c->result), c->rank, b->name,
        (unsigned long long)c->number, *operation ? operation : "none");
    describe_cause(b, c, &to);
}
