"""Prompts with pictures inside vLLM's process: ids in which each picture's place is known.

A chat with pictures is rendered as text; the ids of the text are then expanded by vLLM's own
processor, which puts as many ids in a picture's place as the encoder gives vectors. The ids that a
turn used stay when another follows it: there the places are found again, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from clawrl_gym.core.pictures import parts_of
from clawrl_gym.core.types import Message
from clawrl_gym.inference.vllm.objects import MultiModalInput, OnlineRenderer, PlaceholderRange


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt that is ready for the engine."""

    ids: list[int]
    inputs: MultiModalInput | None
    """Picture inputs of these ids; None when no picture is in them."""

    def behind(self, ids: list[int]) -> RenderedPrompt:
        """The same pictures in other ids, in the same order. Raises ValueError where one is not."""
        if self.inputs is None:
            return replace(self, ids=ids)
        places = {
            modality: _placed(self.ids, ranges, ids)
            for modality, ranges in self.inputs["mm_placeholders"].items()
        }
        inputs = {**self.inputs, "prompt_token_ids": ids, "mm_placeholders": places}
        return RenderedPrompt(ids, inputs)

    def salted(self, salt: str) -> MultiModalInput:
        """The engine's input. What the encoder makes of a picture is kept under the salt too: other
        weights see it afresh."""
        assert self.inputs is not None
        hashes = {
            modality: [f"{digest}-{salt}" for digest in digests]
            for modality, digests in self.inputs["mm_hashes"].items()
        }
        return {**self.inputs, "mm_hashes": hashes, "cache_salt": salt}


class PreparedInputs:
    """Stands before vLLM's renderer where its token server asks for the input of a request."""

    def __init__(self, renderer: OnlineRenderer) -> None:
        self._renderer = renderer
        self._ready: dict[str, MultiModalInput] = {}

    def put(self, request_id: str, inputs: MultiModalInput) -> None:
        """Use these inputs for a request that is about to be served."""
        self._ready[request_id] = inputs

    def drop(self, request_id: str) -> None:
        self._ready.pop(request_id, None)

    async def preprocess_completion(self, request: Any, *args: Any, **more: Any) -> Any:
        ready = self._ready.pop(request.request_id, None)
        if ready is not None:
            return [ready]
        return await self._renderer.preprocess_completion(request, *args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._renderer, name)


def urls_of(messages: Sequence[Message]) -> list[str]:
    """The pictures of a chat, in their order."""
    parts = [part for message in messages for part in parts_of(message)]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


async def expanded(renderer: OnlineRenderer, ids: list[int], urls: list[str]) -> RenderedPrompt:
    """The ids of a text with pictures in it, by vLLM's OnlineRenderer."""
    from vllm.inputs import TokensPrompt
    from vllm.renderers.chat_utils import AsyncMultiModalItemTracker

    tracker = AsyncMultiModalItemTracker(renderer.model_config)
    parser = tracker.create_parser()
    for url in urls:
        parser.parse_image(url, None)
    data, _ = await tracker.resolve_items()
    prompt = TokensPrompt(prompt_token_ids=ids, multi_modal_data=data)
    (inputs,) = await renderer.renderer.render_cmpl_async([prompt], skip_mm_cache=True)
    return RenderedPrompt([*inputs["prompt_token_ids"]], inputs)


def _placed(
    ids: list[int], ranges: Sequence[PlaceholderRange], new_ids: list[int]
) -> list[PlaceholderRange]:
    """Places of the runs of `ids` in new ones, one after the other."""
    places, at = [], 0
    for place in ranges:
        run = ids[place.offset : place.offset + place.length]
        start = _find(run, new_ids, at)
        if start is None:
            raise ValueError("a picture's place is not in the ids that were used before")
        places.append(replace(place, offset=start))
        at = start + len(run)
    return places


def _find(run: list[int], ids: list[int], start: int) -> int | None:
    while True:
        try:
            start = ids.index(run[0], start)
        except ValueError:
            return None
        if ids[start : start + len(run)] == run:
            return start
        start += 1
