/*
 * Which traces of the job's secret are in a rank's memory: while it waits for the others, in an open world, and after the world was closed.
 * The secret as it was in its file must be nowhere. The key made from it may be only in pages that core dumps exclude and forked children
 * see empty, and only while a connection may still have to prove it. The rank reads its own memory (/proc/self/mem) and the kernel's flags
 * of each mapping (VmFlags in /proc/self/smaps, proc(5)).
 */
#define _GNU_SOURCE
#include "proc/proc.h"

#include "net/auth/secret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, TEXT = 64, CHUNK = 1 << 20, MASK = 0x5a };
enum place { OPEN_TO_ALL, KEPT, PLACES }; /* KEPT: not dumped, and empty in a forked child */

struct find {
    int hits[PLACES];
    char first[160]; /* the first unprotected hit */
};
/* The pattern to look for, masked so that it does not find itself. */
struct needle {
    unsigned char masked[TEXT];
    size_t bytes;
};
static struct needle text, key;
static char file[64], where[64];

/* ------------------------------------------------------------------------------------------------------------ searching */
/* The reader's own buffer, which is skipped. */
static unsigned char *window;

static bool is_there(const unsigned char *at, const struct needle *n)
{
    size_t i = 0;

    while (i < n->bytes && (at[i] ^ MASK) == n->masked[i])
        i++;
    return i == n->bytes;
}

static int count_in(int memory, unsigned long from, unsigned long to, const struct needle *n)
{
    int count = 0;

    for (unsigned long at = from; at < to; at += CHUNK - TEXT) {
        size_t bytes = to - at < CHUNK ? to - at : CHUNK;
        ssize_t got = pread(memory, window, bytes, (off_t)at);
        const unsigned char *end = window + (got > (ssize_t)n->bytes ? got - (ssize_t)n->bytes + 1 : 0);
        for (const unsigned char *i = window; i < end && (i = memchr(i, n->masked[0] ^ MASK, (size_t)(end - i))) != NULL; i++)
            count += is_there(i, n);
        if (got < (ssize_t)bytes)
            break;
    }
    memset(window, 0, CHUNK);
    return count;
}

static struct find find(const struct needle *n)
{
    char line[512], name[256] = "";
    unsigned long from = 0, to = 0, resident = 0;
    struct find found = {{0}, ""};
    bool reads = false;
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    FILE *maps = fopen("/proc/self/smaps", "re");

    CHECK(memory >= 0 && maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        char rights[8];
        unsigned long begin, end; /* some other lines begin with a hexadecimal digit */
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255[^\n]", &begin, &end, rights, name) >= 3) {
            from = begin;
            to = end;
            reads = rights[0] == 'r' && rights[1] == 'w' && from != (unsigned long)(uintptr_t)window;
            continue;
        }
        if (sscanf(line, "Rss: %lu", &resident) == 1)
            reads &= resident != 0;
        if (strncmp(line, "VmFlags:", 8) != 0 || !reads)
            continue;
        int count = count_in(memory, from, to, n);
        bool kept = strstr(line, " dd") && strstr(line, " wf");
        found.hits[kept ? KEPT : OPEN_TO_ALL] += count;
        if (count && !kept && !found.first[0])
            snprintf(found.first, sizeof found.first, "%lx-%lx %.60s", from, to, name);
        name[0] = 0;
    }
    fclose(maps);
    close(memory);
    return found;
}

/* kept: whether it must be, or must not be, in pages that core dumps exclude. */
static void is_only_kept(const char *when, const struct needle *n, const char *what, bool kept)
{
    struct find found = find(n);

    if (found.hits[OPEN_TO_ALL])
        rig_die(__FILE__, __LINE__, "%s, %s: %d times, first in %s", when, what, found.hits[OPEN_TO_ALL], found.first);
    if ((found.hits[KEPT] > 0) != kept)
        rig_die(__FILE__, __LINE__, "%s, %s: %d times in pages that are kept", when, what, found.hits[KEPT]);
}

/* ------------------------------------------------------------------------------------------------------------ the secret */
static void mask(unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ((volatile unsigned char *)bytes)[i] ^= MASK;
}

/* A separate process writes it, so that no rank inherits it from its parent. */
static void write_secret(void)
{
    unsigned char bytes[TEXT / 2];
    char hex[TEXT + 1];
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        int fd = open(file, O_WRONLY | O_TRUNC | O_CLOEXEC);
        bool done = fd >= 0 && getrandom(bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes;
        for (size_t i = 0; i < sizeof bytes; i++)
            snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
        _exit(!done || write(fd, hex, TEXT) != TEXT);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* Prepares the patterns for this rank; it keeps them only masked. */
static void learn_needles(void)
{
    unsigned char *clear = window, *made = window + TEXT;
    int fd = open(file, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && read(fd, clear, TEXT) == TEXT && secret_key(clear, TEXT, made));
    close(fd);
    text.bytes = TEXT;
    key.bytes = CRYPTO_KEY;
    mask(clear, TEXT + CRYPTO_KEY);
    memcpy(text.masked, clear, TEXT);
    memcpy(key.masked, made, CRYPTO_KEY);
    memset(window, 0, TEXT + CRYPTO_KEY);
}

/* ------------------------------------------------------------------------------------------------------------ the ranks */
struct opening {
    struct comm_communicator *world;
    enum comm_result result;
    char why[256];
};

static void *open_world(void *arg)
{
    struct opening *o = arg;

    o->result = comm_open(COMM_CONFIG(.backend = "tcp", .error_text = o->why, .error_text_bytes = sizeof o->why), &o->world);
    return NULL;
}

static void sums(struct comm_communicator *world)
{
    for (int i = 0; i < 20; i++) {
        int32_t one = 1, sum = 0;
        struct comm_request q;
        MUST(comm_allreduce(world, &one, &sum, 1, COMM_I32, COMM_SUM, &q));
        MUST(comm_wait(q, RIG_PATIENCE));
        EQUAL(sum, RANKS);
    }
}

/* Rank 0 is checked while it waits for the other one. */
static void live(struct proc *proc, int32_t rank, struct comm_communicator *none)
{
    const bool needed = *(bool *)proc->place;
    struct opening o = {.result = COMM_OK};
    pthread_t thread;

    (void)none;
    window = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(window != MAP_FAILED);
    CHECK(madvise(window, CHUNK, MADV_DONTFORK) == 0); /* also makes it a mapping of its own */
    learn_needles();
    unsetenv("COMM_SECRET");
    setenv("COMM_SECRET_FILE", file, 1);
    setenv("COMM_ADDRESS", where, 1);
    setenv("COMM_TCP_SEAL", "yes", 1);
    setenv("COMM_TCP_LINKS", needed ? "needed" : "all", 1);
    while (rank && !atomic_load(proc->go))
        rig_nap(RIG_MS);
    EQUAL(pthread_create(&thread, NULL, open_world, &o), 0);
    if (rank == 0) {
        for (int64_t end = rig_now() + RIG_PATIENCE; !find(&key).hits[KEPT]; rig_nap(RIG_MS))
            if (rig_now() > end)
                rig_die(__FILE__, __LINE__, "the key is not where it is to be kept: %d times in %s", find(&key).hits[OPEN_TO_ALL],
                        find(&key).first);
        rig_nap(100 * RIG_MS); /* temporary copies are gone by now */
        is_only_kept("while ranks meet", &text, "the secret", false);
        is_only_kept("while ranks meet", &key, "its key", true);
        atomic_fetch_add(&proc->page[rank].stage, 1);
    }
    pthread_join(thread, NULL);
    if (o.result != COMM_OK)
        rig_die(__FILE__, __LINE__, "rank %d: %s", rank, o.why);
    sums(o.world);
    is_only_kept("in an open world", &text, "the secret", false);
    is_only_kept("in an open world", &key, "its key", needed); /* links are still to be made */
    sums(o.world);
    MUST(comm_close(o.world, RIG_PATIENCE));
    is_only_kept("after it was closed", &text, "the secret", false);
    is_only_kept("after it was closed", &key, "its key", false);
}

static void set_scene(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && getsockname(fd, (struct sockaddr *)&at, &length) == 0);
    close(fd);
    snprintf(where, sizeof where, "127.0.0.1:%u", ntohs(at.sin_port));
    snprintf(file, sizeof file, "/tmp/commstream-left-XXXXXX");
    fd = mkstemp(file);
    CHECK(fd >= 0);
    close(fd);
    write_secret();
}

static void run(bool needed)
{
    struct proc proc = {.raw = true, .place = &needed};

    set_scene();
    proc_start(&proc, RANKS, live);
    proc_await(&proc, 0, 1);
    atomic_store(proc.go, 1);
    proc_finish(&proc, -1, RIG_PATIENCE);
    unlink(file);
}

RIG_TEST(of_a_world_of_all_links)
{
    run(false);
}

RIG_TEST(of_a_world_of_links_when_needed)
{
    run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_a_world_of_all_links), cmocka_unit_test(of_a_world_of_links_when_needed)};

    if (crypto_missing()) {
        printf("skipped: %s\n", crypto_missing());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
