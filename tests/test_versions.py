"""Earlier versions of the weights: which are kept, over HTTP and in a folder that nobody serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from clawrl_gym import rollback
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.gateway.versions import VersionJson
from clawrl_gym.policy.checkpoints import list_checkpoints
from clawrl_gym.run.folder import RunFolder
from clawrl_gym.run.versions import return_to
from clawrl_gym.store import Store, UpdateRow
from tests.gateway_rig import Bench


class Keeper:
    """Keeps versions 0 and 3."""

    async def versions(self) -> list[VersionJson]:
        return [{"version": 3, "created_s": 1.5, "returned_to": None}]

    async def return_to(self, version: int) -> int:
        if version != 3:
            raise ConfigError(f"got version {version}, expected one that is kept: 3")
        return 9


async def test_the_owner_lists_versions_and_has_one_serve_again(bench: Bench) -> None:
    status, _, _ = await bench.post("/v1/versions/3", None)
    assert status == 409
    bench.gateway.versions.keeper = Keeper()
    _, listed, _ = await bench.get("/v1/versions")
    assert listed["data"][0]["version"] == 3
    _, back, _ = await bench.post("/v1/versions/3", None)
    assert back == {"returned_to": 3, "version": 9}
    for version, expected in (("4", 404), ("x", 400), ("-1", 400), ("9" * 40, 400)):
        status, answer, _ = await bench.post(f"/v1/versions/{version}", None)
        assert status == expected, version
        assert version in answer["error"]["message"]


@pytest.fixture
async def run(tmp_path: Path) -> RunFolder:
    """Three updates, checkpoints after the first two, nobody there."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.config_file.write_text(yaml.safe_dump({"command": "serve", "gateway": {"port": 1}}))
    store = Store.open(folder.path)
    for version in (1, 2, 3):
        checkpoint = folder.checkpoints / f"{version:06d}"
        if version < 3:
            checkpoint.mkdir(parents=True)
            (checkpoint / "weights").write_text(str(version))
        kept = str(checkpoint) if version < 3 else None
        await store.add_update(UpdateRow(version, tokens=1, duration_s=0.1), [], kept)
    await store.close()
    return folder


def test_a_run_at_rest_goes_on_from_the_version_that_came_back(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rollback.main([str(run.path), "1"]) == 0
    assert "version 1 is back, as version 3" in capsys.readouterr().out
    assert (run.checkpoints / "000003" / "weights").read_text() == "1"
    run.check_resumable()
    assert rollback.main([str(run.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0  what the run began with"
    assert lines[-1].endswith("version 1 again")
    assert list(list_checkpoints(run.checkpoints)) == [1, 2, 3]


def test_what_cannot_come_back_is_told(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"got version 7, expected one .*checkpoints: 1, 2"):
        return_to(run, 7)
    assert rollback.main([str(tmp_path / "nowhere"), "1"]) == 2
    assert "holds no run" in capsys.readouterr().err


async def test_a_folder_in_use_is_asked_over_its_gateway(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(run.path)
    (run.path / "gateway.key").write_text("sk-none")
    code = await asyncio.to_thread(rollback.main, [str(run.path), "1"])
    await store.close()
    assert code == 1
    assert "its gateway does not answer" in capsys.readouterr().err
