/* Calls that create and close communicators. */
#ifndef WORLD_COMMUNICATORS_H
#define WORLD_COMMUNICATORS_H

#include <commstream/open.h>

#include "comm/call.h"

/* Stores the reason where the program wants it; returns r. */
enum comm_result engine_complain(const struct comm_config *config, enum comm_result r, const char *text);
enum comm_result engine_id_create(const struct comm_config *given, struct comm_id *id);
enum comm_result engine_open(const struct comm_config *config, struct comm_communicator **world);
enum comm_result engine_open_local(const struct comm_config *config, int32_t ranks, const char *const *devices,
                                   struct comm_communicator **worlds);
enum comm_result engine_split(struct comm_communicator *c, int64_t color, int32_t key, struct comm_communicator **out,
                              struct comm_request *req);
enum { CREATE_AXES_MAX = 16 };
/* The product of the shape, of at most CREATE_AXES_MAX axes, is the size of c. */
enum comm_result engine_split_mesh(struct comm_communicator *c, const int32_t *shape, size_t axes, struct comm_communicator **axis,
                                   struct comm_request *req);
enum comm_result engine_subset(struct comm_communicator *c, const int32_t *ranks, int32_t count, uint32_t tag,
                               struct comm_communicator **out, struct comm_request *req);
enum comm_result engine_dup(struct comm_communicator *c, const struct comm_options *options, struct comm_communicator **out,
                            struct comm_request *req);
enum comm_result engine_close(struct comm_communicator *c, int64_t timeout_ns);

#endif
