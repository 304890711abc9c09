/*
 * Judges a run by what its ranks recorded. oracle_check compares results and memory with the oracle's. invariant checks
 * what must hold in every run, whatever was done to it. Failures name an invariant by its number:
 *   I1 no request both succeeds and fails            I6  no rank is reported as down that lives and is not stopped
 *   I2 success: the bytes are the oracle's           I7  work completes in order, callbacks come in order
 *   I3 what is not a result is unchanged             I8  numbers strictly increase, and are the same on all ranks
 *   I4 every request ends in time                    I9  each message is received once, by its addressee
 *   I5 one cause on all survivors                    I10 memory is freed      I11 queues stay within their bounds
 * I14, that a seed gives the same run twice, is checked where a seed is run twice.
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
/* Whether the communicator failed with this: refusals of single calls are stored in the same place. */
bool oracle_is_cause(const struct comm_error *e);
void invariant_check(const struct random_run *run, struct oracle_verdict *v);
/* oracle_window.c: what calls on windows saw of each other. */
void window_check(const struct random_run *run, struct oracle_verdict *v);
/* oracle_recover.c: checks agreements and shrunk communicators; recover_sound tells which communicators were created
 * after ranks had died and have only live members: in these nothing may fail. */
void recover_check(const struct random_run *run, struct oracle_verdict *v);
void recover_sound(const struct random_run *run, bool sound[RANDOM_COMMS]);
/* Which communicators a mistake or its consequences may have affected. */
void oracle_taint(const struct random_run *run, bool tainted[RANDOM_COMMS]);
/* The correct result of the action's request. For an unmatched receive the peers' closing may come first. */
enum comm_result oracle_expected(const struct random_action *a);
static inline bool oracle_allows(const struct random_action *a, enum comm_result result)
{
    return result == oracle_expected(a) || (result == COMM_ERR_CLOSED && (a->flags & RANDOM_DOOMED));
}

#endif
