"""What a policy makes of hints is planned, measured and shown beside what it learned from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.comparison.measurement import Measurement
from clawrl_gym.comparison.plan import plan_runs, probes_of
from clawrl_gym.comparison.tables import probe_table
from clawrl_gym.comparison.teacher_probe import KINDS, planned_probe, probe_words, read_probe
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.envs.showcase.conversation.heldout_wording import HELDOUT_WORDING
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.plain import USERS
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.teacher_probe import main

HYBRID = "experiment=personal_hybrid"
FORM = " <{words}>"


def hint(**options: Any) -> str:
    """What stands behind the first message."""
    env = ConversationEnv(hint_form=FORM, **options)
    told, info = env.reset(seed=4, options={"split": "heldout"})
    plain, _ = ConversationEnv(**{**options, "hint": "none"}).reset(options={"task": info["task"]})
    assert told.startswith(plain)
    return told.removeprefix(plain).removeprefix(" <").removesuffix(">")


def test_each_kind_of_hint_says_what_its_name_is() -> None:
    assert hint(persona="clerk", hint="own") in HELDOUT_WORDING["clerk"].dislike
    assert hint(persona="clerk", hint="other") in PERSONAS["clerk"].dislike
    assert hint(persona="clerk", hint="own", wording="train") in PERSONAS["clerk"].dislike
    another = hint(persona="clerk", hint="another")
    assert any(another in HELDOUT_WORDING[name].dislike for name in PERSONAS if name != "clerk")
    assert hint(persona="clerk", hint="none") == ""


def test_random_words_are_as_many_and_no_complaint() -> None:
    words = hint(persona="clerk", hint="random")
    assert len(words.split()) == len(hint(persona="clerk", hint="own").split())
    assert words not in HELDOUT_WORDING["clerk"].dislike


def test_plain_users_have_the_same_kinds() -> None:
    plain: dict[str, Any] = {"tasks": "plain", "persona": "brief"}
    assert hint(**plain, hint="own") in USERS["brief"].dislike
    assert hint(**plain, hint="other") in USERS["brief"].otherwise
    assert hint(**plain, hint="another") not in USERS["brief"].ways
    assert len(hint(**plain, hint="random").split()) == len(hint(**plain, hint="own").split())


def test_only_users_with_a_wish_are_hinted() -> None:
    with pytest.raises(ConfigError, match="users whose wish is known"):
        ConversationEnv(tasks="composed", hint="own")


def test_the_bench_probes_what_recipes_with_hints_begin_with_once() -> None:
    arguments = ["experiment=personal_binary,personal_opd,personal_hybrid", "seeds=2"]
    runs = plan_runs(load_config(arguments, "bench"))
    (probe,) = probes_of(runs)
    assert list(probe.columns) == list(KINDS)
    assert {run.recipe for run in runs if run.probe is None} == {"personal_binary"}
    for kind, column in probe.columns.items():
        options = column.env.options()
        assert (options["hint"], options["wording"]) == (kind, "heldout")
        assert options["hint_form"] == "\n\n[hint]\nThe user said: {words}"


def test_hints_are_put_as_the_run_puts_them() -> None:
    probe = planned_probe(load_config([HYBRID, "judge.hints.form=' (hint: {hint})'"]))
    form = probe.columns["own"].env.options()["hint_form"]
    assert form == " (hint: The user said: {words})"


def test_a_run_without_wishes_cannot_be_probed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env=terminal", "dry_run=true"]) == 2
    assert "expected env=conversation" in capsys.readouterr().err


def test_the_command_says_what_it_would_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([HYBRID, "eval.tasks=7", "dry_run=true"]) == 0
    assert "5 times 7 tasks" in capsys.readouterr().out


def filled(folder: Path, liked: dict[str, float]) -> Measurement:
    """A probe of ten tasks each, of which these shares are liked."""
    probe = planned_probe(load_config([HYBRID, f"run.dir={folder}"]))
    for kind, share in liked.items():
        column = probe.columns[kind]
        place = Path(str(column.run.dir))
        place.mkdir(parents=True)
        scores = [{"liked": float(at < 10 * share), "correct": 1.0} for at in range(10)]
        text = json.dumps({"episodes": [{"scores": own} for own in scores]})
        (place / "evaluation.json").write_text(text)
        (place / "measured_with.json").write_text(json.dumps(column.model_dump(mode="json")))
    return probe


def test_what_is_measured_is_read_in_order(tmp_path: Path) -> None:
    rows = read_probe(filled(tmp_path, {"own": 0.9, "none": 0.1, "random": 0.2}))
    assert probe_words(rows) == "no hint 0.10, the user's own words 0.90, random words 0.20"
    table = probe_table("tiny", rows)
    assert table.rows[1] == ["the user's own words", "0.90 (0.60 to 0.98)", "1.00", "10"]


def test_a_broken_measurement_is_named(tmp_path: Path) -> None:
    probe = filled(tmp_path, {"own": 1.0})
    (tmp_path / "teacher_probe" / "own" / "evaluation.json").write_text('{"episodes": [{}]}')
    with pytest.raises(ConfigError, match="remove its folder to measure it again"):
        read_probe(probe)
