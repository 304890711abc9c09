/* Opens the wire and its channels, leaves channels, and forwards calls to the guard. */
#include "net/mpiwire/mpiwire.h"

#include "net/mpi/library.h"
#include "wire/boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A thread that sleeps looks at MPI again after a sixteenth of the time for which nothing has moved, but at most NAP_LONG_NS. So a world at
 * rest costs little, and what comes is at most a sixteenth late. It does not sleep for less than NAP_LEAST_NS, unless ranks share CPUs: a
 * long message comes in pieces, of which the engine sees only the last. */
#define NAP_LEAST_NS INT64_C(50000)
#define NAP_LONG_NS INT64_C(20000000)
/* A channel that is looked at this often between two sleeps has a thread that waits for something: the rest is over. */
#define LOOKS_OF_A_WAIT 16
/* The monitor of a rank that makes no calls comes once in a tick, so then a look is not enough. */
#define LOOKS_A_POLL 64
/* A message over MPI may arrive this much later than a note that was sent after it over the guard. */
#define NOTE_LEAD_NS INT64_C(500000000)

/* ------------------------------------------------------------------------------------------------------------ open, close */
static enum comm_result complain(const struct wire_config *config, enum comm_result result, const char *text)
{
    if (config->error_text && config->error_text_bytes)
        snprintf(config->error_text, config->error_text_bytes, "%s", text);
    return result;
}

/* Makes the MPI_Comm of the world's ranks. The guard is open, so all ranks come here. */
static enum comm_result make_base(const struct wire_config *config, struct mpi_world *world)
{
    int tag = config->rank == 0 ? mpi_tag_take(world) : -1;
    struct mpi_card mine = mpi_card_of(world, tag), *cards = calloc((size_t)config->ranks, sizeof *cards);
    enum comm_result r = cards ? config->boot->class->allgather(config->boot, &mine, sizeof mine, cards) : COMM_ERR_MEMORY;

    if (r == COMM_OK && cards[0].tag < 0)
        r = complain(config, COMM_ERR_FULL, "rank 0 has no tag of MPI_COMM_WORLD left for one more world");
    else if (r == COMM_OK && mpi_make_base(world, cards, tag) != MPI_SUCCESS)
        r = mpi_is_over() ? complain(config, COMM_ERR_STATE, "MPI_Finalize was called while the world was opening")
                          : complain(config, COMM_ERR_BACKEND, "MPI_Comm_create_group failed for the ranks of this world");
    free(cards);
    if (r != COMM_OK && r != COMM_ERR_BACKEND) /* then some ranks may still be in the call */
        mpi_tag_give(world, tag);
    return r;
}

struct native_config mpiwire_native_config(const struct wire_config *config)
{
    return (struct native_config){.env = config->env,
                                  .log = config->log,
                                  .launcher = config->launcher,
                                  .library = config->library,
                                  .rank = config->rank,
                                  .ranks = config->ranks,
                                  .deadline = config->deadline,
                                  .error_text = config->error_text,
                                  .error_text_bytes = config->error_text_bytes};
}

static enum comm_result start_mpi(const struct wire_config *config, struct mpiwire *w)
{
    struct native_config native = mpiwire_native_config(config);
    struct native *opened = NULL;
    enum comm_result r = mpi_open(&native, &opened);

    if (r != COMM_OK)
        return r;
    w->world = (struct mpi_world *)opened;
    if (w->world->shared) {
        r = mpiwire_choose_piece(config, &w->piece);
        if (r == COMM_OK)
            r = make_base(config, w->world);
    } else {
        r = complain(
            config, COMM_ERR_CONFIG,
            "backend=shm+mpi needs MPI_THREAD_MULTIPLE, since this library's threads look at MPI too, and MPI was started below it");
    }
    if (r != COMM_OK)
        mpi_close(opened);
    return r;
}

static enum comm_result open_over_mpi(const struct wire_config *config, struct wire **wire)
{
    struct mpiwire *w = calloc(1, sizeof *w);
    size_t ranks = (size_t)config->ranks;

    if (!w)
        return COMM_ERR_MEMORY;
    w->wire.class = &mpiwire_class;
    w->wire.silent = true;
    w->guard = config->guard;
    w->env = config->env;
    w->ranks = config->ranks;
    w->oversubscribed = config->oversubscribed;
    w->or_guard = config->or_guard;
    w->sending_last = &w->sending;
    w->receiving_last = &w->receiving;
    w->gone = calloc(ranks, sizeof *w->gone);
    w->gone_ns = calloc(ranks, sizeof *w->gone_ns);
    w->source = calloc(ranks, sizeof *w->source);
    w->joined = calloc(ranks, sizeof *w->joined);
    w->ended = calloc(ranks, sizeof *w->ended);
    for (int32_t i = 0; w->joined && i < w->ranks; i++)
        w->joined[i] = wire_joins(config, config->rank, i);
    bool has_memory = w->gone && w->gone_ns && w->source && w->joined && w->ended;
    enum comm_result r = has_memory ? start_mpi(config, w) : COMM_ERR_MEMORY;
    if (r != COMM_OK) {
        mpiwire_destroy(w);
        return r;
    }
    void *go_on = mpi_library_symbol("MPIX_Comm_failure_ack");
    memcpy(&w->go_on, &go_on, sizeof go_on);
    w->finds = mpi_is_later_mpich_over_ucx();
    pthread_mutex_init(&w->lock, NULL);
    w->world->wire.lock = &w->lock;
    mpi_caller_add(&w->world->wire);
    *wire = &w->wire;
    return COMM_OK;
}

static enum comm_result mpiwire_open(const struct wire_config *config, struct wire **wire)
{
    bool fits = true;
    enum comm_result r = config->or_guard ? mpiwire_fits(config, &fits) : COMM_OK;

    if (r == COMM_OK && fits)
        r = open_over_mpi(config, wire);
    if (r == COMM_ERR_FULL && config->or_guard) { /* of tags, which all ranks know */
        mpiwire_tell_of_guard(config, config->error_text);
        fits = false;
        r = COMM_OK;
    }
    if (r == COMM_OK && !fits)
        *wire = config->guard;
    if (r == COMM_OK && !config->or_guard)
        mpiwire_warn_of_deaths(config);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ join, leave */
static struct mpiwire_channel *make(struct mpiwire *w, const struct wire_team *team, const struct wire_limits *limits)
{
    struct mpiwire_channel *c = calloc(1, sizeof *c);
    size_t size = (size_t)team->size;

    if (!c)
        return NULL;
    c->handle.class = &mpiwire_class;
    c->handle.wire = &w->wire;
    c->handle.traffic = &c->traffic;
    c->wire = w;
    c->id = team->id;
    c->rank = (uint32_t)team->rank;
    c->size = (uint32_t)team->size;
    c->world = team->world;
    bool many = size > MPIWIRE_MANY; /* what each has taken is noted for each place */
    uint32_t credits = many ? MPIWIRE_FEW : mpiwire_is_near(w) ? MPIWIRE_CREDITS_NEAR : MPIWIRE_CREDITS;
    c->areas = limits->minimal ? 1 : many ? MPIWIRE_FEW : MPIWIRE_AREAS;
    c->credits = limits->minimal ? 1 : limits->credits ? limits->credits : credits;
    c->rendezvous = limits->rendezvous;
    c->member = calloc(size, sizeof *c->member);
    c->acked = calloc(size * c->areas * WIRE_STREAM_EDGES * c->credits, sizeof *c->acked);
    if (c->member && c->acked)
        return c;
    free(c->member);
    free(c->acked);
    free(c);
    return NULL;
}

/* A chunk of a stream that is one message of MPI takes half as long as a longer one over a network. Within a machine MPI copies each
 * message at once, and fewer long ones are faster. */
static void cut_chunks(struct mpiwire_channel *c, const struct wire_limits *limits)
{
    struct wire_caps *caps = &c->handle.caps;

    if (!limits->chunk && !mpiwire_is_near(c->wire))
        caps->chunk_all = caps->chunk_private = caps->chunk_least = c->wire->piece;
}

/* A rank may be at most this many operations ahead: half of what the guard keeps of each rank's calls. */
static void make_rooms(struct mpiwire_channel *c, bool minimal)
{
    const uint32_t lines = 2 * c->handle.caps.window, least = MPIWIRE_ONCE_PLACES;
    uint32_t pages = MPIWIRE_PAGES_SHOWN / (c->size > 1 ? c->size - 1 : 1);

    pages = pages > lines ? lines : pages < least ? least : pages;
    const uint32_t places[MPIWIRE_ROOMS] = {lines, lines, pages, least, c->areas};
    for (uint32_t kind = 0; kind < MPIWIRE_ROOMS; kind++)
        c->places[kind] = minimal && kind ? 1 : places[kind];
}

static void enlist(struct mpiwire_channel *c)
{
    pthread_mutex_lock(&c->wire->lock);
    c->next = c->wire->channels;
    c->wire->channels = c;
    pthread_mutex_unlock(&c->wire->lock);
}

static void delist(struct mpiwire_channel *c)
{
    struct mpiwire_channel **at = &c->wire->channels;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

static void mpiwire_leave(struct wire_channel *channel, enum wire_leave how)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    pthread_mutex_lock(&c->wire->lock);
    c->wire->failed |= how == WIRE_ABORT;
    c->aborted = true;
    c->events = 0;
    mpiwire_slots_forget(c);
    mpiwire_messages_forget(c);
    if (how == WIRE_CLOSE)
        delist(c);
    pthread_mutex_unlock(&c->wire->lock);
    if (how == WIRE_ABORT)
        mpi_failed();
    if (c->guard)
        c->guard->class->leave(c->guard, how);
    if (how != WIRE_CLOSE)
        return;
    free(c->event);
    free(c->member);
    free(c->acked);
    free(c);
}

/* After a death only the guard is known to work. Every member knows that the channel is of survivors, so all use it. */
static void use_guard(struct mpiwire_channel *c)
{
    c->by_guard = true;
    c->handle.caps = c->guard->caps;
    c->handle.traffic = c->guard->traffic;
    c->handle.carrier = c->guard->class->name;
}

/* The guard compares what must be equal on all members. The name of a channel is the name of its team. */
static enum comm_result offer(struct mpiwire *w, const struct wire_team *team, const struct wire_limits *limits, void *mine,
                              struct wire_channel **channel)
{
    struct mpiwire_channel *c = make(w, team, limits);

    if (!c)
        return COMM_ERR_MEMORY;
    if (!w->guard->asks)
        w->guard->asks = w->wire.asks;
    enum comm_result r = w->guard->class->join(w->guard, team, limits, NULL, mine, &c->guard);
    if (r != COMM_OK) {
        free(c->member);
        free(c->acked);
        free(c);
        return r;
    }
    c->handle.caps = c->guard->caps;
    c->handle.caps.note_lead_ns += NOTE_LEAD_NS;
    c->handle.caps.takes_growing = true;
    cut_chunks(c, limits);
    make_rooms(c, limits->minimal);
    c->handle.calls = c->guard->calls;
    if (w->or_guard && limits->survivors)
        use_guard(c);
    enlist(c);
    *channel = &c->handle;
    return COMM_OK;
}

static enum comm_result mpiwire_join(struct wire *wire, const struct wire_team *team, const struct wire_limits *limits, const void *offers,
                                     void *mine, struct wire_channel **channel)
{
    struct mpiwire *w = (struct mpiwire *)wire;

    if (!offers)
        return offer(w, team, limits, mine, channel);
    struct mpiwire_channel *c = mpiwire_of(*channel);
    c->guard->calls = c->handle.calls; /* the address of the published calls may have changed */
    c->world = team->world;
    enum comm_result r = w->guard->class->join(w->guard, team, NULL, offers, NULL, &c->guard);
    c->handle.peer_calls = c->guard ? c->guard->peer_calls : NULL;
    if (r != COMM_OK) {
        mpiwire_leave(&c->handle, WIRE_CLOSE);
        *channel = NULL;
    }
    return r;
}

/* ------------------------------------------------------------------------------------------------------------ moving */
static enum wire_result mpiwire_reserve(struct wire_channel *channel, const struct wire_expose *e, size_t bytes, void **pad)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    return c->by_guard ? c->guard->class->reserve(c->guard, e, bytes, pad) : WIRE_NONE;
}

static enum wire_result mpiwire_expose(struct wire_channel *channel, const struct wire_expose *e)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    if (c->by_guard)
        return c->guard->class->expose(c->guard, e);
    if ((e->flags & WIRE_KIND) == WIRE_NOTE)
        return mpiwire_note(c, e);
    pthread_mutex_lock(&c->wire->lock);
    enum wire_result r = (e->flags & WIRE_KIND) == WIRE_MESSAGE ? mpiwire_expose_message(c, e) : mpiwire_expose_work(c, e);
    pthread_mutex_unlock(&c->wire->lock);
    return r;
}

static enum wire_result mpiwire_view(struct wire_channel *channel, const struct wire_look *l)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    if (c->by_guard)
        return c->guard->class->view(c->guard, l);
    pthread_mutex_lock(&c->wire->lock);
    enum wire_result r = (l->flags & WIRE_KIND) == WIRE_MESSAGE ? mpiwire_view_message(c, l) : mpiwire_view_work(c, l);
    pthread_mutex_unlock(&c->wire->lock);
    return r;
}

static uint32_t take_events(struct mpiwire_channel *c, struct wire_event *events, uint32_t max)
{
    uint32_t n = 0;

    for (; c->events && n < max; n++, c->events--) {
        events[n] = c->event[c->events_first];
        c->events_first = (c->events_first + 1) % c->events_room;
        if (events[n].kind != WIRE_EVENT_ANNOUNCED)
            continue;
        c->member[events[n].peer].seen = wire_key_seq(events[n].key);
        c->owes |= mpiwire_owes(c, &c->member[events[n].peer]);
    }
    return n;
}

static void note_look(struct mpiwire_channel *c)
{
    struct mpiwire *w = c->wire;

    c->looks = c->looks_before == w->naps ? c->looks + 1 : 1;
    c->looks_before = w->naps;
    if (c->looks == LOOKS_OF_A_WAIT)
        w->moved = true;
}

/* Notes come first, because a note that a peer sent before it left explains what is missing. */
static uint32_t mpiwire_advance(struct wire_channel *channel, struct wire_event *events, uint32_t max)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    if (c->by_guard)
        return c->guard->class->advance(c->guard, events, max);
    uint32_t notes = mpiwire_guard_look(c, events, max / 2);

    pthread_mutex_lock(&c->wire->lock);
    note_look(c);
    mpiwire_progress(c->wire);
    c->looked = true;
    if (c->differing)
        mpiwire_look_at_differing(c);
    if ((atomic_load_explicit(&c->wire->goners, memory_order_relaxed) || mpi_is_over()) && !c->aborted)
        mpiwire_lose(c);
    uint32_t n = take_events(c, events + notes, max - notes);
    pthread_mutex_unlock(&c->wire->lock);
    return notes + n;
}

static void mpiwire_flush(struct wire_channel *channel)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    if (c->by_guard) {
        c->guard->class->flush(c->guard);
        return;
    }
    if ((c->retires || c->owes || c->due || c->lacks) && !c->aborted) {
        pthread_mutex_lock(&c->wire->lock);
        if (c->due || c->lacks)
            mpiwire_send_due(c->wire);
        if (c->retires)
            mpiwire_tell_retired(c);
        if (c->owes)
            mpiwire_tell_consumed(c);
        pthread_mutex_unlock(&c->wire->lock);
    }
    if (c->noted)
        c->guard->class->flush(c->guard);
    c->noted = c->looked = false;
}

uint32_t mpiwire_poll(struct wire *wire, struct wire_event *events, uint32_t max)
{
    struct mpiwire *w = (struct mpiwire *)wire;
    uint32_t n = w->guard->class->poll(w->guard, events, max);

    mpiwire_guard_stir(w);
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < n; i++)
        if (events[i].kind == WIRE_EVENT_DOWN && !w->gone[events[i].peer].kind) {
            w->gone[events[i].peer] = events[i];
            w->gone_ns[events[i].peer] = w->env->now(w->env);
            w->goners++;
        }
    for (int looks = 0; looks < LOOKS_A_POLL && mpiwire_progress(w); looks++)
        continue;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static int64_t nap_of(struct mpiwire *w, int64_t now)
{
    if (w->moved)
        w->rests_since_ns = now;
    w->moved = false;
    w->naps++;
    int64_t nap = (now - w->rests_since_ns) / 16;
    if (nap < NAP_LEAST_NS)
        return w->oversubscribed ? NAP_LEAST_NS : 0;
    return nap < NAP_LONG_NS ? nap : NAP_LONG_NS;
}

/* MPI has no descriptor to poll. So the wire polls MPI again after a time, which grows while nothing moves. */
static void mpiwire_arm(struct wire *wire, bool on, int64_t *deadline)
{
    struct mpiwire *w = (struct mpiwire *)wire;

    w->guard->class->arm(w->guard, on, deadline);
    mpiwire_guard_stir(w);
    if (!on)
        return;
    pthread_mutex_lock(&w->lock);
    int64_t now = w->env->now(w->env), until = now + nap_of(w, now);
    pthread_mutex_unlock(&w->lock);
    *deadline = until < *deadline ? until : *deadline;
}

static void mpiwire_describe(struct wire_channel *channel, int32_t peer, char *address, size_t bytes)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    c->guard->class->describe(c->guard, peer, address, bytes);
}

static void mpiwire_urge(struct wire_channel *channel, bool on)
{
    struct mpiwire_channel *c = mpiwire_of(channel);

    if (c->by_guard)
        c->guard->class->urge(c->guard, on);
}

/* Reports whether anything arrived since the last call. It may be for a channel on which no thread waits. */
static bool mpiwire_heed(struct wire *wire, bool on)
{
    struct mpiwire *w = (struct mpiwire *)wire;
    bool came = w->guard->class->heed && w->guard->class->heed(w->guard, on);

    mpiwire_guard_stir(w);
    pthread_mutex_lock(&w->lock);
    mpiwire_progress(w);
    came |= w->came;
    w->came = false;
    pthread_mutex_unlock(&w->lock);
    return came;
}

const struct wire_class mpiwire_class = {
    .name = "mpi",
    .open = mpiwire_open,
    .close = mpiwire_close,
    .join = mpiwire_join,
    .leave = mpiwire_leave,
    .reserve = mpiwire_reserve,
    .expose = mpiwire_expose,
    .view = mpiwire_view,
    .release = mpiwire_release,
    .advance = mpiwire_advance,
    .flush = mpiwire_flush,
    .poll = mpiwire_poll,
    .arm = mpiwire_arm,
    .describe = mpiwire_describe,
    .urge = mpiwire_urge,
    .heed = mpiwire_heed,
};
