/* interface: chooses the address at which other hosts reach this one. */
#ifndef NET_POSIX_INTERFACE_H
#define NET_POSIX_INTERFACE_H

#include "base/env.h"

enum { INTERFACE_ADDRESS = 64 };

/* Whether the user named interfaces or networks. They take precedence over the route to rank 0. */
bool interface_named(const struct comm_env *env);
/*
 * Returns a numeric address; why names its interface and the reason for the choice. The user may set COMM_SOCKET_IFNAME, else
 * NCCL_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME: comma-separated prefixes of names; "=" in front: whole names; "^" in front: none of these;
 * or networks such as 10.0.0.0/8. If none is set: the interface of the default route, else any that is not loopback, else loopback. False:
 * no interface matches, and why lists those that exist.
 */
bool interface_address(const struct comm_env *env, char address[INTERFACE_ADDRESS], char *why, size_t why_bytes);
/* 127.0.0.0/8, also as an IPv6 address, or ::1, which only processes of this machine can reach. Pure. */
struct sockaddr;
bool interface_is_loopback(const struct sockaddr *address);
/* Whether such a text matches an interface's name and address. Pure. */
bool interface_matches(const char *wanted, const char *name, const char *address);

#endif
