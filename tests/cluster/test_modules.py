"""Which modules of one's own a run names, and what of them travels to other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.cluster.modules import foreign_modules, stage
from clawrl_gym.config import (
    AgentConfig,
    LearnerConfig,
    RunConfig,
    SandboxConfig,
    ServeConfig,
    TrainerConfig,
)
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.terminal.config import TerminalEnvConfig


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path, with a module, packages and much that is no source."""
    place = tmp_path / "own"
    for name in (
        "mine_module.py", "beside.py", "notes.txt", ".hidden.py", "mine_package/__init__.py",
        "mine_package/data.json", "mine_package/deep/table.csv", "mine_package/.git/config",
        "plain/more.py", "plain/picture.png", "runs/big.py", "__pycache__/x.py",
        "node_modules/y.py", "site-packages/z.py", "environment/pyvenv.cfg", "environment/a.py",
    ):  # fmt: skip
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"# {name}\n")
    (place / "linked").symlink_to(place / "plain")
    monkeypatch.syspath_prepend(str(place))
    return place


TRAVELS = [
    "beside.py", "mine_module.py", "mine_package/__init__.py", "mine_package/data.json",
    "mine_package/deep/table.csv", "plain/more.py",
]  # fmt: skip


@pytest.mark.parametrize("module", ["mine_module", "mine_package"])
@pytest.mark.usefixtures("own")
def test_sources_beside_a_module_and_whole_packages_travel(module: str, tmp_path: Path) -> None:
    assert stage([module], tmp_path / "out")
    assert files_in(tmp_path / "out") == TRAVELS
    assert (tmp_path / "out" / "mine_package" / "data.json").read_text() == (
        "# mine_package/data.json\n"
    )
    assert stage([module, "json", "pytest"], tmp_path / "again")
    assert files_in(tmp_path / "again") == TRAVELS


def test_what_is_installed_or_nowhere_does_not_travel(tmp_path: Path) -> None:
    for modules in ([], ["json", "pytest", "sys", "pydantic"], ["nowhere_at_all"], [""]):
        assert not stage(modules, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_more_than_travels_is_refused(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawrl_gym.cluster.modules._MAX_MB", 1)
    used = sum((own / name).stat().st_size for name in TRAVELS)
    large = own / "mine_package" / "weights.bin"
    large.write_bytes(bytes(2**20 - used))
    assert stage(["mine_module"], tmp_path / "all")
    large.write_bytes(bytes(2**20 - used + 1))
    with pytest.raises(ConfigError, match=rf"more than 1 MiB of Python modules in {own}, expected"):
        stage(["mine_module"], tmp_path / "out")


def test_modules_of_every_seam_are_named_but_none_of_ours() -> None:
    assert foreign_modules(RunConfig(), []) == set()
    assert foreign_modules(RunConfig(), [TerminalEnvConfig()]) == set()
    seams: dict[str, Any] = {
        "trainer": TrainerConfig.model_construct(algorithm="algorithms.mine:A"),
        "learner": LearnerConfig.model_construct(backend="learners:L"),
    }
    assert foreign_modules(RunConfig().model_copy(update=seams), []) == {"algorithms", "learners"}
    serving = ServeConfig().model_copy(update=seams)
    assert foreign_modules(serving, []) == {"algorithms", "learners"}
    agent = AgentConfig.model_construct(type="agents.deep.er:A", command=[])
    assert foreign_modules(RunConfig().model_copy(update={"agent": agent}), []) == {"agents"}
    sandbox = SandboxConfig.model_construct(type="boxes:B")
    terminal = TerminalEnvConfig().model_copy(update={"sandbox": sandbox})
    assert foreign_modules(RunConfig(), [terminal]) == {"boxes"}
    gyms = [GymEnvConfig(target="mine.env:E"), GymEnvConfig(id="registers:Mine-v0")]
    assert foreign_modules(RunConfig(), gyms) == {"mine", "registers"}
    ours = GymEnvConfig(target="clawrl_gym.envs.gym.env:E")
    assert foreign_modules(RunConfig(), [ours]) == set()
