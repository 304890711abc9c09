"""Workers of Ray and Dask open a world by an id that their cluster hands out."""
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time

import pytest


def sum_of_ranks(rank, size, id):
    import numpy as np
    import commstream as cs
    with cs.open(id=id, rank=rank, size=size, backend="tcp") as world:
        x = np.array([rank + 1.0])
        world.allreduce(x).wait()
        return float(x[0])


def make_id():
    import commstream as cs
    return cs.unique_id(backend="tcp")


def test_dask():
    distributed = pytest.importorskip("distributed", reason="distributed (Dask) is not installed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, distributed.Client(cluster) as client:
        workers = list(client.scheduler_info()["workers"])
        id = client.submit(make_id, workers=workers[0]).result()
        futures = [client.submit(sum_of_ranks, rank, 2, id, workers=worker) for rank, worker in enumerate(workers)]
        assert client.gather(futures) == [3, 3]


RAY = """
import os, ray, numpy as np, commstream as cs

@ray.remote
class Worker:
    def session(self):
        return os.getpid(), os.getsid(0)

    def make_id(self):
        return cs.unique_id(backend="tcp")

    def open(self, rank, size, id):
        self.world = cs.open(id=id, rank=rank, size=size, backend="tcp")

    def sum_of_ranks(self):
        x = np.full(1000, self.world.rank + 1.0)
        self.world.allreduce(x).wait(timeout=60)
        return float(x.min()), float(x.max())

    def lost(self):
        try:
            self.sum_of_ranks()
        except cs.PeerError as error:
            return error.rank

def each(calls):
    return ray.get(list(calls), timeout=120)

ray.init(address="local", num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
workers = [Worker.remote() for _ in range(2)]
processes, sessions = zip(*each(worker.session.remote() for worker in workers))
print("processes", len({os.getpid(), *processes}), "sessions", len({os.getpid(), *sessions}))
id, = each([workers[0].make_id.remote()])
each(worker.open.remote(rank, 2, id) for rank, worker in enumerate(workers))
print("sums", *each(worker.sum_of_ranks.remote() for worker in workers))
ray.kill(workers[1])
print("lost", *each([workers[0].lost.remote()]))
ray.shutdown()
print("closed")
"""


def end_session(leader, seconds):
    """Waits until the session has no process, kills what it has after that time, and returns how many."""
    deadline, killed = time.monotonic() + seconds, set()
    while True:
        left = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/stat") as file:
                    state, _, _, session = file.read().rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    left.append(process)
                    if time.monotonic() > deadline:
                        os.kill(int(process), signal.SIGKILL)
                        killed.add(process)
            except (FileNotFoundError, ProcessLookupError):
                pass
        if not left:
            return len(killed)
        time.sleep(0.1)


def run_session(code, env, timeout):
    """Runs code in a session of its own, which is ended whatever happens. Returns what it wrote, and how many processes it left."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, **env}, start_new_session=True)
    with child:
        try:
            said, seconds = child.communicate(timeout=timeout)[0], 60
        except subprocess.TimeoutExpired as late:
            said, seconds = f"{(late.output or b'').decode()}\nnot ended after {timeout} s", 0
            child.kill()
            child.wait()
        return said, end_session(child.pid, seconds)


def test_ray():
    """Two actors, one of which Ray kills. No process and no file of Ray's stays."""
    if not importlib.util.find_spec("ray"):
        pytest.skip("Ray is not installed")
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:  # Ray's sockets are there, and their paths must be short
        env = {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),  # which Ray else puts into ~/.ray
               "RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
        for _ in range(3):
            said, left = run_session(RAY, env, timeout=240)
            if "timed out during startup" not in said:  # Ray gives itself 30 s, in which a busy machine may not start it
                break
    assert said.endswith("processes 3 sessions 1\nsums (3.0, 3.0) (3.0, 3.0)\nlost 1\nclosed\n"), said
    assert left == 0
