/*
 * cost: how long a collective takes, computed from its program's data and a few figures of the machine, with no byte moved.
 *
 * Two forms. The exact one (cost_run) runs the programs of all ranks together in virtual time: a rank is one thread that steps its lanes as
 * the interpreter does, an exposure is seen a latency later, a stream's place is used again when its readers gave it back, ranks of one
 * host share its CPUs and its network card. The quick one (cost_estimate) adds up one rank's program and takes no memory.
 *
 * The figures are LogGP's (Alexandrov, Ionescu, Schauser, Scheiman, "LogGP: incorporating long messages into the LogP model", 1995), per
 * class of link: latency L, overhead o of each side, gap g, time per byte G; with a time per step, per call, and per byte of a move and of
 * a reduction, which differ. All arithmetic is in whole picoseconds, so that every rank computes the same on any machine: choices follow
 * from it.
 */
#ifndef MODEL_COST_H
#define MODEL_COST_H

#include "program/program.h"

/* Bytes that a rank's buffers of one call have together, at which the times per byte are known: in between they are interpolated over the
 * logarithm, beyond they stay. */
enum { COST_KNOTS = 4, COST_KNOT_FIRST = 32768, COST_KNOT_FACTOR = 8 };

/* Times in ps, times per byte in fs; a file writes them in ns and ps (machine.c has the names and what they mean). */
struct cost_machine {
    uint64_t cpus; /* of a host */
    uint64_t call, fastpath, step, wake, turn, crowd;
    uint64_t reduce_call, fold;
    uint64_t shm_latency, shm_expose, shm_view, shm_place;
    uint64_t net_latency, net_overhead, net_gap, net_byte;
    uint64_t copy[COST_KNOTS], land[COST_KNOTS], reduce[COST_KNOTS];
};

/* ------------------------------------------------------------------------------------------------------------ machine.c */
/* Rows of the file: key, unit, which field, meaning. */
struct cost_figure {
    const char *key, *unit;
    uint32_t offset;
    const char *help;
};
extern const struct cost_figure cost_figures[];
extern const uint32_t cost_figure_count;
/* Figures of the machine that the library was written on, rounded: what is used where nothing was measured. */
extern const struct cost_machine cost_machine_default;
enum { COST_MACHINE_VERSION = 1, COST_MACHINE_BYTES_MAX = 16384 };
/* Text of a machine file, `bytes` of it. False: text says the line and what was expected there; *machine is unchanged. */
bool cost_machine_parse(const char *file, size_t bytes, struct cost_machine *machine, char *text, size_t text_bytes);
/* The length that the whole text has. */
size_t cost_machine_print(const struct cost_machine *machine, char *to, size_t room);

/* ------------------------------------------------------------------------------------------------------------ what is priced */
struct cost_case {
    const struct cost_machine *machine;
    const struct wire_caps *caps;
    program_build_fn *build;
    uint32_t collective;
    int32_t size, root;
    size_t n, raw, partial;            /* elements of a block; bytes of one, and of one in its accumulator */
    int32_t host_ranks;                /* ranks of a host, in rank order; 0: all are on one */
    const struct program_hosts *hosts; /* for the builder; NULL: not said */
    uint32_t calls;                    /* one behind the other, each as soon as the rank's last ended; 0: one */
    bool fastpath;                     /* served by hand, not by the interpreter */
    bool climbs;                       /* up a binomial tree and down again: a depth that no rank's own program shows */
};

struct cost_result {
    uint64_t ps;     /* until the last rank ended its last call */
    uint64_t each;   /* of one call, in a row of them: over the later half, or the last 16 */
    uint64_t events; /* exposures, arrivals, and calls begun */
    uint64_t steps;
    uint64_t program_bytes, table_bytes; /* of all ranks together: the programs, and what stands beside them here */
};
/* COMM_ERR_MEMORY; COMM_ERR_UNSUPPORTED: too many places for this form (COST_PLACES_MAX); COMM_ERR_CORRUPT: the program never ends. */
enum { COST_PLACES_MAX = 1 << 25 };
enum comm_result cost_run(const struct comm_env *env, const struct cost_case *what, struct cost_result *result);

/* Of one rank's program, ps of a call in a row of them. The whole is the most over a root and another rank. */
uint64_t cost_estimate(const struct cost_case *what, const struct comm_program *program, int32_t rank);
/* Builds those programs, adds them up, gives them back. COMM_ERR_MEMORY. */
enum comm_result cost_estimate_all(const struct comm_env *env, const struct cost_case *what, uint64_t *ps);

#endif
