/*
 * select: one table with a row for each algorithm, and the choice of a row for a call. The algorithms themselves are a file each in algo:
 * pure functions that fill a builder. An algorithm never blocks, polls, sends or allocates: it emits steps.
 */
#ifndef SELECT_SELECT_H
#define SELECT_SELECT_H

#include "model/cost.h"

enum { ALGO_ONCE = 1, ALGO_WHOLE = 2 };
enum algo_flags {
    ALGO_OVER_HOSTS = 1,   /* made of the ranks of several hosts; on one it serves who asks for it by name */
    ALGO_ORDER_BLOCKS = 2, /* a reduction that knows option order_block */
    ALGO_CLIMBS = 4        /* up a tree and down again, which the cost model must know */
};
enum { ALGO_BLOCKS_MAX = 48 /* of order_block: as many as there are view slots beside those of one */ };
struct algo_row {
    uint32_t collective;
    const char *name; /* the user's name for it, in option `algorithm` and in every trace */
    int32_t ranks_min, ranks_max;
    uint64_t once_bytes; /* ALGO_ONCE: the longest exposure is the whole block in one ONCE edge, so it must fit caps.once_max; ALGO_WHOLE:
                            all blocks of a rank are; 0: it streams */
    program_build_fn *build;
    const char *help; /* one line */
    uint32_t flags;   /* enum algo_flags */
};
extern const struct algo_row algo_table[];
extern const uint32_t algo_count;

/* A program that is one exchange, as data (exchange.c). */
enum algo_party { ALGO_NONE, ALGO_ALL, ALGO_ROOT, ALGO_OTHERS /* than the root */, ALGO_ABOVE /* the one that shows; rank 0 */ };
enum algo_exchange_flags {
    ALGO_UNCUT = 1,    /* all blocks are shown, of which each takes its own; otherwise one block */
    ALGO_REDUCES = 2,  /* what came is reduced in the order of ranks; otherwise it is copied .. */
    ALGO_SPREADS = 4,  /* .. to the block of whom it came from; otherwise to where `out` begins */
    ALGO_PAIRS = 8,    /* each is shown another block; where each is brief, or else a single chunk, that is one exchange too */
    ALGO_STREAMS = 16, /* of pairs: what is not brief goes by a stream */
    ALGO_TOTALS = 32 /* shown is the total of the aligned block of 2^l ranks that this one ends, to all of the next; l of 0 is its input */
};
struct algo_exchange {
    uint32_t collective;
    program_build_fn *build;
    uint8_t shows, looks, results; /* enum algo_party: who shows, who of the rest looks, who has a result */
    uint8_t own;                   /* whose own part goes into its result too */
    uint8_t flags;
};
const struct algo_exchange *algo_exchange_of(const struct algo_row *row); /* NULL: it is more than that */
bool algo_exchange_shown(const struct algo_exchange *exchange, int32_t from, int32_t to, int32_t root);
bool algo_exchange_makes(const struct algo_exchange *exchange, int32_t rank, int32_t root); /* has it a result? */
bool algo_exchange_own(const struct algo_exchange *exchange, int32_t rank, int32_t root);
/* Of totals: who shows that of the block on the left of this rank's at a level whose bit its number has. */
static inline int32_t algo_exchange_left(int32_t rank, uint32_t level)
{
    return (rank >> level << level) - 1;
}
/* Of pairs: the edge, and of which kind (enum wire_edge). */
uint32_t algo_exchange_edge(const struct algo_exchange *exchange, int32_t from, int32_t to, int32_t size, uint8_t *kind);
/* Where there are streams too: up to how many bytes a block goes by a ONCE edge; 0: none does. */
uint32_t algo_exchange_brief(const struct algo_exchange *exchange, int32_t size);

/* By what time is predicted: equal on every rank too, since rank 0's machine is sent at creation. */
struct algo_prices {
    const struct comm_env *env; /* memory for the programs that are priced; given back at once */
    const struct cost_machine *machine;
    const struct wire_caps *caps;
    bool measured;   /* the figures were read from a file; only then do they decide */
    bool *no_memory; /* set when that is why nothing was chosen; may be NULL */
};

/* What selection may look at: facts that are equal on every rank, and nothing else. */
struct algo_query {
    uint32_t collective;
    int32_t size;
    size_t block_bytes; /* of the accumulator, longest block */
    uint64_t once_max;
    uint64_t chunk_least;             /* the wire's: shorter pieces of a stream cost more than they overlap; 0: there is no such length */
    const char *forced;               /* option `algorithm`: "allreduce:slices,broadcast:pipeline", agreed at creation; NULL: none */
    const struct algo_prices *prices; /* NULL: the built-in thresholds decide, and nothing is said of time */
    int32_t root;
    int32_t order_block;               /* 0: T over all ranks */
    bool oversubscribed;               /* all of the world's ranks are on one host and share its CPUs */
    const struct program_hosts *hosts; /* NULL: one, or not known */
    int32_t host_ranks;                /* for prices: ranks of a host, where they are on several */
};
/* NULL: a forced name that does not exist or cannot serve this; why says so. `why` also says, on success, what was compared. */
const struct algo_row *algo_select(const struct algo_query *query, char *why, size_t why_bytes);
bool algo_serves(const struct algo_row *row, const struct algo_query *query);
/* And is worth a look where nobody asked for it by name: rows made of several hosts are not, on one. */
bool algo_considers(const struct algo_row *row, const struct algo_query *query);
/* The case that predicts such a call by this row, as the engine runs it. */
struct cost_case algo_case(const struct algo_row *row, const struct algo_query *query);
/* The engine makes exchanges by hand among so many ranks at most, and totals of so many bytes. */
enum { ALGO_EXPRESS_RANKS = 16, ALGO_EXPRESS_TOTAL_BYTES = 8192 };
/* Whether option algorithm names one for this collective. */
bool algo_is_forced(const char *forced, uint32_t collective);

#endif
