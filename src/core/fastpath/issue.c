/* The way into the queue of every collective: the fast path first, then the general one. */
#include "fastpath/fastpath.h"
#include "fastpath/issue.h"

/* Memory of a device is refused before anything reads it. */
static __attribute__((noinline)) enum comm_result refuse_foreign(struct comm_state *b, const struct engine_call *call,
                                                                 struct comm_request *req)
{
    struct comm_communicator *c = b->unit.handle;
    bool out = call->in == call->out || !state_is_foreign(b, call->in);
    const char *name = collective_name(call->collective), *argument = out ? "out" : "in";

    state_leave(b);
    return engine_refuse(c, call->collective, COMM_ERR_ARGUMENT, req, "%s: %s=0x%llx; expected " CALL_FOREIGN, name,
                         call->collective == COLLECTIVE_BROADCAST ? "buf" : argument,
                         (unsigned long long)(uintptr_t)(out ? call->out : call->in));
}

enum comm_result engine_issue_from(struct comm_communicator *c, const struct engine_call *call, struct comm_request *req, const void *site)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);
    struct engine_call with_site;

    if (!b)
        return call_refused(req, r);
    if (BASE_UNLIKELY(state_is_foreign(b, call->in) || state_is_foreign(b, call->out)))
        return refuse_foreign(b, call, req);
    if (BASE_UNLIKELY(b->world->check & CHECK_CALLS)) {
        with_site = *call;
        with_site.site = check_site(site);
        call = &with_site;
    }
    if (BASE_UNLIKELY(b->recording.plan != NULL)) {
        r = b->recording.calls->call(b, call);
        if (req)
            *req = COMM_REQUEST_NONE;
        state_leave(b);
        return call_refused(req, r);
    }
    if (BASE_LIKELY(fastpath_issue(b, call, req)) || (b->library && b->library->issue(b, call, req))) {
        state_leave(b);
        return COMM_OK;
    }
    r = state_ready_for_calls(b);
    if (r == COMM_OK)
        r = state_issue(b, call, NULL, NULL, req);
    state_settle(b);
    state_leave(b);
    return call_refused(req, r);
}
