"""Patches are read strictly, and what they do to tests is left out."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from clawrl_gym.envs.swe.patch import PatchRefused
from clawrl_gym.envs.swe.patch_reader import parse_patch, read_patch
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.protected_files import without_tests

ONE = """\
diff --git a/shop.py b/shop.py
index 83db48f..bf269f4 100644
--- a/shop.py
+++ b/shop.py
@@ -1,3 +1,3 @@ def total
 first
-second
+2nd
 third
"""


def changes(path: str, *, created: bool = False) -> str:
    old = "/dev/null" if created else f"a/{path}"
    mode = "new file mode 100644\n" if created else ""
    hunk = "@@ -0,0 +1 @@\n+a\n" if created else "@@ -1 +1 @@\n-a\n+b\n"
    return f"diff --git a/{path} b/{path}\n{mode}--- {old}\n+++ b/{path}\n{hunk}"


def instance(**fields: object) -> Instance:
    made = {
        "id": "shop-1",
        "repo": "me/shop",
        "split": "train",
        "problem_statement": "it is wrong",
        "fail_to_pass": ("checks/shop.py::test_total",),
        "pass_to_pass": (),
        "log_parser": "parse_log_pytest",
        "eval_script": "",
    }
    return Instance(**(made | fields))  # type: ignore[arg-type]


def kept(text: str, **fields: object) -> frozenset[str]:
    return without_tests(parse_patch(text), instance(**fields)).paths


def test_a_patch_that_git_wrote_is_written_out_as_it_was() -> None:
    assert parse_patch(ONE).text == ONE


def test_words_before_and_between_files_are_gone() -> None:
    talk = f"From: me\nSubject: a fix\n\n---\n shop.py | 2 +-\n\n{ONE}-- \n2.39\n"
    assert parse_patch(talk).text == ONE


def test_a_plain_unified_diff_is_taken() -> None:
    plain = ONE.split("\n", 2)[2].replace("--- a/shop.py", "--- a/shop.py\t2024-01-01 00:00:00")
    assert parse_patch(plain).paths == {"shop.py"}


def test_nothing_is_an_empty_patch() -> None:
    assert parse_patch("").files == () == parse_patch(" \n\n").files == read_patch("hello").files


def test_blank_context_lines_that_trimming_cut_come_back() -> None:
    whole = "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n-x\n+y\n \n \n"
    assert parse_patch(whole.strip()).files == parse_patch(whole).files


@pytest.mark.parametrize(
    "path",
    ["../up.py", "a/../../up.py", "/etc/passwd", "a//b.py", "./a.py", "", ".git/config",
     "a/.GIT/hooks/pre-commit", ".git./config", "git~1/config", "a\x07b"],
)  # fmt: skip
def test_a_path_out_of_the_repository_is_refused(path: str) -> None:
    with pytest.raises(PatchRefused, match=r"path|file"):
        parse_patch(changes(path))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("new file mode 120000", "symbolic link"),
        ("old mode 100644\nnew mode 120000", "symbolic link"),
        ("index 83db48f..bf269f4 120000", "symbolic link"),
        ("new file mode 160000", "submodule"),
        ("new file mode 104755", "mode"),
        ("index ../../x", "index line"),
    ],
)
def test_what_is_no_regular_file_is_refused(header: str, why: str) -> None:
    text = f"diff --git a/a b/a\n{header}\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+/etc/passwd\n"
    with pytest.raises(PatchRefused, match=why):
        parse_patch(text)


@pytest.mark.parametrize("line", ["GIT binary patch\nliteral 1", "Binary files a/a and b/a differ"])
def test_a_binary_hunk_is_refused(line: str) -> None:
    with pytest.raises(PatchRefused, match="binary file"):
        parse_patch(f"{ONE}diff --git a/a.png b/a.png\nindex 0..1\n{line}\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ONE.replace("+++ b/shop.py", "+++ b/.ssh/keys"), "without saying rename"),
        (ONE.replace("--- a/shop.py", "--- /dev/null"), None),
        ("diff --git a/a b/a\nrename from a\nrename to b\n--- a/a\n+++ b/c\n@@ -1 +1 @@\n-a\n+b\n",
         "two ways"),
        ("diff --git a/a b/b\nold mode 100644\nnew mode 100755\n", "which file"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "/dev/null"),
        ("--- a/a\n+++ b/a\n", "without a hunk"),
        ("@@ -1 +1 @@\n-a\n+b\n", "hunk of no file"),
        (ONE.replace("-1,3 +1,3", "-1,9 +1,3"), "cut short"),
        (ONE.replace("-1,3 +1,3", "-1,1 +1,3"), "hunk's head"),
        (ONE + ONE, "names a file twice"),
        (ONE.replace("first", "fir\0st"), "NUL"),
        (ONE.replace("first", "\ud83d"), "not text"),
        ('--- "a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\n', "closing quote"),
        (ONE + "+" * 10_000_001, "at most"),
    ],
)  # fmt: skip
def test_what_two_programs_could_read_in_two_ways_is_refused(text: str, why: str | None) -> None:
    if why is None:
        assert parse_patch(text).files[0].old is None  # a creation: git then refuses its context
        return
    with pytest.raises(PatchRefused, match=why):
        parse_patch(text)


def test_random_damage_is_refused_or_understood_but_never_crashes() -> None:
    random.seed(7)
    whole = ONE + changes("new.py", created=True) + changes('"odd\\303\\244.py"')
    for _ in range(3000):
        at, width = random.randrange(len(whole)), random.randrange(6)
        text = whole[:at] + random.choice('+-@ \n/\\"ab0') * width + whole[at + width :]
        try:
            again = parse_patch(text)
        except PatchRefused:
            continue
        assert parse_patch(again.text).text == again.text
        assert not any(".." in path.split("/") or path[:1] == "/" for path in again.paths)


def git(folder: Path, *command: str, given: str | None = None) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command],
        cwd=folder, input=given, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    names = ["plain.txt", "with space.txt", "ünï.txt", 'qu"ote.txt', "gone.txt", "moved.txt", "run"]
    for name in names:
        (tmp_path / name).write_text("".join(f"{name} {line}\n" for line in range(40)))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_what_git_wrote_means_the_same_after_reading(repository: Path) -> None:
    for name in ("plain.txt", "with space.txt", "ünï.txt", 'qu"ote.txt'):
        path = repository / name
        path.write_text(path.read_text().replace(" 3\n", " three\n").replace(" 33\n", "\n") + "end")
    (repository / "gone.txt").unlink()
    (repository / "moved.txt").rename(repository / "there.txt")
    (repository / "run").chmod(0o755)
    (repository / "empty.txt").write_text("")
    (repository / "deep").mkdir()
    (repository / "deep/new\ttab.txt").write_text("no newline")
    (repository / "deep/new\ttab.txt").unlink()
    (repository / "deep/new.txt").write_text("no newline")
    git(repository, "add", "-A")
    diff = git(repository, "diff", "--cached", "-M")
    wanted = git(repository, "write-tree")
    git(repository, "reset", "-q", "--hard")
    git(repository, "apply", "--index", "-", given=parse_patch(diff).text)
    assert git(repository, "write-tree") == wanted
    git(repository, "apply", "--index", "-", given=parse_patch(diff).reversed().text)
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "path",
    ["tests/test_a.py", "pkg/tests/data/wanted.json", "test_a.py", "a_test.go", "src/a.test.tsx",
     "spec/a_spec.rb", "FooTest.java", "conftest.py", "pkg/conftest.py", "pytest.ini", "tox.ini",
     "setup.cfg", "pyproject.toml", "package.json", "sitecustomize.py", "lib/a.pth",
     "jest.config.js", "Rakefile", "node_modules/jest/index.js", ".gitattributes",
     "checks/shop.py", "src/__pycache__/a.cpython-311.pyc"],
)  # fmt: skip
def test_a_patch_of_tests_or_of_what_steers_them_counts_for_nothing(path: str) -> None:
    """Defect 4.4 of the reference: a model that edits tests is not detected."""
    assert kept(changes(path) + changes("shop.py")) == {"shop.py"}


@pytest.mark.parametrize("path", ["pytest.py", "unittest/__init__.py", "lib/_pytest/main.py"])
def test_a_new_file_that_stands_in_for_the_runner_counts_for_nothing(path: str) -> None:
    assert kept(changes(path, created=True)) == frozenset()
    assert kept(changes(path)) == {path}


def test_a_rename_over_a_test_counts_for_nothing() -> None:
    rename = "diff --git a/shop.py b/tests/a.py\nrename from shop.py\nrename to tests/a.py\n"
    assert kept(rename) == frozenset()


def test_files_of_the_test_patch_count_for_nothing_even_when_the_gold_patch_has_them() -> None:
    both = changes("lib/shop.py")
    assert kept(both, test_patch=both, patch=both) == frozenset()


def test_what_the_gold_patch_changes_is_kept_and_so_are_its_neighbours() -> None:
    gold = changes("django/test/client.py") + changes("setup.cfg")
    patch = gold + changes("django/test/utils.py") + changes("tests/test_a.py")
    assert kept(patch, patch=gold) == {"django/test/client.py", "setup.cfg", "django/test/utils.py"}


def test_ids_that_name_a_module_protect_its_file() -> None:
    ids = ("test_add (sums.cases.AddCase)", "test_none", "A docstring with (words in it).")
    patch = changes("lib/sums/cases.py") + changes("sums.py")
    assert kept(patch, fail_to_pass=ids) == {"sums.py"}


def test_ordinary_sources_are_kept() -> None:
    paths = ["src/contest.py", "lib/testing.py", "latest.py", "docs/a.md", "Makefile", "a/b.rb"]
    assert kept("".join(map(changes, paths))) == set(paths)
