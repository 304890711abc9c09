/*
 * explore: runs the library's own objects under every order of their threads and every value that C11 allows a load to
 * return.
 *
 * The rooms' sources are compiled with the compiler's instrumentation for a race detector, which turns each atomic
 * operation and each plain access into a call. Linked with hooks.c instead of the detector, the calls end here. So the
 * code that is explored is the code that ships, not a model of it. A case is a few short threads; it is run again and
 * again until no choice is left.
 *
 * What is modelled (memory.c): modification order is the order of execution. A load may return any value, however old,
 * that coherence and its thread's knowledge allow. Release, acquire, release sequences, fences and seq_cst follow C11
 * 29.3. membarrier(2) is a fence in the caller, and in each other thread at the signal fences around that moment. Plain
 * accesses without a happens-before order are an error. Not modelled: stores that overtake one another in modification
 * order (2+2W), and values out of thin air.
 *
 * What is chosen (explore.c): the thread at each atomic operation, except orders that only swap independent operations
 * (sleep sets), and the value of each load. A waiting loop (env.relax, park, a bell) is blocked until something that it
 * read has changed. If no thread can continue, a wake-up was lost.
 */
#ifndef MODEL_EXPLORE_H
#define MODEL_EXPLORE_H

#include "base/env.h"

enum { MODEL_THREADS = 4 };

enum model_kind {
    MODEL_START,
    MODEL_LOAD,
    MODEL_STORE,
    MODEL_CHANGE, /* read-modify-write */
    MODEL_FENCE,
    MODEL_SIGNAL_FENCE,
    MODEL_BARRIER,
    MODEL_RELAX,
    MODEL_PARK,
    MODEL_WAKE,
    MODEL_RING,
    MODEL_BELL_WAIT,
    MODEL_BELL_CLEAR,
};

/* One thing removed from the code, which the exploration must then detect: an order (of loads, stores, changes), a
 * fence, a barrier. */
struct model_fault {
    const char *what;
    enum model_kind kind;
    const char *name; /* of the word, as passed to model_name; NULL: any */
    int32_t thread;   /* -1: any */
    uintptr_t site;   /* or a single place in the code, relative to the program; 0: any */
};

struct model_case {
    const char *name;
    uint32_t threads;
    void (*setup)(void);              /* not explored, single-threaded; shared data is allocated from model_env */
    void (*run)(uint32_t thread);     /* explored */
    void (*finish)(void);             /* not explored, after all threads; NULL: nothing */
    bool deadlines;                   /* a wait may end by its deadline when nothing else can happen; otherwise that is an error */
    bool wrong;                       /* the explorer must find an error: a case that tests the explorer */
    uint64_t most;                    /* for cases with too many runs: stop after this many; 0: run all */
    const struct model_fault *faults; /* faults that must be found; the last one has what NULL */
};

struct model_report {
    bool found; /* an error */
    bool complete;
    uint64_t runs, pruned;
    char text[8192]; /* the error, and the run that led to it */
};

/* Runs in a process of its own. most: give up after this many runs (complete is then false). */
void model_explore(const struct model_case *c, const struct model_fault *fault, uint64_t most, struct model_report *report);
/* Weakens each ordering operation of the code, one after another, and prints which are detected. */
void model_weaken_each(const struct model_case *c, uint64_t most);

/* For cases. Time stands still, and the env's memory is what the threads share. */
extern const struct comm_env model_env;
extern bool model_has_barrier;
void model_ring(const void *bell); /* bells of another kind: descriptors */
void model_sleep(const void *bell);
bool model_clear(const void *bell); /* whether it was rung */
void model_name(const volatile void *at, size_t bytes, const char *name);
void model_constant(const volatile void *at, size_t bytes); /* no run writes it, so a load of it is not a step */
_Noreturn void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define MODEL_CHECK(condition) ((condition) ? (void)0 : model_fail("%s:%d: %s", __FILE__, __LINE__, #condition))

#endif
