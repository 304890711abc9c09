/* sim_corpus [--schedules N] [--shrink SECONDS] FILE|FOLDER...: runs programs kept as text, each with the schedule with
 * which it failed once, and with others. */
#define _GNU_SOURCE
#include "sim/oracle_machine.h"
#include "sim/workload.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int runs, failures;
static uint64_t schedules = 1;
static double shrink_seconds;

static void run_file(const char *path)
{
    static struct random_program program, again;
    static struct sim_result result;
    const char *why = NULL;
    int32_t at = 0;
    FILE *file = fopen(path, "r");
    int bad = file ? random_read(file, &program) : 1;
    if (file)
        fclose(file);
    if (bad || !oracle_legal(&program, &why, &at)) {
        printf("%s: %s at line or action %d\n", path, why ? why : "no program", bad ? bad : at);
        failures++;
        return;
    }
    again = program;
    for (uint64_t k = 0; k < schedules; k++) {
        program.schedule = again.schedule + k * 7919;
        runs++;
        if (workload_run(&program, &result))
            continue;
        failures++;
        printf("%s: schedule %" PRIu64 ": %s\n", path, program.schedule, result.text);
        if (shrink_seconds > 0) {
            workload_shrink(&program, &result, shrink_seconds);
            printf("# %.*s\n", (int)strcspn(result.text, "\n"), result.text);
            random_print(stdout, &program);
        }
        return;
    }
}

static int is_program(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

static void run_folder(const char *path)
{
    struct dirent **list;
    int count = scandir(path, &list, is_program, alphasort);
    for (int i = 0; i < count; i++) {
        char name[1024];
        snprintf(name, sizeof name, "%s/%s", path, list[i]->d_name);
        run_file(name);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    else
        failures++;
}

int main(int count, char **text)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < count; i++) {
        struct stat what;
        if (strcmp(text[i], "--schedules") == 0 && i + 1 < count)
            schedules = strtoull(text[++i], NULL, 10);
        else if (strcmp(text[i], "--shrink") == 0 && i + 1 < count)
            shrink_seconds = strtod(text[++i], NULL);
        else if (stat(text[i], &what) == 0 && S_ISDIR(what.st_mode))
            run_folder(text[i]);
        else
            run_file(text[i]);
    }
    printf("sim_corpus: runs=%d failures=%d\n", runs, failures);
    return failures || !runs;
}
