/*
 * What a machine on the path can see and do when ranks have a secret and an address beyond loopback, with default options. It can read
 * nothing. Whatever it changes ends in an error on every rank and never in wrong data. It cannot make ranks give up sealing or use another
 * cipher. Also what an operator may choose instead.
 */
#define _GNU_SOURCE
#include "group.h"
#include "net/middle.h"
#include "proc/proc.h"

#include "net/auth/crypto.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 2, SMALL_BYTES = 960, LONG_BYTES = 160000, TURNS = 30, LINES = 1 << 16 };
enum { GOOD = 0, WRONG = 1 }; /* of page.number: operations that returned OK */
static const char mark[MIDDLE_MARK + 1] = "this is what nobody else may see";

static struct scene {
    const char *address; /* without a port */
    const char *seal[RANKS], *cipher[RANKS];
    int64_t lasts; /* ns for which the ranks continue after their turns */
    char log[64];  /* a file */
    char where[96];
} scene;

/* ------------------------------------------------------------------------------------------------------------ an address */
/* An address of this machine that others may reach. If there is none, one in a network namespace that the test makes. */
static bool own_address(char text[INET_ADDRSTRLEN])
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list))
        return false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK))
            continue;
        found = inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, text, INET_ADDRSTRLEN) != NULL;
    }
    freeifaddrs(list);
    return found;
}

static bool make_address(char text[INET_ADDRSTRLEN])
{
    struct ifreq lo = {.ifr_name = "lo"}, alias = {.ifr_name = "lo:1"};
    struct sockaddr_in at = {.sin_family = AF_INET};

    snprintf(text, INET_ADDRSTRLEN, "10.77.99.1");
    inet_pton(AF_INET, text, &at.sin_addr);
    memcpy(&alias.ifr_addr, &at, sizeof at);
    if (unshare(CLONE_NEWNET))
        return false;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool made = ioctl(fd, SIOCGIFFLAGS, &lo) == 0;
    lo.ifr_flags |= IFF_UP;
    made = made && ioctl(fd, SIOCSIFFLAGS, &lo) == 0 && ioctl(fd, SIOCSIFADDR, &alias) == 0;
    close(fd);
    return made;
}

static void set_scene(void)
{
    static char text[INET_ADDRSTRLEN];

    if (!text[0] && !own_address(text) && !make_address(text))
        rig_skip("this host has no address but loopback, and no network namespaces");
    scene = (struct scene){.address = text};
    middle = (struct middle){.connection = -1, .rank = -1, .mark = mark};
    middle.seen = mmap(NULL, sizeof *middle.seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(middle.seen != MAP_FAILED);
    snprintf(scene.log, sizeof scene.log, "/tmp/commstream-sealed-XXXXXX");
    int fd = mkstemp(scene.log);
    CHECK(fd >= 0);
    close(fd);
}

/* How many lines of the ranks' log contain `part`. Removes the file. */
static int logged(const char *part)
{
    char *text = calloc(1, LINES);
    int fd = open(scene.log, O_RDONLY | O_CLOEXEC), count = 0;

    CHECK(text && fd >= 0 && read(fd, text, LINES - 1) >= 0);
    close(fd);
    unlink(scene.log);
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    free(text);
    return count;
}

static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, scene.address, &at.sin_addr);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && getsockname(fd, (struct sockaddr *)&at, &length) == 0);
    close(fd);
    return ntohs(at.sin_port);
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
static void enter(struct proc *proc, int32_t rank)
{
    int fd = open(scene.log, O_WRONLY | O_APPEND | O_CLOEXEC);

    (void)proc;
    middle.self = rank;
    CHECK(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    setenv("COMM_BACKEND", "tcp", 1);
    setenv("COMM_ADDRESS", scene.where, 1);
    setenv("COMM_SECRET", "0123456789abcdef0123456789abcdef", 1);
    unsetenv("COMM_TCP_INSECURE");
    if (scene.seal[rank])
        setenv("COMM_TCP_SEAL", scene.seal[rank], 1);
    else
        unsetenv("COMM_TCP_SEAL");
    if (scene.cipher[rank])
        setenv("COMM_TCP_CIPHER", scene.cipher[rank], 1);
    else
        unsetenv("COMM_TCP_CIPHER");
}

static bool is_mark(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != mark[i % MIDDLE_MARK])
            return false;
    return true;
}

/* Short and long sums, long enough for some heartbeats. */
static void speak(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    static char in[LONG_BYTES], out[LONG_BYTES];
    struct proc_page *page = &proc->page[rank];
    struct comm_communicator *world = NULL;
    struct comm_request q;
    int64_t end = rig_now() + scene.lasts;

    (void)none;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = mark[i % MIDDLE_MARK];
    enum comm_result r =
        comm_open(COMM_CONFIG(.error_text = page->text, .error_text_bytes = sizeof page->text, .open_timeout_ns = 5 * RIG_S,
                              .operation_timeout_ns = 20 * RIG_S, .options = "peer_timeout=2"),
                  &world);
    int32_t more = 1, all = 1;
    for (int turn = 0; r == COMM_OK && (turn < TURNS || all); turn++) {
        size_t n = turn % 2 ? LONG_BYTES : SMALL_BYTES;
        memset(out, 0, sizeof out);
        r = comm_allreduce(world, in, out, n, COMM_U8, COMM_MAX, &q);
        r = r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
        if (r == COMM_OK)
            page->number[is_mark(out, n) ? GOOD : WRONG]++;
        if (turn < TURNS)
            continue;
        more = rig_now() < end;
        r = r == COMM_OK ? comm_allreduce(world, &more, &all, 1, COMM_I32, COMM_MAX, &q) : r;
        r = r == COMM_OK ? comm_wait(q, RIG_PATIENCE) : r;
        rig_nap(20 * RIG_MS);
    }
    page->result = r;
    if (world)
        (void)comm_close(world, RIG_S); /* may return the same error as the last operation */
}

static void run(struct proc *proc)
{
    snprintf(scene.where, sizeof scene.where, "%s:%u", scene.address, free_port());
    *proc = (struct proc){.raw = true, .enter = enter};
    proc_start(proc, RANKS, speak);
    proc_finish(proc, -1, 2 * RIG_PATIENCE);
    for (int32_t r = 0; r < RANKS; r++)
        EQUAL(proc->page[r].number[WRONG], 0);
}

static void all_is_well(const struct proc *proc)
{
    for (int32_t r = 0; r < RANKS; r++)
        if (proc->page[r].result != COMM_OK || proc->page[r].number[GOOD] < TURNS)
            rig_die(__FILE__, __LINE__, "rank %d: %d: %s", r, proc->page[r].result, proc->page[r].text);
}

/* Checks how each of the three connections is sealed, according to the dialer's hello. */
static void sealed_by(enum crypto_kind kind)
{
    for (int i = 0; i < 3; i++)
        EQUAL(middle.seen->hello[i] >> 16, kind);
}

/* ------------------------------------------------------------------------------------------------------------ options */
RIG_TEST(sealed_without_being_asked)
{
    static const struct {
        const char *cipher[RANKS];
        enum crypto_kind kind;
    } cases[] = {{{"aes", "aes"}, CRYPTO_AES},
                 {{"chacha", "chacha"}, CRYPTO_CHACHA},
                 {{"aes", "chacha"}, CRYPTO_CHACHA}, /* CPUs that differ */
                 {{"chacha", "aes"}, CRYPTO_CHACHA},
                 {{NULL, NULL}, CRYPTO_NONE}};
    static const char *const pollers[] = {"epoll", "io_uring"};
    static struct proc proc;

    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            set_scene();
            memcpy(scene.cipher, cases[i].cipher, sizeof scene.cipher);
            if (!group_poller(pollers[p]))
                break;
            rig_note("case %zu over %s", i, pollers[p]);
            run(&proc);
            all_is_well(&proc);
            EQUAL(middle.seen->marks, 0);
            sealed_by(cases[i].kind ? cases[i].kind : crypto_has_aes() ? CRYPTO_AES : CRYPTO_CHACHA);
            EQUAL(logged("COMM_TCP_SEAL"), 0);
        }
}

RIG_TEST(turned_off_it_is_warned_of_once)
{
    static struct proc proc;

    set_scene();
    scene.seal[0] = scene.seal[1] = "no";
    run(&proc);
    all_is_well(&proc);
    CHECK(middle.seen->marks > TURNS);
    sealed_by(CRYPTO_NONE);
    EQUAL(logged("COMM_TCP_SEAL=no: a machine on the path"), 1);
}

RIG_TEST(at_loopback_it_is_not_sealed)
{
    static struct proc proc;

    set_scene();
    scene.address = "127.0.0.1";
    run(&proc);
    all_is_well(&proc);
    CHECK(middle.seen->marks > TURNS);
    EQUAL(logged("COMM_TCP_SEAL"), 0);
    set_scene();
    scene.address = "127.0.0.1";
    scene.seal[0] = scene.seal[1] = "yes";
    run(&proc);
    all_is_well(&proc);
    EQUAL(middle.seen->marks, 0);
    EQUAL(logged("COMM_TCP_SEAL"), 0);
}

RIG_TEST(a_contradiction_is_named)
{
    static const struct {
        const char *seal[RANKS], *text;
    } cases[] = {
        {{NULL, "no"}, "rank 1 has COMM_TCP_SEAL=no and rank 0 has auto, which is yes here"},
        {{"no", NULL}, "rank 1 has COMM_TCP_SEAL=auto, which is yes here, and rank 0 has no"},
        {{"no", "yes"}, "rank 1 has COMM_TCP_SEAL=yes and rank 0 has no"},
    };
    static struct proc proc;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_scene();
        memcpy(scene.seal, cases[i].seal, sizeof scene.seal);
        rig_note("case %zu", i);
        run(&proc);
        for (int32_t r = 0; r < RANKS; r++) {
            EQUAL(proc.page[r].result, COMM_ERR_CONFIG);
            if (!strstr(proc.page[r].text, cases[i].text))
                rig_die(__FILE__, __LINE__, "rank %d: %s", r, proc.page[r].text);
        }
        unlink(scene.log);
    }
    set_scene(); /* auto means yes here */
    scene.seal[1] = "yes";
    run(&proc);
    all_is_well(&proc);
    unlink(scene.log);
}

/* ------------------------------------------------------------------------------------------------------------ in transit */
static void harmed(enum middle_fault fault, int rank, int connection, int direction, size_t at, unsigned char bits, const char *cipher)
{
    static struct proc proc;

    set_scene();
    scene.cipher[0] = scene.cipher[1] = cipher;
    scene.lasts = 8 * RIG_S;
    middle.fault = fault;
    middle.rank = rank;
    middle.connection = connection;
    middle.direction = direction;
    middle.at = at;
    middle.bits = bits;
    rig_note("it %s on connection %d of rank %d, direction %d, behind %zu bytes, %s", middle_fault_names[fault], connection, rank,
             direction, at, cipher);
    run(&proc);
    for (int32_t r = 0; r < RANKS; r++)
        if (proc.page[r].result != COMM_ERR_PEER && proc.page[r].result != COMM_ERR_CLOSED)
            rig_die(__FILE__, __LINE__, "rank %d: result %d, %lld good: %s", r, proc.page[r].result, (long long)proc.page[r].number[GOOD],
                    proc.page[r].text);
    CHECK(proc.page[0].result == COMM_ERR_PEER || proc.page[1].result == COMM_ERR_PEER); /* and not a goodbye, since no rank said one */
    CHECK(logged("the connection is given up") > 0 || fault == MIDDLE_CUT);              /* the log has the reason */
}

/* Lanes: small, bulk, heartbeats. The handshake ends after 136 bytes of the dialer and 76 of the listener. */
RIG_TEST(what_is_changed_on_the_way_ends_in_an_error)
{
    static const size_t at[3][2] = {{700, 1501}, {40000, 100001}, {145, 81}};
    static const enum middle_fault faults[] = {MIDDLE_CHANGE, MIDDLE_LOSE, MIDDLE_REPEAT, MIDDLE_SWAP, MIDDLE_CUT};
    int turn = 0;

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int connection = 0; connection < 3; connection++)
            for (int direction = 0; direction < 2; direction++, turn++) {
                if (connection == 2 && faults[i] != MIDDLE_CHANGE && faults[i] != MIDDLE_CUT)
                    continue; /* these faults affect several beats at once, and a few seconds have too few */
                if (turn % (int)selected(1, 2, 4))
                    continue;
                harmed(faults[i], 0, connection, direction, at[connection][direction], 0, turn % 2 ? "aes" : "chacha");
            }
}

/* Changes the hello of a connection, or what ranks publish about themselves while they meet. */
static void offered(int rank, int connection, int direction, size_t at, unsigned char bits, const char *text)
{
    static struct proc proc;

    set_scene();
    scene.cipher[0] = scene.cipher[1] = "aes";
    middle.fault = MIDDLE_CHANGE;
    middle.rank = rank;
    middle.connection = connection;
    middle.direction = direction;
    middle.at = at;
    middle.bits = bits;
    rig_note("a bit of byte %zu is changed on connection %d of rank %d, direction %d", at, connection, rank, direction);
    run(&proc);
    bool told = false;
    for (int32_t r = 0; r < RANKS; r++) {
        enum comm_result result = (enum comm_result)proc.page[r].result;
        if (result != COMM_ERR_AUTH && result != COMM_ERR_PEER && result != COMM_ERR_TIMEOUT) /* one of them is sent the reason */
            rig_die(__FILE__, __LINE__, "rank %d: %d: %s", r, proc.page[r].result, proc.page[r].text);
        told |= proc.page[r].result == COMM_ERR_AUTH && strstr(proc.page[r].text, text);
    }
    if (!told)
        rig_die(__FILE__, __LINE__, "%s; %s", proc.page[0].text, proc.page[1].text);
    EQUAL(middle.seen->marks, 0);
    unlink(scene.log);
}

RIG_TEST(an_offer_that_was_changed_is_refused)
{
    offered(0, 0, 0, 22, CRYPTO_AES ^ CRYPTO_CHACHA, "by another cipher than both agreed on"); /* the word in its hello */
    offered(0, 1, 0, 22, CRYPTO_AES, "by another cipher than both agreed on");                 /* changed to none */
    offered(0, 2, 0, 22, CRYPTO_AES, "by another cipher than both agreed on");                 /* for the heartbeats */
    offered(0, 0, 1, 30, 1, "another secret");                                                 /* the answer */
    offered(1, MIDDLE_ANY, 0, 200, 1, "was changed on its way");                               /* what rank 1 publishes about itself */
    offered(1, MIDDLE_ANY, 1, 200, 1, "was changed on its way");                               /* what rank 0 distributes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_without_being_asked),
        cmocka_unit_test(turned_off_it_is_warned_of_once),
        cmocka_unit_test(at_loopback_it_is_not_sealed),
        cmocka_unit_test(a_contradiction_is_named),
        cmocka_unit_test(what_is_changed_on_the_way_ends_in_an_error),
        cmocka_unit_test(an_offer_that_was_changed_is_refused),
    };
    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
