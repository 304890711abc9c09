/* Dialing and accepting by a rank of many, whose other ranks are plain sockets here: peers that never answer, no descriptor or memory for a
 * connection, and addresses that are valid on one link only. */
#include "net/auth/secret.h"
#include "net/lane/lane.h"
#include "net/mesh/mesh.h"
#include "net/posix/interface.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

static int wakes(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 10000);
}

/* ------------------------------------------------------------------------------------------------------------ dials */
enum { RANKS = TCP_LINKS_MANY + 1, MUTE = 6 };

/* An open world of many ranks, as far as its rank 0 needs it to dial. */
struct world {
    struct tcp_wire wire;
    struct tcp_port port;
    struct tcp_link link[RANKS];
    struct env_bell watch;
    struct base_log log;
    struct mesh *mesh;
    char text[256];
};

static void open_world(struct world *o, const struct sockaddr_storage *mute)
{
    const struct comm_env *env = wire_default_env();
    static struct wire_config config; /* the mesh keeps it */
    config = (struct wire_config){.env = env, .ranks = RANKS, .error_text = o->text, .error_text_bytes = sizeof o->text};
    size_t bytes = sizeof(struct mesh) + RANKS * sizeof(struct card) + TCP_DIALS * sizeof(struct dialing) +
                   (TCP_DIALS + UNAUTHENTICATED_MAX + 1) * sizeof(struct pollfd) + RANKS;

    *o = (struct world){.wire = {.env = env, .log = &o->log, .watch = &o->watch, .port = &o->port, .links = o->link, .ports = 1}};
    o->port = (struct tcp_port){.wire = &o->wire, .link = o->link};
    o->wire.ranks = RANKS;
    o->wire.times.tick_ns = SECOND_NS;
    for (int32_t i = 0; i < RANKS; i++) {
        o->link[i].peer = i;
        for (uint32_t k = 0; k < TCP_SOCKETS; k++)
            o->link[i].lane[k] = (struct tcp_lane){.fd = -1, .port = &o->port, .link = &o->link[i], .lane = k};
    }
    assert_int_equal(env->start(env), 0);
    assert_int_equal(env->bell_open(env, &o->watch), 0);
    o->wire.monitor.deaths = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(tcp_acceptor_make(&o->wire, &config), COMM_OK);
    struct mesh *m = o->mesh = secret_take(bytes);
    assert_non_null(m);
    *m = (struct mesh){.w = &o->wire, .config = &config, .listener = -1, .outside = -1, .dials_room = TCP_DIALS, .bytes = bytes};
    m->cards = (struct card *)(void *)(m + 1);
    m->dials = (struct dialing *)(void *)(m->cards + RANKS);
    m->wait = (struct pollfd *)(void *)(m->dials + TCP_DIALS);
    m->how = (unsigned char *)(m->wait + TCP_DIALS + UNAUTHENTICATED_MAX + 1);
    for (int32_t i = 0; i < RANKS; i++)
        m->cards[i].address = *mute;
    assert_true(tcp_acceptor_open(&o->wire, m));
}

static void close_world(struct world *o)
{
    tcp_acceptor_close(&o->wire);
    close(o->wire.monitor.deaths);
    o->wire.env->bell_close(o->wire.env, &o->watch);
}

/* The kernel of a stopped process accepts connections, and nobody answers on them. */
static void who_never_answers_holds_no_places(void **state)
{
    static struct world o;
    struct sockaddr_storage mute;
    struct tcp_link *link = &o.link[MUTE];
    int listener = -1;
    (void)state;

    assert_true(mesh_read_address("127.0.0.1", &mute));
    assert_int_equal(mesh_listen_on(&mute, 8, &listener), 0);
    open_world(&o, &mute);
    tcp_want(link, false);
    tcp_acceptor_turn(&o.wire, true);
    assert_int_equal(o.mesh->dialing, 2);
    link->wanted_ns -= 9 * SECOND_NS;
    tcp_acceptor_turn(&o.wire, true);
    assert_int_equal(o.mesh->dialing, 2); /* it has ten seconds */
    assert_int_equal(o.mesh->dials[0].stage, DIAL_GREETED);
    link->wanted_ns -= 2 * SECOND_NS;
    tcp_acceptor_turn(&o.wire, true);
    assert_int_equal(link->told.kind, WIRE_EVENT_DOWN);
    assert_int_equal(o.mesh->dialing, 0);
    close_world(&o);
    close(listener);
}

/* A process that is killed, or no rank at all. Its half answer can be read for ever. */
static void who_ends_amid_its_answer_is_not_awaited(void **state)
{
    static struct world o;
    struct sockaddr_storage half;
    const uint32_t magic = MESH_MAGIC;
    int listener = -1;
    (void)state;

    assert_true(mesh_read_address("127.0.0.1", &half));
    assert_int_equal(mesh_listen_on(&half, 8, &listener), 0);
    open_world(&o, &half);
    tcp_want(&o.link[MUTE], false);
    tcp_acceptor_turn(&o.wire, true);
    assert_int_equal(o.mesh->dialing, 2);
    int fd = accept(listener, NULL, NULL);
    assert_int_equal(send(fd, &magic, sizeof magic, 0), sizeof magic);
    assert_int_equal(mesh_dial_on(o.mesh, 0), COMM_OK);
    assert_int_equal(o.mesh->dialing, 2);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    assert_int_equal(wakes(o.mesh->dials[0].fd), 1);
    assert_int_equal(mesh_dial_on(o.mesh, 0), COMM_OK); /* in an open world it dials again while there is time */
    assert_int_equal(o.mesh->dialing, 1);
    close(fd);
    close_world(&o);
    close(listener);
}

/* When the process exits, its thread dials while the monitor hears pending peers: here between the monitor's poll and what follows. */
static struct mesh *exits;
int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    int ready = __real_poll(fds, count, ms);
    struct mesh *m = exits;

    exits = NULL;
    if (m)
        assert_int_equal(mesh_turn(m, 0), COMM_OK);
    return ready;
}

static void an_exiting_thread_disturbs_no_pending_peer(void **state)
{
    static struct world o;
    struct sockaddr_storage any;
    int ends[2];
    (void)state;

    assert_true(mesh_read_address("127.0.0.1", &any));
    open_world(&o, &any);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pending_add(&o.mesh->pending_peers, o.wire.env, ends[1], INT64_MAX - PENDING_NS);
    close(ends[0]);
    exits = o.mesh;
    mesh_hear(o.mesh);
    assert_null(exits);
    assert_int_equal(o.mesh->pending_peers.count, 0); /* its end was seen */
    close_world(&o);
}

/* ------------------------------------------------------------------------------------------------------------ forked children */
/* How many of the descriptors a forked child has. */
static int kept_by_child(const int *fd, int count)
{
    int status, kept = 0;
    pid_t child = fork();

    if (!child) {
        for (int i = 0; i < count; i++)
            kept += fcntl(fd[i], F_GETFD) >= 0;
        _exit(kept);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Otherwise a child that is forked while a link is being made would hide this rank's end from its peer for ever. What has its number later
 * is kept. */
static void a_child_keeps_no_connection_that_is_being_made(void **state)
{
    enum { UNFINISHED = 3 };
    static struct world o;
    struct sockaddr_storage mute;
    int listener = -1, ends[2], fd[UNFINISHED];
    (void)state;

    assert_true(mesh_read_address("127.0.0.1", &mute));
    assert_int_equal(mesh_listen_on(&mute, 8, &listener), 0);
    open_world(&o, &mute);
    tcp_want(&o.link[MUTE], false);
    tcp_acceptor_turn(&o.wire, true);
    assert_int_equal(o.mesh->dialing, 2);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pending_add(&o.mesh->pending_peers, o.wire.env, ends[1], 0);
    for (int i = 0; i < 2; i++)
        fd[i] = o.mesh->dials[i].fd;
    fd[2] = ends[1];
    assert_int_equal(kept_by_child(fd, UNFINISHED), 0);
    mesh_drop_dials(o.mesh, MUTE);
    pending_drop_eldest(&o.mesh->pending_peers, o.wire.env);
    for (int i = 0; i < UNFINISHED; i++)
        assert_int_equal(dup2(listener, fd[i]), fd[i]);
    assert_int_equal(kept_by_child(fd, UNFINISHED), UNFINISHED);
    for (int i = 0; i < UNFINISHED; i++)
        close(fd[i]);
    close(ends[0]);
    close_world(&o);
    close(listener);
}

/* ------------------------------------------------------------------------------------------------------------ shortage */
static int lacks, times = -1; /* the error of every accept, or of as many; 0: none */
int __real_accept4(int listener, struct sockaddr *address, socklen_t *length, int flags);
int __wrap_accept4(int listener, struct sockaddr *address, socklen_t *length, int flags);
int __wrap_accept4(int listener, struct sockaddr *address, socklen_t *length, int flags)
{
    if (!lacks || !times)
        return __real_accept4(listener, address, length, flags);
    times -= times > 0;
    errno = lacks;
    return -1;
}

/* A world with a listener, to which one peer has connected. */
static int open_world_with_a_peer(struct world *o)
{
    struct sockaddr_storage at;
    int peer = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(mesh_read_address("127.0.0.1", &at));
    open_world(o, &at);
    assert_int_equal(mesh_listen_on(&at, 8, &o->mesh->listener), 0);
    assert_int_equal(connect(peer, (struct sockaddr *)&at, mesh_length_of(&at)), 0);
    return peer;
}

static const int shortages[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM};

/* The connection waits in the listener's queue, and epoll does not tell of it again. */
static void a_shortage_in_an_open_world_is_waited_out(void **state)
{
    static struct world o;
    struct rlimit before, none;
    (void)state;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){before.rlim_cur, before.rlim_cur}; /* no accept raises it */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (size_t i = 0; i < sizeof shortages / sizeof *shortages; i++) {
        int peer = open_world_with_a_peer(&o);
        mesh_watch_outside(o.mesh, o.mesh->listener);
        assert_int_equal(wakes(o.mesh->outside), 1);
        lacks = shortages[i];
        int64_t rest = mesh_hear(o.mesh);
        lacks = 0;
        assert_true(rest > 0 && rest <= SECOND_NS); /* after it the monitor calls again, and until then it sleeps */
        assert_int_equal(o.mesh->pending_peers.count, 0);
        mesh_hear(o.mesh);
        assert_int_equal(o.mesh->pending_peers.count, 1);
        close(peer);
        close_world(&o);
    }
}

/* Poll would tell of the connection again and again, and the rank would use a CPU up to its deadline. */
static void a_shortage_while_a_world_opens_is_named(void **state)
{
    static struct world o;
    (void)state;

    for (size_t i = 0; i < sizeof shortages / sizeof *shortages; i++) {
        int peer = open_world_with_a_peer(&o);
        o.mesh->steady = false;
        o.mesh->missing = TCP_SOCKETS;
        lacks = shortages[i];
        assert_int_equal(mesh_turn(o.mesh, 10000), COMM_ERR_SYSTEM);
        lacks = 0;
        assert_non_null(strstr(o.mesh->config->error_text, shortages[i] == EMFILE ? "RLIMIT_NOFILE" : strerror(shortages[i])));
        o.mesh->steady = true;
        close(peer);
        close_world(&o);
    }
}

static bool poor; /* there is no memory */
static void *take_if_there(const struct comm_env *env, size_t bytes, size_t align)
{
    return poor ? NULL : wire_default_env()->take(env, bytes, align);
}

/* A dialer that was told that it is admitted would not dial again, and all would wait for the connection up to the deadline. */
static void who_finds_no_memory_is_not_admitted(void **state)
{
    static struct world o;
    static struct comm_env env;
    const struct greeting g = {.magic = MESH_MAGIC, .version = FRAME_VERSION, .from = 0, .to = 1, .lane = TCP_LANE_SMALL};
    (void)state;

    env = *wire_default_env();
    env.take = take_if_there;
    for (int lack = 0; lack < 2; lack++) {
        int peer = open_world_with_a_peer(&o);
        struct tcp_lane *lane = &o.link[0].lane[TCP_LANE_SMALL];
        struct welcome w;
        o.wire.env = &env;
        o.wire.rank = 1;
        o.wire.checked = true; /* its records need memory */
        o.mesh->steady = false;
        o.mesh->missing = 1;
        assert_int_equal(send(peer, &g, sizeof g, 0), sizeof g);
        poor = lack;
        enum comm_result result = COMM_OK;
        for (int turn = 0; turn < 10 && o.mesh->missing && result == COMM_OK; turn++)
            result = mesh_turn(o.mesh, 1000);
        poor = false;
        assert_int_equal(result, lack ? COMM_ERR_MEMORY : COMM_OK);
        assert_int_equal(recv(peer, &w, sizeof w, 0), lack ? 0 : sizeof w);
        assert_int_equal(lane->fd >= 0, !lack);
        if (!lack) {
            mesh_unseal(o.mesh, 0, TCP_LANE_SMALL);
            pending_close(&env, lane->fd);
        }
        o.mesh->steady = true;
        close(peer);
        close_world(&o);
    }
}

/* ------------------------------------------------------------------------------------------------------------ addresses */
void place_host(const struct sockaddr *address, char *text, size_t bytes); /* its header has other frames than the mesh's */

/* An address that is valid on one link only, on its way from a socket to the card of a rank and to another rank. */
static void an_address_of_one_link_keeps_its_link(void **state)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_scope_id = if_nametoindex("lo")}, own = six;
    struct sockaddr_storage read, of_another, here;
    char text[INTERFACE_ADDRESS], named[80];
    (void)state;

    assert_int_equal(inet_pton(AF_INET6, "fe80::7", &six.sin6_addr), 1);
    place_host((const struct sockaddr *)&six, text, sizeof text);
    assert_string_equal(text, "fe80::7%lo");
    assert_true(mesh_read_address(text, &read));
    assert_memory_equal(&read, &six, sizeof six);
    mesh_name_address(&read, named, sizeof named);
    assert_string_equal(named, "[fe80::7%lo]:0");
    six.sin6_scope_id = 4711; /* on its own host */
    memset(&of_another, 0, sizeof of_another);
    memset(&here, 0, sizeof here);
    memcpy(&of_another, &six, sizeof six);
    assert_int_equal(inet_pton(AF_INET6, "fe80::8", &own.sin6_addr), 1);
    memcpy(&here, &own, sizeof own);
    mesh_use_own_link(&of_another, &here);
    assert_memory_equal(&of_another, &read, sizeof six);
    assert_true(mesh_read_address("fd77::1", &of_another)); /* valid everywhere */
    mesh_use_own_link(&of_another, &here);
    memcpy(&six, &of_another, sizeof six);
    assert_int_equal(six.sin6_scope_id, 0);
    assert_false(mesh_read_address("fe80::7%no-such", &read) || mesh_read_address("node0", &read));
}

/* The last packet of a connection is on its way when the dialing end is connected already. */
static void ranks_of_one_process_wait_for_their_connection(void **state)
{
    static struct tcp_link link[2][2];
    static struct tcp_port port[2];
    static struct tcp_wire w;
    const struct base_log log = {.rank = -1};
    char text[200] = "";
    const struct wire_config config = {.env = wire_default_env(), .ranks = 2, .error_text = text, .error_text_bytes = sizeof text};
    (void)state;

    w.env = wire_default_env();
    w.log = &log;
    w.port = port;
    w.ranks = 2;
    for (int32_t i = 0; i < 4; i++) {
        struct tcp_link *l = &link[i / 2][i % 2];
        port[i / 2] = (struct tcp_port){.wire = &w, .rank = i / 2, .link = link[i / 2]};
        for (uint32_t k = 0; k < TCP_SOCKETS; k++)
            l->lane[k] = (struct tcp_lane){.fd = -1, .port = &port[i / 2], .link = l, .lane = k};
    }
    lacks = EAGAIN;
    times = 1;
    enum comm_result result = tcp_mesh_here(&w, &config);
    lacks = 0;
    times = -1;
    if (result != COMM_OK)
        fail_msg("%d: %s", (int)result, text);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < TCP_LANES && i / 2 != i % 2; k++) {
            assert_true(link[i / 2][i % 2].lane[k].fd >= 0);
            w.env->own(w.env, link[i / 2][i % 2].lane[k].fd, false);
            close(link[i / 2][i % 2].lane[k].fd);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_never_answers_holds_no_places),          cmocka_unit_test(who_ends_amid_its_answer_is_not_awaited),
        cmocka_unit_test(an_exiting_thread_disturbs_no_pending_peer), cmocka_unit_test(a_shortage_in_an_open_world_is_waited_out),
        cmocka_unit_test(a_shortage_while_a_world_opens_is_named),    cmocka_unit_test(ranks_of_one_process_wait_for_their_connection),
        cmocka_unit_test(an_address_of_one_link_keeps_its_link),      cmocka_unit_test(a_child_keeps_no_connection_that_is_being_made),
        cmocka_unit_test(who_finds_no_memory_is_not_admitted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
