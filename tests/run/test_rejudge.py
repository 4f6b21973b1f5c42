"""A run's stored turns judged once more: beside its own verdicts, and without changing anything."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import clawrl_gym as cg
from clawrl_gym.config import RejudgeConfig
from clawrl_gym.core.errors import ConfigError, PolicyUnavailable
from clawrl_gym.core.types import Verdict
from clawrl_gym.judge.agreement import Agreement, Rejudged
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.parts import JudgeParts
from clawrl_gym.rejudge import main
from clawrl_gym.run.rejudge import Rejudging, rejudge
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.last_report import LastReport
from clawrl_gym.store import SessionRow, Store, StoreReader
from clawrl_gym.store.schema import DATABASE_FILE
from tests.support.fake_run import make_run
from tests.support.fakes_judge import (
    a_turn,
    completion,
    judge_server,
    live_session,
    reply,
    stored,
    user,
)

ANSWERS = (
    ("Thanks, that is perfect!", 1, None),
    ("No, that's wrong: it starts at nine.", 1, -1),
    ("I live in Hamburg.", None, None),
    ("What about Tuesday?", -1, None),
)
"""What people said of replies, and what a judge and people made of it then."""


async def _talk(store: Store) -> None:
    await live_session(store, "talk")
    for index, (answer, judged, person) in enumerate(ANSWERS):
        turn = a_turn("talk", index, reply=reply(f"Reply {index} to keep secret."))
        turn_id = (await stored(store, turn, user(answer))).id
        assert turn_id is not None
        await store.add_verdict(verdict(turn_id, "model", judged))
        if person is not None:
            await store.add_verdict(verdict(turn_id, "feedback", person))
    await stored(store, a_turn("talk", len(ANSWERS)))  # nothing came back yet
    unasked = a_turn("talk", len(ANSWERS) + 1, kind="side")
    await stored(store, unasked, user("Perfect!"))


def verdict(turn_id: int, kind: Any, value: Any) -> Verdict:
    reward = None if value is None else float(value)
    return Verdict(turn_id, kind, value, reward, {}, 0.0)


@pytest.fixture
async def serving(tmp_path: Path) -> Path:
    """The folder of a `serve` with one conversation."""
    folder = tmp_path / "serve"
    folder.mkdir()
    (folder / "config.yaml").write_text(serve_config())
    store = Store.open(folder)
    await _talk(store)
    await store.close()
    return folder


@functools.cache
def serve_config() -> str:
    return yaml.safe_dump(cg.load_config([], "serve").model_dump(mode="json"))


@functools.cache
def composed(*overrides: str) -> RejudgeConfig:
    return cg.load_config(list(overrides), "rejudge")


async def again(folder: Path, *overrides: str, **options: Any) -> Rejudging:
    config = composed(*overrides).model_copy(update={"folder": str(folder)})
    return await rejudge(config, **options)


def nows(rejudging: Rejudging) -> list[str]:
    return [turn.now for turn in sorted(rejudging.agreement.turns, key=lambda t: t.turn_id)]


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / DATABASE_FILE).read_bytes()).hexdigest()


async def test_new_verdicts_stand_beside_the_old_ones_which_stay(serving: Path) -> None:
    before = digest(serving)
    rejudging = await again(serving)
    assert digest(serving) == before
    assert nows(rejudging) == ["+1", "-1", "abstained", "0"]
    agreement = rejudging.agreement
    assert agreement.table == {
        "+1": {"+1": 1, "-1": 1}, "-1": {"0": 1}, "abstained": {"abstained": 1},
    }  # fmt: skip
    assert (agreement.same.value, agreement.same.n) == (0.5, 4)
    assert agreement.with_people is not None
    assert [one.value for one in agreement.with_people] == [0.0, 1.0]
    figures = json.loads((rejudging.folder / "rejudge.json").read_text())
    assert figures["turned_round"] == 1
    assert rejudging.folder.parent == serving / "rejudged"
    page = (rejudging.folder / "rejudge.html").read_text()
    assert "Reply 1 to keep secret." in page
    assert "it starts at nine" in page
    assert "Reply 0" not in page, "it has not flipped"


async def test_no_word_of_a_conversation_is_left_when_a_session_is_deleted(serving: Path) -> None:
    rejudging = await again(serving)
    lines = (rejudging.folder / "verdicts.jsonl").read_text()
    assert len(lines.splitlines()) == 4
    LastReport(serving, print).session_deleted("talk")
    left = {path.name for path in rejudging.folder.iterdir()}
    assert left == {"verdicts.jsonl", "rejudge.json", "judge.json", "rejudge.lock"}
    words = lines + (rejudging.folder / "rejudge.json").read_text()
    for word in ("secret", "perfect!", "nine", "Hamburg", "talk"):
        assert word not in words


async def test_turns_of_a_training_are_read_as_its_environment_says(tmp_path: Path) -> None:
    """What its terminal shows are no words of a person, and its own marks tell failures."""
    folder = await asyncio.to_thread(make_run, tmp_path / "run", steps=6, distilled=True)
    rejudging = await again(folder)
    reader = StoreReader(folder)
    wanted = {
        turn.id
        for session in reader.sessions()
        if session.split == "train"
        for turn in reader.turns_of(session.id)
    }
    reader.close()
    assert {turn.turn_id for turn in rejudging.agreement.turns} == wanted
    table = rejudging.agreement.table
    assert table == {"-1": {"+1": 12}, "not judged": {"+1": 36}}, "no failure is marked as one"


async def a_mixture(folder: Path, *settings: str, **tasks: str) -> Path:
    """A run with a session of each of these tasks; in each a reply was called wrong."""
    config = cg.load_config(list(settings), "train")
    RunFolder(folder).write(config)
    store = Store.open(folder)
    for name, task in tasks.items():
        known = config.domains[name].env.task_ids("train") if task == "first" else None
        row = SessionRow(name, known[0] if known else task, 1, "train", "rollout", 0.0)
        await store.add_session(row)
        await stored(store, a_turn(name), user("No, that's wrong."))
        await store.end_session(name, reward=0.0, stop_reason="terminated")
    await store.close()
    return folder


async def test_a_mixture_is_read_by_its_tasks(tmp_path: Path) -> None:
    folder = await a_mixture(
        tmp_path / "run", "env=[terminal,conversation]",
        terminal="first", conversation="first", gone="gone-1",
    )  # fmt: skip
    notes: list[str] = []
    rejudging = await again(folder, on_phase=lambda part, note: notes.append(note))
    assert nows(rejudging) == ["+1", "-1"], "a terminal's words are no complaint"
    assert any("1 turns left out" in note for note in notes)


async def test_seeds_of_a_mixture_are_read_as_their_environment_says(tmp_path: Path) -> None:
    folder = await a_mixture(
        tmp_path / "run", "env=[conversation,gym]",
        "mixture.gym.env.target=tests.support.guess_env:GuessEnv",
        conversation="first", gym="seed-5",
    )  # fmt: skip
    assert nows(await again(folder)) == ["-1", "abstained"], "a program complains of nothing"


async def test_what_was_broken_off_is_gone_on_with(serving: Path) -> None:
    first = await again(serving)
    lines = (first.folder / "verdicts.jsonl").read_text().splitlines(keepends=True)
    (first.folder / "verdicts.jsonl").write_text("".join(lines[:2]))
    (first.folder / "rejudge.json").unlink()
    other = await again(serving, "judge.replies.thanks.value=0", "turns=2")
    assert other.folder != first.folder, "it is another judge"
    assert len(other.agreement.turns) == 2
    second = await again(serving)
    assert second.folder == first.folder
    assert (first.folder / "verdicts.jsonl").read_text().splitlines(keepends=True)[:2] == lines[:2]
    assert nows(second) == nows(first)
    assert len(json.loads((first.folder / "judge.json").read_text())["starts"]) == 2


async def test_a_model_is_asked_at_its_own_server_and_its_key_is_kept_nowhere(
    serving: Path,
) -> None:
    async with judge_server() as (server, _):
        server.answer = lambda at: completion("\\boxed{1}")
        rejudging = await again(
            serving, "judge=model", f"judge.base_url={server.base_url}", "judge.votes=2",
            "judge.key=sk-0123456789abcdef01",
        )  # fmt: skip
    assert nows(rejudging) == ["+1"] * 4
    assert len(server.requests) == 4 * 2
    assert {authorization for *_, authorization in server.requests} == {
        "Bearer sk-0123456789abcdef01"
    }
    left = "".join(path.read_text() for path in rejudging.folder.iterdir())
    assert "0123456789abcdef01" not in left
    assert "votes +1 +1" in left


async def test_a_server_that_is_gone_ends_it_and_the_rest_is_judged_later(serving: Path) -> None:
    overrides = ["judge=model", "judge.votes=1", "judge.quorum=1", "judge.concurrency=1"]
    served = asyncio.Event()

    def answer(at: int) -> object:
        if at == 1:
            served.set()
        return completion("\\boxed{0}")

    async with judge_server() as (server, _):
        server.answer = answer
        address = f"judge.base_url={server.base_url}"
        judging = asyncio.create_task(again(serving, *overrides, address))
        await served.wait()
        server.silent = True
    with pytest.raises(PolicyUnavailable, match="the same command continues with the others"):
        await judging
    (folder,) = (serving / "rejudged").iterdir()
    kept = (folder / "verdicts.jsonl").read_text().splitlines()
    assert 1 <= len(kept) < 4
    assert all(json.loads(line)["now"] == "0" for line in kept), "no failure counts as a verdict"
    async with judge_server() as (server, _):
        rejudging = await again(serving, *overrides, f"judge.base_url={server.base_url}")
    assert rejudging.folder == folder
    assert nows(rejudging) == ["0"] * len(kept) + ["+1"] * (4 - len(kept))


class Failing:
    """A judge of one's own that fails."""

    kind = "rule"

    @classmethod
    def from_config(cls, config: object, parts: JudgeParts) -> Failing:
        return cls()

    async def judge(self, case: Case) -> Verdict:
        raise ValueError("it has a bad day")


async def test_a_judge_that_fails_abstains_and_the_reason_is_told(serving: Path) -> None:
    rejudging = await again(serving, "judge=tests.run.test_rejudge:Failing")
    assert nows(rejudging) == ["abstained"] * 4
    assert "4 turns: ValueError: it has a bad day" in rejudging.summary()
    assert rejudging.folder.name.startswith("Failing-")


async def test_a_run_that_is_being_written_is_judged_as_far_as_it_is(serving: Path) -> None:
    notes: list[str] = []
    store = Store.open(serving)
    try:
        await again(serving, on_phase=lambda part, note: notes.append(note))
    finally:
        await store.close()
    assert any("still writes to" in note for note in notes)


async def test_a_run_without_such_turns_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("{}\n")
    await Store.open(folder).close()
    with pytest.raises(ConfigError, match="holds no turn that a judge could read"):
        await again(folder)


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run", steps=6, distilled=True)
    assert main([str(folder), "dry_run=true"]) == 0
    assert "48 turns of" in capsys.readouterr().out
    assert not (folder / "rejudged").exists()
    assert main([str(folder)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "48 turns, by rules"
    assert printed[1].split() == ["before", "\\", "now", "+1", "0", "-1", "abstained"]
    assert any(
        line.startswith("the same verdict as before: 0 % (0 to 24 %), n = 12") for line in printed
    )


TURN = Rejudged(1, "+1", "+1", "not judged", 1.0, "thanks")


def test_a_flip_is_another_verdict_and_turns_round_from_good_to_bad() -> None:
    turns = [
        TURN,
        replace(TURN, turn_id=4, now="-1"),
        replace(TURN, turn_id=3, before="not judged", now="-1"),
        replace(TURN, turn_id=2, now="abstained"),
    ]
    assert [turn.turn_id for turn in Agreement(turns).flips] == [2, 4]
    assert [turn.turn_id for turn in Agreement(turns).turned_round] == [4]


def test_turns_that_nobody_had_judged_have_no_agreement() -> None:
    agreement = Agreement([replace(TURN, before="not judged")])
    assert agreement.same.n == 0
    assert agreement.with_people is None
