/*
 * rig: shared by the tests of the whole library. Every test runs in a child process with a deadline of its own, so that
 * a crash or a hang is one failure, and the forking process has never opened the library. Checks may be made on any
 * thread: the first that fails prints itself and ends the child.
 */
#ifndef CONFORM_RIG_H
#define CONFORM_RIG_H

#include "selection.h"

#include <commstream/comm.h>

#include <stdbool.h>
#include <stdint.h>

enum { RIG_RANKS_MAX = 17 };
#define RIG_MS INT64_C(1000000)
#define RIG_S INT64_C(1000000000)
#define RIG_PATIENCE (20 * RIG_S) /* no wait of a correct test takes this long */

/* A test: RIG_TEST(name) { state } makes a cmocka test function that runs the state in a child. */
#define RIG_TEST(name)                                                                                                                     \
    static void name(void **state);                                                                                                        \
    RIG_CASE(name)
/* The same, for a test that a header declares because the program's main is in another file. */
#define RIG_CASE(name)                                                                                                                     \
    static void name##_body(void);                                                                                                         \
    void name(void **state)                                                                                                                \
    {                                                                                                                                      \
        (void)state;                                                                                                                       \
        rig_isolate(#name, name##_body);                                                                                                   \
    }                                                                                                                                      \
    static void name##_body(void)

#define CHECK(condition) ((condition) ? (void)0 : rig_die(__FILE__, __LINE__, "%s", #condition))
#define MUST(call) rig_is((call), COMM_OK, #call, __FILE__, __LINE__)
#define IS(call, want) rig_is((call), want, #call, __FILE__, __LINE__)
#define EQUAL(a, b) rig_equal((long long)(a), (long long)(b), #a " == " #b, __FILE__, __LINE__)

struct rig {
    int32_t ranks;
    struct comm_communicator *world[RIG_RANKS_MAX];
};

void rig_isolate(const char *name, void (*body)(void));
/* For a program that is not isolated: it ends with 1 after so many seconds, and prints the calls that it is in. rig_note
 * restarts the time. */
void rig_end_after(unsigned seconds);
/* Ends the child: its case does not count as run, and the reason is printed. An exit code of 77 without a reason is a
 * failure. */
_Noreturn void rig_skip(const char *why);
/* After a world over tcp was opened with COMM_TCP_POLLER set: checks that this process has an io_uring ring exactly if
 * that is io_uring. */
void rig_poller(const char *backend, int32_t ranks);
/* Skips the test if COMM_BACKEND names this wire. */
void rig_not_over(const char *backend, const char *why);
_Noreturn void rig_die(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void rig_is(enum comm_result got, enum comm_result want, const char *what, const char *file, int line);
void rig_equal(long long a, long long b, const char *what, const char *file, int line);
/* What to print before a failure: the seed, the case. Also restarts the time limit: it is meant for a hanging case, not
 * for a long test on a busy machine. */
void rig_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool rig_quick(void); /* the selection is `few` (selection.h) */
/* One in this many cases of a sweep is run: by the selection, or COMM_TEST_THIN, for even slower tools. */
unsigned rig_thin(unsigned all, unsigned usual, unsigned few);
int64_t rig_now(void);
/* How long this thread slept voluntarily between two readings, as the kernel counts it: it neither computed nor waited
 * for a busy CPU. So delays by a busy machine do not count, but waiting inside a call does. (proc(5),
 * /proc/[pid]/schedstat.) */
int64_t rig_slept(void);
void rig_nap(int64_t ns);

/* Opens all ranks in this process. config NULL: defaults, progress by callers, and a deadline of 30 s for every
 * operation. */
void rig_open(struct rig *rig, int32_t ranks, const struct comm_config *config);
void rig_open_options(struct rig *rig, int32_t ranks, const char *options);
/* Every rank's close must return OK. */
void rig_close(struct rig *rig);
/* All requests must end well within RIG_PATIENCE. */
void rig_wait_all(const struct comm_request *requests, size_t count);
/* Checks one sum over all ranks: the communicator works. c: one per rank. */
void rig_proves_alive(struct comm_communicator *const *c, int32_t ranks);
/* Makes a second communicator over the ranks of c. */
void rig_dup(struct comm_communicator *const *c, int32_t ranks, struct comm_communicator **out);
/* Moves the engine for this long. */
void rig_progress_for(struct comm_communicator *any, int64_t ns);
/* Within ns the communicator must fail with want, seen by comm_error_detail; stores its detail in *error. */
void rig_fails_within(struct comm_communicator *c, enum comm_result want, int64_t ns, struct comm_error *error);
/* Runs fn(arg, rank) on one thread per rank; returns when all have. */
void rig_threads(int32_t ranks, void (*fn)(void *arg, int32_t rank), void *arg);

#endif
