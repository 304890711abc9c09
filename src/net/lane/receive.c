/*
 * Receiving. A lane reads into its stage: headers and small payloads. The rest of a large payload is received directly where it belongs,
 * and in the same call the bytes after it go into the stage. A header is trusted only if its checksum, number, kind and length are right,
 * and if the channel, sender and credit that it names exist. Otherwise the connection ends, and with it the link to the peer.
 */
#include "net/lane/lane.h"

#include "base/format.h"

#include <errno.h>
#include <sys/socket.h>

static void refuse(struct tcp_lane *lane, const char *why)
{
    const struct frame *f = &lane->frame;

    base_log(lane->port->wire->log, LOG_ERROR, "tcp: peer=%d lane=%u frame=%u kind=%u bytes=%u: %s; the connection is given up",
             lane->link->peer, lane->lane, lane->in_number, f->kind, f->bytes, why);
    tcp_lane_down(lane);
}

/* ------------------------------------------------------------------------------------------------------------ payloads */
static struct tcp_channel *channel_of(const struct tcp_lane *lane, const struct frame *f)
{
    const struct tcp_wire *w = lane->port->wire;
    uint32_t place = stale_place(f->channel);
    struct tcp_channel *c = place < w->channels ? w->channel[place] : NULL;

    if (!c || !stale_is_for(f->channel, c->name) || c->port != lane->port || !stale_is_member(f->from, c->size, c->world, lane->link->peer))
        return NULL; /* the channel was left or never existed: its bytes are skipped */
    return c;
}

/* Whether a sender can have had a credit for this key. */
static bool is_near(const struct tcp_channel *c, wire_key key)
{
    return tcp_reached(c->retired + c->places[TCP_ROOM_LINES], wire_key_seq(key));
}

static const char *open_exposure(struct tcp_lane *lane, struct tcp_channel *c, const struct frame *f)
{
    uint64_t most = f->edge & WIRE_ONCE ? c->handle.caps.once_max : c->handle.caps.chunk_all;
    struct tcp_slot *s = tcp_slot_find(c, f->from, f->key);

    if (stale_is_done(c->retired, f->key)) { /* of a call that this rank refused */
        lane->channel = NULL;
        return NULL;
    }
    if (!is_near(c, f->key) || f->bytes > most || (!(f->edge & WIRE_ONCE) && wire_key_edge(f->key) >= WIRE_STREAM_EDGES))
        return "an exposure that was never allowed";
    if (s && s->begun)
        return "an exposure that was here before";
    if (!s && c->slots.live >= c->slots.live_most)
        return "more exposures than there are credits";
    s = s ? s : tcp_slot_make(c, f->from, f->key);
    if (!s)
        return "no memory for an exposure";
    tcp_room_used(&c->member[f->from].came[tcp_room_of(f->edge, f->bytes)], wire_key_seq(f->key));
    s->begun = true;
    s->total = f->bytes;
    s->tag = f->tag;
    lane->slot = s;
    if (s->asked && s->look.land && s->look.bytes == s->total && s->look.fingerprint == s->tag) {
        lane->land = s->look.land;
        return NULL;
    }
    s->block = lane->ahead_got ? lane->ahead : tcp_block_take(c->wire, f->bytes ? f->bytes : 1);
    if (!s->block) {
        s->begun = false;
        return "no memory for an exposure";
    }
    lane->land = s->block->data;
    return NULL;
}

static const char *open_data(struct tcp_lane *lane, struct tcp_channel *c, const struct frame *f)
{
    struct tcp_message *m = tcp_message_granted(c, f->from, wire_key_seq(f->key));

    if (!m || f->bytes > m->take - m->begun)
        return "bytes of a message that was not granted";
    lane->message = m;
    lane->land = m->at + m->begun;
    m->begun += f->bytes; /* now, so that no other frame can get the same place */
    return NULL;
}

/* Each kind of frame has its lane, so two frames with a payload for one place never arrive at the same time. Acknowledgements and
 * retirements may use either lane. */
static bool is_on_its_lane(const struct tcp_lane *lane, const struct frame *f)
{
    switch (f->kind) {
    case FRAME_EXPOSE:
        return lane->lane == tcp_lane_for(f->bytes);
    case FRAME_DATA:
        return lane->lane == TCP_LANE_BULK;
    case FRAME_ACK:
    case FRAME_RETIRED:
    case FRAME_GOODBYE:
        return true;
    default:
        return lane->lane == TCP_LANE_SMALL;
    }
}

static const char *open_body(struct tcp_lane *lane)
{
    const struct frame *f = &lane->frame;
    struct tcp_channel *c = channel_of(lane, f);
    if (c)
        tcp_count(&c->traffic.in, f);

    lane->in_body = true;
    lane->left = lane->body_bytes = f->bytes;
    lane->land = NULL;
    lane->slot = NULL;
    lane->message = NULL;
    lane->channel = c && !c->aborted ? c : NULL;
    if (!lane->channel)
        return NULL;
    return f->kind == FRAME_EXPOSE ? open_exposure(lane, c, f) : open_data(lane, c, f);
}

static void close_body(struct tcp_lane *lane)
{
    struct tcp_channel *c = lane->channel;

    lane->in_body = false;
    lane->channel = NULL;
    if (c && lane->slot) {
        struct tcp_slot *s = lane->slot;
        lane->slot = NULL;
        lane->kept = s->block != NULL;
        s->whole = true;
        c->wire->arrivals +=
            s->total <
            c->handle.caps.chunk_all; /* long rows of chunks do not count, so a pump reads all of them first and keeps the sockets empty */
        if (s->asked)
            tcp_slot_whole(c, s);
    } else if (c && lane->message) {
        struct tcp_message *m = lane->message;
        lane->message = NULL;
        tcp_message_took(c, m);
    }
}

/* ------------------------------------------------------------------------------------------------------------ control */
static const char *control(struct tcp_lane *lane, const struct frame *f, const unsigned char *payload)
{
    struct tcp_channel *c;

    if (f->kind == FRAME_GOODBYE) {
        lane->link->goodbye = true;
        return NULL;
    }
    if (f->kind == FRAME_PASS)
        return tcp_relay_came(lane, f, payload);
    c = channel_of(lane, f);
    if (!c)
        return NULL;
    tcp_count(&c->traffic.in, f);
    uint32_t *retired = &c->member[f->from].retired;
    wire_key *acked = tcp_ack_of(c, f->from, f->key);
    switch (f->kind) {
    case FRAME_ACK:
        *acked = stale_ack(*acked, *retired, f->key);
        return NULL;
    case FRAME_RETIRED:
        *retired = stale_retired(*retired, wire_key_seq(f->key));
        return NULL;
    case FRAME_WANT:
        return tcp_room_wanted(c, f->from, f->key);
    case FRAME_NOTE:
        return tcp_note_took(c, f->from, f, payload, 0);
    case FRAME_ASK:
        tcp_calls_asked(c, f->from);
        return NULL;
    case FRAME_CALLS:
        return tcp_calls_took(c, f->from, f, payload);
    default:
        return c->aborted ? NULL : tcp_message_came(c, f->from, f, payload);
    }
}

static bool has_body(const struct frame *f)
{
    return f->kind == FRAME_EXPOSE || f->kind == FRAME_DATA;
}

/* Takes one header, and the payload of a control frame. False: more bytes must arrive first, or the lane has ended. */
static bool take_frame(struct tcp_lane *lane)
{
    const unsigned char *at = (const unsigned char *)lane->stage + lane->begin;
    uint32_t here = lane->end - lane->begin;
    const char *why = NULL;

    if (here < FRAME_HEAD)
        return false;
    enum frame_fault fault = frame_decode(at, lane->in_number, &lane->frame);
    if (fault) {
        refuse(lane, frame_fault_text(fault));
        return false;
    }
    uint32_t payload = frame_payload_at(lane->frame.bytes), span = frame_span(lane->frame.bytes);
    if (here < (has_body(&lane->frame) ? payload : span))
        return false;
    lane->in_number++;
    if (!is_on_its_lane(lane, &lane->frame)) {
        refuse(lane, "it came by the wrong connection");
        return false;
    }
    if (has_body(&lane->frame)) {
        lane->begin += payload;
        lane->pad = span - payload - lane->frame.bytes;
        why = open_body(lane);
    } else {
        lane->begin += span;
        why = control(lane, &lane->frame, at + payload);
    }
    if (why)
        refuse(lane, why);
    return !why;
}

/* Uses the payload that was received ahead of its header. Usually its block becomes the slot's own. */
static void take_ahead(struct tcp_lane *lane)
{
    if (lane->slot && lane->slot->block == lane->ahead)
        lane->ahead = NULL;
    else if (lane->land)
        memcpy(lane->land, lane->ahead->data, lane->ahead_got);
    if (lane->land)
        lane->land += lane->ahead_got;
    lane->left -= lane->ahead_got;
    lane->ahead_got = 0;
}

static void fill_body(struct tcp_lane *lane)
{
    if (lane->ahead_got)
        take_ahead(lane);
    uint32_t here = lane->end - lane->begin, n = here < lane->left ? here : (uint32_t)lane->left;

    if (n && lane->land) {
        memcpy(lane->land, lane->stage + lane->begin, n);
        lane->land += n;
    }
    lane->begin += n;
    lane->left -= n;
}

/* Skips padding. False: more of it must arrive first. */
static bool pass_pad(struct tcp_lane *lane)
{
    uint32_t here = lane->end - lane->begin, n = here < lane->pad ? here : lane->pad;

    lane->begin += n;
    lane->pad -= n;
    return !lane->pad;
}

void tcp_digest(struct tcp_lane *lane)
{
    while (!lane->ended) {
        if (!lane->in_body && (!pass_pad(lane) || !take_frame(lane)))
            break;
        if (!lane->in_body)
            continue;
        fill_body(lane);
        if (lane->left)
            break;
        close_body(lane);
    }
    if (lane->begin == lane->end) {
        lane->begin = lane->end = 0;
    } else if (lane->begin) {
        memmove(lane->stage, lane->stage + lane->begin, lane->end - lane->begin);
        lane->end -= lane->begin;
        lane->begin = 0;
    }
}

/* ------------------------------------------------------------------------------------------------------------ the lane */
/* How many bytes to read into the stage. If the last payload was short, a whole frame of its length, since a second call costs more than
 * copying it. Otherwise few, since the rest is received where it belongs. */
static size_t look_ahead(const struct tcp_lane *lane)
{
    size_t room = lane->stage_bytes - lane->end;
    bool whole = lane->body_bytes <= TCP_READ_WHOLE;

    return whole || room < TCP_LOOK_AHEAD ? room : TCP_LOOK_AHEAD;
}

/* Predicts that a header comes next, followed by a payload as long as the last one, if that one went into a block and no look has a target.
 * Only on the bulk lane, since after a wrong guess the header, the payload and what follows must fit into the stage. */
static bool is_next_known(const struct tcp_lane *lane)
{
    bool between = lane->lane == TCP_LANE_BULK && !lane->in_body && !lane->end && !lane->pad;

    return between && lane->kept && !lane->looks && lane->body_bytes > TCP_SMALL_BYTES && lane->body_bytes <= TCP_AHEAD_BYTES;
}

/* Offers a block for the predicted payload, so that it arrives with one call and no copy. */
static uint32_t offer_ahead(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;
    uint32_t bytes = lane->body_bytes;

    if (lane->ahead && bytes > tcp_block_room(lane->ahead)) {
        tcp_block_give(w, lane->ahead);
        lane->ahead = NULL;
    }
    if (!lane->ahead)
        lane->ahead = tcp_block_take(w, bytes);
    if (!lane->ahead)
        return 0;
    tcp_block_bound(lane->ahead, bytes);
    lane->ahead_bytes = bytes;
    lane->in_vector[0] = (struct iovec){lane->stage, FRAME_LINE};
    lane->in_vector[1] = (struct iovec){lane->ahead->data, bytes};
    lane->in_vector[2] = (struct iovec){lane->stage + FRAME_LINE, TCP_LOOK_AHEAD};
    return 3;
}

/* Sets where the next bytes go. Returns the number of pieces. */
static uint32_t fill_room(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;
    uint32_t n = 0;

    lane->ahead_bytes = 0;
    if (lane->records)
        lane->in_vector[n++] = record_room(lane->records);
    else if (is_next_known(lane))
        n = offer_ahead(lane);
    else if (lane->in_body && lane->left)
        lane->in_vector[n++] = (struct iovec){lane->land ? lane->land : w->memory.sink, lane->left};
    if (!lane->records && !lane->ahead_bytes)
        lane->in_vector[n++] = (struct iovec){lane->stage + lane->end, look_ahead(lane)};
    return n;
}

void tcp_receive_start(struct tcp_lane *lane)
{
    struct tcp_wire *w = lane->port->wire;
    uint32_t n = fill_room(lane);
    int64_t result = w->poller->class->start(w->poller, lane->socket, POLLER_RECEIVE, lane->in_vector, n);
    if (result != -EINPROGRESS)
        tcp_received(lane, result);
}

/* The bytes are a header, the predicted payload, and more. If the prediction was wrong, all of them are moved into the stage in their
 * order. */
static void account_ahead(struct tcp_lane *lane, size_t bytes)
{
    size_t head = bytes < FRAME_LINE ? bytes : FRAME_LINE, got = bytes - head < lane->ahead_bytes ? bytes - head : lane->ahead_bytes;
    const unsigned char *at = (const unsigned char *)lane->stage;
    struct frame f;

    BASE_ASSERT(bytes <= lane->stage_bytes);
    lane->end = (uint32_t)(bytes - got);
    lane->ahead_got = (uint32_t)got;
    if (!got || (!frame_decode(at, lane->in_number, &f) && f.kind == FRAME_EXPOSE && f.bytes == lane->ahead_bytes))
        return;
    memmove(lane->stage + head + got, lane->stage + head, bytes - head - got);
    memcpy(lane->stage + head, lane->ahead->data, got);
    lane->end = (uint32_t)bytes;
    lane->ahead_got = 0;
}

/* Counts received bytes: first those that went where the payload belongs, then those in the stage. */
static void account(struct tcp_lane *lane, size_t bytes)
{
    size_t direct = lane->in_body && lane->left ? (bytes < lane->left ? bytes : lane->left) : 0;

    lane->link->beat++;
    lane->port->wire->pumped += bytes;
    if (lane->ahead_bytes) {
        account_ahead(lane, bytes);
        return;
    }
    lane->left -= direct;
    if (lane->land)
        lane->land += direct;
    BASE_ASSERT(bytes - direct <= lane->stage_bytes - lane->end);
    lane->end += (uint32_t)(bytes - direct);
    if (lane->in_body && !lane->left)
        close_body(lane);
}

/* Takes the bytes of an opened record. plain NULL: they were opened directly into their place. False: the connection has ended. */
static bool take_plain(void *owner, const void *plain, size_t bytes)
{
    struct tcp_lane *lane = owner;
    const char *from = plain;

    if (!plain) {
        account(lane, bytes);
        tcp_digest(lane);
        bytes = 0;
    }
    while (bytes && !lane->ended) {
        size_t direct = !lane->in_body ? 0 : bytes < lane->left ? bytes : lane->left, room = lane->stage_bytes - lane->end;
        size_t rest = bytes - direct < room ? bytes - direct : room;
        if (direct && lane->land)
            memcpy(lane->land, from, direct);
        memcpy(lane->stage + lane->end, from + direct, rest);
        if (!direct && !rest) {
            refuse(lane, "a frame longer than any");
            return false;
        }
        account(lane, direct + rest);
        tcp_digest(lane);
        from += direct + rest;
        bytes -= direct + rest;
    }
    return !lane->ended;
}

/* Where the whole record belongs; NULL: it does not belong to one place. */
static void *place_plain(void *owner, size_t bytes)
{
    const struct tcp_lane *lane = owner;

    return lane->in_body && lane->left >= bytes ? lane->land : NULL;
}

const char *tcp_open_records(struct tcp_lane *lane, size_t bytes)
{
    return record_came(lane->records, bytes, &(struct record_target){.owner = lane, .place = place_plain, .take = take_plain});
}

void tcp_received(struct tcp_lane *lane, int64_t result)
{
    if (lane->ended)
        return;
    if (result <= 0) {
        char why[96];
        base_format(why, sizeof why, "%s (errno %d)", result ? "the connection broke" : "the other end closed", (int)-result);
        tcp_lane_end(lane, why);
        return;
    }
    if (lane->records) {
        const char *why = tcp_open_records(lane, (size_t)result);
        if (why)
            refuse(lane, why);
    } else {
        account(lane, (size_t)result);
        tcp_digest(lane);
    }
    if (!lane->ended)
        tcp_receive_start(lane);
}

/* ------------------------------------------------------------------------------------------------------------ forgetting */
static void forget_lane(struct tcp_lane *lane, const struct tcp_channel *c)
{
    struct tcp_wire *w = lane->port->wire;

    if (lane->channel != c)
        return;
    if (lane->records) { /* the kernel has no memory of the channel's users */
        lane->channel = NULL;
        lane->slot = NULL;
        lane->message = NULL;
        lane->land = NULL;
        return;
    }
    int64_t result = lane->ended ? -ECANCELED : w->poller->class->cancel(w->poller, lane->socket, POLLER_RECEIVE);
    size_t direct = result > 0 ? ((size_t)result < lane->left ? (size_t)result : lane->left) : 0;

    lane->channel = NULL;
    lane->slot = NULL;
    lane->message = NULL;
    lane->land = NULL;
    if (lane->ended)
        return;
    lane->left -= direct;
    BASE_ASSERT(result <= 0 || (size_t)result - direct <= lane->stage_bytes - lane->end);
    if (result > 0)
        lane->end += (uint32_t)((size_t)result - direct);
    if (lane->in_body && !lane->left)
        close_body(lane);
    tcp_digest(lane);
    if (!lane->ended)
        tcp_receive_start(lane);
}

/* On return nothing writes to memory of this channel's users any more. */
void tcp_forget_receives(struct tcp_channel *c)
{
    for (uint32_t i = 0; i < c->size; i++)
        for (uint32_t lane = 0; c->member[i].lane && lane < TCP_LANES; lane++)
            forget_lane(&c->member[i].lane[lane], c);
}
