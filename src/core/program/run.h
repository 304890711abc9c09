/* run, seen from the verifier: the same interpreter over elements and a kernel of its own. Private to this room. */
#ifndef PROGRAM_RUN_H
#define PROGRAM_RUN_H

#include "program/program.h"

/* How long one element is, by itself and in its accumulator. */
struct run_widths {
    size_t raw, partial;
};

void run_start_as(struct run *run, const struct comm_program *program, struct run_widths widths, data_reduce_fn *reduce);
size_t run_scratch_bytes_as(const struct comm_program *program, const struct run_call *call, const struct wire_channel *channel,
                            int32_t size, struct run_widths widths);

#endif
