"""python -m clawrl_gym.new env|agent|judge|algorithm|loss NAME [--folder DIR]

Writes a small package of your own, FOLDER/NAME: a class or function that works, a test that passes,
and a pyproject.toml whose entry point lets a run find it by name once the package is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import AGENTS, ALGORITHMS, ENVIRONMENTS, JUDGES, LOSSES, Seam

TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A skeleton that can be written, and how a run uses it."""

    seam: Seam
    suffix: str
    """Ends the class's name; unused for a function, whose name is the package's."""
    setting: str
    """The key of the command line that names it."""
    option: str
    """One of its options, as the command line gives it."""

    def target(self, module: str, kind: str) -> str:
        """The name of what the package holds."""
        if self.seam.takes == "function":
            return module
        return f"{_class_stem(module, kind)}{self.suffix}"


SKELETONS = {
    "env": Skeleton(ENVIRONMENTS, "Config", "env", "env.largest=20"),
    "agent": Skeleton(AGENTS, "Agent", "agent", "agent.options.max_lines=5"),
    "judge": Skeleton(JUDGES, "Judge", "judge", "judge.options.max_chars=400"),
    "algorithm": Skeleton(ALGORITHMS, "Algorithm", "trainer", "trainer.options.decay=0.9"),
    "loss": Skeleton(LOSSES, "", "loss", "trainer.loss.options.cap=0.5"),
}


def write_skeleton(kind: str, name: str, parent: Path) -> Path:
    """Write the package; returns its folder. Raises ConfigError when it cannot be there."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    module = _module_name(name)
    seam = SKELETONS[kind].seam
    if module in {*seam.builtin, *seam.words}:
        raise ConfigError(f"got the name {name!r}, which is one of ours: {seam.key}={module}")
    folder = parent / module
    if folder.exists():
        raise ConfigError(f"{folder} is there already; choose another name or --folder")
    skeleton = SKELETONS[kind]
    words = {
        "module": module,
        "stem": _class_stem(module, kind),
        "target": skeleton.target(module, kind),
        "group": skeleton.seam.group,
        "setting": skeleton.setting,
        "option": skeleton.option,
        "kind": kind,
    }
    # what is made is code and plain text, never a page
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    files = {
        "pyproject.toml": "pyproject.toml.j2",
        "README.md": "README.md.j2",
        f"{module}/__init__.py": f"{kind}.py.j2",
        f"tests/test_{module}.py": f"test_{kind}.py.j2",
    }
    for path, template in files.items():
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(environment.get_template(template).render(words))
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error}") from error
    return folder


def _class_stem(module: str, kind: str) -> str:
    """`my_judge` and `my` are both MyJudge."""
    *first, last = module.split("_")
    parts = first if first and last == kind else [*first, last]
    return "".join(part.title() for part in parts)


def _module_name(name: str) -> str:
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module) or keyword.iskeyword(module):
        raise ConfigError(
            f"got the name {name!r}, expected small letters, digits and _, and no word of Python's"
        )
    if importlib.util.find_spec(module) is not None:
        raise ConfigError(f"got the name {name!r}, which is a module here already: choose another")
    return module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m clawrl_gym.new",
        description="Write a small package with a class or function of your own.",
    )
    parser.add_argument("kind", choices=SKELETONS)
    parser.add_argument("name", help="of the package, such as my_judge")
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="where it goes; here by default"
    )
    args = parser.parse_args(arguments)
    try:
        folder = write_skeleton(args.kind, args.name, args.folder)
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    skeleton = SKELETONS[args.kind]
    sys.stdout.write(
        f"{folder}: its test passes with `python -m pytest {folder}`\n"
        f"pip install -e {folder}\n"
        f"python -m clawrl_gym.train {skeleton.setting}={folder.name} {skeleton.option}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
