"""What clients add for one request only."""

from __future__ import annotations

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.wire.identify import TransientBlocks
from tests.support.recordings import CLIENTS, NAMES, recorded, shipped

BEGIN, END = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
BLOCK = f"{BEGIN}\nActive exec sessions: none\n{END}"


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def stable(*messages: Message) -> list[Message]:
    return TransientBlocks(shipped().rules.transient).removed_from(list(messages))


def test_a_message_that_held_nothing_else_is_gone() -> None:
    assert stable(user("hi"), user(BLOCK)) == [user("hi")]
    assert stable(user(f"  {BLOCK}\n{BLOCK}  ")) == []


def test_a_block_is_left_out_wherever_it_stands() -> None:
    """A message that was sent while the reply was running stands after the block."""
    assert stable(user(BLOCK), user("stop")) == [user("stop")]
    assert stable(user(f"before\n{BLOCK}\nafter")) == [user("before\n\nafter")]
    assert stable(user(f"{BLOCK}\nmy question")) == [user("my question")]


def test_all_other_messages_stay_what_they_are() -> None:
    quoted = f"the file says {BLOCK}"
    messages: list[Message] = [
        {"role": "system", "content": BLOCK},
        {"role": "assistant", "content": quoted},
        {"role": "tool", "tool_call_id": "c", "content": quoted},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        user(""),
        user("  spaces stay  "),
    ]
    assert stable(*messages) == messages


@pytest.mark.parametrize("text", [BEGIN, f"{BEGIN} open", f"{END} first {BEGIN}", BEGIN[:-1] + END])
def test_a_block_without_both_ends_stays(text: str) -> None:
    assert stable(user(text)) == [user(text)]


def test_the_first_end_closes_a_block() -> None:
    assert stable(user(f"{BEGIN} a {BEGIN} b {END} c {END}")) == [user(f"c {END}")]


@pytest.mark.timeout(20)
def test_a_hostile_text_costs_its_length_only() -> None:
    """Beginnings without an end: searched in one pass, not in one pass each (which takes hours)."""
    text = BEGIN * 400_000
    assert stable(user(text)) == [user(text)]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("side/")])
def test_no_recorded_block_is_left(name: str) -> None:
    for message in stable(*recorded(name).messages):
        if message["role"] == "user":
            assert "OPENCLAW_INTERNAL_CONTEXT" not in (message["content"] or "")


def test_a_retry_reads_as_what_was_asked_first() -> None:
    """OpenClaw wraps the words of a request that failed; its history keeps the first form."""
    first, retry, later = (stable(*recorded(f"retry/{n}").messages) for n in (1, 2, 3))
    assert [" ".join(text_of(m).split()) for m in retry[1:]] == [
        " ".join(text_of(m).split()) for m in first[1:]
    ]
    assert later[1] == first[1]


def test_a_retry_inside_the_tool_loop_adds_nothing() -> None:
    before, retry = (stable(*recorded(f"retry_tools/{n}").messages) for n in (2, 3))
    assert retry == before


def test_what_stays_of_a_heartbeat_is_not_the_users_word() -> None:
    merged = stable(*recorded("heartbeat/5").messages)
    assert merged[3] == user("And of Spain?")


POLL = "[OpenClaw heartbeat poll]"
STAMP = "[Sat 2026-11-28 03:53 UTC]"


@pytest.mark.parametrize(
    "merged", [f"{STAMP} read it\n{POLL}", f"{STAMP} read it\n{POLL}\n{POLL}", f"read it\n{POLL}"]
)
def test_a_heartbeat_that_was_merged_after_the_users_word_is_left_out(merged: str) -> None:
    assert stable(user(merged)) == [user(merged.partition("\n")[0])]


def test_who_writes_of_heartbeats_in_a_sentence_keeps_the_words() -> None:
    said = user(f"what is this:\nit says {POLL} in my log")
    assert stable(said) == [said]


@pytest.mark.parametrize(
    "words",
    [
        "The previous attempt did not produce a user-visible answer. Continue from the current "
        "state and produce the visible answer now. Do not restart from scratch.",
        "The previous assistant turn recorded reasoning but did not produce a user-visible answer. "
        "Continue from that partial turn and produce the visible answer now. Do not restate the "
        "reasoning or restart from scratch.",
        "The previous assistant turn completed its tool calls but did not produce a user-visible "
        "answer. Continue from the current transcript and produce the final user-visible answer "
        "now. Do not repeat completed tool calls or restart from scratch.",
    ],
)
def test_what_openclaw_says_after_a_silent_reply_is_not_the_users_word(words: str) -> None:
    for sent in (words, f"{STAMP} {words}"):
        assert stable(user("hi"), user(sent)) == [user("hi")]
    for quoted in (f"why is there: {words}", f"{words}\nWhat does this mean?", words[:60]):
        assert stable(user(quoted)) == [user(quoted)]


def test_the_messages_given_are_not_changed() -> None:
    messages = [user(f"a {BLOCK}")]
    stable(*messages)
    assert messages == [user(f"a {BLOCK}")]


@pytest.mark.parametrize("pattern", ["", ".*?", "a.*?", ".*?b", "(", "a.*?)"])
def test_a_pattern_that_makes_no_sense_is_a_clear_error(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"live\.transient: got"):
        TransientBlocks([pattern])


@pytest.mark.parametrize("release", ["claude-code-2.1", "codex-0.171"])
def test_only_the_persons_words_are_left_of_what_coding_agents_send(release: str) -> None:
    dialogue = [recorded(f"{release}/{name}", CLIENTS).messages for name in (
        "question", "tool_result", "second_question")]  # fmt: skip
    said = [
        [text_of(message) for message in stable(*messages) if message["role"] == "user"]
        for messages in dialogue
    ]
    (question,) = said[0]
    assert question.startswith("What is in a.txt? call ")
    assert said[1:] == [[question], [question, "Thanks. And how long is it?"]]


def test_news_of_claude_codes_background_tasks_is_no_context() -> None:
    messages = recorded("claude-code-2.1/subagent_result", CLIENTS).messages
    assert "<task-notification>" in text_of(stable(*messages)[-1])
