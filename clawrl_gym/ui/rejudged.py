"""A run's verdicts of then and of now: as lines of a terminal, and as a page with what flipped.

The page has words of conversations: it goes with the first session that is deleted, as the report.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.intervals import Estimate
from clawrl_gym.core.provenance import describe_start
from clawrl_gym.core.spread import evenly
from clawrl_gym.judge.agreement import OUTCOMES, Agreement, Rejudged
from clawrl_gym.judge.rejudged import REJUDGED_FOLDER
from clawrl_gym.store import StoreReader
from clawrl_gym.ui import pages
from clawrl_gym.ui.text import in_words, number
from clawrl_gym.ui.transcripts import TranscriptMessage, transcript_message

REJUDGED_PAGE = "rejudge.html"
_NOW = OUTCOMES[:-1]
"""Everybody is judged now."""
_COLUMN = 11


@dataclass(frozen=True, slots=True)
class Flip:
    """A turn whose verdict is another one now, in words."""

    rejudged: Rejudged
    session_id: str
    request: list[TranscriptMessage]
    """The last words of a user before the reply."""
    reply: TranscriptMessage
    next_state: list[TranscriptMessage]


def agreement_lines(agreement: Agreement) -> list[str]:
    """The table and the shares."""
    header = "before \\ now"
    lines = [f"{header:<12}" + "".join(f"{outcome:>{_COLUMN}}" for outcome in _NOW)]
    for before, counts in agreement.table.items():
        cells = (f"{number(counts[outcome]):>{_COLUMN}}" for outcome in _NOW)
        lines.append(f"{before:<12}" + "".join(cells))
    return [*lines, *sentences(agreement)]


def sentences(agreement: Agreement) -> list[str]:
    """Sentences that sum up the table."""
    same, turned = agreement.same, number(len(agreement.turned_round))
    if same.n:
        lines = [
            f"the same verdict as before: {_words(same)}; {turned} turned round (+1 to -1, or -1 "
            "to +1)"
        ]
    else:
        lines = ["no judge had judged these turns before"]
    if agreement.with_people is not None:
        before, now = agreement.with_people
        lines.append(f"as people said: {_words(now)} now, {_words(before)} before")
    return lines


def write_rejudged_page(
    run: Path, folder: Path, judge: str, agreement: Agreement, examples: int
) -> bool:
    """The page in `folder`; False where a session that it shows was deleted while it was written,
    and it is not kept. Raises StoreError."""
    reader = StoreReader(run)
    try:
        chosen = _examples(agreement, examples)
        shown = [flip for turn in chosen if (flip := _flip(reader, turn))]
        page = pages.render(
            "rejudge.html.j2",
            title=run.resolve().name,
            judge=judge,
            start=describe_start(),
            agreement=agreement,
            sentences=sentences(agreement),
            outcomes=_NOW,
            flips=shown,
            hidden=len(agreement.flips) - len(shown),
            number=number,
            made=time.strftime("%Y-%m-%d %H:%M"),
        )
        path = folder / REJUDGED_PAGE
        try:
            replace_text(path, page)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error}; make room") from error
        if all(reader.session(flip.session_id) for flip in shown):
            return True
    finally:
        reader.close()
    path.unlink(missing_ok=True)
    return False


def remove_rejudged_pages(run: Path) -> None:
    """All of a run; what cannot be removed stays."""
    for path in (run / REJUDGED_FOLDER).glob(f"*/{REJUDGED_PAGE}"):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _examples(agreement: Agreement, count: int) -> list[Rejudged]:
    """At most `count` flips, spread over the run: good to bad or back first, then others."""
    turned = evenly(agreement.turned_round, count)
    others = [turn for turn in agreement.flips if not turn.has_turned_round]
    return [*turned, *evenly(others, count - len(turned))]


def _flip(reader: StoreReader, rejudged: Rejudged) -> Flip | None:
    """The flip's texts; None for a turn that was deleted meanwhile."""
    turn, next_state = reader.turn(rejudged.turn_id), reader.next_state_of(rejudged.turn_id)
    if turn is None or next_state is None:
        return None
    request = next((m for m in reversed(turn.messages) if m.get("role") == "user"), None)
    return Flip(
        rejudged,
        turn.session_id,
        [] if request is None else [transcript_message(request)],
        transcript_message(turn.reply),
        [transcript_message(message) for message in next_state],
    )


def _words(estimate: Estimate) -> str:
    return f"{in_words(estimate)}, n = {number(estimate.n)}"
