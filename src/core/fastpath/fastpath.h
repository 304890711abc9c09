/*
 * What the files of the fast path share; docs/internals/fastpath.md is the guide to them. A call template holds everything of a call except
 * its buffers. It is computed once (template.c), so a repeated call only has to check its buffers before it stores its bytes.
 */
#ifndef FASTPATH_FASTPATH_H
#define FASTPATH_FASTPATH_H

#include "comm/state.h"
#include "fastpath/issue.h"

#include "select/select.h"

enum { FASTPATH_RANKS = ALGO_EXPRESS_RANKS, FASTPATH_TEMPLATES = 4, FASTPATH_TOTAL_BYTES = ALGO_EXPRESS_TOTAL_BYTES };
enum { FASTPATH_COOKIE = 0x40000000 /* used as the window place in a cookie: above every real place, below MESSAGE_COOKIE */ };

struct comm_state;
struct engine;
struct entry;

/* A block of `in` or `out` that goes to one peer or comes from one. */
struct fastpath_span {
    size_t at, bytes;
    uint32_t mark; /* part of its fingerprint */
    uint16_t edge;
    uint8_t kind; /* of the edge */
    bool few;     /* sent with the wire's show and received with its see */
};

enum { FASTPATH_VECTORS = 4 };
/* The vectors of a v form's call. */
struct template_vectors {
    size_t vector[FASTPATH_VECTORS][FASTPATH_RANKS]; /* counts, displs, in_counts, in_displs */
    bool has_counts[2];                              /* for counts and in_counts */
    bool dense[2];                                   /* the displs and in_displs are equal to the default ones */
};

struct call_template {
    struct call_shape call;
    size_t reads, writes;  /* bytes from the start of `in` and of `out`; 0: this rank does not use the buffer */
    size_t shown;          /* bytes from the start of `in` */
    const uint16_t *peers; /* the receivers */
    uint32_t npeers;
    uint8_t shows; /* how many spans: one for all peers, or one for each */
    bool pairs;    /* one span for each peer; arriving data land directly at their final address */
    /* pairs: the only span to show, if there is just one and the wire's show can send it; otherwise NULL */
    const struct fastpath_span *only;
    bool few;               /* everything is sent with the wire's show and received with its see */
    bool straight;          /* one span for all; this rank shows and looks, reads and writes */
    size_t dirties;         /* bytes of the only peer whose lines are written after reading (data_dirty); 0: none */
    bool totals;            /* a scan (totals.c) */
    bool later;             /* a scan: what this rank shows depends on what it receives first */
    uint32_t looked;        /* a bit for each rank whose bytes are needed */
    uint32_t fetched;       /* those of them whose lines are prefetched */
    uint32_t beside;        /* those of them whose bytes are next to their line, and few */
    uint32_t first;         /* those of them whose bytes go into what this rank shows */
    data_reduce_fn *reduce; /* NULL: the received bytes are copied */
    struct data_reduce sum; /* complete except for `to` */
    struct engine_call as;  /* complete except for the buffers and vectors */
    uint32_t ways;          /* for a reduction: of ranks 0 .. ways - 1 */
    uint32_t copied;        /* for a copy: a bit for each of these ranks */
    size_t elements;        /* of a reduction's result */
    size_t at;              /* offset of this rank's part in what each rank shows */
    uint64_t last;          /* the newest ticket that used it */
    const char *algorithm;
    uint64_t bytes, bytes_out, bytes_in;                               /* for records and statistics */
    size_t came[FASTPATH_RANKS];                                       /* bytes that each rank shows */
    size_t to[FASTPATH_RANKS];                                         /* offset in `out` of the copy from each rank */
    size_t length[FASTPATH_RANKS];                                     /* length of that copy */
    struct fastpath_span gives[FASTPATH_RANKS], takes[FASTPATH_RANKS]; /* pairs: by rank */
    struct template_vectors vectors;
    bool mutual;   /* every rank waits for every other: then the next call can publish what this one leaves */
    bool in_place; /* on this rank, an in-place `in` is the start of `out` */
    uint16_t peer[FASTPATH_RANKS];
};

/* State of the fast path. Its operations in progress are the oldest in the queue, up to `last`. Only the oldest one is polled, and its
 * lines that came are kept. */
struct fastpath {
    uint64_t last;
    uint64_t waits;   /* the oldest operation that has not shown its bytes because there was no room; later ones have not either. 0: none */
    uint64_t fetched; /* lines up to those of this ticket were prefetched */
    uint64_t straight;              /* the last operation of few bytes that took the straight path alone; 0: none */
    uint64_t missed;                /* the last operation whose bytes were polled before they were there */
    uint32_t seen;                  /* a bit for each member whose bytes came; this rank's bit: its total is computed */
    uint32_t lacks;                 /* the rank whose bytes the last failed poll looked for */
    uint32_t next;                  /* the template to replace next */
    int64_t looked_ns;              /* during a wait: when the last poll that found nothing ended; otherwise 0 */
    bool is_plain;                  /* during a wait: data_float_is_plain */
    bool owes;                      /* something was published but not flushed to sleepers */
    struct call_template *template; /* the last one used */
    const void *from[FASTPATH_RANKS];
    uint64_t bytes_out, bytes_in;
    struct call_template templates[FASTPATH_TEMPLATES];
    _Alignas(64) char total[FASTPATH_TOTAL_BYTES];
};

static inline bool fastpath_pending(const struct comm_state *b)
{
    return b->line.done < b->fastpath->last;
}
static inline void fastpath_flush(struct comm_state *b)
{
    b->fastpath->owes = false;
    b->wire->flush(b->channel);
}

/* The template of this call; call.fits tells whether the call can take the fast path. NULL: all templates are in use. */
struct call_template *call_template_of(struct comm_state *b, const struct engine_call *call);

/* Does a call with these vectors have the layout of this template, which has counts? */
bool fastpath_same_layout(const struct comm_state *b, const struct call_template *f, const struct engine_vectors *v);
/* Prefetches the lines together, so that they travel in parallel. */
void fastpath_fetch(struct comm_state *b, const struct call_template *f, uint32_t seq, bool there);

bool fastpath_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req);
/* Issues a call like the one before, if its template is straight. */
bool fastpath_again(struct comm_state *b, const struct call_shape *as, const void *in, void *out, struct comm_request *req);
bool fastpath_poll(struct comm_state *b);        /* true: an operation ended */
bool fastpath_wait(struct comm_request request); /* for work, also of a library; true: it ended */
/* Waits briefly for a message, where a pass makes no system call. True: it has ended without an error. */
bool fastpath_wait_message(struct comm_request request);
bool fastpath_wait_in_turn(struct engine *e, struct comm_request request); /* for oversubscribed ranks; the caller holds e */
void fastpath_show_waiting(struct comm_state *b);                          /* shows the bytes of operations that found no room */
/* Has everything come that the oldest operation needs? What came is kept until its result is computed. */
enum wire_result fastpath_come(struct comm_state *b, const struct call_template *f, struct entry *e, const void *in, void *out,
                               uint32_t seq, uint32_t chain);
void fastpath_make_result(struct comm_state *b, struct call_template *f, const void *in, void *out);
/* Computes from the received bytes what this rank shows, into x->total, and then its result. After that, x->total is no longer needed. */
void fastpath_make_total(struct comm_state *b, const struct call_template *f, const void *in);
void fastpath_make_prefix(struct comm_state *b, const struct call_template *f, const void *in, void *out);

extern const struct comm_part fastpath_part;

#endif
