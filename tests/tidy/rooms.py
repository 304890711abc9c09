#!/usr/bin/env python3
"""The link law: `rooms.py NM OBJECT...` reads what each object of the library defines and needs, and fails where a room calls one that
tidy.py's LAW does not let it use. The public functions may be called by bucket alone; wire/table.c names the backends, and nobody else does.
The objects of a module (one MPI's) are read too: what two of its rooms call of each other is under the same law.
"""
import re
import subprocess
import sys

import tidy

ROOM = re.compile(r"/(src/(?:[a-z0-9_]+/)+[a-z0-9_]+\.c)\.o$")
MODULE = re.compile(r"CMakeFiles/\w+\.dir/(?:\./)?")  # an object of a folder's own target
# What wire/table.c names: the backends, the host's env, and how ranks meet.
NAMED_BY_TABLE = {"channel", "hybrid", "net/boot", "net/mpi", "net/posix", "net/tcp", "shm", "cuda", "cuda/nccl", "cuda/oneshot", "cuda/pipeline"}


def room_of(path):
    found = ROOM.search(MODULE.sub("", path))
    return tidy.room_of(found.group(1)) if found else None


def symbols(nm, paths):
    """path -> (defined, needed) names of each object."""
    found = {path: (set(), set()) for path in paths}
    for line in subprocess.run([nm, "-A", *paths], check=True, capture_output=True, text=True).stdout.splitlines():
        path, rest = line.split(":", 1)
        kind, name = rest.split()[-2:]
        defined, needed = found[path]
        if kind == "U":
            needed.add(name)
        elif kind in "TDBRVWC":
            defined.add(name)
    return found


def offences(objects):
    """objects: path -> (defined, needed). Yields (caller's path, callee's room, name)."""
    home = {name: room_of(path) for path, (defined, _) in objects.items() for name in defined}
    for path, (_, needed) in sorted(objects.items()):
        room = room_of(path)
        for name in sorted(needed & home.keys()):
            other = home[name]
            backend = other in NAMED_BY_TABLE and path.endswith("/wire/table.c.o")
            public = room == "bucket" and name.startswith("comm_")
            heap = name.startswith("base_heap_")  # declared by base, and needs the engine
            if other not in (room, "base") and other not in tidy.LAW[room] and not (backend or public or heap):
                yield path, other, name


def selftest():
    module = "/src/net/mpi/CMakeFiles/m.dir/a.c.o"
    law = {"/src/core/comm/a.c.o": ({"low"}, {"high"}), "/src/core/world/b.c.o": ({"high"}, {"low"}),
           module: ({"under"}, {"over"}), "/src/net/mpiwire/CMakeFiles/m.dir/./b.c.o": ({"over"}, {"under"})}
    found = list(offences(law))
    return found == [("/src/core/comm/a.c.o", "world", "high"), (module, "net/mpiwire", "over")]


def main():
    nm, *paths = sys.argv[1:]
    if not selftest():
        print("rooms: the self-test found a wrong offence, or none")
        return 1
    objects = symbols(nm, [path for path in paths if room_of(path)])
    if len({room_of(path) for path in objects}) < len(tidy.LAW) - 5:  # cuda, its nccl and oneshot, tools and its run are built apart
        print(f"rooms: objects of {len({room_of(p) for p in objects})} rooms were given, expected those of the whole library")
        return 1
    bad = list(offences(objects))
    for path, other, name in bad:
        print(f"{ROOM.search(MODULE.sub('', path)).group(1)}: {room_of(path)} may not use {other}: {name}")
    print(f"rooms: {len(objects)} objects, {len(bad)} calls against the law")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
