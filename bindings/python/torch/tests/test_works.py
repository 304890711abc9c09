"""How works end: what other threads do meanwhile, and how long tensors are kept."""

import datetime
import threading
import time
import unittest

import torch
import torch.distributed as dist

from team import Team


def store():
    return dist.distributed_c10d._get_default_store()


def case_synchronize():
    """Other threads of Python run meanwhile: rank 1 calls when such a thread has told it to."""
    g = dist.new_group(backend="commstream", timeout=datetime.timedelta(seconds=10))
    t = torch.ones(1)
    if dist.get_rank() == 1:
        store().get("rank 0 waits")
        dist.all_reduce(t, group=g)
        return

    def tell():
        time.sleep(0.5)
        store().set("rank 0 waits", "")

    other = threading.Thread(target=tell)
    other.start()
    dist.all_reduce(t, group=g, async_op=True).synchronize()
    other.join()
    assert t == 2


class Works(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.team = Team(2)

    @classmethod
    def tearDownClass(cls):
        cls.team.close()

    def test_synchronize(self):
        self.team.call(case_synchronize)


if __name__ == "__main__":
    unittest.main(verbosity=2)
