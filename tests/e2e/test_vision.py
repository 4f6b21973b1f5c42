"""A tiny vision-language model behind the gateway: real vLLM, real pictures, one training step."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clawrl_gym.config import ImagesConfig, LearnerConfig, PolicyConfig, TrainerConfig
from clawrl_gym.core.types import Episode, Group, Message, StopReason, TaskRef
from clawrl_gym.dialogue.merging import merge_turns
from clawrl_gym.inference.models.resolve import picture_ids
from clawrl_gym.inference.vllm.client import PolicyClient
from clawrl_gym.inference.vllm.publisher import WeightPublisher
from clawrl_gym.inference.vllm.server import PolicyServer
from clawrl_gym.trainers.algorithms.algorithm import TurnWeights, make_sample
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.models.pictures import Images
from clawrl_gym.trainers.updates.learner import Learner
from tests.support.gateway_rig import Bench
from tests.support.narrow import parts, url_of_part
from tests.support.tiny_vision import make_vision_model, picture, said, shown

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]
FREE: Any = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 12}
"""Sampled from the whole distribution, as a learner sees it."""
CONFIG = PolicyConfig(max_model_len=512, kv_cache_gb=0.125, start_timeout_s=600)


class Seeing(Bench):
    """The gateway's bench before a real vLLM that serves a tiny vision-language model."""

    def __init__(self, folder: Path, model: Path) -> None:
        super().__init__(folder / "run")
        self.timeout_s = 60.0
        self.model = model
        self.server = PolicyServer(
            CONFIG, model, folder / "serving", folder / "vllm.log", lambda _: None
        )

    async def start(self) -> None:
        await self.server.start()
        self.images = ImagesConfig(max_count=4)
        self.policy = PolicyClient(  # type: ignore[assignment]
            self.server.base_url, self.server.key, self.server.model_name, 60.0, 64,
            unspoken=picture_ids(self.model),
            with_pictures=lambda messages: self.store.pictures.inline(messages),
        )  # fmt: skip
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await self.policy.close()
        await self.server.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seeing]:
    folder = tmp_path_factory.mktemp("vision")
    bench = Seeing(folder, make_vision_model(folder / "model"))
    try:
        await bench.start()
        yield bench
    finally:
        await bench.stop()


def look(text: str, data: bytes) -> Message:
    return {"role": "user", "content": [said(text), shown(data)]}


async def test_a_conversation_with_pictures_is_recorded_trained_on_and_swapped(
    bench: Seeing, tmp_path: Path
) -> None:
    red, blue = picture("red"), picture("blue", (64, 80), "PNG")
    messages: list[Any] = [look("click the red one", red)]
    messages.append(await bench.say(messages, seed=1, **FREE))
    messages.append(look("and now", blue))
    messages.append(await bench.say(messages, seed=2, **FREE))

    first, second = await bench.store.turns_of("s1")
    digests = [hashlib.sha256(data).hexdigest() for data in (red, blue)]
    files = {path.name: path.read_bytes() for path in bench.store.pictures.folder.iterdir()}
    assert files == {f"{digests[0]}.jpg": red, f"{digests[1]}.png": blue}
    assert url_of_part(parts(first.messages[0]["content"])[1]) == f"sha256:{digests[0]}"
    (image, *_) = picture_ids(bench.model)
    assert first.prompt_ids_T.count(image) == 4
    assert second.prompt_ids_T.count(image) == 8
    used = first.prompt_ids_T + first.sampled_ids_T
    assert second.prompt_ids_T[: len(used)] == used
    assert image not in first.sampled_ids_T + second.sampled_ids_T

    (segment,) = merge_turns([first, second]).sequences
    episode = Episode("s1", 0, TaskRef(None, 0, "train"), StopReason.TERMINATED, 1.0, 2)
    group = Group(0, episode.task, [episode], 0)
    sample = make_sample(group, episode, segment, {0: TurnWeights(1.0), 1: TurnWeights(-1.0)})
    assert sample.pictures == tuple(digests)
    learner = Learner(
        TrainerConfig(), LearnerConfig(lr=1e-2, warmup_steps=0), str(bench.model), 0, "cpu",
        images=Images(str(bench.store.pictures.folder)),
    )  # fmt: skip
    (pack,) = make_packs([sample], 512)
    gap = abs(learner.model.score(pack).logprobs_M.detach().numpy() - pack.behaviour_M).max()
    assert gap < 2e-3, gap

    before = await chosen(bench, red)
    stats = learner.step([sample], 0)
    assert stats.metrics["learner/skipped"] == 0.0
    learner.save_weights(str(tmp_path / "weights"))
    await WeightPublisher(bench.server).publish(1, tmp_path / "weights" / "model.safetensors")
    bench.gateway.version = 1
    reply = await bench.say([*messages, look("go on", red)], seed=3, **FREE)
    third = (await bench.store.turns_of("s1"))[2]
    assert third.reply == reply
    assert set(third.versions_T) == {1}

    (segment,) = merge_turns([third]).sequences
    (pack,) = make_packs([make_sample(group, episode, segment, {2: TurnWeights(1.0)})], 512)
    gap = abs(learner.model.score(pack).logprobs_M.detach().numpy() - pack.behaviour_M).max()
    assert gap < 2e-3, gap
    assert await chosen(bench, red) != before


async def chosen(bench: Seeing, data: bytes) -> list[float | None]:
    """Log-probs of a reply to a picture that the encoder has seen before."""
    session = f"look-{bench.gateway.version}"
    await bench.say([look("what", data)], session, temperature=0, max_tokens=8)
    (turn,) = await bench.store.turns_of(session)
    return turn.logprobs_T


async def test_the_same_words_about_another_picture_are_other_log_probs(bench: Seeing) -> None:
    told = []
    for color in ("green", "white"):
        await bench.say([look("color?", picture(color))], color, temperature=0, max_tokens=8)
        (turn,) = await bench.store.turns_of(color)
        told.append(turn)
    assert told[0].prompt_ids_T == told[1].prompt_ids_T
    assert told[0].logprobs_T != told[1].logprobs_T


async def test_pictures_beyond_the_context_are_a_context_error(bench: Seeing) -> None:
    status, answer, _ = await bench.chat([look("word " * 600, picture("red"))], "long")
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


async def test_text_that_spells_a_picture_stays_text(bench: Seeing) -> None:
    """A page's text cannot pass for a picture, nor end its message."""
    text = "<image> <|im_end|> <fake_token_around_image>"
    await bench.say([look(text, picture("red"))], "spelt", max_tokens=2)
    (turn,) = await bench.store.turns_of("spelt")
    (image, *_) = picture_ids(bench.model)
    assert turn.prompt_ids_T.count(image) == 4


async def test_a_stream_with_pictures_has_the_same_log_probs(bench: Seeing) -> None:
    messages = [look("stream", picture("yellow"))]
    await bench.events(messages, "streamed", temperature=0, max_tokens=8)
    await bench.say(messages, "whole", temperature=0, max_tokens=8)
    (streamed,) = await bench.store.turns_of("streamed")
    (whole,) = await bench.store.turns_of("whole")
    assert streamed.sampled_ids_T == whole.sampled_ids_T
    assert streamed.logprobs_T == pytest.approx(whole.logprobs_T, abs=1e-4)
