/*
 * oracle_machine: what a program must do, according to the contract alone. A simple interpreter of the two lines of
 * every communicator that completes things as late as the contract allows: a collective ends when every member has
 * started it, a message when both ends have, work retires in order, and a gate opens only when all work before it is
 * done. What ends here must end everywhere. What memory contains here it must contain everywhere, because conflicts
 * leave one result in any order of events. It shares no line with the library.
 */
#ifndef SIM_ORACLE_MACHINE_H
#define SIM_ORACLE_MACHINE_H

#include "sim/random_program.h"

enum { ORACLE_ENTRIES = 6144, ORACLE_SLOTS = 1024, ORACLE_NONE = -1, ORACLE_WINDOW = 4 /* the smallest allowed */ };

enum oracle_kind {
    ORACLE_WORK,
    ORACLE_MEET,
    ORACLE_FENCE,
    ORACLE_REFUSED,
    ORACLE_SEND,
    ORACLE_RECV,
    ORACLE_ATOMIC,
    ORACLE_BESIDE /* never delayed */
};
enum oracle_state { ORACLE_QUEUED, ORACLE_STARTED, ORACLE_DATA, ORACLE_DONE };

struct oracle_point {
    int32_t kind; /* enum oracle_point_kind */
    int32_t of;   /* action, or gate, or communicator */
    int32_t serial;
};
enum oracle_point_kind { ORACLE_REACHED, ORACLE_REQUEST, ORACLE_MARKER, ORACLE_GATE };

struct oracle_entry {
    int16_t action; /* the action that it performs; for a plan, the recorded one */
    int16_t issue;  /* the action that issued it */
    int8_t comm, rank, kind, state;
    int16_t slot, next;
    int32_t serial;
    struct oracle_point point; /* of a fence */
};

/* One communicator on one rank. */
struct oracle_line {
    int16_t head, tail; /* from the first that is not done */
    int32_t serial, numbers;
    int32_t work, running; /* places of unfinished work; those that have started */
    int32_t messages;      /* unfinished */
    bool closed;
};

/* The number-th collective of a communicator, on all its members. */
struct oracle_slot {
    int16_t entry[RANDOM_RANKS]; /* by rank of the communicator */
    int16_t started;
    bool data;
};

struct oracle {
    const struct random_program *program;
    struct random_comms comms;
    int16_t own[RANDOM_RANKS][RANDOM_OWN]; /* each rank's actions */
    int32_t owns[RANDOM_RANKS], at[RANDOM_RANKS];
    struct oracle_line line[RANDOM_COMMS][RANDOM_RANKS];
    struct oracle_slot slot[ORACLE_SLOTS];
    int16_t slots, slot_of[RANDOM_COMMS][ORACLE_SLOTS / 2];
    struct oracle_point event[RANDOM_RANKS][RANDOM_EVENTS];
    bool gate[RANDOM_ACTIONS / 4]; /* opened */
    int32_t gates;
    int16_t left[RANDOM_ACTIONS]; /* entries of an action that are not done; -1: not issued */
    struct oracle_entry entry[ORACLE_ENTRIES];
    int32_t entries;
    const char *wrong; /* the program is invalid: why */
    int32_t wrong_at;
};

/* Memory, if requested: the arenas of all ranks, the results of every action, and what can be known of them. */
struct oracle_memory {
    unsigned char *arena[RANDOM_RANKS][RANDOM_ARENAS], *known[RANDOM_RANKS][RANDOM_ARENAS], *scratch;
    uint64_t want[RANDOM_ACTIONS]; /* hash of the bytes that an action's request leaves on its rank */
    bool told[RANDOM_ACTIONS];     /* want is valid */
    int16_t taken[RANDOM_ACTIONS]; /* which send a receive got */
    const int32_t *outcome;        /* of each action, comm_result; NULL: all succeeded */
    struct random_range spoiled;   /* what a rank that took itself for the root may write at any time; empty: nothing */
    int32_t spoiled_rank, spoiled_type;
    const struct random_program *program;
};

void oracle_start(struct oracle *o, const struct random_program *p);
/* Adds the program's actions from `from` on; communicators are counted anew. */
void oracle_more(struct oracle *o, int32_t from);
/* Runs as far as possible. memory may be NULL. */
void oracle_run(struct oracle *o, struct oracle_memory *memory);
bool oracle_ended(const struct oracle *o);
void oracle_copy(struct oracle *to, const struct oracle *from);
/* Prints what blocks it, for people. */
void oracle_print(FILE *to, const struct oracle *o);

/* oracle_host.c */
static inline const struct random_action *oracle_action(const struct oracle *o, const struct oracle_entry *e)
{
    return &o->program->action[e->action];
}
/* Whether what the point stands for has happened, as seen by this rank. */
bool oracle_point_reached(const struct oracle *o, const struct oracle_point *point, int32_t rank);
/* Makes the next action of this rank. False: it must wait. memory may be NULL. */
bool oracle_host_step(struct oracle *o, int32_t rank, struct oracle_memory *memory);

/* oracle_issue.c */
static inline bool oracle_is_message(const struct oracle_entry *e)
{
    return e->kind >= ORACLE_SEND;
}
void oracle_wrong(struct oracle *o, int32_t at, const char *why); /* only the first one is kept */
int32_t oracle_places(const struct random_action *a);             /* entries of the queue: a creating call has one for each of its stages */
/* Adds the entry of an action; `issue` is the call that issues it. */
void oracle_put(struct oracle *o, int32_t action, int32_t issue, struct oracle_point point);
bool oracle_issue(struct oracle *o, int32_t index); /* false: there is no room for it */

/* oracle_value.c */
bool oracle_memory_make(struct oracle_memory *m, const struct random_program *p);
/* Marks the spoiled bytes of that arena as unknown, if it has some. */
void oracle_forget_spoiled(struct oracle_memory *m, int32_t rank, int32_t type);
void oracle_memory_free(struct oracle_memory *m);
void oracle_fill_arena(unsigned char *at, const struct random_program *p, int32_t rank, int32_t type);
void oracle_fill_range(unsigned char *arena, const struct random_program *p, const struct random_action *a);
void oracle_collective(struct oracle *o, struct oracle_memory *m, const struct oracle_slot *slot);
void oracle_message(struct oracle *o, struct oracle_memory *m, const struct oracle_entry *send, const struct oracle_entry *recv);
/* The bytes that the action's request must have left, or none. */
struct random_range oracle_result(const struct random_action *a, const struct random_comms *comms);
uint64_t oracle_hash_range(const unsigned char *arena, struct random_range range, int32_t type);

/* Whether the program is valid and ends; otherwise why not, and where. */
bool oracle_legal(const struct random_program *p, const char **why, int32_t *action);

#endif
