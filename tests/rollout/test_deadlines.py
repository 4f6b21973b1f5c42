"""Who is to blame for what takes too long: through the gateway, other servers and real threads."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from aiohttp import web

from clawrl_gym.cluster.environments import Environments
from clawrl_gym.core.errors import PolicyError, ReplyTimeout, RequestError
from clawrl_gym.core.types import Message, StopReason, TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.gateway.outages import Outages
from clawrl_gym.rollout.episodes.chat import EndpointChat, GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from tests.support.gateway_rig import HELLO, Bench

SPEC = EpisodeSpec("d", 0, TaskRef("t", 0, "train"), max_turns=3, timeout_s=5.0)


def test_overlapping_outages_count_once_and_those_of_before_not_at_all() -> None:
    now_s = 0.0
    outages = Outages(lambda: now_s)
    assert outages.seconds_of(100) == 0
    with outages.during():
        now_s = 2.0
        with outages.during():
            now_s = 3.0
        now_s = 5.0
        assert outages.seconds_of(100) == 5
        assert outages.seconds_of(1) == 1
    now_s = 10.0
    with outages.during():
        now_s = 11.0
    assert outages.seconds_of(100) == 6
    assert outages.seconds_of(7) == 2
    assert outages.seconds_of(0) == 0


async def outages_s(chat: GatewayChat) -> float:
    return (await chat.waits_of(SPEC)(60.0)).outages_s


@asynccontextmanager
async def chat_with(bench: Bench, timeout_s: float = 5.0) -> AsyncIterator[GatewayChat]:
    await bench.start()
    chat = GatewayChat(PolicyAddress(bench.url, bench.gateway.key, "tiny"), timeout_s, limit=4)
    yield chat
    await chat.close()
    await bench.stop()


async def test_a_swap_is_an_outage(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    async with chat_with(bench) as chat:
        assert await outages_s(chat) == 0.0
        with bench.gateway.hold_requests():
            await asyncio.sleep(0.05)
            assert 0.04 < await outages_s(chat) < 60
        assert await outages_s(chat) > 0.04


async def test_the_gateway_tells_how_fast_a_sessions_replies_came(tmp_path: Path) -> None:
    """So that a program's replies (`agent=harness`), which the episode does not see, count too."""
    async with chat_with(Bench(tmp_path)) as chat:
        before = await chat.waits_of(SPEC)(60.0)
        assert (before.slow_s, before.tokens_per_s) == (0.0, 0.0)
        await chat.reply(SPEC, HELLO, [])
        assert (await chat.waits_of(SPEC)(60.0)).tokens_per_s > 0.0


async def test_a_policy_that_cannot_be_reached_is_an_outage_and_no_long_reply(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.timeout_s = 0.3
    bench.policy.down = 10_000
    async with chat_with(bench) as chat:
        with pytest.raises(PolicyError) as failure:
            await chat.reply(SPEC, HELLO, [])
        assert not isinstance(failure.value, ReplyTimeout)
        assert await outages_s(chat) > 0.1


async def test_a_reply_that_does_not_end_is_told_from_a_policy_that_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.timeout_s = 0.2
    bench.policy.delay_s = 60
    async with chat_with(bench) as chat:
        with pytest.raises(ReplyTimeout, match=r"the reply had not ended after 0\.2 s"):
            await chat.reply(SPEC, HELLO, [])
        assert await outages_s(chat) == 0.0


async def test_a_short_reply_that_does_not_end_is_a_slow_machine(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.timeout_s = 0.2
    bench.policy.delay_s = 60
    body: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 1}
    async with chat_with(bench) as chat:
        assert await outages_s(chat) == 0.0
        status, answer, _ = await bench.post("/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (502, "policy_unavailable")
    assert "the machine is too slow: a reply of at most 1 tokens" in answer["error"]["message"]


async def test_a_request_that_the_policy_refuses_is_a_request_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.policy.refusal = RequestError("the arguments of a call are no JSON")
    async with chat_with(bench) as chat:
        with pytest.raises(RequestError, match="no JSON"):
            await chat.reply(SPEC, HELLO, [])


@asynccontextmanager
async def server_of(reply: Any) -> AsyncIterator[str]:
    """A server of the OpenAI API with one page."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", reply)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


async def says_done(request: web.Request) -> web.Response:
    message: Message = {"role": "assistant", "content": "done"}
    return web.json_response({"choices": [{"message": message}]})


async def test_a_server_of_others_that_lives_has_a_long_reply_or_is_slow() -> None:
    async def never(request: web.Request) -> web.Response:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async with server_of(never) as url:
        chat = EndpointChat(PolicyAddress(url, "k", "m", is_gateway=False), 0.2, limit=2)
        with pytest.raises(ReplyTimeout, match=r"had not ended its reply after 0\.2 s"):
            await chat.reply(SPEC, HELLO, [])
        await chat.close()
        address = PolicyAddress(url, "k", "m", is_gateway=False, max_tokens=1)
        chat = EndpointChat(address, 0.2, limit=2)
        with pytest.raises(PolicyError, match="the server is too slow"):
            await chat.reply(SPEC, HELLO, [])
        await chat.close()


class Loops(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Solved at once, but of four tasks in ten, whose action never ends."""

    released = threading.Event()

    def task_ids(self, split: str) -> list[str]:
        return [f"{split}-{n}" for n in range(10)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.task = options["task"]
        assert self.task.startswith(options["split"])
        return "go", {"family": "loop"}

    def step(self, action: str) -> Any:
        if self.task[-1] in "0123":
            self.released.wait(60)
        return "solved", 1.0, True, False, {}


@pytest.mark.parametrize("own_thread", [True, False])
async def test_an_evaluation_with_four_deadlines_in_ten_says_six_in_ten(own_thread: bool) -> None:
    Loops.released.clear()
    config = GymEnvConfig(target=f"{__name__}:Loops", own_thread=own_thread)
    tasks = [TaskRef(f"heldout-{n}", n, "heldout") for n in range(10)]
    async with server_of(says_done) as url:
        address = PolicyAddress(url, "k", "m", is_gateway=False)
        try:
            async with Environments(config, address, slots=10, timeout_s=2.0) as environments:
                result = await environments.evaluate(tasks)
                group = await environments.group(TaskRef("train-1", 1, "train"), 2)
        finally:
            Loops.released.set()
    assert (result.success, result.n, result.lost) == (0.6, 10, ())
    assert result.metrics()["heldout/deadlines"] == 4
    assert result.warning is not None
    assert "4 of 10 tasks ran into the deadline and count as failed" in result.warning
    ends = {(episode.stop_reason, episode.reward) for episode in group.episodes_G}
    assert ends == {(StopReason.DEADLINE, 0.0)}


@pytest.mark.parametrize("lane", ["OwnThread('env')", "SharedThreads().lane()"])
def test_a_process_ends_although_an_action_never_comes_back(lane: str) -> None:
    program = (
        "import asyncio, threading\n"
        "from clawrl_gym.rollout.episodes.threads import OwnThread, SharedThreads\n"
        "async def main():\n"
        f"    lane = {lane}\n"
        "    assert await lane.submit(lambda: 3) == 3\n"
        "    lane.submit(threading.Event().wait)\n"
        "    lane.end()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class Quits(Loops):
    def step(self, action: str) -> Any:
        if self.task[-1] == "0":
            raise SystemExit(4)
        if self.task[-1] == "1":
            return "solved", float("nan"), True, False, {}
        return "solved", 1.0, True, False, {}


async def test_what_ends_processes_ends_its_own_episode_and_others_go_on() -> None:
    config = GymEnvConfig(target=f"{__name__}:Quits")
    async with server_of(says_done) as url:
        address = PolicyAddress(url, "k", "m", is_gateway=False)
        async with Environments(config, address, slots=3, timeout_s=30.0) as environments:
            refs = [TaskRef(f"train-{n}", n, "train") for n in (0, 1, 2, 3, 0, 1, 2, 3)]
            ended = await asyncio.gather(*(environments.episode(ref) for ref in refs))
    assert [episode.reward for episode in ended] == [None, None, 1.0, 1.0] * 2
    assert "raised SystemExit(4), which ends processes" in (ended[0].error or "")
    assert "got a reward nan, expected a finite number" in (ended[1].error or "")
    assert {episode.stop_reason for episode in ended[:2]} == {StopReason.ENV_ERROR}
