"""What is told of works besides their results: events of the profiler, times, hooks with times, outcomes as numbers."""

import datetime
import time
import unittest

import torch
import torch.distributed as dist

from team import backend_of, expect, needs, TeamTest

SUCCESS, TIMEOUT, COMM_ERROR = 0, 1, 2  # c10d::WorkResult


def events_of(run, **options):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        run()
    return [e for e in profiler.events() if e.name.startswith("commstream:")]


def case_events():
    """An event for each call, by the names of torch, which lasts until the operation has ended."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t, out = torch.ones(1000), torch.empty(1000 * size)

    def run():
        dist.all_reduce(t)
        dist.broadcast(t, 0)
        dist.all_gather_into_tensor(out, t)
        dist.reduce_scatter_tensor(t, out)
        dist.barrier()
        if rank < 2:
            works = [dist.isend(t, 1 - rank), dist.irecv(out[:1000], 1 - rank)]
            for work in works:
                work.wait()

    names = [e.name.partition(":")[2] for e in events_of(run)]
    expected = ["all_reduce", "broadcast", "_all_gather_base", "_reduce_scatter_base", "barrier"] + ["send", "recv"] * (rank < 2)
    assert sorted(names) == sorted(expected), names


def case_event_times():
    """Rank 1 comes half a second late: so long is the event of rank 0, and shapes are shown where they are asked for."""
    t = torch.ones(30, 2)
    dist.barrier()

    def run():
        if dist.get_rank():
            time.sleep(0.5)
        work = dist.all_reduce(t, async_op=True)
        while not work.is_completed():
            time.sleep(0.001)

    (event,) = events_of(run, record_shapes=True)
    assert event.is_async and event.input_shapes == [[30, 2]], (event.is_async, event.input_shapes)
    if dist.get_rank() == 0:
        assert event.time_range.elapsed_us() > 300000, event.time_range.elapsed_us()


def case_event_of_a_block():
    backend, parts = backend_of(), [torch.ones(10), torch.ones(20)]

    def run():
        backend._start_coalescing()
        for part in parts:
            backend.allreduce([part])
        backend._end_coalescing().wait()

    assert [e.name for e in events_of(run)] == ["commstream:coalesced"]
    assert (parts[1] == dist.get_world_size()).all()


def case_durations():
    g = dist.new_group(backend="commstream")
    work = dist.all_reduce(torch.ones(1), group=g, async_op=True)
    work.wait()
    expect(RuntimeError, "expected _enable_collectives_timing()", work._get_duration)
    g._enable_collectives_timing()
    dist.barrier(g)
    if dist.get_rank():
        time.sleep(0.3)
    work = dist.all_reduce(torch.ones(1000), group=g, async_op=True)
    if dist.get_rank() == 0:
        expect(RuntimeError, "which is not complete", work._get_duration)
    work.wait()
    time.sleep(0.5)  # it is the operation's time, not that of the question
    ms = work._get_duration()
    assert 0 <= ms < 60000, ms
    if dist.get_rank() == 0:
        assert ms > 200, ms


def case_hook():
    """It gets each work's kind, number and times; there can be one."""
    g = dist.new_group(backend="commstream")
    seen = []
    g._register_on_completion_hook(lambda info: seen.append((info.seq, str(info.op_type), info.active_duration)))
    expect(RuntimeError, "there is one already", lambda: g._register_on_completion_hook(print))
    dist.all_reduce(torch.ones(1000), group=g)
    dist.broadcast(torch.ones(1000), 0, group=g, async_op=True)  # nobody waits for it
    g._wait_for_pending_works()
    end = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    seen.sort()
    assert [(number, kind.rpartition(".")[2]) for number, kind, _ in seen] == [(1, "ALLREDUCE"), (2, "BROADCAST")], seen
    for _, _, duration in seen:
        assert datetime.timedelta(0) <= duration < datetime.timedelta(seconds=60), duration


def case_hooks_that_raise():
    """They are reported; works and their futures complete."""

    def hook(_):
        raise ValueError("a hook's own")

    g = dist.new_group(backend="commstream")
    backend = backend_of(g)
    g._register_on_completion_hook(hook)
    t = torch.ones(1000)
    work = backend.allreduce([t])
    future = work.get_future()
    work.wait()
    (got,) = future.wait()
    for _ in range(10):
        backend.allreduce([got])  # nobody waits, so another thread calls the hook
    g._wait_for_pending_works()
    backend.allreduce([torch.ones(1)]).wait()
    assert (t == dist.get_world_size() ** 11).all()


def case_outcomes():
    g = dist.new_group(backend="commstream")
    work = dist.all_reduce(torch.ones(1000), group=g, async_op=True)
    future = work.get_future_result()
    assert future.wait() == SUCCESS and work.get_future_result().value() == SUCCESS and work.get_future().done()
    work = dist.all_reduce(torch.ones(1000 + dist.get_rank()), group=g, async_op=True)
    assert work.get_future_result().wait() == COMM_ERROR
    expect(dist.DistBackendError, "COMM_ERR_MISMATCH", work.wait)


def case_outcome_of_a_timeout():
    g = dist.new_group(backend="commstream", timeout=datetime.timedelta(seconds=1))
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1000), group=g, async_op=True)
        assert work.get_future_result().wait() == TIMEOUT
    dist.barrier()


class Reports(TeamTest):
    ranks = 2

    def test_events(self):
        self.team.call(case_events)

    def test_event_times(self):
        self.team.call(case_event_times)

    def test_event_of_a_block(self):
        self.team.call(case_event_of_a_block)

    @needs("_enable_collectives_timing")
    def test_durations(self):
        self.team.call(case_durations)

    @needs("_register_on_completion_hook")
    def test_hook(self):
        self.team.call(case_hook)

    @needs("_register_on_completion_hook")
    def test_hooks_that_raise(self):
        self.team.call(case_hooks_that_raise)

    def test_outcomes(self):
        self.team.call(case_outcomes)

    def test_outcome_of_a_timeout(self):
        self.team.call(case_outcome_of_a_timeout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
