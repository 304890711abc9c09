/* Rare paths of random programs, found from what ranks recorded: a run's report lists those that no program reached. */
#include "sim/workload.h"

#include "sim/oracle_check.h"

#include <string.h>

static void probe_cause(enum comm_result cause)
{
    switch (cause) {
    case COMM_ERR_MISMATCH:
        SIM_PROBE("program: failed with MISMATCH");
        break;
    case COMM_ERR_REFUSED:
        SIM_PROBE("program: failed with REFUSED");
        break;
    case COMM_ERR_CLOSED:
        SIM_PROBE("program: failed with CLOSED");
        break;
    case COMM_ERR_DEPENDENCY:
        SIM_PROBE("program: failed with DEPENDENCY");
        break;
    case COMM_ERR_ABANDONED:
        SIM_PROBE("program: failed with ABANDONED");
        break;
    case COMM_ERR_TIMEOUT:
        SIM_PROBE("program: failed with TIMEOUT");
        break;
    case COMM_ERR_PEER:
        SIM_PROBE("program: failed with PEER");
        break;
    default:
        break;
    }
}

static void probe_communicators(const struct random_run *run)
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        int32_t parent = run->comms.comm[c].parent;
        if (run->comms.comm[c].members == 1)
            SIM_PROBE("program: a communicator of one rank");
        for (int32_t r = 0; r < run->p->ranks; r++) {
            probe_cause(run->error[c][r].size ? run->error[c][r].result : COMM_OK);
            if (run->deepest[c][r] > (uint64_t)(run->p->minimal ? 4 : run->p->window))
                SIM_PROBE("program: more in the queue than the window holds");
            if (run->deepest[c][r] + 1 >= (uint64_t)run->p->queue)
                SIM_PROBE("program: a queue at its bound");
        }
        for (int32_t i = 0; parent >= 0 && i < run->p->actions; i++) {
            if (run->p->action[i].verb == RANDOM_CLOSE && run->p->action[i].comm == parent)
                SIM_PROBE("program: a child whose parent is closed");
        }
    }
}

static void probe_recovery(const struct random_run *run)
{
    bool sound[RANDOM_COMMS];
    recover_sound(run, sound);
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        if (run->comms.lacks[c])
            SIM_PROBE("program: a shrunk communicator lacks a rank");
        if (run->comms.lacks[c] && sound[c])
            SIM_PROBE("program: survivors went on, and nothing may have failed");
    }
}

static void probe_beside(const struct random_run *run, int32_t i)
{
    const struct random_action *a = &run->p->action[i];
    if (a->verb == RANDOM_SUBSET && run->outcome[i] == COMM_OK)
        SIM_PROBE("program: a subset beside the queue");
    if (a->verb == RANDOM_AGREE && run->waited[i] == COMM_OK)
        SIM_PROBE("program: an agreement");
    if (a->verb == RANDOM_AGREE && run->waited[i] == COMM_OK && run->error[a->comm][a->rank].result == COMM_ERR_PEER)
        SIM_PROBE("program: an agreement of survivors");
}

static void probe_message(const struct random_action *a, int32_t outcome)
{
    if (a->peer == a->rank)
        SIM_PROBE("program: a message to oneself");
    if ((a->flags & RANDOM_ANY_PEER) && outcome == COMM_OK)
        SIM_PROBE("program: a receive from anybody");
    if (outcome == COMM_ERR_TRUNCATED)
        SIM_PROBE("program: a receive that was too short");
    if (outcome == COMM_ERR_CANCELLED)
        SIM_PROBE("program: a receive that was cancelled");
    if (a->n == 0)
        SIM_PROBE("program: an empty message");
}

static void probe_action(const struct random_run *run, int32_t i)
{
    const struct random_action *a = &run->p->action[i];
    if ((a->verb == RANDOM_SEND || a->verb == RANDOM_RECV) && a->plan < 0)
        probe_message(a, run->outcome[i]);
    if (a->verb == RANDOM_WAIT_EVENT && run->waited[i] == COMM_OK)
        SIM_PROBE("program: a queue waits for an event");
    if (a->verb == RANDOM_WAIT_REQUEST && run->waited[i] == COMM_OK)
        SIM_PROBE("program: a queue waits for a request");
    if (a->verb == RANDOM_SPLIT && a->child < 0)
        SIM_PROBE("program: a split without a color");
    if (a->verb == RANDOM_PLAN_START && run->outcome[i] == COMM_OK)
        SIM_PROBE("program: a plan was started");
    if (a->verb == RANDOM_PROBE && run->waited[i] == COMM_OK)
        SIM_PROBE("program: a message was seen before it was taken");
    if (run->outcome[i] == COMM_ERR_CLOSED && run->closed[a->comm][a->rank] == COMM_OK)
        SIM_PROBE("program: a request asked after the close");
    if (run->note[i].count)
        SIM_PROBE("program: a callback ran");
    if (random_is_collective(a->verb) && a->n == 0 && a->verb != RANDOM_BARRIER && a->verb < RANDOM_REFUSED)
        SIM_PROBE("program: a collective of nothing");
    if (random_is_collective(a->verb) && a->in < 0 && random_reduces(a->verb))
        SIM_PROBE("program: a reduction in place");
    if (a->verb == RANDOM_FILL)
        SIM_PROBE("program: the host wrote what was its own again");
}

static void probe_window(const struct random_run *run, int32_t i)
{
    const struct random_action *a = &run->p->action[i];
    if (a->verb == RANDOM_WINDOW_FREE && run->outcome[i] == COMM_OK)
        SIM_PROBE("program: a window came to its end");
    if (a->verb != RANDOM_ATOMIC || a->op == RANDOM_ACCUMULATE || run->outcome[i] != COMM_OK)
        return;
    uint64_t old = random_word_get(a->tag, run->atomic[i].old);
    if (old)
        SIM_PROBE("program: a fetch_op or compare_swap saw others");
    if (a->op == RANDOM_COMPARE_SWAP && old != run->atomic[i].expects)
        SIM_PROBE("program: a compare_swap found something else");
    if (a->op == RANDOM_COMPARE_SWAP && old && old == run->atomic[i].expects)
        SIM_PROBE("program: a compare_swap found what was seen before");
}

static void probe_buckets(const struct random_run *run, int32_t i)
{
    const struct random_action *a = &run->p->action[i];
    int32_t begun = a->verb == RANDOM_BUCKETS_WAIT ? random_find(run->p, a->id, a->rank, i) : -1;
    if (begun < 0 || run->outcome[i] != COMM_OK)
        return;
    if (i > begun + 2 * run->p->ranks)
        SIM_PROBE("program: a step of buckets beside other things");
    for (int32_t k = 0; k < random_gradients(&run->p->action[begun]); k++) {
        if (!random_is_ready(&run->p->action[begun], k))
            SIM_PROBE("program: a gradient that was not ready");
    }
}

void workload_probe(const struct random_run *run)
{
    static const char *const names[] = {
        "program: failed with MISMATCH",
        "program: failed with REFUSED",
        "program: failed with CLOSED",
        "program: failed with DEPENDENCY",
        "program: failed with ABANDONED",
        "program: failed with TIMEOUT",
        "program: failed with PEER",
        "program: a communicator of one rank",
        "program: more in the queue than the window holds",
        "program: a queue at its bound",
        "program: a child whose parent is closed",
        "program: a message to oneself",
        "program: a receive from anybody",
        "program: a receive that was too short",
        "program: a receive that was cancelled",
        "program: an empty message",
        "program: a queue waits for an event",
        "program: a queue waits for a request",
        "program: a split without a color",
        "program: a plan was started",
        "program: a message was seen before it was taken",
        "program: a request asked after the close",
        "program: a callback ran",
        "program: a collective of nothing",
        "program: a reduction in place",
        "program: the host wrote what was its own again",
        "program: a subset beside the queue",
        "program: an agreement",
        "program: an agreement of survivors",
        "program: a shrunk communicator lacks a rank",
        "program: survivors went on, and nothing may have failed",
        "program: a window came to its end",
        "program: a fetch_op or compare_swap saw others",
        "program: a compare_swap found something else",
        "program: a compare_swap found what was seen before",
        "program: a step of buckets beside other things",
        "program: a gradient that was not ready",
        "frames: something comes late, and again",
        "frames: what is late finds its communicator gone",
        "frames: what is late finds another communicator in the place of its own",
    };
    static bool expected;
    if (!expected)
        sim_probe_expect(names, sizeof names / sizeof *names);
    expected = true;
    probe_communicators(run);
    probe_recovery(run);
    for (int32_t i = 0; i < run->p->actions; i++) {
        probe_action(run, i);
        probe_beside(run, i);
        probe_window(run, i);
        probe_buckets(run, i);
    }
}
