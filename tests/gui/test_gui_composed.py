"""Composed page tasks: what they ask, what solves them, and what does not."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.task import GuiTask
from clawrl_gym.envs.showcase.gui.apps.start import HOST as START
from clawrl_gym.envs.showcase.gui.composed.cast import PEOPLE
from clawrl_gym.envs.showcase.gui.composed.desk import HOSTS
from clawrl_gym.envs.showcase.gui.composed.families import FAMILIES, MOST, PLAIN_FAMILIES, Composed
from clawrl_gym.envs.showcase.gui.composed.generated import (
    HELDOUT_FAMILIES,
    SPARE_REPLIES,
    compose,
    composed_tasks,
    make_task,
    plain_tasks,
    task_of,
)
from clawrl_gym.envs.showcase.gui.composed.library import SKILLS
from clawrl_gym.envs.showcase.gui.composed.lookups import LOOKUPS
from clawrl_gym.envs.showcase.gui.composed.obstacles import OBSTACLES
from clawrl_gym.envs.showcase.gui.composed.plan import Plan, ending
from clawrl_gym.envs.showcase.gui.families.family import Turns, give_up
from clawrl_gym.envs.task_ids import GeneratedTasks, composition_split, split_of_content
from tests.support.desk_agents import AGENTS, in_order_of_the_text, paper_desk, solves
from tests.support.gui_attacks import ATTACKS
from tests.support.gui_attacks import reward_of as reward_of_attack

SAMPLE = 6
"""Tasks of each family and split that are played."""
MANY = 15
"""That are looked at."""
SPLITS: tuple[Split, ...] = ("train", "heldout")


@cache
def drawn(each: int = SAMPLE) -> list[tuple[GuiTask, Composed]]:
    """Pairs of task and what it was made of, so many of each family and split."""
    return drawn_of(composed_tasks(), each)


@cache
def plain() -> list[tuple[GuiTask, Composed]]:
    """The same of plain tasks."""
    return drawn_of(plain_tasks(), 3 * MANY)


def drawn_of(source: GeneratedTasks[GuiTask], each: int) -> list[tuple[GuiTask, Composed]]:
    pairs = []
    for split in SPLITS:
        ids = source.ids(split)
        for task_id in ids[: each * len(ids.families)]:
            _, family, _, number = task_id.split("-")
            composed = compose(family, split, int(number))
            pairs.append((task_of(task_id, composed), composed))
    return pairs


def plans(family: str) -> list[Plan]:
    return [composed.plan for task, composed in drawn(MANY) if task.family == family]


@pytest.fixture(scope="module")
def env() -> Iterator[GuiEnv]:
    made = paper_desk()
    known = {task.id: task for task, _ in (*drawn(MANY), *plain())}  # each is played often
    made._source = replace(
        composed_tasks(), make_task=lambda name: known.get(name) or make_task(name)
    )
    yield made
    made.close()


def test_there_are_many_skills_in_each_application_and_ways_to_ask_for_each() -> None:
    assert len(SKILLS) >= 30
    assert min(Counter(skill.host for skill in SKILLS.values()).values()) >= 4
    assert {skill.host for skill in SKILLS.values()} == set(HOSTS)
    phrasings = [(6, skill.phrasings) for skill in SKILLS.values()]
    phrasings += [(3, lookup.phrasings) for lookup in LOOKUPS.values()]
    for least, ways in phrasings:
        assert len({*ways.train, *ways.heldout}) == len(ways.train) + len(ways.heldout) >= least
        assert len(ways.train) > len(ways.heldout)


def test_all_skills_families_and_difficulties_come_up() -> None:
    names = Counter(name for _, composed in drawn(MANY) for name in composed.plan.names)
    assert set(names) == {*SKILLS, *LOOKUPS, *(HELDOUT_FAMILIES - {"three"})}
    difficulties = Counter(task.difficulty for task, _ in drawn(MANY))
    assert set(difficulties) == set(range(1, MOST + 1))


def test_difficulty_counts_things_to_do_what_is_hidden_obstacles_decoys_and_what_holds() -> None:
    for task, composed in drawn(MANY):
        plan = composed.plan
        skills = sum(part.weight for part in plan.parts)
        holds = any(part.holds for part in plan.parts)
        assert task.difficulty == skills + plan.hidden + plan.obstacles + plan.decoys + holds
    assert all(plan.hidden for plan in plans("discover"))
    assert all(plan.obstacles for plan in plans("recover"))
    assert all(plan.decoys for plan in plans("distract"))
    assert all(any(part.holds for part in plan.parts) for plan in plans("hold"))
    assert all(plan.parts[-1].said is not None for plan in plans("report"))
    assert all(len(plan.hosts) == 1 < len(plan.parts) for plan in plans("chain"))
    assert all(len(plan.hosts) > 1 for plan in plans("across"))
    assert all(plan.difficulty == 1 for plan in plans("single"))


def test_a_fact_of_one_application_is_often_used_in_another() -> None:
    across = sum(
        any({LOOKUPS[found.lookup].host for found in part.found} - {SKILLS[part.skill].host}
            for part in plan.parts if part.skill in SKILLS)
        for plan in plans("discover")
    )  # fmt: skip
    assert across > 0.5 * len(plans("discover"))


def test_the_oracle_solves_every_task_and_doing_nothing_none(env: GuiEnv) -> None:
    for task, composed in drawn():
        env.reset(options={"task": task.id})
        rewards = [env.step(action)[1] for action in env.solve()]
        assert rewards == [0.0] * (len(composed.plan.turns) - 1) + [1.0], (task.id, env.report)
        for turns in ([], [ending(None)], [give_up("I cannot")]):
            assert not solves(env, task.id, turns), task.id


def test_plain_tasks_are_so_many_things_on_one_page_in_the_order_of_the_text(env: GuiEnv) -> None:
    counts = {"one": 1, "two": 2, "three": 3}
    assert set(counts) == set(PLAIN_FAMILIES)
    for task, composed in plain():
        plan, count = composed.plan, counts[task.family]
        assert len(plan.parts) == task.difficulty == count
        assert composed.order == tuple(range(count))
        assert len(plan.turns) == count + 1, "a reply for each thing, and one that ends"
        assert plan.page is not None
        assert task.start == plan.page.url
        assert plan.hosts == set(task.sites) == {plan.page.host}
        assert solves(env, task.id, in_order_of_the_text(composed)), (task.id, env.report)
    names = {name for _, composed in plain() for name in composed.plan.names}
    assert len(names) == 14
    assert {SKILLS[name].host for name in names} == {"settings", "mail", "calendar", "shop"}


def test_of_plain_tasks_nothing_less_than_all_is_enough(env: GuiEnv) -> None:
    for task, composed in plain():
        first, *others, end = composed.plan.turns
        slips: list[Turns] = [(end,), *composed.plan.near()]
        if others:
            slips += [(first, end), (first, first, end), (others[-1], end)]
        for turns in slips:
            assert not solves(env, task.id, turns), (task.id, turns)


def test_what_plain_tasks_ask_for_stands_on_the_page_that_is_open(env: GuiEnv) -> None:
    for task, _ in plain():
        env.reset(options={"task": task.id})
        url = env.view.url.partition("?")[0]
        for action in env.solve():
            env.step(action)
            assert env.view.url.partition("?")[0] == url, task.id


def test_plain_tasks_hold_out_compositions_and_share_words_and_names_of_training() -> None:
    unseen = re.compile(r"Hey there|Cheers|obliged|As a first step|Following this|Work through")
    strange = re.compile("|".join(PEOPLE["heldout"]))
    for task, composed in plain():
        split = (
            split_of_content(composed.instruction)
            if task.family == "one"
            else composition_split(composed.plan.names)
        )
        assert split == task.split
        assert not unseen.search(task.instruction)
        assert not strange.search(task.instruction)


def test_a_wrong_but_near_solution_solves_none(env: GuiEnv) -> None:
    for task, composed in drawn()[::2]:
        near = list(composed.plan.near())
        assert near
        for turns in near:
            assert not solves(env, task.id, turns), (task.id, turns)


@pytest.mark.nightly
def test_of_many_tasks_the_oracle_solves_all_and_what_is_near_none(env: GuiEnv) -> None:
    for task, composed in drawn(40):
        assert solves(env, task.id, composed.plan.turns), (task.id, env.report)
        for turns in [(), *composed.plan.near()]:
            assert not solves(env, task.id, turns), (task.id, turns)


def test_whatever_the_oracle_writes_was_said_or_shown_before(env: GuiEnv) -> None:
    """Nothing has to be guessed: only hours follow from those that are said."""
    written = 0
    for task, _ in drawn():
        text, _ = env.reset(options={"task": task.id})
        for action in env.solve():
            for word in re.findall(r'(?:type|select|answer)\((?:\d+, )?"(.*)"\)', action):
                is_hour = re.fullmatch(r"\d+:00", word) is not None
                row = re.fullmatch(r"[A-D]\d*", word) is not None  # sheets number their cells
                in_text = word.casefold() in text.casefold()
                assert is_hour or row or in_text, (task.id, action)
                written += 1
            text += env.step(action)[0]
    assert written > 300


def test_the_request_says_how_many_replies_there_are() -> None:
    for task, composed in drawn():
        assert task.turns == len(composed.plan.turns) + SPARE_REPLIES
        assert task.instruction.endswith(f"You have {task.turns} replies.")


def test_knowing_every_skill_without_a_plan_is_not_enough(env: GuiEnv) -> None:
    ranked = sorted(drawn(), key=lambda pair: pair[0].difficulty)
    hardest = ranked[-len(ranked) // 3 :]
    for agent in AGENTS:
        solved = sum(solves(env, task.id, agent(composed)) for task, composed in hardest)
        assert solved < 0.4 * len(hardest)
    single = [pair for pair in ranked if pair[0].family == "single"]
    assert all(solves(env, task.id, in_order_of_the_text(composed)) for task, composed in single)


def test_compositions_names_and_families_belong_to_one_split() -> None:
    seen: dict[Split, set[tuple[str, ...]]] = {split: set() for split in SPLITS}
    for task, composed in drawn(MANY):
        people = set(re.findall(r"\w+", task.instruction))
        assert not people & {
            name for split in SPLITS if split != task.split for name in PEOPLE[split]
        }
        if task.family not in {"single", *HELDOUT_FAMILIES}:
            assert composition_split(composed.plan.names) == task.split
            seen[task.split].add(composed.plan.names)
    assert not seen["train"] & seen["heldout"]
    assert not HELDOUT_FAMILIES & set(composed_tasks().ids("train").families)


def test_requests_differ_and_ways_to_ask_belong_to_one_split() -> None:
    tasks = [task for task, _ in drawn(MANY)]
    requests = {split: {t.instruction for t in tasks if t.split == split} for split in SPLITS}
    assert len(requests["train"] | requests["heldout"]) == len(tasks)
    texts = [request for split in SPLITS for request in requests[split]]
    assert not [text for text in texts if re.search(r"[{}|]|  |\bNone\b|\.\.|/", text)]
    openings = Counter(" ".join(text.split()[:3]) for text in texts)
    assert openings.most_common(1)[0][1] < 0.2 * len(texts)
    unseen = re.compile(r"Hey there|Cheers|obliged|As a first step|Following this|Work through")
    assert not [text for text in requests["train"] if unseen.search(text)]
    assert sum(bool(unseen.search(text)) for text in requests["heldout"]) > 30


def test_what_is_to_be_found_out_is_not_in_the_request() -> None:
    hidden = 0
    for task, composed in drawn(MANY):
        for part in composed.plan.parts:
            for found in part.found:
                if LOOKUPS[found.lookup].to == "person":
                    hidden += str(found.value) not in re.findall(r"\w+", task.instruction)
    assert hidden > 15


def test_any_order_of_what_is_independent_is_accepted(env: GuiEnv) -> None:
    """New mails, events, tickets and orders have other numbers then."""
    reversed_orders = 0
    for task, composed in drawn(MANY):
        parts = composed.plan.parts
        if task.family != "across" or any(
            after.depends_on(before) for i, after in enumerate(parts) for before in parts[:i]
        ):
            continue
        backwards = replace(composed.plan, parts=parts[::-1])
        if composed.plan.settled(composed.plan.end) == _played_end(backwards):
            assert solves(env, task.id, backwards.turns), task.id
            reversed_orders += 1
    assert reversed_orders > 5


def _played_end(plan: Plan) -> object:
    from clawrl_gym.envs.showcase.gui.composed.plan import played

    actions = [action for part in plan.parts for action in part.actions]
    return plan.settled(played(plan.start, actions))


def test_what_is_new_may_be_made_in_either_order(env: GuiEnv) -> None:
    """The second of two new mails or orders gets another number, which nobody asked for."""
    found = 0
    for task, composed in drawn(MANY):
        parts = list(composed.plan.parts)
        new = [
            place for place, part in enumerate(parts)
            if part.skill in ("write_mail", "reply_mail", "forward_mail", "plan_event")
        ]  # fmt: skip
        if len(new) < 2 or len({SKILLS[parts[place].skill].host for place in new}) > 1:
            continue
        parts[new[0]], parts[new[1]] = parts[new[1]], parts[new[0]]
        swapped = replace(composed.plan, parts=tuple(parts))
        if composed.plan.settled(composed.plan.end) == _played_end(swapped):
            assert solves(env, task.id, swapped.turns), (task.id, env.report)
            found += 1
    assert found


def test_side_effects_are_refused_in_whatever_application(env: GuiEnv) -> None:
    """All that was asked for, and one thing more that is undone by nothing."""
    spare: dict[str, str] = {
        "mail": "write_mail", "calendar": "plan_event", "tickets": "open_ticket",
        "shop": "fill_basket", "settings": "dial_setting", "sheet": "add_row",
    }  # fmt: skip
    for task, composed in [pair for pair in drawn() if pair[0].family == "single"][:4]:
        for host in spare:
            desk = composed.plan.end
            args: dict[str, str | int] = {
                "title": "One more", "text": "Hello", "person": desk.tickets["people"][0],
                "day": "2026-03-06", "time": 17 * 60, "priority": "low", "count": 1,
                "item": next(iter(set(desk.shop["items"]) - set(desk.shop["basket"]))),
                "dial": _a_dial(composed), "number": 99, "second": 98, "word": "extra",
                "sheet": desk.sheet["sheets"][0]["name"],
            }  # fmt: skip
            more = SKILLS[spare[host]].steps(desk, args)
            turns: Turns = (*composed.plan.turns[:-1], *more, composed.plan.turns[-1])
            assert not solves(env, task.id, turns), (task.id, host)
            assert "expected" in env.report


def _a_dial(composed: Composed) -> str:
    for section in composed.plan.end.settings["sections"]:
        for one in section["settings"]:
            if type(one["value"]) is int:
                return one["name"]
    raise AssertionError


def test_the_right_answer_of_who_has_opened_no_page_earns_nothing(env: GuiEnv) -> None:
    alone = 0
    for task, composed in drawn(MANY):
        plan = composed.plan
        if plan.said is not None and len(plan.parts) == 1:
            assert not solves(env, task.id, [ending(plan.said.right)])
            assert "no page was opened" in env.report
            alone += 1
    assert alone > 3


def test_an_answer_may_be_written_as_people_write_it(env: GuiEnv) -> None:
    for task, composed in drawn():
        said = composed.plan.said
        if said is not None:
            turns = composed.plan.turns[:-1]
            assert solves(env, task.id, (*turns, ending(f" {said.right.upper()}. ")))
            assert not solves(env, task.id, (*turns, ending(f"{said.right} {said.wrong}")))


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_every_obstacle_comes_up_and_the_page_says_so(obstacle: str, env: GuiEnv) -> None:
    says = {
        "closed": "Open again",
        "locked": "is locked: it cannot be changed",
        "scarce": "There are only",
        "taken": "This time is taken",
        "unknown": "There is no such coupon",
    }[obstacle]
    for number in range(80):
        task_id = f"desk-recover-train-{number:06d}"
        env.reset(options={"task": task_id})
        if any(says in env.step(action)[0] for action in env.solve()):
            return
    pytest.fail(f"no task has the obstacle {obstacle}")


def test_what_is_so_already_is_spoilt_by_doing_it_once_more(env: GuiEnv) -> None:
    """Not always: who sets a priority that is set does no harm."""
    tasks = [(task, c) for task, c in drawn(MANY) if task.family == "hold"]
    spoilt = sum(not solves(env, task.id, in_order_of_the_text(c)) for task, c in tasks)
    assert spoilt > 0.5 * len(tasks)


@pytest.mark.parametrize("family", [*FAMILIES, *PLAIN_FAMILIES])
def test_no_attack_earns_anything(family: str, env: GuiEnv) -> None:
    task_id = f"desk-{family}-heldout-000003"
    rewards = {attack.name: reward_of_attack(env, task_id, attack) for attack in ATTACKS}
    assert {name for name, reward in rewards.items() if reward > 0} == set()


def test_a_task_follows_from_its_id_and_travels() -> None:
    for task, _ in drawn()[::7]:
        assert make_task(task.id) == task == pickle.loads(pickle.dumps(task))
        assert task.start == f"http://{START}/"
        assert set(task.sites) == {START, *HOSTS}
    for task, _ in plain()[::17]:
        assert make_task(task.id) == task == pickle.loads(pickle.dumps(task))


def test_info_has_the_difficulty(env: GuiEnv) -> None:
    for task, _ in drawn()[::9]:
        _, info = env.reset(options={"task": task.id})
        assert info["difficulty"] == task.difficulty
        assert info["family"] == task.family


@pytest.mark.parametrize(
    ("task_id", "match"),
    [
        ("desk-nope-train-000001", "expected desk-FAMILY-SPLIT-NUMBER"),
        ("chain-train-000001", "expected desk-FAMILY-SPLIT-NUMBER"),
        ("desk-unwind-train-000001", "held out as a whole"),
    ],
)
def test_what_is_no_id_is_named(task_id: str, match: str) -> None:
    with pytest.raises(TaskError, match=match):
        make_task(task_id)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected some of: across"):
        GuiEnv(tasks="composed", families=["shop_add"])


@pytest.mark.browser
@pytest.mark.parametrize("family", [*FAMILIES, *PLAIN_FAMILIES])
def test_the_oracle_solves_in_a_browser_what_doing_nothing_does_not(family: str) -> None:
    env = GuiEnv(tasks="composed", action_timeout_s=30, page_timeout_s=60)
    task_id = f"desk-{family}-heldout-000001"
    try:
        env.reset(options={"task": task_id})
        rewards = [env.step(action)[1] for action in env.solve()]
        assert rewards[-1] == 1.0, env.report
        env.reset(options={"task": task_id})
        assert env.step("done()")[1] == 0.0
    finally:
        env.close()
