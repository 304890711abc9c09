/* How an operation is cut: every rank computes the same result. */
#include "program/shape.h"

#include "base/check.h"

enum { RUN_LINE_BYTES = 64, RUN_PAGE_BYTES = 4096, RUN_QUARTERS = 4, RUN_HALVES = 2 };
enum { RUN_PAGED_SLICE_BYTES = 1 << 16, RUN_PAIR = 2 };

static inline size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static size_t longest_block(const struct run_call *call, int32_t size)
{
    size_t longest = call->counts ? 0 : call->n;
    for (int32_t r = 0; call->counts && r < size; r++)
        longest = larger(longest, call->counts[r]);
    return longest;
}

static size_t chunk_bytes_max(const struct comm_program *program, const struct wire_caps *caps)
{
    uint64_t most = UINT64_MAX;
    for (uint32_t e = 0; e < program->edges; e++) {
        uint64_t cap = program->edge[e] & WIRE_TO_ALL ? caps->chunk_all : caps->chunk_private;
        if (!(program->edge[e] & WIRE_ONCE) && cap < most)
            most = cap;
    }
    return (size_t)most;
}

/* Elements per unit of whole cache lines, without splitting a grain. */
static size_t line_of(const struct run_element *element)
{
    size_t grain = larger(1, element->grain);
    return grain * larger(1, RUN_LINE_BYTES / larger(1, element->raw * grain));
}

/* Whether slices and their chunks are multiples of a page instead of a line, except at the end of the last one. With
 * two ranks, one may store its results in the other's memory, but only in whole pages. Only that other rank knows
 * whether its buffer is aligned to pages, but both can cut at whole pages from the beginning of the buffer. Only for
 * long slices, because one of them becomes shorter by up to two pages. */
static bool is_paged(const struct comm_program *program, size_t longest, int32_t size, const struct run_element *element)
{
    size_t whole = larger(1, element->grain) * larger(1, element->raw);

    return program->slices == RUN_PAIR && size == RUN_PAIR && RUN_PAGE_BYTES % whole == 0 &&
           longest * larger(1, element->raw) >= (size_t)RUN_PAIR * RUN_PAGED_SLICE_BYTES;
}

/* Ragged: only the two ends of an edge know a block's length, so chunks are as long as possible. */
struct shape shape_of(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel, int32_t size,
                      const struct run_element *element)
{
    size_t longest = longest_block(call, size), line = 1;
    struct shape shape = {.longest = longest, .slice = longest, .chunk = longest, .chunks = 1};
    size_t sliced = program->swaps ? shape_common(program, call, element->raw) : longest;
    bool paged = is_paged(program, sliced, size, element);
    if (program->slices || program->chunk_unit)
        line = paged ? RUN_PAGE_BYTES / larger(1, element->raw) : line_of(element);
    if (program->slices)
        shape.slice = round_up((sliced + program->slices - 1) / program->slices, line);
    if (program->chunk_unit) {
        size_t width = larger(1, program->wide ? element->partial : element->raw),
               unit = program->chunk_unit == UNIT_SLICE && sliced ? shape.slice : longest;
        size_t most = larger(1, chunk_bytes_max(program, &channel->caps) / width),
               least = larger(1, larger(PROGRAM_CHUNK_MIN_BYTES, channel->caps.chunk_least) / width);
        most = most >= line ? most - most % line : most;
        /* Between two ranks in shared memory each additional piece costs each rank a look, and pieces that do not fill
         * their slots lie apart. A network works at the same time as the ranks. */
        bool pair = size == RUN_PAIR && !channel->caps.chunk_least;
        size_t pieces = pair && unit <= most ? 1 : pair || paged ? RUN_HALVES : RUN_QUARTERS;
        shape.chunk = program->ragged ? most : smaller(most, larger(round_up((unit + pieces - 1) / pieces, line), round_up(least, line)));
        BASE_ASSERT(shape.chunk != 0);
        shape.chunks = unit ? (uint32_t)((unit + shape.chunk - 1) / shape.chunk) : 1;
    }
    shape.scratch_item = round_up(shape.chunk * element->partial, RUN_LINE_BYTES);
    return shape;
}

size_t run_scratch_bytes_as(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel,
                            int32_t size, const struct run_element *element)
{
    return program->scratch ? program->scratch * shape_of(program, call, channel, size, element).scratch_item : 0;
}
