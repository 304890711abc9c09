/* The expected memory of a random program, for the one that makes it (program_make.c). */
#ifndef CONFORM_PROGRAM_MODEL_H
#define CONFORM_PROGRAM_MODEL_H

#include "conform/program_make.h"

/* A collective changes p->model. parts: the calls of all members, by rank of the communicator. */
void model_collective(struct make_program *p, const struct make_action *parts, int32_t count);
/* The same for the start of a plan: all its collectives, in order. */
void model_plan(struct make_program *p, const struct make_action *starts, int32_t count);

#endif
