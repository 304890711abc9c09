/* Argument checks that the files of this room share. A failed check refuses the call (a collective still uses up its number) with a text
 * that names the argument, its value and what was expected. */
#ifndef API_API_H
#define API_API_H

#include <commstream/commstream.h>

#include "comm/call.h"
#include "failure/failure.h"
#include "event/event.h"
#include "fastpath/issue.h"
#include "fastpath/wait.h"
#include "inspect/inspect.h"
#include "p2p/p2p.h"
#include "plan/recording.h"
#include "rma/rma.h"
#include "world/communicators.h"
#include "world/operator.h"

/* The address range of `bytes` at p; empty if bytes is 0. */
static inline struct timeline_range api_range(const void *p, size_t bytes)
{
    return bytes ? (struct timeline_range){(uintptr_t)p, (uintptr_t)p + bytes} : (struct timeline_range){0, 0};
}

/* A collective call under check. The first failed check refuses it, and later checks do nothing. */
struct api_check {
    struct comm_communicator *c;
    struct comm_request *req;
    uint32_t collective;
    enum comm_result result;
    const char *name; /* of the call, without comm_; NULL: the collective's */
};

static inline enum comm_result api_begin(struct api_check *check, struct comm_communicator *c, uint32_t collective,
                                         struct comm_request *req)
{
    enum comm_result r = engine_alive(c);

    *check = (struct api_check){c, req, collective, r, NULL};
    if (r != COMM_OK && req)
        *req = timeline_refusal(r);
    return r;
}

void api_need(struct api_check *check, bool holds, const char *argument, long long value, const char *expected);
void api_need_type(struct api_check *check, enum comm_type type);
void api_need_pair(struct api_check *check, enum comm_type type, comm_op op, size_t n); /* n: elements of one block */
void api_need_rank(struct api_check *check, const char *argument, int32_t rank);
void api_need_fit(struct api_check *check, bool fits, const char *argument, size_t value, const char *what); /* into the address space */
const char *api_name(const struct api_check *check);                                                         /* of the call */
/* Returns n * times * element bytes. Refuses the call if that overflows. */
size_t api_bytes_of(struct api_check *check, const char *argument, enum comm_type type, size_t n, size_t times);
static inline size_t api_bytes(struct api_check *check, enum comm_type type, size_t n, size_t times)
{
    return api_bytes_of(check, "n", type, n, times);
}
void api_need_buffer(struct api_check *check, const char *argument, const void *buf, size_t bytes);
void api_need_apart(struct api_check *check, const void *in, size_t in_bytes, const void *out, size_t out_bytes);

/* Checks the size field of a struct that the caller passes: OK if it is at least `least`, otherwise ARGUMENT. */
enum comm_result api_size(const void *given, size_t least);
/* True if a struct of a later version, longer than the `known` bytes of ours, sets a field that this library does not know. */
bool api_sets_unknown(const void *given, size_t known);

#endif
