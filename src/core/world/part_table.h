/* The table of all parts, and this room's own parts. */
#ifndef WORLD_PART_TABLE_H
#define WORLD_PART_TABLE_H

#include "progress/part.h"

extern const struct comm_part subset_part, create_part;
extern const struct comm_part *const world_parts[]; /* ends with NULL */

#endif
