"""What `make figures` says of pages and of a repository's commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clawrl_gym.inference.models.shipped import SHIPPED
from tools.figures import Age, Figure, age, figures, measured_at

PAGE = """# Measured

Measured at abc1234 with weights `tiny_skills` by `python bench/one.py`:

| seed | success |
|---|---|
| 0 | 98 % |
| 1, def5678 | 97 % |

## Elsewhere

| what | measured by |
|---|---|
| starts, toolz@1a2b3c4 | `python -m bench.two` |
| 1234567 tokens | by hand |
"""


def test_a_figure_names_its_commit_its_weights_and_its_script(tmp_path: Path) -> None:
    page = PAGE.replace("1234567 tokens", "1,234,567 tokens")
    assert list(figures("docs/measured.md", page, tmp_path)) == [
        Figure("docs/measured.md", 3, "abc1234", "tiny_skills", ("bench/one.py",)),
        Figure("docs/measured.md", 8, "def5678", "tiny_skills", ()),
        Figure("docs/measured.md", 14, None, "tiny", ("bench/two.py",)),
    ]


@pytest.mark.parametrize(
    ("script", "weights"),
    [
        ("from clawrl_gym.envs.sandbox import Sandboxes", None),
        ("from clawrl_gym.inference.models.resolve import resolve_model", "tiny"),
        ('command = [sys.executable, "-m", "clawrl_gym.train", "env=gui"]', "tiny"),
        ('"""python bench/two.py RUN"""', "tiny"),
    ],
)
def test_a_figure_of_a_script_that_runs_no_policy_rests_on_no_weights(
    tmp_path: Path, script: str, weights: str | None
) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/two.py").write_text(script)
    line = "Starts a second, abc1234: `python bench/two.py`"
    assert [figure.weights for figure in figures("page.md", line, tmp_path)] == [weights]
    named = f"{line}, weights `tiny_skills`"
    assert [figure.weights for figure in figures("page.md", named, tmp_path)] == ["tiny_skills"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    commit(tmp_path, {"bench/one.py": "1", weights("tiny"): "a", weights("tiny_skills"): "a"})
    return tmp_path


def test_a_figure_is_out_of_date_when_its_weights_were_changed(repository: Path) -> None:
    first = git(repository, "rev-parse", "--short=7", "HEAD")
    of_tiny = Figure("page.md", 1, first, "tiny", ("bench/one.py",))
    of_skills = Figure("page.md", 1, first, "tiny_skills", ())
    assert age(of_tiny, repository) == Age(0, False, ())
    commit(repository, {"bench/one.py": "2", weights("tiny_skills"): "b"})
    assert age(of_tiny, repository) == Age(1, False, ("bench/one.py",))
    assert age(of_skills, repository) == Age(1, True, ())
    assert [age(figure, repository).is_outdated for figure in (of_tiny, of_skills)] == [False, True]
    of_none = Figure("page.md", 1, first, None, ("bench/one.py",))
    assert age(of_none, repository) == Age(1, False, ("bench/one.py",))


def test_weights_may_have_had_another_name(repository: Path) -> None:
    commit(repository, {weights("tiny_skills"): "c"})
    of_tiny = Figure("page.md", 1, git(repository, "rev-parse", "--short=7", "HEAD"), "tiny", ())
    commit(repository, {weights("tiny"): "c"})
    assert not age(of_tiny, repository).weights_changed
    commit(repository, {weights("tiny"): "d"})
    assert age(of_tiny, repository).weights_changed


def test_a_commit_that_is_not_there_is_out_of_date(repository: Path) -> None:
    assert age(Figure("page.md", 1, "0000001", "tiny", ()), repository).is_outdated


def test_without_a_commit_the_one_that_wrote_the_line_counts(repository: Path) -> None:
    commit(repository, {"page.md": "one\n"})
    commit(repository, {"page.md": "one\ntwo\n"})
    by_line = [Figure("page.md", line, None, "tiny", ()) for line in (1, 2)]
    assert [age(figure, repository).commits for figure in by_line] == [1, 0]
    (repository / "page.md").write_text("one\ntwo, now\n")
    assert measured_at(by_line[1], repository) == "HEAD", "not yet committed"


def weights(name: str) -> str:
    return f"clawrl_gym/inference/models/{SHIPPED[name]}/model.safetensors"


def commit(repository: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    git(repository, "add", ".")
    git(repository, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "x")


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=repository, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
