/* Option `check`: its values (CHECK_*, common/world.h), call sites, and checksums of buffers. */
#ifndef COMMON_CHECK_H
#define COMMON_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool check_parse(const char *text, uint32_t *bits); /* false: contains an unknown word */
uint32_t check_site(const void *address);           /* identifies the call site, equally on all ranks */
uint64_t check_sum(const void *at, size_t bytes);

#endif
