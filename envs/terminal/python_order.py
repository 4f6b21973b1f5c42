"""First code of every Python on a verifier's machine: its own modules before the agent's.

A module of the work folder that has the name of one of the standard library, or of one that a
library would like to import, would otherwise run inside the verifier. What the image itself has in
the work folder is the task's matter, and found there, as long as it shadows no standard module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from clawrl_gym.envs.sandbox.interface import Sandbox

MODULE = "sitecustomize.py"
_STEP_S = 30.0


def put_machine_first(
    sandbox: Sandbox, folder: str, places: Sequence[str], modules: Collection[str]
) -> None:
    """Write the module to `folder`, which goes to PYTHONPATH; the installed Pythons find it, too.

    `modules`: names of what the image has at these places. Pythons that may not be written to are
    left as they are.
    """
    path = f"{folder}/{MODULE}"
    source = _SOURCE.replace("PLACES = ()", f"PLACES = {tuple(places)!r}")
    source = source.replace("OF_TASK = ()", f"OF_TASK = frozenset({sorted(modules)!r})")
    sandbox.write(path, source.encode(errors="replace"))
    line = f"import os; p = {path!r}; os.path.exists(p) and exec(open(p).read(), {{'__file__': p}})"
    sandbox.write(f"{folder}/first.pth", f"{line}\n".encode())
    sandbox.exec(
        "for d in /usr/lib/python3/dist-packages /usr/lib/python3*/site-packages "
        "/usr/local/lib/python3*/*-packages; do "
        f"[ -d $d ] && cp {folder}/first.pth $d/verifier.pth 2> /dev/null; done; true",
        _STEP_S,
    )


_SOURCE = '''\
"""The machine's own modules come before those of the work folder; see clawrl_gym."""
import os
import sys

try:
    from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
except ImportError:  # too old to be kept in order
    PathFinder = None
PLACES = ()
OF_TASK = ()
LIBRARIES = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))


def _is_left(entry):
    """Whether it lies where the agent worked."""
    try:
        path = os.path.realpath(entry or os.getcwd())
    except OSError:
        return True
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in PLACES)


def _asks_by_itself(name):
    """Whether a library of the machine has a statement that imports this."""
    frame = sys._getframe(3)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None:
        return False
    path = frame.f_code.co_filename
    is_library = path.startswith(STANDARD + os.sep) or any(part in path for part in LIBRARIES)
    if not is_library or _is_left(path):
        return False
    names = frame.f_code.co_names
    return any(each == name or each.startswith(name + ".") for each in names)


def _choose(name, own, left):
    """The machine's module or, where that has none or the task itself brings it, that left."""
    if BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name):
        return None
    spec = PathFinder.find_spec(name, own)
    if spec is not None and spec.loader is None:
        spec = None
    if _asks_by_itself(name):
        if spec is None:
            raise ModuleNotFoundError("No module named %r" % name, name=name)
        return spec
    standard = spec is not None and str(spec.origin).startswith(STANDARD + os.sep)
    if spec is not None and name in OF_TASK:
        if not standard or any(part in spec.origin for part in LIBRARIES):
            return PathFinder.find_spec(name, left) or spec
    return spec


class _MachineFirst(object):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None:
            left = [entry for entry in sys.path if _is_left(entry)]
            if left:
                own = [entry for entry in sys.path if entry not in left]
                if sys.path != own + left:
                    sys.path[:] = own + left
                return _choose(name, own, left)
        return None

    @classmethod
    def invalidate_caches(cls):
        pass


def _next_sitecustomize(here):
    """That of the machine, which this one stands before."""
    for entry in sys.path:
        path = os.path.join(entry, "sitecustomize.py")
        if not _is_left(entry) and os.path.exists(path) and os.path.realpath(path) != here:
            with open(path, "rb") as opened:
                exec(compile(opened.read(), path, "exec"), {"__name__": "sitecustomize"})
            return


if PathFinder is not None and sys.version_info >= (3, 6) and not hasattr(sys, "_machine_first"):
    STANDARD = os.path.dirname(os.path.realpath(os.__file__))
    sys._machine_first = True
    sys.meta_path.insert(0, _MachineFirst)
    if __name__ == "sitecustomize":
        _next_sitecustomize(os.path.realpath(__file__))
'''
