"""Turns whose ids extend each other become one sequence; each drift begins exactly one new one."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.types import INTERRUPTED, Message, Turn
from clawrl_gym.dialogue.merging import Segment, merge_turns


def turn(
    prompt: list[int],
    sampled: list[int],
    index: int = 0,
    messages: list[Message] | None = None,
    reply: str = "",
) -> Turn:
    return Turn(
        session_id="s",
        index=index,
        kind="main",
        prompt_ids_T=prompt,
        sampled_ids_T=sampled,
        logprobs_T=[-0.5 - 0.25 * i for i in range(len(sampled))],
        versions_T=[index] * len(sampled),
        finish_reason="stop",
        messages=messages or [],
        reply={"role": "assistant", "content": reply},
        created_s=0.0,
    )


def split(segment: Segment) -> list[Turn]:
    """The turns that make up a segment: each run of sampled tokens is one."""
    turns: list[Any] = []
    start = 0
    while any(segment.mask_T[start:]):
        first = segment.mask_T.index(True, start)
        end = first
        while end < len(segment.mask_T) and segment.mask_T[end]:
            end += 1
        turns.append(
            replace(
                turn(segment.ids_T[:first], segment.ids_T[first:end], len(turns)),
                logprobs_T=list(segment.logprobs_T[first:end]),
                versions_T=segment.versions_T[first:end],
            )
        )
        start = end
    return turns


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    ids: list[int] = []
    mask: list[bool] = []
    versions: list[int] = []
    sampled_by: list[int] = []
    spans: dict[int, tuple[int, int]] = {}
    turns = draw(st.integers(1, 6))
    for index in range(turns):
        given_, sampled = draw(st.integers(1, 8)), draw(st.integers(1, 8))
        mask += [False] * given_ + [True] * sampled
        versions += [-1] * given_ + [7 * index] * sampled
        sampled_by += [-1] * given_ + [index] * sampled
        spans[index] = (len(mask) - sampled, sampled)
    ids = draw(st.lists(st.integers(0, 50), min_size=len(mask), max_size=len(mask)))
    logprobs = [-0.1 * (i + 1) if m else 0.0 for i, m in enumerate(mask)]
    return Segment(ids, mask, logprobs, versions, sampled_by, list(range(turns)), spans)


@settings(deadline=None, derandomize=True)
@given(segments())
def test_merging_what_was_split_is_the_identity(segment: Segment) -> None:
    turns = split(segment)
    result = merge_turns(turns)
    assert result.sequences == [segment]
    assert result.merged == len(turns) - 1
    assert not result.forks


@settings(deadline=None, derandomize=True)
@given(segments(), st.data())
def test_each_drift_forks_exactly_once_and_loses_no_sampled_token(
    segment: Segment, data: st.DataObject
) -> None:
    turns = split(segment)
    drifts = data.draw(st.sets(st.integers(1, max(1, len(turns) - 1)), max_size=3))
    drifts = {d for d in drifts if d < len(turns)}
    shift = 0
    drifted = []
    for index, one in enumerate(turns):
        if index in drifts:  # from here on, the first id of the history is another one
            shift += 1000
        drifted.append(
            replace(one, prompt_ids_T=[one.prompt_ids_T[0] + shift, *one.prompt_ids_T[1:]])
        )
    result = merge_turns(drifted)
    assert len(result.sequences) == len(drifts) + 1
    assert result.forks.total() == len(drifts)
    assert result.merged == len(turns) - 1 - len(drifts)
    sampled = [i for s in result.sequences for i, m in zip(s.ids_T, s.mask_T, strict=True) if m]
    assert sampled == [i for one in turns for i in one.sampled_ids_T]
    assert [i for s in result.sequences for i in s.turn_indices] == list(range(len(turns)))


USER: Message = {"role": "user", "content": "list the files"}
OUTPUT: Message = {"role": "user", "content": "a.txt"}


def reply(content: str) -> Message:
    return {"role": "assistant", "content": content}


FIRST = turn([1, 2, 3], [10, 11, 12], 0, [USER], "ls")


@pytest.mark.parametrize(
    ("prompt", "messages", "reason"),
    [
        ([1, 2, 3, 10, 99, 4], [USER, reply("ls"), OUTPUT], "retoken"),
        ([1, 8, 3, 10, 11, 12, 4], [USER, reply("ls"), OUTPUT], "template"),
        ([1, 2, 3, 10, 99, 4], [USER, reply("ls -l"), OUTPUT], "edited"),
        ([1, 8, 3, 10, 11, 12, 4], [OUTPUT], "edited"),
        ([1, 2, 3], [USER], "edited"),
    ],
)
def test_a_fork_says_why(prompt: list[int], messages: list[Message], reason: str) -> None:
    result = merge_turns([FIRST, turn(prompt, [20], 1, messages)])
    assert result.forks == {reason: 1}
    assert [s.ids_T for s in result.sequences] == [[1, 2, 3, 10, 11, 12], [*prompt, 20]]


def test_with_a_decoder_same_text_means_retoken_and_other_text_template() -> None:
    texts = {10: "l", 11: "s", 12: "\n", 98: "ls\n", 99: "ls"}

    def decode(ids: list[int]) -> str:
        return "".join(texts.get(i, f"<{i}>") for i in ids)

    conversation = [USER, reply("ls"), OUTPUT]
    same = merge_turns([FIRST, turn([1, 2, 3, 98, 4], [20], 1, conversation)], decode)
    other = merge_turns([FIRST, turn([1, 2, 3, 99, 4], [20], 1, conversation)], decode)
    assert same.forks == {"retoken": 1}
    assert other.forks == {"template": 1}


def test_side_turns_are_left_out() -> None:
    side = replace(turn([40, 41], [42], 1), kind="side")
    result = merge_turns([FIRST, side, turn([1, 2, 3, 10, 11, 12, 4], [20], 2)])
    assert [s.turn_indices for s in result.sequences] == [[0, 2]]
    assert result.merged == 1


def test_interrupted_turns_are_left_out_and_what_follows_extends_the_turn_before() -> None:
    broken = replace(turn([1, 2, 3, 10, 11, 12, 4], [66], 1), finish_reason=INTERRUPTED)
    again = turn([1, 2, 3, 10, 11, 12, 4], [20], 2)
    result = merge_turns([FIRST, broken, again])
    assert [s.ids_T for s in result.sequences] == [[1, 2, 3, 10, 11, 12, 4, 20]]
    assert result.sequences[0].turns_T == [-1, -1, -1, 0, 0, 0, -1, 2]
    assert result.sequences[0].turn_indices == [0, 2]
    assert merge_turns([broken]).sequences == []


def test_missing_and_non_finite_logprobs_mask_their_token_only() -> None:
    one = replace(FIRST, logprobs_T=[-1.0, None, float("-inf")])
    (segment,) = merge_turns([one]).sequences
    assert segment.ids_T == [1, 2, 3, 10, 11, 12]
    assert segment.mask_T == [False, False, False, True, False, False]
    assert segment.logprobs_T == [0.0, 0.0, 0.0, -1.0, 0.0, 0.0]
    assert segment.versions_T == [-1, -1, -1, 0, -1, -1]
    assert segment.turns_T == [-1, -1, -1, 0, -1, -1]


def test_streams_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="expected equal numbers"):
        merge_turns([replace(FIRST, logprobs_T=[-1.0])])


def test_nothing_merges_to_nothing() -> None:
    result = merge_turns([])
    assert (result.sequences, result.merged, result.forks.total()) == ([], 0, 0)


def test_merging_does_not_change_the_turns() -> None:
    turns = [FIRST, turn([1, 2, 3, 10, 11, 12, 4], [20], 1)]
    before = [replace(t, prompt_ids_T=list(t.prompt_ids_T)) for t in turns]
    merge_turns(turns)
    assert turns == before


def test_a_long_episode_merges_in_linear_pieces() -> None:
    draw = random.Random(0)
    ids = [draw.randrange(1000) for _ in range(5000)]
    turns = [turn(ids[: 50 * n - 10], ids[50 * n - 10 : 50 * n], n) for n in range(1, 101)]
    result = merge_turns(turns)
    assert result.merged == 99
    assert result.sequences[0].ids_T == ids


def test_turns_of_other_temperatures_are_sequences_of_their_own() -> None:
    first = replace(turn([1, 2], [3], 0), temperature=0.5)
    same = replace(turn([1, 2, 3, 4], [5], 1), temperature=0.5)
    other = replace(turn([1, 2, 3, 4, 5, 6], [7], 2), temperature=1.0)
    merged = merge_turns([first, same, other])
    assert [s.temperature for s in merged.sequences] == [0.5, 1.0]
    assert [s.turn_indices for s in merged.sequences] == [[0, 1], [2]]
    assert (merged.merged, dict(merged.forks)) == (1, {"temperature": 1})


def test_an_untrainable_turn_is_context_of_whatever_temperature() -> None:
    cut = replace(turn([1, 2], [3], 0), temperature=0.0, untrainable="temperature")
    first = replace(turn([1, 2, 3, 4], [5], 1), temperature=0.5)
    again = replace(turn([1, 2, 3, 4, 5], [6], 2), temperature=1.0, untrainable="top_k")
    last = replace(turn([1, 2, 3, 4, 5, 6], [7], 3), temperature=0.5)
    (sequence,) = merge_turns([cut, first, again, last]).sequences
    assert sequence.ids_T == [1, 2, 3, 4, 5, 6, 7]
    assert sequence.mask_T == [False, False, False, False, True, False, True]
    assert sequence.temperature == 0.5
    assert sequence.versions_T[2] == sequence.turns_T[2] == -1
