/* Copies memory, through the cache or past it. */
#include "data/kernel.h"

#include <string.h>

enum {
    LINE_BYTES = 64,
    TAKE_BYTES = 1024,      /* copied at a time: few enough to be in the first-level cache when they are dirtied; .. */
    TAKE_LONG_BYTES = 4096, /* .. in a long copy as many as memcpy moves by the CPU's string instructions, if that has fast ones, .. */
    LONG_BYTES = 16384,     /* .. which take long to begin */
};

static inline void dirty_line(char *line)
{
    *(volatile char *)line = 0;
}

#if DATA_X86
#    include <emmintrin.h>

/* Copies whole lines to an aligned place; the bytes of a line leave the CPU together. */
static void copy_lines(char *to, const char *from, size_t lines)
{
    for (; lines; lines--, to += LINE_BYTES, from += LINE_BYTES) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
        _mm_stream_si128((__m128i *)(void *)to, a);
        _mm_stream_si128((__m128i *)(void *)(to + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + 48), d);
    }
    _mm_sfence();
}

static void take_lines(char *to, char *from, size_t lines)
{
    for (; lines; lines--, to += LINE_BYTES, from += LINE_BYTES) {
        const __m128i a = _mm_load_si128((const __m128i *)(const void *)from);
        const __m128i b = _mm_load_si128((const __m128i *)(const void *)(from + 16));
        const __m128i c = _mm_load_si128((const __m128i *)(const void *)(from + 32));
        const __m128i d = _mm_load_si128((const __m128i *)(const void *)(from + 48));
        _mm_stream_si128((__m128i *)(void *)to, a);
        _mm_stream_si128((__m128i *)(void *)(to + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + 48), d);
        dirty_line(from);
    }
    _mm_sfence();
}

static void copy_past_cache(char *to, const char *from, size_t bytes)
{
    const size_t before = -(uintptr_t)to % LINE_BYTES;
    if (bytes < before + LINE_BYTES) {
        memcpy(to, from, bytes);
        return;
    }
    const size_t lines = (bytes - before) / LINE_BYTES, middle = lines * LINE_BYTES;
    memcpy(to, from, before);
    copy_lines(to + before, from + before, lines);
    memcpy(to + before + middle, from + before + middle, bytes - before - middle);
}
#endif

void data_copy(void *to, const void *from, size_t bytes, bool nontemporal)
{
    if (!bytes || to == from)
        return;
#if DATA_X86
    if (nontemporal) {
        copy_past_cache(to, from, bytes);
        return;
    }
#else
    (void)nontemporal;
#endif
    memcpy(to, from, bytes);
}

void data_dirty(void *at, size_t bytes)
{
    char *const end = (char *)at + bytes;

    for (char *line = at; line < end; line += LINE_BYTES)
        dirty_line(line);
}

void data_take(void *to, void *from, size_t bytes, bool nontemporal)
{
    char *out = to, *in = from;

#if DATA_X86
    if (nontemporal && (uintptr_t)to % LINE_BYTES == 0 && (uintptr_t)from % LINE_BYTES == 0) {
        const size_t whole = bytes / LINE_BYTES * LINE_BYTES;
        take_lines(out, in, bytes / LINE_BYTES);
        out += whole;
        in += whole;
        bytes -= whole;
        nontemporal = false;
    }
#endif
    const size_t most = bytes < LONG_BYTES ? TAKE_BYTES : TAKE_LONG_BYTES;
    for (size_t some; bytes; out += some, in += some, bytes -= some) {
        some = bytes < most ? bytes : most;
        data_copy(out, in, some, nontemporal);
        data_dirty(in, some);
    }
}
