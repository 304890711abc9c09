/*
 * explore: the library's own objects, run under every order of their threads and every value that C11 lets a load return.
 *
 * The rooms' sources are compiled with the compiler's instrumentation for a race detector, which turns each atomic operation and each plain
 * access into a call; linked against hooks.c instead of the detector, the calls end here. So what is explored is the code that ships, not a
 * model of it. A case is a few short threads; it is run again and again, until no choice is left.
 *
 * What is modelled (memory.c): modification order is the order of execution; a load may return any value that coherence and what its thread
 * knows allow, however old; release, acquire, release sequences, fences, and seq_cst as C11 29.3 has it; membarrier(2) as a fence in the
 * caller, and in each other thread at the signal fences around that moment. Plain accesses that no happens-before orders are an error. Left
 * out: stores that overtake one another in modification order (2+2W), and values out of thin air.
 *
 * What is chosen (explore.c): the thread at each atomic operation, less orders that only swap independent ones (sleep sets), and the value
 * of each load. A loop that waits (env.relax, park, a bell) stands until something that it read has changed; if nobody can go on, a wake-up
 * was lost.
 */
#ifndef MODEL_EXPLORE_H
#define MODEL_EXPLORE_H

#include "base/env.h"

enum { MODEL_THREADS = 4 };

enum model_kind {
    MODEL_START,
    MODEL_LOAD,
    MODEL_STORE,
    MODEL_CHANGE, /* read and write at once */
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

/* One thing taken away from the code, which the exploration must then find: an order (of loads, stores, changes), a fence, a barrier. */
struct model_fault {
    const char *what;
    enum model_kind kind;
    const char *name; /* of the word, as given to model_name; NULL: of any */
    int32_t thread;   /* -1: any */
    uintptr_t site;   /* or the one place in the code, relative to the program; 0: not by that */
};

struct model_case {
    const char *name;
    uint32_t threads;
    void (*setup)(void);              /* unexplored, alone; what threads share is taken from model_env */
    void (*run)(uint32_t thread);     /* explored */
    void (*finish)(void);             /* unexplored, after all; NULL: nothing */
    bool deadlines;                   /* a wait may end by its deadline when nothing else can happen; otherwise that is an error */
    bool wrong;                       /* the explorer must find something: a case about the explorer */
    uint64_t most;                    /* too many to run all: stop after so many; 0: all */
    const struct model_fault *faults; /* that must be found; what NULL ends them */
};

struct model_report {
    bool found; /* something wrong */
    bool complete;
    uint64_t runs, pruned;
    char text[8192]; /* what, and the run that led there */
};

/* In a process of its own. most: give up after so many runs (complete is false then). */
void model_explore(const struct model_case *c, const struct model_fault *fault, uint64_t most, struct model_report *report);
/* Every place in the code that orders something, one after another, weakened: prints which are found. */
void model_weaken_each(const struct model_case *c, uint64_t most);

/* For cases. Time stands still, and the env's memory is what the threads share. */
extern const struct comm_env model_env;
extern bool model_has_barrier;
void model_ring(const void *bell); /* bells of another kind: descriptors */
void model_sleep(const void *bell);
bool model_clear(const void *bell); /* whether it was rung */
void model_name(const volatile void *at, size_t bytes, const char *name);
void model_constant(const volatile void *at, size_t bytes); /* no run writes it: looking at it is no step */
_Noreturn void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define MODEL_CHECK(condition) ((condition) ? (void)0 : model_fail("%s:%d: %s", __FILE__, __LINE__, #condition))

#endif
