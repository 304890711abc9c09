/* Limits for pending peers at the acceptor of an open world: how often it looks, and that a replayed hello is answered once. Also how long
 * the end of a link that was made later does not count as a death. */
#include "net/auth/accept_limiter.h"
#include "net/auth/pending.h"
#include "net/lane/lane.h"
#include "net/mesh/mesh.h"
#include "wire/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "group.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

/* A peer comes every 10 us. Each look accepts those that have come since the last one, 16 at most. */
static void pending_peers_are_looked_at_so_often_and_no_more(void **state)
{
    struct accept_limiter limiter = {0};
    int64_t begin = 100 * SECOND_NS, looks = 0, accepted = 0, waited = 0;
    (void)state;

    for (int64_t now = begin; now < begin + 10 * SECOND_NS; now += 10000) {
        waited++;
        if (accept_limiter_rest(&limiter, now))
            continue;
        int64_t batch = waited < 16 ? waited : 16;
        waited -= batch;
        accept_limiter_charge(&limiter, now, RATE_LOOK_NS + batch * RATE_ACCEPT_NS);
        looks++;
        accepted += batch;
    }
    int64_t most = 10 * SECOND_NS + RATE_SAVED_NS + RATE_LOOK_NS + 16 * RATE_ACCEPT_NS; /* the last one may be charged in advance */
    assert_true(looks * RATE_LOOK_NS + accepted * RATE_ACCEPT_NS <= most);
    assert_true(accepted > 1000); /* so often that an honest peer among them gets its turn */
}

/* Each look finds an honest peer, which is accepted, answered, and admitted at the next look. */
static void honest_ones_are_never_made_to_wait(void **state)
{
    struct accept_limiter limiter = {0};
    int64_t now = 100 * SECOND_NS;
    (void)state;

    for (int i = 0; i < 1000; i++) {
        accept_limiter_charge(&limiter, now, RATE_LOOK_NS + RATE_ACCEPT_NS + RATE_ANSWER_NS);
        assert_int_equal(accept_limiter_rest(&limiter, now), 0);
        accept_limiter_charge(&limiter, now, RATE_LOOK_NS);
        accept_limiter_give_back(&limiter, 2 * RATE_LOOK_NS + RATE_ACCEPT_NS + RATE_ANSWER_NS);
        assert_int_equal(accept_limiter_rest(&limiter, now), 0);
    }
}

static void what_is_saved_has_a_bound(void **state)
{
    struct accept_limiter limiter = {0};
    int64_t now = 100000 * SECOND_NS, done = 0;
    (void)state;

    accept_limiter_give_back(&limiter, 1000 * SECOND_NS);
    for (; !accept_limiter_rest(&limiter, now); done++)
        accept_limiter_charge(&limiter, now, RATE_LOOK_NS);
    assert_int_equal(done, RATE_SAVED_NS / RATE_LOOK_NS + 1);
    assert_int_equal(accept_limiter_rest(&limiter, now + RATE_LOOK_NS), 0);
}

/* ------------------------------------------------------------------------------------------------------------ replays */
struct visit {
    enum pending_heard heard;
    ssize_t answer; /* bytes */
};

static struct visit come(const struct pending_acceptor *acceptor, const unsigned char hello[HANDSHAKE_HELLO])
{
    struct pending_peer s = {.until = INT64_MAX};
    unsigned char answer[HANDSHAKE_ANSWER];
    char why[PENDING_WHY] = "";
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(send(ends[0], hello, HANDSHAKE_HELLO, MSG_NOSIGNAL), HANDSHAKE_HELLO);
    s.fd = ends[1];
    struct visit v = {pending_hello(acceptor, &s, false, why), 0};
    v.answer = recv(ends[0], answer, sizeof answer, MSG_DONTWAIT);
    close(ends[0]);
    close(ends[1]);
    return v;
}

static void a_recording_is_answered_once(void **state)
{
    const struct comm_env *env = wire_default_env();
    const unsigned char key[CRYPTO_KEY] = {7};
    const struct handshake_names names = {HANDSHAKE_CONNECTION, 0, 1, 0, 0};
    static struct hellos answered;
    const struct pending_acceptor acceptor = {env, key, HANDSHAKE_CONNECTION, 1, 0x1234, &answered, NULL, 0};
    static unsigned char hello[HELLOS_KEPT + 1][HANDSHAKE_HELLO];
    struct handshake h;
    (void)state;

    if (!handshake_hello(&h, env, key, &names, hello[0]))
        group_skip("this library was built without libcrypto");
    assert_int_equal(come(&acceptor, hello[0]).heard, PENDING_DONE);
    for (int i = 1; i <= HELLOS_KEPT; i++) { /* the replay does not delay others, and in the end it is forgotten */
        struct visit again = come(&acceptor, hello[0]);
        assert_int_equal(again.heard, PENDING_OUT);
        assert_true(again.answer <= 0);
        assert_true(handshake_hello(&h, env, key, &names, hello[i]));
        struct visit first = come(&acceptor, hello[i]);
        assert_int_equal(first.heard, PENDING_DONE);
        assert_int_equal(first.answer, HANDSHAKE_ANSWER);
    }
    assert_int_equal(come(&acceptor, hello[1]).heard, PENDING_OUT);
    assert_int_equal(come(&acceptor, hello[0]).heard, PENDING_DONE);
}

/* A connection over loopback: 0 sends, 1 is the acceptor's. */
static void connect_pair(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    assert_true(!bind(listener, (struct sockaddr *)&at, length) && !listen(listener, 1) &&
                !getsockname(listener, (struct sockaddr *)&at, &length));
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(ends[0], (struct sockaddr *)&at, length), 0);
    assert_int_equal(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    ends[1] = accept(listener, NULL, NULL);
    assert_true(ends[1] >= 0);
    close(listener);
}

static int wakes(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 10000);
}

/* The acceptor sleeps until the rest of the hello is there. It must not sleep for as many bytes afterwards: the greeting is shorter. */
static void a_greeting_after_a_hello_in_pieces_wakes(void **state)
{
    enum { FIRST = 40, GREETING = 24 };
    const struct comm_env *env = wire_default_env();
    const unsigned char key[CRYPTO_KEY] = {7};
    const struct handshake_names names = {HANDSHAKE_MEETING, 1, 0, 0, 0};
    const struct pending_acceptor acceptor = {env, key, HANDSHAKE_MEETING, 0, 0x1234, NULL, NULL, 0};
    unsigned char hello[HANDSHAKE_HELLO], answer[HANDSHAKE_ANSWER], sealed[GREETING + CRYPTO_TAG], greeting[GREETING] = {9},
                                                                                                   heard[GREETING];
    struct pending_peer s = {.until = INT64_MAX};
    struct handshake h;
    char why[PENDING_WHY] = "";
    int ends[2];
    (void)state;

    if (!handshake_hello(&h, env, key, &names, hello))
        group_skip("this library was built without libcrypto");
    connect_pair(ends);
    s.fd = ends[1];
    assert_int_equal(send(ends[0], hello, FIRST, 0), FIRST);
    assert_int_equal(wakes(s.fd), 1);
    assert_int_equal(pending_hello(&acceptor, &s, false, why), PENDING_LATER);
    assert_int_equal(send(ends[0], hello + FIRST, sizeof hello - FIRST, 0), (int)sizeof hello - FIRST);
    assert_int_equal(wakes(s.fd), 1);
    assert_int_equal(pending_hello(&acceptor, &s, false, why), PENDING_DONE);
    assert_int_equal(recv(ends[0], answer, sizeof answer, MSG_WAITALL), (int)sizeof answer);
    assert_int_equal(handshake_finish(&h, answer), HANDSHAKE_OK);
    assert_true(seal_write(&h.seal, greeting, sizeof greeting, sealed));
    assert_int_equal(send(ends[0], sealed, sizeof sealed, 0), (int)sizeof sealed);
    assert_int_equal(wakes(s.fd), 1);
    assert_int_equal(pending_greeting(&s, heard, sizeof heard, false), PENDING_DONE);
    assert_memory_equal(heard, greeting, sizeof greeting);
    close(ends[0]);
    close(ends[1]);
}

/* A peer without the secret cannot make the acceptor forget those with it. */
static void a_wrong_hello_is_not_remembered(void **state)
{
    const struct comm_env *env = wire_default_env();
    const unsigned char key[CRYPTO_KEY] = {7}, other[CRYPTO_KEY] = {8};
    const struct handshake_names names = {HANDSHAKE_CONNECTION, 0, 1, 0, 0};
    static struct hellos answered;
    const struct pending_acceptor acceptor = {env, key, HANDSHAKE_CONNECTION, 1, 0x1234, &answered, NULL, 0};
    unsigned char hello[HANDSHAKE_HELLO];
    struct handshake h;
    (void)state;

    if (!handshake_hello(&h, env, other, &names, hello))
        group_skip("this library was built without libcrypto");
    for (int i = 0; i < 3; i++) {
        struct visit v = come(&acceptor, hello);
        assert_int_equal(v.heard, PENDING_OUT);
        assert_int_equal(v.answer, HANDSHAKE_HEAD);
    }
    assert_int_equal(answered.count, 0);
}

/* ------------------------------------------------------------------------------------------------------------ ends */
static const int64_t ended = 100 * SECOND_NS;

/* How long the end does not count as a death, in ms; -1: more than a minute. */
static int64_t grace_ms(const struct tcp_link *link)
{
    static char there;
    struct tcp_wire w = {.graph = (struct tcp_graph *)(void *)&there}; /* links are made when needed */

    for (int64_t ms = 0; ms <= 60000; ms += 10)
        if (tcp_has_said_all(&w, link, ended + ms * 1000000 + 1))
            return ms;
    return -1;
}

static struct tcp_link link_that_ended(void)
{
    struct tcp_link link = {.peer = 3, .here = true, .ended_ns = ended};

    for (int k = 0; k < TCP_SOCKETS; k++)
        link.lane[k].fd = k == TCP_BEAT ? -1 : 100 + k;
    return link;
}

static void an_end_before_the_first_word_is_no_death_yet(void **state)
{
    struct tcp_link mute = link_that_ended(), small = link_that_ended(), bulk = link_that_ended(), polite = link_that_ended();
    struct tcp_link sure = link_that_ended();
    (void)state;

    sure.sure = true; /* the other end is connected too */
    small.lane[TCP_LANE_SMALL].in_number = 1;
    bulk.lane[TCP_LANE_BULK].in_number = 1;
    polite.goodbye = true;
    polite.lane[TCP_LANE_SMALL].in_number = 1;
    assert_int_equal(grace_ms(&mute), 5000);
    assert_int_equal(grace_ms(&small), 300);
    assert_int_equal(grace_ms(&bulk), 5000); /* a goodbye comes over the small lane */
    assert_int_equal(grace_ms(&sure), 300);
    assert_int_equal(grace_ms(&polite), 5000);
}

/* The peer dialed to repair the base graph, and closed before it learned that it was admitted. */
static void nor_is_it_of_a_neighbour(void **state)
{
    struct tcp_link mute = link_that_ended(), sure = link_that_ended(), small = link_that_ended(), bulk = link_that_ended();
    struct tcp_link *all[] = {&mute, &sure, &small, &bulk};
    (void)state;

    for (int i = 0; i < 4; i++)
        all[i]->lane[TCP_BEAT].fd = 102;
    sure.sure = true;
    small.lane[TCP_LANE_SMALL].in_number = 1;
    bulk.lane[TCP_LANE_BULK].in_number = 1;
    bulk.beat = 1;
    assert_int_equal(grace_ms(&mute), 5000);
    assert_int_equal(grace_ms(&sure), 0);
    assert_int_equal(grace_ms(&small), 0);
    assert_int_equal(grace_ms(&bulk), 5000);
}

/* A report from another rank ends the grace period. */
static void what_others_say_of_it_is_believed_at_once(void **state)
{
    struct tcp_link dead = link_that_ended();
    struct tcp_wire all = {.graph = NULL};
    (void)state;

    dead.told = (struct wire_event){.kind = WIRE_EVENT_DOWN, .result = COMM_ERR_PEER};
    assert_int_equal(grace_ms(&dead), 0);
    struct tcp_link any = link_that_ended();
    assert_true(tcp_has_said_all(&all, &any, ended + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pending_peers_are_looked_at_so_often_and_no_more),
        cmocka_unit_test(honest_ones_are_never_made_to_wait),
        cmocka_unit_test(what_is_saved_has_a_bound),
        cmocka_unit_test(a_recording_is_answered_once),
        cmocka_unit_test(a_greeting_after_a_hello_in_pieces_wakes),
        cmocka_unit_test(a_wrong_hello_is_not_remembered),
        cmocka_unit_test(an_end_before_the_first_word_is_no_death_yet),
        cmocka_unit_test(nor_is_it_of_a_neighbour),
        cmocka_unit_test(what_others_say_of_it_is_believed_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
