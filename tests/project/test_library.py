"""What `import clawrl_gym` gives: its names, and the commands as functions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from aiohttp import web

import clawrl_gym as cg
from clawrl_gym.cluster.environments import Worker
from clawrl_gym.config import AgentConfig
from clawrl_gym.rollout.collection.pool import EpisodeRunner
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.stage import Stage
from clawrl_gym.run.blocking import run_blocking

HEAVY = {"torch", "ray", "vllm", "transformers", "playwright", "aiohttp", "hydra"}


def test_all_names_are_there_and_nothing_else_is_promised() -> None:
    for name in cg.__all__:
        assert getattr(cg, name) is not None, name
    assert set(cg.__all__) <= set(dir(cg))
    assert 30 <= len(cg.__all__) <= 76
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cg.nothing  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    source = Path(str(cg.__file__)).read_text()
    imported = {line.rpartition(" as ")[2] for line in source.splitlines() if " as " in line}
    assert set(cg.__all__) - {"__version__"} <= imported


def test_importing_it_is_light() -> None:
    code = "import sys, clawrl_gym; print(*sorted(set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_a_configuration_is_the_command_lines() -> None:
    config = cg.load_config(["env=toolcall", "trainer.steps=3"])
    assert isinstance(config, cg.RunConfig)
    assert (config.env.type, config.trainer.steps) == ("toolcall", 3)
    assert isinstance(cg.load_config([], "serve"), cg.ServeConfig)
    assert isinstance(cg.load_config(["env=gui"], "evaluate"), cg.EvaluateConfig)
    with pytest.raises(cg.ConfigError, match=r"did you mean 'trainer\.steps'"):
        cg.load_config(["trainer.stepps=3"])
    with pytest.raises(cg.ConfigError, match="one of train, sft, serve, evaluate, rejudge, bench"):
        cg.load_config([], "dance")  # type: ignore[call-overload]


def test_a_coroutine_blocks_with_and_without_a_loop() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    async def in_a_notebook() -> int:
        return run_blocking(answer())

    assert run_blocking(answer()) == 42
    assert asyncio.run(in_a_notebook()) == 42


def test_an_error_of_a_coroutine_comes_through_the_thread() -> None:
    async def fail() -> None:
        raise cg.PolicyError("no")

    async def in_a_notebook() -> None:
        run_blocking(fail())

    with pytest.raises(cg.PolicyError, match="no"):
        asyncio.run(in_a_notebook())


def move_file(messages: list[cg.Message], tools: object) -> str:
    """A policy that knows one command."""
    request = str(messages[-1]["content"])
    return "```bash\nls\n```" if "Copy" in request else "```bash\nfalse\n```"


@pytest.mark.sandbox
def test_an_episode_is_played_by_a_function() -> None:
    played = cg.run_episode(
        ["env=terminal", "env.families=[copy]"], move_file, task="copy-train-000001"
    )
    assert played.episode.stop_reason is cg.StopReason.TERMINATED
    assert played.episode.reward == 0.0
    roles = [message["role"] for message in played.messages]
    assert roles[:3] == ["system", "user", "assistant"]
    assert played.messages[2]["content"] == "```bash\nls\n```"


@pytest.mark.sandbox
def test_a_function_that_fails_is_the_policys_failure() -> None:
    played = cg.run_episode("terminal", lambda messages, tools: 7)
    assert played.episode.stop_reason is cg.StopReason.POLICY_ERROR
    assert played.episode.reward is None
    assert "got a reply 7 of type int" in str(played.episode.error)


async def serve_scripted(content: str) -> tuple[web.AppRunner, str]:
    """A server of the OpenAI API that always says the same."""

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        assert body["model"] == "scripted"
        message = {"role": "assistant", "content": content}
        usage = {"prompt_tokens": 1, "completion_tokens": 3}
        return web.json_response({"choices": [{"message": message}], "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


@pytest.mark.sandbox
async def test_any_server_of_the_openai_api_is_measured(tmp_path: Path) -> None:
    runner, url = await serve_scripted("```bash\nfalse\n```")
    phases: list[str] = []
    try:
        run = await cg.run_evaluation_async(
            [
                "env=terminal",
                "eval.tasks=6",
                f"endpoint.base_url={url}",
                "endpoint.model=scripted",
                f"run.dir={tmp_path / 'measured'}",
            ],
            on_phase=lambda part, phase: phases.append(f"{part}: {phase}"),
        )
    finally:
        await runner.cleanup()
    assert run.evaluation.n == 6
    assert run.success == 0.0
    written = json.loads((tmp_path / "measured" / "evaluation.json").read_text())
    assert len(written["episodes"]) == 6
    assert written["metrics"]["heldout/n"] == 6
    assert "n = 6" in run.summary()
    assert "evaluation: 6 tasks of the split heldout" in phases


async def test_an_endpoint_without_http_is_refused() -> None:
    with pytest.raises(cg.ConfigError, match="expected an address with http"):
        await cg.run_evaluation_async(["endpoint.base_url=localhost:8000"])


async def test_an_endpoint_that_hangs_up_is_no_failure_of_the_policy(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(cg.EnvError, match="held-out tasks were lost"):
            await cg.run_evaluation_async(
                [
                    "eval.tasks=2",
                    "rollout.max_retries=0",
                    "endpoint.patience_s=0",
                    f"endpoint.base_url=http://127.0.0.1:{port}/v1",
                    f"run.dir={tmp_path}",
                ]
            )


def test_what_is_no_list_of_overrides_is_told() -> None:
    for wrong in ("env=terminal", None, 3, cg.load_config([], "evaluate")):
        with pytest.raises(cg.ConfigError, match=r"got overrides of type .*expected a list"):
            cg.load_config(wrong)  # type: ignore[arg-type]
    with pytest.raises(cg.ConfigError, match="got the override 3"):
        cg.load_config([3])  # type: ignore[list-item]
    with pytest.raises(cg.ConfigError, match="of the command train"):
        cg.run_training(cg.load_config([], "evaluate"))  # type: ignore[arg-type]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "reply",
    [None, 3, {}, {"content": 3}, {"content": None}, {"content": "", "tool_calls": [3]}, b"ls"],
)
def test_what_is_no_reply_is_a_policy_error_and_no_reward(reply: object) -> None:
    played = cg.run_episode("terminal", lambda messages, tools: reply)
    assert played.episode.stop_reason == cg.StopReason.POLICY_ERROR
    assert played.episode.reward is None
    assert "from the policy's function, expected a text or a message" in str(played.episode.error)


@pytest.mark.sandbox
def test_a_function_that_hangs_ends_with_the_episodes_deadline() -> None:
    released = threading.Event()

    def hang(messages: list[cg.Message], tools: object) -> str:
        released.wait(20)
        return "late"

    async def play() -> cg.Episode:
        try:
            return (await cg.run_episode_async("terminal", hang, timeout_s=2)).episode
        finally:
            released.set()

    episode = asyncio.run(play())
    assert (episode.stop_reason, episode.reward) == (cg.StopReason.DEADLINE, 0.0)
    assert episode.duration_s < 10


def test_what_is_no_policy_is_told() -> None:
    with pytest.raises(cg.ConfigError, match="a policy of type str, expected a PolicyAddress"):
        cg.run_episode("terminal", "http://127.0.0.1:1")  # type: ignore[arg-type]


async def test_environments_that_are_not_started_say_so() -> None:
    config = cg.load_config([])
    address = cg.PolicyAddress("http://127.0.0.1:1", "key", "tiny")
    environments = cg.Environments(config.env, address)
    with pytest.raises(cg.ConfigError, match="not started: use them in `async with"):
        await environments.episode(cg.TaskSampler.of(config.env, 0).train(0))
    with pytest.raises(cg.ConfigError, match="got slots=0"):
        cg.Environments(config.env, address, slots=0)


def test_an_interrupt_in_a_notebook_closes_everything_and_is_raised() -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def in_a_notebook() -> None:
        run_blocking(wait())

    def interrupt() -> None:
        started.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(in_a_notebook())
    assert cancelled.is_set()


class _Stuck(EpisodeRunner):
    """A worker that fails in closing, or never ends it."""

    def __init__(self, closed: list[str]) -> None:
        self._closed = closed

    async def run(self, spec: EpisodeSpec) -> cg.Episode:
        raise AssertionError

    async def close(self) -> None:
        self._closed.append("asked")
        if len(self._closed) == 1:
            raise ConnectionError("its process is gone")
        await asyncio.Event().wait()


async def test_workers_that_fail_in_closing_do_not_hold_up_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Hired(cg.Environments):
        def _worker(self) -> Worker:
            return _Stuck(asked)

    monkeypatch.setattr("clawrl_gym.cluster.environments._CLOSE_S", 0.1)
    address = cg.PolicyAddress("http://127.0.0.1:1", "key", "tiny")
    async with Hired(cg.load_config([]).env, address, workers=2) as hired:
        assert hired.pool.workers == 2
    assert asked == ["asked", "asked"]


class _Counting(EpisodeRunner):
    """Notes how many episodes it ever had at a time."""

    def __init__(self) -> None:
        self.has = self.most = 0

    async def run(self, spec: EpisodeSpec) -> cg.Episode:
        self.has += 1
        self.most = max(self.most, self.has)
        await asyncio.sleep(0)
        self.has -= 1
        return cg.Episode(spec.session_id, None, spec.task, cg.StopReason.TERMINATED, 1.0, 1)

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_worker_gets_no_more_episodes_of_an_environment_than_it_holds() -> None:
    worker = _Counting()

    class Hired(cg.Environments):
        def _worker(self) -> Worker:
            return worker

    stage = Stage(cg.load_config([]).env, AgentConfig(), 60.0, envs_per_worker=2)
    address = cg.PolicyAddress("http://127.0.0.1:1", "key", "tiny")
    async with Hired({"few": stage}, address, slots=16) as hired:
        task = cg.TaskRef("a", 0, "train", "few")
        await asyncio.gather(*(hired.episode(task) for _ in range(20)))
    assert worker.most == 2
