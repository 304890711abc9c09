/* The handwritten digits (NOTICE says whose), shuffled once by a fixed order: the last fifth is for testing and never trained on. */
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
void random_shuffle(uint64_t seed, size_t *numbers, size_t count); /* fills numbers with 0 .. count - 1 in an order of the seed's */

bool digits_load(struct digits *digits, const char *path); /* false: said why */
void digits_free(struct digits *digits);

#endif
