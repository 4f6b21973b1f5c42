"""Bugs made in somebody's own repository: validated, resumable, split by function, and refused
in one line where it cannot be."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.selection import selection_of
from clawrl_gym.envs.swe import __main__ as command
from clawrl_gym.envs.swe.bugs import head
from clawrl_gym.envs.swe.bugs.head import read_head
from clawrl_gym.envs.swe.bugs.issue import issue_text
from clawrl_gym.envs.swe.bugs.maker import split_by_place
from clawrl_gym.envs.swe.bugs.suite import SuiteRun, measure
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.diff import git_diff
from clawrl_gym.envs.swe.interpreter import SYSTEM_PYTHON, interpreter_at
from clawrl_gym.envs.swe.modules import module_mounts
from clawrl_gym.envs.swe.patch import Patch
from clawrl_gym.envs.swe.rows.archive import PackedFile, open_archive, pack
from clawrl_gym.envs.swe.rows.script import END, START
from clawrl_gym.envs.swe.source import open_source
from tests.support.fake_engine import FakeEngine
from tests.support.own_repositories import SHOP, commit, git, make_repository, write_files

sandboxed = pytest.mark.sandbox
LOG = """\
=================================== FAILURES ===================================
___________________________ test_total_has_a_fee[3] ____________________________

fee = 3

    def test_total_has_a_fee(fee):
>       assert filled().total(
            fee=fee
        ) == 14
E       assert 11 == 14
E        +  where 11 = <bound method total of <shop.Cart object at 0x7f00>>(fee=3)

tests/test_cart.py:9: AssertionError
________________________________ TextTest.test_slug ________________________________

self = <tests.text.test_text.TextTest testMethod=test_slug>

    def test_slug(self):
>       text.slug("Big")

tests/test_text.py:7:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def slug(title):
>       return title.lowr()
E       AttributeError: 'str' object has no attribute 'lowr'
E       in src/shop/text.py

src/shop/text.py:8: AttributeError
=========================== short test summary info ============================
FAILED tests/test_cart.py::test_total_has_a_fee[3] - assert 11 == 14
FAILED tests/test_text.py::TextTest::test_slug - AttributeError: 'str' objec...
FAILED tests/test_far.py::test_far - OSError: no disk
"""


def make(repository: Path, out: Path, *arguments: str) -> int:
    return command.run(["make-bugs", str(repository), str(out), *arguments])


def rows_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        split: [json.loads(line) for line in (out / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "heldout")
    }


@sandboxed
def test_bugs_of_a_repository_are_tasks_that_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository, out = make_repository(tmp_path / "shop"), tmp_path / "out"
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    assert make(repository, out, "--count", "4") == 0
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before
    rows = rows_of(out)
    assert len(rows["train"]) + len(rows["heldout"]) == 4
    assert rows["train"]
    assert rows["heldout"]
    places = [{row["function"] for row in part} for part in rows.values()]
    assert places[0].isdisjoint(places[1])
    for row in (*rows["train"], *rows["heldout"]):
        assert row["FAIL_TO_PASS"]
        assert row["PASS_TO_PASS"]
        assert row["function"].partition("::")[0] not in row["problem_statement"]
    assert "4 bugs in " in capsys.readouterr().err

    first = rows["heldout"][0]["instance_id"]
    validation = ["validate", str(out), "--json", "--ids", first]
    assert command.run(validation) == 0
    (check,) = json.loads(capsys.readouterr().out)
    assert (check["oracle"], check["noop"]) == (1.0, 0.0)

    attempts = (out / "_attempts.jsonl").read_text()
    assert json.loads(attempts.splitlines()[0])["setting"] == {
        "commit": git(repository, "rev-parse", "HEAD").strip(), "sandbox": "bubblewrap",
        "python": SYSTEM_PYTHON, "test_command": "python3 -m pytest",
    }  # fmt: skip
    assert make(repository, out, "--count", "4") == 0  # all is known, nothing runs
    assert (out / "_attempts.jsonl").read_text() == attempts
    assert rows_of(out) == rows


@sandboxed
def test_a_virtual_environment_brings_what_tests_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment, packages = make_environment(tmp_path / "venv")
    (packages / "helper.py").write_text("FEE = 3\n")
    files = {
        "shop/text.py": "def slug(title):\n    return title.lower()\n",
        "tests/test_fee.py": "import helper\nfrom shop.text import slug\n\n\n"
        "def test_slug():\n    assert slug('A') == 'a'\n\n\n"
        "def test_fee():\n    assert helper.FEE == 3\n",
    }
    repository = make_repository(tmp_path / "shop", files)
    python = ["--python", str(environment / "bin/python"), "--count", "1", "--jobs", "1"]
    assert make(repository, tmp_path / "out", *python) == 0, capsys.readouterr().err
    (row,) = [row for part in rows_of(tmp_path / "out").values() for row in part]
    assert row["python"] == str(environment / "bin/python")
    assert row["FAIL_TO_PASS"] == ["tests/test_fee.py::test_slug"]

    write_files(packages, {"shop/text.py": files["shop/text.py"]})
    assert make(repository, tmp_path / "other", *python) == 2
    assert "installed copy of the repository's own code" in capsys.readouterr().err


def make_environment(folder: Path) -> tuple[Path, Path]:
    """A virtual environment with this machine's pytest in it, and its folder of packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    names = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
    for source in map(Path, module_mounts(names).values()):
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, packages / source.name)
    return folder, packages


@sandboxed
@pytest.mark.parametrize(
    ("files", "arguments", "reason"),
    [
        ({"tests/test_cart.py": None, "tests/test_text.py": None}, (), "finds no tests at HEAD"),
        ({"src/shop/cart.py": "raise KeyError", "src/shop/text.py": "raise KeyError"}, (),
         "no test passes at HEAD"),
        ({"tests/test_text.py": "def test_long():\n    while True: pass\n"}, ("--timeout", "3"),
         "did not end within 3 s at HEAD"),
        ({}, ("--test-command", "no-such-pytest"), "does not start: .*give --python"),
        ({}, ("--test-command", "python3 -m pytest; exit 3"), "all tests pass at HEAD, but"),
        ({"src/shop/cart.py": "N = 1\n", "src/shop/text.py": "N = 2\n",
          "tests/test_cart.py": "def test_one():\n    assert 1\n", "tests/test_text.py": None},
         (), "has no Python function outside of its tests"),
    ],
)  # fmt: skip
def test_what_has_no_tests_that_tell_is_refused_in_one_line(
    files: Mapping[str, str | None],
    arguments: tuple[str, ...],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = {path: text for path, text in {**SHOP, **files}.items() if text is not None}
    assert make(make_repository(tmp_path / "shop", texts), tmp_path / "out", *arguments) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "make-bugs:" in line]
    assert re.search(reason, line), line


@sandboxed
def test_what_no_test_looks_at_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "shop.py": "def plain(x):\n    return x\n\n\ndef unseen(x):\n"
        "    return [x + 1 > 2 and x < 4, x - 5 == 6, x * 7 != 8, x // 9 < 10]\n",
        "test_shop.py": "from shop import plain\n\n\ndef test_plain():\n"
        "    assert plain(1) == 1\n\n\ndef test_other():\n    assert 1\n",
    }
    repository = make_repository(tmp_path / "shop", files)
    (repository / "shop.py").write_text("def plain(x):\n    return 3\n")
    assert make(repository, tmp_path / "out", "--count", "5") == 0
    text = capsys.readouterr().err
    assert "HEAD is used; changes that are not committed and not looked at: 1 ('M sh" in text
    assert "got 1, expected 5: there are no more changes" in text
    assert (
        "  4: no test fails with it (shop.py::unseen (" in text
    )  # of the 34 changes that there are


class Twice:
    """Tests whose results are other ones in each run."""

    command = "pytest"

    def __init__(self, *runs: Mapping[str, str]) -> None:
        self._runs = iter(runs)

    def run(self, patch: Patch, limit_s: int) -> SuiteRun:
        return SuiteRun(next(self._runs), 1, "", 6.5)


def test_tests_that_fail_or_change_are_left_out_and_told() -> None:
    first = {"a::x": "PASSED", "a::y": "PASSED", "a::z": "FAILED", "a::s": "SKIPPED",
             "s.py::s.total": "PASSED"}  # fmt: skip
    suite: Any = Twice(first, {**first, "a::y": "FAILED"})
    baseline = measure(suite, 60, lambda _: None)
    assert baseline.passing == ("a::x",)
    assert baseline.limit_s == 33
    assert baseline.notes == (
        "tests that pass in one of two clean runs, left out: 1 (a::y)",
        "tests that fail at HEAD, left out: 1 (a::z)",
        "tests that stand in the code that is changed, left out: 1 (s.py::s.total)",
    )


def test_a_place_that_is_no_repository_of_ones_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the folder of a git repository"):
        read_head(str(tmp_path / "nowhere"))
    (tmp_path / "plain").mkdir()
    with pytest.raises(ConfigError, match=r"expected a git repository: fatal: not a git"):
        read_head(str(tmp_path / "plain"))
    git(tmp_path / "plain", "init", "-q")
    with pytest.raises(ConfigError, match="no commit yet: commit first"):
        read_head(str(tmp_path / "plain"))
    repository = make_repository(tmp_path / "shop")
    with pytest.raises(ConfigError, match="is inside of the repository"):
        read_head(str(repository / "src"))


def test_a_huge_repository_is_refused_with_what_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "MAX_BYTES", 1000)
    repository = make_repository(tmp_path / "shop", {**SHOP, "data/big.bin": "x" * 2000})
    with pytest.raises(ConfigError, match=r"expected at most .* the most is in 'data'"):
        read_head(str(repository))


def test_head_is_what_is_committed_with_its_links_and_modes(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "shop")
    (repository / "run.sh").write_text("exit\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("run.sh")
    part = make_repository(tmp_path / "part")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "part")
    commit(repository)
    (repository / "README.md").write_text("changed")
    found = read_head(str(repository))
    assert found.files["README.md"].data == SHOP["README.md"].encode()
    assert found.files["run.sh"].git_mode == 0o100755
    assert found.files["link"] == PackedFile(b"run.sh", 0o120000)
    assert found.notes == (
        "HEAD is used; changes that are not committed and not looked at: 1 ('M README.md')",
        "submodules are left out, their folders are empty: part",
    )
    archive = tmp_path / "repository.tar.gz"
    archive.write_bytes(pack(found.files))
    assert pack(found.files) == archive.read_bytes()
    opened = open_archive(str(archive))
    assert opened.texts["src/shop/cart.py"] == SHOP["src/shop/cart.py"]
    assert opened.names >= {"link", "run.sh"}
    archive.write_bytes(b"no archive")
    with pytest.raises(TaskError, match="cannot be read"):
        open_archive(str(archive))


def test_the_folder_of_the_instances_is_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = make_repository(tmp_path / "shop")
    assert make(repository, repository / "out") == 2
    assert "inside of the repository" in capsys.readouterr().err
    assert make(repository, tmp_path) == 2
    assert "which holds other files" in capsys.readouterr().err
    assert make(repository, tmp_path / "out", "--test-command", "make") == 2
    assert "expected one that runs pytest" in capsys.readouterr().err
    file = tmp_path / "file"
    file.write_text("")
    assert make(repository, file / "out") == 2
    assert "which cannot be made: Not a directory" in capsys.readouterr().err
    assert not (tmp_path / "out" / "_attempts.jsonl").exists()


def test_a_python_is_for_a_sandbox_and_an_image_for_docker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = make_repository(tmp_path / "shop")
    out = tmp_path / "out"
    assert make(repository, out, "--sandbox", "docker", "--python", "/usr/bin/python3") == 2
    assert "got --python with --sandbox docker" in capsys.readouterr().err
    assert make(repository, out, "--image", "x") == 2
    assert "got --image without --sandbox docker" in capsys.readouterr().err
    assert make(repository, out, "--python", str(tmp_path / "bin/python")) == 2
    assert "expected bin/python of a virtual environment" in capsys.readouterr().err
    for name in ("venv", ".venv"):  # the second is the first that is looked for
        (repository / name / "bin").mkdir(parents=True)
        (repository / name / "bin/python").write_text("")
        assert make(repository, out) == 2
        assert f"{repository}/{name}" in capsys.readouterr().err
    assert not out.exists()


def test_what_is_no_environment_of_python_is_not_shown_to_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "secrets/bin").mkdir(parents=True)
    (tmp_path / "secrets/bin/python").write_text("")
    for path in (tmp_path / "secrets/bin/python", Path("/bin/python"), Path("python3")):
        with pytest.raises(TaskError, match="expected bin/python of a virtual environment"):
            interpreter_at(str(path))
    assert interpreter_at(SYSTEM_PYTHON).mounts == {}
    (tmp_path / "secrets/pyvenv.cfg").write_text("home = /usr/bin\n")
    with pytest.raises(TaskError, match="which is not a program here"):
        interpreter_at(str(tmp_path / "secrets/bin/python"))
    (tmp_path / "secrets/bin/python").chmod(0o755)
    shown = interpreter_at(str(tmp_path / "secrets/bin/python"))
    assert shown.mounts == {str(tmp_path / "secrets"): str(tmp_path / "secrets")}
    assert shown.env["PATH"].startswith(f"{tmp_path}/secrets/bin:")


def row(**fields: Any) -> dict[str, Any]:
    path = "src/shop/cart.py"
    broken = SHOP[path].replace("+ fee", "- fee")
    return {
        "instance_id": "shop-1",
        "repo": "shop",
        "problem_statement": "The fee is wrong.",
        "patch": git_diff({path: broken}, {path: SHOP[path]}),
        "FAIL_TO_PASS": ["tests/test_cart.py::test_fee_is_added"],
        "PASS_TO_PASS": ["tests/test_cart.py::test_total_multiplies_prices"],
        "log_parser": "parse_log_pytest",
        "eval_script": f": '{START}'\npytest\n: '{END}'\n",
        "repository": "repository.tar.gz",
    } | fields


def test_rows_are_read_beside_their_repository(tmp_path: Path) -> None:
    files = {path: PackedFile(text.encode()) for path, text in SHOP.items()}
    (tmp_path / "repository.tar.gz").write_bytes(pack(files))
    sha256 = open_archive(str(tmp_path / "repository.tar.gz")).sha256
    rows = [
        row(repository_sha256=sha256),
        row(instance_id="shop-2", repository_sha256="0" * 64),
        row(instance_id="shop-3", repository_sha256=sha256, repository="../../other.tar.gz"),
        row(instance_id="shop-4", repository_sha256=sha256, python="/root/bin/python"),
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    config = SweEnvConfig(instances=str(tmp_path))
    source = open_source(config)
    assert source.ids("train") == ["shop-1"]
    instance = source.load("shop-1")
    assert instance.image is None
    assert instance.import_roots == ("/testbed/src", "/testbed")
    assert instance.test_files == {"tests/test_cart.py": SHOP["tests/test_cart.py"]}
    assert "- fee" in instance.setup_patch
    selection = selection_of(source)
    assert selection is not None
    reasons = {entry.name: entry.reason for entry in selection.left_out}
    assert "'repository_sha256'" in reasons["shop-2"]
    assert "other.tar.gz' : No such file" in reasons["shop-3"].replace("':", "' :")
    assert "expected bin/python of a virtual environment" in reasons["shop-4"]

    with FakeEngine(tmp_path / "engine.sock"):  # an engine has neither these files nor this Python
        settled = config.settled(lambda _: None)
    assert settled.sandbox.type == "bubblewrap"


def test_an_issue_says_what_a_user_sees_and_not_where_the_bug_is() -> None:
    path = "src/shop/text.py"
    text = issue_text(LOG, ["tests/test_cart.py::test_total_has_a_fee[3]"], path, 0)
    assert text == (
        '"total has a fee (3)" does not hold any more.\n\nWhen I run\n\n'
        "    assert filled().total(\n        fee=fee\n    ) == 14\n\nI get\n\n"
        "    assert 11 == 14\n"
        "     +  where 11 = <bound method total of <shop.Cart object>>(fee=3)\n\n"
        "The test is `tests/test_cart.py::test_total_has_a_fee[3]`.\n"
    )
    both = [
        "tests/test_text.py::TextTest::test_slug",
        "tests/test_cart.py::test_total_has_a_fee[3]",
    ]
    assert "total has a fee" in issue_text(LOG, both, path, 0).split("\n")[0]  # it says more
    failing = ["tests/test_text.py::TextTest::test_slug", "tests/test_far.py::test_far"]
    text = issue_text(LOG, failing, path, 3)
    assert 'text.slug("Big")' in text
    assert "AttributeError: 'str' object has no attribute 'lowr'" in text
    assert path not in text
    assert "lowr()" not in text
    assert "These tests fail: `tests/test_text.py::TextTest::test_slug`" in text
    inner = LOG.replace("tests/test_text.py:7:", "src/shop/text.py:7:")
    assert "text.slug" not in issue_text(inner, failing[:1], path, 0)
    assert "OSError: no disk" in issue_text(LOG, failing[1:], path, 7)
    assert issue_text("", failing[1:], path, 1).startswith('I think this is broken: "far".')


def test_a_function_is_in_one_split_and_neither_is_empty() -> None:
    places = [f"a.py::f{number}" for number in range(50)]
    splits = split_by_place(places)
    assert 3 < list(splits.values()).count("heldout") < 20
    assert all(split_by_place(places[:30])[place] == splits[place] for place in places[:30])
    for number in range(50):
        assert set(split_by_place([places[number], places[number - 1]]).values()) == {
            "train", "heldout"
        }  # fmt: skip
    assert split_by_place(["a.py::f"]) == {"a.py::f": "train"}
    held_out = [int(place[7:]) for place, split in splits.items() if split == "heldout"]
    assert sorted(held_out) == [3, 16, 18, 23, 25, 30, 34, 36, 39, 40, 46, 47]
