/*
 * half: converts f16 and bf16 to and from the f32 lanes of one vector: exactly, or rounded to nearest even. A half
 * vector is the lower half of a vector's bytes. Infinities and signed zeros are kept; a NaN stays a NaN (made quiet, as
 * by the hardware). Included after vector.h.
 *
 * If no instruction converts f16, bits are moved. The two float operations used there are exact, or round as the
 * conversion must.
 */
#ifndef DATA_HALF_H
#define DATA_HALF_H

#include "data/vector.h"

typedef uint8_t half_vector __attribute__((vector_size(DATA_VECTOR_BYTES / 2)));

DATA_INLINE half_vector half_load(const void *from)
{
    half_vector value;
    memcpy(&value, from, sizeof(value));
    return value;
}

DATA_INLINE void half_store(void *to, half_vector value)
{
    memcpy(to, &value, sizeof(value));
}

/* Non-temporal store; `to` is aligned to the half vector. */
DATA_INLINE void half_stream(void *to, half_vector value)
{
#if DATA_VECTOR_BYTES == 64
    _mm256_stream_si256((__m256i *)to, (__m256i)value);
#elif DATA_VECTOR_BYTES == 32
    _mm_stream_si128((__m128i *)to, (__m128i)value);
#elif DATA_X86
    long long bits;
    memcpy(&bits, &value, sizeof(bits));
    _mm_stream_si64((long long *)to, bits);
#else
    half_store(to, value);
#endif
}

/* Widens 16-bit lanes to 32-bit lanes with zero upper bits. */
DATA_INLINE vector_u32 half_widen(half_vector value)
{
#if DATA_VECTOR_BYTES == 64
    return (vector_u32)_mm512_cvtepu16_epi32((__m256i)value);
#elif DATA_VECTOR_BYTES == 32
    return (vector_u32)_mm256_cvtepu16_epi32((__m128i)value);
#elif DATA_X86
    long long bits;
    memcpy(&bits, &value, sizeof(bits));
    return (vector_u32)_mm_unpacklo_epi16(_mm_cvtsi64_si128(bits), _mm_setzero_si128());
#else
    uint16_t lane[4];
    memcpy(lane, &value, sizeof(lane));
    return (vector_u32){lane[0], lane[1], lane[2], lane[3]};
#endif
}

/* Takes the lower 16 bits of each lane; the upper ones are zero. */
DATA_INLINE half_vector half_narrow(vector_u32 value)
{
#if DATA_VECTOR_BYTES == 64
    return (half_vector)_mm512_cvtepi32_epi16((__m512i)value);
#elif DATA_VECTOR_BYTES == 32
    const __m256i packed = _mm256_packus_epi32((__m256i)value, (__m256i)value);
    return (half_vector)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
#elif DATA_X86
    const __m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)value, 16), 16); /* SSE2 can only pack signed lanes */
    const long long bits = _mm_cvtsi128_si64(_mm_packs_epi32(extended, extended));
    half_vector narrow;
    memcpy(&narrow, &bits, sizeof(narrow));
    return narrow;
#else
    const uint16_t lane[4] = {(uint16_t)value[0], (uint16_t)value[1], (uint16_t)value[2], (uint16_t)value[3]};
    half_vector narrow;
    memcpy(&narrow, lane, sizeof(narrow));
    return narrow;
#endif
}

DATA_INLINE vector_u32 half_pick(vector_i32 mask, vector_u32 a, vector_u32 b)
{
    return (vector_u32)vector_pick((vector)mask, (vector)a, (vector)b);
}

#if DATA_VECTOR_BYTES == 64
DATA_INLINE vector_f32 half_decode_f16(half_vector value)
{
    return (vector_f32)_mm512_cvtph_ps((__m256i)value);
}
DATA_INLINE half_vector half_encode_f16(vector_f32 value)
{
    return (half_vector)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
}
#elif DATA_VECTOR_BYTES == 32
DATA_INLINE vector_f32 half_decode_f16(half_vector value)
{
    return (vector_f32)_mm256_cvtph_ps((__m128i)value);
}
DATA_INLINE half_vector half_encode_f16(vector_f32 value)
{
    return (half_vector)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}
#else
DATA_INLINE vector_f32 half_decode_f16(half_vector value)
{
    const vector_u32 half = half_widen(value), body = half & 0x7fff, sign = (half & 0x8000) << 16;
    const vector_u32 normal = (body << 13) + (112u << 23);
    const vector_u32 special = (body << 13) | 0x7f800000;
    const vector_u32 quiet = special | ((vector_u32)((vector_i32)body > 0x7c00) & 0x400000);
    const vector_u32 offset = (vector_u32){0} + (113u << 23); /* 2^-14: makes the leading one of a denormal explicit */
    const vector_u32 tiny = (vector_u32)((vector_f32)((body << 13) | (113u << 23)) - (vector_f32)offset);
    const vector_u32 finite = half_pick((vector_i32)body < 0x400, tiny, normal);
    return (vector_f32)(half_pick((vector_i32)body >= 0x7c00, quiet, finite) | sign);
}

DATA_INLINE half_vector half_encode_f16(vector_f32 value)
{
    const vector_u32 bits = (vector_u32)value, sign = bits & 0x80000000u, body = bits ^ sign;
    const vector_u32 odd = (body >> 13) & 1;
    const vector_u32 normal = (body - (112u << 23) + 0xfff + odd) >> 13; /* the carry may reach infinity, as it must */
    const vector_u32 ulp = (vector_u32){0} + (126u << 23);               /* 0.5: its last place is the smallest f16 */
    const vector_u32 tiny = (vector_u32)((vector_f32)body + (vector_f32)ulp) - ulp;
    const vector_u32 nan = 0x7e00 | ((body >> 13) & 0x3ff), infinite = (vector_u32){0} + 0x7c00;
    const vector_u32 special = half_pick((vector_i32)body > 0x7f800000, nan, infinite);
    const vector_u32 finite = half_pick((vector_i32)body < 0x38800000, tiny, normal);
    return half_narrow(half_pick((vector_i32)body >= 0x47800000, special, finite) | (sign >> 16));
}
#endif

DATA_INLINE vector_f32 half_decode_bf16(half_vector value)
{
    return (vector_f32)(half_widen(value) << 16);
}

/* The CPU's own bf16 conversion flushes denormals; this code does not. */
DATA_INLINE half_vector half_encode_bf16(vector_f32 value)
{
    const vector_u32 bits = (vector_u32)value, odd = (bits >> 16) & 1;
    const vector_u32 rounded = (bits + 0x7fff + odd) >> 16, quiet = (bits >> 16) | 0x40;
    return half_narrow(half_pick((vector_i32)(value != value), quiet, rounded));
}

DATA_INLINE vector half_decode(half_vector value, enum comm_type type)
{
    return (vector)(type == COMM_F16 ? half_decode_f16(value) : half_decode_bf16(value));
}

DATA_INLINE half_vector half_encode(vector value, enum comm_type type)
{
    return type == COMM_F16 ? half_encode_f16((vector_f32)value) : half_encode_bf16((vector_f32)value);
}

#endif
