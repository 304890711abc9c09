#include "staged_messages.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, NOTHING = 0xa5 };
struct rig messages_rig;
static uint32_t filled;

void messages_open(const char *options)
{
    mock_give(mock_take(MIB)); /* from now on, memory of the host is the host's */
    if (options)
        rig_open_options(&messages_rig, MESSAGE_RANKS, options);
    else
        rig_open(&messages_rig, MESSAGE_RANKS, NULL);
}

void messages_close(void)
{
    rig_close(&messages_rig);
}

/* ------------------------------------------------------------------------------------------------------------ memory */
static unsigned char *take(size_t bytes, bool on_device)
{
    unsigned char *at = on_device ? mock_take(bytes) : malloc(bytes);

    CHECK(at);
    return at;
}

void message_take(struct message *m)
{
    m->out = take(m->bytes + GUARD, m->from_device);
    m->in = take(m->room + GUARD, m->to_device);
}

void message_give(struct message *m)
{
    m->from_device ? mock_give(m->out) : free(m->out);
    m->to_device ? mock_give(m->in) : free(m->in);
}

void message_fill(struct message *m)
{
    unsigned char *out = mock_peek(m->out);

    filled++;
    for (uint32_t i = 0; i < (m->bytes + GUARD) / 4; i++) {
        uint32_t word = (filled << 24 | i) * 2654435761u;
        memcpy(out + 4 * (size_t)i, &word, 4);
    }
    memset(mock_peek(m->in), NOTHING, m->room + GUARD);
}

bool message_has(const struct message *m, size_t bytes)
{
    const unsigned char *in = mock_peek(m->in), *out = mock_peek(m->out);
    size_t last = bytes < GUARD ? bytes : GUARD;

    return memcmp(in + bytes - last, out + bytes - last, last) == 0 && memcmp(in, out, bytes) == 0;
}

/* ------------------------------------------------------------------------------------------------------------ messages */
static void receive(struct message *m)
{
    MUST(comm_recv(messages_rig.world[m->to], m->in, m->room, COMM_BYTE, m->any ? COMM_ANY_PEER : m->from, m->tag, &m->status, &m->got));
}

void message_post(struct message *m)
{
    message_take(m);
    message_fill(m);
    if (m->recv_first)
        receive(m);
    MUST(comm_send(messages_rig.world[m->from], m->out, m->bytes, COMM_BYTE, m->to, m->tag, &m->sent));
    if (!m->recv_first)
        receive(m);
}

static uint32_t flags(struct comm_request q)
{
    struct comm_request_info info = {.size = sizeof info};

    MUST(comm_describe_request(q, &info));
    return info.flags;
}

void message_ends_well(struct message *m)
{
    bool fits = m->bytes <= m->room;
    size_t came = fits ? m->bytes : 0;
    const unsigned char *in = mock_peek(m->in);

    MUST(comm_wait(m->sent, RIG_PATIENCE));
    IS(comm_wait(m->got, RIG_PATIENCE), fits ? COMM_OK : COMM_ERR_TRUNCATED);
    EQUAL(m->status.bytes, m->bytes);
    EQUAL(m->status.peer, m->from);
    EQUAL(m->status.tag, m->tag);
    CHECK(message_has(m, came));
    CHECK(in[came] == NOTHING && memcmp(in + came, in + came + 1, m->room + GUARD - came - 1) == 0); /* nothing more is written */
    EQUAL(flags(m->sent), m->from_device ? COMM_INFO_STAGED : 0);
    EQUAL(flags(m->got), m->to_device ? COMM_INFO_STAGED : 0);
    message_give(m);
}

/* ------------------------------------------------------------------------------------------------------------ steps */
void turn_before(int64_t end)
{
    CHECK(rig_now() < end);
    for (int r = 0; r < MESSAGE_RANKS; r++) {
        enum comm_result moved = comm_progress(messages_rig.world[r]);
        CHECK(moved == COMM_OK || moved == COMM_PENDING);
    }
}

void step_when_there(bool to_device)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !mock_step(to_device);)
        turn_before(end);
}

void store_until(const struct message *m, size_t bytes)
{
    for (int64_t end = rig_now() + RIG_PATIENCE; !message_has(m, bytes);) {
        turn_before(end);
        (void)mock_step(true);
    }
}
