"""What SWE does with what a machine has: an engine, bubblewrap or neither; test frameworks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError, SandboxError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.showcase.swe.corpus.repository import families, repository_family
from clawrl_gym.envs.swe import __main__ as command
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.env import SweEnv
from clawrl_gym.envs.swe.machine import require_package
from clawrl_gym.envs.swe.modules import MODULES_FOLDER, module_mounts
from clawrl_gym.envs.swe.rows.runners import missing_runners, modules_for
from clawrl_gym.envs.validate import main
from tests.support.fake_engine import FakeEngine, without_engines
from tests.support.sandbox_roots import make_root

RUNNERS = ("pytest", "unittest")
PYTHON = [name for name in families() if repository_family(name).runner in RUNNERS]
sandboxed = pytest.mark.sandbox


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_engines(tmp_path, monkeypatch)
    return tmp_path


def decide(**options: object) -> tuple[SweEnvConfig, list[str]]:
    """The settled configuration, and what was said of it."""
    words: list[str] = []
    config = SweEnvConfig.of(options).settled(words.append)
    assert config.settled(lambda _: None) == config
    return config, words


def test_an_engine_that_answers_is_taken_with_every_repository(home: Path) -> None:
    with FakeEngine(home / "system.sock") as engine:
        config, words = decide()
    assert (config.sandbox.type, config.families) == ("docker", None)
    assert words == [f"env=swe: sandbox=docker, the system's engine ({engine.url})"]


@sandboxed
def test_without_an_engine_bubblewrap_takes_every_repository_whose_tests_run(home: Path) -> None:
    config, words = decide(families=None)
    assert config.sandbox.type == "bubblewrap"
    assert set(PYTHON) <= set(config.families or families())
    assert words[0].startswith("env=swe: no Docker engine answers, so sandbox=bubblewrap, ")
    assert words[0].endswith(" of 26 repositories")
    easy, _ = decide(instances="easy", families=["key"])
    assert (easy.sandbox.type, easy.families) == ("bubblewrap", ["key"])
    env = SweEnv(**config.options())
    assert env.task_ids("train")[0].startswith("swe-")


@sandboxed
def test_repositories_that_cannot_be_tested_are_left_out_and_told(home: Path) -> None:
    root = make_root(home / "root")
    (root / "usr/bin/python3").symlink_to("/nowhere")
    (root / "usr/bin/node").write_text("#!/bin/bash\necho 'node: bad option' >&2; exit 9\n")
    (root / "usr/bin/node").chmod(0o755)
    (root / "usr/bin/ruby").write_text("#!/bin/bash\n")
    (root / "usr/bin/ruby").chmod(0o755)
    sandbox = {"type": "bubblewrap", "rootfs": str(root)}
    config, words = decide(sandbox=sandbox)
    assert config.families == ["numerals", "playlist", "units", "wordlist"]
    assert words[0] == "env=swe: sandbox=bubblewrap, 4 of 26 repositories"
    left_out = "compare, emitter, letters, pages, query, versions (node: node: bad option)"
    assert f"env=swe: left out {left_out}" in words
    with pytest.raises(ConfigError, match=r"ledger \(unittest: python3: .*in env.families"):
        decide(sandbox=sandbox, families=["units", "ledger"])


@sandboxed
def test_families_of_composed_repositories_that_cannot_be_tested_are_left_out(home: Path) -> None:
    root = make_root(home / "root")
    (root / "usr/bin/node").write_text("#!/bin/bash\n")
    (root / "usr/bin/node").chmod(0o755)
    sandbox = {"type": "bubblewrap", "rootfs": str(root)}
    config, words = decide(instances="composed", sandbox=sandbox)
    assert config.families == ["javascript"]
    assert words[0] == "env=swe: sandbox=bubblewrap, 1 of 9 families"
    with pytest.raises(ConfigError, match=r"filed \(pytest: .*; unittest: .*\); install"):
        decide(instances="composed", sandbox=sandbox, families=["filed"])


@sandboxed
def test_the_pytest_of_this_python_is_seen_by_an_agent_and_by_the_tests() -> None:
    mounts = module_mounts(modules_for(RUNNERS))
    assert f"{MODULES_FOLDER}/pytest" in mounts
    with open_sandbox(Limits(), mounts=mounts) as sandbox:
        assert missing_runners(RUNNERS, sandbox) == {}
        command = f"PYTHONPATH={MODULES_FOLDER} python3 -B -m pytest; ls {MODULES_FOLDER}"
        output = sandbox.exec(command, 20.0).output
    assert f"pytest-{pytest.__version__}, pluggy-" in output  # which it reads in their metadata
    names = set(output.partition("no tests ran")[2].split("\n")[1:-1])
    assert {"pytest", "_pytest", "pluggy"} <= names
    assert {name.partition("-")[0] for name in names} <= {*modules_for(RUNNERS), "py.py"}


@sandboxed
def test_validation_plays_what_runs_here_and_prints_nothing_else_than_its_rows(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = ["swe-cart-heldout-000000", "swe-ledger-heldout-000001"]
    arguments = ["validate", "corpus", "--json", "--ids", ",".join(tasks)]
    code = main("swe", command._arguments, command._make, arguments, prepare=command._prepare)
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert (code, [(row["task"], row["ok"], row["error"]) for row in rows]) == (
        0, [(task, True, "") for task in tasks]
    )  # fmt: skip
    assert "sandbox=bubblewrap" in printed.err


def test_modules_that_are_not_installed_are_left_out() -> None:
    assert module_mounts(("no_such_module_here", "sys")) == {}


def test_a_package_that_every_grade_needs_is_missed_before_the_run() -> None:
    require_package("swebench", "grades with it")
    with pytest.raises(ConfigError, match=r"env=swe reads it, but the package none_such is not"):
        require_package("none_such", "reads it")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"instances": "princeton-nlp/SWE-bench"}, "only Docker runs: env.instances=corpus"),
        ({"heldout": "held.jsonl"}, "only Docker runs: env.instances=corpus"),
        ({"sandbox": {"image": "mine"}}, "no Docker engine answers"),
        ({"sandbox": {"network": True}}, "no Docker engine answers"),
    ],
)
def test_what_only_docker_runs_is_refused_without_an_engine(
    home: Path, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(SandboxError, match=reason):
        decide(**options)


def test_an_engine_that_the_user_names_is_never_replaced(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///wrong.sock")
    with FakeEngine(home / "system.sock"), pytest.raises(SandboxError, match="mend DOCKER_HOST"):
        decide()
    env = SweEnv(families=["operator"])
    with pytest.raises(SandboxError, match="mend DOCKER_HOST"):
        env.reset(seed=0)
    config, _ = decide(sandbox={"type": "docker"})
    assert config.sandbox.type == "docker"


def test_where_nothing_isolates_both_reasons_are_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = {"rootfs": str(home / "none")}
    with pytest.raises(SandboxError, match=r"system\.sock.*it does not run here: .*none"):
        decide(sandbox=sandbox)
