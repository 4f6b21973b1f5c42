"""Which adapters are alive, who is answered with which, and when one leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clawrl_gym.core.errors import PolicyError, PolicyUnavailable
from clawrl_gym.inference.weights.adapters import FILES, Adapter, Adapters, Served


def adapter_folder(folder: Path, words: str = "") -> Path:
    """A folder with the names that PEFT's has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_text(words)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return adapter_folder(tmp_path / "next", "weights")


@pytest.fixture
def left() -> list[str]:
    return []


@pytest.fixture
def adapters(tmp_path: Path, left: list[str]) -> Adapters:
    adapters = Adapters(tmp_path / "adapters", most_versions=3)
    adapters.when_over(lambda adapter: left.append(adapter.name))
    return adapters


async def publish(adapters: Adapters, version: int, source: Path, user: str = "") -> Adapter:
    adapter = await adapters.stage(user, version, source)
    adapters.promote(adapter)
    return adapter


def names(adapters: Adapters) -> list[str]:
    return [adapter.name for adapter in adapters.alive]


async def test_the_base_answers_until_an_adapter_is_published(
    adapters: Adapters, source: Path
) -> None:
    with adapters.use() as served:
        assert served == Served("", 0)
        with adapters.hold("", 0) as name:
            assert name is None
    staged = await adapters.stage("", 1, source)
    assert adapters.newest() == Served("", 0), "it is not known yet whether all engines take it"
    adapters.promote(staged)
    assert adapters.newest() == Served("", 1)
    assert [path.read_text() for path in sorted(staged.folder.iterdir())] == ["weights"] * 2


async def test_a_version_leaves_with_its_last_request(
    adapters: Adapters, source: Path, left: list[str]
) -> None:
    await publish(adapters, 1, source)
    with adapters.use() as served:
        with adapters.hold(served.user, served.version) as name:
            assert name == "policy@1"
            await publish(adapters, 2, source)
        assert left == [], "the reply is not whole yet"
        assert adapters.newest() == Served("", 2)
    assert left == ["policy@1"]
    assert names(adapters) == ["policy@2"]
    with (
        pytest.raises(PolicyUnavailable, match="policy@1 is no longer served"),
        adapters.hold("", 1),
    ):
        pass


async def test_a_version_that_answers_nobody_leaves_at_once_and_the_newest_stays(
    adapters: Adapters, source: Path, left: list[str]
) -> None:
    for version in (1, 2, 3, 4):
        await adapters.room("", 0.1)
        await publish(adapters, version, source)
    assert left == ["policy@1", "policy@2", "policy@3"]
    with adapters.use():
        pass
    assert names(adapters) == ["policy@4"]


async def test_each_user_is_answered_with_their_own_and_others_with_the_shared_one(
    adapters: Adapters, source: Path, left: list[str]
) -> None:
    await publish(adapters, 7, source)
    await publish(adapters, 1, source, "ada")
    await publish(adapters, 1, source, "bob")
    await publish(adapters, 2, source, "ada")
    assert adapters.newest("ada") == Served("ada", 2)
    assert adapters.newest("bob") == Served("bob", 1)
    assert adapters.newest("eve") == adapters.newest() == Served("", 7)
    assert left == ["ada@1"]
    with adapters.use("ada") as served:
        adapters.withdraw("ada")
        assert served == Served("ada", 2)
        assert adapters.newest("ada") == Served("", 7)
        assert "ada@2" in names(adapters)
    assert names(adapters) == ["policy@7", "bob@1"]


async def test_a_publication_waits_for_room_and_says_who_keeps_it(
    adapters: Adapters, source: Path
) -> None:
    holds = []
    for version in (1, 2, 3):
        await publish(adapters, version, source)
        holds.append(adapters.use())
        holds[-1].__enter__()
    with pytest.raises(PolicyError, match=r"1 request\(s\) that began with policy@1 have not"):
        await adapters.room("", 0.01)
    await adapters.room("ada", 0.01)  # others' requests keep nobody waiting
    waiting = asyncio.create_task(adapters.room("", 5))
    await asyncio.sleep(0)
    assert not waiting.done()
    holds[0].__exit__(None, None, None)
    await waiting


async def test_what_is_no_adapter_or_was_there_before_is_refused(
    adapters: Adapters, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / FILES[0]).touch()
    with pytest.raises(PolicyError, match=r"without adapter_model.safetensors, expected a folder"):
        await adapters.stage("", 1, tmp_path / "half")
    await publish(adapters, 1, source)
    with pytest.raises(PolicyError, match="policy@1, which is there already"):
        await adapters.stage("", 1, source)
    assert names(adapters) == ["policy@1"]


@pytest.mark.parametrize("user", ["policy", "../up", "a@b", "", " ", "x" * 65, "-x"])
async def test_names_that_could_be_anothers_or_a_path_are_refused(
    adapters: Adapters, source: Path, user: str
) -> None:
    if user:
        with pytest.raises(PolicyError, match="cannot be named: got the user name"):
            await adapters.stage(user, 1, source)
    else:
        with pytest.raises(PolicyError, match="cannot be withdrawn"):
            adapters.withdraw(user)


async def test_one_that_was_refused_is_forgotten_and_the_old_one_stays(
    adapters: Adapters, source: Path, left: list[str]
) -> None:
    await publish(adapters, 1, source)
    adapters.discard(await adapters.stage("", 2, source))
    assert left == ["policy@2"]
    assert adapters.newest() == Served("", 1)
    await publish(adapters, 2, source)


def test_what_an_earlier_run_left_is_gone(tmp_path: Path) -> None:
    adapter_folder(tmp_path / "adapters" / "policy@9")
    assert Adapters(tmp_path / "adapters").alive == []
    assert not (tmp_path / "adapters").exists()
