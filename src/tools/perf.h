/* One run of comm-perf, and the table of collectives that it can call. */
#ifndef TOOLS_PERF_H
#define TOOLS_PERF_H

#include "tools/perf_data.h"

enum { PERF_DEPTH = 16, PERF_REQUESTS = 2 };
enum perf_format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON /* one object per line */ };
enum perf_mode { MODE_REQUEST, MODE_ISOLATED, MODE_ALIGNED, MODE_PIPELINED, MODE_PLAN, MODE_OVERLAP };
enum perf_memory { PERF_MALLOC, PERF_COMM, PERF_DEVICE };

struct perf {
    /* the command line */
    const struct perf_collective *collective;
    const char *sides; /* the text of a comparison; NULL: this is not one */
    const char *backend, *mode_name, *op_name;
    const struct perf_type *type;
    comm_op op;
    size_t min, max, factor;
    enum perf_mode mode;
    bool touch, check;
    double warmed;           /* seconds of warm-up calls so far */
    enum perf_memory memory; /* of the buffers */
    enum perf_format format;
    /* the world */
    struct comm_communicator *comm;
    int32_t rank, ranks;
    char backend_name[16];
    /* the current size */
    size_t n, block; /* elements that this rank contributes; n / ranks, if the collective works on blocks */
    size_t in_bytes, out_bytes, slots;
    unsigned char *in, *out;
    size_t *counts; /* for the v forms */
    struct comm_plan *plan[PERF_DEPTH];
    char algorithm[32];
};

struct perf_buffers {
    unsigned char *in, *out;
};
/* Calls the collective; c is the world, or a recorder. */
typedef enum comm_result perf_start_fn(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                       struct comm_request *req);
typedef bool perf_check_fn(const struct perf *perf, struct perf_buffers at, size_t *bad);
enum perf_out { OUT_SAME, OUT_ALL, OUT_BLOCK /* n is a multiple of ranks */ };
struct perf_collective {
    const char *name;
    perf_start_fn *start; /* req has room for PERF_REQUESTS; NULL while recording */
    perf_check_fn *check;
    enum perf_out out;
    bool sized;   /* false: one row, whatever the sizes */
    bool is_work; /* false: messages, with two requests and small default sizes */
    bool fitted;  /* --fit-try measures its algorithms */
};

const struct perf_collective *perf_collective_find(const char *name); /* NULL: none */
const char *perf_collective_names(void);

/* perf_arguments.c: exits if the command line is invalid. */
void perf_parse(struct perf *perf, int argc, char **argv);

/* comm_perf.c: shared by both ways of measuring. */
void perf_must(const struct perf *perf, enum comm_result result, const char *what);
int perf_end(int status); /* the exit status: 1 with a message if the output could not be written */
double perf_now(void);
void perf_barrier(const struct perf *perf);
double perf_slowest(const struct perf *perf, double mine);
void perf_set_size(struct perf *perf, size_t bytes); /* sets all that depends on the size, except buffers */
struct perf_buffers perf_buffers_at(const struct perf *perf, size_t call);
void perf_start(const struct perf *perf, size_t call, struct comm_request *req);
void perf_check(const struct perf *perf, size_t call, size_t bytes);
void perf_ask_algorithm(struct perf *perf, struct comm_request req);

/* perf_memory.c: the memory of the buffers. */
const char *perf_memory_name(enum perf_memory memory);
void perf_load_memory(const struct perf *perf); /* before the world: it looks for device memory only where there is a driver by then */
void perf_open_memory(const struct perf *perf, const struct comm_info *info); /* once, with the world */
void *perf_take(const struct perf *perf, size_t bytes);                       /* for the program's own use */
void *perf_take_buffers(const struct perf *perf, size_t bytes);
void perf_give_buffers(const struct perf *perf, void *memory);
void perf_fill_buffer(const struct perf *perf, void *to, size_t n); /* with this rank's contribution */
void perf_zero_buffer(const struct perf *perf, void *to, size_t bytes);
bool perf_buffers_hold(const struct perf *perf, struct perf_buffers at, size_t *bad); /* what the collective gives */

/* perf_compare.c: compares several ways to get the same result. */
bool perf_is_comparison(const char *text);
/* asked: the command line and the world. Compares sizes from min to max. Exits if a side is invalid. */
void perf_compare(const struct perf *asked);
void perf_compare_check(const char *sides);

#endif
