/*
 * The verifier's wire: the weakest that a wire may be, and the latest. There is one place per edge and one credit: a
 * place is used again only when all its readers have released it. The wire sends a line (ONCE) by itself, but possibly
 * only when nothing else moves. A stream's bytes may stay in the exposer's memory until the last reader has released
 * them.
 */
#include "program/verify.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ places */
static uint32_t credits_of(const struct check *check, uint8_t kind)
{
    return check->mode & CHECK_DEEP && !(kind & WIRE_ONCE) ? CHECK_CREDITS : 1;
}

/* The places of an edge, for all ranks together. */
static size_t places_of(const struct check *check, uint8_t kind)
{
    size_t size = (size_t)check->size;
    return size * (kind & WIRE_TO_ALL ? 1 : size) * credits_of(check, kind);
}

static struct check_place *find_place(struct check *check, wire_key key, uint32_t source, uint32_t reader)
{
    uint32_t size = (uint32_t)check->size, edge = wire_key_edge(key);
    if (edge >= check->edges || source >= size)
        return NULL;
    uint8_t kind = check->rank[0].program->edge[edge];
    uint32_t credits = credits_of(check, kind), place = kind & WIRE_TO_ALL ? source : source * size + reader;
    return &check->place[edge][place * credits + wire_key_round(key) % credits];
}

static uint8_t *reader_of(const struct check_place *place, uint32_t reader)
{
    return &place->reader[place->kind & WIRE_TO_ALL ? reader : 0];
}

static bool is_once(const struct check_place *place)
{
    return place->kind & WIRE_ONCE;
}

/* From now on the exposer may write where its bytes were. */
static void complete(struct check *check, struct check_place *place)
{
    struct check_rank *source = &check->rank[place->source];
    if (place->bytes && memcmp(place->kept, place->copy, place->bytes))
        check_fail(check, source, "overwrote what it still exposes");
    place->pending = false;
    source->done[source->dones++] = place->cookie;
}

static void free_place(struct check *check, struct check_place *place)
{
    place->key = 0;
    if (check->mode & CHECK_KEEP)
        complete(check, place);
}

static void give_back(struct check *check, struct check_place *place, uint32_t reader)
{
    *reader_of(place, reader) = READER_BACK;
    check->moves++;
    if (!--place->left && !is_once(place))
        free_place(check, place);
}

/* ------------------------------------------------------------------------------------------------------------ expose */
/* Whether the place's last bytes were those of the preceding round, for this reader too: an exposer waits only for that
 * reader's release. */
static bool follows(const struct check *check, const struct check_place *place, const struct wire_expose *expose, uint32_t reader)
{
    wire_key step = (wire_key)credits_of(check, place->kind) << 8;
    bool first = is_once(place) || wire_key_round(expose->key) < credits_of(check, place->kind);

    return first || (place->last == expose->key - step && *reader_of(place, reader) != READER_NONE);
}

static struct check_place *place_for(struct check_rank *rank, const struct wire_expose *expose)
{
    struct check *check = rank->check;
    struct check_place *place = find_place(check, expose->key, (uint32_t)rank->rank, expose->peers[0]);
    size_t room = place && is_once(place) ? check->once_bytes : check->chunk_bytes;
    if (!place || place->kind != expose->edge || (!(place->kind & WIRE_TO_ALL) && expose->npeers != 1))
        check_fail(check, rank, "exposes on an edge that is not so");
    else if (expose->key <= place->last)
        check_fail(check, rank, "exposes a key twice, or out of order");
    else if (expose->nspans && expose->spans->bytes > room)
        check_fail(check, rank, "exposes more than a place holds");
    for (uint32_t j = 0; j < expose->npeers; j++) {
        if (expose->peers[j] >= check->size || expose->peers[j] == rank->rank)
            check_fail(check, rank, "exposes to nobody, or to itself");
        else if (place && !check->broken && !follows(check, place, expose, expose->peers[j]))
            check_fail(check, rank, "leaves out a round of a stream, or one of its readers");
    }
    return check->broken ? NULL : place;
}

/* What the only reader of this exposure exposed in the same round on the edge before. */
static struct check_place *asked_by(const struct check_rank *rank, const struct wire_expose *expose)
{
    return find_place(rank->check, expose->key - 1, expose->peers[0], (uint32_t)rank->rank);
}

static enum wire_result wire_expose(struct wire_channel *channel, const struct wire_expose *expose)
{
    struct check_rank *rank = (struct check_rank *)channel;
    struct check *check = rank->check;
    struct check_place *place = place_for(rank, expose);
    bool keep = check->mode & CHECK_KEEP;
    if (!place || place->key)
        return WIRE_AGAIN;
    memset(place->reader, READER_NONE, place->kind & WIRE_TO_ALL ? (size_t)check->size : 1);
    for (uint32_t j = 0; j < expose->npeers; j++) {
        if (*reader_of(place, expose->peers[j]) != READER_NONE)
            check_fail(check, rank, "exposes to a peer twice");
        *reader_of(place, expose->peers[j]) = READER_WAITS;
    }
    place->key = place->last = expose->key;
    place->fingerprint = expose->fingerprint;
    place->bytes = expose->spans->bytes;
    place->left = expose->npeers;
    place->cookie = expose->cookie;
    place->kept = keep ? expose->spans->at : NULL;
    place->pending = keep;
    place->asked = expose->flags & WIRE_ANSWER ? asked_by(rank, expose) : NULL;
    if (!(expose->flags & WIRE_BUILT) && place->bytes)
        memcpy(place->copy, expose->spans->at, place->bytes);
    check->moves++;
    return keep ? WIRE_PENDING : WIRE_DONE;
}

/* The place of a view becomes that of its answer: the exposer of the view gives it back when it has taken the answer. */
static enum wire_result reserve_answer(struct check_rank *rank, const struct wire_expose *expose, void **pad)
{
    struct check_place *asked = expose->answers->ack;

    if (!asked || asked != asked_by(rank, expose) || asked->key != expose->key - 1 || asked->kind || expose->npeers != 1)
        check_fail(rank->check, rank, "answers what the only reader did not expose in this round, on the edge before");
    else
        *reader_of(asked, (uint32_t)rank->rank) = READER_ANSWERS;
    *pad = (void *)(uintptr_t)expose->answers->at;
    return WIRE_ANSWERS;
}

static enum wire_result wire_reserve(struct wire_channel *channel, const struct wire_expose *expose, size_t bytes, void **pad)
{
    struct check_rank *rank = (struct check_rank *)channel;
    struct check_place *place = find_place(rank->check, expose->key, (uint32_t)rank->rank, expose->peers[0]);
    if (!(rank->check->mode & CHECK_PADS) || !place || bytes > rank->check->chunk_bytes)
        return WIRE_NONE;
    if (place->key)
        return WIRE_AGAIN;
    if (expose->answers && !(rank->check->mode & CHECK_KEEP))
        return reserve_answer(rank, expose, pad);
    *pad = place->copy;
    return WIRE_DONE;
}

bool check_wire_send(struct check *check)
{
    uint64_t before = check->moves;
    for (uint32_t e = 0; e < check->edges; e++) {
        size_t count = is_once(check->place[e]) ? places_of(check, check->place[e]->kind) : 0;
        for (size_t i = 0; i < count; i++) {
            if (check->place[e][i].pending) {
                complete(check, &check->place[e][i]);
                check->moves++;
            }
        }
    }
    return check->moves > before;
}

/* ------------------------------------------------------------------------------------------------------------ view */
static bool may_write(const struct check_rank *rank, const struct wire_look *look)
{
    const char *at = look->land;
    return !look->bytes ||
           (at >= rank->memory && look->bytes <= rank->memory_bytes && (size_t)(at - rank->memory) <= rank->memory_bytes - look->bytes);
}

/* The requested exposure is there. */
static enum wire_result take(struct check_rank *rank, const struct wire_look *look, struct check_place *place)
{
    struct check *check = rank->check;
    if (*reader_of(place, (uint32_t)rank->rank) != READER_WAITS)
        check_fail(check, rank, "views what was not exposed to it, or twice");
    else if (!may_write(rank, look) && !look->view)
        check_fail(check, rank, "lands outside its memory");
    else if (place->asked && look->view)
        check_fail(check, rank, "views an answer, which must land");
    if (check->broken || place->bytes != look->bytes || place->fingerprint != look->fingerprint)
        return WIRE_MISMATCH;
    *reader_of(place, (uint32_t)rank->rank) = READER_VIEWS;
    if (look->view) {
        *look->view = (struct wire_view){.at = place->copy, .bytes = place->bytes, .ack = place};
    } else {
        if (place->bytes)
            memcpy(look->land, place->asked ? place->asked->copy : place->copy, place->bytes);
        if (place->asked)
            give_back(check, place->asked, (uint32_t)place->source);
        give_back(check, place, (uint32_t)rank->rank);
    }
    check->moves++;
    return WIRE_DONE;
}

static enum wire_result look_now(struct check_rank *rank, const struct wire_look *look)
{
    struct check *check = rank->check;
    struct check_place *place = find_place(check, look->key, look->peer, (uint32_t)rank->rank);
    if (!place || place->kind != look->edge) {
        check_fail(check, rank, "views an edge that is not so");
        return WIRE_MISMATCH;
    }
    if (place->key == look->key)
        return take(rank, look, place);
    if (place->last > look->key || (place->last == look->key && !place->key)) {
        check_fail(check, rank, "views what is gone, or was never exposed to it");
        return WIRE_MISMATCH;
    }
    return WIRE_PENDING;
}

static enum wire_result wire_view(struct wire_channel *channel, const struct wire_look *look)
{
    struct check_rank *rank = (struct check_rank *)channel;
    struct check *check = rank->check;
    uint32_t room = check->edges * (uint32_t)check->size;
    for (uint32_t i = 0; i < rank->looks && check->mode & CHECK_ONE; i++)
        room = wire_key_edge(rank->look[i].key) == wire_key_edge(look->key) ? 0 : room;
    if (rank->looks >= room)
        return WIRE_AGAIN;
    if (look->view && look->view->ack)
        check_fail(check, rank, "views into a slot that it has not released");
    enum wire_result result = look_now(rank, look);
    if (result == WIRE_PENDING) {
        rank->look[rank->looks++] = *look;
        check->moves++;
    }
    return result;
}

static void wire_release(struct wire_channel *channel, uint32_t seq, struct wire_view *view)
{
    struct check_rank *rank = (struct check_rank *)channel;
    struct check_place *place = view ? view->ack : NULL;
    (void)seq;
    if (place && *reader_of(place, (uint32_t)rank->rank) == READER_ANSWERS) {
        view->ack = NULL;
        return;
    }
    if (!place || *reader_of(place, (uint32_t)rank->rank) != READER_VIEWS) {
        check_fail(rank->check, rank, "releases what it does not view");
        return;
    }
    view->ack = NULL;
    give_back(rank->check, place, (uint32_t)rank->rank);
}

void check_wire_events(struct check_rank *rank)
{
    struct check *check = rank->check;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rank->dones; i++)
        run_event(&rank->run, &(struct wire_event){.kind = WIRE_EVENT_DONE, .cookie = rank->done[i]});
    check->moves += rank->dones;
    rank->dones = 0;
    for (uint32_t i = 0; i < rank->looks && !check->broken; i++) {
        struct wire_look look = rank->look[i];
        enum wire_result result = look_now(rank, &look);
        if (result == WIRE_PENDING)
            rank->look[kept++] = look;
        else
            run_event(&rank->run,
                      &(struct wire_event){.kind = WIRE_EVENT_DONE, .cookie = look.cookie, .result = result, .peer = (int32_t)look.peer});
    }
    rank->looks = kept;
}

/* ------------------------------------------------------------------------------------------------------------ before and after */
static const struct wire_class check_wire = {
    .name = "check", .reserve = wire_reserve, .expose = wire_expose, .view = wire_view, .release = wire_release};

static bool open_edge(struct check *check, uint32_t edge)
{
    uint8_t kind = check->rank[0].program->edge[edge];
    size_t size = (size_t)check->size, bytes = kind & WIRE_ONCE ? check->once_bytes : check->chunk_bytes;
    size_t count = places_of(check, kind), readers = kind & WIRE_TO_ALL ? size : 1;
    struct check_place *place = check->place[edge] = check_take(check, count * sizeof *place);
    char *copy = check_take(check, count * bytes);
    uint8_t *reader = check_take(check, count * readers);
    if (!place || !copy || !reader)
        return false;
    for (size_t i = 0; i < count; i++) {
        place[i] = (struct check_place){
            .copy = copy + i * bytes, .reader = reader + i * readers, .kind = kind, .source = (int32_t)(i / (count / size))};
    }
    return true;
}

bool check_wire_open(struct check *check)
{
    check->edges = check->rank[0].program->edges;
    for (uint32_t e = 0; e < check->edges; e++) {
        if (!open_edge(check, e))
            return false;
    }
    for (int32_t r = 0; r < check->size; r++) {
        struct check_rank *rank = &check->rank[r];
        size_t places = (check->edges + 1u) * (size_t)check->size * CHECK_CREDITS;
        rank->channel.class = &check_wire;
        rank->channel.caps.once_max = check->once_bytes;
        rank->channel.caps.chunk_all = rank->channel.caps.chunk_private = check->chunk_bytes;
        rank->look = check_take(check, places * sizeof *rank->look);
        rank->done = check_take(check, places * sizeof *rank->done);
    }
    return !check->no_memory;
}

static void end_place(struct check *check, const struct check_place *place)
{
    const struct check_rank *source = &check->rank[place->source];
    size_t readers = place->kind & WIRE_TO_ALL ? (size_t)check->size : 1;
    for (size_t r = 0; place->key && r < readers; r++) {
        if (place->reader[r] == READER_WAITS)
            check_fail(check, source, "exposed what somebody never views");
    }
    if (place->key && !is_once(place))
        check_fail(check, source, "exposed on a stream what somebody never gives back");
}

void check_wire_end(struct check *check)
{
    for (uint32_t e = 0; e < check->edges; e++) {
        size_t count = places_of(check, check->place[e]->kind);
        for (size_t i = 0; i < count; i++)
            end_place(check, &check->place[e][i]);
    }
    for (int32_t r = 0; r < check->size; r++) {
        if (check->rank[r].looks)
            check_fail(check, &check->rank[r], "asked for a view that never came");
    }
}
