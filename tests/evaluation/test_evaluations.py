"""Evaluations that are over: compared, graded again, shown; no policy is asked."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym import evaluate
from clawrl_gym.config import EvaluateConfig
from clawrl_gym.config.part import leaves
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Answer, Episode, StopReason, TaskRef, Transcript
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.evaluation.comparison import compare_evaluations
from clawrl_gym.evaluation.figures import data_of, read_result
from clawrl_gym.evaluation.page import pass_chart
from clawrl_gym.evaluation.pairs import names_of, pairs_of, points, setting_differences
from clawrl_gym.evaluation.record import EvaluationRecord, each_attempt
from clawrl_gym.evaluation.settings import (
    Settings,
    continued,
    mark_of,
    read_settings,
    settings_of,
)
from clawrl_gym.run.regrade import Change, Regrading, regrade
from tests.support.guess_env import GuessEnv

CONFIG = EvaluateConfig(env=GymEnvConfig(target="tests.support.guess_env:GuessEnv", max_turns=3))


class SlowEnv(GuessEnv):
    """Takes its time at the first answer."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        time.sleep(0.8)
        return super().step(action)


def episode_of(seed: int, *replies: str, stop: StopReason = StopReason.TERMINATED) -> Episode:
    """What `GuessEnv` would have made of these replies."""
    number = str(seed % 10)
    answers = [Answer({"role": "assistant", "content": text}, text, 10, 2, 0.5) for text in replies]
    middle = [f"It is {number}."] * (len(replies) - 1)
    return Episode(
        session_id=f"heldout-{seed}",
        group_id=None,
        task=TaskRef(None, seed, "heldout"),
        stop_reason=stop,
        reward=float(replies[-1] == number) if not stop.is_infrastructure else None,
        turns=len(replies),
        family="odd" if seed % 2 else "even",
        duration_s=1.0,
        transcript=Transcript(
            [{"role": "user", "content": f"Say {number}."}],
            [],
            answers,
            [f"Say {number}.", *middle, "Thanks."],
        ),
    )


def evaluation(
    folder: Path, greedy: Sequence[Episode], sampled: Sequence[Sequence[Episode]] = ()
) -> Path:
    """A folder as `evaluate` leaves it; `sampled`: episodes of sample 0, of sample 1, ..."""
    values = CONFIG.model_dump()
    if sampled:
        values["eval"] |= {"k": (1, len(sampled))}
    settings = settings_of(EvaluateConfig.of(values), len(greedy), None)
    record = EvaluationRecord.open(folder, replace(settings, weights="w"))
    for episode in greedy:
        record.ended(None, episode)
    for number, own in enumerate(sampled):
        for episode in own:
            record.ended(number, episode)
    record.close()
    return folder


def solving(*solved: int, of: int = 10) -> list[Episode]:
    return [episode_of(seed, str(seed % 10) if seed in solved else "?") for seed in range(of)]


def test_a_comparison_is_over_the_tasks_that_both_measured(tmp_path: Path) -> None:
    first = evaluation(tmp_path / "a", solving(0, 1, 2))
    second = evaluation(tmp_path / "b", solving(1, 2, 3, 4, 5, of=12))
    (pair,) = pairs_of([read_result(first), read_result(second)])
    assert (len(pair.tasks), pair.unpaired) == (10, 2)
    assert [flip.after.task.seed for flip in pair.won] == [3, 4, 5]
    assert [flip.after.task.seed for flip in pair.lost] == [0]
    assert pair.success.mean == pytest.approx(0.2)
    assert not pair.success.is_clear


def test_the_sentence_says_what_the_interval_says(tmp_path: Path) -> None:
    none = evaluation(tmp_path / "none", solving(of=40))
    some = evaluation(tmp_path / "some", solving(0, of=40))
    all_ = evaluation(tmp_path / "all", solving(*range(40), of=40))
    comparison = compare_evaluations([none, some, all_], tmp_path / "out")
    assert re.search(
        r"some and none are not distinguishable on the 40 tasks", comparison.sentences[0]
    )
    assert re.search(r"same 40 tasks all solves 100.0 points more", comparison.sentences[1])
    written = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert written["pairs"][1]["success"]["mean"] == 1.0
    assert len(written["pairs"][1]["won"]) == 40


def test_the_page_links_every_flipped_task_of_every_evaluation(tmp_path: Path) -> None:
    first = evaluation(tmp_path / "a", solving(0, 1))
    second = evaluation(tmp_path / "b", solving(1, 2), [solving(1), solving(1, 2)])
    comparison = compare_evaluations([first, second])
    assert comparison.folder == tmp_path / "comparison-a-b"
    page = (comparison.folder / "comparison.html").read_text()
    links = re.findall(r'href="(\.\./[ab]/transcripts/[^"]+)"', page)
    assert len(links) == 4
    assert all((comparison.folder / link).resolve().is_file() for link in links)
    assert (comparison.folder / "comparison.svg").read_text().count("recipe") >= 4


def test_pass_at_k_is_unbiased_and_compared_task_by_task(tmp_path: Path) -> None:
    first = evaluation(tmp_path / "a", solving(), [solving(0), solving(0, 1)])
    second = evaluation(tmp_path / "b", solving(), [solving(0, 1), solving(0, 1)])
    result = read_result(first)
    assert result.passes()[1].value == pytest.approx((1 + 0.5) / 10)
    assert result.passes()[2].value == pytest.approx(0.2)
    (pair,) = pairs_of([result, read_result(second)])
    assert pair.passes()[1].mean == pytest.approx(0.05)
    assert pair.passes()[2].mean == 0.0


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    first = evaluation(tmp_path / "a", solving(0))
    other = evaluation(tmp_path / "b", [episode_of(99, "9")])
    with pytest.raises(ConfigError, match=r"measured no task in common \(10 and 1 tasks\)"):
        compare_evaluations([first, other])
    with pytest.raises(ConfigError, match=r"expected 2 to 8 different folders"):
        compare_evaluations([first, first])
    with pytest.raises(ConfigError, match=r"holds no evaluation"):
        compare_evaluations([first, tmp_path])
    with pytest.raises(ConfigError, match=r"holds no evaluation \(.*there is no such folder\)"):
        compare_evaluations([first, tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match=r"holds an evaluation, expected a folder of its own"):
        compare_evaluations([first, evaluation(tmp_path / "c", solving(1))], tmp_path / "a")


def test_evaluations_of_different_environments_are_not_compared(tmp_path: Path) -> None:
    one = read_result(evaluation(tmp_path / "a", solving(0)))
    config = {**one.settings.config, "env": {"type": "terminal"}}
    other = replace(one, folder=tmp_path / "b", settings=replace(one.settings, config=config))
    with pytest.raises(ConfigError, match=r"of env=gym .*/a\) and env=terminal .*/b\), expected"):
        pairs_of([one, other])


def changed(key: str, value: object) -> Settings:
    """Settings of the usual evaluation, with another value of one key."""
    values = CONFIG.model_dump()
    part, _, name = key.rpartition(".")
    if part:
        values[part] = {**values[part], name: value}
    else:
        values[name] = value
    return replace(settings_of(EvaluateConfig.of(values), 4, None), weights="w")


@pytest.mark.parametrize(
    ("key", "value", "decides"),
    [
        ("env.max_turns", 4, True), ("seed", 9, True), ("eval.temperature", 0.5, True),
        ("rollout.episode_timeout_s", 7.0, True), ("policy.request_timeout_s", 7.0, True),
        ("policy.max_model_len", 4096, True), ("eval.tasks", 3, False), ("eval.k", (1, 2), False),
        ("policy.port", 4321, False), ("rollout.groups", 3, False), ("endpoint.key", "s", False),
    ],
)  # fmt: skip
def test_what_decides_what_is_measured_may_not_change(
    key: str, value: object, decides: bool
) -> None:
    usual, new = replace(settings_of(CONFIG, 4, None), weights="w"), changed(key, value)
    was, now = (dict(leaves(one.config)).get(key) for one in (usual, new))
    assert list(usual.differences(new)) == ([f"{key} was {was}, is {now}"] if decides else [])
    if decides:
        with pytest.raises(ConfigError, match=f"something else: {key} was"):
            continued(usual, new)
    (retrained,) = usual.differences(replace(usual, weights="v"))
    assert retrained.startswith("the weights in ")


def test_of_a_server_elsewhere_nothing_of_the_own_engine_decides() -> None:
    server = {**CONFIG.model_dump()["endpoint"], "base_url": "http://a/v1", "model": "m"}
    values = {**CONFIG.model_dump(), "endpoint": server}
    elsewhere = settings_of(EvaluateConfig.of(values), 4, None)
    other = {**values, "policy": {**values["policy"], "max_model_len": 4096}}
    assert list(elsewhere.differences(settings_of(EvaluateConfig.of(other), 4, None))) == []
    moved = {**values, "endpoint": {**server, "base_url": "http://b/v1"}}
    at_b = settings_of(EvaluateConfig.of(moved), 4, None)
    assert list(elsewhere.differences(at_b)) == []
    assert elsewhere.moves(elsewhere) is None
    assert elsewhere.moves(at_b) == (
        "endpoint.base_url was http://a/v1, is http://b/v1: treated as the same server"
    )


def test_what_is_begun_again_keeps_the_larger_numbers_and_all_its_starts() -> None:
    begun = settings_of(CONFIG, 4, None)
    more = replace(settings_of(CONFIG, 3, None), samples=2)
    whole = continued(begun, more)
    assert (whole.tasks, whole.samples, whole.episodes) == (4, 2, 12)
    assert whole.starts == (*begun.starts, *more.starts)


def test_weights_are_told_apart_by_name_size_beginning_and_end(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    size = 3 << 20
    marks = set()
    for content in (b"a" * size, b"b" + b"a" * (size - 1), b"a" * (size - 1) + b"b", b"a", b"b"):
        ends = {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]}
        header = json.dumps({"t": ends}).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + content)
        marks.add(mark_of(tmp_path))
    assert len(marks) == 5
    file.unlink()
    with pytest.raises(ConfigError, match="cannot read the weights in"):
        mark_of(tmp_path)


@pytest.mark.parametrize("text", ["a: [", "config: {}\nstarts: 3", "{}", "starts: []\nother: 1"])
def test_settings_that_cannot_be_read_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "evaluation.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"cannot read .*evaluation\.yaml"):
        read_settings(tmp_path)


def test_pairs_are_told_in_points_under_short_names(tmp_path: Path) -> None:
    fewer = read_result(evaluation(tmp_path / "a" / "x", solving(0, of=40)))
    more = read_result(evaluation(tmp_path / "b" / "x", solving(*range(1, 31), of=40)))
    names = names_of([fewer, more])
    assert names == {one.folder: str(one.folder) for one in (fewer, more)}
    names = {fewer.folder: "first", more.folder: "second"}
    (there,), (back,) = pairs_of([fewer, more]), pairs_of([more, fewer])
    assert there.sentence(names) == (
        "On the same 40 tasks second solves 72.5 points more than first (+56.0 to +89.0); "
        "30 tasks only second solves, 1 only first."
    )
    assert back.sentence(names) == (
        "On the same 40 tasks first solves 72.5 points fewer than second (-89.0 to -56.0); "
        "1 tasks only first solves, 30 only second."
    )
    assert points(back.success) == "72.5 points fewer (-89.0 to -56.0)"
    assert setting_differences([fewer, more]) == []
    slower = replace(more, settings=changed("env.max_turns", 9))
    hotter = replace(more, settings=changed("policy.max_model_len", 4096))
    assert setting_differences([fewer, slower, hotter]) == [("env.max_turns", ["3", "9", "3"])]


async def test_the_same_environment_grades_the_same(tmp_path: Path) -> None:
    folder = evaluation(
        tmp_path / "a", [*solving(0, 1), episode_of(12, "more", "2")], [solving(3), solving(4)]
    )
    regrading = await regrade(folder)
    assert (regrading.graded, regrading.changes, regrading.failures) == (31, (), ())
    assert regrading.after.folder == tmp_path / "a-regraded"
    assert regrading.after.success == regrading.before.success
    assert regrading.after.cost == regrading.before.cost
    assert (
        "Graded again, from the episodes of"
        in (tmp_path / "a-regraded" / "evaluation.html").read_text()
    )


async def test_another_grader_changes_verdicts_without_a_word_of_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = evaluation(tmp_path / "a", solving(0, 1))
    monkeypatch.setenv("GUESS_ANYTHING", "1")
    regrading = await regrade(folder, tmp_path / "again")
    assert len(regrading.changes) == 8
    assert "reward 0.0 is 1.0 now" in regrading.summary()
    assert regrading.after.success.value == 1.0
    assert [one.episode.success for one in each_attempt(folder)].count(True) == 2


async def test_an_episode_that_would_not_be_the_same_is_not_graded(tmp_path: Path) -> None:
    said_otherwise = episode_of(3, "more", "3")
    transcript = said_otherwise.transcript
    assert transcript is not None
    seen = ["Say 3.", "It is three.", "Thanks."]
    said_otherwise = replace(said_otherwise, transcript=replace(transcript, observations=seen))
    goes_on = episode_of(4, "more")
    silent = replace(episode_of(5, "5"), transcript=None)
    late = replace(
        episode_of(6, "more"), stop_reason=StopReason.DEADLINE, reward=0.0, error="no end"
    )
    folder = evaluation(tmp_path / "a", [*solving(0, of=2), said_otherwise, goes_on, silent, late])
    regrading = await regrade(folder)
    assert (regrading.graded, regrading.kept, len(regrading.failures)) == (2, 1, 3)
    told = "\n".join(regrading.failures)
    assert "saw before reply 2 is not the same: 'three.' then, '3.' now" in told
    assert "there is no more reply" in told
    assert "what was said is not kept" in told
    assert (len(regrading.after.measured), len(regrading.after.lost)) == (3, 3)


@pytest.mark.parametrize("stop", [StopReason.CONTEXT, StopReason.AGENT_FAULT])
async def test_an_episode_that_the_context_or_the_policy_ended_ends_there_again(
    tmp_path: Path, stop: StopReason
) -> None:
    ended = replace(episode_of(3, "more", stop=stop), reward=0.0, error="it was refused")
    transcript = ended.transcript
    assert transcript is not None
    seen = ["Say 3.", "It is 3."]
    ended = replace(ended, transcript=replace(transcript, observations=seen))
    folder = evaluation(tmp_path / "a", [episode_of(2, "2"), ended])
    regrading = await regrade(folder)
    assert (regrading.graded, regrading.failures, regrading.changes) == (2, (), ())
    again = {one.episode.task.seed: one.episode for one in each_attempt(tmp_path / "a-regraded")}
    assert again[3].stop_reason is stop
    assert (again[3].turns, again[3].reward) == (1, 0.0)


async def test_what_is_graded_again_costs_what_it_did_and_says_where_it_is_from(
    tmp_path: Path,
) -> None:
    folder = evaluation(tmp_path / "a", [replace(episode_of(3, "more", "3"), duration_s=71.0)])
    said: list[tuple[str, str]] = []
    await regrade(folder, on_phase=lambda *phase: said.append(phase))
    assert [part for part, _ in said] == ["environments", "regrade"]
    assert "held-out tasks are other seeds" in said[0][1]
    assert said[1] == ("regrade", "1 episodes")
    (again,) = each_attempt(tmp_path / "a-regraded")
    (before,) = each_attempt(folder)
    assert again.episode == before.episode, "all of it, time and tokens too"
    settings = read_settings(tmp_path / "a-regraded")
    assert settings.regraded_from == str(folder)
    assert len(settings.starts) == len(read_settings(folder).starts) + 1
    assert read_result(tmp_path / "a-regraded").is_complete
    data = json.loads((tmp_path / "a-regraded" / "evaluation.json").read_text())
    assert data == json.loads(json.dumps(data_of(read_result(tmp_path / "a-regraded"))))
    for path in (tmp_path / "a-regraded").iterdir():
        assert path.stat().st_mode & 0o077 == 0, "its owner's alone"


async def test_an_attempt_that_was_made_again_is_graded_once_by_its_newest_end(
    tmp_path: Path,
) -> None:
    folder = evaluation(tmp_path / "a", [episode_of(3, "?"), episode_of(3, "3")])
    regrading = await regrade(folder)
    assert regrading.graded == 1
    (again,) = each_attempt(tmp_path / "a-regraded")
    assert again.episode.reward == 1.0


async def test_a_replay_that_takes_too_long_is_no_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = CONFIG.model_dump()
    values["rollout"] |= {"episode_timeout_s": 0.4}
    values["env"]["target"] = "tests.evaluation.test_evaluations:SlowEnv"
    settings = settings_of(EvaluateConfig.of(values), 1, None)
    record = EvaluationRecord.open(tmp_path / "a", replace(settings, weights="w"))
    record.ended(None, episode_of(3, "3"))
    record.close()
    regrading = await regrade(tmp_path / "a")
    assert regrading.graded == 0
    assert regrading.failures[0].startswith("seed 3: the replay took too long: ")


async def test_what_others_say_in_an_episode_cannot_be_asked_again(tmp_path: Path) -> None:
    talk = EvaluateConfig.of(
        {"env": {"type": "conversation", "user": "model", "user_base_url": "http://127.0.0.1:1/v1"}}
    )
    record = EvaluationRecord.open(tmp_path / "a", settings_of(talk, 1, None))
    record.ended(None, episode_of(3, "3"))
    record.close()
    with pytest.raises(ConfigError, match=r"comes from a model or from other servers"):
        await regrade(tmp_path / "a")


async def test_what_cannot_be_graded_again_is_told(tmp_path: Path) -> None:
    folder = evaluation(tmp_path / "a", solving(0))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    for out in (folder, tmp_path / "taken"):
        with pytest.raises(ConfigError, match=r"expected a new folder: --out"):
            await regrade(folder, out)
    with pytest.raises(ConfigError, match=r"holds no evaluation"):
        await regrade(tmp_path)
    empty = evaluation(tmp_path / "empty", [])
    with pytest.raises(ConfigError, match=r"has no graded episode"):
        await regrade(empty)


def test_the_commands_answer_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = evaluation(tmp_path / "a", solving(0))
    second = evaluation(tmp_path / "b", solving(1))
    assert evaluate.main(["compare", str(first), str(second)]) == 0
    assert "comparison.html" in capsys.readouterr().out
    assert evaluate.main(["report", str(first)]) == 0
    assert (first / "evaluation.html").exists()
    assert evaluate.main(["report", str(tmp_path / "nothing")]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_summary_of_another_grading_shows_the_first_and_counts_the_rest(tmp_path: Path) -> None:
    before = read_result(evaluation(tmp_path / "a", solving(0, 1)))
    after = read_result(evaluation(tmp_path / "b", solving(*range(10))))
    attempts = list(each_attempt(tmp_path / "a"))
    changes = tuple(Change(one, replace(one.episode, reward=1.0)) for one in attempts)
    sampled = replace(attempts[3], sample=1)
    named = replace(sampled, episode=replace(sampled.episode, task=TaskRef("t", 3, "heldout")))
    changes += (Change(named, attempts[0].episode), changes[0])
    failures = tuple(f"failure {number}" for number in range(12))
    regrading = Regrading(before, after, 22, 3, changes, failures)
    lines = regrading.summary().splitlines()
    assert lines[0] == (
        "22 episodes graded again, 12 otherwise than before; 3 deadlines kept as they were"
    )
    assert lines[1] == "  seed 0: reward 1.0 is 1.0 now"
    assert lines[3] == "  seed 2: reward 0.0 is 1.0 now"
    assert lines[11:14] == [
        "  and 2 more", "12 could not be replayed, and are in no figure:", "  failure 0",
    ]  # fmt: skip
    assert lines[22:24] == [
        "  failure 9", "success 20 % (6 to 51 %) before, 100 % (72 to 100 %) now",
    ]  # fmt: skip
    assert lines[24:] == [f"page: {tmp_path / 'b' / 'evaluation.html'}"]
    assert str(changes[10]) == "t, sample 2: reward 0.0 is 1.0 now"
    few = replace(regrading, kept=0, changes=changes[:10], failures=()).summary()
    assert "more" not in few
    assert "deadlines" not in few
    assert "replayed" not in few


def test_pass_at_k_is_drawn_at_the_powers_of_two(tmp_path: Path) -> None:
    greedy = read_result(evaluation(tmp_path / "greedy", solving()))
    sampled = read_result(
        evaluation(tmp_path / "sampled", solving(), [solving(k) for k in (1, 2, 3)])
    )
    assert set(sampled.passes()) == {1, 2, 3}
    assert pass_chart([("", "red", greedy)], 400, 200) == "", "nothing was sampled"
    chart = pass_chart([("", "red", sampled)], 400, 200)
    assert "pass@k by k" in chart
    assert chart.count("<circle") == 2
