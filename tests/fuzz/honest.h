/*
 * The honest side of a tcp wire whose peers are the fuzzer's: it keeps every rule that an engine keeps (numbers in order, views released
 * before their operation is retired, nothing but notes after an abort), on buffers that are watched. What a request's buffer holds when the
 * request has ended it holds for ever; around each stand bytes that nobody may touch; after an abort all of them are given back at once.
 */
#ifndef TESTS_FUZZ_HONEST_H
#define TESTS_FUZZ_HONEST_H

#include "fuzz/mock.h"

enum { HONEST_RANKS = 3, HONEST_SIDES = 2, HONEST_WINDOW = 4, HONEST_REQUESTS = 40, HONEST_ANNOUNCED = 32, HONEST_CALLS = 16 };

enum honest_kind { HONEST_LOOK = 1, HONEST_SHOW, HONEST_SEND, HONEST_TAKE };
enum honest_state { HONEST_NONE, HONEST_PENDING, HONEST_ENDED };
struct honest_request {
    enum honest_state state;
    enum honest_kind kind;
    struct honest_side *side;
    wire_key key;
    uint32_t peer, tag;
    uint16_t edge;
    unsigned char *memory; /* canary, bytes, canary; NULL: a view */
    size_t bytes, said;    /* said: by the hostile peer, of a message */
    struct wire_view view; /* once it has ended, until it is released */
    uint32_t sum;
};

struct honest_message {
    wire_key key;
    uint32_t peer;
    uint64_t bytes;
};

/* A communicator: of all three ranks, or of two. */
struct honest_side {
    struct honest *of;
    struct wire_channel *channel;
    struct wire_team team;
    uint32_t issued, retired;
    uint32_t sent[HONEST_RANKS], heard[HONEST_RANKS];
    struct honest_message announced[HONEST_ANNOUNCED];
    uint32_t announcements;
    bool aborted, lost[HONEST_RANKS];
};

struct honest {
    struct mock mock;
    struct tcp_lane far[HONEST_RANKS][TCP_SOCKETS];
    struct env_bell bell;
    struct base_log log;
    struct wire_boot boot;
    const struct wire_class *class;
    struct tcp_wire *wire;
    struct honest_side side[HONEST_SIDES];
    struct honest_request request[HONEST_REQUESTS];
    uint32_t next, ended; /* ended: how many requests have, well */
    uint64_t told;        /* bytes that this side had to say itself */
    uint32_t lines;       /* of the log */
    char line[200];       /* the last */
    bool down[HONEST_RANKS];
};

void honest_open(struct honest *h, enum mock_wire how);
/* Everything is ended, and given back; what does not hold then ends the process. */
void honest_close(struct honest *h);

void honest_progress(struct honest *h);
void honest_watch(struct honest *h, int64_t ns); /* the monitor's look, so much later */
void honest_arm(struct honest *h, bool on);
void honest_heed(struct honest *h, bool on); /* the monitor is woken by what comes, or no more */
void honest_check(struct honest *h);         /* what must hold at any moment */

/* Each does nothing where an engine may not. size: what it is about, cut to what is allowed. */
void honest_issue(struct honest_side *s);
void honest_look(struct honest_side *s, uint32_t peer, uint32_t which, uint32_t round, size_t size, bool lands, bool glance);
void honest_see(struct honest_side *s, uint32_t which, size_t size);
void honest_show(struct honest_side *s, uint32_t which, uint32_t round, size_t size, bool alone);
void honest_send(struct honest_side *s, uint32_t peer, size_t size);
void honest_take(struct honest_side *s, uint32_t which, size_t most, bool discard);
void honest_return(struct honest_side *s, uint32_t which);
void honest_retire(struct honest_side *s);
void honest_note(struct honest_side *s, uint32_t sort, const void *bytes, size_t count);
void honest_publish(struct honest_side *s, uint32_t chain);
void honest_abort(struct honest_side *s);
void honest_reopen(struct honest_side *s);

/* The `which`th request of this kind that is pending; NULL: there is none. */
struct honest_request *honest_pending(struct honest_side *s, enum honest_kind kind, uint32_t which);
/* What edge `which` of an operation is. */
uint16_t honest_edge(uint32_t which);

#endif
