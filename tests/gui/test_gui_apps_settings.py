"""The settings page: its forms, what it refuses, and its tasks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clawrl_gym.envs.gui.grading import InfeasibleGrader
from clawrl_gym.envs.gui.site import Request
from clawrl_gym.envs.showcase.gui.apps.settings import Settings, SettingsWorld
from clawrl_gym.envs.showcase.gui.families.family import (
    answer,
    done,
    give_up,
    link,
    number,
    press,
    tick,
)
from clawrl_gym.envs.showcase.gui.families.settings import SETTINGS
from clawrl_gym.envs.showcase.gui.generated import make_task, task_ids
from tests.support.gui_sites import get, paper_env, post, reward_of, solution_of, state_of, text_of

FAMILIES = SETTINGS
EACH = 8
"""Tasks looked at of each family and split."""


def setting(name: str, value: Any, default: Any, **more: Any) -> Any:
    common_fields = {"options": [], "low": 0, "high": 100, "locked": False}
    return {"name": name, "value": value, "default": default, **common_fields, **more}


def world() -> SettingsWorld:
    return {
        "sections": [
            {
                "name": "Sound",
                "danger": "Delete profile mango",
                "settings": [
                    setting("Mute", True, False),
                    setting("Volume", 30, 50),
                    setting("Output", "screen", "headset", options=["screen", "headset"]),
                    setting("Station", "amber", "", options=[]),
                    setting("Bass", True, False, locked=True),
                ],
            },
            {"name": "Display", "danger": "", "settings": [setting("Clock", False, True)]},
        ],
        "done": [],
    }


def sound(**changes: str) -> dict[str, str]:
    """The whole form of the section, as it stands."""
    form = {"section": "Sound", "Mute": "on", "Volume": "30", "Output": "screen"}
    return form | {"Station": "amber"} | changes


def test_a_saved_form_is_what_is_stored_and_nothing_else_changes() -> None:
    site = Settings(world())
    before = state_of(site)
    form = sound(Volume="31", Station="<b>'x'</b> & {y}")
    form.pop("Mute")
    response = post(site, "/sound", **form)
    assert (response.status, response.headers["location"]) == (303, "/sound?saved=1")
    values = {"Mute": False, "Volume": 31, "Station": "<b>'x'</b> & {y}"}
    assert state_of(site)["values"]["Sound"] == before["values"]["Sound"] | values
    assert state_of(site)["values"]["Display"] == before["values"]["Display"]
    shown = get(site, "/sound?saved=1").body
    assert isinstance(shown, str)
    assert "<b>" not in shown
    assert "Saved." in shown


def test_looking_changes_nothing() -> None:
    site = Settings(world())
    for url in ("/", "/sound", "/sound/defaults", "/sound/danger", "/find?q=vol", "/display"):
        assert get(site, url).status == 200, url
    assert site.state() == Settings(world()).state()


def test_the_defaults_come_back_but_for_what_is_locked() -> None:
    site = Settings(world())
    assert post(site, "/sound/defaults", section="Sound").status == 303
    assert state_of(site)["values"] == {
        "Sound": {"Mute": False, "Volume": 50, "Output": "headset", "Station": "", "Bass": True},
        "Display": {"Clock": False},
    }


def test_a_locked_setting_is_shown_and_stays() -> None:
    site = Settings(world())
    assert "Bass: on (locked)" in text_of(get(site, "/sound"))
    assert post(site, "/sound", **sound()).status == 303
    assert site.state() == Settings(world()).state()


def test_what_cannot_be_undone_asks_for_a_word() -> None:
    site = Settings(world())
    assert post(site, "/sound/danger", section="Sound", sure="ok").status == 400
    assert state_of(site)["done"] == []
    assert post(site, "/sound/danger", section="Sound", sure="Yes").status == 303
    assert state_of(site)["done"] == ["Delete profile mango"]


def test_search_finds_by_part_of_a_name_and_nothing_for_no_name() -> None:
    site = Settings(world())
    assert "Volume in Sound" in " ".join(text_of(get(site, "/find?q=VOL")).split())
    for url in ("/find", "/find?q=", "/find?q=%20", "/find?q=nosuch"):
        assert "No setting has this name." in text_of(get(site, url))


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"section": "Display"},
        {"section": "Sound"},
        sound(Volume=""),
        sound(Volume="101"),
        sound(Volume="-1"),
        sound(Volume="3.5"),
        sound(Volume="٣"),
        sound(Volume="9" * 10_000),
        sound(Output="moon"),
        sound(Station="x" * 10_000),
    ],
)
def test_a_form_that_is_wrong_is_refused_in_words_and_changes_nothing(form: dict[str, str]) -> None:
    site = Settings(world())
    response = post(site, "/sound", **form)
    assert response.status == 400
    assert "Sorry" in text_of(response)
    assert site.state() == Settings(world()).state()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/sound/nowhere", 404),
        ("GET", "/display/danger", 404),
        ("GET", "/find/x", 404),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/'\"><script>", 404),
        ("POST", "/", 405),
        ("POST", "/find", 405),
        ("DELETE", "/sound", 405),
        ("PUT", "/nowhere", 404),
    ],
)
def test_strange_requests_are_answered_in_words(method: str, path: str, status: int) -> None:
    site = Settings(world())
    response = site.handle(Request(method, path, form={"section": "Sound"}))
    assert response.status == status
    assert "Sorry" in text_of(response)
    assert site.state() == Settings(world()).state()


def test_the_sites_world_is_not_the_tasks() -> None:
    world_before = world()
    world_copy = copy.deepcopy(world_before)
    site = Settings(world_before)
    post(site, "/sound", **sound(Volume="77"))
    post(site, "/sound/danger", section="Sound", sure="yes")
    assert world_before == world_copy


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_the_oracle_solves_what_doing_nothing_does_not(family: str) -> None:
    env = paper_env()
    for split in ("train", "heldout"):
        for task_id in task_ids(split, (family,))[:EACH]:
            assert reward_of(env, task_id) == 1.0, (task_id, env.report)
            assert reward_of(env, task_id, [done()]) == 0.0, task_id


def test_a_change_that_is_not_saved_or_not_alone_earns_nothing() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("settings_toggle", "settings_number"))[:EACH]:
        (change, save), ending = solution_of(task_id)
        assert reward_of(env, task_id, [(change,), ending]) == 0.0
        assert reward_of(env, task_id, [(change, save), answer("done")]) == 1.0
        env.reset(options={"task": task_id})
        toggles = [entry for entry in env.view.elements if entry.role == "checkbox"]
        untouched = [
            entry.name for entry in toggles if change.locator and entry.name != change.locator.name
        ]
        assert reward_of(env, task_id, [(tick(untouched[0]), change, save), ending]) == 0.0


def test_the_wrong_number_and_the_defaults_besides_earn_nothing() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("settings_number",))[:EACH]:
        ((change, save), ending) = solution_of(task_id)
        assert change.locator
        wrong = number(change.locator.name, (int(change.text) + 1) % 100)
        assert reward_of(env, task_id, [(wrong, save), ending]) == 0.0
        refused = number(change.locator.name, 1000)
        assert reward_of(env, task_id, [(refused, save), ending]) == 0.0


def test_settings_are_found_missing_or_locked_by_looking_alone() -> None:
    env = paper_env()
    instructions: dict[bool, set[str]] = {True: set(), False: set()}
    for task_id in task_ids("train", ("settings_find",))[:300]:
        task = make_task(task_id)
        instructions[isinstance(task.grader, InfeasibleGrader)].add(task.instruction)
    assert instructions[True] & instructions[False]
    assert min(map(len, instructions.values())) > 50
    for task_id in task_ids("heldout", ("settings_find",))[:20]:
        infeasible = isinstance(make_task(task_id).grader, InfeasibleGrader)
        reward = reward_of(env, task_id, [give_up("no")])
        assert reward == 1.0 if infeasible else reward < 0


def test_giving_up_after_a_change_earns_nothing() -> None:
    env = paper_env()
    tasks = map(make_task, task_ids("train", ("settings_find",))[:20])
    task = next(entry for entry in tasks if isinstance(entry.grader, InfeasibleGrader))
    world = task.sites["settings"].world  # type: ignore[attr-defined]
    section = next(
        part
        for part in world["sections"]
        if any(type(entry["value"]) is bool and not entry["locked"] for entry in part["settings"])
    )
    name = next(entry["name"] for entry in section["settings"] if type(entry["value"]) is bool)
    meddled = [(link(section["name"]),), (tick(name), press("Save")), give_up("no")]
    assert reward_of(env, task.id, meddled) == 0.0
    assert reward_of(env, task.id, [give_up("no")]) == 1.0


def test_easy_tasks_are_short() -> None:
    env = paper_env()
    for family in FAMILIES:
        for task_id in task_ids("train", (family.name,))[: EACH if family.easy else 0]:
            observation, _ = env.reset(options={"task": task_id})
            assert len(observation) <= 480, task_id
            assert len(solution_of(task_id)) <= 3
            assert len(observation) - len(env.task.instruction) <= 332
