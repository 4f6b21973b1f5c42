"""Whoever runs `serve` is told of clients whose settings keep their turns from being trained on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from clawrl_gym.core.types import Turn
from clawrl_gym.run.observer import Observer
from clawrl_gym.serving.untrainable_turns import UntrainableTurns
from tests.support.gateway_rig import user

TURN = Turn(
    session_id="s", index=0, kind="main", prompt_ids_T=[1], sampled_ids_T=[2], logprobs_T=[-0.5],
    versions_T=[0], finish_reason="stop", messages=[user("hi")],
    reply={"role": "assistant", "content": "ok"}, created_s=0.0,
)  # fmt: skip


def told_of(*settings: str) -> list[str]:
    """The lines for turns with these settings, one after the other; "" can be trained on."""
    told: list[str] = []
    seen: Any = SimpleNamespace(
        count=lambda turn: None, turn=lambda turn: None, message=told.append
    )
    turns = UntrainableTurns(told.append)
    observer = Observer(seen, seen, seen, seen, seen, untrainable_turns=turns)
    for names in settings:
        observer.turn(replace(TURN, untrainable=names))
        observer.turn(replace(TURN, untrainable="top_k", kind="side"))
        observer.turn(replace(TURN, untrainable="", sampled_ids_T=[]))
    return told


def test_the_first_turn_of_each_setting_is_told_with_its_remedy() -> None:
    assert told_of(*[""] * 200) == []
    first, second, third = told_of("top_p", "", "top_p", "top_p min_p", "temperature", "min_p")
    assert first == (
        "got a turn sampled with top_p: such turns are stored and not trained on, because the "
        "learner computes the softmax of all logits; in the client's settings, leave top_p out of "
        "requests"
    )
    assert second.startswith("got a turn sampled with min_p: ")
    assert third.startswith("got a turn sampled with temperature: ")
    assert third.endswith("in the client's settings, send a temperature of at least 0.1")


def test_half_of_the_last_hundred_turns_are_told_when_they_become_so_many() -> None:
    assert len(told_of(*["", "", "top_p"] * 100)) == 1, "a third are few"
    assert len(told_of(*["top_p"] * 99)) == 1, "too few turns to speak of a share"
    always = told_of(*["top_p"] * 1000)
    assert len(always) == 2, "not again and again"
    assert always[1].startswith("100 of the last 100 main turns were sampled with top_p: ")
    half = told_of(*["top_p top_k", ""] * 50)
    assert half[1].startswith("50 of the last 100 main turns were sampled with top_p and top_k: ")
    assert half[1].endswith("leave top_p and top_k out of requests")
    back = told_of(*["top_p"] * 100, *[""] * 100, *["top_p"] * 100)
    assert [line.partition(" ")[0] for line in back] == ["got", "100", "50"], "again after a change"
