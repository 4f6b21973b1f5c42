"""A service that learns of its conversations, in this process: Ray, gateway, judge and store are
real, the learner sleeps, vLLM is a stand-in."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import clawrl_gym as cg
from clawrl_gym.core.files.folder_lock import holder_of
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import METRICS_FILE, TIMELINE_FILE
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.versions import VersionJson
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.supervisor import listen
from clawrl_gym.store import StoreReader
from tests.support.numpy_engine import make_model, make_package
from tests.support.waiting import PATIENCE_S

KEY = "the key of the service"


class Client:
    """Somebody who talks, and looks at versions."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._url = f"http://127.0.0.1:{port}"
        self._http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"})

    async def close(self) -> None:
        await self._http.close()

    async def say(self, session: str, messages: list[Message], words: str) -> str:
        """Adds the words and the reply; the version that replied."""
        messages.append({"role": "user", "content": words})
        url = f"{self._url}/sessions/{session}/v1/chat/completions"
        async with self._http.post(url, json={"messages": messages}) as answer:
            body = await answer.json()
            assert answer.status == 200, body
            messages.append(
                {"role": "assistant", "content": body["choices"][0]["message"]["content"]}
            )
            return answer.headers["X-Weight-Version"]

    async def versions(self) -> list[VersionJson]:
        async with self._http.get(f"{self._url}/v1/versions") as answer:
            return (await answer.json())["data"] if answer.status == 200 else []

    async def until_kept(self, version: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while version not in [kept["version"] for kept in await self.versions()]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def rollback(self, version: int) -> object:
        async with self._http.post(f"{self._url}/v1/versions/{version}") as answer:
            return await answer.json()

    def is_gone(self) -> bool:
        """Nobody answers."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) != 0

    async def delete(self, session: str) -> int:
        async with self._http.delete(f"{self._url}/v1/sessions/{session}") as answer:
            return answer.status


@pytest.mark.ray
async def test_a_service_learns_of_what_it_is_told_and_goes_back_to_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(make_package(tmp_path / "stand-in")))
    folder = tmp_path / "serve"
    config = cg.load_config(
        [
            f"run.dir={folder}", f"policy.model={make_model(tmp_path / 'model')}", "ui=line",
            "policy.device=cpu", "policy.max_model_len=256", "gateway.port=0",
            f"gateway.key='{KEY}'", "policy.sampling.max_tokens=16", "learner=simulated",
            "learner.simulated_step_s=0", "trainer=binary", "judge=rule", "live.batch_turns=2",
        ],
        "serve",
    )  # fmt: skip
    sock = listen(config.gateway)
    client = Client(sock.getsockname()[1])
    serving = asyncio.create_task(cg.run_serving_async(config, sock))
    try:
        talk: list[Message] = []
        assert await client.say("s1", talk, "Say 4.") == "0"
        await client.say("s1", talk, "no, that is wrong")
        await client.say("s1", talk, "that is wrong")
        assert [message["content"] for message in talk[1::2]] == ["4", "yes", "yes"]
        await client.until_kept(1)
        assert await client.say("s2", [], "Say 5.") == "1"
        assert await client.rollback(0) == {"returned_to": 0, "version": 2}
        assert await client.say("s3", [], "Say 6.") == "2"
        kept = await client.versions()
        assert await client.delete("s1") == 200
    finally:
        await client.close()
        serving.cancel()
        (ended,) = await asyncio.gather(serving, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    assert [(row["version"], row["returned_to"]) for row in kept] == [(0, None), (1, None), (2, 0)]
    assert client.is_gone()
    assert holder_of(folder) is None
    check_what_was_said(capsys.readouterr().out.splitlines(), folder)
    check_what_is_left(folder)


def check_what_was_said(lines: list[str], folder: Path) -> None:
    assert lines[0] == str(folder)
    assert lines[-1] == f"report: {folder}/report.html"
    plain = [" ".join(line.partition(" (")[0].partition("  step")[0].split()) for line in lines]
    told = [line for line in plain if line.startswith(("turn ", "verdict ", "update "))]
    assert sorted(told) == sorted([
        "turn s1#0 main 22 + 2 tokens v0", "verdict on turn 1: - rule wrong",
        "turn s1#1 main 57 + 4 tokens v0", "verdict on turn 2: - rule wrong",
        "turn s1#2 main 91 + 4 tokens v0", "update 1: 2 turns loss -",
        "turn s2#0 main 22 + 2 tokens v1", "update 2: 0 turns loss -",
        "turn s3#0 main 22 + 2 tokens v2",
    ])  # fmt: skip
    for line in (
        "judge: rules", "Ray: ready", "vLLM: ready", "learner: ready",
        "the weights of version 0 are back, as version 2",
        "the learner has no probe: what is served is not compared with what is learned",
    ):  # fmt: skip
        assert plain.count(line) == 1, line
    (address,) = [line for line in lines if line.startswith("base URL: ")]
    assert address.endswith("/v1   key: gateway.key")
    assert KEY not in "".join(lines)


def check_what_is_left(folder: Path) -> None:
    first, second = read_json_lines(folder / METRICS_FILE)
    assert (first["step"], first["batch/samples"], first["verdicts/mean"]) == (1, 2, -1)
    assert (first["live/samples"], first["turns/main"], first["verdicts/negative"]) == (2, 3, 2)
    assert (second["step"], second["batch/samples"], second["learner/returned_to"]) == (2, 0, 0)
    spans: list[dict[str, Any]] = read_json_lines(folder / TIMELINE_FILE)
    counts = Counter((span["loop"], span["name"]) for span in spans)
    assert counts.pop(("serve", "generate")) >= 1
    assert counts == {
        ("train", "wait"): 1, ("train", "step"): 1, ("train", "checkpoint"): 1,
        ("train", "return"): 1, ("serve", "swap"): 2,
    }  # fmt: skip
    reader = StoreReader(folder)
    assert [(row.version, row.groups, row.metrics.get("learner/returned_to")) for row in
            reader.updates()] == [(1, 2, None), (2, 0, 0)]  # fmt: skip
    assert [row.id for row in reader.sessions()] == ["s2", "s3"]
    assert reader.samples_of_update(1) == [], "they went with their session"
    reader.close()
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["000001", "000002"]
    assert (folder / "checkpoints/000002/updates").read_text() == "0", "as at the beginning"
    assert "no, that is wrong" not in (folder / "report.html").read_text()
    written = RunFolder(folder).read_config(cg.ServeConfig)
    assert (written.live.batch_turns, written.trainer.algorithm) == (2, "binary")
    assert (folder / "config.yaml").stat().st_mode & 0o077 == 0, "its owner's alone"
