"""Data of a supervised run: chats of files, episodes of runs; and rows that are left out.

A row that cannot be learned from costs only itself and is counted with its place. The split of an
example follows from its key: for a chat the messages before the first reply, for an episode its
task. So two rows that begin alike are never on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from clawrl_gym.config import SftConfig
from clawrl_gym.config.part import leaf
from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.core.pictures import pictures_of
from clawrl_gym.core.types import INTERRUPTED, Sample, Turn
from clawrl_gym.dialogue.chats import BadRow, Chat, PlainText, read_row
from clawrl_gym.dialogue.merging import merge_turns
from clawrl_gym.inference.models.renderer import ChatRenderer
from clawrl_gym.inference.models.vocabulary import check_vocabulary
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import model_of
from clawrl_gym.store import StoreReader
from clawrl_gym.store.rows import SessionRow
from clawrl_gym.store.schema import DATABASE_FILE
from clawrl_gym.trainers.models.packing import count_tokens
from clawrl_gym.trainers.updates.supervised import make_supervised_sample

_TABLES = (".parquet", ".arrow")
_TEXTS = (".jsonl", ".ndjson", ".json")
_SHOWN_PLACES = 3
Row = tuple[str, object]
"""A row's place, and its content or, as BadRow, why it cannot be read."""


@dataclass(slots=True)
class LeftOut:
    """Rows and episodes that are not learned from: how many, why, and where the first ones are."""

    places: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Places by reason."""

    def add(self, reason: str, place: str) -> None:
        self.places[reason].append(place)

    def lines(self) -> Iterator[str]:
        """One for each reason, the most frequent first."""
        for reason, places in sorted(self.places.items(), key=lambda item: -len(item[1])):
            more = ", ..." if len(places) > _SHOWN_PLACES else ""
            yield f"left out {len(places)}: {reason} ({', '.join(places[:_SHOWN_PLACES])}{more})"


@dataclass(frozen=True, slots=True)
class SftData:
    """Sequences to learn from and to measure on."""

    train: list[Sample]
    heldout: list[Sample]
    notes: list[str]
    """Notes on them, a line each."""

    @property
    def digest(self) -> str:
        """Digest of all ids and masks, in order."""
        content = hashlib.sha256()
        for sample in (*self.train, *self.heldout):
            content.update(json.dumps([sample.ids_T, sample.mask_T]).encode())
        return content.hexdigest()

    def summary(self) -> str:
        """A sentence about its size."""
        tokens = sum(len(sample.ids_T) for sample in self.train)
        targets = count_tokens(self.train)
        return (
            f"{len(self.train):,} sequences to learn from ({tokens:,} tokens, {targets:,} of them "
            f"in replies), {len(self.heldout):,} held out"
        )


@dataclass(frozen=True, slots=True)
class _Example:
    """Rows that stay together: a chat, or an episode."""

    place: str
    key: str
    turns: list[Turn]


class SftReader:
    """Reads all that a configuration names, for one model."""

    def __init__(self, config: SftConfig, model: Path) -> None:
        self._config = config
        self._model = model
        self._renderer = ChatRenderer(model)
        self._left_out = LeftOut()
        self._notes: list[str] = []
        self._forks: Counter[str] = Counter()

    def read(self, files: list[Path]) -> SftData:
        """`files`: chats beside those that the configuration names. Raises ConfigError for what
        cannot be read, and where nothing is left."""
        train: list[Sample] = []
        heldout: list[Sample] = []
        for example in self._examples(
            [*(Path(name).expanduser() for name in self._config.data), *files]
        ):
            is_heldout = share_of(example.key) < self._config.heldout
            (heldout if is_heldout else train).extend(self._samples(example))
        lines = list(self._left_out.lines())
        if not train:
            why = "".join(f"; {line}" for line in lines) or ": all of it is held out"
            names = ", ".join(self._config.data) or "the demonstrations"
            raise ConfigError(f"got nothing to learn from in {names}, expected a chat{why}")
        if self._forks:
            reasons = ", ".join(f"{n} by {reason}" for reason, n in self._forks.most_common())
            self._notes.append(
                f"{self._forks.total()} replies are sequences of their own, as their prompt does "
                f"not begin with the turn before it ({reasons})"
            )
        if self._config.heldout and not heldout:
            self._notes.append(
                f"nothing is held out: heldout={self._config.heldout:g} of so little is none; "
                "raise it to see a held-out loss"
            )
        return SftData(train, heldout, [*lines, *self._notes])

    def _examples(self, places: list[Path]) -> Iterator[_Example]:
        for place in places:
            if (place / DATABASE_FILE).is_file():
                yield from self._episodes(place)
            else:
                yield from self._chats(place)

    def _samples(self, example: _Example) -> Iterator[Sample]:
        merged = merge_turns(example.turns, self._renderer.decode)
        self._forks.update(merged.forks)
        longest = self._config.policy.max_model_len
        for segment in merged.sequences:
            if len(segment.ids_T) > longest:
                self._left_out.add(
                    f"longer than policy.max_model_len={longest} tokens", example.place
                )
                continue
            mask_T = [False, *segment.mask_T[1:]]  # nothing stands before the first token
            if any(mask_T):
                yield make_supervised_sample(example.place, segment.ids_T, mask_T)

    # chats

    def _chats(self, place: Path) -> Iterator[_Example]:
        count = 0
        for where, row in rows_in(place):
            count += 1
            try:
                if isinstance(row, BadRow):
                    raise row
                yield self._chat(read_row(row, self._config.learn_on), where)
            except BadRow as error:
                self._left_out.add(str(error), where)
        if not count:
            raise ConfigError(f"got {place} without a row, expected chats in it")

    def _chat(self, chat: Chat | PlainText, where: str) -> _Example:
        if isinstance(chat, PlainText):
            return _Example(where, chat.opening, [self._renderer.text_turn(chat, where)])
        return _Example(where, chat.opening, self._renderer.turns(chat, where))

    # episodes

    def _episodes(self, run: Path) -> Iterator[_Example]:
        try:
            reader = StoreReader(run)
        except StoreError as error:
            raise ConfigError(f"cannot read the run {run}: {error}") from error
        try:
            chosen = self._chosen(run, reader.sessions())
            is_foreign = self._is_foreign(run)
            for session in chosen:
                where = f"{run} {session.id}"
                try:
                    turns = self._turns_of(reader.turns_of(session.id), is_foreign)
                except BadRow as error:
                    self._left_out.add(str(error), where)
                    continue
                if turns:
                    key = session.task_id or json.dumps(turns[0].messages, sort_keys=True)
                    yield _Example(where, key, turns)
        finally:
            reader.close()

    def _chosen(self, run: Path, sessions: list[SessionRow]) -> list[SessionRow]:
        """The episodes that are imitated, in the order in which they were played."""
        wanted = self._config.episodes
        played = [
            s for s in sessions
            if s.source == "rollout" and s.split == "train" and s.reward is not None
        ]  # fmt: skip
        good = [s for s in played if s.reward is not None and s.reward >= wanted.min_reward]
        if not good:
            best = max((s.reward for s in played if s.reward is not None), default=None)
            seen = "none" if best is None else f"{len(played)}, the best with {best:g}"
            raise ConfigError(
                f"got the run {run} without an episode to imitate, expected a training episode "
                f"with a reward of at least episodes.min_reward={wanted.min_reward:g} (of training "
                f"episodes with a reward it has {seen})"
            )
        if wanted.per_task is None:
            return good
        by_task: defaultdict[str, list[int]] = defaultdict(list)
        for place, session in enumerate(good):
            by_task[session.task_id or session.id].append(place)
        kept = {
            place
            for places in by_task.values()
            for place in sorted(places, key=lambda p: (-(good[p].reward or 0.0), -p))[
                : wanted.per_task
            ]
        }
        return [session for place, session in enumerate(good) if place in kept]

    def _is_foreign(self, run: Path) -> bool:
        """Whether the run's ids mean nothing to this model; it is noted."""
        try:
            name = str(leaf(RunFolder(run).read_values(), "policy.model"))
            check_vocabulary(str(model_of(run, name)), str(self._model))
        except ConfigError:
            self._notes.append(
                f"the episodes of {run} are rendered anew from their messages: the run's model has "
                "another vocabulary, or is gone"
            )
            return True
        return False

    def _turns_of(self, stored: list[Turn], is_foreign: bool) -> list[Turn]:
        """The policy's own turns with the tokens that it sampled, however that was."""
        turns = [turn for turn in stored if turn.kind == "main"]
        turns = [turn for turn in turns if turn.finish_reason != INTERRUPTED]
        if any(pictures_of(turn.messages) for turn in turns):
            raise BadRow("pictures, of which only text is learned")
        if self._config.learn_on == "last":
            turns = turns[-1:]
        return [again for turn in turns for again in self._imitated(turn, is_foreign)]

    def _imitated(self, turn: Turn, is_foreign: bool) -> list[Turn]:
        return self._rendered(turn) if is_foreign or not turn.has_ids else [_imitated(turn)]

    def _rendered(self, turn: Turn) -> list[Turn]:
        row: Mapping[str, object] = {
            "messages": [*turn.messages, turn.reply],
            "tools": turn.tools,
            "chat_template_kwargs": turn.template.get("chat_template_kwargs"),
        }
        chat = read_row(row, "last")
        assert isinstance(chat, Chat)  # it has messages
        return self._renderer.turns(chat, turn.session_id)


def _imitated(turn: Turn) -> Turn:
    """Settings that bent what was sampled, and unknown log-probs, do not matter here."""
    return replace(
        turn, logprobs_T=[0.0] * len(turn.sampled_ids_T), untrainable="", temperature=None
    )


def share_of(key: str) -> float:
    """A fixed number in [0, 1) for each key."""
    return int.from_bytes(hashlib.sha256(key.encode(errors="replace")).digest()[:8]) / 2**64


def rows_in(place: Path) -> Iterator[Row]:
    """Rows of a file, or of all files in a folder (only those called train..., where there are
    such).

    Raises ConfigError for what holds no rows.
    """
    if not place.exists():
        raise ConfigError(
            f"got data {str(place)!r}, which does not exist, expected a .jsonl or .parquet file, a "
            "folder of them, or a run's folder"
        )
    files = sorted(p for p in place.rglob("*") if p.suffix in _TABLES + _TEXTS[:2])
    files = [place] if place.is_file() else files
    training = [file for file in files if file.name.startswith("train")]
    for file in training or files:
        if file.suffix in _TABLES:
            yield from _table_rows(file)
        elif file.suffix in _TEXTS:
            yield from _text_rows(file)
        else:
            raise ConfigError(f"got data {str(file)!r}, expected a .jsonl, .json or .parquet file")
    if not files:
        raise ConfigError(
            f"got data {str(place)!r}, a folder without .jsonl or .parquet files and without a "
            f"{DATABASE_FILE}, expected chats or a run"
        )


def _text_rows(file: Path) -> Iterator[Row]:
    try:
        if file.suffix == ".json":
            yield from _list_rows(file)
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{file.name} line {number}", _parsed(line)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from error


def _list_rows(file: Path) -> Iterator[Row]:
    content = _parsed(file.read_bytes())
    if not isinstance(content, list):
        raise ConfigError(f"got {file}, expected a list of chats, or a .jsonl file with one a line")
    for number, row in enumerate(content, 1):
        yield f"{file.name} row {number}", row


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return BadRow("no JSON")


def _table_rows(file: Path) -> Iterator[Row]:
    """Rows of a .parquet file, or of an .arrow file as `datasets` saves them."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise ConfigError(
            f"reading {file} needs pyarrow: run: {how_to_install('swe')}, or give a .jsonl file"
        ) from None
    number = 0
    try:
        with ExitStack() as opened:
            if file.suffix == ".parquet":
                batches = opened.enter_context(parquet.ParquetFile(file)).iter_batches(1000)
            else:
                source = opened.enter_context(pyarrow.memory_map(str(file)))
                batches = opened.enter_context(ipc.open_stream(source))
            for batch in batches:
                for row in batch.to_pylist():
                    number += 1
                    yield f"{file.name} row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        message = " ".join(str(error).split())[:200]
        raise ConfigError(f"cannot read {file}: {message}") from error
