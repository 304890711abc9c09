/* refuse ERROR PROGRAM...: runs a program with a seccomp filter like that of a container: each io_uring call fails with ERROR, which is
 * EPERM or ENOSYS. Exits with 77 and a reason if the kernel supports no filter. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    unsigned error = argc > 2 && strcmp(argv[1], "ENOSYS") == 0 ? ENOSYS : EPERM;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2), /* the numbers of setup, enter and register are consecutive */
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    if (argc < 3 || (strcmp(argv[1], "EPERM") && strcmp(argv[1], "ENOSYS"))) {
        fprintf(stderr, "usage: refuse EPERM|ENOSYS PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        printf("skipped: this kernel takes no seccomp filter\n");
        return 77;
    }
    if (syscall(SYS_io_uring_setup, 1, NULL) != -1 || errno != (int)error || syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0) != -1 ||
        errno != (int)error) {
        fprintf(stderr, "refuse: the filter lets rings through\n");
        return 1;
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 1;
}
