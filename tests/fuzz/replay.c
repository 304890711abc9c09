/* One target (FUZZ_TARGET) over its corpus, in every build and without a fuzzer. Each argument is a folder of inputs or one input. It fails
 * if the corpus is missing, or if no input is accepted. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <string.h>

#ifdef FUZZ_NEEDS
const char *FUZZ_NEEDS(void);
#endif
static int inputs, accepted;

static void run_file(const char *path)
{
    unsigned char bytes[FUZZ_INPUT_MOST], *exact;
    FILE *file = fopen(path, "rbe");

    HOLD(file);
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    exact = malloc(count ? count : 1); /* so that a sanitizer detects a read beyond the end */
    HOLD(exact);
    memcpy(exact, bytes, count);
    fprintf(stderr, "%s\n", path); /* the last name printed is the input that failed */
    accepted += FUZZ_TARGET(exact, count) > 0;
    inputs++;
    free(exact);
}

static void run_folder(const char *path)
{
    DIR *folder = opendir(path);

    if (!folder) {
        run_file(path);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char file[1024];
        if (entry->d_name[0] == '.')
            continue;
        HOLD((size_t)snprintf(file, sizeof file, "%s/%s", path, entry->d_name) < sizeof file);
        run_file(file);
    }
    closedir(folder);
}

int main(int count, char **paths)
{
#ifdef FUZZ_NEEDS
    if (FUZZ_NEEDS()) {
        printf("skipped: %s\n", FUZZ_NEEDS());
        return 77;
    }
#endif
    for (int i = 1; i < count; i++)
        run_folder(paths[i]);
    printf("%d inputs, of which %d were accepted in part or whole\n", inputs, accepted);
    return !(inputs && accepted);
}
