/*
 * The cipher's own time, without a connection: `bin/cipher_cost aes|chacha [MIN [MAX]]`. Every CPU has a thread, and all work at the same
 * time, because ranks do so too. A row is "BYTES US": the median time in which a thread seals that many bytes and opens as many, in records
 * as src/net/record makes them. A call that sends and receives BYTES cannot take less than this on top of its time without encryption,
 * unless its CPU had to wait.
 */
#define _GNU_SOURCE
#include "net/auth/crypto.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECORD = 16384, ABOUT = 48, WINDOW = 8 * RECORD, ROTATE = 32 << 20, TIMES = 31, CPUS_MOST = 64 };

struct job {
    enum crypto_kind kind;
    size_t min, max;
    long cpu;
    pthread_barrier_t *start;
    bool wrong;
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int earlier(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* Seals `bytes` bytes of the user into the window, and opens them from there into the user's memory. */
static bool pass(struct crypto_cipher *cipher, uint64_t *nonce, unsigned char *user, unsigned char *window, size_t bytes)
{
    static const unsigned char about[ABOUT];
    unsigned char tag[CRYPTO_TAG];
    bool fine = true;

    for (size_t at = 0; at < bytes && fine; at += RECORD, ++*nonce) {
        size_t n = bytes - at < RECORD ? bytes - at : RECORD;
        unsigned char *sealed = window + at % WINDOW;
        fine = crypto_seal(cipher, *nonce, about, ABOUT, user + at, n, sealed, tag) &&
               crypto_open(cipher, *nonce, about, ABOUT, sealed, n, user + at, tag);
    }
    return fine;
}

static void row(struct job *j, struct crypto_cipher *cipher, uint64_t *nonce, unsigned char *memory, size_t bytes)
{
    size_t calls = bytes < 65536 ? 65536 / bytes : 1, at = 0;
    double time[TIMES];

    for (int i = 0; i < TIMES; i++) {
        pthread_barrier_wait(j->start);
        double begin = now_us();
        for (size_t c = 0; c<calls; c++, at = at + 2 * bytes> ROTATE ? 0 : at + bytes)
            j->wrong |= !pass(cipher, nonce, memory + WINDOW + at, memory, bytes);
        time[i] = (now_us() - begin) / (double)calls;
    }
    qsort(time, TIMES, sizeof time[0], earlier);
    if (!j->cpu)
        printf("%zu %.2f\n", bytes, time[TIMES / 2]);
}

static void *measure(void *at)
{
    static const unsigned char key[CRYPTO_KEY] = {1};
    struct job *j = at;
    struct crypto_cipher *cipher = crypto_cipher_make(j->kind, key);
    unsigned char *memory = aligned_alloc(4096, WINDOW + ROTATE);
    uint64_t nonce = 0;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)j->cpu, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (!cipher || !memory) {
        fprintf(stderr, "cipher_cost: no memory, or no such cipher here\n");
        exit(1);
    }
    memset(memory, 1, WINDOW + ROTATE);
    for (size_t bytes = j->min; bytes <= j->max; bytes *= 4)
        row(j, cipher, &nonce, memory, bytes);
    crypto_cipher_end(cipher);
    free(memory);
    return NULL;
}

int main(int argc, char **argv)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), min = argc > 2 ? atol(argv[2]) : 8, max = argc > 3 ? atol(argv[3]) : 8 << 20;
    struct job job[CPUS_MOST];
    pthread_t thread[CPUS_MOST];
    pthread_barrier_t start;
    bool wrong = false, aes = argc > 1 && !strcmp(argv[1], "aes");

    if (argc < 2 || (!aes && strcmp(argv[1], "chacha") != 0) || min < 1 || max < min || max > ROTATE / 2) {
        fprintf(stderr, "usage: cipher_cost aes|chacha [MIN [MAX]]; 1 to %d bytes\n", ROTATE / 2);
        return 2;
    }
    cpus = cpus < CPUS_MOST ? cpus : CPUS_MOST;
    pthread_barrier_init(&start, NULL, (unsigned)cpus);
    for (long i = 0; i < cpus; i++) {
        job[i] = (struct job){aes ? CRYPTO_AES : CRYPTO_CHACHA, (size_t)min, (size_t)max, i, &start, false};
        if (pthread_create(&thread[i], NULL, measure, &job[i]))
            return 1;
    }
    for (long i = 0; i < cpus; i++) {
        pthread_join(thread[i], NULL);
        wrong |= job[i].wrong;
    }
    return wrong;
}
