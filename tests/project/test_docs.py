"""What the pages say is there: links, files, keys, names, commands; and their code runs."""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import clawrl_gym as cg
from clawrl_gym.config.compose import groups_of
from clawrl_gym.core.plugins import LOSSES
from clawrl_gym.run import sweep
from tests.support.pages import ROOT, Block, Page, pages

PAGES = pages()
TRUE_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""A changelog names what was."""
BLOCKS = [block for page in PAGES for block in page.python]
COMMANDS = {name: name for name in ("train", "sft", "serve", "evaluate", "rejudge", "bench")}
"""Those that take a configuration."""
LIBRARY_COMMANDS = {
    "run_training": "train", "run_sft": "sft", "run_serving": "serve", "run_evaluation": "evaluate",
    "run_comparison": "bench", "run_episode": "evaluate",
}  # fmt: skip
CONFIGS = (cg.RunConfig, cg.SftConfig, cg.ServeConfig, cg.EvaluateConfig, cg.BenchConfig)
LOSSES_OPTIONS = {
    f"{LOSSES.options_key}.{name}"
    for loss in LOSSES.builtin
    for name in getattr(LOSSES.resolve(loss).options_model, "model_fields", ())
}
KEYS = {key for config in CONFIGS for key in config.dotted_keys()} | LOSSES_OPTIONS
TREES = ("mixture.", "judge.replies.", "judge.results.", "judge.words.")
"""Keys with names of their own below them."""
FILE = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
SUFFIXES = (".py", ".sh", ".yaml", ".yml", ".toml", ".j2", ".lock", ".Dockerfile", ".js", ".mjs")
OF_A_RUN = (".db", ".json", ".jsonl", ".yaml", ".html")
OF_A_USER = (
    "my_",
    "runs/",
    "experiment/",
    "env/",
    "task.",
    "config.yaml",
    "evaluation.yaml",
    "env.py",
    "source.py",
    ".docker/",
)
"""Files that pages name and that are a user's or a run's, or stand for several."""
FOLDERS = ("agents", "bench", "clawrl_gym", "conf", "docker", "envs", "examples", "locks", "tests",
           "tools", "trainers")  # fmt: skip


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as the pages assume it: with the modules that they show, a run and recipes."""
    for block in BLOCKS:
        if block.file is not None:
            file = tmp_path / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code)
    (tmp_path / "my_conf/experiment").mkdir(parents=True)
    (tmp_path / "my_conf/experiment/mine.yaml").write_text("# @package _global_\nseed: 1\n")
    run = yaml.safe_dump(cg.load_config([]).model_dump(mode="json"))
    (tmp_path / "runs/NAME").mkdir(parents=True)
    (tmp_path / "runs/NAME/config.yaml").write_text(run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("my_")]:
        del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links:
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in Page(path).anchors, f"{page.name}: {link}"


def test_every_page_is_linked_from_another_one() -> None:
    linked = {(page.path.parent / link.partition("#")[0]).resolve()
              for page in PAGES for link in page.links}  # fmt: skip
    linked.add(ROOT / "README.md")
    alone = {page.name for page in PAGES if page.path not in linked}
    assert alone == {".github/pull_request_template.md", "agents/openclaw/README.md"}


def test_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) < 11_000
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 80


@pytest.mark.parametrize("page", TRUE_TODAY, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Page) -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.*")]
    names = {file.name for file in [*files, *ROOT.iterdir()]}
    for code in page.inline_code:
        if not FILE.fullmatch(code) or code.startswith(OF_A_USER):
            continue
        if "/" not in code and code.endswith(SUFFIXES):
            assert code in names, f"{page.name}: {code}"
        elif (ROOT / code.partition("/")[0]).exists() or code.endswith(SUFFIXES):
            assert (ROOT / code).exists(), f"{page.name}: {code}"


@pytest.mark.parametrize("page", TRUE_TODAY, ids=lambda page: page.name)
def test_keys_that_are_named_exist(page: Page) -> None:
    tops = {key.partition(".")[0] for key in KEYS}
    for code in page.inline_code:
        for key in re.findall(r"(?<![\w./:~-])([a-z_]+(?:\.[a-z_]+)+)(?=[=\s,]|$)", code):
            ours = key.partition(".")[0] in tops and not key.endswith(OF_A_RUN)
            if ours and not key.startswith(TREES):
                assert key in KEYS, f"{page.name}: {code}"


@pytest.mark.parametrize("page", TRUE_TODAY, ids=lambda page: page.name)
def test_options_of_groups_that_are_named_exist(page: Page) -> None:
    groups: dict[str, set[str]] = {}
    for command in COMMANDS:
        for name, options in groups_of(command).items():
            groups.setdefault(name, set()).update(options)
    for code in page.inline_code:
        for group, options in re.findall(r"(?:^|\s)([a-z]+)=([a-z][\w|]*)(?=\s|$)", code):
            if group in groups:
                unknown = set(options.split("|")) - groups[group]
                assert not unknown - {"examples", "my_judge", "my_kind", "tapered"}, (
                    f"{page.name}: {code}"
                )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_library_exist(page: Page) -> None:
    text = page.path.read_text()
    names = set(re.findall(r"\bcg\.(\w+)", text))
    assert names <= set(cg.__all__), page.name


def test_every_name_of_the_library_is_on_its_page() -> None:
    codes = Page(ROOT / "docs/library.md").inline_code
    named = {code.partition("(")[0] for code in codes}
    names = {name.removesuffix("_async") for name in cg.__all__ if name != "__version__"}
    assert names - named == set()


def _numbers() -> dict[str, int]:
    """What can be counted, by the words that pages count it with."""
    from clawrl_gym.envs.showcase.gui.families import FAMILIES as GUI
    from clawrl_gym.envs.showcase.swe.corpus.repository import families, repository_family
    from clawrl_gym.envs.showcase.terminal.families import FAMILIES as TERMINAL
    from clawrl_gym.envs.showcase.toolcall.families import FAMILIES as TOOLCALL
    from clawrl_gym.store.schema import SCHEMA_VERSION

    return {
        r"terminal`\].* (\d+) (?:generated )?families": len(TERMINAL),
        r"toolcall`\].* (\d+) (?:generated )?families": len(TOOLCALL),
        r"gui`\].* (\d+) (?:generated )?families": len(GUI),
        r"all (\d+) families": len(GUI),
        r"(\d+) made-up repositories": len(families()),
        r"repositories with (\d+) bugs": sum(len(repository_family(f).bugs) for f in families()),
        r"one in (\d+) lines|your own is (\d+) lines": len(
            (ROOT / "examples/rl_loop.py").read_text().splitlines()
        ),
        r"schema version \((\d+) now": SCHEMA_VERSION,
    }


def test_numbers_are_those_of_the_code() -> None:
    text = "\n".join(page.path.read_text() for page in TRUE_TODAY)
    for words, number in _numbers().items():
        written = [
            value for groups in re.finditer(words, text) for value in groups.groups() if value
        ]
        assert set(written) == {str(number)}, words


def test_every_dependency_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    names = {re.split(r"[^\w-]", name)[0] for group in groups for name in group}
    named = set(Page(ROOT / "docs/dependencies.md").inline_code)
    assert names - named == set()


def test_programs_that_are_named_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = "\n".join(page.path.read_text() for page in TRUE_TODAY)
    named = set(re.findall(r"[`/ ](clawrl-\w+)", text)) - {project["name"]}
    assert named
    assert named <= set(project["scripts"])


def _overrides_of(code: str) -> Iterator[tuple[str, list[str]]]:
    """(command, overrides) of the library's calls with a literal list."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        command = LIBRARY_COMMANDS.get(node.func.attr.removesuffix("_async"))
        if command and node.args and isinstance(node.args[0], ast.List):
            yield command, ast.literal_eval(node.args[0])


@pytest.mark.sandbox
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_python_runs_or_is_composed(block: Block, user_folder: Path) -> None:
    compile(block.code, f"{block.page}:{block.line}", "exec")
    if not block.needs_server:
        done = subprocess.run(
            [sys.executable, "-c", block.code],
            cwd=user_folder, capture_output=True, text=True, timeout=120,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    for command, overrides in _overrides_of(block.code):
        cg.load_config(overrides, command)  # type: ignore[call-overload]


class _Parsed(Exception):
    """A command read its arguments."""


def _parse_and_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, args: list[str] | None = None) -> None:
        parse(self, args)
        raise _Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)


def _make_targets() -> dict[str, str]:
    """Recipe by target."""
    text = (ROOT / "Makefile").read_text()
    return dict(re.findall(r"^([a-z-]+):[^\n]*\n((?:\t[^\n]*\n)*)", text, re.MULTILINE))


def _check_configuration(command: str, arguments: list[str]) -> None:
    if "--help" in arguments:
        return
    if set(sweep.FLAGS) & set(arguments):
        arguments = [word.partition(",")[0] for word in arguments if word not in sweep.FLAGS]
    cg.load_config(arguments, command)  # type: ignore[call-overload]


def _check_script(script: Path, arguments: list[str]) -> None:
    source = script.read_text()
    for word in arguments:
        if word.startswith("--"):
            assert f'"{word}"' in source, f"{script.name} has no {word}"
    if script.name == "main_job.py":
        cg.load_config([word for word in arguments if "=" in word], "train")


def _check_module(module: str, arguments: list[str]) -> None:
    """Runs it, as `python -m` does, until its arguments are read."""
    source = Path(str(import_module(module).__file__))
    main = source.with_name("__main__.py") if source.name == "__init__.py" else source
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *arguments])
        runpy.run_path(str(main), run_name="__main__")


def _check_command(module: str, arguments: list[str]) -> None:
    name = module.removeprefix("clawrl_gym.")
    is_action = bool(arguments) and arguments[0].isalpha()  # such as `evaluate compare A B`
    if name == "teacher_probe":  # a run's configuration, or the folder of one
        _check_configuration("train", [word for word in arguments if "=" in word])
    elif name in COMMANDS and not is_action:
        _check_configuration(name, arguments)
    elif module.startswith("clawrl_gym."):
        _check_module(module, arguments)


def _check(words: list[str]) -> None:
    """Whether a command line would be taken. Raises what is wrong with it, or _Parsed."""
    if words[0] == "make":
        targets = _make_targets()
        for word in words[1:]:
            if word.startswith("ARGS="):
                if "ARGS" in targets[words[1]] and words[1] in COMMANDS:
                    _check_configuration(words[1], word.removeprefix("ARGS=").split())
            elif "=" not in word:
                assert word in targets, f"make {word}"
    elif words[0].endswith("python") and words[1] == "-m":
        _check_command(words[2], words[3:])
    elif words[0].endswith("python"):
        assert (ROOT / words[1]).exists(), words[1]
        _check_script(ROOT / words[1], words[2:])


@pytest.mark.parametrize("page", TRUE_TODAY, ids=lambda page: page.name)
def test_commands_would_be_taken(
    page: Page, user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _parse_and_stop(monkeypatch)
    for words in page.commands:
        try:
            _check(words)
        except _Parsed:
            pass
        except (cg.ClawError, AssertionError, SystemExit) as error:
            pytest.fail(f"{page.name}: {' '.join(words)}: {error}")


def test_the_pages_commands_are_found() -> None:
    lines = [" ".join(words) for page in PAGES for words in page.commands]
    assert "make train" in lines
    assert "python -m clawrl_gym.serve print_config=true" in lines
    assert len([line for line in lines if "clawrl_gym." in line]) > 30


def _yaml_files() -> list[Path]:
    return [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]


@pytest.mark.parametrize("file", _yaml_files(), ids=lambda file: file.name)
def test_workflows_and_forms_are_yaml_and_call_what_exists(file: Path) -> None:
    text = file.read_text()
    assert isinstance(yaml.safe_load(text), dict)
    for action in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), f"{file.name}: {action} is not pinned"
    for target in re.findall(r"\bmake ([a-z]\S*)$", text, re.MULTILINE):
        assert target in _make_targets(), f"{file.name}: make {target}"


def test_what_the_hooks_run_is_what_make_check_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    check = _make_targets()["check"]
    for hook in hooks:
        assert " ".join(hook["entry"].split()[:2]).removesuffix(" --no-logo") in check
