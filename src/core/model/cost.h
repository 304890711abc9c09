/*
 * cost: predicts how long a collective takes, from its program and a few parameters of the machine, without moving a
 * byte.
 *
 * There are two forms. The exact one (cost_run) runs the programs of all ranks together in virtual time. A rank is one
 * thread that steps its lanes as the interpreter does. An exposure is seen one latency later. A stream's place is used
 * again when its readers have released it. Ranks of one host share its CPUs and its network card. The quick form
 * (cost_estimate) adds up one rank's program and takes no memory.
 *
 * The parameters are those of LogGP (Alexandrov, Ionescu, Schauser, Scheiman, "LogGP: incorporating long messages into
 * the LogP model", 1995) for each class of link: latency L, overhead o of each side, gap g, time per byte G. In
 * addition there is a time per step, per call, and per byte of a move and of a reduction, which differ. All arithmetic
 * is in whole picoseconds, so that every rank computes the same on any machine: choices depend on it.
 */
#ifndef MODEL_COST_H
#define MODEL_COST_H

#include "program/program.h"

/* The sizes, of all buffers of a rank in one call, at which the times per byte are given. Between them, times are
 * interpolated over the logarithm; outside, they are constant. */
enum { COST_KNOTS = 4, COST_KNOT_FIRST = 32768, COST_KNOT_FACTOR = 8 };

/* Times in ps, times per byte in fs; a file has them in ns and ps (cost_machine.c has the names and their meaning). */
struct cost_machine {
    uint64_t cpus; /* of a host */
    uint64_t call, fastpath, step, wake, turn, crowd;
    uint64_t reduce_call, fold;
    uint64_t shm_latency, shm_expose, shm_view, shm_place, shm_read, shm_dirtied;
    uint64_t net_latency, net_overhead, net_gap, net_byte;
    uint64_t copy[COST_KNOTS], land[COST_KNOTS], reduce[COST_KNOTS];
};

/* ------------------------------------------------------------------------------------------------------------ cost_machine.c */
/* Rows of the file: key, unit, field, meaning. */
struct cost_figure {
    const char *key, *unit;
    uint32_t offset;
    const char *help;
};
extern const struct cost_figure cost_figures[];
extern const uint32_t cost_figure_count;
/* Rounded parameters of the machine on which the library was developed; used if nothing was measured. */
extern const struct cost_machine cost_machine_default;
enum { COST_MACHINE_VERSION = 2, COST_MACHINE_BYTES_MAX = 16384 };
/* Parses the text of a machine file of this many bytes. False: text names the line and what was expected there;
 * *machine is unchanged. */
bool cost_machine_parse(const char *file, size_t bytes, struct cost_machine *machine, char *text, size_t text_bytes);
/* Returns the length that the whole text has. */
size_t cost_machine_print(const struct cost_machine *machine, char *to, size_t room);

/* ------------------------------------------------------------------------------------------------------------ the case */
struct cost_case {
    const struct cost_machine *machine;
    const struct wire_caps *caps;
    program_build_fn *build;
    uint32_t collective;
    int32_t size, root;
    size_t n, raw, partial;            /* n: elements of a block; raw, partial: bytes of an element, and of its accumulator */
    int32_t host_ranks;                /* ranks per host, in rank order; 0: all ranks are on one host */
    const struct program_hosts *hosts; /* for the builder; NULL: unknown */
    uint32_t calls;                    /* calls in a row, each issued as soon as the rank's last one has ended; 0: one */
    bool fastpath;                     /* uses the fast path, not the interpreter */
    bool climbs;                       /* goes up a binomial tree and down again, so its depth is not visible in one rank's program */
};

struct cost_result {
    uint64_t ps;     /* until the last rank has ended its last call */
    uint64_t each;   /* of one call in a row of them: the average over the later half, at most the last 16 */
    uint64_t events; /* exposures, arrivals, and started calls */
    uint64_t steps;
    uint64_t program_bytes, table_bytes; /* for all ranks together: the programs, and the tables of the simulation */
};
/* COMM_ERR_MEMORY; COMM_ERR_UNSUPPORTED: too many places for this form (COST_PLACES_MAX); COMM_ERR_CORRUPT: the program
 * never ends. */
enum { COST_PLACES_MAX = 1 << 25 };
enum comm_result cost_run(const struct comm_env *env, const struct cost_case *what, struct cost_result *result);

/* The time in ps of one call in a row of them, from one rank's program. The whole takes the maximum over the root and
 * another rank. */
uint64_t cost_estimate(const struct cost_case *what, const struct comm_program *program, int32_t rank);
/* Builds those programs, adds them up, and frees them. COMM_ERR_MEMORY. */
enum comm_result cost_estimate_all(const struct comm_env *env, const struct cost_case *what, uint64_t *ps);

#endif
