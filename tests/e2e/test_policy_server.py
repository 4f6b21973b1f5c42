"""The policy server for real: vLLM started, spoken to, swapped under load, killed and restarted."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import compress
from pathlib import Path

import psutil
import pytest

from clawrl_gym.core.errors import ConfigError, ContextError, PolicyError
from clawrl_gym.core.types import ChatBody, Tool
from clawrl_gym.inference.vllm.client import Generation, PolicyClient, Sampling
from clawrl_gym.inference.vllm.publisher import WeightPublisher
from clawrl_gym.inference.vllm.server import PolicyServer
from tests.e2e.served import CONFIG, Served, alive, tree, until
from tests.support.tiny_models import logprobs_by_transformers, make_random_model, random_weights

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

CHAT: ChatBody = {"messages": [{"role": "user", "content": "copy the file a.txt to b.csv"}]}
TOOLS: list[Tool] = [
    {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
]


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One loop for the whole module: the server belongs to the loop that started it."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random_model(tmp_path_factory.mktemp("model"), max_len=1024)


@pytest.fixture(scope="module")
def served(
    loop: asyncio.AbstractEventLoop, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    served = Served(model, tmp_path_factory.mktemp("served"))
    loop.run_until_complete(served.server.start())
    yield served
    loop.run_until_complete(served.server.stop())


def fork_server(pid: int) -> psutil.Process:
    """The process that the server was forked from."""
    parent = psutil.Process(pid).parent()
    assert parent is not None
    assert parent.pid != os.getpid()
    return parent


def gone_within(processes: list[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(processes)


def test_start_up_reports_its_phases_in_order(served: Served) -> None:
    wanted = ["starting vLLM", "reading the model", "loading weights", "warming up", "ready"]
    assert [phase for phase in served.phases if phase in wanted][:5] == wanted


def test_the_key_is_not_on_any_command_line_and_every_route_asks_for_it(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    pid = served.server.pid
    assert pid is not None
    assert all(served.server.key not in " ".join(p.cmdline()) for p in tree(pid))

    async def statuses() -> list[int]:
        import aiohttp

        async with aiohttp.ClientSession() as session:
            found = []
            for path in ("/health", "/v1/models", "/metrics", "/weight_info", "/is_paused"):
                async with session.get(served.server.base_url + path) as response:
                    found.append(response.status)
            async with session.post(served.server.base_url + "/pause") as response:
                found.append(response.status)
            return found

    assert loop.run_until_complete(statuses()) == [401] * 6


def test_it_listens_on_loopback_only(served: Served) -> None:
    pid = served.server.pid
    assert pid is not None
    port = int(served.server.base_url.rpartition(":")[2])
    listening = [
        c.laddr
        for p in tree(pid)
        for c in p.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN
    ]
    assert port in {address.port for address in listening}
    assert {address.ip for address in listening if address.port == port} == {"127.0.0.1"}


async def _ask(client: PolicyClient, seed: int | None, max_tokens: int = 24) -> Generation:
    ids = await client.render(CHAT)
    return await client.generate(ids, Sampling(1.0, 1.0, max_tokens, seed=seed), version=0)


def test_ids_logprobs_and_versions_come_back_for_every_token(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    async def go() -> None:
        client = served.client()
        try:
            made = await _ask(client, seed=1)
            assert 0 < len(made.sampled_ids_T) <= 24
            assert len(made.logprobs_T) == len(made.versions_T) == len(made.sampled_ids_T)
            assert all(logprob is not None and logprob <= 0 for logprob in made.logprobs_T)
            assert set(made.versions_T) == {served.version}
            assert (await _ask(client, seed=1)).sampled_ids_T == made.sampled_ids_T
            metrics = await client.metrics()
            assert set(metrics) >= {"running", "waiting", "kv_usage", "preemptions"}
            assert metrics["requests"] > 0
            assert metrics["contexts"] > 0
            assert metrics["tokens"] > 0
        finally:
            await client.close()

    loop.run_until_complete(go())


def test_logprobs_are_those_of_the_tempered_distribution(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    """Near temperature 0 the sampled token has probability one; the raw log-prob would not."""

    async def go() -> None:
        client = served.client()
        try:
            ids = await client.render(CHAT)
            made = await client.generate(ids, Sampling(0.01, 1.0, 16), version=0)
            assert statistics.mean(x for x in made.logprobs_T if x is not None) > -0.2
        finally:
            await client.close()

    loop.run_until_complete(go())


def test_the_message_of_plain_text_is_what_the_chat_route_would_have_answered(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    async def go() -> None:
        client = served.client()
        try:
            for seed in range(40):
                sampling = Sampling(1.0, 1.0, 24, seed=seed)
                reply = await client.generate_chat(CHAT, sampling, version=0)
                assert reply.whole is not None
                made, message = reply.whole
                body = {**CHAT, "model": "policy", "temperature": 1.0, "max_tokens": 24}
                body |= {"seed": seed, "return_token_ids": True}
                choice = (await client._connections.post("/v1/chat/completions", body))["choices"][
                    0
                ]
                assert choice["token_ids"] == made.sampled_ids_T
                assert message == {"role": "assistant", "content": choice["message"]["content"]}
        finally:
            await client.close()

    loop.run_until_complete(go())


def test_tools_are_part_of_the_prompt(served: Served, loop: asyncio.AbstractEventLoop) -> None:
    body: ChatBody = {**CHAT, "tools": TOOLS}

    async def go() -> None:
        client = served.client()
        try:
            assert len(await client.render(body)) > len(await client.render(CHAT))
        finally:
            await client.close()

    loop.run_until_complete(go())


def test_a_prompt_that_is_too_long_is_a_context_error(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    async def go() -> None:
        client = served.client()
        long: ChatBody = {"messages": [{"role": "user", "content": "qz " * 4000}]}
        try:
            with pytest.raises(ContextError, match="context"):
                await client.render(long)
            with pytest.raises(ContextError, match="1024"):
                await client.generate([5] * 1024, Sampling(1.0, 1.0, 8), version=0)
            made = await client.generate([5] * 1020, Sampling(1.0, 1.0, 64), version=0)
            assert len(made.sampled_ids_T) <= 4
            with pytest.raises(PolicyError, match="400") as caught:
                await client.render({"messages": "none"})  # type: ignore[typeddict-item]
            assert not isinstance(caught.value, ContextError)
        finally:
            await client.close()

    loop.run_until_complete(go())


def test_a_seed_and_a_prompt_that_is_read_in_parts_do_not_kill_the_engine(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    """Many long prompts at once are more than the engine reads in one step."""
    prompts = [[5 + at] * 900 for at in range(12)]

    async def go() -> None:
        client = served.client()
        seeded = Sampling(1.0, 1.0, 8, seed=7)
        try:
            alone = [await client.generate(p, seeded, version=0) for p in prompts[:2]]
            together = await asyncio.gather(
                *(client.generate(p, seeded, version=1000) for p in prompts)
            )
            assert [made.sampled_ids_T for made in together[:2]] == [
                made.sampled_ids_T for made in alone
            ]
            assert await client.healthy()
        finally:
            await client.close()

    loop.run_until_complete(go())


async def _load(client: PolicyClient, stop: asyncio.Event, done: list[Generation]) -> None:
    draw = random.Random(len(done))
    while not stop.is_set():
        prompt = [draw.randrange(3, 300) for _ in range(40)]
        sampling = Sampling(1.0, 1.0, 120, stop=())
        done.append(await client.generate(prompt, sampling, version=0))


def test_fifty_swaps_under_load_fail_no_request_and_every_token_knows_its_version(
    served: Served, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    files = []
    for seed in (11, 12):
        folder = make_random_model(tmp_path / str(seed), max_len=1024)
        files.append(random_weights(folder, seed))

    async def go() -> tuple[list[float], list[Generation]]:
        client, publisher, stop = served.client(), WeightPublisher(served.server), asyncio.Event()
        done: list[Generation] = []
        pauses = []
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(24):
                    group.create_task(_load(client, stop, done))
                for version in range(1, 51):
                    await asyncio.sleep(0.1)
                    pauses.append(await publisher.publish(version, files[version % 2]))
                    served.version = version
                stop.set()
            after = await client.generate([5, 6], Sampling(1.0, 1.0, 8), version=50)
            assert set(after.versions_T) == {50}
        finally:
            await client.close()
        return pauses, done

    pauses, done = loop.run_until_complete(go())
    assert len(pauses) == 50
    assert all(len(made.versions_T) == len(made.sampled_ids_T) > 0 for made in done)
    assert all(made.versions_T == sorted(made.versions_T) for made in done)
    assert any(len(set(made.versions_T)) > 1 for made in done), "no request lived through a swap"
    assert {version for made in done for version in made.versions_T} >= set(range(1, 50))


def test_after_a_swap_vllm_computes_with_all_of_the_new_weights(
    served: Served, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """Its log-probs are those that transformers finds for the same weights: a tied output head
    that kept the old ones would be far off."""
    folder = make_random_model(tmp_path / "model", seed=7, max_len=1024)

    async def go() -> tuple[Generation, list[float]]:
        client, publisher = served.client(), WeightPublisher(served.server)
        try:
            served.version += 1
            await publisher.publish(served.version, folder)
            made = await client.generate([5, 6, 7], Sampling(1.0, 1.0, 24), version=served.version)
            ids_T = made.prompt_ids_T + made.sampled_ids_T
            return made, await client.logprobs(ids_T, version=served.version)
        finally:
            await client.close()

    made, read = loop.run_until_complete(go())
    expected = logprobs_by_transformers(folder, made.prompt_ids_T, made.sampled_ids_T)
    assert made.logprobs_T == pytest.approx(expected, abs=1e-3)
    assert read[2:] == pytest.approx(expected, abs=1e-3)


def test_every_token_of_a_reply_that_lives_through_a_swap_is_drawn_from_its_version_alone(
    served: Served, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """With a cache that older weights have filled, log-probs after a swap would be of neither."""
    folders = [make_random_model(tmp_path / str(seed), seed, 1024) for seed in (21, 22)]
    first, second = (folder / "model.safetensors" for folder in folders)
    replies = loop.run_until_complete(_through_a_swap(served, first, second))
    assert any(len(set(reply.versions_T)) > 1 for reply in replies)
    for reply in replies:
        for version, folder in zip((served.version - 1, served.version), folders, strict=True):
            exact_T = logprobs_by_transformers(folder, reply.prompt_ids_T, reply.sampled_ids_T)
            drawn = [sampled_by == version for sampled_by in reply.versions_T]
            assert [*compress(reply.logprobs_T, drawn)] == pytest.approx(
                [*compress(exact_T, drawn)], abs=1e-3
            )


def test_a_seeded_reply_is_the_same_whether_or_not_a_swap_has_it_read_again(
    served: Served, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """Several together are read in parts, whose samples are thrown away."""
    weights = make_random_model(tmp_path / "model", 5, 1024) / "model.safetensors"
    swapped = loop.run_until_complete(_through_a_swap(served, weights, weights))
    assert any(len(set(reply.versions_T)) > 1 for reply in swapped)

    async def go() -> list[list[int]]:
        client = served.client()
        try:
            prompts = [reply.prompt_ids_T for reply in swapped]
            return [
                (await client.generate(prompt, _seeded(seed), version=99)).sampled_ids_T
                for seed, prompt in enumerate(prompts)
            ]
        finally:
            await client.close()

    assert [reply.sampled_ids_T for reply in swapped] == loop.run_until_complete(go())


def _seeded(seed: int) -> Sampling:
    return Sampling(1.0, 1.0, 650, seed=seed)


async def _through_a_swap(served: Served, first: Path, second: Path) -> list[Generation]:
    """Replies that have all begun when the second weights take the place of the first."""
    client, publisher = served.client(), WeightPublisher(served.server)
    try:
        served.version += 1
        await publisher.publish(served.version, first)
        served.server.folder.stage(served.version + 1, second)
        streams = [
            client.stream([5 + at] * 350, _seeded(at), None, version=served.version)
            for at in range(12)
        ]
        last = [await anext(stream) for stream in streams]
        served.version += 1
        await publisher.switch(served.version)
        for at, stream in enumerate(streams):
            async for piece in stream:
                last[at] = piece
    finally:
        await client.close()
    return [piece.generation for piece in last if piece.generation is not None]


def test_a_swap_changes_the_distribution_and_weights_that_do_not_fit_are_refused(
    served: Served, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    folder = make_random_model(tmp_path / "other", max_len=1024)
    of_another_size = make_random_model(tmp_path / "large", max_len=1024, hidden=96)

    async def go() -> None:
        client, publisher = served.client(), WeightPublisher(served.server)
        greedy = Sampling(0.0, 1.0, 12)
        try:
            before = await client.generate([5, 6, 7], greedy, version=served.version)
            served.version += 1
            await publisher.publish(served.version, random_weights(folder, seed=99))
            after = await client.generate([5, 6, 7], greedy, version=served.version)
            assert after.sampled_ids_T != before.sampled_ids_T
            with pytest.raises(PolicyError, match="of another model"):
                await publisher.publish(served.version + 1, of_another_size)
            again = await client.generate([5, 6, 7], greedy, version=served.version)
            assert again.sampled_ids_T == after.sampled_ids_T
            assert again.versions_T == after.versions_T
        finally:
            await client.close()

    loop.run_until_complete(go())


@pytest.mark.parametrize(
    "victim", ["server", pytest.param("engine", marks=pytest.mark.nightly), "fork server"]
)
def test_a_killed_vllm_comes_back_with_the_current_weights_and_version(
    served: Served, loop: asyncio.AbstractEventLoop, victim: str
) -> None:
    async def go() -> None:
        client = served.client()
        greedy = Sampling(0.0, 1.0, 12)
        watching = asyncio.create_task(served.server.watch())
        try:
            before = await client.generate([5, 6, 7], greedy, version=served.version)
            pid = served.server.pid
            assert pid is not None
            processes = tree(pid)
            victims = {
                "server": processes[0],
                "engine": processes[-1],
                "fork server": fork_server(pid),
            }
            victims[victim].send_signal(signal.SIGKILL)
            url = served.server.base_url
            await until(lambda: served.phases[-1] != "ready" or watching.done())
            await until(lambda: served.phases[-1] == "ready" or watching.done())
            assert not watching.done(), watching.exception()
            assert not alive(processes)
            assert served.server.base_url == url
            after = await client.generate([5, 6, 7], greedy, version=served.version)
            assert after.sampled_ids_T == before.sampled_ids_T
            assert set(after.versions_T) == {served.version}
        finally:
            watching.cancel()
            await client.close()

    loop.run_until_complete(go())


def test_stop_leaves_no_process_and_frees_the_port(
    served: Served, loop: asyncio.AbstractEventLoop
) -> None:
    """Runs last of those that share the server."""
    pid = served.server.pid
    assert pid is not None
    processes = [fork_server(pid), *tree(pid)]
    started = time.monotonic()
    loop.run_until_complete(served.server.stop())
    assert time.monotonic() - started < 30
    assert not alive(processes)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(served.server.base_url.rpartition(":")[2])))
    loop.run_until_complete(served.server.stop())


DRIVER = """
import asyncio, sys
from pathlib import Path
from clawrl_gym.config import PolicyConfig
from clawrl_gym.inference.vllm.server import PolicyServer

async def main():
    model, folder = map(Path, sys.argv[1:3])
    config = PolicyConfig(max_model_len=1024, kv_cache_gb=0.125)
    server = PolicyServer(config, model, folder / "s", folder / "log", lambda phase: None)
    await server.start()
    print(server.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_nothing_outlives_a_driver_that_was_killed(model: Path, tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(model), str(tmp_path)], stdout=subprocess.PIPE
    )
    try:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        processes = [fork_server(pid), *tree(pid)]
        assert len(processes) >= 3
        driver.kill()
        assert gone_within(processes, 5.0), alive(processes)
    finally:
        driver.kill()
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()


def test_a_model_that_does_not_load_is_one_clear_line(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    model = make_random_model(tmp_path / "model", max_len=1024)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of"}))
    server = PolicyServer(CONFIG, model, tmp_path / "s", tmp_path / "log", lambda _: None)
    with pytest.raises(PolicyError, match=r"exit code 1: .*unheard_of") as caught:
        loop.run_until_complete(server.start())
    assert "\n" not in str(caught.value)
    assert server.pid is None


def test_a_context_that_the_memory_cannot_hold_is_a_configuration_error(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    model = make_random_model(tmp_path / "model", max_len=1_000_000)
    config = CONFIG.model_copy(update={"max_model_len": 1_000_000, "kv_cache_gb": 0.01})
    server = PolicyServer(config, model, tmp_path / "s", tmp_path / "log", lambda _: None)
    with pytest.raises(ConfigError, match=r"lower policy\.max_model_len"):
        loop.run_until_complete(server.start())


def test_a_start_that_takes_too_long_is_ended(
    loop: asyncio.AbstractEventLoop, model: Path, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"start_timeout_s": 2.0})
    server = PolicyServer(config, model, tmp_path / "s", tmp_path / "log", lambda _: None)
    with pytest.raises(PolicyError, match="was not ready within 2 s"):
        loop.run_until_complete(server.start())
    assert server.pid is None


def test_a_start_that_is_cancelled_leaves_nothing(
    loop: asyncio.AbstractEventLoop, model: Path, tmp_path: Path
) -> None:
    server = PolicyServer(CONFIG, model, tmp_path / "s", tmp_path / "log", lambda _: None)

    async def go() -> list[psutil.Process]:
        starting = asyncio.create_task(server.start())
        await until(lambda: server.pid is not None)
        assert server.pid is not None
        await asyncio.sleep(1.0)
        processes = tree(server.pid)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return processes

    assert gone_within(loop.run_until_complete(go()), 1.0)
    assert server.pid is None
