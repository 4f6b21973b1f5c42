"""Episodes as a report shows them: each message, and each sampled token with its advantage.

Pairs are preferred: one solved and one failed attempt at the same task, because their difference is
what an update learned from. Ids are shown as text by the model's tokenizer.json alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import ClawError, boundary
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.spread import evenly
from clawrl_gym.core.types import Message, Sample, Turn, Verdict
from clawrl_gym.store import SessionRow, StoreReader, effective

MAX_TOKENS = 400
"""Tokens shown of one turn."""
MAX_TURNS = 12
"""Turns shown of one episode."""
_LIVE = 3
"""Live sessions shown, the newest ones."""
MAX_CHARACTERS = 4000
"""Characters shown of one message."""


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token."""

    id: int
    text: str
    logprob: float | None
    version: int
    advantage: float | None
    """Advantage of the token; None when no update trained on it."""
    gap: float | None = None
    """Teacher's log-prob less the policy's; None where no teacher scored it."""


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message of a request or a next state, in words."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """One turn of a transcript: the input, and the policy's reply."""

    added_messages: list[TranscriptMessage]
    """Messages that the turn before did not have."""
    tokens: list[Token]
    hidden_tokens: int
    finish_reason: str
    verdict: Verdict | None = None
    """The one that counts."""


@dataclass(frozen=True, slots=True)
class EpisodeTranscript:
    """One episode."""

    session: SessionRow
    turns: list[TranscriptTurn]
    hidden_turns: int
    outcome: list[TranscriptMessage]
    """Messages after the last turn."""

    @property
    def versions(self) -> list[int]:
        """Weight versions that sampled its tokens."""
        return sorted({token.version for turn in self.turns for token in turn.tokens})

    @property
    def advantages(self) -> list[float]:
        """All known advantages."""
        tokens = [token for turn in self.turns for token in turn.tokens]
        return [token.advantage for token in tokens if token.advantage is not None]


class Decoder(Protocol):
    """The used part of a `tokenizers.Tokenizer`."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str: ...


def find_tokenizer(folders: Sequence[Path]) -> Decoder | None:
    """The tokenizer of the first folder that has one. Raises ClawError when it cannot be read."""
    from tokenizers import Tokenizer

    for folder in folders:
        path = folder / "tokenizer.json"
        if path.is_file():
            with boundary(ClawError, f"cannot read {path}"):
                decoder: Decoder = Tokenizer.from_file(str(path))
            return decoder
    return None


def pieces(decoder: Decoder | None, ids: Sequence[int]) -> list[str]:
    """The text of each id; of a character that several ids make, the last one carries it."""
    if decoder is None:
        return [f"{token_id} " for token_id in ids]
    texts: list[str] = []
    pending: list[int] = []
    for token_id in ids:
        pending.append(token_id)
        text = decoder.decode(pending, skip_special_tokens=False)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and len(pending) < 4:
            texts.append("")
            continue
        texts.append(text)
        pending = []
    return texts


@dataclass(frozen=True, slots=True)
class EpisodeChoice:
    """Episodes that are shown beside each other."""

    sessions: list[SessionRow]
    update: int | None = None
    """The update that learned from them."""


def choose(
    sessions: Sequence[SessionRow], batches: Sequence[tuple[int, set[str]]]
) -> list[EpisodeChoice]:
    """A pair from each batch (update, ids of its sessions), then held-out episodes.

    Where no batch has a group with both a solved and a failed episode: single training episodes,
    and live sessions that taught something.
    """
    live = [session for session in sessions if session.source == "live" and session.samples]
    sessions = [session for session in sessions if session.source != "live"]
    rewarded = [session for session in sessions if session.reward is not None]
    choices: list[EpisodeChoice] = []
    task_ids: set[str | None] = set()
    for update, ids in batches:
        pair = _pair([s for s in rewarded if s.id in ids and s.task_id not in task_ids])
        if pair:
            choices.append(EpisodeChoice(pair, update))
            task_ids.add(pair[0].task_id)
    if not choices:
        train = [session for session in rewarded if session.split == "train"]
        choices = [EpisodeChoice([session]) for session in [*_some_of_both(train), *live[-_LIVE:]]]
    heldout = [session for session in rewarded if session.split == "heldout"]
    newest = _some_of_both(sorted(heldout, key=lambda session: -session.created_s))
    return [*choices, EpisodeChoice(newest)] if newest else choices


def _pair(sessions: Sequence[SessionRow]) -> list[SessionRow]:
    """A solved and a failed episode of the first group that has both."""
    groups: dict[int | None, list[SessionRow]] = defaultdict(list)
    for session in sessions:
        groups[session.group_id].append(session)
    pairs = (_some_of_both(group) for group in groups.values())
    return next((pair for pair in pairs if len(pair) == 2), [])


def _some_of_both(sessions: Sequence[SessionRow]) -> list[SessionRow]:
    solved = [session for session in sessions if session.success]
    failed = [session for session in sessions if not session.success]
    return [*solved[:1], *failed[:1]]


def batches_to_show(reader: StoreReader, count: int) -> list[tuple[int, set[str]]]:
    """Updates from the beginning, the middle and the end, with the sessions they learned from."""
    versions = [update.version for update in reader.updates()]
    return [
        (version, {sample.session_id for sample in reader.samples_of_update(version)})
        for version in evenly(versions, count)
    ]


def read_transcript(
    reader: StoreReader, session: SessionRow, decoder: Decoder | None
) -> EpisodeTranscript:
    """One episode from the store."""
    turns = [turn for turn in reader.turns_of(session.id) if turn.kind == "main"]
    samples = reader.samples_of_session(session.id)
    states = reader.next_states_of(session.id)
    verdicts = reader.verdicts_of(session.id)
    shown_turns: list[TranscriptTurn] = []
    before: list[Message] = []
    for turn in turns[:MAX_TURNS]:
        verdict = effective(verdicts.get(turn.id or 0, []))
        shown_turns.append(transcript_turn(turn, before, samples, decoder, verdict))
        before = turn.messages
    last = turns[-1].id if turns else None
    outcome = [transcript_message(m) for m in states.get(last, [])] if last is not None else []
    return EpisodeTranscript(session, shown_turns, max(0, len(turns) - MAX_TURNS), outcome)


def transcript_turn(
    turn: Turn,
    before: list[Message],
    samples: Sequence[Sample],
    decoder: Decoder | None,
    verdict: Verdict | None = None,
    gaps_T: Sequence[float | None] = (),
) -> TranscriptTurn:
    """A turn without the messages of the turn before; `gaps_T`: of all its tokens, or empty."""
    start = len(before) if turn.messages[: len(before)] == before else 0
    added = [m for m in turn.messages[start:] if start == 0 or m.get("role") != "assistant"]
    ids_T = turn.sampled_ids_T[:MAX_TOKENS]
    texts = pieces(decoder, ids_T) if turn.has_ids else _whole(turn.reply, len(ids_T))
    advantages_T = advantages_of(turn, samples)
    tokens = [
        Token(token_id, text, logprob, version, advantage, gap)
        for token_id, text, logprob, version, advantage, gap in zip(
            ids_T, texts, turn.logprobs_T, turn.versions_T, advantages_T,
            gaps_T or [None] * len(ids_T), strict=False,
        )
    ]  # fmt: skip
    hidden = len(turn.sampled_ids_T) - len(ids_T)
    return TranscriptTurn(
        [transcript_message(m) for m in added], tokens, hidden, turn.finish_reason, verdict
    )


def _whole(reply: Message, count: int) -> list[str]:
    """A reply as texts of so many tokens whose own texts nobody knows: the first carries it."""
    return [transcript_message(reply).text, *[""] * (count - 1)][:count]


def advantages_of(turn: Turn, samples: Sequence[Sample]) -> list[float | None]:
    """The advantage of each sampled id: from the sample whose ids begin with the turn's."""
    start, end = len(turn.prompt_ids_T), len(turn.prompt_ids_T) + len(turn.sampled_ids_T)
    for sample in samples:
        whole = turn.prompt_ids_T + turn.sampled_ids_T
        if sample.ids_T[:end] == whole:
            streams = zip(sample.mask_T[start:end], sample.advantages_T[start:end], strict=True)
            return [advantage if mask else None for mask, advantage in streams]
    return [None] * len(turn.sampled_ids_T)


def transcript_message(message: Message) -> TranscriptMessage:
    """A message in words, however long it is."""
    text = text_of(message)
    if message.get("tool_calls"):
        text += json.dumps(message["tool_calls"], ensure_ascii=False)
    cut = len(text) - MAX_CHARACTERS
    if cut > 0:
        text = text[:MAX_CHARACTERS] + f" … {cut:,} more characters"
    return TranscriptMessage(str(message.get("role", "?")), text)
