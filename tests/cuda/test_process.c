/* One process per device, over the mock NCCL, whose ranks communicate in memory that the processes share. Also what happens where one rank
 * has no NCCL, or another one, and option nccl_fallback is given. */
#define _GNU_SOURCE
#include "../net/hosts.h"
#include "../proc/proc.h"
#include "clean.h"
#include "cuda/post.h"
#include "mock.h"
#include "process.h"

#include <commstream/cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { LAUNCHES = 100 };

static const char *backend = "nccl";    /* set before the ranks are forked */
static int island, peer_ns[RANKS_MOST]; /* as mock_options has them; host_ns is 900 */

static enum comm_result open_rank(int32_t rank, int32_t ranks, int64_t timeout)
{
    char device[16];

    mock_reset(&(struct mock_options){.seed = (uint64_t)rank, .queues = 1 + rank % 8, .island = island, .peer_ns = peer_ns[rank]});
    mock_run(true);
    (void)ranks;
    snprintf(device, sizeof device, "cuda:%d", rank);
    setenv("COMM_BACKEND", backend, 1); /* overrides the tcp of hosts_place */
    return comm_open(COMM_CONFIG(.device = device, .open_timeout_ns = timeout, .operation_timeout_ns = 30 * RIG_S, .error_text = my.text,
                                 .error_text_bytes = sizeof my.text),
                     &my.world);
}

static void must_open(int32_t rank, int32_t ranks)
{
    if (open_rank(rank, ranks, 20 * RIG_S) != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", my.text);
}

/* With buffers, of which each word of the input is 1 + rank. */
static void must_open_filled(int32_t rank, int32_t ranks)
{
    must_open(rank, ranks);
    make_buffers(rank);
    bench_fill(&my.bench, my.stream, my.in, (uint32_t)rank + 1, WORDS);
}

static struct comm_communicator *split_pairs(int32_t rank)
{
    struct comm_communicator *near;
    struct comm_request q;

    MUST(comm_split(my.world, rank / 2, rank, &near, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    return near;
}

/* ------------------------------------------------------------------------------------------------------------ all is well */
/* A graph that sums, launched many times: the result of a launch is the next one's input. */
static void launch_graph(uint32_t n)
{
    struct comm_options options = {.size = sizeof options, .stream = my.stream};
    struct comm_communicator *c;
    struct comm_request q;
    struct bench_graph graph;
    uint32_t want = 1, got;

    MUST(comm_dup(my.world, &options, &c, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    bench_fill(&my.bench, my.stream, my.in, want, WORDS);
    bench_capture(&my.bench, my.stream);
    MUST(comm_allreduce(c, COMM_IN_PLACE, my.in, WORDS, COMM_U32, COMM_SUM, NULL));
    bench_end_capture(&my.bench, my.stream, &graph);
    for (int i = 0; i < LAUNCHES; i++) {
        bench_launch(&my.bench, &graph, my.stream);
        want *= n;
    }
    bench_read(&my.bench, my.stream, &got, my.in, 1);
    EQUAL(got, want);
    bench_drop_graph(&my.bench, &graph);
    MUST(comm_close(c, COMM_DEFAULT_TIMEOUT));
}

/* All kernels of backend cuda that were launched had their slots in memory of the devices, or none. */
static bool launches_go_by(bool devices)
{
    struct mock_launches launched = mock_launched();

    return launched.by_devices == (devices ? launched.all : 0);
}

static void work(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    uint32_t n = (uint32_t)proc->ranks, me = (uint32_t)rank;
    struct comm_request q;
    struct comm_info info = {.size = sizeof info};

    (void)none;
    must_open(rank, proc->ranks);
    MUST(comm_describe(my.world, &info));
    if (strcmp(info.backend, backend) != 0 || !info.device_buffers)
        rig_die(__FILE__, __LINE__, "the backend is %s", info.backend);
    make_buffers(rank);
    for (uint32_t round = 0; round < 5; round++) {
        bench_fill(&my.bench, my.stream, my.in, round + me + 1, WORDS * n);
        MUST(comm_queue_wait_stream(my.world, my.stream));
        MUST(comm_allreduce(my.world, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
        expect(q, 0, n * round + n * (n + 1) / 2);
        MUST(comm_alltoall(my.world, my.in, my.out, WORDS, COMM_U32, &q));
        for (uint32_t r = 0; r < n; r++)
            expect(q, r * WORDS, round + r + 1);
        MUST(comm_scan(my.world, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
        expect(q, 0, (me + 1) * round + (me + 1) * (me + 2) / 2);
        MUST(comm_gather(my.world, my.in, my.out, WORDS, COMM_U32, (int32_t)(round % n), &q));
        if (me == round % n)
            expect(q, (n - 1) * WORDS, round + n);
        MUST(comm_wait(q, RIG_PATIENCE));
    }
    launch_graph(n);
    CHECK(launches_go_by(n > 1));
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    drop_buffers();
}

RIG_TEST(a_process_for_each_device)
{
    proc_needs_shm();
    for (int32_t ranks = 1; ranks <= (rig_quick() ? 4 : RANKS_MOST); ranks++) {
        struct proc proc = {.raw = true};
        rig_note("%d ranks", ranks);
        proc_start(&proc, ranks, work);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
}

/* Backend cuda: sums and the graph are kernels that wait for the mailboxes of other processes; the rest is staged. */
RIG_TEST(a_process_for_each_device_with_kernels)
{
    proc_needs_shm();
    backend = "cuda";
    for (int32_t ranks = HAS_KERNELS ? 1 : RANKS_MOST + 1; ranks <= RANKS_MOST; ranks += rig_quick() ? 3 : 1) {
        struct proc proc = {.raw = true};
        rig_note("%d ranks", ranks);
        proc_start(&proc, ranks, work);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
}

/* The hosts exchange ids and calls over TCP, and NCCL has one communicator. */
RIG_TEST(ranks_of_two_hosts)
{
    struct proc proc = {.raw = true};
    struct hosts h;

    hosts_open(&h, 2, 2);
    hosts_place(&h, &proc);
    proc_start(&proc, 4, work);
    proc_finish(&proc, -1, RIG_PATIENCE);
    hosts_close(&h);
}

static void sum_and_look(struct comm_communicator *c, uint32_t want, bool is_staged)
{
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request q;

    MUST(comm_queue_wait_stream(c, my.stream));
    MUST(comm_allreduce(c, my.in, my.out, WORDS, COMM_U32, COMM_SUM, &q));
    expect(q, 0, want);
    MUST(comm_describe_request(q, &info));
    EQUAL(info.flags, is_staged ? COMM_INFO_STAGED : 0);
}

/* Devices reach each other in pairs: all ranks of the world use the host's pages, and those of a pair their devices' memory. */
static void apart(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    must_open_filled(rank, proc->ranks);
    sum_and_look(my.world, 10, false);
    CHECK(launches_go_by(false));
    struct comm_communicator *near = split_pairs(rank);
    uint64_t before = mock_launched().by_devices;
    sum_and_look(near, rank / 2 ? 7 : 3, false);
    CHECK(mock_launched().by_devices > before);
    MUST(comm_close(near, COMM_DEFAULT_TIMEOUT));
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    drop_buffers();
}

RIG_TEST(processes_with_groups_of_devices)
{
    proc_needs_shm();
    backend = "cuda";
    island = 2;
    for (int turn = 0; turn < (HAS_KERNELS ? 4 : 0); turn++) {
        struct proc proc = {.raw = true};
        proc_start(&proc, 4, apart);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
    island = 0;
}

static bool are_devices_faster;

static void measure(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    must_open_filled(rank, proc->ranks);
    sum_and_look(my.world, 6, false);
    CHECK(launches_go_by(are_devices_faster));
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    drop_buffers();
}

/* On each rank another way is faster: all take the one that is faster in sum. */
RIG_TEST(ranks_that_measure_differently)
{
    proc_needs_shm();
    backend = "cuda";
    for (int turn = 0; turn < (HAS_KERNELS ? 2 : 0); turn++) {
        struct proc proc = {.raw = true};
        are_devices_faster = turn;
        peer_ns[0] = 700;
        peer_ns[1] = turn ? 1090 : 1110;
        peer_ns[2] = 900;
        proc_start(&proc, 3, measure);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
    memset(peer_ns, 0, sizeof peer_ns);
}

/* Another process sends memory of its own to this one, as if a peer did. Here the rank itself does it, to its own socket. */
static void be_a_stranger(void *arg)
{
    struct cuda_letter letter = {.secret = 12345, .bytes = 2 << 20, .from = 0};
    struct sockaddr_un name;
    int file = memfd_create("mock-memory-0", MFD_CLOEXEC);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec piece = {&letter, sizeof letter};
    int *sent = arg, from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    CHECK(file >= 0 && from >= 0 && ftruncate(file, 2 << 20) == 0);
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    for (int fd = 3; fd < 1024; fd++) {
        socklen_t bytes = sizeof name;
        if (getsockname(fd, (struct sockaddr *)&name, &bytes) || name.sun_family != AF_UNIX ||
            bytes != offsetof(struct sockaddr_un, sun_path) + 6)
            continue;
        struct msghdr message = {.msg_name = &name,
                                 .msg_namelen = bytes,
                                 .msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof control};
        *sent += sendmsg(from, &message, MSG_DONTWAIT) == sizeof letter;
    }
    close(from);
    close(file);
}

static void ignore_strangers(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    int sent = 0;

    (void)none;
    if (rank == 1)
        mock_at("cuMemGetAllocationGranularity", be_a_stranger, &sent); /* its peers do not know the socket yet */
    must_open(rank, proc->ranks);
    mock_at(NULL, NULL, NULL);
    CHECK((sent > 0) == (rank == 1));
    make_buffers(rank);
    bench_fill(&my.bench, my.stream, my.in, (uint32_t)rank + 1, WORDS);
    sum_and_look(my.world, 3, false);
    CHECK(launches_go_by(true));
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    drop_buffers();
}

RIG_TEST(letters_of_strangers_are_ignored)
{
    struct proc proc = {.raw = true};

    proc_needs_shm();
    backend = "cuda";
    if (!HAS_KERNELS)
        return;
    proc_start(&proc, 2, ignore_strangers);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* A communicator of several hosts stages; one within a host has kernels. */
static void within_hosts(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)none;
    must_open_filled(rank, proc->ranks);
    sum_and_look(my.world, 10, true);
    struct comm_communicator *near = split_pairs(rank);
    sum_and_look(near, rank / 2 ? 7 : 3, !HAS_KERNELS);
    CHECK(launches_go_by(true));
    MUST(comm_close(near, COMM_DEFAULT_TIMEOUT));
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    drop_buffers();
}

RIG_TEST(kernels_within_each_of_two_hosts)
{
    struct proc proc = {.raw = true};
    struct hosts h;

    backend = "cuda";
    hosts_open(&h, 2, 2);
    hosts_place(&h, &proc);
    proc_start(&proc, 4, within_hosts);
    proc_finish(&proc, -1, RIG_PATIENCE);
    hosts_close(&h);
}

/* ------------------------------------------------------------------------------------------------------------ one without NCCL */
enum { LACKS_DEVICE, LACKS_WORKING_NCCL, LACKS_VERSION, LACKS_CONNECTION, LACKS, LACKING_RANK = 2 };
static const char *const lacks_text[LACKS] = {"no device", "an NCCL that never connects", "another NCCL", "an NCCL that works only alone"};
static int lacking;
static int warned;
static bool has_hosts; /* two: the algorithms know them */

static void hear(void *arg, int level, const char *line)
{
    (void)arg;
    warned += level == COMM_LOG_WARNING && strstr(line, "nccl_fallback: ") != NULL;
}

/* The rank without a device has host buffers, the others stage theirs. Rank 0 says it, once. */
static void do_without(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    struct mock_options options = {.seed = (uint64_t)rank, .queues = 32};
    bool lacks = rank == LACKING_RANK, here = lacks && lacking == LACKS_DEVICE;
    struct comm_request_info info = {.size = sizeof info};
    struct comm_request q;
    uint32_t one = 1, sum = 0;
    char own[16];

    (void)none;
    snprintf(own, sizeof own, "cuda:%d", rank);
    if (lacks && lacking == LACKS_DEVICE)
        options.devices = -1;
    if (lacks && lacking == LACKS_WORKING_NCCL)
        options.slow_join = -1;
    if (lacks && lacking == LACKS_VERSION)
        options.nccl = 22703;
    if (lacks && lacking == LACKS_CONNECTION)
        options.lost_rank = LACKING_RANK + 1;
    mock_reset(&options);
    mock_run(true);
    setenv("COMM_BACKEND", "nccl", 1);
    if (comm_open(COMM_CONFIG(.device = own, .open_timeout_ns = 6 * RIG_S, .options = "nccl_fallback=yes", .log = hear,
                              .error_text = my.text, .error_text_bytes = sizeof my.text),
                  &my.world) != COMM_OK)
        rig_die(__FILE__, __LINE__, "open: %s", my.text);
    if (!here)
        make_buffers(rank);
    if (!here)
        bench_fill(&my.bench, my.stream, my.in, 1, WORDS);
    MUST(here ? COMM_OK : comm_queue_wait_stream(my.world, my.stream));
    MUST(comm_allreduce(my.world, here ? &one : my.in, here ? &sum : my.out, 1, COMM_U32, COMM_SUM, &q));
    MUST(comm_wait(q, RIG_PATIENCE));
    MUST(comm_describe_request(q, &info));
    EQUAL(info.flags, here ? 0 : COMM_INFO_STAGED);
    EQUAL(strncmp(info.algorithm, "hosts_", 6) == 0, has_hosts);
    if (!here)
        bench_read(&my.bench, my.stream, &sum, my.out, 1);
    EQUAL(sum, proc->ranks);
    MUST(comm_close(my.world, COMM_DEFAULT_TIMEOUT));
    EQUAL(warned, rank == 0);
    if (!here)
        drop_buffers();
}

RIG_TEST(a_rank_without_a_device_or_a_working_nccl)
{
    proc_needs_shm();
    for (lacking = 0; lacking < LACKS; lacking++) {
        struct proc proc = {.raw = true};
        rig_note("rank %d has %s", LACKING_RANK, lacks_text[lacking]);
        proc_start(&proc, 4, do_without);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
}

/* The fallback is shared memory within a host, and TCP between them. */
RIG_TEST(a_rank_of_two_hosts_without_a_device_or_a_working_nccl)
{
    struct hosts h;

    hosts_open(&h, 2, 2);
    has_hosts = true;
    for (lacking = 0; lacking < LACKS; lacking++) {
        struct proc proc = {.raw = true};
        rig_note("rank %d, on the second host, has %s", LACKING_RANK, lacks_text[lacking]);
        hosts_place(&h, &proc);
        proc_start(&proc, 4, do_without);
        proc_finish(&proc, -1, RIG_PATIENCE);
    }
    has_hosts = false;
    hosts_close(&h);
}

static void differ(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    (void)proc;
    (void)none;
    mock_reset(&(struct mock_options){.seed = 1, .nccl = rank == LACKING_RANK ? 22703 : 22809});
    setenv("COMM_BACKEND", "nccl", 1);
    IS(comm_open(COMM_CONFIG(.error_text = my.text, .error_text_bytes = sizeof my.text, .log = hear), &my.world), COMM_ERR_CONFIG);
    if (!strstr(my.text, "rank 0 has NCCL 2.28.9, rank 2 has NCCL 2.27.3; expected"))
        rig_die(__FILE__, __LINE__, "\"%s\"", my.text);
}

RIG_TEST(versions_that_differ_are_named)
{
    struct proc proc = {.raw = true};

    proc_needs_shm();
    proc_start(&proc, 3, differ);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* If a launcher started the program, it runs as one rank of the first test. */
static int by_launcher(void)
{
    struct proc proc = {.ranks = (int32_t)strtol(getenv("COMM_RANKS"), NULL, 10)};

    work(&proc, (int32_t)strtol(getenv("COMM_RANK"), NULL, 10), NULL);
    return 0;
}

int main(int count, char **arguments)
{
    if (getenv("COMM_RANK"))
        return by_launcher();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_for_each_device),
        cmocka_unit_test(a_process_for_each_device_with_kernels),
        cmocka_unit_test(processes_with_groups_of_devices),
        cmocka_unit_test(ranks_that_measure_differently),
        cmocka_unit_test(letters_of_strangers_are_ignored),
        cmocka_unit_test(ranks_of_two_hosts),
        cmocka_unit_test(kernels_within_each_of_two_hosts),
        cmocka_unit_test(a_rank_without_a_device_or_a_working_nccl),
        cmocka_unit_test(a_rank_of_two_hosts_without_a_device_or_a_working_nccl),
        cmocka_unit_test(versions_that_differ_are_named),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("cuda_process", tests, NULL, NULL);
}
