from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from clawrl_gym.core.types import Turn
from clawrl_gym.store import SessionRow, Store
from clawrl_gym.ui.films import MOST_PAIRS, FilmBox, film_cards
from clawrl_gym.ui.report import write_report
from tests.support.fake_run import START_S, make_run
from tests.ui.test_report import Page

FILM = b"\xff\xd8\xff film of %s \xff\xd9"


def measured(session_id: str, task: str, at: float, reward: float | None) -> SessionRow:
    return SessionRow(
        session_id, task, None, "heldout", "rollout", START_S + at, START_S + at + 1, reward
    )


def keep(folder: Path, *ids: str, film: bytes = FILM) -> None:
    (folder / "films").mkdir(exist_ok=True)
    for session_id in ids:
        text = film % session_id.encode() if b"%s" in film else film
        (folder / "films" / f"{session_id}.jpg").write_bytes(text)


def ids_by_task(
    folder: Path, sessions: list[SessionRow], most_bytes: int = 1 << 20
) -> list[tuple[str, list[str]]]:
    cards = film_cards(sessions, FilmBox(folder, most_bytes), lambda _: None)
    return [(card.task_id, [film.session.id for film in card.films]) for card in cards]


PAIRS = [
    ("lost-1", 1.0, 0.0), ("kept-1", 1.0, 1.0), ("won-1", 0.0, 1.0), ("never-1", 0.0, 0.0),
]  # fmt: skip


def test_tasks_that_were_learned_come_first_and_each_is_shown_before_and_after(
    tmp_path: Path,
) -> None:
    sessions = [
        measured(f"{task}-{at}", task, at, reward)
        for task, *rewards in PAIRS
        for at, reward in zip((0, 5, 9), (rewards[0], 0.5, rewards[1]), strict=True)
    ]
    keep(tmp_path, *(session.id for session in sessions))
    cards = ids_by_task(tmp_path, list(reversed(sessions)))
    assert [task for task, _ in cards] == ["won-1", "kept-1", "lost-1", "never-1"]
    assert cards[0][1] == ["won-1-0", "won-1-9"]


def test_kinds_of_tasks_take_turns_and_the_number_is_bounded(tmp_path: Path) -> None:
    sessions = [
        measured(f"{kind}-{number}-{at}", f"{kind}-{number}", at, float(at > 0))
        for kind in ("mail", "shop", "sheet")
        for number in range(20)
        for at in (0, 9)
    ]
    keep(tmp_path, *(session.id for session in sessions))
    cards = ids_by_task(tmp_path, sessions)
    assert len(cards) == MOST_PAIRS
    assert {task.split("-")[0] for task, _ in cards[:3]} == {"mail", "shop", "sheet"}


def test_training_episodes_failures_and_sessions_without_a_film_are_left_out(
    tmp_path: Path,
) -> None:
    trained = SessionRow("a", "t-1", 7, "train", "rollout", START_S, START_S + 1, 1.0)
    sessions = [trained, measured("b", "t-2", 0, None), measured("c", "t-3", 0, 1.0)]
    keep(tmp_path, "a", "b")
    assert ids_by_task(tmp_path, sessions) == []


def test_what_is_no_film_or_does_not_fit_is_left_out(tmp_path: Path) -> None:
    sessions = [measured("a", "t-1", 0, 1.0), measured("b", "u-1", 0, 1.0)]
    keep(tmp_path, "a", film=b"<svg onload=alert(1)>")
    keep(tmp_path, "b")
    assert ids_by_task(tmp_path, sessions) == [("u-1", ["b"])]
    assert ids_by_task(tmp_path, sessions, most_bytes=10) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with films of a learned task, of its transcripts, and one too many."""
    import asyncio

    folder = make_run(tmp_path_factory.mktemp("runs") / "gui", steps=3)

    async def add() -> None:
        store = await asyncio.to_thread(Store.open, folder)
        try:
            for session_id, at, reward, version in (
                ("eval-a", -90, 0.0, 0),
                ("eval-b", 90, 1.0, 3),
            ):
                await store.add_session(measured(session_id, "gui-shop-heldout-000001", at, None))
                turn = Turn(
                    session_id, 0, "main", [1], [2], [-0.1], [version], "stop",
                    [{"role": "user", "content": "x"}], {"role": "assistant", "content": "y"},
                    START_S,
                )  # fmt: skip
                await store.add_turn(turn)
                await store.end_session(
                    session_id, reward=reward, stop_reason="terminated", error=None
                )
        finally:
            await store.close()

    asyncio.run(add())
    keep(folder, "eval-a", "eval-b", "0-0", "nobody")
    return folder


def test_the_report_shows_films_before_and_after_training(folder: Path) -> None:
    page = Page(write_report(folder).read_text())
    assert "gui-shop-heldout-000001" in page.words
    words = page.words
    assert words.index("Before training") < words.index("After 3 updates")
    assert "✗ failed · reward 0" in words
    assert "✓ solved · reward 1" in words


def test_films_are_in_the_page_itself(folder: Path) -> None:
    text = write_report(folder).read_text()
    page = Page(text)
    pictures = [load.partition("=")[2] for load in page.loads if load.startswith("src=")]
    bodies = [base64.b64decode(picture.partition("base64,")[2]) for picture in pictures]
    assert all(picture.startswith("data:image/jpeg;base64,") for picture in pictures)
    assert bodies[:2] == [FILM % b"eval-a", FILM % b"eval-b"]
    assert [load for load in page.loads if load.startswith("href=")] == ["href=#film-eval-b"] * (
        text.count("film of this episode</a>")
    )


def test_a_transcript_shows_the_film_of_its_episode(folder: Path) -> None:
    text = write_report(folder).read_text()
    film = base64.b64encode(FILM % b"0-0").decode()
    assert text.index('id="transcripts"') < text.index(film)
    assert text.count(film) == 1


def test_the_report_says_where_the_other_films_are(folder: Path) -> None:
    assert (
        "3 of 4 films are here; all are in films/." in Page(write_report(folder).read_text()).words
    )


def test_a_run_without_films_has_no_such_section(tmp_path: Path) -> None:
    text = write_report(make_run(tmp_path / "x", steps=2)).read_text()
    assert 'id="films"' not in text
    assert not re.search(r"\d films are here", text)
