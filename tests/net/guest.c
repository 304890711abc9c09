#define _GNU_SOURCE
#include "net/guest.h"

#include "wire/boot.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

extern const struct boot_class boot_tcp;

void guest_nap(int64_t ns)
{
    struct timespec t = {ns / SECOND, ns % SECOND};
    nanosleep(&t, NULL);
}

static void *visit(void *arg)
{
    struct guest *g = arg;
    const struct comm_env *env = wire_default_env();
    static const struct base_log quiet = {.level = 0, .rank = -1};
    struct wire_boot *boot = NULL;

    guest_nap(g->late);
    int64_t start = env->now(env);
    struct boot_config config = {.env = env,
                                 .log = &quiet,
                                 .rank = g->rank,
                                 .ranks = g->ranks,
                                 .job = g->job,
                                 .address = g->address,
                                 .secret = g->secret,
                                 .secret_bytes = g->secret ? strlen(g->secret) : 0,
                                 .deadline = start + g->patience,
                                 .error_text = g->text,
                                 .error_text_bytes = sizeof g->text};
    g->result = boot_tcp.open(&config, &boot);
    g->took = env->now(env) - start;
    if (g->result != COMM_OK)
        return NULL;
    uint64_t in = 1000 + (uint64_t)g->rank, out[GUESTS] = {0};
    g->exchanged = boot->class->allgather(boot, &in, sizeof in, out) == COMM_OK;
    for (int32_t i = 0; i < g->ranks; i++)
        g->exchanged &= out[i] == 1000 + (uint64_t)i;
    g->keyed = boot->key != NULL;
    snprintf(g->own, sizeof g->own, "%s", boot->address);
    boot->class->close(boot);
    return NULL;
}

const char *guest_free_address(int family, char text[64])
{
    struct sockaddr_storage at = {.ss_family = (sa_family_t)family};
    socklen_t length = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    struct sockaddr_in *four = (struct sockaddr_in *)&at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&at;
    int fd = socket(family, SOCK_STREAM, 0);

    if (family == AF_INET6)
        six->sin6_addr = in6addr_loopback;
    else
        four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, length) || getsockname(fd, (struct sockaddr *)&at, &length)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    close(fd);
    snprintf(text, 64, family == AF_INET6 ? "[::1]:%u" : "127.0.0.1:%u", ntohs(family == AF_INET6 ? six->sin6_port : four->sin_port));
    return text;
}

void guest_meet(struct guest *guests, int32_t count)
{
    pthread_t thread[GUESTS];

    for (int32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, visit, &guests[i]), 0);
    for (int32_t i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
}

void guest_pair(struct guest g[2], const char *address)
{
    for (int32_t i = 0; i < 2; i++)
        g[i] = (struct guest){.rank = i, .ranks = 2, .job = "j", .address = address, .patience = 3 * SECOND};
}

void guest_expect(const struct guest *g, enum comm_result result, const char *text)
{
    if (g->result != result || !strstr(g->text, text))
        fail_msg("rank %d: %d \"%s\"; expected %d \"%s\"", g->rank, (int)g->result, g->text, (int)result, text);
    assert_true(g->took < 5 * SECOND);
}
