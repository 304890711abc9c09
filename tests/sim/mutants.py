#!/usr/bin/env python3
"""Planted faults: what the simulator must find, or it finds nothing; and what tests of processes must. Each row changes one or two places of
the core's sources; the changed copies are compiled and linked before the real ones, so the sources themselves know nothing of this.

  mutants.py list                 the names of those for the simulator
  mutants.py list processes       of those that tests of processes must find (tests/proc/CMakeLists.txt says which)
  mutants.py files NAME           the sources that it changes
  mutants.py write NAME ROOT OUT  the changed copies, flat, into OUT; fails when a text to change is not there exactly once
"""
import pathlib
import sys

ENGINE, WIRE, PROGRAM, TIMELINE = "engine", "wire", "program", "timeline"

# name: [(file under src/core, or of the network's pure parts under src, text, changed text)]
MUTANTS = {
    # A queue wait and a barrier hold back nothing of what comes after them.
    "wait_no_fence": [("timeline/queue.c", "ticket - line->done > line->ahead || line->holding)", "ticket - line->done > line->ahead)")],
    # Work waits for every message before it, as if they were on one line.
    "message_on_line": [
        ("p2p/op.c", """    if (!timeline_meet(&b->p2p.write, &e->read) && !timeline_meet(&b->p2p.write, &e->write) && !timeline_meet(&b->p2p.read, &e->write))
        return false;
    for""", "    (void)e;\n    for"),
        ("p2p/op.c", """        if (t->state != P2P_MARKER && t->work <= ticket && timeline_conflict(e, &t->read, &t->write))
            return true;""", "        if (t->state != P2P_MARKER && t->work <= ticket)\n            return true;")],
    # The place of a stream goes to a younger operation while the oldest still needs it.
    "slot_not_kept": [("channel/shmchan.c", "    if (!all_retired(c, wire_key_seq(e->key) - (c->shape.area_mask + 1)))",
                       "    if (!all_retired(c, wire_key_seq(e->key) - (c->shape.area_mask + 2)))")],
    # A window's fence does not wait for what its rank did to the window before.
    "window_fence_early": [("rma/queue.c", "t->one.window == w && t->work <= ticket)", "t->one.window == w && t->work > ticket)")],
    # A compare_swap puts its value whatever is there.
    "swap_blind": [("rma/one_sided.c", "data_compare_swap(there, &one->expected_value,", "data_compare_swap(there, there,")],
    # A gradient that was not ready counts as what lies there.
    "gradient_not_zeroed": [("bucket/bucket.c", "        memset(copy.to, 0, copy.bytes);", "        (void)copy;")],
    # A refused call takes no number.
    "refusal_no_number": [("comm/issue.c", "    number_call(b, e, true);\n", "    e->seq = (uint32_t)b->sequence + 1;\n    e->chain = b->chain;\n")],
    # A queue wait behind other work lets messages pass before its point is reached.
    "queued_wait_unread": [
        ("comm/queue_wait.c", "        if (r != COMM_OK)\n", "        if (r != COMM_OK && r != COMM_PENDING)\n")],
    # A queue wait follows its event wherever that is recorded next.
    "event_moves": [
        ("event/event.c", "    if (r == COMM_OK)\n        r = queue_wait_call(c, &point);\n    event_let_go(&held);",
         "    struct timeline_point live = {.kind = POINT_WORD, .word = (void *)&event->point};\n    if (r == COMM_OK)\n"
         "        r = queue_wait_call(c, &live);\n    event_let_go(&held);"),
        ("timeline/point.c", "return atomic_load_explicit(point->word, memory_order_acquire) >= point->value ? COMM_OK : COMM_PENDING;",
         "return timeline_point_test((const struct timeline_point *)(const void *)point->word);")],
    # What is shown where it lies is taken for read as soon as it is shown.
    "shown_is_read": [("channel/shmchan_view.c", "        if (s->acked < s->npeers) {", "        if (s->acked > s->npeers) {")],
    # What waits for a failed point goes on.
    "wait_passes_failure": [("comm/queue_wait.c", "    if (r == COMM_OK)\n        timeline_end(&b->line, b->queue_wait.ticket, COMM_OK);",
                             "    if (r != COMM_PENDING)\n        timeline_end(&b->line, b->queue_wait.ticket, COMM_OK);")],
    # Who goes to sleep does not look once more after saying so.
    "sleeper_looks_once": [("progress/pass.c", "    if (engine_pass(e, m->callbacks) == PASS_IDLE && !m->reached(m->arg) && !nap",
                            "    if (!m->reached(m->arg) && !nap")],
    # Who slept for all leaves, and keeps the right to sleep on the bell.
    "poll_owner_kept": [("progress/pass.c", "    atomic_store_explicit(&e->sleepers.poll_owner, 0, memory_order_seq_cst);\n"
                    "    if (atomic_load_explicit(&e->sleepers.parked, memory_order_seq_cst)) {",
                    "    if (atomic_load_explicit(&e->sleepers.parked, memory_order_seq_cst)) {")],
    # A small exchange that found no room for its bytes ends without having shown them.
    "exchange_unshown": [("fastpath/finish.c", "        if (here != WIRE_DONE || e->unshown | e->unread)", "        if (here != WIRE_DONE)")],
    # A small exchange goes beside others whatever they touch.
    "exchange_beside_all": [("fastpath/fastpath.c", "b->fastpath->last + 1 == b->line.next && timeline_beside(&b->line, read, write)",
                             "b->fastpath->last + 1 == b->line.next && (timeline_beside(&b->line, read, write), true)")],
    # A view is never given back.
    "no_release": [("program/run.c", "        if (!(run->view_own >> j & 1))\n            run->channel->class->release(",
                    "        if (!(run->view_own >> j & 1) && run->size > 1000)\n            run->channel->class->release(")],
    # The cost model uses a place again before the word of its reader has come: what is predicted is not what happens.
    "model_hears_at_once": [("model/cost_place.c", "now + latency(sim, reader, place->owner)", "now + 0 * (int64_t)reader")],
    # Two operands change places: another tree.
    "swapped_operands": [("program/run.c", "        from[j] = view_at(run, &s->src, slot + j);",
                          "            from[j] = view_at(run, &s->src, slot + (ways > 2 && (j == 1 || j == 2) ? 3 - j : j));")],
    # Bytes are taken whatever call they belong to.
    "unchecked_fingerprint": [("channel/shmchan_view.c", "bytes != w->bytes || line->fingerprint != w->fingerprint", "bytes != w->bytes"),
                              ("channel/shmchan_view.c", "bytes != l->bytes || line->fingerprint != l->fingerprint", "bytes != l->bytes"),
                              ("channel/shmchan_view.c", "there != bytes || line->fingerprint != fingerprint", "there != bytes || fingerprint != fingerprint")],
    # Numbers are compared with their sign, as if they never passed 2^31.
    "counter_wraps": [("channel/shmchan.c", "    return shmchan_reached(c->oldest, seq - (seq == 0));",
                       "    return (int32_t)c->oldest >= (int32_t)(seq - (seq == 0));"),
                      ("channel/shmchan.c", "        if (!shmchan_reached(there, min))", "        if ((int32_t)there < (int32_t)min)")],
    # A frame is believed to be of the communicator that has its place now, whichever it was sent for.
    "stale_frame_believed": [("net/frame/stale.c", "    return said == name;", "    return stale_place(said) == stale_place(name);")],
    # What a peer said of room is believed in the order in which it comes.
    "old_word_believed": [("net/frame/stale.c", "    return reached(told, known) ? told : known;", "    return reached(told, known) ? told : told;"),
                          ("net/frame/stale.c", "    if (reached(retired, seq) ||", "    if (reached(retired, seq + UINT32_MAX / 4) ||"),
                          ("net/frame/stale.c", "wire_key_round(known) > wire_key_round(told)))", "wire_key_round(known) > wire_key_round(told) + UINT32_MAX / 4))")],
    # Bytes are believed whatever their number, as if they could be of no earlier connection.
    "earlier_connection_believed": [("net/frame/frame.c", "    if (f.number != number)", "    if (f.number > number)")],
    # The memory of a communicator that was left serves the next while others may still use it.
    "grave_robbed": [("channel/channel.c", "        if (all_left(c)) {", "        if (all_left(c) || c->size > 1) {")],
    # Lines of an earlier channel stand in memory that is used again.
    "shmchan_not_cleared": [("channel/channel.c", "    if (spare)\n        clear_region(c, index);\n", "    if (spare && c->size > 1000)\n        clear_region(c, index);\n")],
    # Who asks something of a window's owner tells it only if it waits.
    "owner_not_asked": [("channel/pair_send.c", "    if (BASE_UNLIKELY(c->urges))\n", "    if (BASE_UNLIKELY(c->urges && c->size > 1000))\n")],
    # The monitor does not look once more at what came before it rests.
    "rest_unseen": [("failure/watch.c", "    if (!came)\n        env->bell_wait", "    if (!came || alarm > 0)\n        env->bell_wait")],
    # A place is acknowledged though the answer in it was not taken: its owner writes the next question over the answer.
    "answer_given_back": [("channel/shmchan.c", "    asked->ack = NULL;\n", "")],
    # Two ranks that swap: the answer is written before what it replaces has been taken.
    "swap_writes_first": [("program/run.c", "    data_swap(&give);\n    if (away)", "    if (pad)\n        data_copy(pad, given.at, given.bytes, false);\n    data_swap(&give);\n    if (away)")],
    # Blocks of different lengths are swapped as if both had the length of the given one.
    "swap_of_one_length": [("program/run.c", "    if (taken.bytes == given.bytes) {", "    if (taken.bytes) {")],
    # Only one of two ranks swaps the blocks of an alltoall_v.
    "swap_of_one_rank": [("algo/swap.c", "    b->program.swaps = b->program.brief;", "    b->program.swaps = spec->rank ? b->program.brief : 0;")],
    # A rank that swaps does not keep its own block.
    "swap_keeps_nothing": [("data/copy.c", "    if (swap->kept)\n", "    if (swap->kept && bytes > 1 << 30)\n")],
    # A place whose answer was taken is never free again.
    "answered_place_kept": [("channel/shmchan.c", "    return c->size == 2 && c->answered[landing_slot(&c->shape, key)] == key;", "    return c->size > 1000 && key;")],
    # The pages that a peer may still write after a failure stay where they are.
    "landing_not_replaced": [("channel/channel.c", "        if (c->wait[i].reported)\n", "        if (c->wait[i].reported && c->size > 1000)\n")],
    # Peers are told of pages that they do not see any more.
    "landing_told_again": [("channel/memory.c", "        m->apart = true;", "        m->apart = false;")],
    # Who takes over from a coordinator that died proposes anew what may have been decided.
    "successor_proposes_anew": [("failure/recover.c", "    if (before->accepted)\n", "    if (before->accepted > 1000)\n")],
    # A coordinator decides what it has proposed before all have accepted it.
    "decides_alone": [("failure/recover.c", "    if (!all_accepted(b))\n", "    if (b->team.size > 1000 && !all_accepted(b))\n")],
    # A decision is heard from who coordinates alone: what he told before he died is not passed on.
    "decision_not_passed_on": [("failure/recover.c", "        if (!here && !before)\n",
                                "        if ((!here && !before) || r != lowest_alive(b, recovery_set(v, b->team.rank, SET_DEAD)))\n")],
    # A shrunk communicator is handed over whether all others have it or not.
    "child_not_agreed_on": [("failure/shrink.c", "    if (lacking & (LACKS_MEMORY | COULD_NOT)) {", "    if (!v->shrinking.child) {"),
                            ("failure/shrink.c", "    } else if (more) {", "    } else if (!v->shrinking.child && more) {")],
}

# Results that a peer stores in this rank's memory: what the simulator finds too, and what it cannot see.
PROCESSES = {
    **{name: MUTANTS[name] for name in ("landing_not_replaced", "landing_told_again")},
    # Another call's place is taken for this one's.
    "landing_of_any_call": [("channel/shmchan.c", " || l->fingerprint != e->fingerprint)\n        return NULL;", ")\n        return NULL;")],
    # The line says that they are there, and they are on their way.
    "stores_not_drained": [("data/reduce_body.h", "        vector_fence();", "        (void)stream;")],
}


def row(name):
    return {**MUTANTS, **PROCESSES}[name]


def write(name, root, out):
    texts = {}
    for file, old, new in row(name):
        path = pathlib.Path(root) / "src" / (file if file.startswith("net/") else f"core/{file}")
        text = texts.get(file, path.read_text())
        if text.count(old) != 1:
            sys.exit(f"mutants.py: {name}: the text to change stands {text.count(old)} times in {file}:\n{old}")
        texts[file] = text.replace(old, new)
    for file, text in texts.items():
        (pathlib.Path(out) / f"{name}_{file.replace('/', '_')}").write_text(text)


def main():
    if sys.argv[1:] == ["list"]:
        print(";".join(MUTANTS), end="")
    elif sys.argv[1:] == ["list", "processes"]:
        print(";".join(PROCESSES), end="")
    elif len(sys.argv) == 3 and sys.argv[1] == "files":
        print(";".join(dict.fromkeys(file for file, _, _ in row(sys.argv[2]))), end="")
    elif len(sys.argv) == 5 and sys.argv[1] == "write":
        write(*sys.argv[2:])
    else:
        sys.exit(__doc__)


main()
