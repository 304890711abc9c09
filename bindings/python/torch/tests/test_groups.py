"""Groups made from groups, hooks, estimates, and what goes wrong."""

import datetime
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import torch
import torch.distributed as dist

import elastic
from team import backend_of, eventually, monitored_barrier, needs, refused, START_SECONDS, summed, Team, TeamTest

CPU = torch.device("cpu")
HERE = os.path.dirname(os.path.abspath(__file__))


def case_split():
    """Older torch puts the ranks in order before it asks the backend."""
    rank = dist.get_rank()
    half = [0, 1] if rank < 2 else [3, 2]
    child = dist.group.WORLD.split_group(half, group_name=f"half of {half[0]}")
    expected = half if torch.__version__ >= torch.torch_version.TorchVersion("2.15") else sorted(half)
    assert child.size() == 2 and child.rank() == expected.index(rank), (child.rank(), expected)
    ranks = [torch.zeros(1) for _ in range(2)]
    backend_of(child).allgather([ranks], [torch.tensor([float(rank)])]).wait()
    assert [int(t) for t in ranks] == expected, (ranks, expected)


def case_merge(folder):
    """Two groups of two ranks become one of four."""
    rank = dist.get_rank()
    store = dist.FileStore(os.path.join(folder, "merge"), 4)
    merged = backend_of().merge(store, backend_of().options, rank, 4)
    assert merged.size() == 4 and summed(merged, 1) == 4


def case_shrink():
    rank = dist.get_rank()
    g = dist.new_group(backend="commstream")
    if rank == 2:
        return
    child = backend_of(g).shrink([2])
    assert child.size() == 3 and child.rank() == [0, 1, 3].index(rank)
    assert summed(child, rank) == 4
    # That group is still whole: a barrier of all is below.


def case_shrink_after_shutdown():
    rank = dist.get_rank()
    g = dist.new_group(backend="commstream")
    if rank == 1:
        backend_of(g).shutdown()
        return
    child = backend_of(g).shrink([1], 1)
    assert child.size() == 3 and summed(child, rank) == 5


def case_reconfigure():
    rank = dist.get_rank()
    g = dist.new_group(backend="commstream")
    backend = backend_of(g)
    handles = [None] * 4
    dist.all_gather_object(handles, backend.get_reconfigure_handle())
    assert len(set(handles)) == 4
    if rank > 0:
        options = torch._C._distributed_c10d.ReconfigureOptions()
        options.uuid, options.handles = 7, handles[1:]
        options.timeout = datetime.timedelta(seconds=30)
        backend.reconfigure(options).wait()
        assert backend.size() == 3 and backend.rank() == rank - 1
        assert summed(backend, rank) == 6


def case_estimate():
    backend = backend_of()
    assert backend._supports_time_estimate
    t = torch.ones(1000)
    backend._start_time_estimate()
    backend.allreduce([t])
    small = backend._end_time_estimate()
    backend._start_time_estimate()
    backend.allreduce([torch.ones(1000000)])
    large = backend._end_time_estimate()
    assert 0 < small < large, (small, large)
    backend._start_time_estimate()
    backend._start_coalescing()
    for part in (torch.ones(500000), torch.ones(500000)):
        backend.allreduce([part])
    backend._end_coalescing().wait()
    assert backend._end_time_estimate() > small
    assert torch.equal(t, torch.ones(1000)), "an estimate moved data"
    apart = [torch.ones(2000)[::2] for _ in range(dist.get_world_size())]  # filled by copies
    backend._start_time_estimate()
    backend.allgather([apart], [torch.full((1000,), 2.0)]).wait()
    premul = dist.AllreduceOptions()
    premul.reduceOp = dist._make_nccl_premul_sum(3.0)
    backend.allreduce([t], premul).wait()
    assert all(torch.equal(part, torch.ones(1000)) for part in (t, *apart)), "an estimate wrote outputs"
    assert "cannot be estimated" in refused(lambda: backend.allreduce([t.to_sparse()]))
    assert backend._end_time_estimate() > 0
    assert summed(backend, 1) == dist.get_world_size()


def case_timeout():
    """A wait that is too short says so, and the operation goes on."""
    rank = dist.get_rank()
    t = torch.ones(1)
    if rank == 0:
        work = dist.all_reduce(t, async_op=True)
        try:
            work.wait(datetime.timedelta(milliseconds=50))
            raise AssertionError("a wait for nobody ended")
        except dist.DistBackendError as e:
            assert "allreduce" in str(e) and "50 ms" in str(e), e
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        dist.recv(torch.ones(1), 0) if rank == 1 else None
        dist.all_reduce(t)
    assert t == dist.get_world_size()


def case_deadline():
    """The library's deadline ends an operation that a rank does not make."""
    g = dist.new_group(backend="commstream", timeout=datetime.timedelta(seconds=2))
    if dist.get_rank() == 1:
        return
    try:
        dist.all_reduce(torch.ones(1), group=g)
        raise AssertionError("a sum without rank 1 came")
    except dist.DistBackendError as e:
        assert "COMM_ERR_TIMEOUT" in str(e) and "deadline of 2000 ms" in str(e), e


def case_missing_rank():
    from commstream.torch import _extension

    try:
        _extension.create(dist.HashStore(), 0, 3, datetime.timedelta(milliseconds=300))
        raise AssertionError("a world without ranks 1 and 2 opened")
    except dist.DistBackendError as e:
        assert "missing: 1, 2" in str(e), e


def case_monitored_barrier():
    rank = dist.get_rank()
    monitored_barrier(timeout=datetime.timedelta(seconds=20))
    if rank == 3:
        return
    try:
        monitored_barrier(timeout=datetime.timedelta(milliseconds=300), wait_all_ranks=True)
        raise AssertionError("a barrier without rank 3 ended")
    except RuntimeError as e:
        assert "3" in str(e) if rank == 0 else "rank 0" in str(e), e


def case_monitored_barrier_given_up():
    """What a rank sent in a barrier that it gave up does not count in a later one."""
    rank, short = dist.get_rank(), datetime.timedelta(milliseconds=300)
    for alone in (1, 0, 1):
        if rank == alone:
            said = refused(lambda: monitored_barrier(timeout=short))
            assert said and "timed out in monitoredBarrier" in said, said
        dist.barrier()
    monitored_barrier(timeout=datetime.timedelta(seconds=20))


def case_timeouts_of_groups():
    backend = backend_of()
    backend.set_timeout(datetime.timedelta(seconds=30))
    try:
        backend.set_timeout(datetime.timedelta(hours=5))
        raise AssertionError("a timeout beyond the library's was taken")
    except ValueError as e:
        assert "expected 1 to" in str(e), e
    backend.set_timeout(datetime.timedelta(seconds=60))


def case_pending():
    """Waiting for all work of a group: also work that was dropped, and whose results have to be copied to where they belong."""
    g = dist.new_group(backend="commstream")
    apart = torch.ones(1000, 2)[:, 0]
    for _ in range(20):
        apart.fill_(1)
        backend_of(g).allreduce([apart])
        g._wait_for_pending_works()
        assert (apart == dist.get_world_size()).all(), apart


def case_memory_stats():
    stats = backend_of(dist.new_group(backend="commstream")).memory_stats
    stats = stats() if callable(stats) else stats
    assert stats["memory_bytes"] > 0, stats


def case_recorder():
    """torch's flight recorder learns that each operation has completed: of every group, of messages, and of blocks."""
    import pickle

    from torch._C import _distributed_c10d as c10d

    groups = [dist.new_group(backend="commstream") for _ in range(2)]
    rank, names = dist.get_rank(), {str(g.group_name) for g in groups}
    mine, theirs = torch.full((1,), float(rank)), torch.zeros(1)
    for g in groups:
        for asynchronous in (False, True, True):
            work = dist.all_reduce(torch.ones(1), group=g, async_op=asynchronous)
        work.wait()
        if rank:
            dist.send(mine, 0, group=g)
        else:
            dist.recv(theirs, 1, group=g)
        block = [dist.P2POp(dist.isend, mine, 1 - rank, group=g), dist.P2POp(dist.irecv, theirs, 1 - rank, group=g)]
        for work in dist.batch_isend_irecv(block):
            work.wait()
        dist.barrier(group=g)
    end = time.monotonic() + 20
    while True:
        entries = pickle.loads(c10d._dump_fr_trace(backend="commstream"))["entries"]
        states = [(e["profiling_name"], e["state"]) for e in entries if str(e["process_group"][0]) in names]
        if all(state == "completed" for _, state in states) or time.monotonic() > end:
            break
        time.sleep(0.01)
    assert len(states) >= 10 and all(state == "completed" for _, state in states), states


def case_mismatch():
    """Ranks that make different calls learn both, and the group tells the error."""
    g = dist.new_group(backend="commstream")
    backend = backend_of(g)
    called = []
    if hasattr(backend, "register_abort_hook"):
        backend.register_abort_hook(1, lambda: called.append(1))
    try:
        if dist.get_rank() == 0:
            backend.allreduce([torch.ones(3)]).wait()
        else:
            backend.allreduce([torch.ones(5)]).wait()
        raise AssertionError("different lengths were summed")
    except dist.DistBackendError as e:
        assert "COMM_ERR_MISMATCH" in str(e) and "allreduce" in str(e), e
    if hasattr(backend, "register_abort_hook"):
        eventually(lambda: called)  # another thread calls the hook, and may do so after the wait has ended
    if hasattr(backend, "get_error"):
        assert "COMM_ERROR" in str(backend.get_error()), backend.get_error()
    future = None
    try:
        future = backend.allreduce([torch.ones(3)]).get_future()
        future.wait()
        raise AssertionError("a failed group went on")
    except RuntimeError as e:
        assert "COMM_ERR_MISMATCH" in str(e), e


def case_abort():
    g = dist.new_group(backend="commstream")
    backend = backend_of(g)
    work = backend.allreduce([torch.ones(3)]) if dist.get_rank() else None
    if not work:
        time.sleep(0.2)
        backend.abort()
    try:
        (work or backend.allreduce([torch.ones(3)])).wait()
        raise AssertionError("an aborted group went on")
    except dist.DistBackendError as e:
        assert "COMM_ERR_ABORTED" in str(e), e


def case_many_groups():
    """More worlds than an engine takes."""
    groups = [dist.new_group(backend="commstream") for _ in range(70)]
    works = [dist.all_reduce(torch.ones(1000), group=g, async_op=True) for g in groups]
    for work in works:
        work.get_future().wait()
    for g in groups:
        dist.destroy_process_group(g)


class FourRanks(TeamTest):
    ranks = 4

    @needs("split_group")
    def test_split(self):
        self.team.call(case_split)

    @needs("merge")
    def test_merge(self):
        with tempfile.TemporaryDirectory() as folder:
            self.team.call(case_merge, folder)

    @needs("shrink")
    def test_shrink(self):
        self.team.call(case_shrink)
        self.team.call(dist.barrier)

    @needs("shrink")
    def test_shrink_after_shutdown(self):
        self.team.call(case_shrink_after_shutdown)

    @needs("get_reconfigure_handle")
    def test_reconfigure(self):
        self.team.call(case_reconfigure)

    def test_monitored_barrier(self):
        self.team.call(case_monitored_barrier)
        self.team.call(dist.barrier)

    def test_timeout(self):
        self.team.call(case_timeout)


class TwoRanks(TeamTest):
    ranks = 2

    @needs("_supports_time_estimate")
    def test_estimate(self):
        self.team.call(case_estimate)

    @needs("set_timeout")
    def test_timeouts(self):
        self.team.call(case_timeouts_of_groups)

    @needs("_wait_for_pending_works")
    def test_pending(self):
        self.team.call(case_pending)

    @needs("memory_stats")
    def test_memory_stats(self):
        self.team.call(case_memory_stats)

    def test_monitored_barrier_given_up(self):
        self.team.call(case_monitored_barrier_given_up)

    def test_deadline(self):
        self.team.call(case_deadline)

    @unittest.skipIf("backend" not in (getattr(torch._C._distributed_c10d, "_dump_fr_trace", None) or min).__doc__, "torch records no other backend")
    def test_recorder(self):
        self.team.call(case_recorder)

    def test_missing_rank(self):
        self.team.call(case_missing_rank)

    def test_mismatch(self):
        self.team.call(case_mismatch)

    @needs("abort")
    def test_abort(self):
        self.team.call(case_abort)

    def test_many_groups(self):
        self.team.call(case_many_groups)


KILLED = """
    import datetime, os, signal, sys, torch, torch.distributed as dist
    import commstream.torch
    dist.init_process_group("cpu:commstream", timeout=datetime.timedelta(seconds=60))
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(100000))
        sys.exit("the sum of a dead rank came")
    except dist.DistBackendError as e:
        print(e, flush=True)
        os._exit(0)
"""

class Launched(unittest.TestCase):
    def script(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "script.py")
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return path

    def test_killed_rank(self):
        path, folder = self.script(KILLED), tempfile.mkdtemp()
        ranks = []
        for rank in range(2):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
            ranks.append(subprocess.Popen([sys.executable, path], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        os.rmdir(folder)
        out, _ = ranks[0].communicate(timeout=120)
        ranks[1].wait(timeout=120)
        self.assertEqual(ranks[0].returncode, 0, out)
        self.assertIn("COMM_ERR_PEER", out)
        self.assertIn("rank 1", out)

    def by_torchrun(self, *words):
        """What torchrun says."""
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1", *words],
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        return said

    def by_a_team(self, folder):
        team = Team(2)
        team.call(elastic.train, folder, -1)
        team.close()

    def weights(self, folder):
        weights = []
        for rank in range(2):
            with open(os.path.join(folder, f"weights-{rank}"), "rb") as file:
                weights.append(file.read())
        self.assertTrue(weights[0] == weights[1], "ranks have different weights")
        return weights[0]

    def test_torchrun(self):
        """Rank 0 may be killed before it has written the checkpoint of the last step that was complete."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            said = self.by_torchrun(os.path.join(HERE, "elastic.py"), folder, "3")
            for rank in range(2):
                self.assertRegex(said, f"attempt 1 rank {rank} begins at step [23]")
            self.by_a_team(other)
            self.assertTrue(self.weights(folder) == self.weights(other), "training that went on from a checkpoint gave other weights")

    def test_example(self):
        """examples/python/train.py, as docs/how-to/train-with-torch.md has it."""
        example = os.path.join(HERE, "../../../../examples/python/train.py")
        with tempfile.TemporaryDirectory() as folder:
            said = self.by_torchrun(example, "--checkpoint", os.path.join(folder, "train.pt"), "--epochs", "10", "--lose", "2")
        self.assertRegex(said, "begins at epoch 0\n")
        self.assertRegex(said, "begins at epoch [12]\n")
        self.assertRegex(said, "train: ok ranks=2 epochs=10 ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
