/* Copies memory, through the cache or past it. */
#include "data/kernel.h"

#include <string.h>

enum {
    LINE_BYTES = 64,
    TAKE_BYTES = 1024,      /* copied at a time: few enough to be in the first-level cache when they are dirtied; .. */
    TAKE_LONG_BYTES = 4096, /* .. in a long copy as many as memcpy moves by the CPU's string instructions, if that has fast ones, .. */
    LONG_BYTES = 16384,     /* .. which take long to begin */
    SWAP_BYTES = 16384,     /* moved by each copy of a swap before the next copy reads them again */
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

static inline void stream_line(char *to, const __m128i line[4])
{
    for (int i = 0; i < 4; i++)
        _mm_stream_si128((__m128i *)(void *)(to + 16 * i), line[i]);
}

/* takes, keeps: constants, so that each call has a loop of its own. */
DATA_INLINE void swap_lines(const struct data_swap *swap, size_t at, size_t end, bool takes, bool keeps)
{
    for (; at < end; at += LINE_BYTES) {
        __m128i was[4], now[4];
        for (int i = 0; i < 4; i++) {
            if (takes)
                was[i] = _mm_loadu_si128((const __m128i *)(const void *)(swap->view + at + 16 * i));
            now[i] = _mm_loadu_si128((const __m128i *)(const void *)(swap->given + at + 16 * i));
        }
        for (int i = 0; i < 4; i++)
            _mm_storeu_si128((__m128i *)(void *)(swap->place + at + 16 * i), now[i]);
        if (takes)
            stream_line(swap->taken + at, was);
        if (keeps)
            stream_line(swap->kept + at, now);
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

static void swap_part(const struct data_swap *swap, size_t at, size_t bytes, bool nontemporal)
{
    if (swap->taken)
        data_copy(swap->taken + at, swap->view + at, bytes, nontemporal);
    if (swap->place)
        data_copy(swap->place + at, swap->given + at, bytes, false);
    if (swap->kept)
        data_copy(swap->kept + at, swap->given + at, bytes, nontemporal);
}

#if DATA_X86
/* Whole lines past the cache, without the parts before and behind them. False: the two destinations lie differently in their lines, or
 * there is nothing to combine. */
static bool swap_past_cache(const struct data_swap *swap)
{
    const uintptr_t taken = (uintptr_t)swap->taken, kept = (uintptr_t)swap->kept;
    const size_t before = -(taken ? taken : kept) % LINE_BYTES;

    if (!swap->place || !(taken | kept) || (taken && kept && (taken ^ kept) % LINE_BYTES) || swap->bytes < before + LINE_BYTES)
        return false;
    const size_t end = swap->bytes - (swap->bytes - before) % LINE_BYTES;
    swap_part(swap, 0, before, false);
    if (taken && kept)
        swap_lines(swap, before, end, true, true);
    else if (taken)
        swap_lines(swap, before, end, true, false);
    else
        swap_lines(swap, before, end, false, true);
    swap_part(swap, end, swap->bytes - end, false);
    return true;
}
#endif

void data_swap(const struct data_swap *swap)
{
#if DATA_X86
    if (swap->nontemporal && swap_past_cache(swap))
        return;
#endif
    const size_t most = swap->nontemporal ? swap->bytes : SWAP_BYTES;

    for (size_t at = 0, some; at < swap->bytes; at += some) {
        some = swap->bytes - at < most ? swap->bytes - at : most;
        swap_part(swap, at, some, swap->nontemporal);
    }
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
