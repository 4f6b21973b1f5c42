"""The engine's outputs as events; vLLM's parsers are tried on a real vLLM (tests/e2e)."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from clawrl_gym.policy.reply_parser import EngineEvents


def processor(starts: list[tuple[str, int]]) -> Any:
    state = SimpleNamespace(weight_version_starts=starts)
    return SimpleNamespace(external_req_ids={"r": ["r-1"]}, request_states={"r-1": state})


def result(ids: list[int], text: str = "", **more: Any) -> Any:
    logprobs = [{token: SimpleNamespace(logprob=-0.5)} for token in ids]
    output = {"token_ids": ids, "text": text, "logprobs": logprobs, "finish_reason": None}
    output |= {"stop_reason": None, "weight_versions": None}
    return SimpleNamespace(request_id="r", outputs=[SimpleNamespace(**output | more)])


def test_every_id_comes_with_its_log_prob_and_version_and_the_text_as_content() -> None:
    steps = EngineEvents(processor([("3", 0)]), None)
    assert steps.event(result([10], "he")) == {
        "ids": [10], "logprobs": [-0.5], "versions": ["3"], "delta": {"content": "he"}
    }  # fmt: skip


def test_a_step_through_a_swap_has_both_versions() -> None:
    starts = [("3", 0)]
    steps = EngineEvents(processor(starts), None)
    steps.event(result([10, 11]))
    starts.append(("4", 3))
    event = steps.event(result([12, 13]))
    assert event is not None
    assert event["versions"] == ["3", "4"]


def test_the_last_step_says_why_it_is_and_which_versions_made_all() -> None:
    steps = EngineEvents(processor([("3", 0)]), None)
    span = SimpleNamespace(version="3", start=0, end=1)
    event = steps.event(result([2], finish_reason="stop", weight_versions=[span]))
    assert event == {
        "ids": [2], "logprobs": [-0.5], "versions": ["3"], "finish_reason": "stop",
        "stop_reason": None, "weight_versions": [{"version": "3", "start": 0, "end": 1}],
    }  # fmt: skip


def test_a_step_that_says_nothing_is_no_event() -> None:
    assert EngineEvents(processor([]), None).event(result([])) is None


def test_log_probs_that_vllm_does_not_know_are_none() -> None:
    entries = [{1: SimpleNamespace(logprob=x)} for x in (math.nan, -math.inf, -9999.0)]
    event = EngineEvents(processor([("3", 0)]), None).event(result([1, 1, 1], logprobs=[*entries]))
    assert event is not None
    assert event["logprobs"] == [None, None, None]
    other = EngineEvents(processor([("3", 0)]), None).event(result([1], logprobs=[{7: entries[0]}]))
    assert other is not None
    assert other["logprobs"] == [None]


def test_versions_that_cannot_be_found_wait_for_the_end() -> None:
    lost = SimpleNamespace(external_req_ids={}, request_states={})
    event = EngineEvents(lost, None).event(result([1]))
    assert event is not None
    assert event["versions"] == []
