"""Files that a model's patch may not change: the tests, and what steers the program that runs them.

A change to such a file is left out of what is graded. What the gold patch itself changes is no
such file, unless the test patch changes it too; nor are its neighbours in a folder of tests, for
there are packages with the name `test` that hold no tests.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.swe.patch import FilePatch, Patch, PatchRefused
from clawrl_gym.envs.swe.patch_reader import parse_patch, read_patch
from clawrl_gym.envs.swe.rows.instance import Instance

_TEST_FOLDERS = frozenset(
    ("test", "tests", "spec", "specs", "__tests__", "__mocks__", "__snapshots__")
)
_TEST_NAMES = re.compile(
    r"test_.*\.(py|rb|c|cc|cpp)|tests?\.py|.*_(test|spec)\.[a-z]+|.*[.-](test|spec)\.[a-z]+"
    r"|.*Tests?\.(java|php|cs|kt|scala)|.*\.snap"
)
_STEERING = re.compile(
    r"conftest\.py|\.?pytest\.(ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml|noxfile\.py"
    r"|(site|user)customize\.py|.*\.pth|\.coveragerc|manage\.py|runtests\.py"
    r"|package(-lock)?\.json|\.npmrc|\.node-version|(jest|vitest|karma|mocha|ava|babel)\.conf.*"
    r"|\.mocharc.*|\.taprc|\.babelrc.*|\.rspec|\.minitest|\.simplecov|Rakefile|Gemfile(\.lock)?"
    r"|phpunit\.xml.*|\.gitattributes|\.gitmodules"
)
_RUNNERS = frozenset(
    ("pytest", "_pytest", "pluggy", "unittest", "doctest", "nose", "minitest", "rspec", "jest",
     "sitecustomize", "usercustomize")
)  # fmt: skip
"""A file or folder of this name would be imported in the place of the runner, or before it."""
_INSTALLED = frozenset(("node_modules", "site-packages", "dist-packages", ".venv", "vendor"))
_BY_PRODUCTS = re.compile(r"(.*/)?(__pycache__|\.pytest_cache)/.*|.*\.py[co]")


def without_tests(patch: Patch, instance: Instance) -> Patch:
    """The patch less what it does to protected files. Raises TaskError for a wrong instance."""
    protected = ProtectedFiles.of(instance)
    kept = tuple(file for file in patch.files if not protected.holds(file))
    return Patch(kept, patch.left_out)


def own_patch(text: str, instance_id: str, name: str) -> Patch:
    """A patch of the instance itself. Raises TaskError naming its field."""
    try:
        return parse_patch(text)
    except PatchRefused as refused:
        raise TaskError(f"instance {instance_id!r}: the field {name!r}: {refused}") from refused


class ProtectedFiles:
    """The protected files of one instance."""

    def __init__(
        self,
        tests: frozenset[str],
        test_files: frozenset[str],
        gold: frozenset[str],
        hidden: tuple[str, ...] = (),
    ) -> None:
        self._tests = tests
        self._hidden = hidden
        self._test_files = test_files
        self._gold = gold - tests
        self._gold_folders = frozenset(posixpath.dirname(path) for path in self._gold)

    @classmethod
    def of(cls, instance: Instance) -> ProtectedFiles:
        try:
            gold = read_patch(instance.patch).paths
        except PatchRefused:
            gold = frozenset()
        tests = own_patch(instance.test_patch, instance.id, "test_patch").paths
        hidden = tuple(posixpath.relpath(path, instance.workdir) for path in instance.hidden)
        ids = (*instance.fail_to_pass, *instance.pass_to_pass)
        return cls(tests, frozenset(files_named_by(ids)), gold, hidden)

    @classmethod
    def named_by(cls, test_ids: Iterable[str]) -> ProtectedFiles:
        """Protected files of a repository of which nothing but its tests is known."""
        return cls(frozenset(), frozenset(files_named_by(test_ids)), frozenset())

    def protects(self, path: str) -> bool:
        """Whether a patch may not change a file that is there."""
        return self._holds(path, created=False)

    def holds(self, file: FilePatch) -> bool:
        """Whether the patch of a file is to be left out."""
        return any(self._holds(path, created=file.old is None) for path in file.paths)

    def _holds(self, path: str, *, created: bool) -> bool:
        if path in self._tests or _BY_PRODUCTS.fullmatch(path) or self._is_hidden(path):
            return True
        if path in self._gold:
            return False
        folder, name = posixpath.split(path)
        parts = frozenset(folder.split("/"))
        return (
            _STEERING.fullmatch(name) is not None
            or bool(parts & _INSTALLED)
            or (created and bool({posixpath.splitext(name)[0], *parts} & _RUNNERS))
            or self._is_test_file(path)
            or self._looks_like_test(folder, name, parts)
        )

    def _is_hidden(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{hidden}/") for hidden in self._hidden)

    def _is_test_file(self, path: str) -> bool:
        """Ids tell paths from the root of the repository, or from where its tests begin."""
        parts = path.split("/")
        return any("/".join(parts[at:]) in self._test_files for at in range(len(parts)))

    def _looks_like_test(self, folder: str, name: str, parts: frozenset[str]) -> bool:
        if folder in self._gold_folders:
            return False
        return bool(parts & _TEST_FOLDERS) or _TEST_NAMES.fullmatch(name) is not None


def files_named_by(test_ids: Iterable[str]) -> Iterator[str]:
    """Paths that ids of tests begin with, or name as a module: `test_x (pkg.tests.Case)`."""
    for test_id in test_ids:
        first = test_id.split("::")[0].split("[")[0].strip()
        if re.fullmatch(r"[\w./@+-]+\.\w+", first):
            yield posixpath.normpath(first)
        dotted = re.search(r"\((\w+(?:\.\w+)+)\)", test_id)
        if dotted:
            yield _module_of(dotted.group(1).split(".")).replace(".", "/") + ".py"


def _module_of(parts: list[str]) -> str:
    """`package.module` of `package.module.Case` and of `package.module.Case.test`."""
    case = next((at for at, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[:case])
