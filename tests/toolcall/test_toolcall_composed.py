"""Composed tool-call tasks: what they ask, what solves them, and what does not."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.toolcall.composed.actions import ACTIONS
from clawrl_gym.envs.showcase.toolcall.composed.families import (
    FAMILIES,
    MOST_CALLS,
    PLAIN_FAMILIES,
    Composed,
)
from clawrl_gym.envs.showcase.toolcall.composed.generated import (
    HELDOUT_FAMILIES,
    compose,
    composed_tasks,
    make_task,
    plain_tasks,
    task_of,
)
from clawrl_gym.envs.showcase.toolcall.composed.lookups import LOOKUPS, QUESTIONS
from clawrl_gym.envs.showcase.toolcall.composed.obstacles import MISSPELT, OBSTACLES
from clawrl_gym.envs.showcase.toolcall.composed.plan import Plan, Turn
from clawrl_gym.envs.task_ids import GeneratedTasks, composition_split, split_of_content
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.task import ToolTask
from tests.support.office_agents import AGENTS, in_order_of_the_text, solves

SAMPLE = 15
"""Tasks of each family and split."""
SPLITS: tuple[Split, ...] = ("train", "heldout")


@cache
def drawn(each: int = SAMPLE) -> list[tuple[ToolTask, Composed]]:
    """Pairs of task and what it was made of, so many of each family and split."""
    return drawn_of(composed_tasks(), each)


@cache
def plain() -> list[tuple[ToolTask, Composed]]:
    """The same of plain tasks."""
    return drawn_of(plain_tasks(), SAMPLE)


def drawn_of(source: GeneratedTasks[ToolTask], each: int) -> list[tuple[ToolTask, Composed]]:
    pairs = []
    for split in SPLITS:
        ids = source.ids(split)
        for task_id in ids[: each * len(ids.families)]:
            _, family, _, number = task_id.split("-")
            composed = compose(family, split, int(number))
            pairs.append((task_of(task_id, composed), composed))
    return pairs


def plans(family: str) -> list[Plan]:
    return [composed.plan for task, composed in drawn() if task.family == family]


@pytest.fixture(scope="module")
def env() -> Iterator[ToolCallEnv]:
    made = ToolCallEnv(tasks="composed")
    known = {task.id: task for task, _ in (*drawn(), *plain())}  # each is played often
    made._source = replace(
        composed_tasks(), make_task=lambda name: known.get(name) or make_task(name)
    )
    yield made
    made.close()


def test_there_are_many_skills_and_ways_to_ask_for_each() -> None:
    assert len(ACTIONS) + len(LOOKUPS) + len(QUESTIONS) >= 40
    phrasings = [(6, skill.phrasings) for skill in ACTIONS.values()]
    phrasings += [(6, question.phrasings) for question in QUESTIONS.values()]
    phrasings += [(3, lookup.phrasings) for lookup in LOOKUPS.values()]
    for least, ways in phrasings:
        assert len({*ways.train, *ways.heldout}) == len(ways.train) + len(ways.heldout) >= least
        assert len(ways.train) > len(ways.heldout)


def test_all_skills_families_and_difficulties_come_up() -> None:
    names = Counter(name for _, composed in drawn(2 * SAMPLE) for name in composed.plan.names)
    assert set(names) == {*ACTIONS, *LOOKUPS, *QUESTIONS, *HELDOUT_FAMILIES & set(FAMILIES)}
    difficulties = Counter(task.difficulty for task, _ in drawn())
    assert min(difficulties[i] for i in range(1, 7)) >= 10
    assert set(difficulties) <= set(range(1, MOST_CALLS + 1))


def test_difficulty_counts_skills_what_is_hidden_obstacles_decoys_and_a_rule() -> None:
    for task, composed in drawn():
        plan = composed.plan
        skills = sum(part.weight for part in plan.parts)
        extra = plan.hidden + plan.obstacles + plan.decoys + bool(plan.rules)
        assert task.difficulty == skills + extra
    assert all(plan.hidden for plan in plans("discover"))
    assert all(plan.obstacles for plan in plans("recover"))
    assert all(plan.decoys for plan in plans("distract"))
    assert all(plan.rules for plan in plans("obey"))
    assert all(plan.parts[-1].answer is not None for plan in plans("report"))
    assert all(len(plan.parts) > 1 for plan in plans("chain"))
    assert all(plan.difficulty == 1 for plan in plans("single"))
    verdicts = Counter(part.verdict for plan in plans("obey") for part in plan.parts)
    assert {None, "allowed", "forbidden", "confirmed", "denied"} == set(verdicts)


def test_the_oracle_solves_every_task_and_doing_nothing_none(env: ToolCallEnv) -> None:
    for task, composed in drawn():
        env.reset(options={"task": task.id})
        assert len(env.solve()) == len(composed.plan.turns)
        assert solves(env, task.id, composed.plan.turns), (task.id, env.report)
        assert not solves(env, task.id, ["Done."]), task.id
        assert not solves(env, task.id, []), task.id


@pytest.mark.nightly
def test_of_many_tasks_the_oracle_solves_all_and_what_is_near_none(env: ToolCallEnv) -> None:
    for task, composed in drawn(60):
        assert solves(env, task.id, composed.plan.turns), (task.id, env.report)
        slips: list[list[Turn]] = [["Done."], *composed.plan.near()]
        for turns in slips:
            assert not solves(env, task.id, turns), (task.id, turns)


def test_whatever_the_oracle_calls_with_was_said_or_shown_before(env: ToolCallEnv) -> None:
    """Nothing has to be guessed: only a number of pieces is rounded up to packs that were shown."""
    for task, composed in drawn():
        text, info = env.reset(options={"task": task.id})
        text += str(info["system"])
        for turn, action in zip(composed.plan.turns, env.solve(), strict=True):
            for name, value in [] if isinstance(turn, str) else turn[1].items():
                known = re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text)
                rounded = name == "quantity" and "comes in packs of" in text
                summed = name == "expression" and all(n in text for n in str(value).split(" * "))
                assert known or rounded or summed, (task.id, turn)
            text += env.step(action)[0]


def test_plain_tasks_are_so_many_calls_in_the_order_of_the_text(env: ToolCallEnv) -> None:
    counts = {"one": 1, "two": 2, "three": 3}
    assert set(counts) == set(PLAIN_FAMILIES)
    names = {name for _, composed in plain() for name in composed.plan.names}
    assert names <= set(ACTIONS)
    assert len(names) > 0.8 * len(ACTIONS)
    for task, composed in plain():
        plan = composed.plan
        assert len(plan.calls) == len(plan.parts) == task.difficulty == counts[task.family]
        assert composed.order == tuple(range(counts[task.family]))
        for part in plan.parts:
            ids = re.findall(r"\b[PTMIO]\d+\b", json.dumps(part.calls))
            assert all(re.search(rf"\b{one}\b", task.instruction) for one in ids), task.id
        assert solves(env, task.id, in_order_of_the_text(composed)), (task.id, env.report)


def test_of_plain_tasks_nothing_less_than_all_is_enough(env: ToolCallEnv) -> None:
    for task, composed in plain():
        calls = composed.plan.calls
        slips: list[list[Turn]] = [["Done."], *composed.plan.near()]
        if len(calls) > 1:
            slips += [[calls[0], "Done."], [calls[0], calls[0], "Done."], [calls[-1], "Done."]]
        for turns in slips:
            assert not solves(env, task.id, turns), (task.id, turns)


def test_plain_tasks_hold_out_compositions_and_share_the_wording_of_training() -> None:
    unseen = re.compile(r"Hey there|Cheers|obliged|As a first step|Following this|Work through")
    for task, composed in plain():
        split = (
            split_of_content(composed.instruction)
            if task.family == "one"
            else composition_split(composed.plan.names)
        )
        assert split == task.split
        assert not unseen.search(task.instruction)


def test_a_wrong_but_near_solution_solves_none(env: ToolCallEnv) -> None:
    for task, composed in drawn()[::2]:
        near = list(composed.plan.near())
        assert near
        for turns in near:
            assert not solves(env, task.id, turns), (task.id, turns)


def test_knowing_every_skill_without_a_plan_is_not_enough(env: ToolCallEnv) -> None:
    ranked = sorted(drawn(), key=lambda pair: pair[0].difficulty)
    hardest = ranked[-len(ranked) // 3 :]
    for agent in AGENTS:
        solved = sum(solves(env, task.id, agent(composed)) for task, composed in hardest)
        assert solved < 0.4 * len(hardest)
    single = [pair for pair in ranked if pair[0].family == "single"]
    assert all(solves(env, task.id, in_order_of_the_text(composed)) for task, composed in single)


def test_compositions_belong_to_one_split() -> None:
    seen: dict[Split, set[tuple[str, ...]]] = {split: set() for split in SPLITS}
    for task, composed in drawn():
        if task.family not in {"single", *HELDOUT_FAMILIES}:
            assert composition_split(composed.plan.names) == task.split
            seen[task.split].add(composed.plan.names)
    assert not seen["train"] & seen["heldout"]


def test_requests_differ_and_ways_to_ask_belong_to_one_split() -> None:
    requests = {split: {t.instruction for t, _ in drawn() if t.split == split} for split in SPLITS}
    assert len(requests["train"] | requests["heldout"]) == len(drawn())
    texts = [request for split in SPLITS for request in requests[split]]
    assert not [text for text in texts if re.search(r"[{}|]|  |\bNone\b|\.\.", text)]
    openings = Counter(" ".join(text.split()[:3]) for text in texts)
    assert openings.most_common(1)[0][1] < 0.2 * len(texts)
    unseen = re.compile(r"Hey there|Cheers|obliged|As a first step|Following this|Work through")
    assert not [text for text in requests["train"] if unseen.search(text)]
    assert sum(bool(unseen.search(text)) for text in requests["heldout"]) > 30


def test_what_is_to_be_found_out_is_not_in_the_request() -> None:
    hidden = 0
    for task, composed in drawn():
        for part in composed.plan.parts:
            if part.guessed and part.answer is None and not part.verdict:
                asked = part.calls[-1][1]
                guessed = part.guessed[-1]
                assert not isinstance(guessed, str)
                for name, value in asked.items():
                    if guessed[1].get(name) != value and re.fullmatch(r"[PTMIO]\d+", str(value)):
                        hidden += str(value) not in task.instruction
    assert hidden > 80


def test_what_a_later_part_needs_is_often_what_an_earlier_one_made_or_changed() -> None:
    depending = sum(
        any(after.depends_on(before) for i, after in enumerate(p.parts) for before in p.parts[:i])
        for p in plans("chain")
    )
    assert depending > 0.5 * len(plans("chain"))  # of all such tasks 0.63


@pytest.mark.parametrize("obstacle", [*OBSTACLES, MISSPELT])
def test_every_obstacle_comes_up_and_says_what_can_be_done(obstacle: str, env: ToolCallEnv) -> None:
    says = {
        "approval": "has to be the manager of P",
        "away": "is away: the deputy is P",
        "closed": "is closed: it has to be reopened first",
        "merged": "take that one",
        "packs": "comes in packs of",
        "taken": "free then: ",
        "misspelt": "like it: ",
    }[obstacle]
    for number in range(200):
        task_id = f"office-recover-train-{number:06d}"
        env.reset(options={"task": task_id})
        results = [env.step(action)[0] for action in env.solve()]
        if any(says in result for result in results):
            return
    pytest.fail(f"no task has the obstacle {obstacle}")


def test_any_order_that_is_right_and_any_way_to_find_out_is_accepted(env: ToolCallEnv) -> None:
    """What is made has the same id whenever it is made; looks and refusals cost nothing."""
    reversed_orders = 0
    for task, composed in drawn():
        parts = composed.plan.parts
        free = not any(
            after.depends_on(before) or after.changes & before.changes
            for i, after in enumerate(parts) for before in parts[:i]
        )  # fmt: skip
        if task.family != "chain" or not free:
            continue
        turns: list[Turn] = [call for part in reversed(parts) for call in part.calls]
        looks: list[Turn] = [("get_person", {"person": "P999"}), ("find_people", {"name": "A"})]
        assert solves(env, task.id, [*looks[: 1 + len(turns) % 2], *turns, "Done."]), task.id
        reversed_orders += 1
    assert reversed_orders > 2


def test_side_effects_are_refused_and_titles_in_another_case_are_not(env: ToolCallEnv) -> None:
    looked_at = 0
    for task, composed in drawn():
        turns = composed.plan.turns
        people, tools = composed.plan.start.people, task.tools or ()
        first = min(people)
        other = next(key for key in people if key not in (first, people[first].manager))
        spare: Turn = ("change_manager", {"person": first, "manager": other})
        if task.family != "single" or not {"open_ticket", "change_manager"} & set(tools):
            continue
        if "change_manager" in tools and turns[-2][0] != "change_manager":
            assert not solves(env, task.id, [spare, *turns])
            assert "people > " in env.report
            looked_at += 1
        cased: list[Turn] = [
            (turn[0], {**turn[1], "title": str(turn[1]["title"]).upper() + " "})
            if not isinstance(turn, str) and turn[0] == "open_ticket"
            else turn
            for turn in turns
        ]
        assert solves(env, task.id, cased)
    assert looked_at


def test_whoever_calls_on_until_the_replies_are_used_up_earns_nothing(env: ToolCallEnv) -> None:
    for task, composed in plain()[::4]:
        *calls, last = composed.plan.turns
        assert task.turns is not None
        look: Turn = ("find_people", {"name": "Ana"})
        spare = task.turns - len(calls)
        assert not solves(env, task.id, [*calls, *[look] * spare])
        assert "nobody was told" in env.report
        for nothing in (" ", "\u200b", "\u2800", "...", "---", "<br/>", "<!-- done -->", "</s>"):
            assert not solves(env, task.id, [*calls, nothing]), nothing
        assert solves(env, task.id, [*calls, "\u2705"])
        assert solves(env, task.id, [*calls, *[look] * (spare - 1), last])


def test_tools_that_are_needed_are_offered_beside_others_that_are_not() -> None:
    for task, composed in drawn():
        assert task.tools is not None
        needed = {name for name, _ in composed.plan.calls}
        assert needed <= set(task.tools)
        spare = {name for name in task.tools if name in ACTIONS} - needed
        assert len(spare) >= 2
        assert len(task.tools) <= 25


def test_a_request_says_its_budget_and_the_rules_stand_before_it(env: ToolCallEnv) -> None:
    for task, composed in drawn()[::5]:
        replies = int(task.instruction.rpartition("You have ")[2].split()[0])
        assert replies == task.turns == len(task.solution) + 3
        _, info = env.reset(options={"task": task.id})
        assert info["difficulty"] == task.difficulty
        assert all(rule in str(info["system"]) for rule in composed.plan.rules)
        for _ in range(replies):
            *_, terminated, truncated, _ = env.step(json.dumps({"content": None, "tool_calls": []}))
            if terminated or truncated:
                break


def test_a_task_follows_from_its_id_and_travels() -> None:
    for task, _ in drawn()[::17]:
        assert make_task(task.id) == task == pickle.loads(pickle.dumps(task))


def test_held_out_families_have_no_training_tasks() -> None:
    assert {"handover", "restock", "three"} == HELDOUT_FAMILIES
    assert len(FAMILIES.keys() - HELDOUT_FAMILIES) >= 6
    composed = {"handover", "restock"}
    for source, held_out in ((composed_tasks(), composed), (plain_tasks(), {"three"})):
        assert not HELDOUT_FAMILIES & set(source.ids("train").families)
        assert set(source.ids("heldout").families) & HELDOUT_FAMILIES == held_out
    with pytest.raises(TaskError, match=r"'restock' is held out.*office-restock-heldout-000003"):
        make_task("office-restock-train-000003")
    with pytest.raises(TaskError, match=r"got task 'chain-train-000001', expected office-FAMILY"):
        make_task("chain-train-000001")
    with pytest.raises(ConfigError, match="expected some of: chain, discover"):
        ToolCallEnv(tasks="composed", families=["copy"])
