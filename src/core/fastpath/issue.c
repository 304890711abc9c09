/* How every collective gets into the queue: first by the fast path, otherwise by the general path. Also the path of device buffers. */
#include "fastpath/fastpath.h"
#include "fastpath/issue.h"

#include "p2p/p2p.h"
#include "staged/staged.h"

/* If no device can be opened, device memory is refused before anything reads it. */
static enum comm_result refuse_foreign(struct comm_communicator *c, const struct engine_call *call, struct comm_request *req,
                                       enum comm_result r, const char *why)
{
    bool in = call->on_device & CALL_IN_ON_DEVICE;
    const char *name = collective_name(call->collective), *argument = in && call->in != call->out ? "in" : "out";

    if (r == COMM_ERR_CLOSED || r == COMM_ERR_FORKED)
        return call_refused(req, r);
    if (r == COMM_ERR_MEMORY)
        return engine_refuse(c, call->collective, r, req, "%s: out of memory while the buffers' device was opened", name);
    return engine_refuse(c, call->collective, COMM_ERR_ARGUMENT, req, "%s: %s=0x%llx; expected " CALL_FOREIGN "; no device: %s", name,
                         call->collective == COLLECTIVE_BROADCAST ? "buf" : argument,
                         (unsigned long long)(uintptr_t)(in ? call->in : call->out), why);
}

/* Which buffers this communicator cannot access. A call after a staged one may well be staged too. So then the device itself is asked,
 * which tells all about a buffer in one answer, and *asked is true. */
static __attribute__((noinline)) uint8_t foreign_buffers(struct comm_state *b, const struct engine_call *call, bool *asked)
{
    *asked = false;
    if (b->staged.likely) {
        uint8_t answer = staged_ask(b, call, CALL_ON_DEVICE), on_device = answer & CALL_ON_DEVICE;
        b->staged.likely = on_device != 0;
        *asked = answer == on_device * (1 + CALL_IN_WHOLE); /* CALL_*_WHOLE of each; a driver that does not know it may mean the host's */
        if (*asked)
            return answer;
    }
    bool in = state_is_foreign(b, call->in), out = call->out == call->in ? in : state_is_foreign(b, call->out);
    return (uint8_t)((in ? CALL_IN_ON_DEVICE : 0) | (out ? CALL_OUT_ON_DEVICE : 0));
}

/* Before the next call, engine_repeat asks nothing: it has no template to compare the call with. */
static void expect_staged(struct comm_state *b, const struct engine_call *call)
{
    b->staged.likely = call->on_device != 0;
    if (b->fastpath && b->staged.likely)
        b->fastpath->template = NULL;
}

static __attribute__((noinline)) enum comm_result issue_staged(struct comm_state *b, const struct engine_call *call, uint8_t on_device,
                                                               bool asked, struct comm_request *req, const void *site)
{
    struct comm_communicator *c = b->unit.handle;
    struct engine_call staged = *call;
    enum comm_result r = COMM_OK;
    char why[192]; /* all of it is not cleared, because that takes long */

    why[0] = 0;
    staged.on_device = on_device;
    if (b->world->check & CHECK_CALLS)
        staged.site = check_site(site);
    b = staged_open(b, &r, why, sizeof why);
    if (!b)
        return refuse_foreign(c, &staged, req, r, why);
    if (!asked)
        staged.on_device = staged_ask(b, call, on_device);
    expect_staged(b, &staged);
    if (b->recording.plan)
        staged.on_device &= CALL_ON_DEVICE; /* each start asks again how far the memory goes */
    else
        r = state_ready_for_calls(b);
    if (r == COMM_OK)
        r = staged_issue(b, &staged, req);
    if (b->recording.plan && req)
        *req = COMM_REQUEST_NONE;
    if (!b->recording.plan)
        state_settle(b);
    state_leave(b);
    return call_refused(req, r);
}

/* By one of the two short paths. A call like the library's last one is the library's, too. */
static inline bool issue_short(struct comm_state *b, const struct engine_call *call, struct comm_request *req)
{
    const struct call_shape *last = &b->library_work.form;

    if (BASE_LIKELY(!b->library))
        return fastpath_issue(b, call, req);
    if (last->fits && call_is(last, call))
        return b->library->issue(b, call, req);
    return fastpath_issue(b, call, req) || b->library->issue(b, call, req);
}

enum comm_result engine_issue_from(struct comm_communicator *c, const struct engine_call *call, struct comm_request *req, const void *site)
{
    enum comm_result r;
    struct comm_state *b = state_lock(c, &r);
    struct engine_call with_site;

    if (!b)
        return call_refused(req, r);
    if (state_sees_devices(b)) {
        bool asked;
        uint8_t on_device = foreign_buffers(b, call, &asked);
        if (on_device)
            return issue_staged(b, call, on_device, asked, req, site);
    }
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
    if (BASE_LIKELY(issue_short(b, call, req))) {
        state_leave(b);
        return COMM_OK;
    }
    r = state_ready_for_calls(b);
    if (r == COMM_OK && BASE_UNLIKELY(b->p2p.pending && b->library_work.flags & NATIVE_STREAM))
        r = p2p_precede_stream(b, &call->read, &call->write);
    if (r == COMM_OK)
        r = state_issue(b, call, NULL, NULL, req);
    state_settle(b);
    state_leave(b);
    return call_refused(req, r);
}
