from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.inference.vllm.publisher import WeightPublisher
from clawrl_gym.inference.weights.serving_folder import ServingFolder
from tests.inference.fake_vllm import KEY, FakeVllm, Handler, running, says
from tests.support.tiny_models import write_safetensors
from tests.support.waiting import until

DROP = ["/pause", "/reset_prefix_cache", "/reset_encoder_cache"]
SWAP = [*DROP, "/collective_rpc", "/update_weight_version", "/resume"]


@dataclass
class Served:
    base_url: str
    folder: ServingFolder
    key: str = KEY
    model_name: str = "policy"
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    alive: bool = True


@pytest.fixture
async def vllm() -> AsyncIterator[FakeVllm]:
    async with running() as fake:
        yield fake


@pytest.fixture
def served(vllm: FakeVllm, tmp_path: Path) -> Served:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    write_safetensors(model / "model.safetensors", 9)
    folder = ServingFolder(tmp_path / "serving")
    folder.create(model)
    return Served(vllm.base_url, folder)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "w.safetensors", 9)


def fails(times: int, handler: Handler) -> Handler:
    """Answers 503 for the first times."""
    left = times

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal left
        left -= 1
        return web.Response(status=503) if left >= 0 else await handler(request)

    return answer


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def same_bytes(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


async def test_a_swap_pauses_reloads_names_the_version_and_resumes(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    paused_s = await WeightPublisher(served).publish(1, weights)
    assert vllm.paths() == SWAP
    assert vllm.calls[0][1] == {"mode": "keep", "clear_cache": "false"}
    assert vllm.calls[1][1] == {"reset_running_requests": "true"}
    assert vllm.version == "1"
    assert not vllm.paused
    assert 0 < paused_s < 5
    assert served.folder.version == 1
    assert same_bytes(served.folder.current / "model.safetensors", weights)
    assert not (served.folder.current.parent / "v0").exists()


async def test_weights_that_are_not_whole_pause_nothing(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    cut_off(weights)
    with pytest.raises(PolicyError, match="cut off"):
        await WeightPublisher(served).publish(1, weights)
    assert vllm.calls == []
    assert served.folder.version == 0


async def test_weights_of_another_model_pause_nothing(
    vllm: FakeVllm, served: Served, tmp_path: Path
) -> None:
    with pytest.raises(PolicyError, match=r"version 1 .*another model: w is \[5\], expected \[9\]"):
        await WeightPublisher(served).publish(1, write_safetensors(tmp_path / "x.safetensors", 5))
    assert vllm.calls == []


async def test_weights_that_vllm_refuses_are_put_back_and_requests_go_on(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    seen: list[int] = []

    async def reload(request: web.Request) -> web.StreamResponse:
        seen.append(served.folder.version)
        return web.Response(status=500 if len(seen) == 1 else 200, text="shape mismatch")

    vllm.answers["/collective_rpc"] = reload
    with pytest.raises(PolicyError, match="500: shape mismatch"):
        await WeightPublisher(served).publish(1, weights)
    assert seen == [1, 0]
    assert vllm.paths() == [*DROP, "/collective_rpc", "/health", *SWAP], (
        "nothing is sampled between"
    )
    assert vllm.version == "0"
    assert not vllm.paused
    assert served.folder.version == 0
    assert not (served.folder.current.parent / "v1").exists()


async def test_a_cache_of_the_old_weights_that_stays_is_an_error_before_anything_is_loaded(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    vllm.answers["/reset_prefix_cache"] = says({"success": False})
    with pytest.raises(PolicyError, match="old weights have read"):
        await WeightPublisher(served).publish(1, weights)
    assert "/collective_rpc" not in vllm.paths()
    assert not vllm.paused
    assert served.folder.version == 0


async def test_when_nothing_can_be_loaded_both_reasons_are_told_and_it_still_resumes(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    vllm.answers["/collective_rpc"] = says({"error": {"message": "no"}}, 500)
    with pytest.raises(
        PolicyError, match=r"version 1 could not be loaded .* nor those of version 0"
    ):
        await WeightPublisher(served).publish(1, weights)
    failed = [*DROP, "/collective_rpc"]
    assert vllm.paths() == [*failed, "/health", *failed, "/resume"]
    assert not vllm.paused


async def test_a_resume_that_fails_is_repeated(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    async def resume(request: web.Request) -> web.StreamResponse:
        return vllm.answer("/resume", {})

    vllm.answers["/resume"] = fails(2, resume)
    await WeightPublisher(served).publish(1, weights)
    assert vllm.paths() == [*SWAP, "/resume", "/resume"]
    assert not vllm.paused


async def test_a_server_that_is_away_for_a_moment_gets_the_weights_afterwards(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    async def pause(request: web.Request) -> web.StreamResponse:
        return vllm.answer("/pause", {})

    vllm.answers["/pause"] = fails(1, pause)
    await WeightPublisher(served, recovery_s=5).publish(1, weights)
    assert vllm.version == "1"
    assert served.folder.version == 1
    assert not vllm.paused


async def test_requests_wait_until_weights_that_were_slow_to_load_are_named(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    """The first call may have loaded them, whatever came of its answer."""

    async def reload(request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    vllm.answers["/collective_rpc"] = fails(1, reload)
    await WeightPublisher(served, recovery_s=5).publish(1, weights)
    assert vllm.paths() == [*DROP, "/collective_rpc", "/health", *SWAP]
    assert not vllm.paused


async def test_publications_are_queued_and_never_interleaved(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    publisher = WeightPublisher(served)
    await asyncio.gather(*(publisher.publish(version, weights) for version in (1, 2, 3)))
    assert vllm.paths() == SWAP * 3
    assert vllm.version == "3"
    assert served.folder.version == 3


async def test_a_publication_that_is_cancelled_still_resumes(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    reloading, go_on = asyncio.Event(), asyncio.Event()

    async def reload(request: web.Request) -> web.StreamResponse:
        reloading.set()
        await go_on.wait()
        return web.json_response({})

    vllm.answers["/collective_rpc"] = reload
    publishing = asyncio.create_task(WeightPublisher(served).publish(1, weights))
    await reloading.wait()
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    go_on.set()
    await until(lambda: vllm.paths() == SWAP and vllm.version == "1" and not vllm.paused)


async def test_a_server_that_is_being_started_loads_what_is_current_by_itself(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    served.alive = False
    assert await WeightPublisher(served).publish(1, weights) == 0.0
    assert vllm.calls == []
    assert served.folder.version == 1
    assert same_bytes(served.folder.current / "model.safetensors", weights)


async def test_a_server_that_dies_in_a_swap_is_not_waited_for(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    async def reload(request: web.Request) -> web.StreamResponse:
        served.alive = False
        return web.Response(status=503)

    vllm.answers["/collective_rpc"] = reload
    assert await WeightPublisher(served).publish(1, weights) == 0.0
    assert served.folder.version == 1


async def test_a_swap_waits_for_a_start_that_is_under_way(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    """Else the start could name the old version over the new weights."""
    async with served.changing:
        publishing = asyncio.create_task(WeightPublisher(served).publish(1, weights))
        await asyncio.sleep(0.1)
        assert served.folder.version == 0
        assert vllm.calls == []
    await publishing
    assert vllm.version == "1"


async def test_an_engine_that_died_refuses_nothing_and_keeps_the_new_weights(
    vllm: FakeVllm, served: Served, weights: Path
) -> None:
    """vLLM answers 500 then, as it does for weights that do not fit; but it is not healthy."""

    async def reload(request: web.Request) -> web.StreamResponse:
        vllm.answers["/health"] = says({}, 503)
        asyncio.get_running_loop().call_later(0.2, setattr, served, "alive", False)
        return web.Response(status=500)

    vllm.answers["/collective_rpc"] = reload
    await WeightPublisher(served).publish(1, weights)
    assert served.folder.version == 1


async def test_weights_that_last_are_shared_and_not_copied(
    served: Served, weights: Path, tmp_path: Path
) -> None:
    served.folder.stage(1, weights)
    other = ServingFolder(tmp_path / "other")
    other.create(tmp_path / "model")
    other.stage(1, served.folder.of_version(1), "share")
    one, two = (f.of_version(1) / "model.safetensors" for f in (served.folder, other))
    assert one.samefile(two)
    served.folder.discard(1)
    assert same_bytes(two, weights)
