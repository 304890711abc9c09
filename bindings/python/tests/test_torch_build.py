"""Where the compiled extension of commstream.torch is kept. Of torch that needs the version alone."""
import importlib.util
import sys
import types
from pathlib import Path

import commstream as cs


def test_other_headers_of_the_library_are_another_extension(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("torch_build", Path(cs.__file__).parent / "torch/build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__="2.0"))
    headers, lib = tmp_path / "include/commstream", tmp_path / "lib"
    for folder in (headers, lib):
        folder.mkdir(parents=True)
    for file in (headers / "commstream.h", headers / "open.h", lib / "libcommstream.so.0"):
        file.touch()
    monkeypatch.setenv("COMMSTREAM_ROOT", str(tmp_path))
    monkeypatch.setenv("COMMSTREAM_CACHE", str(tmp_path / "cache"))
    seen = [build.folder()]
    assert seen[0] == build.folder() and seen[0].parent == tmp_path / "cache"
    for name, text in (("open.h", "int a;"), ("open.h", "int b;"), ("event.h", "")):
        (headers / name).write_text(text)
        assert build.folder() not in seen
        seen.append(build.folder())
