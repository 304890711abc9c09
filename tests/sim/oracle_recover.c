/*
 * Agreements and shrunk communicators of a run: all ranks that got the same result got it with the same contents, each
 * rank's contribution is in it, no rank is left out without reason, and the remaining ranks have a communicator on
 * which everything succeeds. docs/guide/recovery.md has the rules.
 */
#include "sim/oracle_check.h"

static bool was_called(const struct random_run *run, int32_t i)
{
    return run->entered[i] && !run->stage->dead(run->p->action[i].rank);
}

/* The result of the call: that of its request, if it has one. */
static enum comm_result came_to(const struct random_run *run, int32_t i)
{
    const struct random_action *a = &run->p->action[i];
    bool plain = a->verb == RANDOM_AGREE || ((a->flags & RANDOM_NO_REQUEST) && run->outcome[i] == COMM_PENDING);
    return (enum comm_result)(plain ? run->waited[i] : run->outcome[i]);
}

/* ------------------------------------------------------------------------------------------------------------ agreements */
static void same_word(const struct random_run *run, int32_t i, struct oracle_verdict *v)
{
    const struct random_program *p = run->p;
    uint64_t word = run->agreed[i];
    for (int32_t k = 0; k < p->actions; k++) {
        const struct random_action *b = &p->action[k];
        if (b->id != p->action[i].id || b->verb != RANDOM_AGREE)
            continue;
        uint64_t own = ~random_gives(b->rank);
        if (was_called(run, k) && run->waited[k] == COMM_OK && run->agreed[k] != word)
            oracle_say(v, run, i, "uniformity: it came to %llx, on rank %d to %llx", (unsigned long long)word, b->rank,
                       (unsigned long long)run->agreed[k]);
        if (was_called(run, k) && run->waited[k] == COMM_OK && (word & own))
            oracle_say(v, run, i, "validity: what rank %d gave is not in %llx", b->rank, (unsigned long long)word);
        if (!run->entered[k] && !(word & own))
            oracle_say(v, run, i, "validity: %llx has what rank %d never gave", (unsigned long long)word, b->rank);
    }
}

/* ------------------------------------------------------------------------------------------------------------ remaining ranks */
static bool was_left_out(const struct random_run *run, const struct random_action *a, int32_t rank)
{
    const struct random_comm *parent = &run->comms.comm[a->comm];
    return parent->rank_of[rank] >= 0 && a->child >= 0 && (run->comms.lacks[a->child] >> rank & 1);
}

/* Some rank of that communicator missed a call, or stopped waiting for others: then they continued without each other,
 * which is correct. */
static bool went_apart(const struct random_run *run, int32_t comm)
{
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        if (a->comm != comm || !random_recovers(a->verb) || run->stage->dead(a->rank))
            continue;
        enum comm_result came = came_to(run, i);
        if (!run->entered[i] || (came != COMM_OK && came != COMM_ERR_PEER) || run->stage->suspect(a->rank))
            return true;
    }
    for (int32_t r = 0; r < run->p->ranks; r++) {
        if (run->misused >= 0 && run->p->action[run->misused].misuse == RANDOM_CLOSES && run->p->action[run->misused].comm == comm)
            return true;
    }
    return false;
}

static void who_is_left(const struct random_run *run, int32_t i, struct oracle_verdict *v)
{
    const struct random_action *a = &run->p->action[i];
    bool apart = went_apart(run, a->comm);
    enum comm_result came = came_to(run, i);
    if (!was_called(run, i) || apart)
        return;
    if (came == COMM_ERR_PEER)
        oracle_say(v, run, i, "I6: rank %d is told that it was given up, but it lives and was there", a->rank);
    for (int32_t r = 0; r < run->p->ranks && came == COMM_OK; r++) {
        if (was_left_out(run, a, r) && !run->stage->suspect(r))
            oracle_say(v, run, i, "rank %d is left out of communicator %d, but lives and was there", r, a->child);
    }
}

static void same_members(const struct random_run *run, int32_t comm, struct oracle_verdict *v)
{
    for (int32_t r = 0; r < run->p->ranks; r++) {
        if (run->met[comm][r] && run->view[r].lacks[comm] != run->comms.lacks[comm])
            oracle_say(v, run, -1, "uniformity: communicator %d lacks the ranks %x, on rank %d %x", comm, run->comms.lacks[comm], r,
                       run->view[r].lacks[comm]);
        if (run->met[comm][r] && (run->comms.lacks[comm] >> r & 1))
            oracle_say(v, run, -1, "rank %d has communicator %d, whose others are without it", r, comm);
    }
}

void recover_check(const struct random_run *run, struct oracle_verdict *v)
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++)
        same_members(run, c, v);
    for (int32_t i = 0; i < run->p->actions && !v->failed; i++) {
        const struct random_action *a = &run->p->action[i];
        if (a->verb == RANDOM_AGREE && was_called(run, i) && run->waited[i] == COMM_OK)
            same_word(run, i, v);
        else if (a->verb == RANDOM_SHRINK)
            who_is_left(run, i, v);
    }
}

/* ------------------------------------------------------------------------------------------------------------ continuing */
static bool all_live(const struct random_run *run, int32_t comm)
{
    const struct random_comm *c = &run->comms.comm[comm];
    for (int32_t i = 0; i < c->members; i++) {
        if (run->stage->suspect(c->world[i]))
            return false;
    }
    return true;
}

/* Whether none of its ranks was so late that others had given up. */
static bool all_have(const struct random_run *run, int32_t comm)
{
    const struct random_comm *c = &run->comms.comm[comm];
    for (int32_t i = 0; i < c->members; i++) {
        if (!run->met[comm][c->world[i]])
            return false;
    }
    return true;
}

/* Whether its queue may have waited for something that failed. */
static bool depended(const struct random_run *run, int32_t comm)
{
    for (int32_t r = 0; r < run->p->ranks; r++) {
        if (run->error[comm][r].size && run->error[comm][r].result == COMM_ERR_DEPENDENCY)
            return true;
    }
    return false;
}

static bool comes_of(const struct random_run *run, int32_t comm, int32_t ancestor)
{
    while (comm > 0 && comm != ancestor)
        comm = run->comms.comm[comm].parent;
    return comm == ancestor;
}

/* Whether its ranks, once they have it, do nothing that depends on earlier work: then none of them waits in vain for
 * something that failed. */
static bool goes_on_alone(const struct random_run *run, int32_t comm)
{
    int32_t made[RANDOM_RANKS] = {0};
    for (int32_t i = 0; i < run->p->actions; i++) {
        const struct random_action *a = &run->p->action[i];
        bool own = a->verb == RANDOM_RESET || a->verb == RANDOM_SET || a->verb == RANDOM_FILL || a->verb == RANDOM_SPEND;
        if (a->verb == RANDOM_SHRINK && a->child == comm)
            made[a->rank] = 1 + a->id;
        else if (made[a->rank] && !own && !comes_of(run, a->comm, comm) && !(a->verb == RANDOM_HOST_WAIT && a->target + 1 == made[a->rank]))
            return false;
    }
    return true;
}

void recover_sound(const struct random_run *run, bool sound[RANDOM_COMMS])
{
    for (int32_t c = 0; c < RANDOM_COMMS; c++) {
        int32_t parent = run->comms.comm[c].parent;
        bool met = false;
        for (int32_t r = 0; r < run->p->ranks; r++)
            met = met || run->met[c][r];
        bool begins = met && goes_on_alone(run, c) && (!run->stuck || all_have(run, c));
        sound[c] = run->faults && run->prompt && run->misused < 0 && (begins || (parent >= 0 && parent < c && sound[parent])) &&
                   all_live(run, c) && !depended(run, c);
    }
}
