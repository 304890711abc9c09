/*
 * hosts: several hosts simulated on one. Each is a set of namespaces (network, UTS, System V IPC) held by a process that sleeps. A cable (a
 * veth pair) connects its eth0 to a port of a switch (a bridge) in namespaces of its own. Nothing has a name outside, so nothing is left
 * behind, however the test ends. Needs root, or user namespaces; and iproute2.
 */
#ifndef NET_HOSTS_H
#define NET_HOSTS_H

#include "proc/proc.h"

enum { HOSTS_MAX = 4 };

struct hosts {
    int32_t count, each; /* ranks on each host: rank r is on host r / each */
    int family;          /* of the address at which they meet: AF_INET or AF_INET6 */
    const char *name;    /* of rank 0's host, instead of the address */
    bool guarded;        /* addresses beyond loopback need a secret, which the test sets */
    pid_t holder[HOSTS_MAX + 1];
};

/* Skips the test, with the reason, if the machine does not permit namespaces. */
void hosts_open(struct hosts *h, int32_t count, int32_t each);
void hosts_close(struct hosts *h);
/* Makes proc start its ranks on these hosts, over tcp. */
void hosts_place(struct hosts *h, struct proc *proc);

/* Runs a program on a host (-1: on the switch); words are separated by one space. Returns its exit status; 127: it does not exist.
 * hosts_said returns its standard error. */
int hosts_run(const struct hosts *h, int32_t host, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *hosts_said(void);
/* The same, but it must succeed. */
#define HOSTS_MUST(h, host, ...) (hosts_run(h, host, __VA_ARGS__) == 0 ? (void)0 : rig_die(__FILE__, __LINE__, "%s", hosts_said()))

/* Pulls the host's cable out of the switch, or plugs it in again. */
void hosts_cable(const struct hosts *h, int32_t host, bool in);
/* From now on packets from `from` to `to` are lost; the other direction still works. */
void hosts_lose(const struct hosts *h, int32_t from, int32_t to);

#endif
