/*
 * Parts: what the rooms above `comm` add to a communicator. Each room provides one row of slots (NULL: nothing to do), world/part_table.c
 * lists the rows, and the engine keeps that list. Through it `comm` and `progress` call rooms that they must not know by name. Slots are
 * called in the order of the list. Unless stated otherwise, the communicator's lock is held.
 */
#ifndef PROGRESS_PART_H
#define PROGRESS_PART_H

#include <commstream/inspect.h>

#include <stdbool.h>
#include <stdint.h>

struct comm_state;
struct cause;
struct engine;
struct message_finished;
struct team_offer;
struct timeline_entry;
struct wire_event;
struct world;

struct comm_part {
    const char *name;

    /* Slots of the engine; no lock is held. */
    /* a thread is about to sleep: lowers `until` if nothing else would wake it in time */
    void (*nap)(struct engine *e, int64_t now, int64_t *until);
    void (*progressed)(struct engine *e);   /* something ended, failed or was set; called while e->streams.parks is not 0 */
    bool (*engine_close)(struct engine *e); /* false: a thread still uses the engine, so it must not be freed */

    void (*wait_ended)(struct engine *e); /* a blocking call returns */

    /* Slots of a world; no lock is held. */
    void (*world_close)(struct world *w); /* before its wire closes */

    /* The life of a communicator. `open` allocates memory and writes what this rank offers to its peers; `connect` receives the offers of
     * all ranks. `close` runs after the wire has left, and also if `open` was not reached. */
    enum comm_result (*open)(struct comm_state *b, struct team_offer *offer);
    enum comm_result (*connect)(struct comm_state *b, const struct team_offer *offers);
    void (*leave)(struct comm_state *b); /* before the wire leaves */
    void (*close)(struct comm_state *b);

    /* Slots of a pass. They return true if something moved. */
    bool (*event)(struct comm_state *b, const struct wire_event *event); /* true: it belonged to this part, and comm must not handle it */
    bool (*note)(struct comm_state *b, const struct wire_event *event);  /* a valid note; true: it belonged to this part */
    /* a message of the library itself has completed; true: it belonged to this part */
    bool (*message)(struct comm_state *b, const struct message_finished *done);
    bool (*step)(struct comm_state *b);        /* before the queue: operations that are not programs */
    bool (*step_beside)(struct comm_state *b); /* after the queue: operations that wait next to the queue */
    bool (*step_last)(struct comm_state *b);
    /* true: this entry must not start yet */
    bool (*blocks)(const struct comm_state *b, uint64_t ticket, const struct timeline_entry *entry);
    bool (*serve)(struct comm_state *b); /* serves what peers request from this rank; true: more may be requested without another notice */

    /* Slots for failure. */
    void (*check)(struct comm_state *b, int64_t now);               /* deadlines, and members that have died */
    void (*check_always)(struct comm_state *b, int64_t now);        /* the same, also for failed communicators */
    void (*failing)(struct comm_state *b, enum comm_result result); /* the communicator is failing; the queue still exists */
    void (*ended)(struct comm_state *b, enum comm_result result);   /* the queue has ended with that result */
    /* writes a cause as text; exactly one part does */
    void (*describe)(const struct comm_state *b, const struct cause *cause, struct comm_error *error);
    void (*failed)(struct comm_state *b, const struct comm_error *error); /* everything has ended; the error tells why */
    void (*aborted)(struct comm_state *b);                                /* the world was aborted: ends also what survives a failure */

    /* Begins to duplicate a communicator, whose lock is held; exactly one part does. The copy has its name, stream and terms. */
    enum comm_result (*copy)(struct comm_state *b, struct comm_communicator **copy, struct comm_request *req);
};

/* The slots that each pass calls, without the parts that leave them empty. Each list ends with NULL. */
enum { PARTS_MOST = 15 };
struct comm_part_calls {
    bool (*step[PARTS_MOST + 1])(struct comm_state *b);
    bool (*step_beside[PARTS_MOST + 1])(struct comm_state *b);
};

#endif
