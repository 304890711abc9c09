/**
 * @file mpi.h
 * @brief Communicators of MPI become communicators of this library, and the other way round.
 *
 * These functions are compiled into the program, with the program's own mpi.h, which must be found when this header is included. The
 * library itself is linked with no MPI. They call MPI on the calling thread only, so MPI may have any thread level, and only inside
 * comm_mpi_open() and comm_mpi_give(). <commstream/commstream.h> does not include this header.
 *
 * MPI may be finalized before or after the communicators are closed. An exception is backend=mpi and backend=shm+mpi, which use MPI
 * underneath: close those first.
 */
#ifndef COMMSTREAM_MPI_H
#define COMMSTREAM_MPI_H

#include <commstream/open.h>
#include <commstream/result.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @cond */
/* Not for programs: how the ranks of comm_mpi_open() meet. */
struct comm_mpi_meeting {
    MPI_Comm *own;    /* of the ranks of the program's communicator, in its order: what MPI does not finish stays here */
    long long *words; /* what the ranks compare: two of this rank, then the least of all ranks */
    double until;     /* by MPI_Wtime() */
    const char *why;
    enum comm_result result; /* an error: the ranks meet no more, as `why` says */
    int ranks;
    long unfinished; /* MPI has a call that has not ended, and with it own and words for as long as the program runs */
};

/* Not for programs: what a rank says instead of a length. */
enum { COMM_MPI_FAILED = 0, COMM_MPI_OPENED = 1, COMM_MPI_LENGTHS = 2 };

/* Not for programs: waits for a request of MPI, until the meeting's time is up. Returns 1 if it is complete. If not, MPI may use its
 * buffers for as long as the program runs. */
static inline int comm_mpi_wait(struct comm_mpi_meeting *m, int code, MPI_Request *request)
{
    int done = 0;

    while (code == MPI_SUCCESS && !done) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && !done && MPI_Wtime() > m->until)
            break;
    }
    if (code != MPI_SUCCESS) {
        m->result = COMM_ERR_BACKEND;
        m->why = "MPI reported an error of this communicator";
    } else if (!done) {
        m->result = COMM_ERR_TIMEOUT;
        m->why = "the time of COMM_OPEN_TIMEOUT, or else of open_timeout_ns, has passed, and another rank has not met this one";
    }
    m->unfinished |= m->result != COMM_OK;
    return m->result == COMM_OK;
}

/* Not for programs: MPI_Iallgather does not end on ranks whose lengths differ, or if a rank does not call it. So the ranks compare what
 * they are about to do first. A rank that failed says that instead, and each says at the end that it has opened. So all ranks leave the
 * meeting after the same call, unless MPI fails or the time is up. Returns 1 if all said the same, and none of them that it failed. */
static inline int comm_mpi_agree(struct comm_mpi_meeting *m, long long word)
{
    long long *mine = m->words, *least = m->words + 2;
    MPI_Request request;

    mine[0] = word;
    mine[1] = -word;
    if (!comm_mpi_wait(m, MPI_Iallreduce(mine, least, 2, MPI_LONG_LONG_INT, MPI_MIN, *m->own, &request), &request))
        return 0;
    if (least[0] == COMM_MPI_FAILED) {
        m->result = COMM_ERR_REFUSED;
        m->why = "comm_open failed on another rank; that rank has the reason";
    } else if (least[0] != -least[1]) {
        m->result = COMM_ERR_CONFIG;
        m->why = "ranks meet in different ways; expected the same backend, and the same COMM_BACKEND in the environment, on all ranks";
    }
    return m->result == COMM_OK;
}

/* Not for programs: a comm_exchange_fn. */
static inline int comm_mpi_exchange(void *arg, const void *in, size_t bytes, void *out)
{
    struct comm_mpi_meeting *m = (struct comm_mpi_meeting *)arg;
    size_t all = bytes * (size_t)m->ranks;
    MPI_Request request;
    char *own;

    if (m->result < 0)
        return 1;
    own = bytes <= 0x7fffffff ? (char *)malloc(all + bytes) : NULL; /* of MPI, if the time is up before the others have come */
    if (!own) {
        (void)comm_mpi_agree(m, COMM_MPI_FAILED);
        m->result = COMM_ERR_MEMORY;
        m->why = "no memory to meet";
        return 1;
    }
    if (!comm_mpi_agree(m, COMM_MPI_LENGTHS + (long long)bytes)) {
        free(own);
        return 1;
    }
    memcpy(own + all, in, bytes);
    if (!comm_mpi_wait(m, MPI_Iallgather(own + all, (int)bytes, MPI_BYTE, own, (int)bytes, MPI_BYTE, *m->own, &request), &request))
        return 1;
    memcpy(out, own, all);
    free(own);
    return 0;
}

/* Not for programs: the seconds of a time such as "1.5s"; bare: of a number without a unit. 0: it is none, as comm_open() says. */
static inline double comm_mpi_seconds(const char *text, size_t bytes, double bare)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    double value = 0, scale = 1;
    size_t at = 0;

    for (; at < bytes && text[at] >= '0' && text[at] <= '9'; at++)
        value = value * 10 + (text[at] - '0');
    if (at < bytes && text[at] == '.')
        for (at++; at < bytes && text[at] >= '0' && text[at] <= '9'; at++)
            value += (text[at] - '0') * (scale /= 10);
    if (at == bytes)
        return value * bare;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i].name) == bytes - at && memcmp(units[i].name, text + at, bytes - at) == 0)
            return value * units[i].seconds;
    return 0;
}

/* Not for programs: how many seconds comm_open() waits for the other ranks. The environment overrides the program. */
static inline double comm_mpi_patience(const struct comm_config *config)
{
    static const char key[] = "open_timeout=";
    const char *own = getenv("COMM_OPEN_TIMEOUT"), *other = getenv("COBRE_TCP_CONNECT_TIMEOUT_MS"), *at = config->options;
    double seconds = 0;

    if (own && *own)
        seconds = comm_mpi_seconds(own, strlen(own), 1);
    else if (other && *other)
        seconds = comm_mpi_seconds(other, strlen(other), 1e-3);
    else if (config->open_timeout_ns > 0)
        seconds = (double)config->open_timeout_ns / 1e9;
    else
        for (; at && *at; at += strcspn(at, ","), at += *at == ',')
            if (strncmp(at, key, sizeof key - 1) == 0)
                seconds = comm_mpi_seconds(at + sizeof key - 1, strcspn(at, ",") - (sizeof key - 1), 1);
    return seconds > 0 ? seconds : 60;
}

/* Not for programs: says why in config's error_text. */
static inline enum comm_result comm_mpi_complain(const struct comm_config *config, enum comm_result result, const char *text)
{
    if (config->error_text && config->error_text_bytes)
        snprintf(config->error_text, config->error_text_bytes, "comm_mpi_open: %s", text);
    return result;
}

/* Not for programs: whether mpi can be used at all. */
static inline enum comm_result comm_mpi_check(MPI_Comm mpi, const char **why)
{
    int started = 0, ended = 0, inter = 0;

    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (!started || ended) {
        *why = started ? "MPI_Finalize was called" : "MPI is not initialized; call MPI_Init before";
        return COMM_ERR_STATE;
    }
    if (mpi == MPI_COMM_NULL) {
        *why = "mpi is MPI_COMM_NULL; expected a communicator that this rank is in";
        return COMM_ERR_ARGUMENT;
    }
    *why = "mpi is an intercommunicator; MPI_Intercomm_merge makes it one group of ranks";
    return MPI_Comm_test_inter(mpi, &inter) == MPI_SUCCESS && inter ? COMM_ERR_ARGUMENT : COMM_OK;
}

/* Not for programs: gives back what MPI has not kept. */
static inline void comm_mpi_part(struct comm_mpi_meeting *m)
{
    if (m->unfinished)
        return;
    if (*m->own != MPI_COMM_NULL)
        MPI_Comm_free(m->own);
    free(m->words);
}

/* Not for programs: makes the meeting's communicator, by the only call on the program's, which all ranks have left together. A rank without
 * memory is not in it, so the others see that one is missing. */
static inline enum comm_result comm_mpi_meet(MPI_Comm mpi, MPI_Comm *own, struct comm_mpi_meeting *m)
{
    int ranks = 0;

    memset(m, 0, sizeof *m);
    m->own = own;
    *own = MPI_COMM_NULL;
    m->words = (long long *)malloc(4 * sizeof *m->words);
    m->why = "MPI reported an error of this communicator";
    m->result = COMM_ERR_BACKEND;
    MPI_Comm_size(mpi, &ranks);
    if (MPI_Comm_split(mpi, m->words ? 0 : MPI_UNDEFINED, 0, own) == MPI_SUCCESS) {
        if (*own != MPI_COMM_NULL) {
            MPI_Comm_set_errhandler(*own, MPI_ERRORS_RETURN);
            MPI_Comm_size(*own, &m->ranks);
        }
        m->result = !m->words ? COMM_ERR_MEMORY : m->ranks < ranks ? COMM_ERR_REFUSED : COMM_OK;
        m->why = m->words ? "another rank has no memory to meet" : "no memory to meet";
    } else {
        *own = MPI_COMM_NULL; /* after an error MPI may have left anything here */
    }
    if (m->result != COMM_OK)
        comm_mpi_part(m);
    return m->result;
}

/* Not for programs: the last word of a meeting has a few seconds, also if opening the world took all the time. */
static inline double comm_mpi_later(double until)
{
    double least = MPI_Wtime() + 5;

    return until > least ? until : least;
}
/** @endcond */

/**
 * Opens a world of the ranks of an MPI communicator, in its order.
 *
 * Collective over mpi: all ranks have the world, or none. Neither a launcher's variables nor an address is needed. Any backend can be used:
 * by default shared memory within a host and TCP between hosts. The communicator may have all ranks of MPI_COMM_WORLD or some, in any
 * order. backend=shm+mpi needs MPI_THREAD_MULTIPLE. Below that level, open one world at a time with backend=mpi.
 *
 * The only call on mpi is MPI_Comm_split, which makes a communicator for the meeting. It has no deadline: all ranks have to reach it. (A
 * nonblocking call could not be withdrawn after one, and the program's next collective on mpi might meet it.) From then on it blocks like
 * comm_open() at most COMM_OPEN_TIMEOUT, or else open_timeout_ns, except in what backend=mpi and shm+mpi wait for (docs/guide/mpi.md), and
 * whatever the result is, nothing of this library is left on mpi. After COMM_ERR_TIMEOUT and COMM_ERR_BACKEND MPI may still have a
 * collective of the meeting, on that communicator, because MPI cannot cancel it. Then some libraries may not return from MPI_Finalize.
 *
 * @param mpi     a communicator (no intercommunicator) between MPI_Init and MPI_Finalize. The library keeps nothing of it
 * @param config  as for comm_open(); rank, ranks, address, id and exchange are ignored. NULL: all default
 * @param world   receives the communicator; close it with comm_close()
 * @return as comm_open(); COMM_ERR_STATE before MPI_Init (MPI_Session_init alone is not enough) and after MPI_Finalize; COMM_ERR_ARGUMENT
 * if mpi is an intercommunicator or MPI_COMM_NULL; COMM_ERR_REFUSED if comm_open() failed on another rank; COMM_ERR_TIMEOUT;
 * COMM_ERR_BACKEND after an error of MPI
 */
static inline enum comm_result comm_mpi_open(MPI_Comm mpi, const struct comm_config *config, struct comm_communicator **world)
{
    struct comm_mpi_meeting meeting;
    struct comm_config own;
    MPI_Comm met;
    int rank = 0;
    const char *why = NULL;

    memset(&own, 0, sizeof own);
    if (config)
        memcpy(&own, config, config->size < sizeof own ? config->size : sizeof own);
    own.size = sizeof own;
    enum comm_result r = comm_mpi_check(mpi, &why);
    if (r != COMM_OK)
        return comm_mpi_complain(&own, r, why);
    r = comm_mpi_meet(mpi, &met, &meeting);
    if (r != COMM_OK)
        return comm_mpi_complain(&own, r, meeting.why);
    meeting.until = MPI_Wtime() + comm_mpi_patience(&own);
    MPI_Comm_rank(met, &rank);
    own.rank = rank;
    own.ranks = meeting.ranks;
    own.address = NULL;
    own.id = NULL;
    own.exchange = comm_mpi_exchange;
    own.exchange_arg = &meeting;
    r = comm_open(&own, world);
    if (r == COMM_OK)
        meeting.until = comm_mpi_later(meeting.until);
    if (r != COMM_OK && meeting.result != COMM_OK) {
        r = comm_mpi_complain(&own, meeting.result, meeting.why);
    } else if (r != COMM_OK) { /* this rank has the reason */
        (void)comm_mpi_agree(&meeting, COMM_MPI_FAILED);
    } else if (!comm_mpi_agree(&meeting, COMM_MPI_OPENED)) {
        (void)comm_close(*world, COMM_DEFAULT_TIMEOUT);
        *world = NULL;
        r = comm_mpi_complain(&own, meeting.result, meeting.why);
    }
    comm_mpi_part(&meeting);
    return r;
}

/**
 * Makes an MPI communicator of the members of c, in their order.
 *
 * Collective over the members of c. It blocks as long as MPI_Comm_create_group, which it calls.
 *
 * @param c      a communicator: the world, or one that was made from it, by comm_split() for example
 * @param world  the world that comm_mpi_open() opened from mpi
 * @param mpi    the MPI communicator that the world was opened from
 * @param tag    as in MPI_Comm_create_group: different for calls of overlapping members at the same time
 * @param made   receives the MPI communicator; the caller frees it with MPI_Comm_free
 * @return COMM_OK; COMM_ERR_ARGUMENT if a member of c is no rank of world, if mpi does not have as many ranks as world, if c or world is
 * NULL or closed, or if mpi is an intercommunicator or MPI_COMM_NULL; COMM_ERR_STATE before MPI_Init and after MPI_Finalize;
 * COMM_ERR_MEMORY; COMM_ERR_BACKEND after an error of MPI
 */
static inline enum comm_result comm_mpi_give(const struct comm_communicator *c, const struct comm_communicator *world, MPI_Comm mpi,
                                             int tag, MPI_Comm *made)
{
    int size = comm_size(c), known = 1, ranks = 0, code, *member;
    const char *why = NULL;
    MPI_Group all, group;

    enum comm_result r = comm_mpi_check(mpi, &why);
    if (r != COMM_OK)
        return r;
    if (MPI_Comm_size(mpi, &ranks) != MPI_SUCCESS || ranks != comm_size(world))
        return COMM_ERR_ARGUMENT;
    member = (int *)malloc((size_t)(size > 0 ? size : 1) * sizeof *member);
    if (!member)
        return COMM_ERR_MEMORY;
    for (int i = 0; i < size; i++) {
        member[i] = comm_translate(c, i, world);
        known = known && member[i] >= 0;
    }
    if (!known || size < 1) {
        free(member);
        return COMM_ERR_ARGUMENT;
    }
    code = MPI_Comm_group(mpi, &all);
    if (code == MPI_SUCCESS) {
        code = MPI_Group_incl(all, size, member, &group);
        if (code == MPI_SUCCESS) {
            code = MPI_Comm_create_group(mpi, group, tag, made);
            MPI_Group_free(&group);
        }
        MPI_Group_free(&all);
    }
    free(member);
    return code == MPI_SUCCESS ? COMM_OK : COMM_ERR_BACKEND;
}

#ifdef __cplusplus
}
#endif

#endif
