"""Giving up at once pays in no family: it earns at most what doing nothing does."""

import json
import math

import pytest

from clawrl_gym.envs.gui.grading import InfeasibleGrader
from clawrl_gym.envs.gui.osworld.files import open_osworld
from clawrl_gym.envs.gui.osworld.grading import OsworldGrader
from clawrl_gym.envs.gui.task import FinalState
from clawrl_gym.envs.showcase.gui.families import FAMILIES
from clawrl_gym.envs.showcase.gui.generated import generated_tasks
from clawrl_gym.envs.toolcall.env import ToolCallEnv

TASKS = 150


def final_state(task, gave_up):
    states = {host: make().state() for host, make in task.sites.items()}
    return FinalState(states, None, gave_up)


def mean(tasks, gave_up):
    return math.fsum(task.grader.grade(final_state(task, gave_up))[0] for task in tasks) / len(
        tasks
    )


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("family", FAMILIES)
def test_giving_up_every_page_task_of_a_family_earns_no_more_than_nothing(family, split):
    source = generated_tasks([family])
    tasks = [source.load(task_id) for task_id in source.ids(split)[:TASKS]]
    infeasible = sum(isinstance(task.grader, InfeasibleGrader) for task in tasks)
    assert (infeasible > 0) == FAMILIES[family].may_be_infeasible
    assert mean(tasks, gave_up=True) <= mean(tasks, gave_up=False) == 0.0
    if infeasible:
        assert mean(tasks, gave_up=True) < 0


def is_infeasible(task):
    return isinstance(task.grader, OsworldGrader) and task.grader.infeasible


def osworld_task(number, infeasible, snapshot):
    rules = {"type": "rule", "rules": {"type": "url", "url": "http://shop.example/a"}}
    evaluator = (
        {"func": "infeasible"}
        if infeasible
        else {"func": "is_expected_active_tab",
              "result": {"type": "active_url_from_accessTree"}, "expected": rules}
    )  # fmt: skip
    return {
        "id": f"{number}", "snapshot": snapshot, "instruction": f"Open page {number}.",
        "config": [{"type": "chrome_open_tabs",
                    "parameters": {"urls_to_open": ["http://shop.example/"]}}],
        "related_apps": ["chrome"], "evaluator": evaluator,
    }  # fmt: skip


@pytest.mark.parametrize("infeasible", [1, 3, 8, 15])
def test_giving_up_every_osworld_task_earns_no_more_than_nothing(tmp_path, infeasible):
    for number in range(20):
        raw = osworld_task(number, number < infeasible, "chrome" if number % 3 else "other")
        (tmp_path / f"{number}.json").write_text(json.dumps(raw))
    source = open_osworld(tmp_path, ["shop.example"])
    for split in ("train", "heldout"):
        tasks = [source.load(task_id) for task_id in source.ids(split)]
        assert tasks
        feasible = [task for task in tasks if not is_infeasible(task)]
        assert feasible
        assert mean(tasks, gave_up=True) <= 0.0
        assert all(task.grader.grade(final_state(task, True))[0] <= 0 for task in feasible)
    right = next(task for task in source.tasks.values() if is_infeasible(task))
    assert right.grader.grade(final_state(right, True))[0] == 1.0


@pytest.mark.parametrize("tasks", ["generated", "composed", "plain", "shop"])
@pytest.mark.parametrize("words", ["Sorry, this cannot be done.", "That is against the rules."])
def test_saying_at_once_that_it_cannot_be_done_earns_nothing_with_tools(tasks, words):
    env = ToolCallEnv(tasks=tasks)
    earned = 0.0
    for task_id in env.task_ids("train")[:40]:
        env.reset(options={"task": task_id})
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(words)
            earned += reward
            ended = terminated or truncated
    env.close()
    assert earned == 0.0
