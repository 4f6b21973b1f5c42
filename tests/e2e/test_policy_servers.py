"""Two real servers behind one fleet: a swap reaches both, and one may die."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from clawrl_gym.core.errors import PolicyUnavailable
from clawrl_gym.core.types import ChatBody
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.generation import Piece, message_of
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.vllm.client import Sampling
from tests.e2e.scripted_model import make_scripted_model
from tests.e2e.served import CONFIG, processes_of, tree

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

ENDLESS: ChatBody = {
    "messages": [{"role": "user", "content": "go"}],
    "chat_template_kwargs": {"script": "endless"},
}


async def test_a_session_survives_the_death_of_its_server_in_the_middle_of_a_reply(
    tmp_path: Path,
) -> None:
    model = make_scripted_model(tmp_path / "model", {"endless": [" tick", " tock", " tick"]})
    phases: list[str] = []
    config = CONFIG.model_copy(update={"servers": 2})
    servers = PolicyServers(config, model, tmp_path / "s", tmp_path / "logs", phases.append)
    fleet = servers.fleet(64)  # before anything listens
    with pytest.raises(PolicyUnavailable):
        await fleet.of("s").render(ENDLESS)
    try:
        await servers.start()
        watching = asyncio.create_task(servers.watch())
        await servers.publish(1, model / "model.safetensors")
        assert {await version_of(policy) for policy in fleet.policies} == {1}

        home = fleet.of("s")
        assert fleet.of("other") is not home
        pieces = await killed_in_the_middle(servers, fleet, home)
        fleet.failed(home)
        assert fleet.alive == 1
        elsewhere = fleet.of("s")
        assert elsewhere is not home
        ids = next(piece.prompt_ids_T for piece in pieces if piece.prompt_ids_T)
        sampling = Sampling(0.0, 1.0, 400)
        rest = [
            piece
            async for piece in elsewhere.stream(
                ids, sampling, ENDLESS, version=1, resume_from=pieces
            )
        ]
        text = message_of(piece.delta for piece in [*pieces, *rest])["content"]
        assert text == " tick tock" * 200
        done = rest[-1].generation
        assert done is not None
        assert done.versions_T == [1] * 400

        await servers.publish(2, model / "model.safetensors")
        async with asyncio.timeout(120):
            while not all(server.alive for server in processes_of(servers)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert {await version_of(policy) for policy in fleet.policies} == {2}
        assert not watching.done()
        watching.cancel()
    finally:
        pids = [p for server in processes_of(servers) if server.pid for p in tree(server.pid)]
        await servers.stop()
        await servers.close_clients()
    assert not [p for p in pids if p.is_running() and p.status() != "zombie"]


async def version_of(policy: EngineClient) -> int:
    (version,) = set((await policy.generate([5], Sampling(0, 1, 3), version=0)).versions_T)
    return version


async def killed_in_the_middle(
    servers: PolicyServers, fleet: Fleet[EngineClient], home: EngineClient
) -> list[Piece]:
    """Pieces of a reply whose server is killed while it speaks."""
    server = processes_of(servers)[fleet.policies.index(home)]
    pieces = []
    stream = home.stream_chat(ENDLESS, Sampling(0.0, 1.0, 400), version=1)
    with pytest.raises(PolicyUnavailable):  # noqa: PT012
        async for piece in stream:
            pieces.append(piece)
            if len(pieces) == 20:
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)
    return pieces
