/*
 * select: one table with a row for each algorithm, and the choice of a row for a call. The algorithms are pure
 * functions in algo, one file each, that fill a builder. An algorithm never blocks, polls, sends or allocates: it emits
 * steps.
 */
#ifndef SELECT_SELECT_H
#define SELECT_SELECT_H

#include "model/cost.h"

enum { ALGO_ONCE = 1, ALGO_WHOLE = 2 };
enum algo_flags {
    ALGO_OVER_HOSTS = 1,   /* for ranks on several hosts; on one host used only if requested by name */
    ALGO_ORDER_BLOCKS = 2, /* a reduction that supports option order_block */
    ALGO_CLIMBS = 4        /* goes up a tree and down again, which the cost model must know */
};
enum { ALGO_BLOCKS_MAX = 48 /* for order_block: as many as there are view slots in addition to those of one block */ };
struct algo_row {
    uint32_t collective;
    const char *name; /* the user's name for it, in option `algorithm` and in traces */
    int32_t ranks_min, ranks_max;
    uint64_t once_bytes; /* ALGO_ONCE: the longest exposure is a whole block on one ONCE edge, so it must fit caps.once_max; ALGO_WHOLE: all
                          * blocks of a rank are one exposure; 0: it streams */
    program_build_fn *build;
    const char *help; /* one line */
    uint32_t flags;   /* enum algo_flags */
};
extern const struct algo_row algo_table[];
extern const uint32_t algo_count;

/* A program that is a single exchange, as data (exchange.c). OTHERS: all ranks except the root. ABOVE: the ranks above
 * the exposer; for a result, all except rank 0. */
enum algo_party { ALGO_NONE, ALGO_ALL, ALGO_ROOT, ALGO_OTHERS, ALGO_ABOVE };
enum algo_exchange_flags {
    ALGO_UNCUT = 1,    /* all blocks are exposed, and each reader takes its own; otherwise one block is */
    ALGO_REDUCES = 2,  /* received data is reduced in rank order; otherwise it is copied .. */
    ALGO_SPREADS = 4,  /* .. to the sender's block; otherwise to the beginning of `out` */
    ALGO_PAIRS = 8,    /* a different block is exposed to each reader; if each is brief, or else a single chunk, that is also a single
                        * exchange */
    ALGO_STREAMS = 16, /* for pairs: blocks that are not brief go by a stream */
    ALGO_TOTALS = 32 /* exposed is the total of the aligned block of 2^l ranks that ends with this rank, to all ranks of the next block; for
                      * l = 0 it is the rank's input */
};
struct algo_exchange {
    uint32_t collective;
    program_build_fn *build;
    uint8_t shows, looks, results; /* enum algo_party: which ranks expose, which of the others view, which have a result */
    uint8_t own;                   /* which ranks' own part goes into their result too */
    uint8_t flags;
};
const struct algo_exchange *algo_exchange_of(const struct algo_row *row); /* NULL: it is not a single exchange */
bool algo_exchange_shown(const struct algo_exchange *exchange, int32_t from, int32_t to, int32_t root);
bool algo_exchange_makes(const struct algo_exchange *exchange, int32_t rank, int32_t root); /* whether this rank has a result */
bool algo_exchange_own(const struct algo_exchange *exchange, int32_t rank, int32_t root);
/* For totals: the rank that exposes the total of the block on the left of this rank's, at a level whose bit is set in
 * this rank's number. */
static inline int32_t algo_exchange_left(int32_t rank, uint32_t level)
{
    return (rank >> level << level) - 1;
}
/* For pairs: the edge and its kind (enum wire_edge). */
uint32_t algo_exchange_edge(const struct algo_exchange *exchange, int32_t from, int32_t to, int32_t size, uint8_t *kind);
/* If there are streams too: the longest block that goes by a ONCE edge; 0: none. */
uint32_t algo_exchange_brief(const struct algo_exchange *exchange, int32_t size);

/* For choosing by predicted time. Equal on every rank too, because rank 0's machine is sent at creation. */
struct algo_prices {
    const struct comm_env *env; /* memory for the programs that are priced, which is freed at once */
    const struct cost_machine *machine;
    const struct wire_caps *caps;
    bool measured;   /* the parameters were read from a file; only then do they decide */
    bool *no_memory; /* set if nothing was chosen for lack of memory; may be NULL */
};

/* What selection may depend on: only facts that are equal on every rank. */
struct algo_query {
    uint32_t collective;
    int32_t size;
    size_t block_bytes; /* in the accumulator type, of the longest block */
    uint64_t once_max;
    uint64_t chunk_least;             /* the wire's: a stream in shorter pieces costs more than their overlap gains; 0: no such length */
    const char *forced;               /* option `algorithm`: "allreduce:slices,broadcast:pipeline", agreed at creation; NULL: none */
    const struct algo_prices *prices; /* NULL: the built-in thresholds decide, without predictions */
    int32_t root;
    int32_t order_block;               /* 0: T over all ranks */
    bool oversubscribed;               /* all of the world's ranks are on one host and share its CPUs */
    const struct program_hosts *hosts; /* NULL: one host, or unknown */
    int32_t host_ranks;                /* for prices: ranks per host, if there are several hosts */
};
/* NULL: a forced name does not exist or cannot serve this call; why says so. On success `why` says what was compared. */
const struct algo_row *algo_select(const struct algo_query *query, char *why, size_t why_bytes);
bool algo_serves(const struct algo_row *row, const struct algo_query *query);
/* Also worth considering without a request by name: on one host, rows over hosts are not. */
bool algo_considers(const struct algo_row *row, const struct algo_query *query);
/* The case that predicts such a call by this row, as the engine runs it. */
struct cost_case algo_case(const struct algo_row *row, const struct algo_query *query);
/* The engine runs exchanges without the interpreter up to this many ranks, and totals up to this many bytes. */
enum { ALGO_EXPRESS_RANKS = 16, ALGO_EXPRESS_TOTAL_BYTES = 8192 };
/* Whether option algorithm has a name for this collective. */
bool algo_is_forced(const char *forced, uint32_t collective);

#endif
