/*
 * Which sends, and which payloads of long frames, have ended; the blocks of ended sends are free again. MPI is asked about all of them in
 * one call, because a call that finds nothing may cost much: Open MPI then looks at all its connections. If its launcher allows more ranks
 * than CPUs, it also yields the CPU.
 */
#include "net/mpiwire/mpiwire.h"

enum { ENDS_A_CALL = 64, SENDS_A_CALL = 32 };

struct ends {
    struct mpiwire *wire;
    int count;
    uint32_t open[ENDS_A_CALL]; /* of a send: enum mpiwire_open; 0: a payload that comes */
    struct mpiwire_block *block[ENDS_A_CALL];
    MPI_Request request[ENDS_A_CALL];
};

/* How the receive of a payload has ended. */
static enum mpiwire_state state_of(const struct mpiwire_block *b, int code, const MPI_Status *status)
{
    int length = 0;

    if (code != MPI_SUCCESS)
        return mpiwire_is_too_long(code) ? MPIWIRE_WRONG : MPIWIRE_LOST;
    MPI_Get_count(status, MPI_BYTE, &length);
    return (uint64_t)length == b->length - MPIWIRE_HEAD ? MPIWIRE_HERE : MPIWIRE_WRONG;
}

/* A request fails if its rank died, which the guard reports, or if MPI lacks something. */
static void note_end(struct ends *e, int at, int code, const MPI_Status *status)
{
    struct mpiwire_block *b = e->block[at];

    if (e->open[at] && code != MPI_SUCCESS)
        mpiwire_refused(e->wire, b);
    if (e->open[at])
        b->open &= ~e->open[at];
    else
        b->state = state_of(b, code, status);
}

static void ask(struct ends *e)
{
    MPI_Status status[ENDS_A_CALL];
    int index[ENDS_A_CALL], ended = 0;

    if (!e->count)
        return;
    int code = MPI_Testsome(e->count, e->request, &ended, index, status);
    bool says_each = code == MPI_SUCCESS || code == MPI_ERR_IN_STATUS; /* otherwise MPI can serve none of them */
    for (int i = 0; says_each && i < ended; i++)
        note_end(e, index[i], code == MPI_SUCCESS ? MPI_SUCCESS : status[i].MPI_ERROR, &status[i]);
    for (int i = 0; !says_each && i < e->count; i++)
        note_end(e, i, code, NULL);
    e->count = 0;
}

static void add(struct ends *e, struct mpiwire_block *b, MPI_Request request, uint32_t open)
{
    if (e->count == ENDS_A_CALL)
        ask(e);
    e->block[e->count] = b;
    e->open[e->count] = open;
    e->request[e->count++] = request;
}

/* Sends end in any order, so a rank that receives nothing does not delay the others. */
static void leave(struct mpiwire *w, struct mpiwire_block *b)
{
    struct mpiwire_message *m = b->piece_of;

    mpiwire_block_give(w, b);
    w->moved = true;
    if (m)
        mpiwire_piece_left(w, m);
}

/* Asks about the first sends. Those that have not ended go to the end of the list, so a rank that receives nothing does not keep the others
 * from being seen. True: all have ended, and there may be as many more. */
static bool end_first_sends(struct mpiwire *w, struct ends *e)
{
    struct mpiwire_block *asked[SENDS_A_CALL];
    uint32_t count = 0, ended = 0;

    for (struct mpiwire_block *b; count < SENDS_A_CALL && (b = w->sending); count++) {
        w->sending = b->next;
        if (b->open & MPIWIRE_OPEN_HEAD)
            add(e, b, b->head, MPIWIRE_OPEN_HEAD);
        if (b->open & MPIWIRE_OPEN_REQUEST)
            add(e, b, b->request, MPIWIRE_OPEN_REQUEST);
        asked[count] = b;
    }
    if (!w->sending)
        w->sending_last = &w->sending;
    ask(e);
    for (uint32_t i = 0; i < count; i++) {
        ended += !asked[i]->open;
        if (asked[i]->open)
            mpiwire_sends(w, asked[i]);
        else
            leave(w, asked[i]);
    }
    return ended == SENDS_A_CALL;
}

void mpiwire_ends(struct mpiwire *w, bool sends)
{
    struct ends e;

    e.wire = w;
    e.count = 0;
    for (struct mpiwire_block *b = w->receiving; b; b = b->next)
        if (b->state == MPIWIRE_COMES)
            add(&e, b, b->request, 0);
    w->unasked = sends ? 0 : w->unasked;
    while (sends && end_first_sends(w, &e))
        continue;
    ask(&e);
}
