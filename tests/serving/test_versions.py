"""Earlier versions of the weights: which are kept, over HTTP and in a folder that nobody serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clawrl_gym import rollback
from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.inference.weights.checkpoints import list_checkpoints
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.versions import rollback_to
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.store.users import Users
from tests.support.fakes import FakeKeeper
from tests.support.gateway_rig import Bench


async def test_the_owner_lists_versions_and_has_one_serve_again(bench: Bench) -> None:
    status, _, _ = await bench.post("/v1/versions/3", None)
    assert status == 409
    bench.gateway.versions.keeper = FakeKeeper()
    _, listed, _ = await bench.get("/v1/versions")
    assert [row["version"] for row in listed["data"]] == [0, 3]
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
    folder.write(compose("serve", ["gateway.port=1"], ServeConfig))
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


async def add_user(run: RunFolder, name: str) -> None:
    """With versions 4 and 5 of their own."""
    Users(run.path).add(name)
    store = Store.open(run.path)
    for version in (4, 5):
        checkpoint = run.path / "users" / name / "checkpoints" / f"{version:06d}"
        await asyncio.to_thread(checkpoint.mkdir, parents=True)
        (checkpoint / "weights").write_text(f"{name} {version}")
        row = UpdateRow(version, tokens=1, duration_s=0.1)
        await store.add_user_update(name, row, str(checkpoint))
    await store.close()


async def test_a_user_of_a_run_at_rest_goes_back_alone(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    await add_user(run, "anna")
    Users(run.path).add("ben")

    async def rollback_of(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(rollback.main, [str(run.path), *arguments])
        output = capsys.readouterr()
        return code, output.out + output.err

    assert await rollback_of("4", "--user", "anna") == (0, "anna@4 is back, as anna@6\n")
    own = run.path / "users" / "anna" / "checkpoints"
    assert (own / "000006" / "weights").read_text() == "anna 4"
    _, listed = await rollback_of("--user", "anna")
    lines = listed.splitlines()
    assert lines[0] == "0  the run's own, as they are then"
    assert [line[0] for line in lines] == ["0", "4", "5", "6"]
    assert lines[-1].endswith("version 4 again")
    assert await rollback_of("--user", "ben") == (0, "ben has no weights of their own yet\n")
    code, said = await rollback_of("4", "--user", "ben")
    assert (code, "expected one with a checkpoint in" in said) == (2, True)
    code, said = await rollback_of("4", "--user", "zoe")
    assert (code, said) == (
        2, f"error: there is no user 'zoe' in {run.path}; there are: anna, ben\n",
    )  # fmt: skip
    _, listed = await rollback_of("--user", "owner")
    assert [line[0] for line in listed.splitlines()] == ["0", "1", "2"]


def test_what_cannot_come_back_is_told(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"got version 7, expected one .*checkpoints: 1, 2"):
        rollback_to(run, 7)
    assert rollback.main([str(tmp_path / "nowhere"), "1"]) == 2
    assert "holds no run" in capsys.readouterr().err


async def test_a_folder_in_use_is_asked_over_its_gateway(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(run.path)
    (run.path / "gateway.key").write_text("sk-none")
    code = await asyncio.to_thread(rollback.main, [str(run.path), "1"])
    assert code == 1
    assert "its gateway does not answer" in capsys.readouterr().err
    Users(run.path).add("anna")
    run.write(compose("serve", ["gateway.port=0"], ServeConfig))
    with pytest.raises(PolicyError, match=r"ask there, POST /v1/versions/1\?user=anna"):
        await asyncio.to_thread(rollback_to, run, 1, "anna")
    await store.close()


def test_a_version_is_pinned_by_name_comes_back_by_it_and_is_let_go(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> tuple[int, str]:
        code = rollback.main([str(run.path), *arguments])
        output = capsys.readouterr()
        return code, output.out + output.err

    assert said("1", "--pin", "good") == (0, "version 1 is kept as good\n")
    assert said()[1].splitlines()[1].endswith("  [good]")
    code, why = said("best")
    assert (code, "'best', expected a version or a name that is pinned: good" in why) == (2, True)
    assert said("7", "--pin", "late")[0] == said("--unpin", "late")[0] == 2
    assert said("good") == (0, "version 1 is back, as version 3\n")
    assert said("--unpin", "good") == (0, "good is no longer pinned\n")
    for wrong in (["--pin", "good"], ["1", "--unpin", "good"], ["1", "--pin", "a", "--unpin", "a"]):
        with pytest.raises(SystemExit):
            rollback.main([str(run.path), *wrong])
