"""`make figures`: tell which figures in README and docs are older than what they were measured on.

A figure names the commit that it was measured at, seven letters beside it or in the sentence above
its table, and there its weights, `tiny` where it names none; it rests on no weights when its script
runs no policy. One that names a script alone counts from the commit that wrote its line, which may
be later than its measurement. A commit of another repository is written NAME@COMMIT. A figure is
out of date when today's weights were not shipped then, under whatever name, and nobody can tell
when this repository has no such commit; both end with status 1. That its script was changed since
is reported: it may matter or not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from clawrl_gym.inference.models.shipped import SHIPPED

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/*.md")
_MODELS = "clawrl_gym/inference/models"
_WEIGHTS_FILE = "model.safetensors"
_COMMIT = re.compile(r"(?<![@\w/.-])(?=[0-9a-f]*[0-9])[0-9a-f]{7}(?![\w-])")
_WEIGHTS = re.compile(r"weights (?:of )?`(\w+)`")
_SCRIPT = re.compile(r"(?<![\w/])bench/(\w+)\.py\b|-m bench\.(\w+)")
_RUNS_A_POLICY = re.compile(
    r"\bresolve_model\b|\bload_config\b|\bclawrl_gym\.(train|serve|evaluate|bench)\b|\bRUN\b"
)
"""In a script of `bench/`: it serves a model, composes a run, or reads one that is named."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A line with a figure of a command, and what is said of how it was made."""

    page: str
    line: int
    """Line number from 1."""
    commit: str | None
    """Commit of the figure; None where it names none."""
    weights: str | None
    """Name of the shipped model; None where no policy is run."""
    scripts: tuple[str, ...]
    """Files below `bench/`, as far as named."""


@dataclass(frozen=True, slots=True)
class Age:
    """Changes since a figure's commit."""

    commits: int | None
    """Number of commits since then; None for a commit that is not there."""
    weights_changed: bool
    scripts_changed: tuple[str, ...]

    @property
    def is_outdated(self) -> bool:
        return self.commits is None or self.weights_changed


def figures(name: str, text: str, repository: Path) -> Iterator[Figure]:
    """Every line of a page that names a commit, and every table or sentence of a script without."""
    lead = ""
    of_lead: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            lead, of_lead = "", []
        elif line and not line.startswith("|"):
            lead, of_lead = line, _COMMIT.findall(line)
        commits = _COMMIT.findall(line)
        about = f"{lead}\n{line}"
        named = [weights for weights in _WEIGHTS.findall(about) if weights in SHIPPED]
        called = (path or module for path, module in _SCRIPT.findall(line))
        scripts = tuple(dict.fromkeys(f"bench/{script}.py" for script in called))
        weights = named[-1] if named else _usual_weights(scripts, repository)
        for commit in commits or ([None] if scripts and not of_lead else []):
            yield Figure(name, number, commit, weights, scripts)


def _usual_weights(scripts: tuple[str, ...], repository: Path) -> str | None:
    """Weights of a figure that names none: `tiny`, unless its scripts exist and run no policy."""
    files = [repository / script for script in scripts]
    if not files or not all(file.exists() for file in files):
        return "tiny"
    return "tiny" if any(_RUNS_A_POLICY.search(file.read_text()) for file in files) else None


def measured_at(figure: Figure, repository: Path) -> str | None:
    """The commit that it names, else the one that wrote its line; None if it is not there."""
    if figure.commit is None:
        line = f"{figure.line},{figure.line}"
        written = _git(repository, "blame", "-s", "--abbrev=6", "-L", line, "--", figure.page)
        commit = written.split(" ", 1)[0].lstrip("^")
        return "HEAD" if set(commit) == {"0"} else commit
    try:
        return _git(repository, "rev-parse", "-q", "--short=7", f"{figure.commit}^{{commit}}")
    except subprocess.CalledProcessError:
        return None


def age(figure: Figure, repository: Path) -> Age:
    """Changes in the repository since the measurement. Raises CalledProcessError."""
    commit = measured_at(figure, repository)
    if commit is None:
        return Age(None, False, ())

    def commits(*paths: str) -> int:
        since = _git(repository, "rev-list", "--count", f"{commit}..HEAD", "--", *paths)
        return int(since)

    changed = tuple(path for path in figure.scripts if commits(path))
    return Age(commits(), _weights_changed(figure.weights, commit, repository), changed)


def _weights_changed(weights: str | None, commit: str, repository: Path) -> bool:
    if weights is None:
        return False
    today = _git(repository, "rev-parse", f"HEAD:{_MODELS}/{SHIPPED[weights]}/{_WEIGHTS_FILE}")
    return today not in _git(repository, "ls-tree", "-r", commit, "--", "clawrl_gym")


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=repository, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def main() -> int:
    """Print the ages; 1 where a figure is out of date or names a commit that is not there."""
    paths = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    found = [
        figure
        for path in paths
        for figure in figures(str(path.relative_to(ROOT)), path.read_text(), ROOT)
    ]
    table = Table(
        Column("figure", no_wrap=True), "commit", "commits ago", "weights", "changed since"
    )
    outdated = 0
    for figure in found:
        since = age(figure, ROOT)
        outdated += since.is_outdated
        changed = [f"weights {figure.weights}"] * since.weights_changed + [*since.scripts_changed]
        table.add_row(
            f"{figure.page}:{figure.line}",
            figure.commit or "names none",
            "no such commit" if since.commits is None else str(since.commits),
            figure.weights or "",
            ", ".join(changed),
            style="red" if since.is_outdated else None,
        )
    console = Console()
    console.print(table)
    console.print(f"{outdated} of {len(found)} out of date")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
