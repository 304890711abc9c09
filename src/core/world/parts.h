/* The table of all parts, and this room's own part. */
#ifndef WORLD_PARTS_H
#define WORLD_PARTS_H

#include "progress/part.h"

extern const struct comm_part subset_part;
extern const struct comm_part *const world_parts[]; /* ends with NULL */

#endif
