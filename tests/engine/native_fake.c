/* The fake native (native_fake.h): its operations, its class, and its place in the table of backends. */
#define _GNU_SOURCE
#include "engine/native_fake.h"
#include "engine/native_fake_notes.h"
#include "engine/native_fake_parks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "data/data.h"
#include "program/program.h"
#include "wire/table.h"

enum { OPS = 4096, RANKS = 64, CODE = 4711, GROUPS = 4096 };
struct fake_native fake;

/* One operation of a team: the contribution of each rank. */
struct op {
    struct native_call call[RANKS];
    void *in[RANKS]; /* a copy */
    uint64_t note[RANKS];
    uint32_t arrived, left;
};
/* The contribution of one rank. */
struct part {
    struct native_call call;
    struct note *note;
    uint32_t number, wait_looks;
    const _Atomic uint64_t *word; /* of a wait */
    uint64_t value;
    bool is_wait, reached, running, counted;
};
struct group {
    uint64_t id;
    int32_t size;
    uint32_t members;
    struct op *op[OPS];
};
struct channel {
    struct native_channel handle;
    struct group *group;
    int32_t rank, size;
    uint32_t next_op, first, count;
    uint32_t connects, kept;
    uint64_t chance, last_cookie;
    struct notes notes;
    bool aborted;
    struct part part[OPS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct group *groups[GROUPS];
static _Thread_local bool of_program;

void fake_program_thread(void)
{
    of_program = true;
}

static uint64_t chance_next(uint64_t *chance)
{
    *chance += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *chance;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 27;
}

void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
}

/* For suites that do not know the fake, the environment sets its mode: FAKE_NATIVE="late partly stream". */
__attribute__((constructor)) static void fake_from_environment(void)
{
    const char *mode = getenv("FAKE_NATIVE");
    if (!mode)
        return;
    fake.delay = strstr(mode, "late") ? 7 : 0;
    fake.connects = fake.delay;
    fake.partly = strstr(mode, "partly") != NULL;
    fake.flags = strstr(mode, "stream") ? NATIVE_STREAM : strstr(mode, "stands") ? NATIVE_STANDS : 0;
}

static enum comm_result step(enum fake_function function)
{
    uint64_t number = atomic_fetch_add(&fake.calls[function], 1) + 1;
    bool due = function == FAKE_ACCEPT ? number >= fake.fails_at : number == fake.fails_at; /* a call shape may be queried more than once */
    if (fake.fails != function || !due)
        return COMM_OK;
    return fake.result ? (enum comm_result)fake.result : COMM_ERR_BACKEND;
}

/* ------------------------------------------------------------------------------------------------------------ contributions of the ranks
 */
static size_t in_bytes(const struct channel *c, const struct native_call *call)
{
    size_t n = call->collective == COLLECTIVE_ALLGATHER_V ? call->counts[c->rank] : call->n;
    if (call->collective == COLLECTIVE_REDUCE_SCATTER_V)
        n = call->displs[c->size - 1] + call->counts[c->size - 1];
    return call->collective == COLLECTIVE_BARRIER ? 0 : n * call->element_bytes;
}

static bool is_alike(const struct native_call *a, const struct native_call *b)
{
    return a->collective == b->collective && a->type == b->type && a->op == b->op && a->n == b->n && a->root == b->root;
}

static struct op *bring(struct channel *c, struct part *p)
{
    struct op **at = &c->group->op[p->number % OPS];
    if (!*at)
        *at = calloc(1, sizeof **at);
    struct op *op = *at;
    size_t bytes = in_bytes(c, &p->call);
    op->call[c->rank] = p->call;
    op->note[c->rank] = p->note ? p->note->number : 0;
    op->in[c->rank] = malloc(bytes + 1);
    if (bytes)
        memcpy(op->in[c->rank], p->call.in, bytes);
    op->arrived++;
    for (int32_t r = 0; r < c->size; r++)
        if (op->in[r] && (!is_alike(&op->call[r], &p->call) || op->note[r] != op->note[c->rank]))
            atomic_fetch_add(&fake.mixed, 1);
    p->running = true;
    return op;
}

/* A broadcast needs only its root; any other operation needs all ranks. */
static bool may_end(const struct channel *c, const struct part *p, const struct op *op)
{
    return p->call.collective == COLLECTIVE_BROADCAST ? op->in[p->call.root] != NULL : op->arrived == (uint32_t)c->size;
}

static void deliver(struct channel *c, const struct part *p, const struct op *op)
{
    const struct native_call *call = &p->call;
    const void *from[RANKS];
    for (int32_t r = 0; r < c->size; r++)
        from[r] = op->in[r];
    if (call->collective == COLLECTIVE_BROADCAST && c->rank != call->root && call->n)
        memcpy(call->out, from[call->root], call->n * call->element_bytes);
    if (call->collective == COLLECTIVE_ALLREDUCE && call->n)
        data_reducer(call->type, call->op, DATA_SCALAR)(&(struct data_reduce){
            .from = from, .ways = (uint32_t)c->size, .divisor = (uint32_t)c->size, .to = call->out, .elements = call->n, .final = true});
    if (call->collective == COLLECTIVE_REDUCE_SCATTER_V && call->counts[c->rank]) {
        for (int32_t r = 0; r < c->size; r++)
            from[r] = (const char *)from[r] + call->displs[c->rank] * call->element_bytes;
        data_reducer(call->type, call->op, DATA_SCALAR)(&(struct data_reduce){.from = from,
                                                                              .ways = (uint32_t)c->size,
                                                                              .divisor = (uint32_t)c->size,
                                                                              .to = call->out,
                                                                              .elements = call->counts[c->rank],
                                                                              .final = true});
    }
    for (int32_t r = 0; call->collective == COLLECTIVE_ALLGATHER_V && r < c->size; r++)
        if (call->counts[r])
            memmove((char *)call->out + call->displs[r] * call->element_bytes, from[r], call->counts[r] * call->element_bytes);
    for (int32_t r = 0; call->collective == COLLECTIVE_ALLGATHER && r < c->size && call->n; r++)
        memmove((char *)call->out + (size_t)r * call->n * call->element_bytes, from[r], call->n * call->element_bytes);
}

static void leave_op(struct channel *c, const struct part *p)
{
    struct op **at = &c->group->op[p->number % OPS];
    if (++(*at)->left < (uint32_t)c->size)
        return;
    for (int32_t r = 0; r < c->size; r++)
        free((*at)->in[r]);
    free(*at);
    *at = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ the class */
static enum comm_result fake_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    enum comm_result r = step(FAKE_PROBE);
    base_copy_text(version, NATIVE_VERSION_BYTES, "fake 1.0");
    if (r != COMM_OK)
        base_format(config->error_text, config->error_text_bytes, "fake is not installed: install it");
    return r;
}

static enum comm_result fake_open(const struct native_config *config, struct native **native)
{
    extern const struct native_class native_fake;
    enum comm_result r = step(FAKE_OPEN);
    if (r != COMM_OK) {
        base_format(config->error_text, config->error_text_bytes, "fake does not open");
        return r;
    }
    *native = calloc(1, sizeof **native);
    **native = (struct native){&native_fake, fake.flags, 0};
    atomic_fetch_add(&fake.natives, 1);
    return COMM_OK;
}

static void fake_close(struct native *native)
{
    atomic_fetch_sub(&fake.natives, 1);
    free(native);
}

static struct group *group_of(uint64_t id, int32_t size)
{
    struct group **free_one = NULL;
    for (size_t i = 0; i < GROUPS; i++) {
        if (groups[i] && groups[i]->id == id)
            return groups[i];
        if (!groups[i] && !free_one)
            free_one = &groups[i];
    }
    *free_one = calloc(1, sizeof **free_one);
    (*free_one)->id = id;
    (*free_one)->size = size;
    return *free_one;
}

static void channel_free(struct channel *c)
{
    struct group *g = c->group;
    notes_free(&c->notes);
    if (--g->members == 0) {
        for (size_t i = 0; i < OPS; i++) {
            for (int32_t r = 0; g->op[i] && r < g->size; r++)
                free(g->op[i]->in[r]);
            free(g->op[i]);
        }
        for (size_t i = 0; i < GROUPS; i++)
            if (groups[i] == g)
                groups[i] = NULL;
        free(g);
    }
    free(c);
    atomic_fetch_sub(&fake.channels, 1);
}

static enum comm_result fake_join(struct native *native, const struct wire_team *team, const void *offers, void *offer,
                                  struct native_channel **channel)
{
    enum comm_result r = step(offers ? FAKE_CONNECT : FAKE_JOIN);
    if (offers) {
        for (int32_t i = 0; i < team->size; i++)
            if (((const unsigned char *)offers)[(size_t)i * NATIVE_OFFER_BYTES] != (unsigned char)(i + 1))
                r = COMM_ERR_CORRUPT;
        if (r != COMM_OK) {
            pthread_mutex_lock(&lock);
            channel_free((struct channel *)*channel);
            pthread_mutex_unlock(&lock);
        }
        return r;
    }
    bool child = strcmp(fake.no_child ? "none" : "", "none") == 0 && atomic_load(&fake.channels) >= (uint64_t)team->size;
    if (child || (fake.no_rank_0 && team->rank == 0 && atomic_load(&fake.calls[FAKE_JOIN]) > (uint64_t)team->size))
        return COMM_ERR_UNSUPPORTED;
    if (r != COMM_OK)
        return r;
    struct channel *c = calloc(1, sizeof *c);
    pthread_mutex_lock(&lock);
    c->handle.native = native;
    c->group = group_of(team->id, team->size);
    c->group->members++;
    c->rank = team->rank;
    c->size = team->size;
    c->connects = fake.connects;
    c->chance = fake.seed ^ team->id ^ (uint64_t)team->rank;
    *(unsigned char *)offer = (unsigned char)(team->rank + 1);
    *channel = &c->handle;
    atomic_fetch_add(&fake.channels, 1);
    pthread_mutex_unlock(&lock);
    return COMM_OK;
}

static enum comm_result fake_joined(struct native_channel *channel)
{
    struct channel *c = (struct channel *)channel;
    enum comm_result r = step(FAKE_JOINED);
    if (r != COMM_OK || !c->connects)
        return r;
    c->connects--;
    return COMM_PENDING;
}

static bool fake_lacks(uint32_t collective)
{
    return collective != COLLECTIVE_BARRIER && collective != COLLECTIVE_BROADCAST && collective != COLLECTIVE_ALLREDUCE &&
           collective != COLLECTIVE_ALLGATHER && collective != COLLECTIVE_ALLGATHER_V &&
           (collective != COLLECTIVE_REDUCE_SCATTER_V || !fake.scatters);
}

static enum comm_result fake_accept(struct native_channel *channel, const struct native_call *call, char *why, size_t why_bytes)
{
    enum comm_result r = step(FAKE_ACCEPT);
    (void)channel;
    if (r != COMM_OK)
        base_format(why, why_bytes, "fake does not like the buffer");
    else if (fake_lacks(call->collective) || (fake.partly && call->n % 3 == 1))
        r = COMM_ERR_UNSUPPORTED;
    return r;
}

static struct part *add_part(struct channel *c, uint64_t cookie)
{
    struct part *p = &c->part[(c->first + c->count++) % OPS];
    if (c->last_cookie >= cookie)
        atomic_fetch_add(&fake.order, 1);
    c->last_cookie = cookie;
    *p = (struct part){.wait_looks = fake.delay ? (uint32_t)(chance_next(&c->chance) % (fake.delay + 1)) : 0};
    return p;
}

static void fake_forget(struct native_channel *channel, void *standing)
{
    pthread_mutex_lock(&lock);
    note_forget(&((struct channel *)channel)->notes, standing);
    pthread_mutex_unlock(&lock);
}

static enum comm_result fake_start(struct native_channel *channel, const struct native_call *call, int32_t *code)
{
    struct channel *c = (struct channel *)channel;
    enum comm_result r = step(FAKE_START);
    *code = CODE;
    atomic_fetch_add(&fake.strangers, !of_program);
    if (r != COMM_OK)
        return r;
    pthread_mutex_lock(&lock);
    struct part *p = add_part(c, call->cookie);
    p->call = *call;
    p->note = call->standing ? note_start(&c->notes, call) : NULL;
    p->number = c->next_op++;
    if (!(fake.flags & NATIVE_STREAM))
        bring(c, p);
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&fake.started, 1);
    return COMM_OK;
}

static enum comm_result fake_wait(struct native_channel *channel, const struct native_point *point, uint64_t cookie)
{
    struct channel *c = (struct channel *)channel;
    if (fake.parks_not && !point->word)
        return COMM_ERR_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    bool there = point->word || parks_take(&c->kept);
    if (there) {
        struct part *p = add_part(c, cookie);
        p->call.cookie = cookie;
        p->is_wait = true;
        p->word = point->word;
        p->value = point->value;
    }
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&fake.waits, there);
    return there ? COMM_OK : COMM_ERR_FULL;
}

static enum comm_result fake_keep_waits(struct native_channel *channel, uint32_t count)
{
    pthread_mutex_lock(&lock);
    enum comm_result r = parks_keep(&((struct channel *)channel)->kept, count);
    pthread_mutex_unlock(&lock);
    return r;
}

static void fake_reach(struct native_channel *channel, uint64_t cookie)
{
    struct channel *c = (struct channel *)channel;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < c->count; i++) {
        struct part *p = &c->part[(c->first + i) % OPS];
        if (!p->is_wait || p->call.cookie != cookie)
            continue;
        p->reached = true;
        fake.parked--;
    }
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&fake.reached, 1);
}

/* True: the operation ended. */
static bool look(struct channel *c, struct part *p)
{
    if (p->is_wait)
        return p->word ? atomic_load(p->word) >= p->value : p->reached;
    struct op *op = p->running ? c->group->op[p->number % OPS] : bring(c, p);
    if (!may_end(c, p, op) || fake.stalls)
        return false;
    if (p->wait_looks && p->wait_looks--)
        return false;
    deliver(c, p, op);
    leave_op(c, p);
    if (p->note)
        p->note->runs = false;
    return true;
}

static void remove_part(struct channel *c, uint32_t i)
{
    for (; i + 1 < c->count; i++)
        c->part[(c->first + i) % OPS] = c->part[(c->first + i + 1) % OPS];
    c->count--;
}

static void take_long(void)
{
    const struct comm_env *env = wire_default_env();
    for (int64_t since = env->now(env); env->now(env) - since < fake.look_ns;)
        continue;
}

static uint32_t fake_advance(struct native_channel *channel, struct native_event *events, uint32_t max)
{
    struct channel *c = (struct channel *)channel;
    uint32_t made = 0;
    if (fake.look_ns)
        take_long();
    atomic_fetch_add(&fake.strangers, !of_program);
    atomic_fetch_add(&fake.looks, 1);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < c->count && made < max;) {
        struct part *p = &c->part[(c->first + i) % OPS];
        uint64_t cookie = p->call.cookie;
        if (look(c, p)) {
            enum comm_result r = step(FAKE_ENDS);
            events[made++] = (struct native_event){cookie, r, r == COMM_OK ? 0 : CODE};
            remove_part(c, i);
            atomic_fetch_add(&fake.ended, 1);
        } else if (fake.flags & NATIVE_STREAM) {
            break;
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&lock);
    return made;
}

static uint32_t fake_leave(struct native_channel *channel, enum native_leave how)
{
    struct channel *c = (struct channel *)channel;
    atomic_fetch_add(&fake.failed, how == NATIVE_LEAVE_FAILED);
    atomic_fetch_add(&fake.gone, how == NATIVE_LEAVE_GONE);
    pthread_mutex_lock(&lock);
    static struct channel *kept[GROUPS]; /* kept on purpose, and reachable, so that a leak detector accepts it */
    static uint32_t count;
    uint32_t left = fake.holds ? c->count : 0;
    if (how == NATIVE_LEAVE_CLOSE && left)
        kept[count++ % GROUPS] = c;
    (void)kept;
    if (how == NATIVE_LEAVE_CLOSE && !left)
        channel_free(c);
    pthread_mutex_unlock(&lock);
    return left;
}

static void fake_explain(struct native *native, int32_t code, char *text, size_t bytes)
{
    (void)native;
    base_format(text, bytes, "the fake's error %d", code);
}

extern const struct native_class native_fake;
const struct native_class native_fake = {
    .name = "fake",
    .probe = fake_probe,
    .open = fake_open,
    .join = fake_join,
    .joined = fake_joined,
    .accept = fake_accept,
    .start = fake_start,
    .forget = fake_forget,
    .wait = fake_wait,
    .keep_waits = fake_keep_waits,
    .reach = fake_reach,
    .advance = fake_advance,
    .leave = fake_leave,
    .explain = fake_explain,
    .close = fake_close,
};

/* ------------------------------------------------------------------------------------------------------------ the table of backends */
const struct wire_backend *__real_wire_backend_find(const char *name);
const struct wire_backend *__wrap_wire_backend_find(const char *name);
const struct wire_backend *__wrap_wire_backend_find(const char *name)
{
    static struct wire_backend with;
    const struct wire_backend *found = __real_wire_backend_find(name);
    if (!found || strcmp(found->name, fake.on_shm ? "shm" : "local") != 0)
        return found;
    pthread_mutex_lock(&lock); /* several threads may open a world */
    if (!with.native) {        /* only once, because an open engine reads it */
        with = *found;
        with.native = &native_fake;
    }
    pthread_mutex_unlock(&lock);
    return &with;
}
