/*
 * rig: what the tests of the whole library share. Every test runs in a child process with a deadline of its own, so that one that crashes
 * or hangs is one failure, and the library has never been opened in the process that forks. Checks may be made on any thread: the first
 * that does not hold prints itself and ends the child.
 */
#ifndef CONFORM_RIG_H
#define CONFORM_RIG_H

#include <commstream/comm.h>

#include <stdbool.h>
#include <stdint.h>

enum { RIG_RANKS_MAX = 17 };
#define RIG_MS INT64_C(1000000)
#define RIG_S INT64_C(1000000000)
#define RIG_PATIENCE (20 * RIG_S) /* no wait of a healthy test takes as long */

/* A test: RIG_TEST(name) { state } makes a cmocka test function that runs the state in a child. */
#define RIG_TEST(name)                                                                                                                     \
    static void name##_body(void);                                                                                                         \
    static void name(void **state)                                                                                                         \
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
/* Ends the child: its case does not count as run, and the reason is printed. An exit of 77 without a reason is a failure. */
_Noreturn void rig_skip(const char *why);
/* After a world of tcp opened with COMM_TCP_POLLER set: this process holds a ring where that is io_uring, and none elsewhere. */
void rig_poller(const char *backend, int32_t ranks);
/* Skips where COMM_BACKEND names this wire. */
void rig_not_over(const char *backend, const char *why);
_Noreturn void rig_die(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void rig_is(enum comm_result got, enum comm_result want, const char *what, const char *file, int line);
void rig_equal(long long a, long long b, const char *what, const char *file, int line);
/* What to print in front of a failure: the seed, the case. Its time begins anew: a case hangs, a long test on a busy machine does not. */
void rig_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool rig_quick(void);    /* COMM_TEST_QUICK: the short selection, for builds that are slow */
unsigned rig_thin(void); /* of a sweep, one in so many is tried: COMM_TEST_THIN, for programs that watch and are slower still */
int64_t rig_now(void);
/* For how long this thread slept of its own will between two readings, as the kernel counts it: neither computed nor waited for a CPU that
   others had. What a busy machine makes late does not count, what a call waits for does. (proc(5), /proc/[pid]/schedstat.) */
int64_t rig_slept(void);
void rig_nap(int64_t ns);

/* All ranks in this process. config NULL: defaults, progress by callers, and a deadline of 30 s for every operation. */
void rig_open(struct rig *rig, int32_t ranks, const struct comm_config *config);
void rig_open_options(struct rig *rig, int32_t ranks, const char *options);
/* Every rank's close must say OK. */
void rig_close(struct rig *rig);
/* All of count requests end well within RIG_PATIENCE. */
void rig_wait_all(const struct comm_request *requests, size_t count);
/* One round of a sum over all ranks, checked: the communicator lives. c: one per rank. */
void rig_proves_alive(struct comm_communicator *const *c, int32_t ranks);
/* A second communicator over the ranks of c. */
void rig_dup(struct comm_communicator *const *c, int32_t ranks, struct comm_communicator **out);
/* Moves the engine for a while. */
void rig_progress_for(struct comm_communicator *any, int64_t ns);
/* Within ns the communicator must have failed with want, seen by comm_error_detail; its detail is left in *error. */
void rig_fails_within(struct comm_communicator *c, enum comm_result want, int64_t ns, struct comm_error *error);
/* fn(arg, rank) on one thread per rank; returns when all have. */
void rig_threads(int32_t ranks, void (*fn)(void *arg, int32_t rank), void *arg);

#endif
