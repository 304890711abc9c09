/*
 * The oracle's numbers: converts each type's bits to a value in its accumulator, and rounds that back once. Uses
 * arithmetic on the specified formats; private to the oracle.
 */
#ifndef CONFORM_ORACLE_NUMBER_H
#define CONFORM_ORACLE_NUMBER_H

#include "conform/oracle.h"

#include <math.h>
#include <string.h>

/* For what is compiled once for each type (ORACLE_WITH_TYPE), so that no element asks for the type again. */
#define ORACLE_INLINE static inline __attribute__((always_inline))

/* A value in its accumulator: one of three members, by type. */
union number {
    float single;
    double wide;
    uint64_t integer;
};

ORACLE_INLINE bool is_signed(enum comm_type type)
{
    return type >= COMM_I8 && type <= COMM_I64;
}

/* Each element of each test goes through here several times, so no call of the C library does what a few bits say. */
static inline double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* The exponent of a normal number. */
static inline int exponent_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return (int)(bits >> 52 & 2047) - 1023;
}

/* To the nearest whole number, ties to even; for 0 to 2^51. */
static inline int nearest(double x)
{
    return (int)(x + 0x1p52 - 0x1p52);
}

/* ------------------------------------------------------------------------------------------------------------ half precision */
ORACLE_INLINE double decode_half(uint16_t bits)
{
    double sign = bits >> 15 ? -1.0 : 1.0;
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? (1024 + mantissa) * power_of_two(exponent - 25) : mantissa * 0x1p-24);
}

ORACLE_INLINE uint16_t encode_half(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return 0x7e00;
    double size = fabs(x);
    if (size >= 65520)
        return (uint16_t)(sign | 0x7c00);
    if (size == 0)
        return sign;
    int exponent = exponent_of(size) < -14 ? -14 : exponent_of(size);
    int units = nearest(size * power_of_two(10 - exponent)); /* 2048 carries into the exponent by itself */
    return (uint16_t)(sign | ((exponent + 14) * 1024 + units));
}

ORACLE_INLINE double decode_brain(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float single;
    memcpy(&single, &word, 4);
    return (double)single;
}

ORACLE_INLINE uint16_t encode_brain(float x)
{
    if (isnan(x))
        return 0x7fc0;
    uint32_t word;
    memcpy(&word, &x, 4);
    uint16_t low = (uint16_t)(word >> 16);
    if (isinf(x) || (word & 0xffff) == 0)
        return low;
    uint16_t high = (uint16_t)(low + 1);
    double above = isinf(decode_brain(high)) ? copysign(0x1p128, (double)x) : decode_brain(high);
    double down = fabs((double)x - decode_brain(low)), up = fabs(above - (double)x);
    return down < up || (down == up && (low & 1) == 0) ? low : high;
}

/* ------------------------------------------------------------------------------------------------------------ 8 bits */
ORACLE_INLINE double decode_small(uint8_t bits, enum comm_type type)
{
    int mantissas = type == COMM_F8E4M3 ? 3 : 2, bias = type == COMM_F8E4M3 ? 7 : 15;
    int exponent = (bits & 127) >> mantissas, mantissa = bits & ((1 << mantissas) - 1);
    double sign = bits >> 7 ? -1.0 : 1.0;
    if (type == COMM_F8E4M3 ? (bits & 127) == 127 : exponent == 31 && mantissa)
        return (double)NAN;
    if (type == COMM_F8E5M2 && exponent == 31)
        return sign * (double)INFINITY;
    if (exponent)
        return sign * (mantissa + (1 << mantissas)) * power_of_two(exponent - bias - mantissas);
    return sign * mantissa * power_of_two(1 - bias - mantissas);
}

/* To the nearest, ties to even; 16 units of E4M3, or 8 of E5M2, carry into the exponent by themselves. Beyond the middle between the
 * largest number and its would-be successor: NaN or infinity. */
ORACLE_INLINE uint8_t encode_small(double x, enum comm_type type)
{
    int mantissas = type == COMM_F8E4M3 ? 3 : 2, bias = type == COMM_F8E4M3 ? 7 : 15;
    uint8_t sign = signbit(x) ? 128 : 0;
    double size = fabs(x);
    if (isnan(x))
        return 127;
    if (type == COMM_F8E4M3 ? size > 464 : size >= 61440)
        return type == COMM_F8E4M3 ? sign | 127 : sign | 124;
    int exponent = exponent_of(size) < 1 - bias ? 1 - bias : exponent_of(size);
    return (uint8_t)(sign | ((exponent + bias - 1) * (1 << mantissas) + nearest(size * power_of_two(mantissas - exponent))));
}

/* ------------------------------------------------------------------------------------------------------------ one element in and out */
ORACLE_INLINE void copy_bytes(void *to, const void *from, size_t bytes)
{
    if (bytes == 1)
        memcpy(to, from, 1);
    else if (bytes == 2)
        memcpy(to, from, 2);
    else if (bytes == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, 8);
}

/* A whole number as it is after it was in memory of its type's width. */
ORACLE_INLINE uint64_t wrap(uint64_t integer, enum comm_type type)
{
    unsigned shift = 64 - 8 * (unsigned)oracle_type_bytes(type);
    uint64_t up = integer << shift;
    return is_signed(type) ? (uint64_t)((int64_t)up >> shift) : up >> shift;
}

ORACLE_INLINE union number number_load(const void *at, size_t i, enum comm_type type)
{
    const unsigned char *from = (const unsigned char *)at + i * oracle_type_bytes(type);
    union number v = {.integer = 0};
    uint16_t half;
    switch ((int)type) {
    case COMM_F64:
        memcpy(&v.wide, from, 8);
        return v;
    case COMM_F32:
        memcpy(&v.single, from, 4);
        return v;
    case COMM_F16:
    case COMM_BF16:
        memcpy(&half, from, 2);
        v.single = (float)(type == COMM_F16 ? decode_half(half) : decode_brain(half));
        return v;
    case COMM_F8E4M3:
    case COMM_F8E5M2:
        v.single = (float)decode_small(*from, type);
        return v;
    default:
        copy_bytes(&v.integer, from, oracle_type_bytes(type)); /* little-endian hosts */
        v.integer = wrap(v.integer, type);
        return v;
    }
}

ORACLE_INLINE void number_store(void *at, size_t i, enum comm_type type, union number v)
{
    unsigned char *to = (unsigned char *)at + i * oracle_type_bytes(type);
    uint16_t half;
    switch ((int)type) {
    case COMM_F64:
        memcpy(to, &v.wide, 8);
        return;
    case COMM_F32:
        memcpy(to, &v.single, 4);
        return;
    case COMM_F16:
    case COMM_BF16:
        half = type == COMM_F16 ? encode_half((double)v.single) : encode_brain(v.single);
        memcpy(to, &half, 2);
        return;
    case COMM_F8E4M3:
    case COMM_F8E5M2:
        *to = encode_small((double)v.single, type);
        return;
    default:
        copy_bytes(to, &v.integer, oracle_type_bytes(type));
    }
}

#endif
