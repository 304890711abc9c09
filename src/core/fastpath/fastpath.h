/*
 * The fast path: what its files share; docs/internals/fastpath.md shows the way through them. A call template holds all of a call but its
 * buffers. It is made once (template.c), so that a repeated call only has to look at its buffers before it stores its bytes.
 */
#ifndef FASTPATH_FASTPATH_H
#define FASTPATH_FASTPATH_H

#include "comm/state.h"
#include "fastpath/issue.h"

#include "select/select.h"

enum { FASTPATH_RANKS = ALGO_EXPRESS_RANKS, FASTPATH_TEMPLATES = 4, FASTPATH_TOTAL_BYTES = ALGO_EXPRESS_TOTAL_BYTES };
enum { FASTPATH_COOKIE = 0x40000000 /* in place of a window's place: above every one, below MESSAGE_COOKIE */ };

struct comm_state;
struct engine;
struct entry;

/* A block of `in` or of `out`, for one peer or of one. */
struct fastpath_span {
    size_t at, bytes;
    uint32_t mark; /* in its fingerprint */
    uint16_t edge;
    uint8_t kind; /* of the edge */
    bool few;     /* goes by the wire's show and see */
};

enum { FASTPATH_VECTORS = 4 };
struct call_template {
    struct call_shape call;
    size_t reads, writes;  /* bytes from the beginning of `in` and of `out`; 0: this rank does not use it */
    size_t shown;          /* bytes from the beginning of `in` */
    const uint16_t *peers; /* to whom */
    uint32_t npeers;
    uint8_t shows;                    /* how many spans: one for all of them, or one for each */
    bool pairs;                       /* the latter; and what comes lands at once where it belongs */
    const struct fastpath_span *only; /* pairs: the one that is shown, where it is one, by the wire's show; NULL: it is not so */
    bool few;                         /* all that is shown and looked at goes by the wire's show and see */
    bool straight;                    /* one span for all; both shown and looked at, read and written */
    size_t dirties;                   /* bytes of the only peer's that are given back dirty; 0: none */
    bool totals;                      /* totals.c */
    bool later;                       /* so: what is shown is made of what comes first */
    uint32_t looked;                  /* ranks whose bytes it needs, a bit each */
    uint32_t fetched;                 /* of them, those whose lines are asked for ahead */
    uint32_t first;                   /* of them, those whose bytes come into what is shown */
    data_reduce_fn *reduce;           /* NULL: what came is copied */
    struct data_reduce sum;           /* but for its `to` */
    struct engine_call as;            /* but for its buffers and vectors */
    uint32_t ways;                    /* reduced: of ranks 0 .. ways - 1 */
    uint32_t copied;                  /* copied: of these ranks, a bit each */
    size_t elements;                  /* of the result of a reduction */
    size_t at;                        /* where in what each shows this rank's part begins */
    uint64_t last;                    /* the newest ticket that went so */
    const char *algorithm;
    uint64_t bytes, bytes_out, bytes_in;                               /* as records and statistics say */
    size_t came[FASTPATH_RANKS];                                       /* bytes that each shows */
    size_t to[FASTPATH_RANKS];                                         /* where in `out` a copy of each goes, in bytes .. */
    size_t length[FASTPATH_RANKS];                                     /* .. and how long it is */
    struct fastpath_span gives[FASTPATH_RANKS], takes[FASTPATH_RANKS]; /* pairs: by rank */
    size_t vector[FASTPATH_VECTORS][FASTPATH_RANKS];                   /* counts, displs, in_counts, in_displs */
    bool has_counts[2];                                                /* counts, in_counts */
    bool dense[2];                                                     /* displs and in_displs are what they are where none are given */
    bool mutual;   /* everybody waits for everybody: what one publishes at its end, its next call will */
    bool in_place; /* at this rank `in` in place is where `out` begins */
    uint16_t peer[FASTPATH_RANKS];
};

/* Those under way so are the oldest in the queue, up to `last`; the oldest of them is looked at, and its lines that came are kept. */
struct fastpath {
    uint64_t last;
    uint64_t waits;                 /* the oldest that has not shown its bytes, for want of room; 0: none. Neither have those behind it */
    uint64_t fetched;               /* lines up to this one's were asked for */
    uint64_t straight;              /* the last one of few bytes that went by the shortest way, alone; 0: none */
    uint64_t missed;                /* the last one whose bytes were looked for before they were there */
    uint32_t seen;                  /* members, a bit each; this one: its total is made */
    uint32_t lacks;                 /* whose bytes the last look that failed was for */
    uint32_t next;                  /* the template that is replaced next */
    int64_t looked_ns;              /* when a wait under way looked last and found nothing; 0: it did not, or there is none */
    bool is_plain;                  /* in a wait under way: data_float_is_plain */
    bool owes;                      /* something was published and not made known to sleepers */
    struct call_template *template; /* the last one */
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

/* The template of such a call; call.fits says whether the call takes the fast path. NULL: all templates are in use. */
struct call_template *call_template_of(struct comm_state *b, const struct engine_call *call);

/* Whether a call with these vectors has the layout of this template, which has counts. */
bool fastpath_same_layout(const struct comm_state *b, const struct call_template *f, const struct engine_vectors *v);
/* Lines that are looked for together travel side by side, not each after the one before. */
void fastpath_fetch(struct comm_state *b, const struct call_template *f, uint32_t seq);

bool fastpath_issue(struct comm_state *b, const struct engine_call *call, struct comm_request *req);
/* The same for a call like the one before, if its template is straight. */
bool fastpath_again(struct comm_state *b, const struct call_shape *as, const void *in, void *out, struct comm_request *req);
bool fastpath_poll(struct comm_state *b); /* true: something ended */
bool fastpath_wait(struct comm_request request);
bool fastpath_wait_in_turn(struct engine *e, struct comm_request request); /* oversubscribed ranks; e is held */
void fastpath_show_waiting(struct comm_state *b);                          /* those that have not shown their bytes yet */
/* Is all there that the oldest one needs? What came is kept, till its result is made of it. */
enum wire_result fastpath_come(struct comm_state *b, const struct call_template *f, struct entry *e, const void *in, void *out,
                               uint32_t seq, uint32_t chain);
void fastpath_make_result(struct comm_state *b, struct call_template *f, const void *in, void *out);
/* Of what has come: what this rank shows, into x->total; and its result, for which x->total is needed afterwards no more. */
void fastpath_make_total(struct comm_state *b, const struct call_template *f, const void *in);
void fastpath_make_prefix(struct comm_state *b, const struct call_template *f, const void *in, void *out);

extern const struct comm_part fastpath_part;

#endif
