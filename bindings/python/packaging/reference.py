"""Writes the reference of the Python package with pdoc: `reference.py FOLDER`. The package and pdoc must be importable.

commstream.torch is documented without torch, which is several GB, and without its extension, which is compiled against torch. Classes that
are made when they are asked for stand in for what it takes from torch.
"""

import importlib.util
import sys
import types
import warnings
from pathlib import Path

import commstream
import pdoc

TORCH = ["torch", "torch.distributed"]


class Made(type):
    """A class that has every attribute: a class of that name."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return make(cls.__module__, name)


def make(module, name):
    return Made(name, (), {"__module__": module, "__init__": lambda self, *args, **options: None})


def stand_in_for_torch():
    for name in TORCH:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__getattr__ = lambda attribute, name=name: make(name, attribute)
    sys.modules["torch"].distributed = sys.modules["torch.distributed"]
    sys.modules["torch"].cuda = types.SimpleNamespace(device_count=lambda: 0)


def stand_in_for_extension():
    """The module that compiles it is loaded by itself, before commstream.torch asks it for the extension."""
    path = Path(commstream.__file__).parent / "torch/build.py"
    spec = importlib.util.spec_from_file_location("commstream.torch.build", path)
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    build.load = lambda: make("commstream.torch", "_extension")
    sys.modules[spec.name] = build


def main(folder):
    warnings.simplefilter("error")  # pdoc leaves out what it cannot import, and warns
    stand_in_for_torch()
    stand_in_for_extension()
    pdoc.render.configure(docformat="google")
    pdoc.pdoc("commstream", "commstream._core", "commstream.run", "commstream.torch", "!commstream.torch.build", output_directory=Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
