/*
 * Parts: what the rooms above `comm` add to a communicator. Each room gives one row of slots (NULL: nothing to do), world/parts.c lists the
 * rows, and the engine keeps that list: so `comm` and `progress` call what they must not know by name. Slots are called in the order of the
 * list. Unless said otherwise the communicator's lock is held.
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
struct cause;
struct wire_event;
struct world;

struct comm_part {
    const char *name;

    /* The engine; no lock is held. */
    void (*nap)(struct engine *e, int64_t now, int64_t *until); /* a thread is about to sleep: lowers `until` where nobody would wake it */
    void (*progressed)(struct engine *e);   /* something ended, failed or was set; called while e->streams.parks is not 0 */
    bool (*engine_close)(struct engine *e); /* false: a thread still uses the engine, which must not be freed */

    void (*wait_ended)(struct engine *e); /* a blocking call returns */

    /* A world; no lock is held. */
    void (*world_close)(struct world *w); /* before its wire closes */

    /* The life of a communicator: `open` takes memory and what this rank offers its peers, `connect` has the offers of all. `close` comes
     * after the wire has left, and also where `open` was not reached. */
    enum comm_result (*open)(struct comm_state *b, struct team_offer *offer);
    enum comm_result (*connect)(struct comm_state *b, const struct team_offer *offers);
    void (*leave)(struct comm_state *b); /* before the wire leaves */
    void (*close)(struct comm_state *b);

    /* A pass. true: something moved. */
    bool (*event)(struct comm_state *b, const struct wire_event *event); /* true: it was this part's, and none of comm's */
    bool (*note)(struct comm_state *b, const struct wire_event *event);  /* a sound note; true: it was this part's */
    bool (*message)(struct comm_state *b,
                    const struct message_finished *done); /* a message of the library's own; true: it was this part's */
    bool (*step)(struct comm_state *b);                   /* before the queue: operations that are not programs */
    bool (*step_beside)(struct comm_state *b);            /* after the queue: what waits beside it */
    bool (*step_last)(struct comm_state *b);
    bool (*blocks)(const struct comm_state *b, uint64_t ticket, const struct timeline_entry *entry); /* must this entry not start yet? */
    bool (*serve)(struct comm_state *b); /* what peers ask of this rank; true: more may be asked without a word about it */

    /* Failure. */
    void (*check)(struct comm_state *b, int64_t now);               /* deadlines, and members that are gone */
    void (*check_always)(struct comm_state *b, int64_t now);        /* the same, of failed communicators too */
    void (*failing)(struct comm_state *b, enum comm_result result); /* the queue is still there */
    void (*ended)(struct comm_state *b, enum comm_result result);   /* the queue has ended with that result */
    void (*describe)(const struct comm_state *b, const struct cause *cause, struct comm_error *error); /* a cause as text; one part does */
    void (*failed)(struct comm_state *b, const struct comm_error *error);                              /* all has ended, and this is why */
    void (*aborted)(struct comm_state *b); /* the world was: what outlives a failure ends too */
};

/* The slots that every pass asks, without the parts that have none: each list up to a NULL. */
enum { PARTS_MOST = 15 };
struct comm_part_calls {
    bool (*step[PARTS_MOST + 1])(struct comm_state *b);
    bool (*step_beside[PARTS_MOST + 1])(struct comm_state *b);
};

#endif
