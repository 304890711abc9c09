/* The handwritten digits (NOTICE has their source), shuffled once in a fixed order. The last fifth is for testing and never used in
 * training. */
#ifndef TRAIN_DIGITS_H
#define TRAIN_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGITS_PIXELS = 64, DIGITS_CLASSES = 10 };

struct digits {
    size_t count, train_count;
    float (*images)[DIGITS_PIXELS];
    uint8_t *labels;
};

uint64_t random_next(uint64_t *state);                             /* splitmix64 (S. Vigna, public domain) */
void random_shuffle(uint64_t seed, size_t *numbers, size_t count); /* fills numbers with 0 .. count - 1 in an order that depends on seed */

bool digits_load(struct digits *digits, const char *path); /* false: a message was printed */
void digits_free(struct digits *digits);

#endif
