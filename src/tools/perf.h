/* One run of comm-perf, and the table of what it can call. */
#ifndef TOOLS_PERF_H
#define TOOLS_PERF_H

#include "tools/perf_data.h"

enum { PERF_DEPTH = 16, PERF_REQUESTS = 2 };
enum perf_format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON /* an object a line */ };
enum perf_mode { MODE_REQUEST, MODE_ISOLATED, MODE_PIPELINED, MODE_PLAN, MODE_OVERLAP };

struct perf {
    /* what was asked for */
    const struct perf_collective *collective;
    const char *sides; /* of a comparison, as they were written; NULL: it is none, and they are nobody's */
    const char *backend, *mode_name, *op_name;
    const struct perf_type *type;
    comm_op op;
    size_t min, max, factor;
    enum perf_mode mode;
    bool touch, check;
    double warmed;    /* seconds of calls before the first size */
    bool comm_memory; /* buffers of comm_mem_alloc */
    enum perf_format format;
    /* where it runs */
    struct comm_communicator *comm;
    int32_t rank, ranks;
    char backend_name[16];
    /* one size of it */
    size_t n, block; /* elements that this rank gives; n / ranks, where the collective takes blocks */
    size_t in_bytes, out_bytes, slots;
    unsigned char *in, *out;
    size_t *counts; /* of the v forms */
    struct comm_plan *plan[PERF_DEPTH];
    char algorithm[32];
};

struct perf_buffers {
    unsigned char *in, *out;
};
/* As the collective wants it; c is the world, or a recorder. */
typedef enum comm_result perf_start_fn(const struct perf *perf, struct comm_communicator *c, struct perf_buffers at,
                                       struct comm_request *req);
typedef bool perf_check_fn(const struct perf *perf, struct perf_buffers at, size_t *bad);
enum perf_out { OUT_SAME, OUT_ALL, OUT_BLOCK /* n is a multiple of ranks */ };
struct perf_collective {
    const char *name;
    perf_start_fn *start; /* req: PERF_REQUESTS of them, those not needed left alone; NULL while recording */
    perf_check_fn *check;
    enum perf_out out;
    bool sized;   /* false: one row, whatever the sizes */
    bool is_work; /* else messages: two requests, and small by default */
    bool fitted;  /* --fit-try measures its algorithms */
};

const struct perf_collective *perf_collective_find(const char *name); /* NULL: none */
const char *perf_collective_names(void);

/* perf_arguments.c: exits where it is not understood. */
void perf_parse(struct perf *perf, int argc, char **argv);

/* comm_perf.c: what both ways of measuring do. */
void perf_must(const struct perf *perf, enum comm_result result, const char *what);
double perf_now(void);
void perf_barrier(const struct perf *perf);
double perf_slowest(const struct perf *perf, double mine);
void *perf_take(const struct perf *perf, size_t bytes);
void *perf_take_buffers(const struct perf *perf, size_t bytes);
void perf_give_buffers(const struct perf *perf, void *memory);
void perf_set_size(struct perf *perf, size_t bytes); /* all that follows from it, but no buffers yet */
struct perf_buffers perf_buffers_at(const struct perf *perf, size_t call);
void perf_start(const struct perf *perf, size_t call, struct comm_request *req);
void perf_check(const struct perf *perf, size_t call, size_t bytes);
void perf_ask_algorithm(struct perf *perf, struct comm_request req);

/* perf_compare.c: several ways to the same, side by side. */
bool perf_is_comparison(const char *text);
/* asked: what was asked for and the world; sizes from min to max. Exits where a side is none. */
void perf_compare(const struct perf *asked);
void perf_compare_check(const char *sides);

#endif
