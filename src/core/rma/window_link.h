/*
 * Calls on window parts that cannot be addressed as memory, and the state that two ranks of a communicator keep for them. The caller's side
 * (window_ask.c) sends an ASK for each piece of a call, as a message of the library itself. The owner's side (window_answer.c) takes the
 * asks in order, applies each to its own memory with the functions that its own calls use, and answers. No program takes part.
 *
 *   ask      struct link_ask and up to LINK_INLINE bytes; longer data follow in the next ask, with exactly the length given in the first
 *   answer   struct link_answer: all asks up to a number are done; then the data of the last one, in the same way
 *
 * At most LINK_DEPTH asks of a pair are unanswered, so the memory for them is bounded on both sides. It is allocated when the pair first
 * communicates and belongs to that pair alone, so no call waits for memory that another pair or communicator holds. Asks are executed one
 * at a time. Everything that a peer sends is validated: an impossible ask or answer fails the communicator with CORRUPT.
 */
#ifndef RMA_WINDOW_LINK_H
#define RMA_WINDOW_LINK_H

#include "rma/queue.h"

enum {
    LINK_DEPTH = 32,
    LINK_INLINE = 4032,    /* with its head, a message that every wire sends at once */
    LINK_STAGED = 65536,   /* bytes in one piece of an update */
    LINK_PIECE = 1 << 20,  /* bytes in one piece of a put or get */
    LINK_ASKS_A_TURN = 64, /* bounds the service for one peer in one pass */
};

struct link_ask {
    uint64_t window, offset, n, amount; /* n: elements; for put and get, bytes */
    uint32_t kind, type, op, slot;
    uint32_t wants_old, reserved[3];
};

struct link_answer {
    uint64_t done, bytes;
};

/* A message with an ask or an answer, and the data that fit into it. */
union link_head {
    struct link_ask ask;
    struct link_answer answer;
};
struct link_parcel {
    union link_head head;
    char data[LINK_INLINE];
};
_Static_assert(sizeof(struct link_parcel) == 4096, "the longest message that travels at once");

/* A piece of a call of this rank. Its slot is free again after it was answered and the wire has read all of it. */
struct link_order {
    uint64_t ticket;
    uint32_t op, unsent; /* unsent: messages that the wire may still read */
    size_t at, n;        /* the elements of the call */
    size_t brings;       /* bytes that the answer must return */
    bool answered, open;
    struct link_parcel parcel;
};

enum link_hearing { HEARS_NOTHING, HEARS_HEAD, HEARS_READ, HEARS_MORE, HEARS_LANDING };
enum link_serving { SERVES_NOTHING, SERVES_HEAD, SERVES_READ, SERVES_MORE, SERVES_LANDING, SERVES_DOING, SERVES_DONE, SERVES_SHOWING };

/* The state for sending requests to a peer, and the state for serving it. Each is allocated when first needed, and freed with the
 * communicator. */
struct link_asking {
    uint64_t issued, answered;
    uint32_t first, last; /* calls that wait for room for the rest of their requests; P2P_NONE: none */
    enum link_hearing hearing;
    size_t came; /* bytes of the current answer */
    struct link_parcel in;
    struct link_order order[LINK_DEPTH];
};
struct link_serves {
    uint64_t done, reported; /* asks of the peer that are done, and how many of them were reported to it */
    enum link_serving serving;
    bool telling; /* the wire may still read `out` */
    size_t came;
    size_t takes, brings; /* bytes that follow the head, and bytes that the answer returns */
    struct one_sided doing;
    const char *show; /* where the answer's data are */
    char *staged;     /* 2 * LINK_STAGED bytes, allocated when first needed */
    struct link_parcel in, out;
    char old[LINK_INLINE];
};
struct window_link {
    struct link_asking *asking;
    struct link_serves *serves;
};

/* The slots that name these messages in the message room. They differ from the slot of any operation, and do not have the bit of setup
 * messages. */
#define LINK_SLOT P2P_LINK
enum link_code { LINK_SENT_ORDER = 0 /* + index of the order */, LINK_HEARD = LINK_DEPTH, LINK_ASKED, LINK_TOLD, LINK_SHOWN };

enum comm_result link_post(struct comm_state *b, enum message_kind kind, bool is_send, int32_t peer, void *at, size_t bytes, uint32_t code);
void link_no_memory(struct comm_state *b);
size_t link_brings(const struct one_sided *one, size_t n); /* bytes that the answer to n elements returns */
size_t link_takes(const struct one_sided *one, size_t n);  /* bytes that the ask for n elements carries */
size_t link_most(const struct one_sided *one);             /* elements of one piece */

/* window_ask.c */
bool link_hear(struct comm_state *b, int32_t peer);
bool link_ask_waiting(struct comm_state *b, int32_t peer); /* continues the calls that waited for room */
void link_ask_done(struct comm_state *b, int32_t peer, uint32_t code, size_t bytes);
/* window_answer.c */
bool link_serve(struct comm_state *b, int32_t peer);
void link_serve_done(struct comm_state *b, int32_t peer, uint32_t code, size_t bytes);

#endif
