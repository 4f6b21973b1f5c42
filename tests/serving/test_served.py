"""The parts of serving put together in this process, before a stand-in for vLLM: what is served,
kept and gone on with."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

import clawrl_gym as cg
from clawrl_gym.config import JudgeConfig, ServeConfig
from clawrl_gym.config.judge import HintConfig
from clawrl_gym.core.errors import PolicyUnavailable
from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.weights.checkpoints import WEIGHTS
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.run.policy import ServedPolicy
from clawrl_gym.run.serve import Service
from clawrl_gym.run.services import RunServices
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.clients import key_place
from clawrl_gym.serving.supervisor import listen
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.users import Users
from clawrl_gym.ui.serving import SERVING
from clawrl_gym.ui.view import LineView
from tests.support.fakes_judge import a_turn
from tests.support.gateway_rig import HELLO
from tests.support.stub_engine import StubEngine, digest
from tests.support.tiny_models import write_safetensors
from tests.support.waiting import until


async def said(
    address: PolicyAddress, session: str = "s1", messages: list[Message] = HELLO
) -> tuple[str, str]:
    """A reply, and the version that it says it is of."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {address.key}"}) as http,
        http.post(
            f"{address.base_url}/sessions/{session}/v1/chat/completions",
            json={"messages": messages},
        ) as answer,
    ):
        body = await answer.json()
        assert answer.status == 200, body
        return body["choices"][0]["message"]["content"], answer.headers["X-Weight-Version"]


def other_weights(model: Path, folder: Path, last: int) -> None:
    """Those of a model, but for their last byte."""
    (folder / WEIGHTS).write_bytes((model / WEIGHTS).read_bytes()[:-1] + bytes([last]))


@pytest.fixture
def config() -> ServeConfig:
    return cg.load_config(["gateway.port=0", "policy.device=cpu", "learn=false"], "serve")


async def test_a_policy_serves_what_is_published_and_keeps_its_turns(
    config: ServeConfig, tmp_path: Path
) -> None:
    phases: list[tuple[str, str]] = []
    policy = ServedPolicy(config, tmp_path, on_phase=lambda *phase: phases.append(phase))
    policy.make_engine = StubEngine
    weights = tmp_path / "new"
    weights.mkdir()
    async with policy:
        first = digest(policy.own_model / WEIGHTS)
        assert await said(policy.address) == (first, "0")
        other_weights(policy.own_model, weights, 1)
        second = digest(weights / WEIGHTS)
        assert await policy.publish(weights) >= 0.0
        assert (policy.version, await said(policy.address, "s2")) == (1, (second, "1"))
        other_weights(policy.own_model, weights, 2)
        third = digest(weights / WEIGHTS)
        await policy.publish(weights, 5, "move")
        assert (policy.version, await said(policy.address, "s3")) == (5, (third, "5"))
        assert not (weights / WEIGHTS).exists()
        assert [folder.name for folder in policy.folder.serving.glob("0/v*")] == ["v5"]
    assert ("vLLM", "starting vLLM") in phases
    assert ("vLLM", "ready") in phases
    assert phases.count(("gateway", f"ready at {policy.address.base_url}")) == 1
    assert list(policy.folder.serving.glob("0/v5")), "no checkpoint has these weights"
    reader = StoreReader(tmp_path)
    versions = {name: reader.turns_of(name)[0].versions_T for name in ("s1", "s2", "s3")}
    reader.close()
    assert versions == {"s1": [0, 0], "s2": [1, 1], "s3": [5, 5]}


async def test_a_policy_without_a_folder_leaves_none(config: ServeConfig) -> None:
    policy = ServedPolicy(config)
    policy.make_engine = StubEngine
    async with policy:
        assert policy.folder.path.is_dir()
        assert policy.servers.version == policy.version == 0
    assert not policy.folder.path.exists()


async def test_a_policy_goes_on_with_its_newest_checkpoint_wherever_the_folder_was(
    config: ServeConfig, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path)
    checkpoint = folder.checkpoints / "000003"
    checkpoint.mkdir(parents=True)
    write_safetensors(checkpoint / WEIGHTS, 9, 7)
    store = Store.open(tmp_path)
    row = UpdateRow(3, tokens=10, duration_s=0.5)
    await store.add_update(row, [], "/elsewhere/checkpoints/000003")
    await store.close()
    policy = ServedPolicy(config, tmp_path)
    policy.make_engine = StubEngine
    async with AsyncExitStack() as stack:
        resumed = await policy.open(stack, resume=True)
        assert resumed is not None
        assert (resumed.version, resumed.checkpoint) == (3, str(checkpoint))
        await policy.listen(stack, Hooks())
        await policy.start(resumed)
        assert await said(policy.address) == (digest(checkpoint / WEIGHTS), "3")
        assert list(policy.folder.serving.glob("0/v3"))
    assert not list(policy.folder.serving.glob("0/v3")), "the checkpoint has these weights"


class Serving:
    """A service that does not learn, with what it tells people."""

    def __init__(self, config: ServeConfig, place: Path) -> None:
        self.folder = RunFolder(place)
        self.users = Users(place)
        self.told = io.StringIO()
        self._config = config
        self._view = LineView(self.told, SERVING, title="serving")
        self.services = RunServices(config, self.folder, self._view, users=self.users)
        self.services.policy.make_engine = StubEngine

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PolicyAddress]:
        async with AsyncExitStack() as stack:
            service = Service(
                self._config, self.services, self._view, self.users,
                key_place=key_place(self._config, self.folder),
            )  # fmt: skip
            stack.push_async_callback(service.reported)
            await service.start(stack, listen(self._config.gateway))
            self.folder.write(self._config)
            running = asyncio.create_task(service.run(stack))
            try:
                await until(lambda: "ready: talk to" in self.told.getvalue())
                yield self.services.policy.address
            finally:
                running.cancel()
                await asyncio.wait([running])


async def test_a_service_answers_judges_and_leaves_a_report(
    config: ServeConfig, tmp_path: Path
) -> None:
    place = tmp_path / "serve"
    serving = Serving(config, place)
    key = serving.users.add("ann")
    async with serving.running() as address:
        reply, _ = await said(address)
        assert reply == digest(serving.services.policy.own_model / WEIGHTS)
        answer: list[Message] = [
            *HELLO, {"role": "assistant", "content": reply},
            {"role": "user", "content": "no, that is wrong"},
        ]  # fmt: skip
        await said(address, messages=answer)
        store = serving.services.policy.store
        await until(lambda: "verdict on turn 1: " in serving.told.getvalue())
        (verdicts,) = (await store.verdicts_of("s1")).values()
        assert [verdict.value for verdict in verdicts] == [-1]
        own = replace(address, key=key)
        await said(own)
        assert [one.session.id for one in await store.session_summaries(9, False, "ann")]
        serving.users.begin_removal("ann")
        await until(lambda: not serving.users.is_being_removed("ann"))
        assert await store.session_summaries(9, False, "ann") == []
    told = serving.told.getvalue()
    assert f"base URL: {address.base_url}/v1   key: " in told
    assert "judge: rules" in told
    assert "turn s1#0  main" in told
    assert "one set of weights" not in told, "nothing is learned"
    assert "no, that is wrong" in (place / "report.html").read_text()
    assert RunFolder(place).read_config(ServeConfig).policy.model == config.policy.model


class Renderer:
    """Renders a chat as the number of its characters, once it is there."""

    def __init__(self, absences: int) -> None:
        self.absences = absences
        self.asked = 0

    async def render(self, body: ChatBody) -> list[int]:
        self.asked += 1
        if self.asked <= self.absences:
            raise PolicyUnavailable("it is away")
        return [1, *(len(str(message["content"])) for message in body["messages"])]

    async def metrics(self) -> dict[str, float]:
        return {}


async def test_a_teachers_prompt_is_rendered_by_whichever_engine_is_there(
    config: ServeConfig, tmp_path: Path
) -> None:
    services = Serving(config, tmp_path / "serve").services
    gone, there = Renderer(99), Renderer(0)
    services.policy.fleet = Fleet([gone, there])  # type: ignore[list-item]
    turn = a_turn(prompt_ids_T=[1, 5], messages=HELLO)
    plain = len(str(HELLO[0]["content"]))
    enhancer = services.enhancer(JudgeConfig(hints=HintConfig(form="!{hint}")))
    assert await enhancer.prompts(turn, ["ask"]) == ([1, plain + len("!ask")],)
    assert (gone.asked, there.asked) == (1, 2), "who failed is asked no more"
    alone = Renderer(1)
    services.policy.fleet = Fleet([alone])  # type: ignore[list-item]
    assert await enhancer.prompts(turn, ["ask"]) is not None
    assert alone.asked == 3, "there is nobody else to ask: it is waited for"
