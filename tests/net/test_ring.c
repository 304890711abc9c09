/* The error if the kernel refuses a ring, by a seccomp filter that returns EPERM or ENOSYS, or has rings without sends and receives. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group.h"
#include "net/poll/poller.h"
#include "wire/table.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void refuse_call(uint32_t call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(77);
}

/* In a child, since a filter cannot be removed. told: the system's error in the text. */
static void refused_with(uint32_t call, int error, int told)
{
    pid_t child = fork();
    int status;

    if (!child) {
        struct poller_config config = {.env = wire_default_env(), .sockets = 2};
        struct poller *p = NULL, *other = NULL;
        char text[256] = "";
        refuse_call(call, error);
        bool fine = poller_open(POLLER_URING, &config, text, sizeof text, &p) == COMM_ERR_UNSUPPORTED && !p;
        fine &= strstr(text, "COMM_TCP_POLLER=io_uring") && strstr(text, strerror(told)) && strstr(text, "kernel.io_uring_disabled is ");
        fine &= poller_open(POLLER_AUTO, &config, text, sizeof text, &other) == COMM_OK && other->class == &poller_epoll;
        if (!fine)
            fprintf(stderr, "told: %s\n", text);
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        group_skip("this kernel takes no seccomp filter");
    assert_int_equal(status, 0);
}

static void refused_eperm(void **state)
{
    (void)state;
    refused_with(SYS_io_uring_setup, EPERM, EPERM);
}
static void refused_enosys(void **state)
{
    (void)state;
    refused_with(SYS_io_uring_setup, ENOSYS, ENOSYS);
}

/* Linux 5.1 to 5.5 has rings, and neither sends and receives on them nor the question for them. */
static void too_old(void **state)
{
    (void)state;
    if (group_ring_missing())
        group_skip("%s", group_ring_missing());
    refused_with(SYS_io_uring_register, EINVAL, EOPNOTSUPP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_eperm),
        cmocka_unit_test(refused_enosys),
        cmocka_unit_test(too_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
