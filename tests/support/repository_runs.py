"""Runs the tests of made-up repositories without files or sandboxes: Python's here, within this
process, and JavaScript's all together in one process of Node."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

Files = Mapping[str, str]
_NODE_TIMEOUT_S = 60.0
_NODE = """
const posix = require("path").posix;
const runs = JSON.parse(require("fs").readFileSync(0, "utf8"));
async function failing({ files, tests }) {
  const loaded = {}, found = [], failed = [];
  const test = (name, body) => found.push([name, body]);
  const requirer = (from) => (name) => {
    if (!name.startsWith(".")) return name === "node:test" ? test : require(name);
    let path = posix.normalize(posix.join(posix.dirname(from), name));
    if (!(path in files)) path += ".js";
    if (!(path in loaded)) {
      const module = (loaded[path] = { exports: {} });
      new Function("module", "require", files[path])(module, requirer(path));
    }
    return loaded[path].exports;
  };
  for (const path of tests) new Function("require", files[path])(requirer(path));
  for (const [name, body] of found) {
    try { await body(); } catch { failed.push(`- ${name}`); }
  }
  return failed;
}
(async () => {
  const results = [];
  for (const run of runs) results.push(await failing(run));
  console.log(JSON.stringify(results));
})();
"""


def failing_in_python(files: Files, tests: Sequence[str]) -> frozenset[str]:
    """The tests of these files that fail, as the corpus calls them."""
    failed = set[str]()
    with _imported(files):
        for path in tests:
            module: dict[str, object] = {"__name__": "tests"}
            exec(compile(files[path], path, "exec"), module)
            for name, value in list(module.items()):
                if isinstance(value, type) and issubclass(value, unittest.TestCase):
                    failed.update(_failing_cases(value))
                elif name.startswith("test_") and inspect.isfunction(value):
                    failed.update(() if _passes(_as_case(value)) else (f"{path}::{name}",))
    return frozenset(failed)


def failing_in_node(node: str, runs: Sequence[tuple[Files, Sequence[str]]]) -> list[frozenset[str]]:
    """The same of many repositories in JavaScript at once."""
    given = json.dumps([{"files": dict(files), "tests": list(tests)} for files, tests in runs])
    done = subprocess.run(
        [node, "-e", _NODE], input=given, capture_output=True, text=True, check=True,
        timeout=_NODE_TIMEOUT_S,
    )  # fmt: skip
    return [frozenset(failed) for failed in json.loads(done.stdout)]


def _failing_cases(cases: type[unittest.TestCase]) -> Iterator[str]:
    for name in unittest.defaultTestLoader.getTestCaseNames(cases):
        if not _passes(cases(name)):
            yield str(getattr(cases, name).__doc__)


def _as_case(test: Callable[..., None]) -> unittest.TestCase:
    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            wanted = inspect.signature(test).parameters
            test(**({"tmp_path": Path(folder)} if wanted else {}))

    return unittest.FunctionTestCase(run)


def _passes(case: unittest.TestCase) -> bool:
    result = unittest.TestResult()
    case.run(result)
    return result.wasSuccessful()


@contextmanager
def _imported(files: Files) -> Iterator[None]:
    """Modules come from these files, and are forgotten afterwards."""
    finder = _InMemory(files)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.made:
            del sys.modules[name]


class _InMemory(MetaPathFinder, Loader):
    """Finds modules among texts."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.made: set[str] = set()

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        place = fullname.replace(".", "/")
        for file, is_package in ((f"{place}/__init__.py", True), (f"{place}.py", False)):
            if file in self._files:
                self.made.add(fullname)
                return spec_from_loader(fullname, self, origin=file, is_package=is_package)
        return None

    def exec_module(self, module: ModuleType) -> None:
        origin = str(module.__spec__.origin if module.__spec__ else "")
        exec(compile(self._files[origin], origin, "exec"), module.__dict__)
