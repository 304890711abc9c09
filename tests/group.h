/*
 * group: how the cases of every test program are run, and how it ends: 0 when at least one case ran and none failed, 77 when all were
 * skipped, 1 otherwise (also when no case has the wanted name). The linker puts group.c in front of cmocka's own calls in each program
 * (comm_test_cmocka in tests/CMakeLists.txt), so no program can end otherwise. Each skip is printed as "skipped: CASE: REASON"; what reads
 * these lines is skips.py, and skips.txt has the reasons that are allowed.
 */
#ifndef TESTS_GROUP_H
#define TESTS_GROUP_H

#include <stdbool.h>

/* Ends the case that runs: it does not count as run. Called in the test's own process, on its own stack. */
_Noreturn void group_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says that a part of the case that runs is left out. */
void group_skip_part(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Why no ring of io_uring can be made here; NULL: one was made, and is closed again. */
const char *group_ring_missing(void);
/* Chooses this poller for the worlds that this process opens from now on; false where it is a ring that cannot be made, which is said. */
bool group_poller(const char *name);
/* Whether this process holds a ring: the kernel's word, not the library's. */
bool group_holds_ring(void);

#endif
