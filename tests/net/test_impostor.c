/*
 * A process that has a rank's port but is not that rank. Each listener has a random word, which only the ranks of a world know. A dialer
 * sends the listener's word, and the listener answers with the dialer's. So a process that listens where a rank of the world did, or was
 * expected to, is not mistaken for it.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/guest.h"

#include "net/mesh/mesh.h"
#include "wire/table.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int impostor;
static _Atomic int heard; /* number of dialers that sent something */
static char address[64];  /* of rank 0 */

/* Listens on the port that rank 1 published, and does not know rank 0's word. */
static void *pose_as_listener(void *arg)
{
    struct greeting g;
    struct {
        uint32_t magic;
        unsigned char word[16];
    } welcome = {.magic = MESH_MAGIC};

    (void)arg;
    for (int fd; (fd = accept(impostor, NULL, NULL)) >= 0;) {
        heard += recv(fd, &g, sizeof g, MSG_WAITALL) > 0;
        (void)!send(fd, &welcome, sizeof welcome, MSG_NOSIGNAL);
    }
    return NULL;
}

/* Everything else of the meeting is unchanged. */
static enum comm_result say_impostors_port(struct wire_boot *boot, const void *in, size_t bytes, void *out)
{
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    struct card card;

    assert_int_equal(bytes, sizeof card);
    memcpy(&card, in, sizeof card);
    assert_int_equal(getsockname(impostor, (struct sockaddr *)&at, &length), 0);
    if (((struct sockaddr_in *)(void *)&card.address)->sin_port)
        memcpy(&card.address, &at, sizeof at);
    return wire_backend_find("tcp")->boot->allgather(boot, &card, sizeof card, out);
}

struct rank {
    int32_t rank;
    enum comm_result result;
    char text[400];
};

static void *open_wire(void *arg)
{
    struct rank *r = arg;
    const struct comm_env *env = wire_default_env();
    const struct wire_backend *tcp = wire_backend_find("tcp");
    const struct base_log quiet = {.level = 0, .rank = -1};
    struct env_bell bell, watch;
    struct wire_boot *boot = NULL;
    struct wire *wire = NULL;
    struct boot_config meeting = {.env = env,
                                  .log = &quiet,
                                  .rank = r->rank,
                                  .ranks = 2,
                                  .job = "j",
                                  .address = address,
                                  .deadline = env->now(env) + 3 * SECOND,
                                  .error_text = r->text,
                                  .error_text_bytes = sizeof r->text};

    assert_true(!env->bell_open(env, &bell) && !env->bell_open(env, &watch));
    r->result = tcp->boot->open(&meeting, &boot);
    assert_int_equal(r->result, COMM_OK);
    struct boot_class posed = *boot->class;
    posed.allgather = say_impostors_port;
    if (r->rank == 1)
        boot->class = &posed;
    struct wire_config config = {.env = env,
                                 .log = &quiet,
                                 .bell = &bell,
                                 .watch = &watch,
                                 .boot = boot,
                                 .rank = r->rank,
                                 .ranks = 2,
                                 .deadline = meeting.deadline,
                                 .error_text = r->text,
                                 .error_text_bytes = sizeof r->text};
    r->result = tcp->wire->open(&config, &wire);
    if (wire)
        tcp->wire->close(wire);
    boot->class->close(boot);
    env->bell_close(env, &bell);
    env->bell_close(env, &watch);
    return NULL;
}

static void has_a_listeners_port(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t thread[2], poser;

    (void)state;
    assert_non_null(guest_free_address(AF_INET, address));
    impostor = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(!bind(impostor, (struct sockaddr *)&at, sizeof at) && !listen(impostor, 8));
    assert_int_equal(pthread_create(&poser, NULL, pose_as_listener, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_wire, &ranks[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    shutdown(impostor, SHUT_RDWR);
    pthread_join(poser, NULL);
    close(impostor);
    assert_true(heard > 0);
    for (int i = 0; i < 2; i++)
        if (ranks[i].result != COMM_ERR_AUTH || !strstr(ranks[i].text, "it does not know this rank's word"))
            fail_msg("rank %d: %d \"%s\"", i, (int)ranks[i].result, ranks[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(has_a_listeners_port)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
