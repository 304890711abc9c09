/*
 * Receiving frames. MPI always has some receives of this wire, from any rank, so a look is one MPI_Test, and what comes is copied only
 * once. MPI fills them in the order in which they were posted, and it keeps the order of one rank's messages. With a later MPICH over UCX
 * such a receive may take a message and never end, so a look asks MPI for frames there, and posts a receive for each that it finds.
 *
 * A long frame comes as its head, and its payload with another tag. Only its source's later frames wait for the payload: frames of one rank
 * are processed in the order in which it sent them, because messages are numbered; frames of different ranks in any order.
 */
#include "net/mpiwire/mpiwire.h"

#include <stdlib.h>
#include <string.h>

enum { FRAMES_A_LOOK = 64, SENDS_UNASKED = 16 };
/* MPI may have filled a receive that this rank withdraws. How long to wait for its end. */
#define WITHDRAW_NS INT64_C(1000000000)

struct mpiwire_channel *mpiwire_find(struct mpiwire *w, uint64_t id)
{
    struct mpiwire_channel *c = w->channels;

    while (c && c->id != id)
        c = c->next;
    return c;
}

/* The channel of a frame, or NULL: it was left, or no rank of this library would send such a frame. */
static struct mpiwire_channel *receiver_of(struct mpiwire *w, const struct mpiwire_block *b)
{
    const struct mpiwire_head *head = (const struct mpiwire_head *)(const void *)b->frame;
    struct mpiwire_channel *c = mpiwire_find(w, head->id);

    if (!c || c->aborted || (head->from < c->size && head->from != c->rank && c->world[head->from] == b->peer))
        return c && !c->aborted ? c : NULL;
    mpiwire_stray(w, b->peer, COMM_ERR_CORRUPT);
    return NULL;
}

bool mpiwire_is_too_long(int code)
{
    int class = MPI_SUCCESS;

    return MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE;
}

static void hear_exposure(struct mpiwire_channel *c, struct mpiwire_member *m, struct mpiwire_block *b)
{
    uint32_t room = mpiwire_head_of(b)->room;

    if (!m->room || room < m->room)
        m->room = room ? room : 1;
    mpiwire_exposed(c, b);
}

static void took(struct mpiwire *w, struct mpiwire_block *b)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);
    struct mpiwire_channel *c = receiver_of(w, b);

    w->ended[b->peer] |= head->kind == MPIWIRE_LAST;
    if (!c || c->member[head->from].deaf) {
        mpiwire_block_give(w, b);
        return;
    }
    struct mpiwire_member *m = &c->member[head->from];
    atomic_store_explicit(&c->traffic.in, atomic_load_explicit(&c->traffic.in, memory_order_relaxed) + b->length,
                          memory_order_relaxed); /* written under the lock */
    if (head->retired != m->retired && mpiwire_reached(head->retired, m->retired)) {
        m->retired = head->retired;
        m->wanted = false; /* this is the answer; the next lack of room asks again */
    }
    switch (head->kind) {
    case MPIWIRE_EXPOSE:
        hear_exposure(c, m, b);
        return;
    case MPIWIRE_ACK:
        if (head->key)
            *mpiwire_ack_of(c, head->from, head->key) = head->key;
        break;
    case MPIWIRE_RETIRED:
        break;
    case MPIWIRE_NOTED:
        atomic_store_explicit(&c->told, true, memory_order_relaxed);
        break;
    case MPIWIRE_WANT:
        m->wants = true;
        if (c->retired != m->retired_told && !mpiwire_post(c, head->from, MPIWIRE_RETIRED, 0, 0, NULL, 0))
            c->retires = true; /* the next flush tells it */
        break;
    default:
        mpiwire_message_came(c, b);
        return;
    }
    mpiwire_block_give(w, b);
}

/* ------------------------------------------------------------------------------------------------------------ long frames */
/* Asks MPI for the payload of a frame whose head is in `b`; the result is a block for both, or `b` if there is no memory. Payloads of a
 * source come in the order of their heads, so their receives are posted in this order. */
static struct mpiwire_block *begin_payload(struct mpiwire *w, struct mpiwire_block *b)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);
    size_t payload = head->bytes;
    struct mpiwire_block *whole = mpiwire_block_take(w, payload);

    if (!whole)
        return b;
    *mpiwire_head_of(whole) = *head;
    whole->peer = b->peer;
    whole->length = MPIWIRE_HEAD + payload;
    int code = MPI_Irecv(mpiwire_payload(whole), (int)payload, MPI_BYTE, whole->peer, MPIWIRE_TAG_LONG, w->world->base, &whole->request);
    whole->state = code == MPI_SUCCESS ? MPIWIRE_COMES : MPIWIRE_LOST;
    mpiwire_block_give(w, b);
    return whole;
}

static void keep(struct mpiwire *w, struct mpiwire_block *b)
{
    w->lacking += b->state == MPIWIRE_LACKS;
    w->source[b->peer].waiting++;
    b->next = NULL;
    *w->receiving_last = b;
    w->receiving_last = &b->next;
}

/* One in a look: MPI may copy the whole payload while it begins. So what this rank has to send leaves in between, and the payload is taken
 * while it is still in the cache. */
static void begin_oldest(struct mpiwire *w)
{
    struct mpiwire_block **at = &w->receiving;

    while ((*at)->state != MPIWIRE_LACKS)
        at = &(*at)->next;
    struct mpiwire_block *next = (*at)->next, *b = begin_payload(w, *at);
    if (b == *at)
        return;
    b->next = next;
    if (!next)
        w->receiving_last = &b->next;
    *at = b;
    w->lacking--;
    w->moved = true;
}

/* Whether a frame, with all that its source sent before it, has come. */
static bool has_come(const struct mpiwire *w, const struct mpiwire_block *b)
{
    return w->source[b->peer].behind != w->turn && b->state != MPIWIRE_LACKS && b->state != MPIWIRE_COMES;
}

/* MPI has failed to receive a payload: its source died, or MPI lacks something. Or it is not as long as its head says. */
static void lost(struct mpiwire *w, struct mpiwire_block *b)
{
    struct mpiwire_channel *c = receiver_of(w, b);

    if (c)
        mpiwire_break(c, mpiwire_head_of(b)->from, b->state == MPIWIRE_WRONG ? COMM_ERR_CORRUPT : COMM_ERR_BACKEND, true);
    mpiwire_block_give(w, b);
}

static bool take_long(struct mpiwire *w)
{
    struct mpiwire_block **at = &w->receiving, *b;
    bool any = false;

    w->turn++;
    while ((b = *at)) {
        if (!has_come(w, b)) {
            w->source[b->peer].behind = w->turn;
            at = &b->next;
            continue;
        }
        *at = b->next;
        if (!*at)
            w->receiving_last = at;
        w->source[b->peer].waiting--;
        any = true;
        if (b->state == MPIWIRE_HERE)
            took(w, b);
        else
            lost(w, b);
    }
    return any;
}

/* ------------------------------------------------------------------------------------------------------------ all frames */
/* With fault tolerance, MPI stops receives from any source after a death until the program says that it knows. The guard knows. */
static void go_on(struct mpiwire *w)
{
    if (w->go_on)
        (void)w->go_on(w->world->base);
}

static void post(struct mpiwire *w, struct mpiwire_block *b, int source)
{
    b->peer = source;
    if (MPI_Irecv(b->frame, MPIWIRE_HEAD + MPIWIRE_WHOLE, MPI_BYTE, source, MPIWIRE_TAG, w->world->base, &b->request) != MPI_SUCCESS) {
        mpiwire_block_give(w, b);
        go_on(w);
        return;
    }
    w->posted[(w->posted_first + w->posts++) % MPIWIRE_POSTED] = b;
}

/* The source of the next receive. False: MPI has no frame, and a receive from any source may not be posted. */
static bool source_of_next(struct mpiwire *w, int *source)
{
    MPI_Status status;
    int here = 0;

    *source = MPI_ANY_SOURCE;
    if (!w->finds)
        return true;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPIWIRE_TAG, w->world->base, &here, &status) != MPI_SUCCESS || !here)
        return false;
    *source = status.MPI_SOURCE;
    return true;
}

/* Without memory, frames wait in MPI. */
static void post_all(struct mpiwire *w)
{
    int source;

    while (w->posts < MPIWIRE_POSTED && source_of_next(w, &source)) {
        uint32_t before = w->posts;
        struct mpiwire_block *b = mpiwire_block_take(w, MPIWIRE_WHOLE);
        if (b)
            post(w, b, source);
        if (w->posts == before)
            return;
    }
}

static bool is_peer(const struct mpiwire *w, int source)
{
    return source >= 0 && source < w->ranks && w->joined[source];
}

/* Whether a rank of this library would send such a frame. */
static bool is_sound(const struct mpiwire *w, struct mpiwire_block *b, int length, int source)
{
    const struct mpiwire_head *head = mpiwire_head_of(b);

    if (length < MPIWIRE_HEAD || !is_peer(w, source))
        return false;
    if (length == MPIWIRE_HEAD && head->bytes) /* the payload is a message of its own, which else never comes */
        return mpiwire_is_just_at_once(head->bytes) || (head->bytes > MPIWIRE_WHOLE && head->bytes <= INT32_MAX - MPIWIRE_HEAD);
    return head->bytes == (uint64_t)length - MPIWIRE_HEAD;
}

/* MPI has failed to receive a frame, or it is unsound. A frame may be lost, and without it a call may wait until its deadline.
 * Nobody is blamed for a frame of which MPI does not say whose it was. */
static void reject(struct mpiwire *w, struct mpiwire_block *b, int code, int source)
{
    bool known = is_peer(w, source), wrong = known && (code == MPI_SUCCESS || mpiwire_is_too_long(code));

    mpiwire_stray(w, known ? source : -1, wrong ? COMM_ERR_CORRUPT : COMM_ERR_BACKEND);
    mpiwire_block_give(w, b);
    w->moved = w->came = true; /* who sleeps is to hear of it */
}

/* The next frame that has come, or NULL. */
static struct mpiwire_block *next_frame(struct mpiwire *w)
{
    struct mpiwire_block *b = w->posted[w->posted_first], *small;
    MPI_Status status = {.MPI_SOURCE = b->peer};
    int here = 0, length = 0;

    int code = MPI_Test(&b->request, &here, &status);
    if (!here && code != MPI_SUCCESS)
        go_on(w);
    if (!here)
        return NULL;
    w->posted_first = (w->posted_first + 1) % MPIWIRE_POSTED;
    w->posts--;
    if (code == MPI_SUCCESS)
        MPI_Get_count(&status, MPI_BYTE, &length);
    if (code != MPI_SUCCESS || !is_sound(w, b, length, status.MPI_SOURCE)) {
        reject(w, b, code, status.MPI_SOURCE);
        return NULL;
    }
    b->peer = status.MPI_SOURCE;
    b->length = (uint64_t)length;
    b->state = length == MPIWIRE_HEAD && mpiwire_head_of(b)->bytes ? MPIWIRE_LACKS : MPIWIRE_HERE;
    small = length <= MPIWIRE_SMALL ? mpiwire_block_take(w, (size_t)length - MPIWIRE_HEAD) : NULL;
    if (!small)
        return b;
    small->peer = b->peer;
    small->length = b->length;
    small->state = b->state;
    memcpy(small->frame, b->frame, (size_t)length);
    if (w->finds)
        mpiwire_block_give(w, b);
    else
        post(w, b, MPI_ANY_SOURCE);
    return small;
}

static bool take_frames(struct mpiwire *w)
{
    struct mpiwire_block *b;
    int count = 0;

    if (w->finds)
        post_all(w);
    while (count < FRAMES_A_LOOK && w->posts && (b = next_frame(w))) {
        count++;
        if (b->state == MPIWIRE_HERE && !w->source[b->peer].waiting)
            took(w, b);
        else
            keep(w, b);
        if (w->posts < MPIWIRE_POSTED / 2 && !w->finds)
            post_all(w);
    }
    return count != 0;
}

/* What has come is what somebody waits for. So the ends of sends are looked for only when nothing has come, if they are many, or if a
 * message goes on when they have ended. */
bool mpiwire_progress(struct mpiwire *w)
{
    if (mpi_is_over())
        return false;
    if (w->due || w->lacks)
        mpiwire_send_due(w);
    bool came = take_frames(w), sends = w->sending && (!came || w->pieces || w->unasked > SENDS_UNASKED);
    if (w->lacking && !w->due)
        begin_oldest(w);
    if (w->receiving || sends)
        mpiwire_ends(w, sends);
    if (w->receiving)
        came |= take_long(w);
    if (came)
        w->moved = w->came = true;
    if (!w->finds && w->posts < MPIWIRE_POSTED)
        post_all(w);
    return w->due || w->lacking;
}

/* A pass has looked before it makes its calls, and each of its operations that lacks something comes here. If each of them looked, a pass
 * of many operations would take long, above all where MPI gives the CPU away when it finds nothing. */
void mpiwire_look(struct mpiwire_channel *c)
{
    if (!c->looked)
        mpiwire_progress(c->wire);
    c->looked = true;
}

void mpiwire_receive_end(struct mpiwire *w)
{
    int64_t until = w->env->now(w->env) + WITHDRAW_NS;

    for (uint32_t i = 0; i < w->posts && !mpi_is_over(); i++)
        MPI_Cancel(&w->posted[(w->posted_first + i) % MPIWIRE_POSTED]->request);
    while (w->posts) {
        struct mpiwire_block *b = w->posted[w->posted_first];
        int here = 0;
        if (!mpi_is_over())
            MPI_Test(&b->request, &here, MPI_STATUS_IGNORE);
        if (!here && !mpi_is_over() && w->env->now(w->env) < until)
            continue;
        if (!here && !mpi_is_over())
            return;
        w->posted_first = (w->posted_first + 1) % MPIWIRE_POSTED;
        w->posts--;
        mpiwire_block_give(w, b);
    }
}
