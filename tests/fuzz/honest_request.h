/*
 * The requests of the honest side. Each has a buffer of its own with guards around it, or a view; neither may change once the request has
 * ended, and both are checked whenever the request is touched. Private to honest.c.
 */
#ifndef TESTS_FUZZ_HONEST_REQUEST_H
#define TESTS_FUZZ_HONEST_REQUEST_H

#include "fuzz/honest.h"

enum { HONEST_CANARY = 64, HONEST_TAG = 7 }; /* bytes of a guard; the fingerprint of every operation */

uint32_t honest_sum(const void *at, size_t bytes);
/* Reuses the oldest finished request. NULL: all are pending. */
struct honest_request *request_make(struct honest_side *s, enum honest_kind kind, wire_key key, uint32_t peer, size_t bytes, bool memory);
void request_drop(struct honest_request *r);
/* What the wire's events call this request. */
uint64_t request_cookie(const struct honest_request *r);
void request_end(struct honest_request *r, int32_t result);
/* Handles the immediate result of a call. */
void request_answered(struct honest_request *r, enum wire_result result);
/* Whether there is such a request: each one of an operation is kept until that is retired, so that none is made twice. */
bool request_is_there(const struct honest_side *s, enum honest_kind kind, wire_key key, uint32_t peer);
/* Releases the view of a request that has ended. */
void request_give_back(struct honest_request *r);

#endif
