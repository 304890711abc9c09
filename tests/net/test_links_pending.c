/* Worlds with links that are made when needed keep their acceptors open: pending peers and forgers connect there, and must not delay honest
 * ranks. Also many links with few descriptors. Ranks are processes. */
#define _GNU_SOURCE
#include "net/auth/crypto.h"
#include "net/auth/handshake.h"
#include "net/links.h"
#include "net/auth/secret.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------------ pending peers */
enum { GUESTS = 8, CALLERS = 300 };

static void live_with_pending_peers(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    atomic_store(&proc->page[rank].number[0], links_port());
    links_phase(proc, rank, 1);
    links_exchange(world, rank ^ 5); /* while pending peers are still at the acceptor */
    links_phase(proc, rank, 2);
    links_await(5 * 3 + 2); /* neighbours at distance 1, 2 and 4, and this one */
    links_phase(proc, rank, 3);
    MUST(comm_close(world, RIG_PATIENCE));
}

/* Closes the pending peers after the ranks have made links. */
static void see_them_off(struct proc *proc, const int fds[CALLERS])
{
    links_run_phases(proc, 1, 1);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(proc, r, 2);
    for (int i = 0; i < CALLERS; i++)
        close(fds[i]);
    links_run_phases(proc, 2, 3);
    proc_finish(proc, -1, RIG_PATIENCE);
}

RIG_TEST(links_with_pending_peers)
{
    static int fds[CALLERS];
    struct proc proc = {.enter = links_needed};
    unsigned char rubbish[256];
    memset(rubbish, 0x5a, sizeof rubbish);
    proc_start(&proc, GUESTS, live_with_pending_peers);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 1);
    for (int i = 0; i < CALLERS; i++) { /* silent, slow, or with garbage */
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        at.sin_port = htons((uint16_t)atomic_load(&proc.page[i % GUESTS].number[0]));
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CHECK(fds[i] >= 0 && (connect(fds[i], (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS));
        if (i % 3)
            (void)!send(fds[i], rubbish, i % 3 == 1 ? 1 : sizeof rubbish, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    see_them_off(&proc, fds);
}

/* ------------------------------------------------------------------------------------------------------------ a secret */
static const char secret[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void needed_with_secret(struct proc *proc, int32_t rank)
{
    links_needed(proc, rank);
    setenv("COMM_SECRET", secret, 1);
}

static void link_with_secret(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    links_exchange(world, rank ^ 5);
    links_await(5 * 3 + 2);
    links_check_monitors();
    links_check_pauses();
    links_phase(proc, rank, 1);
    MUST(comm_close(world, RIG_PATIENCE));
}

static void needs_crypto(void)
{
    if (crypto_missing())
        rig_skip(crypto_missing());
}

/* A dialer that must send more than one message is watched as a pending peer before it is admitted. */
RIG_TEST(links_with_a_secret)
{
    struct proc proc = {.enter = needed_with_secret};
    needs_crypto();
    proc_start(&proc, GUESTS, link_with_secret);
    links_run_phases(&proc, 1, 1);
    proc_finish(&proc, -1, RIG_PATIENCE);
}

/* Peers that know the protocol but not the secret: a hello made with another secret, a replay of a right one again and again, its first
 * byte alone, and wrong data after the answer to a replay. */
enum forgery { ANOTHER_SECRET, RECORDING, ONE_BYTE, RECORDING_AND_MORE, FORGERIES };

/* The hello with which `from` would dial `to`. */
static void hello_of(const char *proves, uint32_t from, uint32_t to, unsigned char hello[HANDSHAKE_HELLO])
{
    const struct handshake_names names = {HANDSHAKE_CONNECTION, from, to, 0, 0};
    unsigned char key[CRYPTO_KEY];
    struct handshake h;
    CHECK(secret_key(proves, strlen(proves), key) && handshake_hello(&h, wire_default_env(), key, &names, hello));
}

static int forge(uint16_t port, enum forgery how, const unsigned char *right, const unsigned char *wrong)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned char more[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(more, 0x5a, sizeof more);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    (void)!send(fd, how == ANOTHER_SECRET ? wrong : right, how == ONE_BYTE ? 1 : HANDSHAKE_HELLO, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (how == RECORDING_AND_MORE)
        (void)!send(fd, more, sizeof more, MSG_DONTWAIT | MSG_NOSIGNAL);
    return fd;
}

/* At the acceptors of an open world: new links are still made, and no forger is admitted or leaves anything behind. */
RIG_TEST(links_with_forgers)
{
    static int fds[CALLERS];
    static unsigned char right[GUESTS][HANDSHAKE_HELLO], wrong[GUESTS][HANDSHAKE_HELLO];
    struct proc proc = {.enter = needed_with_secret};
    needs_crypto();
    for (uint32_t r = 0; r < GUESTS; r++) {
        uint32_t dialer = r ? r - 1 : 5; /* the lower rank dials, or asks to be dialed */
        hello_of(secret, dialer, r, right[r]);
        hello_of("another secret of thirty-two bytes or more", dialer, r, wrong[r]);
    }
    proc_start(&proc, GUESTS, live_with_pending_peers);
    for (int32_t r = 0; r < GUESTS; r++)
        proc_await(&proc, r, 1);
    for (int i = 0; i < CALLERS; i++) {
        int r = i % GUESTS;
        fds[i] = forge((uint16_t)atomic_load(&proc.page[r].number[0]), (enum forgery)(i / GUESTS % FORGERIES), right[r], wrong[r]);
    }
    see_them_off(&proc, fds);
}

/* ------------------------------------------------------------------------------------------------------------ descriptors */
/* The soft limit is 64 descriptors per rank: about what a rank needs for its links, but fewer than rank 0 needs while the ranks meet
 * (connecting all to all would take 300). A rank that needs more raises its limit as far as permitted. */
enum { MANY = 100, DESCRIPTORS = 64, MOST = 256, TOO_FEW = 32 };

static void limit_files(rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
    setenv("COMM_BACKEND", "tcp", 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static rlim_t allowed(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    return limit.rlim_cur;
}

static void few_descriptors(struct proc *proc, int32_t rank)
{
    (void)proc;
    (void)rank;
    limit_files(DESCRIPTORS, MOST);
}

static void live(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    (void)proc;
    CHECK(rank || allowed() > DESCRIPTORS);
    links_sum(world);
    links_exchange(world, links_far_from(rank, MANY));
    links_sum(world); /* no rank closes while others still make links */
    MUST(comm_close(world, RIG_PATIENCE));
}

RIG_TEST(links_of_many_ranks_by_themselves)
{
    struct proc proc = {.enter = few_descriptors, .options = "algorithm=allreduce:doubling"};
    proc_start(&proc, MANY, live);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
}

static void too_few_descriptors(struct proc *proc, int32_t rank)
{
    (void)proc;
    limit_files(rank ? DESCRIPTORS : TOO_FEW, rank ? DESCRIPTORS : TOO_FEW);
}

/* An admitted rank is sent the reason. A rank at the acceptor sees that rank 0 is gone. A later rank finds nobody. */
static void hear_of_the_limit(struct proc *proc, int32_t rank, struct comm_communicator *world)
{
    char text[512] = "";
    enum comm_result r = comm_open(COMM_CONFIG(.error_text = text, .error_text_bytes = sizeof text, .open_timeout_ns = 3 * RIG_S), &world);
    bool named =
        r == COMM_ERR_SYSTEM && strstr(text, "rank 0") && strstr(text, "48 ranks") && strstr(text, "nofile") && strstr(text, "allows 32");
    if (!named && (!rank || (r != COMM_ERR_PEER && r != COMM_ERR_TIMEOUT)))
        rig_die(__FILE__, __LINE__, "rank %d: %s: %s", rank, comm_result_name(r), text);
    atomic_store(&proc->page[rank].number[0], named);
}

RIG_TEST(links_where_even_meeting_takes_too_many)
{
    struct proc proc = {.raw = true, .enter = too_few_descriptors};
    int32_t named = 0;
    proc_start(&proc, TOO_FEW * 3 / 2, hear_of_the_limit);
    proc_finish(&proc, -1, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < proc.ranks; r++)
        named += (int32_t)atomic_load(&proc.page[r].number[0]);
    CHECK(named > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_with_pending_peers),
        cmocka_unit_test(links_with_a_secret),
        cmocka_unit_test(links_with_forgers),
        cmocka_unit_test(links_of_many_ranks_by_themselves),
        cmocka_unit_test(links_where_even_meeting_takes_too_many),
    };
    return cmocka_run_group_tests_name("net_links_pending", tests, NULL, NULL);
}
