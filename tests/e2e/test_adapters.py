"""Adapters in a real vLLM: versions side by side, publications that pause nobody, a death."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import NotServed, PolicyError, PolicyUnavailable
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.generation import Generation, Sampling
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.weights.adapters import adapter_slots
from clawrl_gym.run.export import export_run
from clawrl_gym.run.weight_checks import WeightChecks
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.learner import Learner
from tests.e2e.served import CONFIG, Served, processes_of, until
from tests.reference.tiny_model import make_samples
from tests.support.tiny_models import make_random_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

FORM = AdapterConfig(rank=4, alpha=32)
PROMPT = list(range(5, 45))
GREEDY = Sampling(0.0, 1.0, 24)


@dataclass
class Rig:
    """Servers with adapters, and a learner that makes some."""

    servers: PolicyServers
    client: EngineClient
    learner: Learner
    folder: Path

    def train(self) -> Path:
        """One update on samples as of its own; the folder of its adapter."""
        samples = make_samples([30, 17])
        (pack,) = make_packs(samples, 10_000)
        with torch.no_grad():
            known = iter(self.learner.model.score(pack).logprobs_M.tolist())
        own = [
            replace(s, logprobs_T=[next(known) if m else 0.0 for m in s.mask_T]) for s in samples
        ]
        self.learner.step(own, 0)
        self.learner.save_adapter(str(self.folder / "next"))
        return self.folder / "next"

    async def reply(self, version: int, user: str = "", tokens: int = 12) -> Generation:
        sampling = Sampling(1.0, 1.0, tokens, seed=1)
        return await self.client.generate(PROMPT, sampling, version=version, user=user)

    def gap(self, reply: Generation) -> float:
        """The largest difference between what was sampled and what the learner says of it now."""
        known = [logprob for logprob in reply.logprobs_T if logprob is not None]
        return float((logprobs(self.learner, reply) - torch.tensor(known)).abs().max())


def logprobs(learner: Learner, reply: Generation) -> torch.Tensor:
    ids_T = reply.prompt_ids_T + reply.sampled_ids_T
    sampled = len(reply.sampled_ids_T)
    sample = Sample(
        "s", 0, ids_T, [False] * len(PROMPT) + [True] * sampled, [0.0] * len(ids_T),
        [-1] * len(ids_T), [0.0] * len(ids_T), 1.0,
    )  # fmt: skip
    (pack,) = make_packs([sample], 10_000)
    with torch.no_grad():
        return learner.model.score(pack).logprobs_M


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def rig(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("adapters")
    model = make_random_model(folder / "model", max_len=1024)
    phases: list[str] = []

    async def make() -> Rig:
        servers = PolicyServers(
            CONFIG, model, folder / "s", folder / "logs", phases.append, adapter=FORM
        )
        (client,) = servers.fleet(64).policies
        learner = LearnerConfig(lr=0.05, warmup_steps=0, adapter=FORM)
        made = Learner(TrainerConfig(), learner, str(model), 0, "cpu")
        await servers.start_adapters()
        return Rig(servers, client, made, folder)

    rig = loop.run_until_complete(make())
    yield rig
    loop.run_until_complete(rig.servers.stop())
    loop.run_until_complete(rig.servers.close_clients())


def test_versions_answer_side_by_side_as_they_were_trained(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        base = await rig.reply(0)
        assert base.versions_T == [0] * 12
        assert rig.gap(base) < 1e-4, "an adapter that was not trained yet is the base"

        await rig.servers.publish_adapter(1, rig.train())
        first = await rig.reply(1)
        assert first.versions_T == [1] * 12
        assert rig.gap(first) < 1e-4
        assert rig.gap(base) > 1e-2, "the adapter changes what is said"

        adapters = rig.servers.adapters
        assert adapters is not None
        with adapters.use() as served:  # as a reply that goes on while newer ones are published
            await rig.servers.publish_adapter(2, rig.train())
            second = await rig.reply(2)
            assert rig.gap(second) < 1e-4
            # the same prompt, in the cache under other versions by now
            assert (await rig.reply(served.version)).logprobs_T == first.logprobs_T
            assert (await rig.reply(0)).logprobs_T == base.logprobs_T
        with pytest.raises(PolicyUnavailable, match="policy@1 is no longer served"):
            await rig.reply(1)

    loop.run_until_complete(main())


def test_a_stream_keeps_its_version_while_newer_ones_are_published(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        began = rig.servers.version
        sampling = Sampling(1.0, 1.0, 300, seed=3)
        versions: list[int] = []
        published = 0
        async for piece in rig.client.stream(PROMPT, sampling, None, version=began):
            versions += piece.versions_T
            if len(versions) > 20 * (published + 1) and published < 3:
                published += 1
                await rig.servers.publish_adapter(began + published, rig.train())
                assert rig.servers.version == began + published
            whole = piece.generation
        assert published == 3
        assert whole is not None
        assert versions == [began] * len(whole.sampled_ids_T)
        assert whole.versions_T == versions
        alive = [adapter.version for adapter in rig.servers.adapters.alive]  # type: ignore[union-attr]
        assert alive == [began + 3]

    loop.run_until_complete(main())


def test_users_have_adapters_of_their_own_and_others_the_shared_one(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        adapters = rig.servers.adapters
        assert adapters is not None
        newest = rig.servers.version
        shared = await rig.reply(newest)
        await rig.servers.publish_adapter(1, rig.train(), user="ada")
        assert rig.gap(await rig.reply(1, "ada")) < 1e-4
        assert (await rig.reply(newest)).logprobs_T == shared.logprobs_T
        with adapters.use("ada") as ada, adapters.use("bob") as bob:
            assert (ada.user, ada.version) == ("ada", 1)
            assert (bob.user, bob.version) == ("", newest)
        rig.servers.withdraw_adapters("ada")
        with pytest.raises(PolicyUnavailable, match="ada@1 is no longer served"):
            await rig.reply(1, "ada")
        assert adapters.newest("ada") == adapters.newest()

    loop.run_until_complete(main())


def test_more_users_than_vllm_holds_at_a_time_are_each_answered_with_their_own(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    users = [f"user{number}" for number in range(2 * adapter_slots(CONFIG) + 3)]

    async def main() -> None:
        known = {}
        for user in users:
            await rig.servers.publish_adapter(1, rig.train(), user=user)
            known[user] = rig.learner.probe()

        async def gap(user: str, owner: str = "") -> float:
            ids_T, expected = known[user].ids_T, known[owner or user].logprobs_T
            said = await rig.client.logprobs(ids_T, version=1, user=user)
            return max(abs(x - y) for x, y in zip(said, expected, strict=True))

        # After so many updates float32 rounds log-probs of -16 by 1e-4, on some processors.
        assert max(await asyncio.gather(*map(gap, users))) < 1e-3
        assert max([await gap(user) for user in reversed(users)]) < 1e-3
        assert min([await gap(*pair) for pair in pairwise(users)]) > 1e-2
        for user in users:
            rig.servers.withdraw_adapters(user)

    loop.run_until_complete(main())


def test_an_adapter_that_the_engine_refuses_changes_nothing(
    rig: Rig, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    async def main() -> None:
        newest = rig.servers.version
        too_large = AdapterConfig(rank=32)
        learner = LearnerConfig(adapter=too_large)
        other = Learner(TrainerConfig(), learner, str(rig.learner.model_dir), 0, "cpu")
        other.save_adapter(str(tmp_path / "a"))
        with pytest.raises(PolicyError, match="rank"):
            await rig.servers.publish_adapter(newest + 1, tmp_path / "a")
        assert rig.servers.version == newest
        assert (await rig.reply(newest)).versions_T == [newest] * 12

    loop.run_until_complete(main())


def test_the_engine_says_of_the_probe_what_the_learner_says(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    """And an adapter that is another one than was trained is not served."""

    async def main() -> None:
        said: list[str] = []
        weight_checks = WeightChecks(rig.servers, said.append, is_exact=True)
        newest = rig.servers.version + 1
        await rig.servers.publish_adapter(newest, rig.train())
        weight_checks.begin(rig.learner.probe())
        old = shutil.copytree(rig.folder / "next", rig.folder / "old")
        folder = rig.train()
        weight_check = await weight_checks.of(rig.learner.probe(), "", newest + 1, newest)
        assert weight_check is not None
        with pytest.raises(NotServed, match="differ from the learner's by up to"):
            await rig.servers.publish_adapter(newest + 1, old, verify=weight_check)
        assert rig.servers.version == newest
        assert (await rig.reply(newest)).versions_T[0] == newest
        weight_check = await weight_checks.of(rig.learner.probe(), "", newest + 2, newest)
        assert weight_check is not None
        await rig.servers.publish_adapter(newest + 2, folder, verify=weight_check)
        assert rig.servers.version == newest + 2
        weight_check.mark_verified()
        assert weight_check.metrics["learner/probe_gap"] < 1e-4
        assert weight_check.metrics["learner/probe_arrived"] == pytest.approx(1, abs=1e-2)
        assert said == []

    loop.run_until_complete(main())


def said_by_transformers(folder: Path, made_by: type[Any]) -> tuple[list[int], list[float]]:
    """The greedy reply to the prompt, and log-probs of both together."""
    net = made_by.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = torch.tensor([PROMPT])
    with torch.no_grad():
        ids = net.generate(
            input_ids=prompt, max_new_tokens=GREEDY.max_tokens, do_sample=False, eos_token_id=None
        )
        logprobs_T = net(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return ids[0].tolist(), logprobs_T.tolist()


def test_an_export_in_either_form_answers_as_the_run_does(
    rig: Rig, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """Greedy text and log-probs: the served version, the adapter and the merged model in vLLM, and
    both in transformers."""
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    run, trained = tmp_path / "run", rig.train()
    rig.learner.save_checkpoint(str(run / "checkpoints" / "000005"))
    model = rig.learner.model_dir
    (run / "config.yaml").write_text(yaml.safe_dump({"policy": {"model": str(model)}}))
    adapter = export_run(run, tmp_path / "adapter", form="adapter").folder
    merged = Served(export_run(run, tmp_path / "merged").folder, tmp_path / "served")

    async def said(client: EngineClient, version: int, user: str) -> tuple[list[int], list[float]]:
        reply = await client.generate(PROMPT, GREEDY, version=version, user=user)
        ids = PROMPT + reply.sampled_ids_T
        return ids, await client.logprobs(ids, version=version, user=user)

    async def main() -> list[tuple[list[int], list[float]]]:
        newest = rig.servers.version + 1
        await rig.servers.publish_adapter(newest, trained)
        await rig.servers.publish_adapter(1, adapter, user="exported")
        before = await said(rig.client, 0, "")
        answers = [await said(rig.client, newest, ""), await said(rig.client, 1, "exported")]
        assert before[0] != answers[0][0], "what was trained changes the reply"
        await merged.server.start()
        client = merged.client()
        try:
            return [*answers, await said(client, 0, "")]
        finally:
            await client.close()
            await merged.server.stop()
            rig.servers.withdraw_adapters("exported")

    served, *exported = loop.run_until_complete(main())
    exported.append(said_by_transformers(adapter, AutoPeftModelForCausalLM))
    exported.append(said_by_transformers(merged.model, AutoModelForCausalLM))
    for ids, logprobs_T in exported:
        assert ids == served[0]
        assert logprobs_T == pytest.approx(served[1], abs=1e-4)


def test_a_server_that_died_comes_back_with_the_newest_adapters(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        watching = asyncio.create_task(rig.servers.watch())
        (server,) = processes_of(rig.servers)
        newest = rig.servers.version
        await rig.servers.publish_adapter(1, rig.train(), user="bob")
        before = await rig.reply(1, "bob")
        assert server.pid is not None
        os.killpg(server.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await until(lambda: not server.alive)
            await rig.servers.publish_adapter(newest + 1, rig.train())  # while it is away
            await until(lambda: server.alive)
        again, own = await rig.reply(1, "bob"), await rig.reply(newest + 1)
        assert again.logprobs_T == pytest.approx(before.logprobs_T, abs=1e-5)
        assert rig.gap(own) < 1e-4
        watching.cancel()

    loop.run_until_complete(main())
