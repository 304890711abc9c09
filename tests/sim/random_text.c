/*
 * Programs as text: one line per action, with "key=value" for values other than the default. A failing program is kept
 * in this form: a list of actions keeps its meaning when the generator changes.
 */
#define _GNU_SOURCE
#include "sim/random_program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const random_verb_names[RANDOM_VERBS] = {
    "barrier", "broadcast",    "reduce",      "allreduce",    "allgather", "reduce_scatter", "scan",      "exscan",
    "gather",  "scatter",      "alltoall",    "refused",      "window",    "window_fence",   "buckets",   "split",
    "dup",     "plan_start",   "group",       "subset",       "shrink",    "atomic",         "send",      "recv",
    "agree",   "buckets_wait", "window_free", "plan_begin",   "plan_end",  "plan_free",      "record",    "reset",
    "set",     "renew",        "wait_event",  "wait_request", "host_wait", "host_any",       "host_last", "event_sync",
    "sync",    "test",         "cancel",      "probe",        "fill",      "progress",       "spend",     "close",
    "revoke",  "abort"};
const char *const random_misuse_names[RANDOM_MISUSES] = {"right",      "other_op", "other_count", "other_type", "other_root",
                                                         "other_verb", "skipped",  "extra",       "later",      "refuses",
                                                         "closes",     "destroys", "revokes",     "aborts"};

struct field {
    const char *key;
    size_t at;
    int32_t usual;
};
#define ACTION(name, usual)                                                                                                                \
    {                                                                                                                                      \
#        name, offsetof(struct random_action, name), usual                                                                                 \
    }
static const struct field action_fields[] = {
    ACTION(type, 0),    ACTION(op, 0),     ACTION(root, -1), ACTION(n, 0),     ACTION(in, -1),
    ACTION(out, 0),     ACTION(peer, -1),  ACTION(tag, 0),   ACTION(flags, 0), ACTION(event, 0),
    ACTION(target, -1), ACTION(child, -1), ACTION(color, 0), ACTION(key, 0),   ACTION(plan, -1),
};
#define PROGRAM(name, usual)                                                                                                               \
    {                                                                                                                                      \
#        name, offsetof(struct random_program, name), usual                                                                                \
    }
static const struct field program_fields[] = {
    PROGRAM(ranks, 2),  PROGRAM(bytes, 0), PROGRAM(window, 64), PROGRAM(queue, 65536),      PROGRAM(minimal, 0), PROGRAM(progress, 1),
    PROGRAM(notify, 0), PROGRAM(wire, 0),  PROGRAM(hosts, 0),   PROGRAM(timeout_ms, 20000), PROGRAM(swarm, 0),
};
#define FAULT(name)                                                                                                                        \
    {                                                                                                                                      \
#        name, offsetof(struct random_fault, name), INT32_MIN                                                                              \
    }
static const struct field fault_fields[] = {FAULT(kind), FAULT(victim), FAULT(peer), FAULT(amount)};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static void print_fields(FILE *to, const void *of, const struct field *field, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int32_t value = *(const int32_t *)((const char *)of + field[i].at);
        if (value != field[i].usual)
            fprintf(to, " %s=%d", field[i].key, value);
    }
}

void random_print_action(FILE *to, const struct random_action *a)
{
    fprintf(to, "%d r%d c%d %s", a->id, a->rank, a->comm, random_verb_names[a->verb]);
    print_fields(to, a, action_fields, COUNT(action_fields));
    if (a->misuse)
        fprintf(to, " misuse=%s", random_misuse_names[a->misuse]);
    fputc('\n', to);
}

void random_print(FILE *to, const struct random_program *p)
{
    fprintf(to, "program seed=%" PRIu64 " schedule=%" PRIu64, p->seed, p->schedule);
    print_fields(to, p, program_fields, COUNT(program_fields));
    fputc('\n', to);
    for (int32_t i = 0; i < p->faults; i++) {
        fprintf(to, "fault event=%" PRIu64 " ns=%" PRId64, p->fault[i].event, p->fault[i].ns);
        print_fields(to, &p->fault[i], fault_fields, COUNT(fault_fields));
        fputc('\n', to);
    }
    for (int32_t i = 0; i < p->actions; i++)
        random_print_action(to, &p->action[i]);
}

/* ------------------------------------------------------------------------------------------------------------ reading */
static int32_t name_of(const char *word, const char *const *names, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(word, names[i]) == 0)
            return i;
    }
    return -1;
}

static bool read_number(const char *text, int32_t *value)
{
    char *end;
    long long number = strtoll(text, &end, 10);
    *value = (int32_t)number;
    return end != text && *end == 0 && number >= INT32_MIN && number <= INT32_MAX;
}

static bool read_field(char *word, void *into, const struct field *field, size_t count)
{
    char *value = strchr(word, '=');
    if (!value)
        return false;
    *value++ = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(word, field[i].key) == 0)
            return read_number(value, (int32_t *)((char *)into + field[i].at));
    }
    return false;
}

static void usual(void *into, const struct field *field, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *(int32_t *)((char *)into + field[i].at) = field[i].usual;
}

static bool read_action(char *word, char **rest, struct random_program *p)
{
    struct random_action *a = &p->action[p->actions];
    memset(a, 0, sizeof *a);
    usual(a, action_fields, COUNT(action_fields));
    char *rank = strtok_r(NULL, " \n", rest), *comm = strtok_r(NULL, " \n", rest), *verb = strtok_r(NULL, " \n", rest);
    if (p->actions == RANDOM_ACTIONS || !verb || *rank != 'r' || *comm != 'c' || !read_number(word, &a->id) ||
        !read_number(rank + 1, &a->rank) || !read_number(comm + 1, &a->comm))
        return false;
    a->verb = name_of(verb, random_verb_names, RANDOM_VERBS);
    if (a->verb < 0 || a->rank < 0 || a->rank >= p->ranks || a->comm < 0 || a->comm >= RANDOM_COMMS)
        return false;
    while ((word = strtok_r(NULL, " \n", rest))) {
        if (strncmp(word, "misuse=", 7) == 0)
            a->misuse = name_of(word + 7, random_misuse_names, RANDOM_MISUSES);
        else if (!read_field(word, a, action_fields, COUNT(action_fields)))
            return false;
    }
    p->actions++;
    return a->misuse >= 0 && a->type >= 0 && a->type < RANDOM_ARENAS && a->child < RANDOM_COMMS &&
           (a->plan < RANDOM_PLANS || a->plan >= RANDOM_GROUPS);
}

static bool read_fault(char **rest, struct random_program *p)
{
    struct random_fault *f = &p->fault[p->faults];
    if (p->faults == RANDOM_FAULTS)
        return false;
    memset(f, 0, sizeof *f);
    for (char *word; (word = strtok_r(NULL, " \n", rest));) {
        if (strncmp(word, "event=", 6) == 0)
            f->event = strtoull(word + 6, NULL, 10);
        else if (strncmp(word, "ns=", 3) == 0)
            f->ns = strtoll(word + 3, NULL, 10);
        else if (!read_field(word, f, fault_fields, COUNT(fault_fields)))
            return false;
    }
    p->faults++;
    return true;
}

static bool read_program(char **rest, struct random_program *p)
{
    usual(p, program_fields, COUNT(program_fields));
    for (char *word; (word = strtok_r(NULL, " \n", rest));) {
        if (strncmp(word, "seed=", 5) == 0)
            p->seed = strtoull(word + 5, NULL, 10);
        else if (strncmp(word, "schedule=", 9) == 0)
            p->schedule = strtoull(word + 9, NULL, 10);
        else if (!read_field(word, p, program_fields, COUNT(program_fields)))
            return false;
    }
    return p->ranks > 0 && p->ranks <= RANDOM_RANKS && p->bytes > 0;
}

int random_read(FILE *from, struct random_program *p)
{
    char line[512];
    p->seed = p->schedule = 0;
    p->ranks = p->actions = p->faults = 0;
    for (int number = 1; fgets(line, sizeof line, from); number++) {
        char *rest, *word = strtok_r(line, " \n", &rest);
        if (!word || *word == '#')
            continue;
        bool good = strcmp(word, "program") == 0 ? read_program(&rest, p)
                    : strcmp(word, "fault") == 0 ? read_fault(&rest, p)
                                                 : read_action(word, &rest, p);
        if (!good)
            return number;
    }
    return p->ranks > 0 ? 0 : 1;
}
