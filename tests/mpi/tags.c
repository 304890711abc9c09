/*
 * Communicators over one MPI that are created at the same time, in a different order on each rank, never receive each other's messages.
 * This holds even if their numbers differ by a multiple of the largest tag that MPI guarantees. The test calls the module as the engine
 * does, but without the engine, which would have to create thousands of communicators to get two such numbers.
 */
#define _GNU_SOURCE
#include "conform/rig.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/module.h"
#include "wire/table.h"

enum { TEAMS = 6, ALIKE = 32749 /* a prime below the smallest MPI_TAG_UB; creations were once distinguished modulo it */ };

static int rank, ranks;
static int32_t members[RIG_RANKS_MAX];
static struct native *native;

static struct native *open_native(void)
{
    char text[512] = "";
    struct native_config config = {.env = wire_default_env(),
                                   .launcher = "mpirun",
                                   .rank = rank,
                                   .ranks = ranks,
                                   .local_rank = rank,
                                   .deadline = INT64_MAX,
                                   .error_text = text,
                                   .error_text_bytes = sizeof text};
    const struct module_interface *handle = module_load(config.env, MODULE, text, sizeof text);
    struct native *made = NULL;
    enum comm_result r = handle ? handle->native->open(&config, &made) : COMM_ERR_UNSUPPORTED;
    if (r != COMM_OK)
        rig_die(__FILE__, __LINE__, "%s: %s", comm_result_name(r), text);
    return made;
}

static struct wire_team team_of(int i)
{
    return (struct wire_team){.id = 5 + (uint64_t)i * ALIKE, .rank = rank, .size = ranks, .world = members};
}

static void join_first(int i, struct native_channel **channel, unsigned char *offers)
{
    unsigned char mine[NATIVE_OFFER_BYTES] = {0};
    struct wire_team team = team_of(i);
    MUST(native->class->join(native, &team, NULL, mine, channel));
    MPI_Allgather(mine, NATIVE_OFFER_BYTES, MPI_BYTE, offers, NATIVE_OFFER_BYTES, MPI_BYTE, MPI_COMM_WORLD);
}

static void join_second(int i, struct native_channel **channel, const unsigned char *offers)
{
    struct wire_team team = team_of(i);
    MUST(native->class->join(native, &team, offers, NULL, channel));
}

static void await_joined(struct native_channel *channel)
{
    enum comm_result r;
    int64_t end = rig_now() + 20 * RIG_S;
    while ((r = native->class->joined(channel)) == COMM_PENDING && rig_now() < end)
        rig_nap(RIG_MS);
    MUST(r);
}

/* Runs one broadcast on each channel, all at the same time. */
static void use(struct native_channel *const *channels, int count)
{
    static int32_t value[TEAMS + 1];
    int32_t code = 0;
    for (int i = 0; i < count; i++) {
        value[i] = rank == 0 ? 100 + i : -1;
        struct native_call call = {
            .collective = COLLECTIVE_BROADCAST, .type = COMM_I32, .in = &value[i], .out = &value[i], .n = 1, .element_bytes = 4};
        call.cookie = (uint64_t)i + 1;
        MUST(native->class->start(channels[i], &call, &code));
    }
    for (int i = 0; i < count; i++) {
        struct native_event event;
        int64_t end = rig_now() + 20 * RIG_S;
        while (!native->class->advance(channels[i], &event, 1) && rig_now() < end)
            ;
        EQUAL(event.cookie, (uint64_t)i + 1);
        EQUAL(event.result, COMM_OK);
        EQUAL(value[i], 100 + i);
    }
}

int main(void)
{
    static unsigned char offers[TEAMS + 1][RIG_RANKS_MAX * NATIVE_OFFER_BYTES];
    struct native_channel *channels[TEAMS + 1];
    int level;
    rig_end_after(100);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    EQUAL(level, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int r = 0; r < ranks; r++)
        members[r] = r;
    native = open_native();
    join_first(0, &channels[0], offers[0]); /* the world's, whose MPI_Comm is the one from which the others are created */
    join_second(0, &channels[0], offers[0]);
    await_joined(channels[0]);
    for (int i = 1; i <= TEAMS; i++)
        join_first(i, &channels[i], offers[i]);
    for (int i = 1; i <= TEAMS; i++) { /* odd ranks go in reverse order */
        int at = rank % 2 ? TEAMS + 1 - i : i;
        join_second(at, &channels[at], offers[at]);
        IS(native->class->joined(channels[at]), COMM_PENDING); /* it begins */
        rig_nap(RIG_MS);
    }
    for (int i = 1; i <= TEAMS; i++)
        await_joined(channels[i]);
    use(channels, TEAMS + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i <= TEAMS; i++)
        EQUAL(native->class->leave(channels[i], NATIVE_LEAVE_CLOSE), 0);
    native->class->close(native);
    MPI_Finalize();
    return 0;
}
