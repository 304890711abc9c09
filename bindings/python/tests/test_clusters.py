"""Workers of Ray and Dask open a world by an id that their cluster hands out."""
import os

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


def test_ray():
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    here = {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": here})
    try:
        @ray.remote
        class Worker:
            def make_id(self):
                return make_id()

            def run(self, rank, size, id):
                return sum_of_ranks(rank, size, id)
        workers = [Worker.remote() for _ in range(2)]
        id = ray.get(workers[0].make_id.remote())
        assert ray.get([worker.run.remote(rank, 2, id) for rank, worker in enumerate(workers)]) == [3, 3]
    finally:
        ray.shutdown()
