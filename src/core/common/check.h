/* Option `check`: its values (CHECK_*, common/world.h), places of calls, and sums of buffers. */
#ifndef COMMON_CHECK_H
#define COMMON_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool check_parse(const char *text, uint32_t *bits); /* false: a word that is none */
uint32_t check_site(const void *address);           /* from where a call comes, the same on all ranks */
uint64_t check_sum(const void *at, size_t bytes);

#endif
