#define _GNU_SOURCE
#include "net/links.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FILES = 1024 };

void links_needed(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    setenv("COMM_BACKEND", "tcp", 1);
    setenv("COMM_TCP_LINKS", "needed", 1);
}

/* ------------------------------------------------------------------------------------------------------------ open sockets */
int links_connected(void)
{
    int count = 0;
    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_storage other;
        socklen_t length = sizeof other;
        count += getpeername(fd, (struct sockaddr *)&other, &length) == 0 && other.ss_family == AF_INET;
    }
    return count;
}

int links_port(void)
{
    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_in at;
        int listens = 0;
        socklen_t bytes = sizeof listens, length = sizeof at;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0 || !listens)
            continue;
        CHECK(getsockname(fd, (struct sockaddr *)&at, &length) == 0);
        CHECK(at.sin_addr.s_addr == htonl(INADDR_LOOPBACK)); /* one address, never the wildcard */
        return ntohs(at.sin_port);
    }
    return 0;
}

void links_await(int want)
{
    int64_t end = rig_now() + RIG_PATIENCE;
    int count = links_connected();
    while (count != want && rig_now() < end) {
        rig_nap(RIG_MS);
        count = links_connected();
    }
    EQUAL(count, want); /* not counted again: a pending peer may still come and go */
}

/* The longest pause between two retransmissions on a connection; 0: it is none, or the kernel does not say (before Linux 6.15). */
static int pause_of(int fd)
{
    enum { RTO_MAX_MS = 44 };
    struct sockaddr_storage other;
    socklen_t length = sizeof other, bytes = sizeof(int);
    int pause = 0;
    bool connected = getpeername(fd, (struct sockaddr *)&other, &length) == 0 && other.ss_family == AF_INET;
    return connected && getsockopt(fd, IPPROTO_TCP, RTO_MAX_MS, &pause, &bytes) == 0 ? pause : 0;
}

/* A connection gets its options when it becomes a link, and is counted before. */
void links_check_pauses(void)
{
    enum { A_THIRD_MS = 1000 };
    int64_t end = rig_now() + RIG_PATIENCE;
    for (int fd = 0; fd < FILES; fd++) {
        int pause = pause_of(fd);
        for (; pause && pause != A_THIRD_MS && rig_now() < end; pause = pause_of(fd))
            rig_nap(RIG_MS);
        if (pause)
            EQUAL(pause, A_THIRD_MS);
    }
}

void links_check_monitors(void)
{
    int monitors[FILES] = {0}, watched = 0;
    for (int fd = 0; fd < FILES; fd++) {
        char path[64], line[128];
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        FILE *info = fopen(path, "re");
        while (info && fgets(line, sizeof line, info))
            if (sscanf(line, "tfd: %d", &watched) == 1 && watched >= 0 && watched < FILES)
                monitors[watched]++;
        if (info)
            fclose(info);
    }
    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_storage other;
        socklen_t length = sizeof other;
        if (getpeername(fd, (struct sockaddr *)&other, &length) == 0 && other.ss_family == AF_INET)
            CHECK(monitors[fd] <= 2);
    }
}

/* ------------------------------------------------------------------------------------------------------------ calls */
void links_sum(struct comm_communicator *c)
{
    struct comm_request request;
    int32_t one = 1, all = -1;
    MUST(comm_allreduce(c, &one, &all, 1, COMM_I32, COMM_SUM, &request));
    MUST(comm_wait(request, RIG_PATIENCE));
    EQUAL(all, comm_size(c));
}

void links_exchange(struct comm_communicator *c, int32_t peer)
{
    struct comm_request request[2];
    int32_t out = 1000 + comm_rank(c), in = -1;
    MUST(comm_send(c, &out, 1, COMM_I32, peer, 7, &request[0]));
    MUST(comm_recv(c, &in, 1, COMM_I32, peer, 7, NULL, &request[1]));
    rig_wait_all(request, 2);
    EQUAL(in, 1000 + peer);
}

int32_t links_far_from(int32_t rank, int32_t ranks)
{
    return (rank + ranks / 2) % ranks;
}

void links_phase(struct proc *proc, int32_t rank, int64_t number)
{
    atomic_store(&proc->page[rank].stage, number);
    while (atomic_load(proc->go) < number)
        rig_nap(RIG_MS);
}

void links_run_phases(struct proc *proc, int64_t from, int64_t to)
{
    for (int64_t number = from; number <= to; number++) {
        for (int32_t r = 0; r < proc->ranks; r++)
            proc_await(proc, r, number);
        atomic_store(proc->go, number);
    }
}
