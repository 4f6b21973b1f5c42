"""Long histories: what is kept, what is cut, and that what was cut is what is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.agents.context import HeadTail, size_chars
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import (
    Episode,
    FunctionCall,
    Message,
    StopReason,
    TaskRef,
    ToolCall,
    Turn,
)
from clawrl_gym.dialogue.merging import merge_turns
from clawrl_gym.envs.swe.agent import SweAgent, reply_text
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import Bounds, EpisodeSpec, run_episode
from tests.support.gateway_rig import Bench

SYSTEM: Message = {"role": "system", "content": "s" * 10}
TASK: Message = {"role": "user", "content": "t" * 10}


def turn(number: int, chars: int = 40) -> list[Message]:
    """A reply and what came back, `chars` long together."""
    said = f"reply {number} ".ljust(chars // 2, "r")
    back = f"back {number} ".ljust(chars - len(said), "b")
    return [{"role": "assistant", "content": said}, {"role": "user", "content": back}]


def history(turns: int, chars: int = 40) -> list[Message]:
    return [SYSTEM, TASK, *(message for n in range(turns) for message in turn(n, chars))]


def contents(messages: list[Message]) -> list[str]:
    return [text_of(message).strip("rb \n") for message in messages]


def test_a_history_with_room_is_sent_as_it_is() -> None:
    assert HeadTail(1000).view(history(5)) == history(5)
    assert HeadTail(None).view(history(500)) == history(500)


def test_a_long_history_keeps_its_head_and_its_tail_and_says_what_is_missing() -> None:
    sent = HeadTail(420).view(history(12))
    assert sent[:4] == history(12)[:4]
    assert contents(sent[4:6]) == [
        "eply 1",
        "ack 1 " + "b" * 13 + "\n\n(7 turns were left out here)",
    ]
    assert sent[6:] == history(12)[-6:]
    assert size_chars(sent) <= 420


def test_roles_go_on_alternating_after_a_cut() -> None:
    roles = [message["role"] for message in HeadTail(420).view(history(12))]
    assert roles == ["system", *["user", "assistant"] * 5, "user"]


def test_between_two_cuts_each_request_extends_the_one_before() -> None:
    cut = HeadTail(600)
    views = [cut.view(history(turns)) for turns in range(60)]
    forks = sum(later[: len(earlier)] != earlier for earlier, later in pairwise(views))
    assert all(size_chars(view) <= 600 for view in views)
    assert 0 < forks <= 60 / 5


def test_one_turn_that_is_left_out_is_called_one_turn() -> None:
    sent = HeadTail(150).view([SYSTEM, TASK, *turn(0), *turn(1), *turn(2), *turn(3, 20)])
    assert "turns were left out" in str(sent)
    single = HeadTail(None)
    kept = [SYSTEM, TASK, *turn(0, 20), *turn(1, 20), *turn(2, 400), *turn(3, 20)]
    assert "(1 turn was left out here)" in str(single.tighten(kept))


def test_where_the_head_leaves_no_room_only_the_task_and_the_newest_turn_stay() -> None:
    sent = HeadTail(100).view(history(12, chars=70))
    assert sent[0] == SYSTEM
    assert contents(sent[1:2]) == ["t" * 10 + "\n\n(11 turns were left out here)"]
    assert sent[2:] == history(12, chars=70)[-2:]


def test_the_newest_turn_is_never_cut_even_where_it_does_not_fit() -> None:
    whole = [SYSTEM, TASK, *turn(0), *turn(1, 4000)]
    assert HeadTail(300).view(whole)[-2:] == whole[-2:]


def test_results_stay_with_their_calls() -> None:
    function: FunctionCall = {"name": "f", "arguments": "x" * 50}
    calls: list[ToolCall] = [{"id": "a", "type": "function", "function": function}]
    call: Message = {"role": "assistant", "content": None, "tool_calls": calls}
    result: Message = {"role": "tool", "tool_call_id": "a", "content": "y" * 50}
    messages = [SYSTEM, TASK, *[message for _ in range(9) for message in (call, result, result)]]
    sent = HeadTail(1500).view(messages)
    roles = [message["role"] for message in sent]
    at = roles.index("user", 2)
    assert sent[at]["content"] == "(6 turns were left out here)"
    assert roles[:at] == ["system", "user", *["assistant", "tool", "tool"] * 2]
    assert roles[at + 1 :] == ["assistant", "tool", "tool"] * ((len(roles) - at) // 3)


def test_a_refused_history_is_cut_further_until_nothing_is_left_to_cut() -> None:
    cut = HeadTail(None)
    messages = history(12)
    sizes = [size_chars(cut.view(messages))]
    while (shorter := cut.tighten(messages)) is not None:
        sizes.append(size_chars(shorter))
    assert sizes == sorted(set(sizes), reverse=True)
    assert 2 < len(sizes) < 12
    assert cut.view(messages)[-2:] == messages[-2:]
    assert len(cut.view(messages)) == 4


def test_what_was_refused_once_is_not_asked_again() -> None:
    cut = HeadTail(None)
    refused = size_chars(cut.view(history(12)))
    cut.tighten(history(12))
    assert all(size_chars(cut.view(history(turns))) < refused for turns in range(12, 60))


def test_a_cut_leaves_at_most_six_tenths_of_the_room() -> None:
    assert size_chars(history(24)) == 980
    assert HeadTail(980).view(history(24)) == history(24)
    sent = HeadTail(1000).view(history(25))
    assert 560 < size_chars(sent) <= 600
    assert len(sent) == 2 + 2 * 13


def test_what_fits_to_the_letter_is_not_cut_further() -> None:
    sent = HeadTail(1000).view([*history(23), *turn(23, 69)])
    assert size_chars(sent) == 600
    assert "(11 turns were left out here)" in str(sent)


def test_one_turn_that_is_left_out_is_told_as_one() -> None:
    whole = [SYSTEM, TASK, *turn(0), *turn(1), *turn(2, 400), *turn(3)]
    sent = HeadTail(500).view(whole)
    assert sent[5]["content"] == f"{turn(1)[1]['content']}\n\n(1 turn was left out here)"
    assert sent[6:] == turn(3)


def test_the_note_is_a_part_of_what_is_said_with_pictures() -> None:
    image: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text: Any = {"type": "text", "text": "t" * 100}
    seen: list[Message] = [
        {"role": "assistant", "content": "look"}, {"role": "user", "content": [text, image]}
    ]  # fmt: skip
    sent = HeadTail(1000).view([SYSTEM, TASK, *seen * 12])
    note = {"type": "text", "text": "(8 turns were left out here)"}
    assert sent[5] == {"role": "user", "content": [text, image, note]}
    assert seen[1]["content"] == [text, image]


def test_calls_and_thoughts_count_as_what_they_are_written_as() -> None:
    function: FunctionCall = {"name": "f", "arguments": "{}"}
    calls: list[ToolCall] = [{"id": "a", "type": "function", "function": function}]
    said: Any = {"role": "assistant", "content": "four", "reasoning_content": "thinking"}
    assert size_chars([said]) == 12
    both: Any = {**said, "tool_calls": calls}
    assert size_chars([both]) == 12 + len(json.dumps(calls))
    assert size_chars([{"role": "assistant", "content": None, "tool_calls": calls}]) == len(
        json.dumps(calls)
    )


def test_one_refused_request_is_asked_again_sixteen_times_at_most() -> None:
    cut = HeadTail(None)
    halving = [turn(number, 1 << (24 - number)) for number in range(19)]
    messages = [
        SYSTEM,
        TASK,
        *turn(0, 16),
        *turn(1, 16),
        *(one for pair in halving for one in pair),
    ]
    cut.view(messages)
    views = [cut.tighten(messages) for _ in range(17)]
    assert [view is None for view in views] == [False] * 16 + [True]
    cut.view(messages)
    assert cut.tighten(messages) is not None  # another request


def test_a_history_of_nothing_but_the_task_cannot_be_cut() -> None:
    assert HeadTail(None).tighten([SYSTEM, TASK]) is None
    assert HeadTail(5).view([SYSTEM, TASK]) == [SYSTEM, TASK]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(20, 600), min_size=1, max_size=40), st.integers(256, 3000))
def test_however_long_turns_are_replies_keep_what_came_back(sizes: list[int], room: int) -> None:
    cut = HeadTail(room)
    messages: list[Message] = [SYSTEM, TASK]
    for number, chars in enumerate(sizes):
        messages += turn(number, chars)
        sent = cut.view(messages)
        assert sent[0] == SYSTEM
        assert text_of(sent[1]).startswith("t" * 10)
        assert sent[-2:] == messages[-2:] or "left out" in (sent[-1]["content"] or "")
        roles = [message["role"] for message in sent]
        assert roles == ["system", *["user", "assistant"] * (len(sent) // 2 - 1), "user"]
        fits = size_chars(sent) <= room
        assert fits or len(sent) == 4 or len(messages) == 4


class Long:
    """Says the same number of words each step, and never ends by itself."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return "mend it", {}

    def step(self, action: str) -> Any:
        self.steps += 1
        return self.saw(), 0.0, False, False, {}

    def saw(self) -> str:
        return f"saw {self.steps} ".ljust(100, "x")

    def finish(self) -> float:
        return 1.0


class Stuck(Long):
    """Says the same again and again."""

    def saw(self) -> str:
        return "x" * 100


async def in_place(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


async def play(bench: Bench, env: Any, bounds: Bounds, turns: int = 24) -> Episode:
    chat = GatewayChat(PolicyAddress(bench.url, bench.gateway.key, "tiny"), 10.0, limit=4)
    spec = EpisodeSpec("c", 1, TaskRef("t", 3, "train"), turns, 60.0)
    try:
        return await run_episode(spec, env, SweAgent("s"), chat, in_place, bounds)
    finally:
        await chat.close()


async def recorded(bench: Bench) -> tuple[list[Turn], list[list[Message] | None]]:
    turns = await bench.store.turns_of("c")
    states = await bench.store.next_states_of("c")
    return turns, [states.get(one.id or 0) for one in turns]


def counting() -> Callable[[list[Message]], str]:
    """Each reply is another one; every third holds no action."""
    said = iter(range(1000))

    def reply(_: list[Message]) -> str:
        number = next(said)
        return f"thinking {number}" if number % 3 == 2 else reply_text(f"echo {number}")

    return reply


async def test_s11_turns_keep_their_own_next_states_when_the_history_is_cut(bench: Bench) -> None:
    """S11 (SWE-RL): verdicts and next states were counted by different indices once a reply had no
    bash block. Here each state belongs to the turn that it followed, across cuts too."""
    bench.policy._reply = counting()
    episode = await play(bench, Long(), Bounds("head_tail", 900))
    assert (episode.stop_reason, episode.turns) == (StopReason.TRUNCATED, 24)
    turns, states = await recorded(bench)
    steps = 0
    for number, state in enumerate(states):
        assert state is not None, number
        (message,) = state
        if number % 3 == 2:
            assert "got 0 bash blocks" in (message["content"] or "")
        else:
            steps += 1
            assert text_of(message).startswith(f"saw {steps} ")
    assert any("left out" in str(one.messages) for one in turns)


async def test_what_was_cut_is_what_is_trained(bench: Bench) -> None:
    bench.policy._reply = counting()
    await play(bench, Long(), Bounds("head_tail", 900))
    turns, _ = await recorded(bench)
    result = merge_turns(turns)
    cuts = sum(
        later.messages[: len(earlier.messages)] != earlier.messages
        for earlier, later in pairwise(turns)
    )
    assert cuts >= 2
    assert dict(result.forks) == {"edited": cuts}
    assert len(result.sequences) == cuts + 1
    trained = [index for segment in result.sequences for index in segment.turn_indices]
    assert trained == list(range(24))
    for segment in result.sequences:
        for index, (start, count) in segment.spans.items():
            one = turns[index]
            assert segment.ids_T[:start] == one.prompt_ids_T
            assert segment.ids_T[start : start + count] == one.sampled_ids_T


async def test_a_policy_that_is_stuck_keeps_its_next_states_across_cuts(bench: Bench) -> None:
    bench.policy._reply = reply_text("ls")
    await play(bench, Stuck(), Bounds("head_tail", 900))
    _, states = await recorded(bench)
    assert states == [[{"role": "user", "content": "x" * 100}]] * 24


async def test_a_prompt_that_the_policy_refuses_is_cut_and_asked_again(bench: Bench) -> None:
    bench.policy.max_prompt = 900
    bench.policy._reply = counting()
    episode = await play(bench, Long(), Bounds("head_tail"))
    assert (episode.stop_reason, episode.turns) == (StopReason.TRUNCATED, 24)
    _, states = await recorded(bench)
    assert all(states)


async def test_a_prompt_that_no_cut_makes_fit_ends_the_episode(bench: Bench) -> None:
    bench.policy.max_prompt = 60
    bench.policy._reply = counting()
    episode = await play(bench, Long(), Bounds("head_tail"))
    assert (episode.stop_reason, episode.reward, episode.turns) == (StopReason.CONTEXT, 1.0, 1)


async def test_without_a_context_manager_a_full_context_ends_the_episode(bench: Bench) -> None:
    bench.policy.max_prompt = 900
    bench.policy._reply = counting()
    episode = await play(bench, Long(), Bounds())
    assert episode.stop_reason is StopReason.CONTEXT
    assert episode.turns < 24


async def test_the_token_budget_truncates_and_what_is_there_is_graded(bench: Bench) -> None:
    bench.policy._reply = "0123456789"
    episode = await play(bench, Long(), Bounds(max_reply_tokens=30))
    turns, _ = await recorded(bench)
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 1.0)
    assert len(turns) == 3
    assert sum(len(one.sampled_ids_T) for one in turns) >= 30
    assert replace(episode, duration_s=0.0).turns == 3
