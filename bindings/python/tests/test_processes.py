"""Ranks that are processes, started in every way that a program may be."""
import importlib.metadata
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import commstream as cs
from commstream import run
from conftest import run_child, run_ranks


def test_four_ranks_by_commstream_run():
    said = run_ranks(4, """
        import numpy as np, commstream as cs
        with cs.open() as world:
            n, r = world.size, world.rank
            x = np.full(1000, r + 1.0)
            assert world.allreduce(x, np.zeros(1000)).result()[0] == n * (n + 1) / 2
            out = np.zeros(n, "i8")
            world.allgather(np.array([r * r]), out).wait()
            assert out.tolist() == [i * i for i in range(n)]
            world.broadcast(x, root=3).wait()
            assert (x == 4).all()
            ring = np.zeros(1000)
            requests = [world.send(x, (r + 1) % n), world.recv(ring, (r - 1) % n)]
            cs.wait_all(requests)
            assert requests[1].result() == ((r - 1) % n, 0, 8000) and (ring == 4).all()
            with world.split(r % 2) as half, world.window(8, signals=1) as window:
                assert half.size == 2
                window.accumulate(np.ones(1), 0).wait()
                window.fence().wait()
                if r == 0:
                    part = np.frombuffer(window.part(), "f8")
                    assert part[0] == n
                    del part
            assert world.describe().launcher == "comm-run"
            print("fine", r)
        """)
    assert sorted(line.split("fine ")[1] for line in said.splitlines() if "fine" in line) == list("0123")


def test_script_by_its_name(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, commstream as cs\nwith cs.open() as world:\n    print(world.rank, world.size, sys.argv[1:])\n")
    command = [sys.executable, "-m", "commstream.run", "-n", "2", "--backend", "tcp", str(script), "--word", "x"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2 ['--word', 'x']", "[1] 1 2 ['--word', 'x']"]


def test_every_tool_of_the_package_is_a_command():
    points = importlib.metadata.distribution("commstream").entry_points
    assert {point.name for point in points if point.group == "console_scripts"} == {tool.name for tool in run.BIN.iterdir()}
    for tool in run.BIN.iterdir():
        command = [Path(sysconfig.get_path("scripts"), tool.name), "--version"]
        assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.startswith(f"{tool.name} (commstream) ")


def test_options_with_a_value_are_those_of_comm_run():
    said = subprocess.run([run.BIN / "comm-run", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert set(re.findall(r"^  (-[\w-]+) \S", said, re.MULTILINE)) == run.WITH_VALUE
    words = ["--hosts", "n1,n2", "--quiet-tags", "script.py", "-n"]
    assert run.command(words) == [*words[:3], sys.executable, *words[3:]]


def test_a_killed_rank_is_an_error_of_the_other_that_names_it():
    said = run_ranks(2, """
        import os, signal, sys, numpy as np, commstream as cs
        world = cs.open()
        world.barrier().wait()
        if world.rank == 1:
            world.recv(bytearray(1), 0).wait()
            os.kill(os.getpid(), signal.SIGKILL)
        world.send(b"x", 1).wait()
        try:
            world.allreduce(np.ones(1)).wait(timeout=30)
            print("no error")
        except cs.PeerError as error:
            assert isinstance(error, ConnectionError) and error.result == cs.Result.ERR_PEER
            print("lost rank", error.rank, "in", error.operation, "number", error.sequence)
            with world.shrink() as rest:
                print("left:", rest.size)
        """, status=128 + signal.SIGKILL)
    assert re.search(r"lost rank 1 in \w* number \d", said), said  # the death may be noticed before the call is made
    assert "left: 1" in said


def test_the_exit_of_the_interpreter_closes_what_is_open():
    """Rank 1 ends while rank 0 waits: it is told that rank 1 closed, at once."""
    said = run_ranks(2, """
        import time, commstream as cs
        world = cs.open()
        world.barrier().wait()
        if world.rank == 0:
            start = time.monotonic()
            try:
                world.recv(bytearray(1), 1).wait(timeout=30)
            except cs.Error as error:
                print("ended with", type(error).__name__, time.monotonic() - start < 20)
        """)
    assert "ended with" in said and "True" in said


COLLECTIVES = 100_000


def test_memory_is_constant_over_many_collectives():
    said = run_ranks(2, f"""
        import gc, sys, numpy as np, commstream as cs
        world = cs.open()
        x, y = np.ones(1), np.zeros(1)

        def memory():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        def run(count):
            for i in range(count // 4):
                world.allreduce(x, y).wait()
                world.allreduce(x, y)                 # forgotten at once
                request = world.broadcast(x)          # forgotten when the next one comes
                world.allreduce(y, op=cs.MAX).result()
            world.sync()
            gc.collect()

        run({COLLECTIVES // 10})
        references, blocks, before = sys.getrefcount(x), sys.getallocatedblocks(), memory()
        run({COLLECTIVES})
        assert sys.getrefcount(x) == references, (sys.getrefcount(x), references)
        assert abs(sys.getallocatedblocks() - blocks) < 200, sys.getallocatedblocks() - blocks
        assert memory() - before < 1 << 20, memory() - before
        assert cs._core.pending() <= 4, cs._core.pending()
        print("constant")
        """, timeout=240)
    assert said.count("constant") == 2


def by_id(rank, size, id, answers):
    with cs.open(id=id, rank=rank, size=size) as world:
        numbers = bytearray(size)
        world.allgather(bytes([rank]), numbers).wait()
        answers.put((rank, list(numbers), world.describe().backend))


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_spawned_processes_open_by_id(backend, monkeypatch):
    """As workers of Ray and Dask do: somebody makes the id, and hands it to them as an argument."""
    monkeypatch.setenv("COMM_BACKEND", backend)
    context = multiprocessing.get_context("spawn")
    answers, id = context.Queue(), cs.unique_id()
    workers = [context.Process(target=by_id, args=(rank, 3, id, answers)) for rank in range(3)]
    for worker in workers:
        worker.start()
    got = sorted(answers.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert got == [(rank, [0, 1, 2], backend) for rank in range(3)]


RANK = """
import os, commstream as cs
with cs.open() as world:
    world.barrier().wait()
    os.write(1, f"{world.describe().launcher} {world.rank} {world.size}\\n".encode())
"""


def test_variables_of_torchrun():
    ranks = []
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": "29555", "TORCHELASTIC_RUN_ID": f"tests-{os.getpid()}"}
        ranks.append(subprocess.Popen([sys.executable, "-c", RANK], env=env, stdout=subprocess.PIPE, text=True))
    said = sorted(process.communicate(timeout=60)[0].strip() for process in ranks)
    assert said == ["torchrun 0 2", "torchrun 1 2"]


@pytest.mark.parametrize("mpirun,launcher", [("mpirun.openmpi", "open-mpi"), ("mpiexec.hydra", "hydra")])
def test_ranks_of_mpirun(mpirun, launcher):
    if not shutil.which(mpirun):
        pytest.skip(f"{mpirun} is not here")
    command = [mpirun, "-n", "2", sys.executable, "-c", RANK]
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, timeout=100)
    assert done.returncode == 0, done.stdout
    assert sorted(line for line in done.stdout.splitlines() if launcher in line) == [f"{launcher} 0 2", f"{launcher} 1 2"], done.stdout


def test_a_forked_child_is_refused():
    said = run_ranks(1, """
        import os, commstream as cs
        world = cs.open()
        child = os.fork()
        if child == 0:
            try:
                world.barrier()
            except cs.ForkedError:
                os._exit(7)
            os._exit(1)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        world.barrier().wait()
        """)
    assert "child 7" in said


def test_a_forked_child_closes_while_a_thread_of_its_parent_calls():
    said = run_child("""
        import os, signal, threading, numpy as np, commstream as cs
        world, = cs.open_local(1, progress=cs.Progress.CALLER)
        x, ended = np.ones(1 << 20), []

        def call():
            while not ended:
                world.allreduce(x).wait()
        thread = threading.Thread(target=call)
        thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                try:
                    world.close()
                except cs.ForkedError:
                    pass
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        ended.append(True)
        thread.join()
        print("forked")
        """)
    assert "forked" in said


def test_an_interrupt_ends_a_wait():
    code = """
import os, signal, threading, commstream as cs
world, other = cs.open_local(2)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    world.recv(bytearray(1), 1).wait()
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
    assert "interrupted" in done.stdout


def run_interrupted(code):
    """Runs code, whose function interrupt_soon() sends the process SIGINT while the main thread is in its next call."""
    return run_child("""
        import os, signal, threading, time, weakref, numpy as np, commstream as cs

        def interrupt_soon():
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        """ + code)


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_an_interrupt_ends_an_open(backend):
    said = run_interrupted(f"""
        id = cs.unique_id(backend="{backend}")
        interrupt_soon()
        try:
            cs.open(rank=0, size=2, id=id, backend="{backend}", open_timeout=600)
        except KeyboardInterrupt:
            print("interrupted")
        with cs.open() as world:
            world.barrier().wait()
            print("opened", world.size)
        """)
    assert "interrupted" in said and "opened 1" in said


def test_an_interrupt_ends_the_free_of_a_window():
    """The free goes on, and the memory is the window's until its end."""
    said = run_interrupted("""
        pair, gone = cs.open_local(2, operation_timeout=600), []
        memory = np.zeros(8)
        weakref.finalize(memory, gone.append, True)
        requests = [pair[0].window(buffer=memory, async_op=True), pair[1].window(64, async_op=True)]
        windows = [request.result() for request in requests]
        del memory, requests
        interrupt_soon()
        try:
            windows[0].free()
        except KeyboardInterrupt:
            print("interrupted", windows[0].freed, bool(gone))
        windows[1].free()
        while not gone:
            time.sleep(0.01)
        for world in pair:
            world.close()
        print("memory is back")
        """)
    assert "interrupted True False" in said and "memory is back" in said


def test_an_interrupt_ends_the_free_of_buckets():
    """It waits for a running step, whose gradients are kept until its end."""
    said = run_interrupted("""
        pair, gone = cs.open_local(2, operation_timeout=600), []
        gradients = [np.ones(8), np.ones(8)]
        weakref.finalize(gradients[0], gone.append, True)
        buckets = [world.buckets([gradient]) for world, gradient in zip(pair, gradients)]
        del gradients
        buckets[0].ready(0)
        interrupt_soon()
        try:
            buckets[0].free()
        except KeyboardInterrupt:
            print("interrupted", bool(gone))
        buckets[0].free()
        buckets[1].ready(0)
        buckets[1].wait()
        while not gone:
            time.sleep(0.01)
        for world in pair:
            world.close()
        print("memory is back")
        """)
    assert "interrupted False" in said and "memory is back" in said


def test_without_numpy():
    code = "import sys; sys.modules['numpy'] = None; import commstream as cs; w = cs.open(); w.allreduce(bytearray(3)).wait(); print('fine')"
    assert "fine" in subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout


def test_another_interpreter_is_refused_and_changes_nothing():
    said = run_child("""
        import sys, commstream as cs
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
        else:
            import _xxsubinterpreters as interpreters
        world = cs.open()
        other = interpreters.create()
        try:
            failed = interpreters.run_string(other, "import commstream")
        except Exception as error:
            failed = error
        print("refused:", failed)
        interpreters.destroy(other)
        half = world.split(0)
        half.close()
        world.close()
        try:
            world.barrier()
        except cs.ClosedError:
            print("unchanged")
        """)
    assert "refused:" in said and "refused: None" not in said and "unchanged" in said
