#include "digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 4096, DIGITS_SEED = 1998 };

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void random_shuffle(uint64_t seed, size_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t other = (size_t)(random_next(&seed) % (i + 1));
        if (other != i)
            numbers[i] = numbers[other];
        numbers[other] = i;
    }
}

/* Parses one line of the file: the class, then the pixels as digits of base 17. */
static bool digits_parse(const char *line, float image[DIGITS_PIXELS], uint8_t *label)
{
    static const char base17[] = "0123456789abcdefg";
    if (strlen(line) < 1 + DIGITS_PIXELS || line[0] < '0' || line[0] > '9')
        return false;
    *label = (uint8_t)(line[0] - '0');
    for (size_t i = 0; i < DIGITS_PIXELS; i++) {
        const char *at = strchr(base17, line[1 + i]);
        if (at == NULL)
            return false;
        image[i] = (float)(at - base17) / 16.0f - 0.3f;
    }
    return true;
}

static bool digits_read(struct digits *digits, FILE *file)
{
    char line[128];
    size_t place[DIGITS_MAX], lines = 0;
    while (fgets(line, sizeof line, file) != NULL)
        lines++;
    if (lines < 10 || lines > DIGITS_MAX || fseek(file, 0, SEEK_SET) != 0)
        return false;
    digits->images = calloc(lines, sizeof *digits->images);
    digits->labels = calloc(lines, sizeof *digits->labels);
    if (digits->images == NULL || digits->labels == NULL)
        return false;
    random_shuffle(DIGITS_SEED, place, lines);
    for (size_t i = 0; i < lines; i++) {
        if (fgets(line, sizeof line, file) == NULL || !digits_parse(line, digits->images[place[i]], &digits->labels[place[i]]))
            return false;
    }
    digits->count = lines;
    digits->train_count = lines - lines / 5;
    return true;
}

bool digits_load(struct digits *digits, const char *path)
{
    memset(digits, 0, sizeof *digits);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return false;
    }
    bool good = digits_read(digits, file);
    fclose(file);
    if (!good) {
        fprintf(stderr, "%s: not a file of digits\n", path);
        digits_free(digits);
    }
    return good;
}

void digits_free(struct digits *digits)
{
    free(digits->images);
    free(digits->labels);
    memset(digits, 0, sizeof *digits);
}
