/* A run, for those that oversee it (judge.c) and judge it (check.c). */
#ifndef SOAK_RUN_H
#define SOAK_RUN_H

#include "soak/soak.h"

#define SOAK_NEVER INT64_MAX

struct soak_run {
    const struct soak_program *program;
    struct soak_outcome *outcome;
    struct proc proc;
    int32_t processes, living;
    int64_t begin, strike_at, resume_at, stood;
    int64_t ended[SOAK_RANKS_MAX]; /* when its process had ended; 0: not yet */
    int64_t stopped;               /* when the victim was last stopped; 0: never */
    int status[SOAK_RANKS_MAX];
    bool strikes; /* false: the same program without a fault */
    bool traced, orphans;
};

/* The fault that strikes this rank; NULL: none does. */
const struct soak_fault *soak_fault_of(const struct soak_run *run, int32_t rank);
/* Was the rank struck? Then it is gone and had not reached its end. */
bool soak_has_died(const struct soak_run *run, int32_t rank);
/* Ends this process with the verdict if something is wrong with a run that is over. */
void soak_check(struct soak_run *run);
/* Prints the text and what each rank said, kills all ranks, and ends this process with the verdict. */
_Noreturn void soak_end_with(struct soak_run *run, enum soak_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
