/*
 * comm_trace_dump and option trace_dir: what stands in the file, and that a failure writes it without being held up by a file system.
 */
#define _GNU_SOURCE
#include "base/env.h"
#include "conform/rig.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 100000 };
static float in[2][LONG], out[2][LONG];

/* ------------------------------------------------------------------------------------------------------------ a file system that hangs */
static struct comm_env env;
static const struct comm_env *machine;
static _Atomic bool hangs;

static int slow_open(const struct comm_env *e, const char *path)
{
    (void)e;
    while (atomic_load(&hangs))
        rig_nap(RIG_MS);
    return machine->file.open(machine, path);
}

const struct comm_env *__real_wire_default_env(void);
const struct comm_env *__wrap_wire_default_env(void);
const struct comm_env *__wrap_wire_default_env(void)
{
    if (!machine) { /* first called before there are threads */
        machine = __real_wire_default_env();
        env = *machine;
        env.file.open = slow_open;
    }
    return &env;
}

/* ------------------------------------------------------------------------------------------------------------ files */
struct text {
    char of[1 << 20];
};
static struct text text;

static void read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t n = fread(text.of, 1, sizeof text.of - 1, file);
    text.of[n] = 0;
    fclose(file);
}

static const char *skip_value(const char *p);

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \n");
}

static const char *skip_string(const char *p)
{
    CHECK(*p == '"');
    for (p++; *p != '"'; p++) {
        CHECK((unsigned char)*p >= ' ');
        p += *p == '\\';
    }
    return p + 1;
}

/* An array's or an object's inside, up to behind its end. */
static const char *skip_members(const char *p, bool names, char end)
{
    p = skip_space(p + 1);
    while (*p != end) {
        if (names) {
            p = skip_space(skip_string(p));
            CHECK(*p == ':');
            p++;
        }
        p = skip_space(skip_value(p));
        CHECK(*p == ',' || *p == end);
        p = *p == ',' ? skip_space(p + 1) : p;
    }
    return p + 1;
}

static const char *skip_value(const char *p)
{
    p = skip_space(p);
    if (*p == '{')
        return skip_members(p, true, '}');
    if (*p == '[')
        return skip_members(p, false, ']');
    if (*p == '"')
        return skip_string(p);
    size_t digits = strspn(p, "-0123456789.");
    CHECK(digits > 0);
    return p + digits;
}

static void is_json(void)
{
    EQUAL(*skip_space(skip_value(text.of)), 0);
}

/* The line of the n-th event with this in it, from 0, cut off. */
static const char *line_with(const char *what, int n)
{
    static char line[1024];
    const char *at = text.of;
    for (;;) {
        at = strstr(at, what);
        if (!at)
            return NULL;
        if (!n--)
            break;
        at++;
    }
    while (at > text.of && at[-1] != '\n')
        at--;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

static double number(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    CHECK(at != NULL);
    return strtod(at + strlen(key), NULL);
}

static int files_in(const char *folder, char *path, size_t bytes)
{
    DIR *d = opendir(folder);
    int n = 0;
    CHECK(d != NULL);
    for (struct dirent *f = readdir(d); f; f = readdir(d)) {
        if (f->d_name[0] == '.')
            continue;
        snprintf(path, bytes, "%s/%s", folder, f->d_name);
        n++;
    }
    closedir(d);
    return n;
}

static void empty_folder(const char *folder)
{
    char path[512];
    while (files_in(folder, path, sizeof path))
        CHECK(unlink(path) == 0);
    CHECK(rmdir(folder) == 0);
}

/* ------------------------------------------------------------------------------------------------------------ tests */
/* Rank 0 calls and looks; then rank 1 comes: it was waited for, and waited for nobody where all is there at its first look. */
static void sum_behind(struct rig *rig, size_t n, struct comm_request *request)
{
    MUST(comm_allreduce(rig->world[0], in[0], out[0], n, COMM_F32, COMM_SUM, &request[0]));
    for (int i = 0; i < 10; i++)
        IS(comm_test(request[0]), COMM_PENDING);
    rig_nap(2 * RIG_MS);
    struct comm_request_info info = {.size = sizeof info};
    MUST(comm_describe_request(request[0], &info));
    EQUAL(info.result, COMM_PENDING);
    EQUAL(info.waited_for, 1);
    MUST(comm_allreduce(rig->world[1], in[1], out[1], n, COMM_F32, COMM_SUM, &request[1]));
    MUST(comm_wait_all(request, 2, RIG_PATIENCE));
}

/* A message waits for its peer; one that uses the memory of an earlier one waits for its own rank. */
RIG_TEST(a_message_tells_for_whom)
{
    struct comm_request first, second, any;
    struct comm_request_info info = {.size = sizeof info};
    struct rig rig;
    rig_open(&rig, 2, NULL);
    MUST(comm_recv(rig.world[0], out[0], LONG, COMM_F32, COMM_ANY_PEER, 7, NULL, &any));
    MUST(comm_recv(rig.world[0], in[0], LONG, COMM_F32, 1, 5, NULL, &first));
    MUST(comm_recv(rig.world[0], in[0], LONG, COMM_F32, 1, 6, NULL, &second));
    MUST(comm_describe_request(first, &info));
    CHECK(info.waited_for == 1 && info.started_ns && info.result == COMM_PENDING);
    MUST(comm_describe_request(second, &info));
    CHECK(info.waited_for == 0 && !info.started_ns && info.result == COMM_PENDING);
    MUST(comm_describe_request(any, &info));
    CHECK(info.waited_for == -1 && info.started_ns);
    MUST(comm_send(rig.world[1], in[1], LONG, COMM_F32, 0, 5, NULL));
    MUST(comm_wait(first, RIG_PATIENCE));
    IS(comm_test(second), COMM_PENDING);
    MUST(comm_describe_request(second, &info));
    CHECK(info.waited_for == 1 && info.started_ns);
    rig_close(&rig);
}

RIG_TEST(a_dump_tells_when_and_for_whom)
{
    struct comm_request small[2], large[2], message[2];
    struct comm_request_info info = {.size = sizeof info};
    char path[64];
    int word = 7, got;
    struct rig rig;
    rig_open(&rig, 2, NULL);
    sum_behind(&rig, 2, small);
    sum_behind(&rig, LONG, large);
    MUST(comm_recv(rig.world[0], &got, 1, COMM_I32, 1, 5, NULL, &message[0]));
    MUST(comm_send(rig.world[1], &word, 1, COMM_I32, 0, 5, &message[1]));
    MUST(comm_wait_all(message, 2, RIG_PATIENCE));
    MUST(comm_describe_request(small[0], &info));
    EQUAL(info.waited_for, 1);
    MUST(comm_describe_request(small[1], &info));
    EQUAL(info.waited_for, -1);
    MUST(comm_describe_request(large[0], &info));
    EQUAL(info.waited_for, 1);
    struct comm_request open;
    MUST(comm_broadcast(rig.world[0], in[0], 3, COMM_F32, 1, &open)); /* under way */
    snprintf(path, sizeof path, "/tmp/commstream-trace-%d.json", (int)getpid());
    MUST(comm_trace_dump(rig.world[0], path));
    read_file(path);
    is_json();
    for (int i = 0; i < 2; i++) {
        const char *line = line_with("\"name\":\"allreduce\"", i);
        CHECK(line && strstr(line, i ? "\"bytes\":400000" : "\"bytes\":8") && strstr(line, "\"waited_for\":1,"));
        CHECK(strstr(line, "\"result\":\"COMM_OK\"") && strstr(line, "\"ph\":\"X\"") && strstr(line, i ? "slices" : "read_all"));
        CHECK(number(line, "\"queued\":") <= number(line, "\"started\":"));
        CHECK(number(line, "\"started\":") + 2000 <= number(line, "\"done\":"));
        CHECK(number(line, "\"dur\":") >= 2000);
    }
    CHECK(line_with("\"name\":\"recv\"", 0) && strstr(line_with("\"name\":\"recv\"", 0), "\"waited_for\":1,"));
    CHECK(line_with("\"name\":\"broadcast\"", 0) && strstr(line_with("\"name\":\"broadcast\"", 0), "COMM_PENDING"));
    CHECK(line_with("process_name", 0) && line_with("thread_name", 0));
    CHECK(unlink(path) == 0);
    IS(comm_trace_dump(rig.world[0], "/nowhere/at/all"), COMM_ERR_SYSTEM);
    struct comm_request last;
    MUST(comm_broadcast(rig.world[1], in[1], 3, COMM_F32, 1, &last));
    MUST(comm_wait(last, RIG_PATIENCE));
    MUST(comm_wait(open, RIG_PATIENCE));
    rig_close(&rig);
}

/* Bars of one row never overlap, however many operations ran side by side. */
RIG_TEST(rows_hold_bars_side_by_side)
{
    struct comm_request request[2][12];
    char path[64];
    double until[70] = {0};
    struct rig rig;
    int bars = 0, rows = 0;
    rig_open(&rig, 2, NULL);
    for (int i = 0; i < 12; i++)
        for (int r = 0; r < 2; r++)
            MUST(comm_allreduce(rig.world[r], in[r] + 8192 * i, out[r] + 8192 * i, 8192, COMM_F32, COMM_SUM, &request[r][i]));
    MUST(comm_wait_all(request[0], 24, RIG_PATIENCE));
    snprintf(path, sizeof path, "/tmp/commstream-trace-%d.json", (int)getpid());
    MUST(comm_trace_dump(rig.world[1], path));
    read_file(path);
    is_json();
    for (const char *line; (line = line_with("\"ph\":\"X\"", bars)); bars++) {
        uint64_t row = (uint64_t)number(line, "\"tid\":") % 64;
        double from = number(line, "\"ts\":");
        CHECK(from + 0.0005 >= until[row]);
        rows += until[row] == 0;
        until[row] = from + number(line, "\"dur\":");
    }
    EQUAL(bars, 12);
    CHECK(rows > 1);
    CHECK(unlink(path) == 0);
    rig_close(&rig);
}

/* Ranks that call different things; returns how long the waits took. */
static int64_t differ(struct rig *rig)
{
    struct comm_request request[2];
    float some[2][2] = {{0}};
    int64_t from = rig_now();
    MUST(comm_allreduce(rig->world[0], COMM_IN_PLACE, some[0], 2, COMM_F32, COMM_SUM, &request[0]));
    (void)!comm_allreduce(rig->world[1], COMM_IN_PLACE, some[1], 2, COMM_F32, COMM_MAX, &request[1]);
    for (int r = 0; r < 2; r++)
        IS(comm_wait(request[r], RIG_PATIENCE), COMM_ERR_MISMATCH);
    return rig_now() - from;
}

RIG_TEST(a_failure_writes_what_went_before)
{
    char folder[] = "/tmp/commstream-trace-XXXXXX", options[128], path[512];
    struct comm_request request[2];
    struct rig rig;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(options, sizeof options, "trace_dir=%s,progress=caller,log=off", folder);
    rig_open_options(&rig, 2, options);
    sum_behind(&rig, 2, request);
    EQUAL(files_in(folder, path, sizeof path), 0);
    differ(&rig);
    EQUAL(files_in(folder, path, sizeof path), 2); /* they are there when the waits are over, and each rank wrote its own */
    read_file(path);
    is_json();
    CHECK(line_with("\"name\":\"allreduce\"", 1) && !line_with("\"name\":\"allreduce\"", 2));
    CHECK(line_with("COMM_ERR_MISMATCH rank=", 0) && strstr(line_with("COMM_ERR_MISMATCH rank=", 0), "op=sum"));
    IS(comm_revoke(rig.world[0]), COMM_OK); /* once for each communicator */
    rig_close(&rig);
    EQUAL(files_in(folder, path, sizeof path), 2);
    empty_folder(folder);
}

RIG_TEST(a_folder_that_is_missing_costs_the_file_alone)
{
    struct rig rig;
    rig_open_options(&rig, 2, "trace_dir=/nowhere/at/all,progress=caller,log=off");
    differ(&rig);
    rig_close(&rig);
}

RIG_TEST(a_file_system_that_hangs_holds_up_nobody)
{
    char folder[] = "/tmp/commstream-trace-XXXXXX", options[128], path[512];
    struct rig rig;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(options, sizeof options, "trace_dir=%s,progress=caller,log=off", folder);
    rig_open_options(&rig, 2, options);
    atomic_store(&hangs, true);
    CHECK(differ(&rig) < 2 * RIG_S);
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(rig.world[0], &error)); /* no lock is held meanwhile */
    EQUAL(error.result, COMM_ERR_MISMATCH);
    EQUAL(files_in(folder, path, sizeof path), 0);
    atomic_store(&hangs, false);
    rig_close(&rig); /* the last one out gives it time */
    EQUAL(files_in(folder, path, sizeof path), 2);
    empty_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_tells_for_whom),
        cmocka_unit_test(a_dump_tells_when_and_for_whom),
        cmocka_unit_test(rows_hold_bars_side_by_side),
        cmocka_unit_test(a_failure_writes_what_went_before),
        cmocka_unit_test(a_folder_that_is_missing_costs_the_file_alone),
        cmocka_unit_test(a_file_system_that_hangs_holds_up_nobody),
    };

    return cmocka_run_group_tests_name("api_trace", tests, NULL, NULL);
}
