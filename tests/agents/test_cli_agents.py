"""Recipes, starts and installations of agents that work inside a sandbox."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from clawrl_gym.agents.cli import installation
from clawrl_gym.agents.cli.hosts import check_host, with_room
from clawrl_gym.agents.cli.installation import guest_of, installed
from clawrl_gym.agents.cli.recipe import AGENT_FOLDER, HOME, Recipe, start_of
from clawrl_gym.agents.cli.recipes import RECIPES
from clawrl_gym.config import AgentConfig
from clawrl_gym.config.envs import AgentName
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig

LOCKS = Path(installation.__file__).parent / "locks"
AWKWARD = 'say "it\'s" $HOME `id` \\ {model}\n-- and\tmore'


def test_every_agent_of_the_configuration_has_a_recipe_and_a_lock() -> None:
    assert sorted(get_args(AgentName)) == sorted(RECIPES)
    assert sorted(path.name for path in LOCKS.iterdir()) == sorted(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_every_package_of_a_lock_has_a_digest_and_no_address_of_its_own(name: str) -> None:
    if RECIPES[name].packages == "npm":
        packages = json.loads((LOCKS / name / "package-lock.json").read_text())["packages"]
        own = packages.pop("")
        assert re.fullmatch(r"[0-9.]+", next(iter(own["dependencies"].values())))
        bundled = [one for one in packages.values() if one.get("inBundle")]
        assert all(one in bundled or "integrity" in one for one in packages.values())
        assert all("resolved" not in one for one in packages.values())
    else:
        text = (LOCKS / name / "requirements.txt").read_text()
        assert len(re.findall(r"^\S+==\S+", text, re.M)) > 10
        assert all("--hash=sha256:" in one for one in re.split(r"\n(?=\S)", text.strip()))


@pytest.mark.parametrize("name", RECIPES)
def test_a_start_has_all_names_filled_in_and_its_files_can_be_read(name: str) -> None:
    start = start_of(
        RECIPES[name], port=4711, model="tiny", instruction="do it", workdir="/root/a b"
    )
    names = r"\{(instruction|base_url|origin|model|agent|home|workdir|node|python|arch)\}"
    assert not [text for text in start.files.values() if re.search(names, text)]
    for path, text in start.files.items():
        assert path.startswith(f"{HOME}/")
        if path.endswith(".json"):
            assert "4711" in text or "4711" in start.script
            assert json.loads(text)
    subprocess.run(["bash", "-n"], input=start.script, text=True, check=True)


def run(recipe: Recipe, tmp_path: Path, instruction: str = AWKWARD) -> str:
    """What a start's script prints, in a folder that stands for the sandbox's."""
    start = start_of(
        recipe, port=4711, model="tiny", instruction=instruction, workdir=str(tmp_path)
    )
    for path, text in start.files.items():
        (tmp_path / Path(path).name).write_text(text)
    script = start.script.replace(HOME, str(tmp_path))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_instruction_comes_as_an_argument_word_for_word(tmp_path: Path) -> None:
    assert run(Recipe(("printf", "%s", "{instruction}")), tmp_path) == AWKWARD


def test_the_instruction_comes_on_standard_input_where_no_argument_asks_for_it(
    tmp_path: Path,
) -> None:
    assert run(Recipe(("cat",)), tmp_path) == AWKWARD


def test_a_program_finds_the_policy_by_its_variables_and_writes_its_exit_code(
    tmp_path: Path,
) -> None:
    command = "echo $OPENAI_BASE_URL $ANTHROPIC_BASE_URL $CLAWRL_MODEL $MINE; pwd; exit 7"
    said = run(Recipe(("bash", "-c", command), {"MINE": "{model}!"}), tmp_path)
    base = "http://127.0.0.1:4711"
    assert said == f"{base}/v1 {base} tiny tiny!\n{tmp_path}\n"
    assert (tmp_path / "exit").read_text() == "7\n"


def test_further_variables_win_over_a_recipes() -> None:
    config = AgentConfig(type="cli", command=["true"], env={"A": "b"}, timeout_s=3.0)
    guest = guest_of(config)
    assert (dict(guest.recipe.env), dict(guest.mounts), guest.timeout_s) == ({"A": "b"}, {}, 3.0)


def test_a_folder_of_ones_own_is_shown(tmp_path: Path) -> None:
    config = AgentConfig(type="cli", command=["true"], folder=str(tmp_path))
    assert dict(guest_of(config).mounts) == {AGENT_FOLDER: str(tmp_path)}
    with pytest.raises(ConfigError, match=r"agent\.folder=.*expected a folder that is there"):
        guest_of(AgentConfig(type="cli", command=["true"], folder=str(tmp_path / "no")))


@pytest.mark.parametrize(
    "given",
    [
        {"type": "cli"},
        {"type": "cli", "name": "codex", "command": ["x"]},
        {"type": "cli", "name": "codex", "folder": "/tmp"},
        {"type": "cli", "name": "nobody"},
        {"name": "codex"},
        {"type": "harness", "name": "codex"},
        {"type": "harness", "name": "codex", "command": ["x"]},
    ],
)
def test_a_name_or_a_program_belongs_to_its_type(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AgentConfig.model_validate(given)


FAKE_NPM = """#!/bin/bash
folder="${@: -1}"
mkdir -p "$folder/node_modules"
echo ran >>"$LOG"
[ -z "$FAILS" ] || { echo "npm error 404 '@openai/codex' is not in this registry" >&2; exit 1; }
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry client that stands for npm; its log."""
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(FAKE_NPM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv("FAILS", raising=False)
    return tmp_path / "log"


def test_an_agent_is_installed_once(npm: Path) -> None:
    said: list[str] = []
    folder = installed("codex", said.append)
    assert (folder / "node_modules").is_dir()
    assert (folder / "package-lock.json").read_bytes() == (
        LOCKS / "codex" / "package-lock.json"
    ).read_bytes()
    assert installed("codex", said.append) == folder
    assert npm.read_text() == "ran\n"
    assert len(said) == 1


def test_a_package_that_cannot_be_installed_is_one_line_and_leaves_nothing(
    npm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(ConfigError, match=r"agent\.name=codex cannot be installed.*404") as caught:
        installed("codex")
    assert "\n" not in str(caught.value)
    cache = npm.parent / "cache/clawrl_gym/agents"
    assert [path.name for path in cache.iterdir() if path.is_dir()] == []


def test_a_machine_without_npm_is_told_so(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(npm.parent / "nothing"))
    monkeypatch.setattr(sys, "executable", str(npm.parent / "nothing" / "python"))
    with pytest.raises(ConfigError, match="there is no npm"):
        installed("codex")


def test_environments_with_a_sandbox_hold_agents_and_others_are_refused() -> None:
    check_host(TerminalEnvConfig())
    check_host(SweEnvConfig())
    with pytest.raises(ConfigError, match="expected an environment whose sandbox can hold an ag"):
        check_host(ToolCallEnvConfig())


def test_a_sandbox_that_is_too_small_gets_the_room_that_an_agent_takes() -> None:
    said: list[str] = []
    agent = AgentConfig(type="cli", name="codex")
    env = with_room(TerminalEnvConfig(), agent, said.append)
    assert isinstance(env, TerminalEnvConfig)
    assert (env.sandbox.memory_mb, env.sandbox.disk_mb, env.sandbox.pids) == (2048, 256, 256)
    assert said == ["agent.name=codex: its sandboxes get memory_mb=2048, disk_mb=256, pids=256"]
    assert with_room(env, agent, said.append) is env
    own = AgentConfig(type="cli", command=["true"])
    assert with_room(TerminalEnvConfig(), own, said.append) == TerminalEnvConfig()
    assert len(said) == 1


def test_npm_may_be_beside_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine may have no Node of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(installation._npm(tmp_path)[0]).parent == Path(sys.executable).parent
