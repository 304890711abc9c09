#ifndef TESTS_BASE_CHILD_H
#define TESTS_BASE_CHILD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/types.h>
#include <sys/wait.h>

/* Waits for a process that ends by itself; what it ended with. */
static inline int child_status(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#endif
