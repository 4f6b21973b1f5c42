"""Several servers behind one swap and one watch; the processes themselves are tried in e2e."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.core.errors import NotServed, PolicyError, PolicyUnavailable
from clawrl_gym.inference import servers as all_servers
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.vllm import server as one_server
from clawrl_gym.inference.vllm.engine import VllmEngine
from clawrl_gym.inference.vllm.server import PolicyServer
from clawrl_gym.inference.weights.serving_folder import ServingFolder
from tests.inference.fake_vllm import KEY, FakeVllm, running, says, sleeps
from tests.inference.test_policy_adapters import adapter_folder
from tests.support.tiny_models import write_safetensors
from tests.support.waiting import until


class Server:
    """Takes the place of a PolicyServer; its vLLM is a fake."""

    model_name = "policy"

    def __init__(
        self,
        config: PolicyConfig,
        model_dir: Path,
        serving_dir: Path,
        log_path: Path,
        on_phase: Callable[[str], None],
        *,
        gpu: str | None,
        fake: FakeVllm,
        **adapters: Any,
    ) -> None:
        self.config, self.log_path, self.on_phase = config, log_path, on_phase
        self._model_dir = model_dir
        self.folder = ServingFolder(serving_dir)
        self.base_url = fake.base_url
        self.key = KEY
        self.changing = asyncio.Lock()
        self.alive = False
        self.killed = 0
        self.start_error: PolicyError | None = None
        self.watch_error: PolicyError | None = None
        self.stopped = asyncio.Event()

    def reserve(self) -> None:
        pass

    async def start(self, version: int, weights: Path | None) -> None:
        await asyncio.sleep(0)
        if self.start_error is not None:
            raise self.start_error
        self.folder.create(self._model_dir, version, weights)
        self.alive = True
        self.on_phase("ready")

    async def stop(self) -> None:
        self.alive = False
        self.stopped.set()

    async def watch(self) -> None:
        if self.watch_error is not None:
            self.alive = False
            raise self.watch_error
        await self.stopped.wait()

    def kill(self) -> None:
        self.killed += 1
        self.alive = False


class Two:
    """Two servers and what they report."""

    def __init__(
        self,
        fakes: list[FakeVllm],
        folder: Path,
        adapter: AdapterConfig | None = None,
        **config: Any,
    ) -> None:
        self.fakes = fakes
        self.made: list[Server] = []
        self.phases: list[str] = []
        self.held = 0
        self.holds = 0
        self.servers = PolicyServers(
            PolicyConfig(servers=2, **config),
            folder / "model",
            folder / "serving",
            folder / "logs",
            self.phases.append,
            hold=self.hold,
            make=partial(VllmEngine, make=self.make),
            adapter=adapter,
        )

    def make(self, *args: Any, **more: Any) -> Any:
        self.made.append(Server(*args, **more, fake=self.fakes[len(self.made)]))
        return self.made[-1]

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.held += 1
        self.holds += 1
        yield
        self.held -= 1


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    write_safetensors(model / "model.safetensors", 9)
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(running()) for _ in range(2)]
        yield Two(fakes, tmp_path)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "w.safetensors", 9)


def versions(two: Two) -> list[int]:
    return [server.folder.version for server in two.made]


def test_each_server_has_a_folder_a_log_and_a_port_of_its_own(tmp_path: Path) -> None:
    two = Two([FakeVllm(), FakeVllm()], tmp_path, port=9000)
    first, second = two.made
    assert [first.config.port, second.config.port] == [9000, 9001]
    assert first.folder.current != second.folder.current
    assert first.log_path.name == "vllm.log"
    assert second.log_path.name == "vllm-1.log"
    assert [server.config.port for server in Two([FakeVllm()] * 2, tmp_path).made] == [0, 0]


async def test_a_version_reaches_all_servers_and_its_file_is_there_once(
    two: Two, weights: Path
) -> None:
    await two.servers.start()
    assert 0 < await two.servers.publish(1, weights) < 5
    assert versions(two) == [1, 1]
    assert [fake.version for fake in two.fakes] == ["1", "1"]
    one, other = (server.folder.current / "model.safetensors" for server in two.made)
    assert one.samefile(other)
    assert not one.samefile(weights)
    assert two.servers.version == 1
    assert two.phases == ["ready (server 1)", "ready (server 2)"]


async def test_requests_are_held_once_while_any_server_is_paused(two: Two, weights: Path) -> None:
    await two.servers.start()
    seen: list[int] = []

    def slow(seconds: float) -> Callable[[web.Request], Any]:
        async def reload(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            seen.append(two.held)
            return web.json_response({})

        return reload

    for fake, seconds in zip(two.fakes, (0.05, 0.3), strict=True):
        fake.answers["/collective_rpc"] = slow(seconds)
    await two.servers.publish(1, weights)
    assert seen == [1, 1]
    assert two.holds == 1
    assert two.held == 0


async def test_weights_that_no_server_takes_leave_all_with_the_old_ones(
    two: Two, weights: Path
) -> None:
    await two.servers.start()
    for fake in two.fakes:
        fake.answers["/collective_rpc"] = says({"error": {"message": "no"}}, 500)
    with pytest.raises(PolicyError, match="500"):
        await two.servers.publish(1, weights)
    assert versions(two) == [0, 0]
    assert two.servers.version == 0
    assert two.held == 0


async def test_a_server_that_alone_refuses_is_started_again_with_the_new_weights(
    two: Two, weights: Path
) -> None:
    await two.servers.start()
    two.fakes[1].answers["/collective_rpc"] = says({"error": {"message": "no"}}, 500)
    await two.servers.publish(1, weights)
    assert versions(two) == [1, 1]
    assert [server.killed for server in two.made] == [0, 1]
    assert "could not take version 1" in two.phases[-1]


async def test_a_server_that_is_down_does_not_delay_a_swap(two: Two, weights: Path) -> None:
    await two.servers.start()
    two.made[1].alive = False
    await two.servers.publish(1, weights)
    assert versions(two) == [1, 1]
    assert two.fakes[1].calls == []


async def test_broken_weights_change_nothing_anywhere(two: Two, tmp_path: Path) -> None:
    await two.servers.start()
    with pytest.raises(PolicyError, match="another model"):
        await two.servers.publish(1, write_safetensors(tmp_path / "x.safetensors", 5))
    assert versions(two) == [0, 0]
    assert [fake.calls for fake in two.fakes] == [[], []]


async def test_the_first_server_that_cannot_start_is_the_error(two: Two) -> None:
    two.made[1].start_error = PolicyError("vLLM ended with exit code 1")
    with pytest.raises(PolicyError, match="exit code 1"):
        await two.servers.start()


async def test_a_fleet_has_a_client_for_each_server(two: Two) -> None:
    fleet = two.servers.fleet(8)
    try:
        assert len(fleet.policies) == fleet.alive == 2
        assert await fleet.of("s").render({"messages": []}) == [1, 2, 3]
        assert sum(len(fake.calls) for fake in two.fakes) == 1
    finally:
        await two.servers.close_clients()


async def test_a_server_that_is_given_up_stops_nothing_while_another_serves(two: Two) -> None:
    await two.servers.start()
    two.made[0].watch_error = PolicyError("died, after 2 restarts in a row")
    watching = asyncio.create_task(two.servers.watch())
    await until(lambda: any("the other servers continue" in phase for phase in two.phases))
    assert not watching.done()
    await two.servers.stop()
    watching.cancel()


async def test_watching_ends_with_the_error_when_no_server_is_left(two: Two) -> None:
    await two.servers.start()
    two.made[1].alive = False
    two.made[0].watch_error = PolicyError("died, after 2 restarts in a row")
    with pytest.raises(PolicyError, match="2 restarts in a row"):
        await two.servers.watch()


@pytest.fixture
async def two_with_adapters(two: Two, tmp_path: Path) -> AsyncIterator[Two]:
    both = Two(two.fakes, tmp_path, AdapterConfig())
    for fake in two.fakes:
        fake.version = "0"
    await both.servers.start_adapters()
    yield both
    await both.servers.stop()
    await both.servers.close_clients()


def loads(fake: FakeVllm) -> list[str]:
    """What was loaded (+) and unloaded (-), but for what was not there."""
    signs = {"/v1/load_lora_adapter": "+", "/v1/unload_lora_adapter": "-"}
    steps = [signs[path] + body["lora_name"] for path, body in fake.calls if path in signs]
    return [step for at, step in enumerate(steps) if step[0] == "+" or "+" + step[1:] in steps[:at]]


LOAD, REPLY = "/v1/load_lora_adapter", "/clawrl/reply"


async def test_an_adapter_reaches_all_servers_and_nobody_is_held(
    two_with_adapters: Two, tmp_path: Path
) -> None:
    two = two_with_adapters
    await two.servers.publish_adapter(1, adapter_folder(tmp_path / "next"))
    assert [loads(fake) for fake in two.fakes] == [["+policy@1"]] * 2
    (_, body) = next(call for call in two.fakes[0].calls if call[0] == LOAD)
    assert await asyncio.to_thread(Path(body["lora_path"]).is_dir)
    await two.servers.publish_adapter(2, adapter_folder(tmp_path / "next"))
    gone = ["+policy@1", "+policy@2", "-policy@1"]
    await until(lambda: [loads(fake) for fake in two.fakes] == [gone] * 2)
    assert two.servers.version == 2
    assert two.holds == 0
    assert not any("/pause" in fake.paths() for fake in two.fakes)


async def test_a_request_names_its_version_and_all_of_its_tokens_have_it(
    two_with_adapters: Two, tmp_path: Path
) -> None:
    two = two_with_adapters
    policy = two.servers.fleet(8).of("s")
    await two.servers.publish_adapter(7, adapter_folder(tmp_path / "next"))
    await two.servers.publish_adapter(3, adapter_folder(tmp_path / "next"), user="ada")
    two.fakes[0].calls.clear()
    replies = [
        await policy.generate([1], Sampling(1, 1, 3), version=0),
        await policy.generate([1], Sampling(1, 1, 3), version=7),
        await policy.generate([1], Sampling(1, 1, 3), version=3, user="ada"),
    ]
    bodies = [body for path, body in two.fakes[0].calls if path == REPLY]
    assert [body["generate"]["model"] for body in bodies] == ["policy", "policy@7", "ada@3"]
    assert [reply.versions_T for reply in replies[1:]] == [[7, 7, 7], [3, 3, 3]]
    with pytest.raises(PolicyUnavailable, match="policy@6 is no longer served"):
        await policy.generate([1], Sampling(1, 1, 3), version=6)


async def test_an_adapter_that_one_server_refuses_is_served_by_none(
    two_with_adapters: Two, tmp_path: Path
) -> None:
    two = two_with_adapters
    await two.servers.publish_adapter(1, adapter_folder(tmp_path / "next"))
    two.fakes[1].answers[LOAD] = says({"error": {"message": "the rank is too large"}}, 400)
    with pytest.raises(PolicyError, match="the rank is too large"):
        await two.servers.publish_adapter(2, adapter_folder(tmp_path / "next"))
    assert two.servers.version == 1
    adapters = two.servers.adapters
    assert adapters is not None
    assert [adapter.name for adapter in adapters.alive] == ["policy@1"]
    await until(lambda: loads(two.fakes[0])[-1] == "-policy@2")


async def test_weights_that_are_not_what_was_trained_go_back_everywhere(
    two: Two, weights: Path
) -> None:
    await two.servers.start()
    asked: list[str] = []

    async def verify(engine: EngineClient) -> None:
        (version,) = set((await engine.generate([1], Sampling(1, 1, 3), version=1)).versions_T)
        asked.append(str(version))
        if len(asked) == 2:
            raise NotServed("other weights")

    with pytest.raises(NotServed, match="other weights"):
        await two.servers.publish(1, weights, verify=verify)
    assert asked == ["1", "1"]
    assert versions(two) == [0, 0]
    assert [fake.version for fake in two.fakes] == ["0", "0"]
    assert not any(fake.paused for fake in two.fakes)
    assert two.servers.version == 0
    await two.servers.publish(2, weights, verify=verify)
    assert versions(two) == [2, 2]
    kept = [folder.name for folder in two.made[0].folder.current.parent.glob("v*")]
    assert kept == ["v2"]


async def test_an_adapter_that_is_not_what_was_trained_serves_nobody(
    two_with_adapters: Two, tmp_path: Path
) -> None:
    two = two_with_adapters
    adapters = two.servers.adapters
    assert adapters is not None

    async def verify(engine: EngineClient) -> None:
        await engine.generate([1], Sampling(1, 1, 3), version=1)
        assert adapters.newest().version == 0, "nobody is answered with it yet"
        raise NotServed("another adapter")

    with pytest.raises(NotServed, match="another adapter"):
        await two.servers.publish_adapter(1, adapter_folder(tmp_path / "next"), verify=verify)
    await until(lambda: loads(two.fakes[0]) == ["+policy@1", "-policy@1"])
    assert adapters.alive == []


async def test_the_files_of_a_refused_adapter_go_unless_its_number_is_used_again(
    two_with_adapters: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a way back that was refused: the next update has the same number."""
    monkeypatch.setattr(all_servers, "_LINGER_S", 0.2)
    two = two_with_adapters
    adapters = two.servers.adapters
    assert adapters is not None

    async def refuse(engine: EngineClient) -> None:
        raise NotServed("another adapter")

    for version in (1, 2):
        with pytest.raises(NotServed):
            await two.servers.publish_adapter(
                version, adapter_folder(tmp_path / "next"), verify=refuse
            )
    await two.servers.publish_adapter(2, adapter_folder(tmp_path / "next"))
    await until(lambda: not two.servers._leaving)
    folders = [adapters.alive[0].folder.with_name(f"policy@{n}") for n in (1, 2)]
    assert [folder.exists() for folder in folders] == [False, True]


async def test_a_server_that_is_down_misses_no_adapter(
    two_with_adapters: Two, tmp_path: Path
) -> None:
    """It loads what is alive when it comes back; nobody waits for it."""
    two = two_with_adapters
    two.made[1].alive = False
    await two.servers.publish_adapter(1, adapter_folder(tmp_path / "next"))
    assert [loads(fake) for fake in two.fakes] == [["+policy@1"], []]
    assert [adapter.name for adapter in two.servers.adapters.alive] == ["policy@1"]  # type: ignore[union-attr]


class NeverEnds:
    """A process that lives, whatever it does."""

    returncode = None
    pid = 0
    forked = True

    async def wait(self) -> int:
        return await asyncio.Future()


@pytest.mark.parametrize(("answer", "checks"), [(says({}, 503), 2), (sleeps(1.0), 6)])
async def test_a_server_that_lost_its_engine_is_given_up_sooner_than_a_silent_one(
    answer: Any, checks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_server, "_CHECK_EVERY_S", 0.02)
    async with running() as vllm:
        vllm.answers["/health"] = answer
        server = PolicyServer(PolicyConfig(), tmp_path, tmp_path, tmp_path / "log", lambda _: None)
        server.key, server._port = KEY, int(vllm.base_url.rpartition(":")[2])
        server._process = NeverEnds()  # type: ignore[assignment]
        assert await server._death() == "stopped answering"
        assert vllm.paths().count("/health") == checks


def test_a_silent_server_is_given_up_after_a_minute() -> None:
    """As docs/faults.md says: a check begins after a pause and waits as long for its answer."""
    assert one_server._PATIENCE * 2 * one_server._CHECK_EVERY_S == 60
