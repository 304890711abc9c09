"""The build backend: scikit-build-core, whose source distribution also carries the C library.

The C library is two folders up. A source distribution holds what is below its own folder, so the library's sources are copied to library/
while one is made. CMakeLists.txt takes library/ if it is there, and the tree two folders up otherwise.
"""
import shutil
from pathlib import Path

from scikit_build_core import build as scikit
from scikit_build_core.build import *  # noqa: F401,F403: the other hooks of PEP 517

HERE = Path(__file__).resolve().parent.parent
TREE = HERE.parent.parent
COPY = HERE / "library"
# What the library's own CMakeLists.txt reads when it is a part of another project.
PARTS = ["CMakeLists.txt", "LICENSE", "cmake", "include", "src", "docs/CMakeLists.txt", "docs/reference/Doxyfile.in",
         "docs/reference/man.sh"]


def copy_library():
    for part in PARTS:
        source, target = TREE / part, COPY / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)


def build_sdist(sdist_directory, config_settings=None):
    made = not COPY.exists()
    if made:
        copy_library()
    try:
        return scikit.build_sdist(sdist_directory, config_settings)
    finally:
        if made:
            shutil.rmtree(COPY)
