/* From a public call into the queue. */
#ifndef FASTPATH_ISSUE_H
#define FASTPATH_ISSUE_H

#include "comm/call.h"

/* req may be NULL in every call here that takes it. On an error *req becomes the refusal. */
enum comm_result engine_issue_from(struct comm_communicator *c, const struct engine_call *call, struct comm_request *req, const void *site);
/* Called from a public call, so its own return address identifies the caller in the program. */
static inline __attribute__((always_inline)) enum comm_result engine_issue(struct comm_communicator *c, const struct engine_call *call,
                                                                           struct comm_request *req)
{
    return engine_issue_from(c, call, req, __builtin_return_address(0));
}
/* Issues the previous call again with these buffers. Its other arguments were checked then and need no check now. False: nothing happened.
 * what, where: from call_what and call_where. */
bool engine_repeat(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                   struct comm_request *req);
/* The same for calls with counts. The vectors are the caller's: displs may be NULL, and vectors that the call does not use are ignored. n:
 * ENGINE_AS_COUNTED if the call has no count of its own. */
#define ENGINE_AS_COUNTED SIZE_MAX
struct engine_vectors {
    const size_t *counts, *displs, *in_counts, *in_displs;
};
bool engine_repeat_v(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                     const struct engine_vectors *v, struct comm_request *req);

#endif
