/* interface: by which of this host's addresses the ranks of other hosts reach it. */
#ifndef NET_POSIX_INTERFACE_H
#define NET_POSIX_INTERFACE_H

#include "base/env.h"

enum { INTERFACE_ADDRESS = 64 };

/* True when the user named interfaces or networks: they count more than the route by which rank 0 is reached. */
bool interface_named(const struct comm_env *env);
/*
 * A numeric address, and in why which interface has it and who chose it. COMM_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME, else
 * GLOO_SOCKET_IFNAME: names or their beginnings with commas; "=" in front: whole names; "^" in front: none of these; or networks as
 * 10.0.0.0/8. None set: where the default route leaves; then any that is not loopback; then loopback. False: nothing here is meant, and why
 * lists what there is.
 */
bool interface_address(const struct comm_env *env, char address[INTERFACE_ADDRESS], char *why, size_t why_bytes);
/* 127.0.0.0/8, also as an IPv6 address, or ::1: only processes of this machine reach it. Pure. */
struct sockaddr;
bool interface_is_loopback(const struct sockaddr *address);
/* Whether a name and address are meant by such a text. Pure. */
bool interface_matches(const char *wanted, const char *name, const char *address);

#endif
