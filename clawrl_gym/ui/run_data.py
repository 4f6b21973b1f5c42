"""A run's folder, read for showing it: what is there, and a note for each thing that is not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clawrl_gym.config.part import leaf
from clawrl_gym.core.errors import ClawError, StoreError, boundary
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import (
    HELDOUT_SUCCESS,
    LOOPS,
    METRICS_FILE,
    TIMELINE_FILE,
    MetricRow,
    by_step,
    rewards_by_step,
    solved_by_step,
)
from clawrl_gym.core.processes.controls import control_words
from clawrl_gym.core.provenance import Start, read_starts
from clawrl_gym.core.redact import is_secret
from clawrl_gym.core.spread import evenly
from clawrl_gym.core.types import Json
from clawrl_gym.inference.models.shipped import SHIPPED, shipped_dir
from clawrl_gym.store import SessionRow, StoreReader
from clawrl_gym.store.allowance_file import read_taken
from clawrl_gym.ui.distilled_turns import (
    MOST_DISTILLED_TURNS,
    DistilledTurnCard,
    DistilledTurnLine,
    HintLine,
    distilled_turn_cards,
    read_distill_log,
)
from clawrl_gym.ui.films import FilmBox, FilmCard, film_cards
from clawrl_gym.ui.live_page import FILMS_FOLDER
from clawrl_gym.ui.timeline import Span, spans_of
from clawrl_gym.ui.transcripts import (
    Decoder,
    EpisodeChoice,
    EpisodeTranscript,
    batches_to_show,
    choose,
    find_tokenizer,
    read_transcript,
)
from clawrl_gym.ui.trust import Trust, trust_of
from clawrl_gym.ui.verdicts import JudgedTurn, judged_turn

CONFIG_FILE = "config.yaml"
_PAIRS = 3


@dataclass(frozen=True, slots=True)
class TranscriptCard:
    """Episodes that are shown beside each other, and why."""

    choice: EpisodeChoice
    transcripts: list[EpisodeTranscript]


@dataclass(frozen=True, slots=True)
class RunData:
    """All that a report shows."""

    folder: Path
    config: Json
    config_text: str
    rows: list[MetricRow]
    """One row of metrics a step."""
    spans: list[Span]
    starts: list[Start]
    """Commands and machines, oldest first."""
    cards: list[TranscriptCard] = field(default_factory=list)
    episodes: int = 0
    distilled_turns: list[DistilledTurnCard] = field(default_factory=list)
    judged: list[JudgedTurn] = field(default_factory=list)
    """Live turns with a verdict, in order."""
    hints: list[HintLine] = field(default_factory=list)
    """The newest ones, the newest last."""
    films: list[FilmCard] = field(default_factory=list)
    session_films: dict[str, str] = field(default_factory=dict)
    """Films of the cards' sessions, by session, as data URIs."""
    notes: list[str] = field(default_factory=list)
    """Notes on what is not shown, and why."""
    versions_of_users: dict[str, int] = field(default_factory=dict)
    """The newest of each user who has weights of their own."""
    trust: Trust = field(default_factory=Trust)
    solved: dict[int, dict[str, bool]] = field(default_factory=dict)
    """Tasks that each held-out evaluation solved, by the number of updates before it."""
    rewards: dict[int, dict[str, float]] = field(default_factory=dict)
    """Rewards of each held-out evaluation by task, by the number of updates before it."""

    @property
    def heldout(self) -> list[MetricRow]:
        """The rows that carry a held-out evaluation."""
        return [row for row in self.rows if HELDOUT_SUCCESS in row]

    @property
    def last_step(self) -> int:
        """Updates that were made."""
        return max((int(row["step"]) for row in self.rows), default=0)

    @property
    def is_serving(self) -> bool:
        """A run of `serve`, which has no end of its own."""
        return is_serving(self.config)

    @property
    def is_recorded(self) -> bool:
        """Conversations of a serving run are stored."""
        return self.setting("live.record") is not False

    @property
    def total_steps(self) -> int | None:
        """Updates that were configured; None when nobody counts them."""
        if self.is_serving:
            return None
        steps = self.setting("trainer.steps")
        return steps if isinstance(steps, int) else None

    @property
    def is_finished(self) -> bool:
        """The last update was made."""
        return self.total_steps is not None and self.last_step >= self.total_steps

    @property
    def is_control(self) -> bool:
        """Whether it had nothing to learn from."""
        return control_words(self.setting("control")) is not None

    def points(self, metric: str) -> list[tuple[float, float]]:
        """(step, value) of a metric."""
        return [(float(row["step"]), float(row[metric])) for row in self.rows if metric in row]

    def setting(self, key: str) -> object:
        """A value of the configuration by its dotted key; None when it is not there."""
        return leaf(self.config, key)


def is_serving(config: Mapping[str, object]) -> bool:
    """Whether a configuration is one of `serve`."""
    return "learn" in config


def read_run(folder: Path) -> RunData:
    """Read a run's folder. Raises ClawError when there is no run in it."""
    if not folder.is_dir():
        raise ClawError(f"there is no folder {str(folder)!r}; expected a run's folder, runs/NAME")
    rows = by_step(read_json_lines(folder / METRICS_FILE))
    if not rows and not (folder / CONFIG_FILE).exists():
        raise ClawError(
            f"{str(folder)!r} has neither {METRICS_FILE} nor {CONFIG_FILE}; "
            "expected the folder of a run (run.dir, or runs/NAME)"
        )
    config, config_text = _read_config(folder / CONFIG_FILE)
    spans = spans_of(read_json_lines(folder / TIMELINE_FILE))
    starts = read_starts(folder)
    notes = [] if spans else [f"No timeline: {TIMELINE_FILE} is missing or empty."]
    silent = [loop for loop in LOOPS if loop not in {span.loop for span in spans}]
    if spans and silent and not is_serving(config):  # conversations are neither collected nor timed
        notes.append(f"Nothing was recorded in the timeline for: {', '.join(silent)}.")
    if not starts:
        notes.append("The command and the machine are unknown: run.json is missing.")
    if not config:
        notes.append(f"No configuration: {CONFIG_FILE} is missing or cannot be read.")
    notes += starts[-1].get("notes", []) if starts else []
    log = read_distill_log(folder)
    stored = _read_cards(folder, config, evenly(log.distilled_turns, MOST_DISTILLED_TURNS))
    return RunData(
        folder, config, config_text, rows, spans, starts, stored.cards, stored.episodes,
        stored.distilled_turns, stored.judged, log.hints, stored.films, stored.session_films,
        [*notes, *stored.notes], stored.versions_of_users, stored.trust, solved_by_step(folder),
        rewards_by_step(folder, "reward"),
    )  # fmt: skip


_YAML_LINE = re.compile(r"(?m)^([ -]*)([\w.-]+): (?!null$)(.+)$")


def _without_secret(line: re.Match[str]) -> str:
    """Reports are shown around: keys of the user's stay out of them."""
    indent, name, _ = line.groups()
    return f"{indent}{name}: hidden" if is_secret(name) else line.group()


def _read_config(path: Path) -> tuple[Json, str]:
    import yaml

    from clawrl_gym.core.plain_yaml import plain_values

    try:
        text = path.read_text(encoding="utf-8")
        text = _YAML_LINE.sub(_without_secret, text)
        content = plain_values(text)
    except (OSError, yaml.YAMLError):
        return {}, ""
    return (content, text) if isinstance(content, dict) else ({}, text)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A report's data from the store."""

    cards: list[TranscriptCard] = field(default_factory=list)
    episodes: int = 0
    """Number of episodes from which the cards were chosen."""
    distilled_turns: list[DistilledTurnCard] = field(default_factory=list)
    judged: list[JudgedTurn] = field(default_factory=list)
    films: list[FilmCard] = field(default_factory=list)
    session_films: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    versions_of_users: dict[str, int] = field(default_factory=dict)
    trust: Trust = field(default_factory=Trust)

    @property
    def sessions(self) -> list[SessionRow]:
        """The sessions that are shown."""
        episodes = [session for card in self.cards for session in card.choice.sessions]
        return [*episodes, *(card.session for card in self.distilled_turns)]


def _read_cards(folder: Path, config: Json, distilled_turns: list[DistilledTurnLine]) -> _Stored:
    """Transcripts and distilled turns, or notes that say why they are missing."""
    notes: list[str] = []
    decoder: Decoder | None = None
    try:
        decoder = find_tokenizer(model_folders(folder, config))
    except ClawError as error:
        notes.append(f"{error}.")
    try:
        with boundary(StoreError, "run.db cannot be read"):
            stored = _read_store(folder, decoder, distilled_turns)
    except StoreError as error:
        return _Stored(notes=[f"No transcripts: {error}."])
    if decoder is None:
        notes.append("Tokens are shown as ids: no tokenizer.json of the model is here.")
    if not stored.cards:
        notes.append(
            "No transcripts: no episode ended with a reward, no live session taught anything."
        )
    if any(session.source == "live" for session in stored.sessions):
        notes.append(
            "This page holds words of live conversations. While serve runs, it is removed with the "
            "first session that is deleted; copies of it are not."
        )
    if len(stored.distilled_turns) < len(distilled_turns):
        lost = len(distilled_turns) - len(stored.distilled_turns)
        notes.append(f"{lost} of the distilled turns chosen for this page are no longer in run.db.")
    return replace(stored, notes=[*notes, *stored.notes])


def _read_store(
    folder: Path, decoder: Decoder | None, distilled_turns: list[DistilledTurnLine]
) -> _Stored:
    reader = StoreReader(folder)
    try:
        sessions = reader.sessions()
        choices = choose(sessions, batches_to_show(reader, _PAIRS))
        cards = [
            TranscriptCard(choice, [read_transcript(reader, s, decoder) for s in choice.sessions])
            for choice in choices
        ]
        turn_cards = distilled_turn_cards(reader, distilled_turns, decoder)
        judged = [judged_turn(version, verdicts) for version, verdicts in reader.live_verdicts()]
        box = FilmBox(folder)
        films = film_cards(sessions, box, lambda session_id: _version(reader, session_id))
        newest = {user: row.version for user, row in reader.newest_of_users().items()}
        trust = trust_of(reader.counts_of_users(), reader.updates(), read_taken(folder))
    finally:
        reader.close()
    session_films = _session_films(cards, films, box)
    notes = []
    if len(box.session_ids) > box.embedded_films:
        count = f"{box.embedded_films} of {len(box.session_ids)}"
        notes.append(f"{count} films are here; all are in {FILMS_FOLDER}/.")
    return _Stored(
        cards, len(sessions), turn_cards, judged, films, session_films, notes, newest, trust
    )


def _version(reader: StoreReader, session_id: str) -> int | None:
    """The newest weight version that acted in a session."""
    turns = reader.last_turns(session_id, 1)
    return max((version for turn in turns for version in turn.versions_T), default=None)


def _session_films(
    cards: list[TranscriptCard], films: list[FilmCard], box: FilmBox
) -> dict[str, str]:
    """The films of the episodes in the cards, but for those that are shown anyway."""
    in_cards = {film.session.id for card in films for film in card.films}
    uri_by_session: dict[str, str] = {}
    for session in (session for card in cards for session in card.choice.sessions):
        is_new = session.id in box.session_ids - in_cards - set(uri_by_session)
        uris = box.take([session]) if is_new else None
        if uris is not None:
            uri_by_session[session.id] = uris[0]
    return uri_by_session


def model_folders(folder: Path, config: Json) -> Sequence[Path]:
    """Folders that may hold the model's tokenizer.json, nearest to the run first."""
    model = str(leaf(config, "policy.model") or "tiny")
    own = [folder / "serving" / name for name in ("0/base", "")]
    return [*own, shipped_dir(model) if model in SHIPPED else Path(model)]
