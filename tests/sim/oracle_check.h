/*
 * Judging a run by what its ranks wrote down. oracle_check: results and memory against the oracle's. invariant: what must hold of every
 * run, whatever was done to it; the numbers are those by which failures name them: I1 no request both succeeds and fails            I6
 * nobody is accused who lives and is not stopped I2 success: the bytes are the oracle's           I7 work completes in order, callbacks
 * come in order I3 what is not a result is untouched             I8 numbers strictly increase, and are the same on all ranks I4 every
 * request ends in time                    I9 each message is taken once, by whom it was for I5 one cause on all survivors I10 memory is
 * given back   I11 queues within their bounds I14, that a seed is the same twice, is looked for by whoever runs it twice.
 */
#ifndef SIM_ORACLE_CHECK_H
#define SIM_ORACLE_CHECK_H

#include "sim/random_run.h"

struct oracle_verdict {
    bool failed;
    char text[1024];
};

void oracle_say(struct oracle_verdict *v, const struct random_run *run, int32_t action, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void oracle_check(const struct random_run *run, struct oracle_verdict *v);
/* The communicator failed with this: refusals of single calls are told in the same place. */
bool oracle_is_cause(const struct comm_error *e);
void invariant_check(const struct random_run *run, struct oracle_verdict *v);
/* oracle_window.c: what calls on windows saw of each other. */
void window_check(const struct random_run *run, struct oracle_verdict *v);
/* oracle_recover.c: agreements and shrunk communicators; and which communicators were made after ranks had died, of such as all live: there
 * nothing may fail. */
void recover_check(const struct random_run *run, struct oracle_verdict *v);
void recover_sound(const struct random_run *run, bool sound[RANDOM_COMMS]);
/* Which communicators a mistake or its consequences may have reached. */
void oracle_taint(const struct random_run *run, bool tainted[RANDOM_COMMS]);
/* What the request of a must say when nothing goes wrong. A receive that nothing matches may be ended by its peers' closing first. */
enum comm_result oracle_expected(const struct random_action *a);
static inline bool oracle_allows(const struct random_action *a, enum comm_result result)
{
    return result == oracle_expected(a) || (result == COMM_ERR_CLOSED && (a->flags & RANDOM_DOOMED));
}

#endif
