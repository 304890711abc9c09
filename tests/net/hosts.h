/*
 * hosts: several hosts on this one. Each is a set of namespaces (network, name, System V) held by a process that sleeps; a cable (a veth
 * pair) leads from its eth0 to a port of a switch (a bridge) in namespaces of its own. Nothing has a name outside, so nothing is left
 * behind when the test ends, however it ends. Needs root, or user namespaces; and iproute2.
 */
#ifndef NET_HOSTS_H
#define NET_HOSTS_H

#include "proc/proc.h"

enum { HOSTS_MAX = 4 };

struct hosts {
    int32_t count, each; /* ranks on each: rank r lives on host r / each */
    int family;          /* of the address by which they meet: AF_INET or AF_INET6 */
    const char *name;    /* of rank 0's host, instead of that address */
    bool guarded;        /* nothing beyond loopback is allowed but with a secret, which its test gives */
    pid_t holder[HOSTS_MAX + 1];
};

/* Skips the test, with the reason, where the machine does not let us. */
void hosts_open(struct hosts *h, int32_t count, int32_t each);
void hosts_close(struct hosts *h);
/* The ranks of proc shall start on these hosts, over tcp. */
void hosts_place(struct hosts *h, struct proc *proc);

/* Runs a program on a host (-1: on the switch); words are separated by one space. Its exit status; 127: there is none. What it says on
   standard error is kept for hosts_said. */
int hosts_run(const struct hosts *h, int32_t host, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *hosts_said(void);
/* The same, and it must end with 0. */
#define HOSTS_MUST(h, host, ...) (hosts_run(h, host, __VA_ARGS__) == 0 ? (void)0 : rig_die(__FILE__, __LINE__, "%s", hosts_said()))

/* Pulls the cable out of the switch, or puts it in again. */
void hosts_cable(const struct hosts *h, int32_t host, bool in);
/* What `from` sends to `to` is lost from now on; the other direction is not touched. */
void hosts_lose(const struct hosts *h, int32_t from, int32_t to);

#endif
