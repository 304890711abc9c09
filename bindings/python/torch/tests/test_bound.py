"""Groups that are bound to a device, by device_id of init_process_group."""

import os
import unittest
import unittest.mock

import torch
import torch.distributed as dist

import device
from on_device import place
from team import Team
from test_devices import case_cpu_beside, case_ddp, case_lists, case_messages, case_results


def case_bound():
    """torch's barrier is then one of that device."""
    assert dist.group.WORLD.bound_device_id == place()
    dist.barrier()


@unittest.skipUnless(device.CUDA, "COMM_TEST_TORCH_CUDA is not set, and the backend binds groups to CUDA devices alone")
class Bound(unittest.TestCase):
    def test_bound(self):
        device.prepare()
        count = torch.cuda.device_count()
        with unittest.mock.patch.dict(os.environ, device.variables()):
            team = Team(2, devices=[torch.device("cuda", rank % count) for rank in range(2)])
        for case in (case_bound, case_results, case_lists, case_messages, case_cpu_beside, case_ddp):
            with self.subTest(case.__name__):
                team.call(case)
        team.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
