#include "fuzz/honest_request.h"

#include "wire/table.h"

#include <string.h>

enum { OUT_MOST = 1 << 18, EVENTS = 16 };

/* ------------------------------------------------------------------------------------------------------------ life */
static void hear_log(void *arg, int level, const char *line)
{
    struct honest *h = arg;

    (void)level;
    h->lines++;
    snprintf(h->line, sizeof h->line, "%s", line);
}

static void join(struct honest_side *s)
{
    const struct wire_limits limits = {.window = HONEST_WINDOW};
    unsigned char offers[HONEST_RANKS][WIRE_OFFER_BYTES];
    struct honest *h = s->of;

    HOLD(h->class->join(&h->wire->wire, &s->team, &limits, NULL, offers[0], &s->channel) == COMM_OK);
    for (int32_t i = 1; i < s->team.size; i++) /* every member uses this rank's name of the channel */
        memcpy(offers[i], offers[0], sizeof offers[0]);
    HOLD(h->class->join(&h->wire->wire, &s->team, &limits, offers, offers[0], &s->channel) == COMM_OK);
}

void honest_open(struct honest *h, enum mock_wire how)
{
    static const int32_t world[HONEST_RANKS] = {0, 1, 2};
    static const unsigned char key[CRYPTO_KEY];
    char text[256] = "";
    struct wire *wire = NULL;

    mock_begin(&h->mock);
    h->mock.how = how;
    h->mock.far = h->far[0];
    h->log = (struct base_log){.env = &h->mock.env, .sink = hear_log, .arg = h, .level = LOG_INFO};
    h->boot.key = how == MOCK_SEALED ? key : NULL;
    h->class = wire_backend_find("tcp")->wire;
    const struct wire_config config = {.env = &h->mock.env,
                                       .log = &h->log,
                                       .bell = &h->bell,
                                       .watch = &h->bell,
                                       .boot = &h->boot,
                                       .rank = 0,
                                       .ranks = HONEST_RANKS,
                                       .deadline = INT64_MAX,
                                       .error_text = text,
                                       .error_text_bytes = sizeof text};
    if (h->class->open(&config, &wire) != COMM_OK)
        fprintf(stderr, "%s\n", text);
    HOLD(wire);
    h->wire = tcp_wire_of(wire);
    for (int32_t i = 0; i < HONEST_SIDES; i++) {
        h->side[i].of = h;
        h->side[i].team = (struct wire_team){.id = 1 + (uint64_t)i, .rank = 0, .size = HONEST_RANKS - i, .world = world};
        join(&h->side[i]);
    }
}

void honest_abort(struct honest_side *s)
{
    struct honest *h = s->of;

    if (s->aborted)
        return;
    s->aborted = true;
    s->channel->class->leave(s->channel, WIRE_ABORT);
    for (uint32_t i = 0; i < HONEST_REQUESTS; i++) /* a later write would go to freed memory */
        if (h->request[i].side == s) {
            h->request[i].view.at = NULL;
            request_drop(&h->request[i]);
        }
    s->announcements = 0;
}

void honest_reopen(struct honest_side *s)
{
    honest_abort(s);
    s->channel->class->leave(s->channel, WIRE_CLOSE);
    *s = (struct honest_side){.of = s->of, .team = s->team};
    join(s);
}

void honest_close(struct honest *h)
{
    for (int i = 0; i < HONEST_SIDES; i++)
        honest_abort(&h->side[i]);
    honest_progress(h);
    for (int i = 0; i < HONEST_SIDES; i++)
        h->side[i].channel->class->leave(h->side[i].channel, WIRE_CLOSE);
    for (int i = 0; i < HONEST_RANKS; i++)
        for (uint32_t k = 0; k < TCP_LANES; k++)
            if (i != h->wire->rank)
                record_end(h->far[i][k].records);
    h->class->close(&h->wire->wire);
    mock_end(&h->mock);
}

/* ------------------------------------------------------------------------------------------------------------ events */
static void hear_message(struct honest_side *s, const struct wire_event *e)
{
    HOLD(e->peer > 0 && e->peer < s->team.size && wire_key_seq(e->key) == s->heard[e->peer] + 1);
    s->heard[e->peer]++;
    if (s->announcements == HONEST_ANNOUNCED)
        honest_take(s, 0, 0, true);
    HOLD(s->announcements < HONEST_ANNOUNCED);
    s->announced[s->announcements++] = (struct honest_message){e->key, (uint32_t)e->peer, e->bytes};
}

static void hear(struct honest_side *s, const struct wire_event *e)
{
    switch (e->kind) {
    case WIRE_EVENT_DONE:
        HOLD(!s->aborted && e->cookie && e->cookie <= HONEST_REQUESTS && s->of->request[e->cookie - 1].side == s);
        request_end(&s->of->request[e->cookie - 1], e->result);
        return;
    case WIRE_EVENT_ANNOUNCED:
        if (e->result == WIRE_MESSAGE) {
            hear_message(s, e);
            return;
        }
        HOLD(e->result == WIRE_NOTE && e->peer > 0 && e->peer < s->team.size && wire_key_edge(e->key) < WIRE_NOTE_SORTS);
        HOLD(e->bytes <= wire_note_bytes(wire_key_edge(e->key)));
        HOLD(honest_sum(e->note, wire_note_bytes(wire_key_edge(e->key))) || true);
        return;
    default:
        HOLD(e->kind == WIRE_EVENT_LOST && e->peer > 0 && e->peer < s->team.size && !s->lost[e->peer]);
        s->lost[e->peer] = true;
    }
}

void honest_progress(struct honest *h)
{
    for (int i = 0; i < HONEST_SIDES; i++) {
        struct honest_side *s = &h->side[i];
        struct wire_event events[EVENTS];
        uint32_t n = EVENTS;
        for (int turn = 0; turn < 8 && n == EVENTS; turn++) {
            n = s->channel->class->advance(s->channel, events, EVENTS);
            HOLD(n <= EVENTS);
            for (uint32_t k = 0; k < n; k++)
                hear(s, &events[k]);
        }
        s->channel->class->flush(s->channel);
    }
}

void honest_watch(struct honest *h, int64_t ns)
{
    struct wire_event events[HONEST_RANKS];

    h->mock.now += ns;
    uint32_t n = h->class->poll(&h->wire->wire, events, HONEST_RANKS);
    for (uint32_t i = 0; i < n; i++) {
        HOLD(events[i].kind == WIRE_EVENT_DOWN && events[i].peer > 0 && events[i].peer < HONEST_RANKS && !h->down[events[i].peer]);
        HOLD(events[i].result == COMM_ERR_PEER || events[i].result == COMM_ERR_CLOSED);
        h->down[events[i].peer] = true;
        for (int k = 0; k < HONEST_SIDES; k++) /* an engine treats this as a failure too */
            if (events[i].result == COMM_ERR_PEER && events[i].peer < h->side[k].team.size)
                honest_abort(&h->side[k]);
    }
}

void honest_arm(struct honest *h, bool on)
{
    int64_t deadline = INT64_MAX;

    h->class->arm(&h->wire->wire, on, &deadline);
}

void honest_heed(struct honest *h, bool on)
{
    (void)h->class->heed(&h->wire->wire, on);
}

/* ------------------------------------------------------------------------------------------------------------ properties */
static void check_messages(const struct tcp_channel *c)
{
    uint32_t count[HONEST_RANKS] = {0}, room[HONEST_RANKS] = {0}, all = 0;

    for (const struct tcp_message *m = c->messages.arrived; m; m = m->next) {
        HOLD(m->peer > 0 && m->peer < c->size && m->take <= m->bytes && ++all <= 1u << 16);
        count[m->peer]++;
        room[m->peer] += m->room;
    }
    for (uint32_t i = 1; i < c->size; i++) { /* no more than the sender has credit for */
        HOLD(c->member[i].arrived - c->member[i].seen_told <= c->handle.caps.window);
        HOLD(room[i] <= TCP_EAGER_ROOM);
    }
}

static void check_lane(const struct honest *h, const struct tcp_lane *lane)
{
    uint64_t out = 0;

    HOLD(lane->begin <= lane->end && lane->end <= lane->stage_bytes);
    for (const struct tcp_block *b = lane->out; b; b = b->next)
        out += b->bytes;
    HOLD(out <= OUT_MOST + 2 * h->told);
}

void honest_check(struct honest *h)
{
    for (int i = 0; i < HONEST_SIDES; i++) {
        const struct tcp_channel *c = tcp_of(h->side[i].channel);
        HOLD(c->slots.live <= c->slots.live_most);
        check_messages(c);
    }
    for (uint32_t peer = 1; peer < HONEST_RANKS; peer++)
        for (uint32_t k = 0; k < TCP_LANES; k++)
            check_lane(h, &h->wire->links[peer].lane[k]);
}

/* ------------------------------------------------------------------------------------------------------------ actions */
uint16_t honest_edge(uint32_t which)
{
    static const uint16_t edges[] = {WIRE_ONCE | WIRE_TO_ALL, WIRE_ONCE, WIRE_TO_ALL, 0};

    return edges[which % WIRE_STREAM_EDGES];
}

static size_t allowed(const struct honest_side *s, uint16_t edge, size_t size)
{
    const struct wire_caps *caps = &s->channel->caps;
    size_t most = edge == WIRE_ONCE ? WIRE_EACH_BYTES : edge & WIRE_ONCE ? caps->once_max : caps->chunk_all;

    return size < most ? size : most;
}

static wire_key key_for(const struct honest_side *s, uint32_t which, uint32_t round)
{
    uint32_t open = s->issued - s->retired, edge = which % WIRE_STREAM_EDGES;

    return wire_key_of(s->retired + 1 + which / WIRE_STREAM_EDGES % open, honest_edge(edge) & WIRE_ONCE ? 0 : round, edge);
}

void honest_issue(struct honest_side *s)
{
    if (!s->aborted && s->issued - s->retired < HONEST_WINDOW)
        s->issued++;
}

void honest_look(struct honest_side *s, uint32_t peer, uint32_t which, uint32_t round, size_t size, bool lands, bool glance)
{
    peer = peer < (uint32_t)s->team.size ? peer : 1;
    if (s->aborted || s->issued == s->retired)
        return;
    wire_key key = key_for(s, which, round);
    uint16_t edge = honest_edge(wire_key_edge(key));
    struct honest_request *r =
        request_is_there(s, HONEST_LOOK, key, peer) ? NULL : request_make(s, HONEST_LOOK, key, peer, allowed(s, edge, size), lands);
    if (!r)
        return;
    r->edge = edge;
    const struct wire_look look = {.key = key,
                                   .fingerprint = HONEST_TAG,
                                   .edge = edge,
                                   .flags = glance ? WIRE_GLANCE : 0,
                                   .peer = peer,
                                   .land = lands ? r->memory + HONEST_CANARY : NULL,
                                   .bytes = r->bytes,
                                   .cookie = request_cookie(r),
                                   .view = lands ? NULL : &r->view};
    request_answered(r, s->channel->class->view(s->channel, &look));
}

void honest_see(struct honest_side *s, uint32_t which, size_t size)
{
    const void *at = NULL;

    if (s->aborted || s->issued == s->retired || !s->channel->class->see)
        return;
    wire_key key = key_for(s, which * WIRE_STREAM_EDGES, 0);
    struct honest_request *r =
        request_is_there(s, HONEST_LOOK, key, 1) ? NULL : request_make(s, HONEST_LOOK, key, 1, allowed(s, honest_edge(0), size), false);
    if (!r)
        return;
    enum wire_result result = s->channel->class->see(s->channel, key, HONEST_TAG, 1, r->bytes, &at);
    r->view = (struct wire_view){.at = at, .bytes = r->bytes};
    request_answered(r, result);
}

void honest_show(struct honest_side *s, uint32_t which, uint32_t round, size_t size, bool alone)
{
    static const uint16_t peers[HONEST_RANKS - 1] = {1, 2};

    if (s->aborted || s->issued == s->retired)
        return;
    wire_key key = key_for(s, which, round);
    uint16_t edge = honest_edge(wire_key_edge(key));
    uint32_t count = edge & WIRE_TO_ALL ? (uint32_t)s->team.size - 1 : 1;
    struct honest_request *r =
        request_is_there(s, HONEST_SHOW, key, 1) ? NULL : request_make(s, HONEST_SHOW, key, 1, allowed(s, edge, size), true);
    if (!r)
        return;
    const struct wire_span span = {r->memory + HONEST_CANARY, r->bytes};
    const struct wire_expose e = {.key = key,
                                  .fingerprint = HONEST_TAG,
                                  .edge = edge,
                                  .flags = alone ? WIRE_LAST : 0,
                                  .peers = peers,
                                  .npeers = count,
                                  .nspans = 1,
                                  .spans = &span,
                                  .cookie = request_cookie(r)};
    s->of->told += count * r->bytes;
    if (alone && s->channel->class->show && edge == honest_edge(0))
        request_answered(r, s->channel->class->show(s->channel, key, HONEST_TAG, span.at, span.bytes));
    else
        request_answered(r, s->channel->class->expose(s->channel, &e));
}

void honest_send(struct honest_side *s, uint32_t peer, size_t size)
{
    const uint16_t to = peer < (uint32_t)s->team.size ? (uint16_t)peer : 1;
    wire_key key = wire_key_of(s->sent[to] + 1, 0, 0);
    struct honest_request *r = s->aborted ? NULL : request_make(s, HONEST_SEND, key, to, size, true);

    if (!r)
        return;
    const struct wire_span span = {r->memory + HONEST_CANARY, r->bytes};
    const struct wire_expose e = {.key = key,
                                  .fingerprint = HONEST_TAG,
                                  .flags = WIRE_MESSAGE,
                                  .peers = &to,
                                  .npeers = 1,
                                  .nspans = 1,
                                  .spans = &span,
                                  .cookie = request_cookie(r)};
    enum wire_result result = s->channel->class->expose(s->channel, &e);
    s->sent[to] += result != WIRE_AGAIN;
    s->of->told += size;
    request_answered(r, result);
}

void honest_take(struct honest_side *s, uint32_t which, size_t most, bool discard)
{
    if (s->aborted || !s->announcements)
        return;
    uint32_t at = which % s->announcements;
    struct honest_message m = s->announced[at];
    size_t take = discard ? 0 : m.bytes < most ? (size_t)m.bytes : most;
    struct honest_request *r = request_make(s, HONEST_TAKE, m.key, m.peer, take, true);
    if (!r && !discard)
        return;
    memmove(&s->announced[at], &s->announced[at + 1], (--s->announcements - at) * sizeof *s->announced);
    const struct wire_look look = {.key = m.key,
                                   .flags = discard ? WIRE_MESSAGE | WIRE_DISCARD : WIRE_MESSAGE,
                                   .peer = m.peer,
                                   .land = r ? r->memory + HONEST_CANARY : NULL,
                                   .bytes = take,
                                   .cookie = r ? request_cookie(r) : 0};
    enum wire_result result = s->channel->class->view(s->channel, &look);
    HOLD(result == WIRE_DONE || (result == WIRE_PENDING && !discard));
    if (r)
        request_answered(r, result);
}

void honest_return(struct honest_side *s, uint32_t which)
{
    struct honest_request *r = &s->of->request[which % HONEST_REQUESTS];

    if (r->side == s && r->state == HONEST_ENDED && r->view.at)
        request_give_back(r);
}

void honest_retire(struct honest_side *s)
{
    struct honest *h = s->of;

    if (s->aborted || s->issued == s->retired)
        return;
    for (uint32_t i = 0; i < HONEST_REQUESTS; i++) {
        const struct honest_request *r = &h->request[i];
        if (r->side == s && r->state == HONEST_PENDING && r->kind <= HONEST_SHOW && wire_key_seq(r->key) == s->retired + 1)
            return;
    }
    for (uint32_t i = 0; i < HONEST_REQUESTS; i++) {
        struct honest_request *r = &h->request[i];
        if (r->side == s && r->state == HONEST_ENDED && r->view.at && wire_key_seq(r->key) == s->retired + 1 && r->kind == HONEST_LOOK)
            request_give_back(r);
    }
    s->channel->class->release(s->channel, ++s->retired, NULL);
}

void honest_note(struct honest_side *s, uint32_t sort, const void *bytes, size_t count)
{
    size_t most = wire_note_bytes(sort % WIRE_NOTE_SORTS);
    const struct wire_span span = {bytes, count < most ? count : most};
    const struct wire_expose e = {.key = wire_key_of(1, 0, sort % WIRE_NOTE_SORTS), .flags = WIRE_NOTE, .nspans = 1, .spans = &span};

    s->channel->class->expose(s->channel, &e);
}

void honest_publish(struct honest_side *s, uint32_t chain)
{
    struct wire_call *call = &s->channel->calls[s->issued & (s->channel->caps.calls - 1)];

    atomic_store_explicit(&call->chain, chain, memory_order_relaxed);
    atomic_store_explicit(&call->seq, s->issued, memory_order_release);
}
