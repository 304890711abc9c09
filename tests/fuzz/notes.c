/*
 * What a member sends to an engine in addition to its exposures: notes of all kinds, published calls, and the library's own messages
 * (requests and replies of windows, setup messages), with any contents, in every state of the engine. Three ranks of one process on a mock
 * machine make real calls. Part of what the last of them sends comes from the fuzzer. The local wire has a board, tcp (connected by mock.h)
 * has none.
 *
 * For any input: no call hangs. Closing ends everything and frees all memory. A failure has a text, and its cause names members only. The
 * buffer of an honest rank's request does not change after the request has ended.
 *
 * An input is a row of actions: a byte for the action (bit 7: no pass follows), then its arguments. After the end of the input all bytes
 * are zero.
 */
#include "fuzz/fuzz.h"
#include "fuzz/threadless.h"

#include "comm/state.h"
#include "message/message.h"
#include "failure/recover.h"

#include <commstream/collective.h>
#include <commstream/inspect.h>
#include <commstream/message.h>
#include <commstream/open.h>
#include <commstream/progress.h>
#include <commstream/window.h>

#include <string.h>

enum { RANKS = 3, LIAR = RANKS - 1, COMMS = 6, WINDOWS = 4, REQUESTS = 64, BYTES = 24576, SAYINGS = 16, FILL = 0xa5 };
enum { CLOSE_NS = 100000000, TIMEOUT_NS = 2000000000, PASSES = 3 };

/* A pending call, and where it writes. */
struct asked {
    struct comm_request request;
    unsigned char *memory;
    size_t bytes;
    uint32_t sum;
    bool ended, honest;
};

/* Replaces the next message that the liar's program sends. */
struct lie {
    bool told;
    uint32_t kind, tag;
    unsigned char bytes[SAYINGS * 4 + 8];
    size_t count;
};

struct game {
    struct mock mock;
    const unsigned char *at, *end;
    struct comm_communicator *comm[RANKS][COMMS];
    struct comm_window *window[RANKS][WINDOWS];
    uint32_t comms, windows, windows_on[WINDOWS];
    struct asked asked[REQUESTS];
    uint32_t next, ended;
    struct lie lie;
    struct wire_class liars[COMMS]; /* the classes of the liar's channels */
    const struct wire_class *real;
    uint64_t memory[RANKS][8]; /* memory of the program, for windows that use it */
};
static struct game game;

static uint32_t next(void)
{
    return game.at < game.end ? *game.at++ : 0;
}

/* Small values, and those at the limits of their ranges. */
static uint32_t word(void)
{
    static const uint32_t ends[] = {UINT32_MAX, INT32_MAX, UINT32_C(0x80000000), 65535, 65536, 1u << 20, 255,
                                    256,        1024,      UINT32_MAX - 1,       64,    63};
    uint32_t byte = next();

    if (byte >= 0xc0)
        return ends[byte % (sizeof ends / sizeof *ends)];
    return byte >= 0x80 ? (uint32_t) - (int32_t)(byte & 0x3f) : byte;
}

/* ------------------------------------------------------------------------------------------------------------ requests */
static void check_asked(struct asked *a)
{
    if (!a->memory || !a->honest)
        return;
    if (a->ended) {
        HOLD(frame_crc32c(0, a->memory, a->bytes) == a->sum);
    } else if (comm_test(a->request) != COMM_PENDING) {
        a->ended = true;
        a->sum = frame_crc32c(0, a->memory, a->bytes);
        game.ended++;
    }
}

/* NULL: all are pending. */
static struct asked *make_asked(uint32_t rank, size_t bytes)
{
    struct asked *a = &game.asked[game.next++ % REQUESTS];

    check_asked(a);
    if (a->memory && comm_test(a->request) == COMM_PENDING)
        return NULL;
    free(a->memory);
    *a = (struct asked){.memory = malloc(bytes ? bytes : 1), .bytes = bytes, .honest = rank != LIAR};
    HOLD(a->memory);
    memset(a->memory, FILL, bytes);
    return a;
}

/* The result is one of the known codes. */
static void any_answer(enum comm_result result)
{
    HOLD(!strncmp(comm_result_name(result), "COMM_", 5));
}

/* Handles the result of a call; a refused call has nothing pending. */
static void begun(struct asked *a, enum comm_result result)
{
    if (result == COMM_OK || result == COMM_PENDING)
        return;
    a->ended = true;
    a->sum = frame_crc32c(0, a->memory, a->bytes);
}

/* ------------------------------------------------------------------------------------------------------------ lies */
static struct comm_state *liar(uint32_t which)
{
    struct comm_communicator *c = game.comm[LIAR][which];

    return c ? atomic_load(&c->state) : NULL;
}

static enum wire_result expose(struct wire_channel *channel, const struct wire_expose *e)
{
    static unsigned char said[REQUESTS][sizeof game.lie.bytes];
    static uint32_t which;
    struct wire_expose told = *e;
    struct wire_span span;

    if (!game.lie.told || (e->flags & WIRE_KIND) != WIRE_MESSAGE)
        return game.real->expose(channel, e);
    game.lie.told = false;
    which = (which + 1) % REQUESTS;
    memcpy(said[which], game.lie.bytes, game.lie.count);
    span = (struct wire_span){said[which], game.lie.count};
    told.key = wire_key_of(wire_key_seq(e->key), game.lie.kind, wire_key_edge(e->key));
    told.fingerprint = game.lie.tag;
    told.nspans = 1;
    told.spans = &span;
    return game.real->expose(channel, &told);
}

static void make_liar(uint32_t which)
{
    struct comm_state *b = liar(which);

    if (!b || !b->channel || b->channel->class == &game.liars[which])
        return;
    game.real = b->channel->class; /* a channel of two ranks has another class, with the same expose */
    game.liars[which] = *game.real;
    game.liars[which].expose = expose;
    b->channel->class = b->wire = &game.liars[which];
}

static void say_note(void)
{
    struct comm_state *b = liar(next() % COMMS);
    uint32_t sort = next() % WIRE_NOTE_SORTS, how = next(), seq = word(), words = next();
    uint32_t text[WIRE_NOTE_LONG_BYTES / 4] = {0};
    size_t most = wire_note_bytes(sort), count = how & 0x80 ? words * 8 : most;

    words = words % 32 < most / 4 ? words % 32 : (uint32_t)(most / 4);
    for (uint32_t i = 0; i < words; i++)
        text[i] = word();
    if (!b || !b->channel)
        return;
    const struct wire_span span = {text, count < most ? count : most};
    const struct wire_expose e = {
        .key = wire_key_of(seq, how & 3, sort), .fingerprint = how, .flags = WIRE_NOTE, .nspans = 1, .spans = &span};
    b->channel->class->expose(b->channel, &e);
    b->channel->class->flush(b->channel);
}

static void say_call(void)
{
    struct comm_state *b = liar(next() % COMMS);
    uint32_t seq = word();

    if (!b || !b->channel)
        return;
    struct wire_call *call = &b->channel->calls[seq & b->calls.mask];
    atomic_store(&call->fingerprint, word());
    atomic_store(&call->collective, (uint8_t)next());
    atomic_store(&call->type, (uint8_t)next());
    atomic_store(&call->flags, (uint8_t)next());
    atomic_store(&call->refused, (int8_t)next());
    atomic_store(&call->op, word());
    atomic_store(&call->root, (int32_t)word());
    atomic_store(&call->chain, word());
    atomic_store(&call->n, (uint64_t)word() << 32 | word());
    atomic_store(&call->seq, seq);
}

static void say_message(void)
{
    uint32_t which = next() % COMMS, peer = next() % LIAR, kind = next() % (MESSAGE_KINDS + 1), words = next() % SAYINGS;
    struct comm_communicator *c = game.comm[LIAR][which];

    game.lie = (struct lie){.kind = kind, .tag = next(), .count = words * 4 + next() % 8};
    for (uint32_t i = 0; i < words; i++) {
        uint32_t value = word();
        memcpy(game.lie.bytes + 4 * (size_t)i, &value, sizeof value);
    }
    struct asked *a = c ? make_asked(LIAR, 64) : NULL;
    if (!a)
        return;
    game.lie.told = true;
    begun(a, comm_send(c, a->memory, game.lie.count < 64 ? game.lie.count : 64, COMM_BYTE, (int32_t)peer, 1, &a->request));
    game.lie.told = false;
}

/* ------------------------------------------------------------------------------------------------------------ calls */
static enum comm_result collective(struct comm_communicator *c, struct asked *a, uint32_t what, size_t n, int32_t root)
{
    unsigned char *in = a->memory, *out = a->memory + a->bytes / 2;

    switch (what % 8) {
    case 0:
        return comm_barrier(c, &a->request);
    case 1:
        return comm_broadcast(c, in, n, COMM_I32, root, &a->request);
    case 2:
        return comm_allreduce(c, in, out, n, COMM_I32, COMM_SUM, &a->request);
    case 3:
        return comm_reduce(c, in, out, n, COMM_I32, COMM_MAX, root, &a->request);
    case 4:
        return comm_allgather(c, in, out, n / RANKS, COMM_I32, &a->request);
    case 5:
        return comm_alltoall(c, in, out, n / RANKS, COMM_I32, &a->request);
    case 6:
        return comm_scan(c, in, out, n, COMM_I32, COMM_SUM, &a->request);
    default:
        return comm_scatter(c, in, out, n / RANKS, COMM_I32, root, &a->request);
    }
}

static void call_all(void)
{
    static const size_t lengths[] = {1, 0, 2, 12, 60, 61, 300, 1024, 3000};
    uint32_t which = next() % COMMS, what = next(), who = next(), root = who >> 3 & 3;
    size_t n = lengths[(what >> 4) % (sizeof lengths / sizeof *lengths)];

    for (uint32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *c = game.comm[r][which];
        struct asked *a = c && !(who >> r & 1) ? make_asked(r, BYTES) : NULL; /* a set bit omits the rank */
        if (a)
            begun(a, collective(c, a, what, n, (int32_t)root % RANKS));
    }
}

static void message(void)
{
    uint32_t which = next() % COMMS, how = next(), rank = how & 3, peer = how >> 2 & 3, tag = next();
    struct comm_communicator *c = rank < RANKS ? game.comm[rank][which] : NULL;
    size_t n = how & 0x40 ? 8192 : 16;
    struct asked *a = c ? make_asked(rank, n) : NULL;
    int32_t from = peer < RANKS ? (int32_t)peer : COMM_ANY_PEER;

    if (a && how & 0x80)
        begun(a, comm_send(c, a->memory, n, COMM_BYTE, (int32_t)peer % RANKS, tag, &a->request));
    else if (a)
        begun(a, comm_recv(c, a->memory, n, COMM_BYTE, from, tag ? tag : COMM_ANY_TAG, NULL, &a->request));
}

/* All ranks make a communicator. It is used when it is there. */
static void make_comm(void)
{
    uint32_t parent = next() % COMMS, how = next(), place = game.comms;
    struct comm_request request;

    if (place == COMMS)
        return;
    game.comms++;
    for (uint32_t r = 0; r < RANKS; r++) {
        struct comm_communicator *c = game.comm[r][parent];
        if (!c || how >> 6 == r + 1) /* omits one rank */
            continue;
        struct asked *a = make_asked(r, sizeof c);
        if (!a)
            continue;
        enum comm_result made = how & 1   ? comm_split(c, (int32_t)r & 1, 0, &game.comm[r][place], &request)
                                : how & 2 ? comm_shrink(c, &game.comm[r][place], &request)
                                : how & 4 ? comm_subset(c, (const int32_t[]){0, 1, 2}, RANKS, 1, &game.comm[r][place], &request)
                                          : comm_dup(c, NULL, &game.comm[r][place], &request);
        a->request = request;
        begun(a, made);
    }
}

static void make_window(void)
{
    uint32_t which = next() % COMMS, how = next();

    if (game.windows == WINDOWS)
        return;
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct comm_window_options options = {.size = sizeof options, .base = how & 1 ? game.memory[r] : NULL, .signals = 2};
        struct asked *a = game.comm[r][which] ? make_asked(r, 8) : NULL;
        if (a)
            begun(a, comm_window_create(game.comm[r][which], sizeof game.memory[r], &options, &game.window[r][game.windows], &a->request));
    }
    game.windows_on[game.windows++] = which;
}

static enum comm_result one_sided(struct comm_window *w, struct asked *a, uint32_t how, int32_t peer, size_t offset)
{
    switch (how >> 4 & 7) {
    case 0:
        return comm_put(w, a->memory, 8, COMM_BYTE, peer, offset, &a->request);
    case 1:
        return comm_get(w, a->memory, 16, COMM_BYTE, peer, offset, &a->request);
    case 2:
        return comm_accumulate(w, a->memory, 2, COMM_U64, COMM_SUM, peer, offset & ~(size_t)7, &a->request);
    case 3:
        return comm_fetch_op(w, a->memory, a->memory + 32, 1, COMM_U64, COMM_SUM, peer, offset & ~(size_t)7, &a->request);
    case 4:
        return comm_window_signal(w, peer, offset & 1, 1, &a->request);
    case 5:
        return comm_window_wait_signal(w, offset & 1, 1, &a->request);
    case 6:
        return comm_window_flush(w, peer, &a->request);
    default:
        return comm_window_fence(w, &a->request);
    }
}

static void use_window(void)
{
    uint32_t how = next(), which = how & 3, rank = how >> 2 & 3, target = next();

    if (rank >= RANKS || which >= game.windows || !game.window[rank][which])
        return;
    struct asked *a = make_asked(rank, 64);
    if (a)
        begun(a, one_sided(game.window[rank][which], a, how, (int32_t)(target & 3) % RANKS, target >> 2));
}

static void end_comm(void)
{
    uint32_t which = next() % COMMS, how = next(), rank = how >> 3 & 3;
    struct comm_communicator *c = rank < RANKS ? game.comm[rank][which] : NULL;
    struct asked *a;

    if (!c)
        return;
    switch (how >> 5) {
    case 0:
    case 1:
        any_answer(comm_revoke(c));
        return;
    case 2:
        comm_abort(c, 3);
        return;
    case 3:
        if ((a = make_asked(rank, sizeof(uint64_t))))
            begun(a, comm_agree(c, (uint64_t *)(void *)a->memory, &a->request));
        return;
    case 4:
        any_answer(comm_sync(c, COMM_FOREVER));
        return;
    default:
        for (uint32_t i = 0; i < game.windows; i++) /* a window must not outlive its communicator */
            if (game.windows_on[i] == which)
                return;
        comm_close(c, CLOSE_NS);
        game.comm[rank][which] = NULL;
    }
}

/* ------------------------------------------------------------------------------------------------------------ the target */
static void make_passes(void)
{
    for (int i = 0; i < PASSES; i++)
        for (uint32_t r = 0; r < RANKS; r++)
            if (game.comm[r][0])
                any_answer(comm_progress(game.comm[r][0]));
    for (uint32_t i = 0; i < game.comms; i++)
        make_liar(i);
}

/* The cause of a failure names a member or no rank, and has a text. */
static void check_comm(struct comm_communicator *c)
{
    struct comm_error error = {.size = sizeof error};

    if (!c || comm_error_detail(c, &error) != COMM_OK || error.result == COMM_OK)
        return;
    HOLD(error.rank >= -1 && error.rank < comm_size(c) && error.peer >= -1 && error.peer < comm_size(c));
    HOLD(error.result < 0 && error.text[0] && memchr(error.text, 0, sizeof error.text) && memchr(error.cause, 0, sizeof error.cause));
}

static void step(void)
{
    static void (*const does[])(void) = {make_passes, say_note,  call_all,    message,    say_note, say_call,
                                         say_message, make_comm, make_window, use_window, end_comm};
    uint32_t what = next(), action = (what & 0x7f) % (uint32_t)(sizeof does / sizeof *does + 1);

    if (action < sizeof does / sizeof *does)
        does[action]();
    else
        threadless_watch((int64_t)next() * 5000000);
    if (!(what & 0x80))
        make_passes();
    for (uint32_t i = 0; i < REQUESTS; i++)
        check_asked(&game.asked[i]);
    for (uint32_t i = 0; i < game.comms; i++)
        for (uint32_t r = 0; r < LIAR; r++)
            check_comm(game.comm[r][i]);
}

static void say_nothing(void *arg, int level, const char *line)
{
    (void)arg;
    HOLD(level > 0 && line[0]);
}

/* FUZZ_LOG: an input is replayed, and its log lines are wanted. */
static void open_all(uint32_t how)
{
    struct comm_communicator *world[RANKS] = {NULL};
    struct comm_config config = {.size = sizeof config,
                                 .backend = how & 1 ? "local" : "tcp",
                                 .progress = COMM_PROGRESS_CALLER,
                                 .operation_timeout_ns = TIMEOUT_NS,
                                 .options = how & 2 ? "window=4,spin=0,yield=0,minimal=yes" : "window=8,spin=0,yield=0",
                                 .log_level = COMM_LOG_DEBUG,
                                 .log = getenv("FUZZ_LOG") ? NULL : say_nothing};

    HOLD(comm_open_local(&config, RANKS, NULL, world) == COMM_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        game.comm[r][0] = world[r];
    game.comms = 1;
    make_liar(0);
}

/* Must end in bounded time, whatever was sent. */
static void close_all(void)
{
    for (uint32_t i = COMMS; i-- > 0;)
        for (uint32_t r = 0; r < RANKS; r++)
            if (game.comm[r][i])
                comm_abort(game.comm[r][i], 1);
    make_passes();
    threadless_watch(1000000000);
    for (uint32_t i = 0; i < game.windows; i++)
        for (uint32_t r = 0; r < RANKS; r++)
            if (game.window[r][i])
                any_answer(comm_window_free(game.window[r][i]));
    for (uint32_t i = COMMS; i-- > 0;)
        for (uint32_t r = 0; r < RANKS; r++)
            comm_close(game.comm[r][i], CLOSE_NS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct asked *a = &game.asked[i];
        HOLD(!a->memory || a->ended || comm_test(a->request) != COMM_PENDING);
        check_asked(a);
        free(a->memory);
    }
}

int fuzz_notes(const unsigned char *bytes, size_t count)
{
    memset(&game, 0, sizeof game);
    game.at = bytes;
    game.end = bytes + count;
    threadless_begin(&game.mock);
    open_all(next());
    while (game.at < game.end)
        step();
    close_all();
    threadless_end();
    return (int)game.ended;
}
