/*
 * standing: what a library keeps of a call of a plan between the starts of that plan, such as a persistent collective of MPI. The plan
 * holds a reference, and so does each start that has not ended. The communicator's lock protects all of it, and the end of the communicator
 * ends it.
 *
 * A library matches such calls only with each other, and by the order in which they were first started. So all ranks must start the same
 * plans in the same order. The number of the plan is part of the fingerprint of its calls, so that another order is a mismatch.
 */
#ifndef NATIVE_STANDING_H
#define NATIVE_STANDING_H

#include "comm/state.h"

struct standing {
    struct standing *next;
    uint32_t references;
    uint32_t plan;          /* its number, in the order in which the communicator's plans were first started */
    struct call_shape form; /* of the call, with its fingerprint; known once the library was asked whether it takes it */
    bool runs;              /* its last start has not ended: the next one waits */
    void *made;             /* the library's; NULL before the first start */
};

/* As issue_standing of struct collective_library. */
enum comm_result standing_issue(struct comm_state *b, const struct engine_call *call, struct standing **standing, uint32_t plan,
                                struct comm_request *req);
void standing_drop(struct comm_state *b, struct standing *standing);
/* Makes the entry a start of it. NULL: the entry is none. */
void standing_begin(struct standing *standing, struct entry *e);
/* The start of this entry has ended. */
void standing_ended(struct comm_state *b, struct entry *e);
/* After the library has left: gives all of them back, whoever has references. */
void standing_end(struct comm_state *b);

#endif
