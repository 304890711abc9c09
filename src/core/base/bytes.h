/* Reads and writes little-endian numbers at any address: the byte order of everything that goes over a network. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdint.h>

static inline void base_put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static inline uint32_t base_get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline void base_put64(unsigned char *at, uint64_t value)
{
    base_put32(at, (uint32_t)value);
    base_put32(at + 4, (uint32_t)(value >> 32));
}

static inline uint64_t base_get64(const unsigned char *at)
{
    return base_get32(at) | (uint64_t)base_get32(at + 4) << 32;
}

#endif
