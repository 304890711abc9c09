/*
 * Internals of the exact form of cost: all ranks' programs in virtual time. cost_run.c steps lanes as the interpreter
 * does; cost_place.c computes when an exposure is seen, and keeps events in order of time. Private to this room.
 */
#ifndef MODEL_COST_SIM_H
#define MODEL_COST_SIM_H

#include "model/cost_rate.h"

#define COST_NONE UINT32_MAX
enum { COST_CREDITS = 4, COST_LOOKS_MORE = 1024, COST_ROW = 16 /* calls at the end of a row that are averaged */ };

/* A rank's line of one edge and call: when its bytes are there, the looks that wait for it, and the exposing step. */
struct cost_line {
    int64_t at; /* 0: not yet; otherwise the time + 1 */
    uint32_t waiters;
    uint16_t step, reserved;
};
/* A place of a stream. */
struct cost_place {
    int64_t at, back; /* when it was filled; when the last reader released it */
    uint32_t key;     /* key of its current or last contents */
    uint32_t left;    /* readers that have not released it */
    uint32_t waiters; /* looks that wait for it */
    uint32_t owner;
    uint16_t step, blocked; /* blocked: its owner waits for it */
};
/* A requested view that has not arrived. */
struct cost_look {
    uint32_t next, rank, i, k, round, peer;
    uint16_t step, item; /* item: its view slot, or the index among the step's peers */
};
struct cost_event {
    int64_t at;
    uint32_t rank, look; /* COST_NONE: the rank looks again */
};
struct cost_lane {
    uint16_t pc;
    bool built;
    uint32_t i, k;
};
struct cost_rank {
    const struct comm_program *program;
    int64_t clock, again; /* again: time of the rank's next event of that kind; earlier ones are void; INT64_MAX: none */
    uint64_t present, own;
    uint32_t lane, counter, view; /* where this rank's begin; view: only for streams */
    uint32_t pending, call;
    uint16_t open;
    uint8_t counters; /* number that it uses */
    bool bumped, waits_retired;
};

/* The progress of one call over all ranks. */
struct cost_call {
    uint32_t retired;
    int64_t last; /* when the last rank ended it */
};

struct cost_sim {
    const struct comm_env *env;
    const struct cost_case *what;
    const struct comm_program *shape; /* rank 0's: edges are equal on all ranks */
    struct cost_rate rate;
    uint32_t size, calls, hosts, waiting_retired;
    struct cost_rank *rank;
    struct cost_lane *lane;
    int32_t *counter;
    uint32_t *view_place;
    struct cost_line *line;
    struct cost_place *place;
    struct cost_call *call;
    int64_t *cpu, *card_out, *card_in;                  /* when they are free again; cpu by CPU, cards by host */
    uint32_t line_edges, line_index[PROGRAM_EDGES_MAX]; /* a private edge counts once for each reader */
    size_t place_index[PROGRAM_EDGES_MAX], places;      /* places of one area; there are COST_STREAM_AHEAD areas */
    struct cost_look *look;
    struct cost_event *heap;
    uint32_t looks, look_free, heap_count, heap_room;
    uint64_t events, steps, taken, lanes, counters, views;
    bool no_memory, broken;
};

/* ------------------------------------------------------------------------------------------------------------ cost_place.c */
void *cost_take(struct cost_sim *sim, size_t bytes);
void cost_give(struct cost_sim *sim, void *memory, size_t bytes);
void cost_push(struct cost_sim *sim, int64_t at, uint32_t rank, uint32_t look);
void cost_again(struct cost_sim *sim, int64_t at, uint32_t rank);
struct cost_event cost_pop(struct cost_sim *sim);
bool cost_open_places(struct cost_sim *sim);
void cost_close_places(struct cost_sim *sim);
/* False: no room yet; an event follows when there is. */
bool cost_room(struct cost_sim *sim, uint32_t r, const struct comm_step *s, const struct cost_lane *lane, size_t bytes);
void cost_publish(struct cost_sim *sim, uint32_t r, const struct comm_step *s, const struct cost_lane *lane, size_t bytes);
/* True: it has arrived by this rank's clock. False: an event follows. */
bool cost_look_for(struct cost_sim *sim, const struct cost_look *look, size_t bytes);
void cost_give_back(struct cost_sim *sim, uint32_t place, uint32_t reader, int64_t now);
/* Where a view of a stream lies. */
uint32_t cost_place_of(const struct cost_sim *sim, uint32_t call, uint32_t source, uint32_t reader, uint32_t edge, uint32_t round);
void cost_retired(struct cost_sim *sim, uint32_t call, int64_t now);

static inline uint32_t cost_peer(const struct comm_program *p, const struct comm_step *s, const struct cost_lane *lane, uint32_t j)
{
    int64_t at = s->peer + (int64_t)s->peer_outer * lane->i;
    return program_peer(p, (uint32_t)(s->peer_outer ? ((at % p->peers) + p->peers) % p->peers + j : s->peer + j));
}

#endif
