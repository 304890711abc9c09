/* Memory that ranks share, and windows. */
#ifndef RMA_RMA_H
#define RMA_RMA_H

#include <commstream/window.h>

#include "comm/call.h"
#include "p2p/one_sided_op.h"

enum comm_result engine_memory_take(struct comm_communicator *c, size_t bytes, void **at);
/* The same, of the same length on every rank. The caller has checked the arguments. */
enum comm_result engine_memory_symmetric(struct comm_communicator *c, size_t bytes, void **out, struct comm_request *req);
/* STATE: the same memory is registered already. */
enum comm_result engine_memory_register(struct comm_communicator *c, void *at, size_t bytes);
/* own: from engine_memory_take; otherwise registered. STATE: no such memory. */
enum comm_result engine_memory_give(struct comm_communicator *c, void *at, bool own);

enum comm_result engine_window_create(struct comm_communicator *c, size_t bytes, const struct comm_window_options *options,
                                      struct comm_window **w, struct comm_request *req);
enum comm_result engine_window_fence(struct comm_window *w, struct comm_request *req);
enum comm_result engine_window_free(struct comm_window *w);
/* Values that never change: the communicator (NULL: closed), its number of ranks, and this rank. */
struct comm_communicator *engine_window_comm(const struct comm_window *w);
int32_t engine_window_size(const struct comm_window *w);
int32_t engine_window_rank(const struct comm_window *w);
/* NULL if the part has no bytes, or if this rank cannot address it, so that only its owner can (apart). */
void *engine_window_part(const struct comm_window *w, int32_t peer, size_t *bytes, uint32_t *signals);
bool engine_window_apart(const struct comm_window *w, int32_t peer);
/* The caller has checked the arguments. */
enum comm_result engine_one_sided(struct comm_window *w, const struct one_sided *one, struct comm_request *req);

#endif
