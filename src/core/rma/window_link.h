/*
 * Calls on parts that cannot be reached as memory: what two ranks of a communicator have between them for that. The caller's side
 * (window_ask.c) sends an ASK for each piece of a call, by a message of the library's own; the owner's side (window_answer.c) takes them in
 * their order, does to its own memory what its own calls would do, by the same functions, and answers. No program takes part.
 *
 *   ask      struct link_ask and up to LINK_INLINE bytes; longer ones follow as the next ask, of exactly the length that the first said
 *   answer   struct link_answer: all asks up to a number are done; and what the last of these brings, in the same way
 *
 * At most LINK_DEPTH asks of a pair are unanswered, so both sides' room for them is bounded; it is taken when the pair first talks and
 * belongs to the pair alone: no call waits for what another communicator, or another pair, holds. One ask is done after the other. What a
 * peer says is not believed: whatever it could not have asked or answered fails the communicator with CORRUPT.
 */
#ifndef RMA_WINDOW_LINK_H
#define RMA_WINDOW_LINK_H

#include "rma/queue.h"

enum {
    LINK_DEPTH = 32,
    LINK_INLINE = 4032,    /* with its head a message that travels at once on every wire */
    LINK_STAGED = 65536,   /* bytes of a piece of an update */
    LINK_PIECE = 1 << 20,  /* of a put or get */
    LINK_ASKS_A_TURN = 64, /* done for one peer in one pass */
};

struct link_ask {
    uint64_t window, offset, n, amount; /* n: elements; of put and get bytes */
    uint32_t kind, type, op, slot;
    uint32_t wants_old, reserved[3];
};

struct link_answer {
    uint64_t done, bytes;
};

/* A message that carries an ask, or an answer, and what fits beside it. */
union link_head {
    struct link_ask ask;
    struct link_answer answer;
};
struct link_parcel {
    union link_head head;
    char data[LINK_INLINE];
};
_Static_assert(sizeof(struct link_parcel) == 4096, "the longest message that travels at once");

/* A piece of a call of this rank. Its room is free again when it was answered and the wire has read all of it. */
struct link_order {
    uint64_t ticket;
    uint32_t op, unsent; /* unsent: messages that the wire may still read */
    size_t at, n;        /* which elements of the call */
    size_t brings;       /* bytes that the answer must bring */
    bool answered, open;
    struct link_parcel parcel;
};

enum link_hearing { HEARS_NOTHING, HEARS_HEAD, HEARS_READ, HEARS_MORE, HEARS_LANDING };
enum link_serving { SERVES_NOTHING, SERVES_HEAD, SERVES_READ, SERVES_MORE, SERVES_LANDING, SERVES_DOING, SERVES_DONE, SERVES_SHOWING };

/* What it takes to ask a peer, and what it takes to serve one: each is made when it is first needed, and lives as long as the
 * communicator. */
struct link_asking {
    uint64_t issued, answered;
    uint32_t first, last; /* calls that wait for room to ask for the rest; P2P_NONE */
    enum link_hearing hearing;
    size_t came; /* bytes of the answer in hand */
    struct link_parcel in;
    struct link_order order[LINK_DEPTH];
};
struct link_serves {
    uint64_t done, told; /* asks of the peer that are done, and of which it was told */
    enum link_serving serving;
    bool telling; /* the wire may still read `out` */
    size_t came;
    size_t takes, brings; /* bytes that come behind the head, and that the answer brings */
    struct one_sided doing;
    const char *show; /* where the answer's bytes lie */
    char *staged;     /* 2 * LINK_STAGED, when first needed */
    struct link_parcel in, out;
    char old[LINK_INLINE];
};
struct window_link {
    struct link_asking *asking;
    struct link_serves *serves;
};

/* The names under which the message room tells of these messages: unlike any operation's slot, and without a setup message's bit. */
#define LINK_SLOT P2P_LINK
enum link_code { LINK_SENT_ORDER = 0 /* + its place */, LINK_HEARD = LINK_DEPTH, LINK_ASKED, LINK_TOLD, LINK_SHOWN };

enum comm_result link_post(struct comm_state *b, enum message_kind kind, bool is_send, int32_t peer, void *at, size_t bytes, uint32_t code);
void link_no_memory(struct comm_state *b);
size_t link_brings(const struct one_sided *one, size_t n); /* bytes that the answer to n elements brings */
size_t link_takes(const struct one_sided *one, size_t n);  /* and that the ask carries */
size_t link_most(const struct one_sided *one);             /* elements of one piece */

/* window_ask.c */
bool link_hear(struct comm_state *b, int32_t peer);
bool link_ask_waiting(struct comm_state *b, int32_t peer); /* those that waited for room */
void link_ask_done(struct comm_state *b, int32_t peer, uint32_t code, size_t bytes);
/* window_answer.c */
bool link_serve(struct comm_state *b, int32_t peer);
void link_serve_done(struct comm_state *b, int32_t peer, uint32_t code, size_t bytes);

#endif
