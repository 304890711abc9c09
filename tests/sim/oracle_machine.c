/* The two lines of every communicator, exactly as the contract says and no faster; and whole runs, of them and of the hosts. */
#include "sim/oracle_machine.h"
#include "sim/oracle_race.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ starting */
static bool same_pair(const struct random_action *a, const struct random_action *b)
{
    return a->peer == b->peer || (a->flags & RANDOM_ANY_PEER) || (b->flags & RANDOM_ANY_PEER);
}

/* Sends and calls on windows go one way, receives the other: a delayed one delays later ones of its pair and direction. */
static bool same_way(const struct oracle_entry *e, const struct oracle_entry *f)
{
    return (e->kind == ORACLE_RECV) == (f->kind == ORACLE_RECV);
}

/* Whether f, which is earlier and not done, keeps e from starting. */
static bool holds_back(const struct oracle *o, const struct oracle_entry *f, const struct oracle_entry *e)
{
    const struct random_action *a = oracle_action(o, f), *b = oracle_action(o, e);
    if (f->kind == ORACLE_BESIDE || e->kind == ORACLE_BESIDE)
        return false;
    if (f->kind == ORACLE_FENCE)
        return !oracle_is_message(e) || !oracle_point_reached(o, &f->point, f->rank);
    if (!oracle_is_message(e)) {
        if (!oracle_is_message(f) && (f->state == ORACLE_QUEUED || f->kind == ORACLE_MEET || e->kind == ORACLE_MEET))
            return true;
    } else if (oracle_is_message(f)) {
        if (same_way(e, f) && f->state == ORACLE_QUEUED && same_pair(a, b))
            return true;
    }
    if (f->kind == ORACLE_ATOMIC && (b->verb == RANDOM_WINDOW_FENCE || b->verb == RANDOM_WINDOW_FREE))
        return true;
    return e->kind != ORACLE_FENCE && random_conflict(a, b, &o->comms);
}

/* The library may pack the small allreduces of a group into one exchange, which starts when all of them can. */
static bool together(const struct oracle *o, const struct oracle_entry *e, const struct oracle_entry *f)
{
    const struct random_action *a = oracle_action(o, e), *b = oracle_action(o, f);
    return e->issue == f->issue && a->plan >= RANDOM_GROUPS && a->verb == RANDOM_ALLREDUCE && b->verb == RANDOM_ALLREDUCE;
}

static bool may_start_alone(const struct oracle *o, const struct oracle_entry *e)
{
    const struct oracle_line *line = &o->line[e->comm][e->rank];
    if (!oracle_is_message(e) && line->running >= ORACLE_WINDOW)
        return false;
    for (int16_t i = line->head; &o->entry[i] != e; i = o->entry[i].next) {
        const struct oracle_entry *f = &o->entry[i];
        if (f->state != ORACLE_DONE && !together(o, e, f) && holds_back(o, f, e))
            return false;
    }
    return true;
}

static bool may_start(const struct oracle *o, const struct oracle_entry *e)
{
    for (int16_t i = o->line[e->comm][e->rank].head; i >= 0; i = o->entry[i].next) {
        const struct oracle_entry *f = &o->entry[i];
        if ((f == e || together(o, e, f)) && f->state == ORACLE_QUEUED && !may_start_alone(o, f))
            return false;
    }
    return true;
}

static void finish(struct oracle *o, struct oracle_entry *e)
{
    struct oracle_line *line = &o->line[e->comm][e->rank];
    e->state = ORACLE_DONE;
    o->left[e->issue]--;
    if (oracle_is_message(e)) {
        line->messages--;
    } else {
        line->work -= oracle_places(oracle_action(o, e));
        line->running--;
    }
}

static bool matches(const struct random_action *send, const struct random_action *recv)
{
    bool peer = recv->peer == send->rank || (recv->flags & RANDOM_ANY_PEER);
    return peer && send->peer == recv->rank && (recv->tag == send->tag || (recv->flags & RANDOM_ANY_TAG)) && !(recv->flags & RANDOM_DOOMED);
}

/* The first entry of that rank's line that is started, not matched, and matches e. */
static struct oracle_entry *match_in(struct oracle *o, const struct oracle_entry *e, int32_t rank)
{
    for (int16_t i = o->line[e->comm][rank].head; i >= 0; i = o->entry[i].next) {
        struct oracle_entry *f = &o->entry[i];
        if (f->state != ORACLE_STARTED || !oracle_is_message(f) || f->kind == e->kind || f->kind > ORACLE_RECV || f == e)
            continue;
        bool fits =
            e->kind == ORACLE_SEND ? matches(oracle_action(o, e), oracle_action(o, f)) : matches(oracle_action(o, f), oracle_action(o, e));
        if (fits)
            return f;
    }
    return NULL;
}

static void match(struct oracle *o, struct oracle_entry *e, struct oracle_memory *memory)
{
    const struct random_action *a = oracle_action(o, e);
    struct oracle_entry *other = NULL;
    bool any = e->kind == ORACLE_RECV && (a->flags & RANDOM_ANY_PEER);
    for (int32_t r = any ? 0 : a->peer; !other && r < (any ? o->program->ranks : a->peer + 1); r++)
        other = match_in(o, e, r);
    if (!other)
        return;
    const struct random_action *send = oracle_action(o, e->kind == ORACLE_SEND ? e : other);
    const struct random_action *recv = oracle_action(o, e->kind == ORACLE_SEND ? other : e);
    bool longer = send->n * random_unit(send->type) > recv->n * random_unit(recv->type);
    if (longer != ((recv->flags & RANDOM_SHORT) != 0))
        oracle_wrong(o, e->action, "a receive gets a message that was meant for another");
    if (memory)
        oracle_message(o, memory, e->kind == ORACLE_SEND ? e : other, e->kind == ORACLE_SEND ? other : e);
    finish(o, other);
    finish(o, e);
}

/* Checks whether all members have called. */
static void meet(struct oracle *o, const struct oracle_entry *e)
{
    const struct random_action *a = oracle_action(o, e);
    int32_t called = 0, expected = o->comms.comm[a->verb == RANDOM_SUBSET ? a->child : a->comm].members;
    for (int32_t i = 0; i < o->entries; i++)
        called += oracle_action(o, &o->entry[i])->id == a->id && o->entry[i].state == ORACLE_STARTED;
    for (int32_t i = 0; i < o->entries && called == expected; i++) {
        if (oracle_action(o, &o->entry[i])->id == a->id)
            finish(o, &o->entry[i]);
    }
}

static void start(struct oracle *o, struct oracle_entry *e, struct oracle_memory *memory)
{
    e->state = ORACLE_STARTED;
    if (e->kind == ORACLE_BESIDE) {
        meet(o, e);
        return;
    }
    if (e->kind == ORACLE_ATOMIC) {
        finish(o, e);
        return;
    }
    if (oracle_is_message(e)) {
        match(o, e, memory);
        return;
    }
    o->line[e->comm][e->rank].running++;
    if (e->kind == ORACLE_REFUSED || e->slot < 0)
        return;
    struct oracle_slot *slot = &o->slot[e->slot];
    if (++slot->started < o->comms.comm[e->comm].members)
        return;
    slot->data = true;
    for (int32_t i = 1; i < slot->started; i++) {
        if (oracle_action(o, &o->entry[slot->entry[i]])->id != oracle_action(o, &o->entry[slot->entry[0]])->id)
            oracle_wrong(o, e->action, "ranks make different calls");
    }
    if (memory)
        oracle_collective(o, memory, slot);
}

static bool may_finish(const struct oracle *o, const struct oracle_entry *e)
{
    if (oracle_is_message(e))
        return false;
    if (e->kind == ORACLE_FENCE ? !oracle_point_reached(o, &e->point, e->rank) : e->kind != ORACLE_REFUSED && !o->slot[e->slot].data)
        return false;
    for (int16_t i = o->line[e->comm][e->rank].head; &o->entry[i] != e; i = o->entry[i].next) {
        if (o->entry[i].state != ORACLE_DONE && !oracle_is_message(&o->entry[i]))
            return false;
    }
    return true;
}

static bool settle(struct oracle *o, struct oracle_line *line, struct oracle_memory *memory)
{
    bool moved = false;
    for (int16_t i = line->head; i >= 0; i = o->entry[i].next) {
        struct oracle_entry *e = &o->entry[i];
        if (e->state == ORACLE_QUEUED && may_start(o, e)) {
            start(o, e, memory);
            moved = true;
        }
        if (e->state == ORACLE_STARTED && may_finish(o, e)) {
            finish(o, e);
            moved = true;
        }
    }
    while (line->head >= 0 && o->entry[line->head].state == ORACLE_DONE) {
        line->head = o->entry[line->head].next;
        moved = true;
    }
    return moved;
}

/* ------------------------------------------------------------------------------------------------------------ running */
void oracle_start(struct oracle *o, const struct random_program *p)
{
    memset(o, 0, offsetof(struct oracle, entry));
    o->entries = 0;
    o->wrong = NULL;
    o->program = p;
    memset(o->slot_of, -1, sizeof o->slot_of);
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        for (int32_t r = 0; r < RANDOM_RANKS; r++)
            o->line[c][r].head = o->line[c][r].tail = ORACLE_NONE;
    }
    oracle_more(o, 0);
}

void oracle_more(struct oracle *o, int32_t from)
{
    const struct random_program *p = o->program;
    for (int32_t i = from; i < p->actions; i++) {
        int32_t rank = p->action[i].rank;
        o->left[i] = ORACLE_NONE;
        if (o->owns[rank] == RANDOM_OWN)
            oracle_wrong(o, i, "too many actions of one rank");
        else
            o->own[rank][o->owns[rank]++] = (int16_t)i;
    }
    random_comms_of(p, &o->comms);
}

/* A wait for a missing request, which a rank replaces by a wait for everything under way, does not wait for anything
 * later. */
static bool gives_in(struct oracle *o)
{
    for (int32_t r = 0; r < o->program->ranks; r++) {
        const struct random_action *a = o->at[r] < o->owns[r] ? &o->program->action[o->own[r][o->at[r]]] : NULL;
        if (a && a->verb == RANDOM_SYNC && (a->flags & RANDOM_NOBODYS)) {
            o->at[r]++;
            return true;
        }
    }
    return false;
}

void oracle_run(struct oracle *o, struct oracle_memory *memory)
{
    for (bool moved = true; !o->wrong && (moved || gives_in(o));) {
        moved = false;
        for (int32_t r = 0; r < o->program->ranks; r++) {
            while (o->at[r] < o->owns[r] && !o->wrong && oracle_host_step(o, r, memory)) {
                o->at[r]++;
                moved = true;
            }
        }
        for (int32_t c = 0; c < RANDOM_COMMS; c++) {
            for (int32_t r = 0; r < o->program->ranks; r++) {
                while (o->line[c][r].head >= 0 && settle(o, &o->line[c][r], memory))
                    moved = true;
            }
        }
    }
}

bool oracle_ended(const struct oracle *o)
{
    if (o->wrong)
        return false;
    for (int32_t r = 0; r < o->program->ranks; r++) {
        if (o->at[r] < o->owns[r])
            return false;
    }
    for (int32_t i = 0; i < o->entries; i++) {
        if (o->entry[i].state != ORACLE_DONE)
            return false;
    }
    return true;
}

void oracle_copy(struct oracle *to, const struct oracle *from)
{
    memcpy(to, from, offsetof(struct oracle, entry) + (size_t)from->entries * sizeof from->entry[0]);
    to->entries = from->entries;
    to->wrong = from->wrong;
    to->wrong_at = from->wrong_at;
}

void oracle_print(FILE *to, const struct oracle *o)
{
    if (o->wrong)
        fprintf(to, "wrong at action %d: %s\n", o->wrong_at, o->wrong);
    for (int32_t r = 0; r < o->program->ranks; r++) {
        if (o->at[r] < o->owns[r]) {
            fprintf(to, "rank %d stands at: ", r);
            random_print_action(to, &o->program->action[o->own[r][o->at[r]]]);
        }
    }
    for (int32_t i = 0; i < o->entries; i++) {
        static const char *const names[] = {"queued", "started", "data", "done"};
        if (o->entry[i].state == ORACLE_DONE)
            continue;
        fprintf(to, "%s: ", names[o->entry[i].state]);
        random_print_action(to, oracle_action(o, &o->entry[i]));
    }
}

bool oracle_legal(const struct random_program *p, const char **why, int32_t *action)
{
    struct oracle *o = malloc(sizeof *o);
    *why = "no memory";
    *action = 0;
    if (!o)
        return false;
    oracle_start(o, p);
    *why = oracle_race(p, &o->comms, action);
    if (!*why) {
        oracle_run(o, NULL);
        *why = o->wrong ? o->wrong : oracle_ended(o) ? NULL : "it does not end";
        *action = o->wrong_at;
    }
    free(o);
    return *why == NULL;
}
