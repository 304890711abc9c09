/* A fuzzer's corpus without the fuzzer: each file of a folder is one input, and must hold what every input must. */
#ifndef TESTS_BASE_FUZZ_FOLDER_H
#define TESTS_BASE_FUZZ_FOLDER_H

#include "base/hold.h"

#include <dirent.h>
#include <stddef.h>

enum { FUZZ_INPUT_MOST = 4096 };

/* How many there are; *taken: of how many `one` says 1. */
static inline int fuzz_folder(const char *folder, int (*one)(const unsigned char *bytes, size_t count), int *taken)
{
    DIR *files = opendir(folder);
    int count = 0;

    HOLD(files);
    for (const struct dirent *file; (file = readdir(files));) {
        unsigned char bytes[FUZZ_INPUT_MOST];
        char path[512];
        if (file->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        FILE *f = fopen(path, "rbe");
        HOLD(f);
        *taken += one(bytes, fread(bytes, 1, sizeof bytes, f));
        fclose(f);
        count++;
    }
    closedir(files);
    return count;
}

#endif
