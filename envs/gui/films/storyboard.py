"""A film as one picture: pages side by side, what was done on each, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.types import is_success
from clawrl_gym.envs.gui.attempt import Attempt, caption
from clawrl_gym.envs.gui.films.overlay import Overlay, fitted, font, wrapped
from clawrl_gym.envs.gui.films.picture import drawn, jpeg_of, opened
from clawrl_gym.envs.gui.observation import View

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_WIDTH, _MARGIN, _GAP = 1520, 32, 24
_WIDE, _MANY = 640, 12
"""Pages wider than that stand in two columns, unless there are more of them; else in three."""
_LEAST, _EDGE = 0.5, 24
"""Share of the viewport's width and height that is shown at least, and pixels of ground."""
_PAD, _LINE, _CAPTION_LINES = 14, 26, 4
_TITLE_LINES, _REPORT_LINES = 4, 6
_PAGE, _PAPER, _RULE, _INK, _DIM = "#f3f5f8", "#ffffff", "#d8dee8", "#1a2130", "#5f6b7c"
_GOOD, _BAD = "#12805c", "#c8322b"


@dataclass(frozen=True, slots=True)
class FilmFrame:
    """The page before a reply, and what the reply did on it."""

    number: int
    """Number from 1; 0 for the page that was left at the end."""
    jpeg: bytes | None
    """Picture as JPEG; None when none could be taken."""
    view: View
    attempts: tuple[Attempt, ...] = ()
    failure: str = ""
    """Failure of a reply that was no attempt at all."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """Result of an episode."""

    reward: float | None
    """Reward; None before the end."""
    report: str
    replies: int
    hidden: int
    """Replies that have no frame."""


def draw_storyboard(
    title: str, viewport: tuple[int, int], frames: Sequence[FilmFrame], outcome: EpisodeOutcome
) -> bytes:
    """One JPEG, made to be looked at in the width of a report."""
    from PIL import Image, ImageDraw

    pages = [None if frame.jpeg is None else _page(frame.jpeg) for frame in frames]
    window = _window(frames, pages, viewport)
    columns = 2 if window[0] > _WIDE and len(frames) <= _MANY else 3
    tile = (_WIDTH - 2 * _MARGIN - (columns - 1) * _GAP) // columns
    cards = [
        _card(frame, _framed(frame, page, window, viewport, tile))
        for frame, page in zip(frames, pages, strict=True)
    ]
    cards.append(_outcome_card(outcome, tile))
    rows = [cards[at : at + columns] for at in range(0, len(cards), columns)]
    heights = [max(card.height for card in row) for row in rows]
    lines = wrapped(title, 28, _WIDTH - 2 * _MARGIN, _TITLE_LINES)
    top = _MARGIN + 38 * len(lines) + 16
    height = top + sum(heights) + _GAP * (len(rows) - 1) + _MARGIN
    strip = Image.new("RGB", (_WIDTH, height), _PAGE)
    draw = ImageDraw.Draw(strip)
    for place, line in enumerate(lines):
        draw.text((_MARGIN, _MARGIN + 38 * place), line, _INK, font(28))
    for row, tall in zip(rows, heights, strict=True):
        for column, card in enumerate(row):
            left = _MARGIN + column * (tile + _GAP)
            draw.rectangle((left, top, left + tile - 1, top + tall - 1), _PAPER, _RULE)
            strip.paste(card.crop((1, 1, card.width - 1, card.height - 1)), (left + 1, top + 1))
        top += tall + _GAP
    bottom, tall = top - _GAP, heights[-1]
    draw.rectangle((left, bottom - tall, left + 7, bottom - 1), _colour_of(outcome))
    return jpeg_of(strip)


def _card(frame: FilmFrame, picture: Picture) -> Picture:
    """A page with its number and its captions, on white."""
    from PIL import Image, ImageDraw

    lines = _captions(frame)
    height = picture.height + 2 * _PAD + _LINE * len(lines)
    card = Image.new("RGB", (picture.width, height), _PAPER)
    card.paste(picture)
    draw = ImageDraw.Draw(card)
    draw.line((0, picture.height, card.width, picture.height), _RULE)
    left, top = _PAD, picture.height + _PAD
    if frame.number:
        badge = _badge(frame.number)
        card.paste(badge, (left, top))
        left += badge.width + 12
    for place, (words, colour) in enumerate(lines):
        middle = (left, top + _LINE * (place + 0.5))
        draw.text(middle, fitted(words, 20, card.width - left - _PAD), colour, font(20), "lm")
    return card


def _framed(
    frame: FilmFrame,
    page: Picture | None,
    window: tuple[int, int],
    viewport: tuple[int, int],
    tile: int,
) -> Picture:
    """The part of the page that lies in the window, as wide as a tile, with what was done."""
    from PIL import Image, ImageDraw

    size = (tile, max(1, round(tile * window[1] / window[0])))
    if page is None:
        blank = Image.new("RGB", size, "#e9edf3")
        middle = (size[0] / 2, size[1] / 2)
        ImageDraw.Draw(blank).text(middle, "no picture", _DIM, font(22), "mm")
        return blank
    scale = page.width / viewport[0]
    part = (0, 0, round(window[0] * scale), round(window[1] * scale))
    small = page.crop(part).resize(size, Image.Resampling.LANCZOS)
    return drawn(small, frame.attempts, frame.view, window)


def _window(
    frames: Sequence[FilmFrame], pages: Sequence[Picture | None], viewport: tuple[int, int]
) -> tuple[int, int]:
    """The shown part of all pages: up to the end of the content of any, not empty ground."""
    right, bottom = (_LEAST * side for side in viewport)
    for frame, page in zip(frames, pages, strict=True):
        if page is not None:
            scale = page.width / viewport[0]
            edge = _written_to(page)
            right, bottom = max(right, edge[0] / scale), max(bottom, edge[1] / scale)
        for attempt in frame.attempts:
            for x, y in (
                (attempt.action.x, attempt.action.y),
                (attempt.action.to_x, attempt.action.to_y),
            ):
                right, bottom = max(right, x or 0.0), max(bottom, y or 0.0)
    return min(viewport[0], round(right + _EDGE)), min(viewport[1], round(bottom + _EDGE))


def _outcome_card(outcome: EpisodeOutcome, tile: int) -> Picture:
    """The result, as the last card."""
    from PIL import Image, ImageDraw

    solved = is_success(outcome.reward)
    word = "not ended" if outcome.reward is None else "solved" if solved else "not solved"
    small = [] if outcome.reward is None else [f"reward {outcome.reward:g}"]
    small.append(f"after {outcome.replies} repl{'y' if outcome.replies == 1 else 'ies'}")
    lines = [(" · ".join(small), _INK)]
    lines += [(words, _DIM) for words in _missing(outcome.report, tile - 42)]
    if outcome.hidden:
        frames = "frame is" if outcome.hidden == 1 else "frames are"
        lines.append((f"{outcome.hidden} more {frames} not shown", _DIM))
    card = Image.new("RGB", (tile, 96 + _LINE * len(lines) + _PAD), _PAPER)
    draw = ImageDraw.Draw(card)
    draw.text((28, 52), word, _colour_of(outcome), font(44), "lm")
    for place, (words, ink) in enumerate(lines):
        draw.text((28, 96 + _LINE * (place + 0.5)), words, ink, font(20), "lm")
    return card


def _colour_of(outcome: EpisodeOutcome) -> str:
    if outcome.reward is None:
        return _DIM
    return _GOOD if is_success(outcome.reward) else _BAD


def _missing(report: str, width: float) -> list[str]:
    """The lines of the report that say something beside the outcome."""
    lines_after_first = [line for line in report.splitlines() if line.strip()][1:]
    lines = [part for line in lines_after_first for part in wrapped(line, 20, width, _REPORT_LINES)]
    return lines[:_REPORT_LINES]


def _captions(frame: FilmFrame) -> list[tuple[str, str]]:
    """(words, colour) of each line."""
    if frame.number == 0:
        return [("the page that was left", _DIM)]
    lines = [
        (caption(attempt, frame.view), _BAD if attempt.failed else _INK)
        for attempt in frame.attempts
    ]
    if len(lines) > 1:
        lines = [(f"{count}. {words}", colour) for count, (words, colour) in enumerate(lines, 1)]
    if frame.failure:
        lines.append((frame.failure, _BAD))
    if len(lines) > _CAPTION_LINES:
        more = f"and {len(lines) - _CAPTION_LINES + 1} more"
        lines = [*lines[: _CAPTION_LINES - 1], (more, _DIM)]
    return lines or [("nothing", _DIM)]


def _badge(number: int) -> Picture:
    """The frame's number on a dark ground."""
    from PIL import Image, ImageDraw

    width = max(_LINE, round(font(17).getlength(str(number))) + 14)
    ink = Overlay(width, _LINE)
    ink.frame((0, 0, width, _LINE), _INK, _INK, corner=7)
    badge = ink.over(Image.new("RGB", (width, _LINE), _PAPER))
    ImageDraw.Draw(badge).text((width / 2, _LINE / 2), str(number), _PAPER, font(17), "mm")
    return badge


def _page(jpeg: bytes) -> Picture | None:
    try:
        return opened(jpeg)
    except EnvError:
        return None


def _written_to(page: Picture) -> tuple[int, int]:
    """Right and bottom end of what differs from the ground, which is seen at the bottom right."""
    from PIL import Image, ImageChops

    ground = Image.new("RGB", page.size, page.getpixel((page.width - 1, page.height - 1)))
    differs = ImageChops.difference(page, ground).convert("L").point([0] * 21 + [255] * 235)
    box = differs.getbbox()
    return (0, 0) if box is None else box[2:]
