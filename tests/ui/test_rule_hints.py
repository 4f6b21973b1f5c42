"""Hints and distilled turns as they are shown: read from the log and the store, on the page, in
lines."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from clawrl_gym.config import ServeConfig
from clawrl_gym.core.spread import evenly
from clawrl_gym.core.types import DistilledTurn, DistillTarget, Message, Sample, Turn, Verdict
from clawrl_gym.store import SessionRow, Store, StoreReader
from clawrl_gym.store.journal import EVALUATIONS_FILE
from clawrl_gym.ui.distilled_turns import (
    DistilledTurnLine,
    distilled_turn_cards,
    hint_read,
    read_distill_log,
)
from clawrl_gym.ui.judging import judging_line, mark, reading_line, reading_of, teacher_line, why
from clawrl_gym.ui.report import gap_legend, sign, tint, write_report
from clawrl_gym.ui.run_data import read_run
from tests.support.fake_run import HINT, make_run
from tests.ui.test_report import Page


class Words:
    """A tokenizer whose ids are the characters' own numbers."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "judged", steps=6, distilled=True)


@pytest.fixture(scope="module")
def page(judged: Path) -> str:
    return write_report(judged).read_text()


def test_the_page_shows_hints_refusals_votes_and_what_the_teacher_thought(page: str) -> None:
    words = Page(page).words
    for said in (
        HINT, "refused: it gives the result away", "The count is 42.", "Use <grep> -c.",
        "votes -1 -1 ? 2 hints", "judged -1", "What the teacher thought", "Agreement",
        "Tokens of each term", "Abstentions", "agreed with the rules", "In other environments",
    ):  # fmt: skip
        assert said in words, said


def test_a_gap_is_told_by_colour_underline_and_number_and_an_unknown_one_by_none(page: str) -> None:
    article = page.split('<article class="panel lesson">')[1].split("</article>")[0]
    assert 'class="tok neg" style="--a:1.00"' in article
    assert "teacher&#39;s gap -3.000" in article
    assert "teacher&#39;s gap +2.500" in article
    last = article.split('<div class="said">')[1].split("</pre>")[0].rsplit("<span", 1)[1]
    assert "gap" not in last
    assert 'class="tok"' in last
    assert ".tok.neg{" in page
    assert "underline" in page.split(".tok.neg{")[1].split("}")[0]


def test_a_run_without_a_judge_has_no_word_about_judging(tmp_path: Path) -> None:
    text = write_report(make_run(tmp_path, steps=3)).read_text()
    assert "Judging and teaching" not in Page(text).words


def test_hostile_hints_stay_text(tmp_path: Path) -> None:
    evil = "</pre></script><script>alert(1)</script>\ud800"
    folder = make_run(tmp_path / "x", steps=2, store=False)
    row = {
        "type": "verdict", "id": 1, "session_id": evil, "turn_id": 1, "kind": evil, "value": None,
        "detail": {"hints": [evil], "refused": [{"hint": evil * 200, "why": evil}]},
    }  # fmt: skip
    (folder / EVALUATIONS_FILE).write_text(json.dumps(row) + "\n")
    page = Page(write_report(folder).read_text())
    assert page.tags.count("script") == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "taught", "id": 1}',
        '{"type": "taught", "id": 1, "session_id": "s", "turn_id": null, "version": 1, '
        '"prompt": 0, "ids": [1, 2], "gaps": [0.5]}',
        '{"type": "taught", "id": 1, "session_id": "s", "turn_id": null, "version": 1, '
        '"prompt": 0, "ids": [1], "gaps": [NaN]}',
        '{"type": "verdict", "detail": {"hints": 7}, "session_id": "s", "turn_id": 1}',
        '{"type": "verdict", "detail": null, "hints": 0}',
        '["taught"]',
        '{"type": "taught", "id',
    ],
)
def test_damaged_lines_of_the_log_are_passed_over(tmp_path: Path, line: str) -> None:
    good = '{"type": "verdict", "session_id": "s", "turn_id": 1, "kind": "rule", "value": -1, '
    good += '"detail": {"hints": ["Look first."]}}'
    (tmp_path / EVALUATIONS_FILE).write_text(f"{line}\n{good}\n")
    log = read_distill_log(tmp_path)
    assert [hint.text for hint in log.hints] == ["Look first."]
    assert log.distilled_turns == []


def test_a_run_without_the_log_has_no_lessons(tmp_path: Path) -> None:
    assert read_distill_log(tmp_path).hints == []


def test_an_update_that_was_done_again_is_told_once(tmp_path: Path) -> None:
    def line(version: int, gap: float) -> str:
        told = {"type": "taught", "id": 7, "session_id": "s", "turn_id": 3, "version": version,
                "prompt": 0, "ids": [1], "gaps": [gap]}  # fmt: skip
        return json.dumps(told) + "\n"

    (tmp_path / EVALUATIONS_FILE).write_text(line(2, 0.1) + line(1, 0.2) + line(2, 0.3))
    assert [(t.update, t.gaps_T) for t in read_distill_log(tmp_path).distilled_turns] == [
        (1, [0.2]), (2, [0.3]),
    ]  # fmt: skip


def test_lessons_are_chosen_from_the_whole_run() -> None:
    distilled_turns = [DistilledTurnLine(n, "s", n, None, 0, [], []) for n in range(100)]
    assert [line.update for line in evenly(distilled_turns, 3)] == [0, 50, 99]
    assert evenly(distilled_turns[:2], 3) == distilled_turns[:2]
    assert evenly([], 3) == []
    assert [len(evenly(distilled_turns, count)) for count in (0, 1, 2)] == [0, 1, 2]


def test_a_lesson_whose_session_was_deleted_is_not_shown(judged: Path, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "x", steps=6, distilled=True)
    before = read_distill_log(folder).distilled_turns

    async def delete() -> None:
        store = await asyncio.to_thread(Store.open, folder)
        try:
            await store.delete_session(before[0].session_id)
        finally:
            await store.close()

    asyncio.run(delete())
    after = read_distill_log(folder).distilled_turns
    assert after == before[1:]
    reader = StoreReader(folder)
    try:
        assert len(distilled_turn_cards(reader, before, None)) == len(before) - 1
    finally:
        reader.close()


def test_a_lesson_shows_its_turn_what_came_back_and_the_hint(judged: Path) -> None:
    card = read_run(judged).distilled_turns[0]
    assert card.hint == HINT, "of two hints the one in the teacher's prompt"
    assert "".join(token.text for token in card.turn.tokens) == "cat app.log | grep eror"
    assert [token.gap for token in card.turn.tokens][:3] == [-3.0, 0.0, 2.5]
    assert card.turn.tokens[-1].gap is None
    assert [told.text for told in card.outcome] == ["$ exit 1\n<eror>"]
    assert card.turn.verdict is not None


def distilled_turn_with(hint: str) -> tuple[DistilledTurnLine, Sample]:
    ids = [*map(ord, "ask"), *map(ord, "reply")]
    prompt = [*map(ord, f"ask [hint] {hint} !")]
    sample = Sample(
        "s", 0, ids, [True] * 8, [0.0] * 8, [0] * 8, [0.0] * 8, 0.0, distill_T=[1.0] * 8,
        distill_targets=(DistillTarget(3, 5, ([0], prompt)),), id=4,
    )  # fmt: skip
    return DistilledTurnLine(1, "s", 4, None, 1, ids[3:], [0.0] * 5), sample


def test_of_several_hints_the_one_that_was_read_is_shown() -> None:
    line, sample = distilled_turn_with("do it gently")
    verdict = Verdict(1, "model", None, None, {"hints": ["do it", "do it gently", "stop"]}, 0.0)
    assert hint_read(line, [verdict], [sample], Words()) == "do it gently"
    assert hint_read(line, [verdict], [], Words()) == "do it"
    assert hint_read(line, [verdict], [sample], None) == "do it"
    assert hint_read(line, [], [sample], Words()) == ""


def verdict(detail: dict[str, Any], value: int | None = -1) -> Verdict:
    reward = None if value is None else float(value)
    return Verdict(1, "model", value, reward, detail, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ({"rule": "a correction", "said": "secret"}, "a correction"),
        ({"votes": [1, 0, None], "rule": -1}, "votes +1 0 ?"),
        ({"votes": [{"value": 1, "text": "secret"}, {"value": None}]}, "votes +1 ?"),
        ({"votes": [], "reason": "too few votes", "hints": ["secret"]},
         "too few votes  1 hint"),
        ({"reason": "no answer within 3 s"}, "no answer within 3 s"),
        ({"hints": ["secret", "secret too"]}, "2 hints"),
        ({"votes": [0, None], "rule": "a correction"}, "votes 0 ?  a correction"),
        ({"probability": 0.125, "rule": 1}, "probability 0.125"),
        ({}, ""),
    ],
)  # fmt: skip
def test_what_a_verdict_goes_by_is_told_without_the_conversation(
    detail: dict[str, Any], words: str
) -> None:
    assert why(verdict(detail)) == words


def test_an_abstention_is_never_written_as_neutral() -> None:
    assert (mark(verdict({}, None)), mark(verdict({}, 0))) == ("?", "0")
    assert (sign(None), sign(0), sign(1), sign(-1)) == ("abstained", "0", "+1", "-1")


def test_a_line_about_the_judge_appears_with_the_first_verdict() -> None:
    assert judging_line({"verdicts/positive": 0.0}) is None
    gauges = {"verdicts/positive": 12.0, "verdicts/abstained": 1.0, "judge/hinted": 0.25,
              "judge/agreement": 0.9}  # fmt: skip
    line = judging_line(gauges)
    assert line is not None
    told = "verdicts good 12 neutral 0 bad 0 abstained 1  hints 25 %  agreement 90 %"
    assert line.plain == told


def test_a_line_about_the_teacher_says_the_gap_and_the_share_of_each_term() -> None:
    assert teacher_line({"objective/policy_gradient": 1.0}) is None
    gauges = {"teacher/gap_mean": -0.25, "teacher/gap_abs": 0.5, "teacher/gap_clipped": 0.02,
              "objective/policy_gradient": 1.0, "objective/distillation_topk": 0.3}  # fmt: skip
    line = teacher_line(gauges)
    assert line is not None
    told = "teacher gap -0.250 (size 0.500, 2 % cut)  tokens: reward 100 %, teacher (top k) 30 %"
    assert line.plain == told


def test_pieces_are_coloured_by_their_gap_and_foreign_text_sends_no_control_characters() -> None:
    gaps = [-2.0, 0.5, 0.0, math.nan]
    reading = reading_of(3, [DistilledTurn(1, None, 0, [*map(ord, "ab\x1bd")], gaps)], Words())
    assert reading is not None
    line = reading_line(reading)
    assert line.plain == "update 3 taught ab d"
    styles = [str(span.style) for span in line.spans]
    assert styles == ["bold underline dark_orange", "dodger_blue1", "default", "default"]
    assert reading_of(3, [], Words()) is None


def test_the_legend_of_gaps_goes_to_both_ends_and_colours_grow_with_the_gap() -> None:
    assert [words for words, _ in gap_legend(4.0)] == ["-4", "-2", "-0.4", "0", "+0.4", "+2", "+4"]
    strengths = [float(strength or 0) for _, strength in gap_legend(4.0)][3:]
    assert strengths == sorted(strengths)
    assert tint(9.0, 4.0) == "1.00"
    assert tint(None, 4.0) == tint(0.0, 4.0) == tint(1.0, 0.0) == ""


def live_run(folder: Path) -> Path:
    """A serving run: one conversation whose first reply was corrected and taught."""
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(ServeConfig().model_dump()))
    row = {"step": 1, "judge/mean": -1.0, "verdicts/negative": 1, "teacher/gap_mean": -0.5}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")

    async def write() -> None:
        store = await asyncio.to_thread(Store.open, folder)
        try:
            await store.add_session(SessionRow("talk", None, None, "train", "live", 1.0))
            asked: Message = {"role": "user", "content": "When?"}
            turn_id = await store.add_turn(
                Turn("talk", 0, "main", [1, 2], [3, 4], [-0.5, -0.5], [0, 0], "stop", [asked],
                     {"role": "assistant", "content": "Soon."}, 2.0)
            )  # fmt: skip
            await store.add_next_state(turn_id, [{"role": "user", "content": "No, today!"}])
            told = Verdict(turn_id, "feedback", -1, -1.0, {"text": "Say today."}, 3.0)
            await store.add_verdict(told)
            sample = Sample(
                "talk", 1, [1, 2, 3, 4], [False, False, True, True], [0.0, 0.0, -0.5, -0.5],
                [-1, -1, 0, 0], [0.0] * 4, -1.0, turn_id=turn_id, distill_T=[0.0, 0.0, 1.0, 1.0],
                distill_targets=(DistillTarget(2, 2, ([1, 9, 2],)),),
            )  # fmt: skip
            ids = await store.add_samples([sample])
            await store.set_yield("talk", 1, None)
            await store.add_distilled_turns(
                1, [DistilledTurn(ids[0], turn_id, 0, [3, 4], [-1.5, 0.5])]
            )
        finally:
            await store.close()

    asyncio.run(write())
    return folder


def test_a_serving_run_has_a_page_of_its_own_kind(tmp_path: Path) -> None:
    words = Page(write_report(live_run(tmp_path / "serve")).read_text()).words
    for said in (
        "A serving run: 1 update from 1 judged turn.", "Live conversation", "No, today!",
        "judged -1", "The user said: Say today.", "words of live conversations", "Configuration",
    ):  # fmt: skip
        assert said in words, said
    for wrong in ("not finished", "✗ failed", "held-out", "greedy"):
        assert wrong not in words, wrong
