#!/usr/bin/env python3
"""`tools.py mpis --here`: makes nothing, and names the MPI libraries only if all are there that the environment does not name."""
import os
import platform
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import tools  # noqa: E402

NAMES = ["abi", "openmpi"] + (["intel"] if platform.machine() == "x86_64" else [])


class Here(unittest.TestCase):
    def setUp(self):
        cache = tempfile.TemporaryDirectory()
        self.addCleanup(cache.cleanup)
        self.cache = Path(cache.name)
        given = {name: value for name, value in os.environ.items() if not name.startswith("COMM_TEST_MPI_")}
        self.environment = {**given, "XDG_CACHE_HOME": str(self.cache)}
        with mock.patch.dict(os.environ, self.environment, clear=True):
            self.places = {name: tools.folder(name, tools.MPIS[name]) for name in NAMES[1:]}
            self.places["abi"] = tools.tools_folder()

    def lines(self, **more):
        done = subprocess.run([sys.executable, "-B", tools.__file__, "mpis", "--here"], env={**self.environment, **more}, capture_output=True,
                              text=True, check=True)
        return set(done.stdout.split())

    def fetch(self, name):
        """As if it had been fetched."""
        self.places[name].mkdir(parents=True)
        (self.places[name] / "done").touch()

    def test_none_is_here(self):
        self.assertEqual(self.lines(), set())
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_all_or_none(self):
        for name in NAMES[:-1]:
            self.fetch(name)
        self.assertEqual(self.lines(), set())
        self.fetch(NAMES[-1])
        self.assertEqual(self.lines(), {f"COMM_TEST_MPI_{name.upper()}={self.places[name]}/venv" for name in NAMES})

    def test_the_environment_names_one(self):
        for name in NAMES[1:]:
            self.fetch(name)
        self.assertEqual(self.lines(COMM_TEST_MPI_ABI="/opt/mpi"), {f"COMM_TEST_MPI_{name.upper()}={self.places[name]}/venv" for name in NAMES[1:]})


if __name__ == "__main__":
    unittest.main()
