/* What both forms of cost share: rates for a call's size, lengths of refs, links. Private to this room. */
#ifndef MODEL_COST_RATE_H
#define MODEL_COST_RATE_H

#include "model/cost.h"

/* A line, a place and a stream are written again only when all ranks have ended the call this many calls before. */
enum { COST_LINES_AHEAD = 128, COST_ONCE_AHEAD = 8, COST_STREAM_AHEAD = 2 };

struct cost_rate {
    const struct cost_machine *machine;
    struct run_cut cut;
    uint64_t copy, land, reduce; /* fs per byte, at this call's footprint */
    size_t n, raw, partial;
    uint64_t inline_max;
    int32_t size, host_ranks;
    const struct program_hosts *hosts; /* the placement of ranks; NULL: host_ranks consecutive ranks per host */
    uint64_t turns;                    /* ranks per CPU */
    uint64_t call;                     /* ps */
};
void cost_rate_of(struct cost_rate *rate, const struct cost_case *what, const struct comm_program *program);

static inline uint64_t cost_of_bytes(uint64_t fs, uint64_t bytes)
{
    return fs * bytes / 1000;
}

static inline uint32_t cost_host(const struct cost_rate *rate, uint32_t rank)
{
    if (!rate->host_ranks)
        return 0;
    return rate->hosts ? (uint32_t)rate->hosts->of[rank] : rank / (uint32_t)rate->host_ranks;
}

static inline bool cost_remote(const struct cost_rate *rate, uint32_t a, uint32_t b)
{
    return cost_host(rate, a) != cost_host(rate, b);
}

static inline size_t cost_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Blocks of equal length that are swapped are all slices; of others there are none. */
static inline void cost_cut_brief(const struct cost_rate *rate, const struct comm_program *p, const struct comm_step *s, uint8_t unit,
                                  size_t *from, size_t *to)
{
    size_t bytes = rate->n * rate->raw;
    bool swapped = p->swaps && bytes > p->swaps, brief = !swapped && bytes <= p->brief;

    if (unit == UNIT_BRIEF ? !brief : unit == UNIT_SLICE ? !swapped : s->flags & STEP_CHUNKED && (brief || swapped))
        *to = *from;
}

/* As the interpreter resolves a ref (place_of), without an address; for blocks of equal length. */
static inline size_t cost_ref_bytes(const struct cost_rate *rate, const struct comm_program *p, const struct comm_step *s,
                                    const struct comm_ref *ref, uint32_t i, uint32_t k, uint32_t j)
{
    size_t width = ref->unit & UNIT_PARTIAL ? rate->partial : rate->raw, from = 0, to = rate->n;
    int32_t x = ref->buf == BUF_SCRATCH ? (int32_t)ref->count : (int32_t)ref->first + ref->step * (int32_t)j + ref->outer * (int32_t)i;

    if ((ref->unit & ~UNIT_PARTIAL) == UNIT_WHOLE)
        to *= (size_t)rate->size;
    if ((ref->unit & ~UNIT_PARTIAL) == UNIT_SLICE) {
        int32_t slices = p->slices;
        x = x % slices < 0 ? x % slices + slices : x % slices;
        from = cost_smaller((size_t)x * rate->cut.slice, to);
        to = cost_smaller(from + rate->cut.slice, to);
    }
    if (p->brief)
        cost_cut_brief(rate, p, s, ref->unit, &from, &to);
    if (s->flags & STEP_CHUNKED) {
        from = cost_smaller(from + k * rate->cut.chunk, to);
        to = cost_smaller(from + rate->cut.chunk, to);
    }
    return (to - from) * width;
}

/* Whether the interpreter leaves out the loop that this step begins. */
static inline bool cost_leaves_out(const struct cost_rate *rate, const struct comm_program *p, const struct comm_step *s)
{
    return s->code == STEP_LOOP && s->flags & STEP_CHUNKED && p->brief && !cost_ref_bytes(rate, p, s, &s->src, 0, 0, 0);
}

/* The cost of putting bytes where readers find them; built: they are there already. With a dst they are stored twice. */
static inline uint64_t cost_expose(const struct cost_rate *rate, const struct comm_step *s, size_t bytes, bool built)
{
    const struct cost_machine *m = rate->machine;
    return m->shm_expose + (bytes > rate->inline_max ? m->shm_place + (built ? 0 : cost_of_bytes(rate->copy, bytes)) : 0) +
           (s->dst.buf ? cost_of_bytes(rate->copy / 2, bytes) : 0);
}

static inline uint64_t cost_reduce(const struct cost_rate *rate, size_t bytes, uint32_t ways, bool tee)
{
    const struct cost_machine *m = rate->machine;
    return m->reduce_call + cost_of_bytes(rate->reduce + (ways - 1) * m->fold + (tee ? rate->copy / 2 : 0), bytes);
}

#endif
