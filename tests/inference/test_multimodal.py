"""Pictures in prompts inside vLLM's process, as far as they need no vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.inference.vllm.multimodal import PreparedInputs, RenderedPrompt, urls_of


@dataclass(frozen=True)
class Place:
    """As vLLM says where a picture is."""

    offset: int
    length: int


def prompt(ids: list[int], *places: Place) -> RenderedPrompt:
    inputs = {
        "prompt_token_ids": ids, "mm_placeholders": {"image": list(places)},
        "mm_hashes": {"image": [f"h{at}" for at in range(len(places))]}, "kept": True,
    }  # fmt: skip
    return RenderedPrompt(ids, inputs)


def places_in(ids: list[int], one: RenderedPrompt) -> list[int]:
    inputs = one.behind(ids).inputs
    assert inputs is not None
    assert inputs["prompt_token_ids"] == ids
    assert inputs["kept"]
    return [place.offset for place in inputs["mm_placeholders"]["image"]]


def test_pictures_are_found_again_in_the_ids_that_were_used_before() -> None:
    one = prompt([1, 7, 7, 2, 7, 7, 3], Place(1, 2), Place(4, 2))
    assert places_in([9, 9, 1, 7, 7, 2, 5, 7, 7, 3], one) == [3, 7]
    assert places_in([7, 7, 7, 7], one) == [0, 2]
    assert places_in([7, 1, 7, 7, 7, 3, 7, 7], one) == [2, 6], "one after the other"
    assert one.behind([7, 7, 7, 7]).ids == [7, 7, 7, 7]
    different = prompt([7, 8, 7, 9], Place(0, 2), Place(2, 2))
    assert places_in([7, 9, 7, 8, 7, 9], different) == [2, 4]


@pytest.mark.parametrize("ids", [[], [1, 7, 2], [7, 7, 1], [7, 7, 7]])
def test_a_picture_that_is_not_in_them_is_an_error(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="a picture's place is not in the ids that were used"):
        prompt([7, 7, 2, 7, 7], Place(0, 2), Place(3, 2)).behind(ids)


def test_without_pictures_ids_are_all_there_is() -> None:
    bare = RenderedPrompt([1, 2], None).behind([3])
    assert (bare.ids, bare.inputs) == ([3], None)


def test_what_an_encoder_made_is_of_its_weights_alone() -> None:
    salted = prompt([7, 1], Place(0, 1)).salted("v3")
    assert salted["mm_hashes"] == {"image": ["h0-v3"]}
    assert salted["cache_salt"] == "v3"
    assert salted["prompt_token_ids"] == [7, 1]


def test_pictures_of_a_chat_come_in_their_order() -> None:
    def picture(url: str) -> Any:
        return {"type": "image_url", "image_url": {"url": url}}

    messages: Any = [
        {"role": "system", "content": "look"},
        {"role": "user", "content": [picture("a"), {"type": "text", "text": "b"}, picture("c")]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [picture("d")]},
    ]
    assert urls_of(messages) == ["a", "c", "d"]


class Renderer:
    """vLLM's, which is asked for what was not prepared."""

    model_config = "model"

    async def preprocess_completion(self, request: Any, more: int, *, last: bool) -> list[Any]:
        return [request.request_id, more, last]


async def test_prepared_inputs_are_used_once_and_only_for_their_request() -> None:
    prepared = PreparedInputs(Renderer())
    one, two = SimpleNamespace(request_id="1"), SimpleNamespace(request_id="2")
    prepared.put("1", {"ready": True})
    assert await prepared.preprocess_completion(two, 5, last=False) == ["2", 5, False]
    assert await prepared.preprocess_completion(one, 5, last=True) == [{"ready": True}]
    assert await prepared.preprocess_completion(one, 5, last=True) == ["1", 5, True]
    prepared.put("2", {"ready": True})
    prepared.drop("2")
    prepared.drop("2")
    assert await prepared.preprocess_completion(two, 6, last=True) == ["2", 6, True]
    assert prepared.model_config == "model", "all else is the renderer's"
