/* From a public call into the queue. */
#ifndef FASTPATH_ISSUE_H
#define FASTPATH_ISSUE_H

#include "comm/call.h"

/* Every call here that takes req may be given NULL. On an error *req becomes that refusal. */
enum comm_result engine_issue_from(struct comm_communicator *c, const struct engine_call *call, struct comm_request *req, const void *site);
/* From a public call: its own return address is the caller's place. */
static inline __attribute__((always_inline)) enum comm_result engine_issue(struct comm_communicator *c, const struct engine_call *call,
                                                                           struct comm_request *req)
{
    return engine_issue_from(c, call, req, __builtin_return_address(0));
}
/* The previous call once more, with the buffers as the program gave them: its other arguments were checked then, and need no check now.
 * False: nothing happened. what, where: of call_what and call_where. */
bool engine_repeat(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                   struct comm_request *req);
/* The same of a v form, with the vectors as they are given: displs may be NULL, and who uses none of them may have any. n: AS_COUNTED where
 * the call has none of its own. */
#define ENGINE_AS_COUNTED SIZE_MAX
struct engine_vectors {
    const size_t *counts, *displs, *in_counts, *in_displs;
};
bool engine_repeat_v(struct comm_communicator *c, const void *in, void *out, size_t n, uint64_t what, uint64_t where,
                     const struct engine_vectors *v, struct comm_request *req);

#endif
