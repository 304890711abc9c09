/*
 * The honest side of a tcp wire whose peers are controlled by the fuzzer. It keeps every rule that an engine keeps: numbers in order, views
 * released before their operation is retired, only notes after an abort. Its buffers are checked: the buffer of a finished request must not
 * change, the bytes around each buffer must not be touched, and after an abort all buffers are freed at once.
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
    size_t bytes, said;    /* said: number of message bytes that the hostile peer has sent */
    struct wire_view view; /* from its end until it is released */
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
    uint32_t next, ended; /* ended: number of requests that finished without error */
    uint64_t told;        /* bytes that this side had to send */
    uint32_t lines;       /* number of log lines */
    char line[200];       /* the last one */
    bool down[HONEST_RANKS];
};

void honest_open(struct honest *h, enum mock_wire how);
/* Ends and frees everything; aborts if a property does not hold then. */
void honest_close(struct honest *h);

void honest_progress(struct honest *h);
void honest_watch(struct honest *h, int64_t ns); /* lets the time pass, then runs the monitor's poll */
void honest_arm(struct honest *h, bool on);
void honest_heed(struct honest *h, bool on); /* arrivals wake the monitor, or no longer do */
void honest_check(struct honest *h);         /* properties that hold at any moment */

/* Each does nothing if an engine would not be allowed to do it. size: the length, limited to what is allowed. */
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

/* The pending request number `which` of this kind; NULL: there is none. */
struct honest_request *honest_pending(struct honest_side *s, enum honest_kind kind, uint32_t which);
/* The kind of edge `which` of an operation. */
uint16_t honest_edge(uint32_t which);

#endif
