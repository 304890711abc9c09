"""How works begin and end: what ranks may call alike, what other threads do meanwhile, how long tensors are kept."""

import ctypes
import datetime
import os
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref

import torch
import torch.distributed as dist

from team import eventually, expect, needs, Team, TeamTest


# Takes the place of two functions of the library, and says what the library says when it is hard to bring about.
ANSWERS = """
#include <commstream/commstream.h>
#include <dlfcn.h>
#include <stddef.h>

int closing, held; /* waits end at once as if a close had begun; operations that failed have the flag */

static void *real(const char *name)
{
    return dlsym(dlopen("libcommstream.so.0.1", RTLD_NOW | RTLD_NOLOAD), name);
}

enum comm_result comm_wait(struct comm_request request, int64_t timeout_ns)
{
    enum comm_result (*wait)(struct comm_request, int64_t);
    *(void **)&wait = real("comm_wait");
    return closing ? COMM_ERR_CLOSED : wait(request, timeout_ns);
}

enum comm_result comm_describe_request(struct comm_request request, struct comm_request_info *info)
{
    enum comm_result (*describe)(struct comm_request, struct comm_request_info *);
    *(void **)&describe = real("comm_describe_request");
    enum comm_result result = describe(request, info);
    if (held && result == COMM_OK && info->result < 0)
        info->flags |= COMM_INFO_BUFFERS_HELD;
    return result;
}
"""


def compile_answers(folder):
    from commstream.torch import build

    library = os.path.join(folder, "libanswers.so")
    include, _ = build.find_library()
    command = ["cc", "-x", "c", "-shared", "-fPIC", "-o", library, f"-I{include}", "-", "-ldl"]
    subprocess.run(command, input=ANSWERS, text=True, check=True)
    return library


def answer(**values):
    """Sets variables of the library above in this process."""
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    for name, value in values.items():
        ctypes.c_int.in_dll(library, name).value = value


def case_wait_that_ends_early():
    """The operation goes on after its wait has failed, so its tensors stay until rank 1 has called, too."""
    g = dist.new_group(backend="commstream")
    if dist.get_rank() == 1:
        store().get("the wait has ended")
        dist.all_reduce(torch.ones(1000), group=g)
        return
    t = torch.ones(1000)
    alive, work = weakref.ref(t), dist.all_reduce(t, group=g, async_op=True)
    answer(closing=1)
    expect(dist.DistBackendError, "COMM_ERR_CLOSED", work.wait)
    answer(closing=0)
    assert not work.is_completed()
    del t, work
    assert alive() is not None
    store().set("the wait has ended", "")
    eventually(lambda: alive() is None)


def case_buffers_that_are_held():
    """A failed operation whose buffers the library still uses keeps its tensors until the group is shut down."""
    for held in (False, True):
        g = dist.new_group(backend="commstream")
        backend = g._get_backend(torch.device("cpu"))
        t = torch.ones(1000 + dist.get_rank())
        answer(held=held)
        alive, work = weakref.ref(t), dist.all_reduce(t, group=g, async_op=True)
        expect(dist.DistBackendError, "COMM_ERR_MISMATCH", work.wait)
        answer(held=0)
        del t, work
        if not held:
            eventually(lambda: alive() is None)
            continue
        assert alive() is not None
        backend.shutdown()
        eventually(lambda: alive() is None)


def store():
    return dist.distributed_c10d._get_default_store()


def case_alltoall_of_equal_parts():
    """Some ranks may leave the lengths out, others give them: it is one call."""
    rank = dist.get_rank()
    given, got = torch.arange(4.0) + 10 * rank, torch.empty(4)
    splits = [2, 2] if rank else None
    dist.all_to_all_single(got, given, splits, splits)
    assert torch.equal(got, torch.tensor([0.0, 1.0, 10.0, 11.0]) + 2 * rank), got


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


class Works(TeamTest):
    ranks = 2

    def test_alltoall_of_equal_parts(self):
        self.team.call(case_alltoall_of_equal_parts)

    def test_synchronize(self):
        self.team.call(case_synchronize)


class Answers(unittest.TestCase):
    """With answers of the library that are rare."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        with unittest.mock.patch.dict(os.environ, LD_PRELOAD=compile_answers(cls.folder.name), TORCH_FR_BUFFER_SIZE="0"):
            cls.team = Team(2)

    @classmethod
    def tearDownClass(cls):
        cls.team.close()
        cls.folder.cleanup()

    def test_a_wait_that_ends_early(self):
        self.team.call(case_wait_that_ends_early)

    @needs("shutdown")
    def test_buffers_that_are_held(self):
        self.team.call(case_buffers_that_are_held)


if __name__ == "__main__":
    unittest.main(verbosity=2)
