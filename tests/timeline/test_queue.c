/* The work line: tickets, window, growth, starting order against a plain model of the contract's 1.4 and 1.5, retiring, failing. */
#define _GNU_SOURCE
#include "timeline/fake_env.h"
#include "timeline/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* An owner's entry: the head, and something behind it that must survive growing. */
struct item {
    struct timeline_entry head;
    uint64_t mark;
};

struct fixture {
    struct timeline line;
    struct comm_communicator *handle;
};

static void open_line(struct fixture *f, uint32_t window, uint32_t capacity)
{
    f->handle = timeline_handle_take(&fake_env, f);
    assert_non_null(f->handle);
    assert_int_equal(timeline_open(&f->line, &fake_env, f->handle, sizeof(struct item), window, capacity), COMM_OK);
}

static void close_line(struct fixture *f)
{
    timeline_close(&f->line);
    timeline_handle_give(f->handle);
}

static struct item *item_of(struct timeline *line, uint64_t ticket)
{
    return (struct item *)(void *)timeline_entry(line, ticket);
}

static struct timeline_entry *fill(struct timeline *line, enum timeline_kind kind, struct timeline_range read, struct timeline_range write)
{
    enum comm_result why;
    struct item *item = (struct item *)(void *)timeline_room(line, &why);

    assert_non_null(item);
    item->head = (struct timeline_entry){.kind = (uint8_t)kind, .read = read, .write = write};
    item->mark = line->next * 7;
    return &item->head;
}

static uint64_t issue(struct timeline *line, enum timeline_kind kind, struct timeline_range read, struct timeline_range write)
{
    fill(line, kind, read, write);
    return timeline_issue(line);
}

static uint64_t issue_free(struct timeline *line)
{
    return issue(line, TIMELINE_WORK, (struct timeline_range){0, 0}, (struct timeline_range){0, 0});
}

static uint64_t start_next(struct timeline *line)
{
    uint64_t ticket = timeline_startable(line);

    if (ticket)
        timeline_start(line, ticket);
    return ticket;
}

static void retire_all(struct timeline *line)
{
    for (uint64_t t; (t = timeline_retirable(line)) != 0;) {
        assert_int_equal(t, line->done + 1);
        assert_int_equal(item_of(line, t)->mark, t * 7);
        timeline_retire(line);
    }
}

static enum comm_result test_ticket(struct fixture *f, uint64_t ticket)
{
    return timeline_test((struct comm_request){f->handle, ticket});
}

/* ------------------------------------------------------------------------------------------------------------ order */
static void tickets_and_order(void **state)
{
    struct fixture f;
    (void)state;
    open_line(&f, 64, 1024);
    uint64_t first = issue_free(&f.line);
    assert_int_equal(test_ticket(&f, first + 1), COMM_ERR_ARGUMENT); /* not issued yet */
    for (uint64_t i = 1; i < 5; i++)
        assert_int_equal(issue_free(&f.line), first + i);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(start_next(&f.line), first + i);
    assert_int_equal(start_next(&f.line), 0);
    for (uint64_t i = 4; i > 0; i--) { /* the youngest ends first: nothing retires */
        timeline_end(&f.line, first + i, COMM_OK);
        retire_all(&f.line);
        assert_int_equal(test_ticket(&f, first + i), COMM_PENDING);
    }
    timeline_end(&f.line, first, COMM_ERR_TRUNCATED);
    retire_all(&f.line);
    assert_int_equal(test_ticket(&f, first), COMM_ERR_TRUNCATED);
    for (uint64_t i = 1; i < 5; i++)
        assert_int_equal(test_ticket(&f, first + i), COMM_OK);
    close_line(&f);
}

static void window_bounds_what_runs(void **state)
{
    struct fixture f;
    (void)state;
    open_line(&f, 4, 1024);
    uint64_t first = issue_free(&f.line);
    for (int i = 1; i < 20; i++)
        issue_free(&f.line);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(start_next(&f.line), first + i);
    assert_int_equal(timeline_startable(&f.line), 0);
    timeline_end(&f.line, first + 1, COMM_OK); /* not the oldest: its place is not free yet */
    retire_all(&f.line);
    assert_int_equal(timeline_startable(&f.line), 0);
    timeline_end(&f.line, first, COMM_OK);
    retire_all(&f.line);
    assert_int_equal(start_next(&f.line), first + 4);
    assert_int_equal(start_next(&f.line), first + 5);
    assert_int_equal(timeline_startable(&f.line), 0);
    close_line(&f);
}

/* ------------------------------------------------------------------------------------------------------------ growth */
static void growth_to_the_bound(void **state)
{
    enum { BOUND = 512 };
    struct fixture f;
    enum comm_result why;
    long before = fake_held;
    (void)state;
    open_line(&f, 4, BOUND);
    uint64_t first = f.line.next;
    for (int i = 0; i < BOUND; i++)
        issue_free(&f.line);
    assert_null(timeline_room(&f.line, &why));
    assert_int_equal(why, COMM_ERR_FULL);
    assert_int_equal(f.line.next, first + BOUND); /* nothing was queued */
    assert_int_equal(f.line.high_water, BOUND);
    uint64_t oldest = start_next(&f.line);
    timeline_end(&f.line, oldest, COMM_OK);
    retire_all(&f.line);
    issue_free(&f.line);
    assert_null(timeline_room(&f.line, &why));
    while ((oldest = start_next(&f.line)) != 0) {
        timeline_end(&f.line, oldest, COMM_OK);
        retire_all(&f.line);
    }
    assert_int_equal(f.line.done, first + BOUND);
    assert_non_null(timeline_room(&f.line, &why));
    close_line(&f);
    assert_true(fake_held <= before + 1); /* a handle may be new, and is kept */
}

static void no_memory_to_grow(void **state)
{
    struct fixture f;
    enum comm_result why;
    (void)state;
    open_line(&f, 4, 512);
    uint64_t first = f.line.next;
    for (int i = 0; i < 64; i++)
        issue_free(&f.line);
    fake_left = 0;
    assert_null(timeline_room(&f.line, &why));
    fake_left = -1;
    assert_int_equal(why, COMM_ERR_FULL);
    assert_int_equal(f.line.next, first + 64);
    assert_int_equal(issue_free(&f.line), first + 64);
    for (uint64_t t; (t = start_next(&f.line)) != 0;) {
        timeline_end(&f.line, t, COMM_OK);
        retire_all(&f.line);
    }
    assert_int_equal(f.line.done, first + 64);
    close_line(&f);
    fake_left = 1; /* the handle is a used one, or takes the last memory there is */
    f.handle = timeline_handle_take(&fake_env, NULL);
    assert_non_null(f.handle);
    fake_left = 0;
    assert_int_equal(timeline_open(&f.line, &fake_env, f.handle, sizeof(struct item), 4, 64), COMM_ERR_MEMORY);
    fake_left = -1;
    close_line(&f);
}

/* Room for several, in one growth or not at all. */
static void room_for_several(void **state)
{
    struct fixture f;
    enum comm_result why;
    (void)state;
    open_line(&f, 4, 512);
    for (int i = 0; i < 60; i++)
        issue_free(&f.line);
    assert_true(timeline_reserve(&f.line, 4));
    assert_int_equal(f.line.capacity, 64);
    assert_false(timeline_reserve(&f.line, 453)); /* one more than the bound */
    assert_int_equal(f.line.capacity, 64);
    fake_left = 0;
    assert_false(timeline_reserve(&f.line, 5));
    fake_left = -1;
    assert_true(timeline_reserve(&f.line, 452));
    fake_left = 0; /* no memory is asked for any more */
    for (int i = 0; i < 452; i++)
        issue_free(&f.line);
    fake_left = -1;
    assert_null(timeline_room(&f.line, &why));
    assert_int_equal(why, COMM_ERR_FULL);
    for (uint64_t t; (t = start_next(&f.line)) != 0;) {
        timeline_end(&f.line, t, COMM_OK);
        retire_all(&f.line);
    }
    assert_int_equal(f.line.done + 1, f.line.next);
    close_line(&f);
}

/* ------------------------------------------------------------------------------------------------------------ against a model */
enum { MODEL_MOST = 96, MODEL_BYTES = 24 };
struct model_entry {
    uint64_t ticket;
    enum timeline_kind kind;
    struct timeline_range read, write;
    uint32_t nth; /* entries of the same call before this one */
    bool started, ended;
};
struct model {
    struct model_entry entry[MODEL_MOST]; /* unfinished or not retired, in order */
    int count;
    uint32_t window;
};

static uint64_t random_state;
static uint32_t random_below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % n;
}

static bool bytes_meet(struct timeline_range a, struct timeline_range b)
{
    for (uintptr_t i = a.from; i < a.to; i++)
        if (i >= b.from && i < b.to)
            return true;
    return false;
}

static bool ranges_conflict(const struct model_entry *old, struct timeline_range read, struct timeline_range write)
{
    return bytes_meet(old->write, read) || bytes_meet(old->write, write) || bytes_meet(old->read, write);
}

/* The rule as it is written: all earlier work has started, and nothing unfinished before it conflicts. */
static bool model_may_start(const struct model *m, int at)
{
    const struct model_entry *e = &m->entry[at];

    if (e->started || e->ticket - m->entry[0].ticket >= m->window)
        return false;
    for (int i = 0; i < at; i++) {
        const struct model_entry *old = &m->entry[i];
        if (!old->started)
            return false;
        if (old->ended)
            continue;
        if (old->kind == TIMELINE_QUEUE_WAIT || old->kind == TIMELINE_BARRIER || e->kind == TIMELINE_BARRIER)
            return false;
        bool one_call = old->ticket - old->nth == e->ticket - e->nth;
        if (e->kind == TIMELINE_WORK && old->kind == TIMELINE_WORK && !one_call && ranges_conflict(old, e->read, e->write))
            return false;
    }
    return true;
}

/* Work that was issued now would start at once, everything before it having started. */
static bool model_goes_beside(const struct model *m, const struct model_entry *e)
{
    bool free = (uint32_t)m->count < m->window;

    for (int i = 0; i < m->count && free; i++) {
        const struct model_entry *old = &m->entry[i];
        bool barrier = old->kind == TIMELINE_QUEUE_WAIT || old->kind == TIMELINE_BARRIER;
        free = old->started && (old->ended || !(barrier || ranges_conflict(old, e->read, e->write)));
    }
    return free;
}

/* A message of this moment: only queue waits and conflicting work hold it, barriers do not. */
static bool model_holds(const struct model *m, uint64_t before, struct timeline_range read, struct timeline_range write)
{
    for (int i = 0; i < m->count; i++) {
        const struct model_entry *old = &m->entry[i];
        if (old->ticket < before && !old->ended && (old->kind == TIMELINE_QUEUE_WAIT || ranges_conflict(old, read, write)))
            return true;
    }
    return false;
}

static struct timeline_range random_range(bool any)
{
    uint32_t from = random_below(MODEL_BYTES), length = any ? random_below(5) : 0;

    return (struct timeline_range){1000 + from, 1000 + from + length}; /* of no length too, amid others' bytes */
}

/* Issued and retired in one step, where it stands alone or is the oldest. */
static bool goes_short(const struct model_entry *e)
{
    return e->kind == TIMELINE_WORK || e->kind == TIMELINE_BARRIER;
}

static void model_issue(struct model *m, struct timeline *line)
{
    uint32_t dice = random_below(20);
    struct model_entry e = {.kind = TIMELINE_WORK};

    if (m->count == MODEL_MOST)
        return;
    if (dice == 0)
        e.kind = TIMELINE_QUEUE_WAIT;
    else if (dice == 1)
        e.kind = TIMELINE_BARRIER;
    else if (dice == 2)
        e.kind = TIMELINE_REFUSED;
    if (e.kind == TIMELINE_WORK) {
        e.read = random_range(dice & 1);
        e.write = random_range(dice & 2);
    }
    const struct model_entry *last = m->count ? &m->entry[m->count - 1] : NULL;
    if (dice >= 14 && last && last->kind == TIMELINE_WORK) { /* the next part of its call */
        e.nth = last->nth + 1;
        fill(line, e.kind, e.read, e.write)->nth = e.nth;
        e.ticket = timeline_issue(line);
    } else if (m->count == 0 && goes_short(&e) && random_below(2)) {
        e.ticket = timeline_issue_alone(line, fill(line, e.kind, e.read, e.write));
        e.started = true;
    } else if (m->count && e.kind == TIMELINE_WORK && line->started + 1 == line->next && timeline_beside(line, &e.read, &e.write)) {
        assert_true(model_goes_beside(m, &e));
        e.ticket = timeline_issue_beside(line, fill(line, e.kind, e.read, e.write));
        e.started = true;
    } else {
        e.ticket = issue(line, e.kind, e.read, e.write);
    }
    m->entry[m->count++] = e;
}

static void model_start(struct model *m, struct timeline *line)
{
    for (bool more = true; more;) {
        uint64_t want = 0, got = timeline_startable(line);
        int at = 0;
        for (int i = 0; i < m->count && !want; i++)
            if (model_may_start(m, i)) {
                want = m->entry[i].ticket;
                at = i;
            }
        if (want != got)
            fail_msg("startable %llu, the rule says %llu", (unsigned long long)got, (unsigned long long)want);
        more = want != 0 && random_below(4) != 0; /* now and then it is asked again later */
        if (more) {
            timeline_start(line, got);
            m->entry[at].started = true;
        }
    }
}

static void model_end_one(struct model *m, struct timeline *line)
{
    int running[MODEL_MOST], count = 0, retired = 0;

    for (int i = 0; i < m->count; i++)
        if (m->entry[i].started && !m->entry[i].ended)
            running[count++] = i;
    if (!count)
        return;
    struct model_entry *e = &m->entry[running[random_below((uint32_t)count)]];
    e->ended = true;
    if (e == m->entry && goes_short(e) && random_below(2))
        timeline_retire_oldest(line, timeline_entry(line, e->ticket));
    else
        timeline_end(line, e->ticket, COMM_OK);
    retire_all(line);
    while (retired < m->count && m->entry[retired].ended)
        retired++;
    memmove(m->entry, m->entry + retired, (size_t)(m->count - retired) * sizeof *m->entry);
    m->count -= retired;
    assert_int_equal(line->done + 1, m->count ? m->entry[0].ticket : line->next);
}

static void model_message(const struct model *m, const struct timeline *line)
{
    uint64_t before = line->next - random_below((uint32_t)(line->next - line->done));
    struct timeline_range read = random_range(random_below(2)), write = random_range(random_below(2));

    assert_int_equal(timeline_holds(line, before, &read, &write), model_holds(m, before, read, write));
}

static void starts_as_the_rule_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct fixture f;
        struct model m = {.window = 4u << seed % 4};
        random_state = seed;
        open_line(&f, m.window, 1024);
        for (int turn = 0; turn < 1500; turn++) {
            uint32_t dice = random_below(8);
            if (dice < 3)
                model_issue(&m, &f.line);
            else if (dice < 6)
                model_end_one(&m, &f.line);
            else
                model_message(&m, &f.line);
            model_start(&m, &f.line);
        }
        close_line(&f);
    }
}

/* ------------------------------------------------------------------------------------------------------------ failing */
static void the_sticky_end(void **state)
{
    struct fixture f;
    (void)state;
    open_line(&f, 8, 64);
    uint64_t first = issue_free(&f.line);
    for (int i = 0; i < 4; i++)
        issue_free(&f.line);
    start_next(&f.line);
    timeline_end(&f.line, first, COMM_OK);
    retire_all(&f.line);
    timeline_fail(&f.line, COMM_ERR_PEER);
    assert_int_equal(test_ticket(&f, first), COMM_OK); /* success is local and stays */
    for (uint64_t i = 1; i < 5; i++)
        assert_int_equal(test_ticket(&f, first + i), COMM_ERR_PEER);
    assert_int_equal(atomic_load(&f.handle->failed), first + 1);
    close_line(&f);
    assert_int_equal(test_ticket(&f, first), COMM_ERR_CLOSED);
    assert_int_equal(test_ticket(&f, first + 1), COMM_ERR_CLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tickets_and_order), cmocka_unit_test(window_bounds_what_runs), cmocka_unit_test(growth_to_the_bound),
        cmocka_unit_test(no_memory_to_grow), cmocka_unit_test(room_for_several),        cmocka_unit_test(starts_as_the_rule_says),
        cmocka_unit_test(the_sticky_end),
    };
    return cmocka_run_group_tests_name("timeline_queue", tests, NULL, NULL);
}
