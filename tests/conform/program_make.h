/*
 * program_make: random programs of work, messages, events and gates over several communicators, with the expected
 * memory contents afterwards. A program is one list of actions in one order; every rank runs its own actions in that
 * order. Whatever an action waits for was issued earlier in the list or, for a receive or the opening of a gate, is
 * planned at a known later step. A host waits only for what is complete by then. So every program ends, on any number
 * of threads, and anything else is an error of the library.
 */
#ifndef CONFORM_PROGRAM_MAKE_H
#define CONFORM_PROGRAM_MAKE_H

#include "conform/oracle.h"
#include "conform/rig.h"

enum {
    MAKE_RANKS = 5,
    MAKE_COMMS = 4, /* world, its duplicate, its even and its odd ranks */
    MAKE_TYPES = 3,
    MAKE_BUFFERS = 9, /* three of each type */
    MAKE_BUFFER_BYTES = 24 * 1024,
    MAKE_EVENTS = 4, /* of each rank */
    MAKE_STEPS = 160,
    MAKE_ACTIONS = MAKE_STEPS * 14,
    MAKE_MESSAGES = MAKE_STEPS,
};

enum make_verb {
    MAKE_BARRIER,
    MAKE_BROADCAST,
    MAKE_REDUCE,
    MAKE_ALLREDUCE,
    MAKE_ALLGATHER,
    MAKE_SCATTERED,
    MAKE_PLAN,
    MAKE_SEND,
    MAKE_RECV,
    MAKE_RECORD,
    MAKE_WAIT_EVENT,
    MAKE_WAIT_REQUEST,
    MAKE_RESET,
    MAKE_SET,
    MAKE_HOST_WAIT,
    MAKE_TEST,
    MAKE_SYNC,
    MAKE_VERBS
};

struct make_action {
    enum make_verb verb;
    int32_t step, rank, comm;
    int32_t in, out; /* buffers; in -1: in place */
    int32_t message; /* -1: from and to buffers */
    int32_t peer, root, event;
    uint32_t tag;
    comm_op op;
    size_t n;
    int32_t target;              /* the action whose request is waited for or tested */
    int32_t shut;                /* a gate of this rank delays it until this step */
    int32_t ready;               /* complete once all ranks have passed this step; for actions with a request */
    struct comm_request request; /* written by the rank that runs it */
};

struct make_message {
    unsigned char *from, *to;
    size_t bytes;
};

struct make_program {
    uint64_t seed, chance;
    int32_t ranks, steps, step;
    struct make_action action[MAKE_ACTIONS];
    int32_t actions;
    struct make_message message[MAKE_MESSAGES];
    int32_t messages;
    /* Memory, and its expected contents: [comm][rank][buffer]. */
    unsigned char *memory[MAKE_COMMS][MAKE_RANKS][MAKE_BUFFERS], *model[MAKE_COMMS][MAKE_RANKS][MAKE_BUFFERS];
};

enum comm_type make_type(int32_t buffer);
bool make_member(const struct make_program *program, int32_t comm, int32_t rank);
int32_t make_members(const struct make_program *program, int32_t comm); /* number of members */
int32_t make_rank(int32_t comm, int32_t rank);                          /* a world rank's number in the communicator */
int32_t make_plan_parts(struct make_action parts[3]);                   /* the contents of every plan */
struct make_program *make_program(uint64_t seed, int32_t steps);
void make_free(struct make_program *program);
void make_print(const struct make_program *program);

#endif
