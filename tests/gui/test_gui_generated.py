"""Generated page tasks: ids, splits, oracles, what plausible mistakes earn, how short pages are."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.grading import GIVING_UP_COSTS, InfeasibleGrader
from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.gui.families import FAMILIES
from clawrl_gym.envs.showcase.gui.generated import (
    PREFIX,
    generated_tasks,
    make_task,
    split_of,
    task_ids,
)
from tools.tiny_policy.static_screen import StaticScreen

EACH = 15
"""Tasks looked at of each family."""
SAMPLE = 300
"""Tasks drawn of each family where nothing is played."""
EASY = tuple(name for name, family in FAMILIES.items() if family.easy)
APPS = ("calendar", "mail", "settings", "sheet", "shop", "tickets")
PAGE_CHARS, FIRST_CHARS, EASY_TURNS = 330, 480, 3
"""What a small policy can read, and do."""


def solution_of(task_id: str) -> tuple[tuple[Step, ...], ...]:
    """The oracle's steps by turn, where they do not depend on the pages."""
    solution = make_task(task_id).solution
    assert isinstance(solution, tuple)
    return solution


def in_browser(families: list[str] | None = None) -> GuiEnv:
    """The real thing, patient with a busy machine."""
    return GuiEnv(families=families, action_timeout_s=30, page_timeout_s=60)


def on_paper(family: str) -> GuiEnv:
    """The environment without a browser: much faster, and the sites are the same."""
    return GuiEnv(families=[family], open_screen=StaticScreen.open)


def reward_of(env: GuiEnv, task_id: str, actions: Iterable[str] | None = None) -> float:
    """The reward of an episode in which these things are done; None: what the oracle does."""
    env.reset(options={"task": task_id})
    for action in env.solve() if actions is None else actions:
        _, reward, done, truncated, info = env.step(action)
        assert not truncated
        if done:
            assert str(info["report"]).startswith(
                "Test report: passed" if reward > 0 else "Test report: f"
            )
            return reward
    raise AssertionError(f"{task_id} did not end")


def ids_of(family: str, each: int = EACH) -> list[str]:
    return [*task_ids("train", (family,))[:each], *task_ids("heldout", (family,))[:each]]


def is_infeasible(task_id: str) -> bool:
    return isinstance(make_task(task_id).grader, InfeasibleGrader)


@pytest.mark.browser
@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_solves_in_a_browser_what_doing_nothing_does_not(
    family: str, tasks_a_family: int
) -> None:
    """By day each in one task of its own: on paper, below, both are done in many."""
    ids = ids_of(family, each=tasks_a_family)
    solved, untouched = (ids[:1], ids[1:]) if len(ids) == 2 else (ids, ids)
    env = in_browser([family])
    try:
        assert {reward_of(env, task_id) for task_id in solved} == {1.0}
        assert {reward_of(env, task_id, ["done()"]) for task_id in untouched} == {0.0}
    finally:
        env.close()


@pytest.mark.browser
@pytest.mark.parametrize("app", APPS)
def test_a_task_that_cannot_be_done_is_given_up_in_a_browser(app: str) -> None:
    infeasible = [
        task_id
        for family in FAMILIES
        if family.startswith(app)
        for task_id in ids_of(family)
        if is_infeasible(task_id)
    ]
    env = in_browser()
    try:
        assert reward_of(env, infeasible[0]) == 1.0
    finally:
        env.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_oracle_solves_what_doing_nothing_does_not(family: str) -> None:
    env = on_paper(family)
    for task_id in ids_of(family):
        assert reward_of(env, task_id) == 1.0
        assert reward_of(env, task_id, ["done()"]) == 0.0
        assert reward_of(env, task_id, ['answer("nothing")']) == 0.0


@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_cannot_be_done_is_given_up(family: str) -> None:
    env = on_paper(family)
    for task_id in ids_of(family):
        given_up = reward_of(env, task_id, ['give_up("I cannot")'])
        costs = GIVING_UP_COSTS if FAMILIES[family].may_be_infeasible else 0.0
        assert given_up == (1.0 if is_infeasible(task_id) else -costs)


@pytest.mark.parametrize("family", FAMILIES)
def test_stopping_before_the_end_earns_nothing(family: str) -> None:
    env = on_paper(family)
    for task_id in ids_of(family, each=2):
        turns = len(solution_of(task_id))
        for played in range(turns - 1):
            env.reset(options={"task": task_id})
            for turn in range(played):
                env.step(env.oracle(turn))
            _, reward, done, _, _ = env.step("done()")
            assert (reward, done) == (0.0, True)


@pytest.mark.parametrize("family", FAMILIES)
def test_other_words_and_numbers_earn_nothing(family: str) -> None:
    """What the oracle types or answers is what was asked for, not just anything."""
    env = on_paper(family)
    for task_id in ids_of(family, each=3):
        solution = solution_of(task_id)
        typed = [step.kind for turn in solution for step in turn]
        if is_infeasible(task_id) or not {"type", "answer"} & set(typed):
            continue
        env.reset(options={"task": task_id})
        try:
            for turn in range(len(solution)):
                _, reward, done, _, _ = env.step(_spoilt(env.oracle(turn)))
        except TaskError:  # another page than the oracle's: a search for the wrong word
            _, reward, done, _, _ = env.step("done()")
        assert (reward, done) == (0.0, True)


def _spoilt(actions: str) -> str:
    """Every text that is typed or answered is another one."""
    return "\n".join(
        action[:-2] + '7")' if action.startswith(("type", "answer")) else action
        for action in actions.splitlines()
    )


@pytest.mark.parametrize(
    ("family", "role", "then"),
    [
        ("shop_add", "link", ["click(5)"]),  # one of it into the basket
        ("shop_remove", "button", []),
        ("mail_archive", "link", ["click(6)"]),
        ("mail_delete", "link", ["click(7)"]),
        ("mail_star", "link", ["click(8)"]),
        ("calendar_delete", "link", ["click(9)"]),
    ],
)
def test_the_same_done_to_something_else_earns_nothing(
    family: str, role: str, then: list[str]
) -> None:
    env = on_paper(family)
    for task_id in ids_of(family, each=3):
        env.reset(options={"task": task_id})
        first_id = int(env.oracle(0).removeprefix("click(").removesuffix(")"))
        rows = [line for line in env.view.lines if "|" in line]
        other_ids = [
            part.id
            for line in rows
            for part in line[1 if family.startswith("calendar") else 0 :]
            if not isinstance(part, str) and part.role == role and part.id != first_id
        ]
        for action in (f"click({other_ids[0]})", *then):
            env.step(action)
        _, reward, done, _, info = env.step("done()")
        assert (reward, done) == (0.0, True)
        assert "expected" in str(info["report"])


def played(family: str, task_id: str, *actions: str) -> float:
    """The reward when this is done and said to be all."""
    env = on_paper(family)
    env.reset(options={"task": task_id})
    for action in actions:
        env.step(action.format(first=env.oracle(0)) if "{first}" in action else action)
    return float(env.step("done()")[1])


def test_what_looks_nearly_right_earns_nothing() -> None:
    """The right page with the wrong button, or the right form with a field left as it was."""
    for split in ("train", "heldout"):
        archive, star, event, order = (
            f"{PREFIX}{family}-{split}-000000"
            for family in ("mail_archive", "mail_star", "calendar_later", "shop_order")
        )
        assert played("mail_archive", archive, "{first}", "click(6)") == 1.0
        assert played("mail_archive", archive, "{first}", "click(7)") == 0.0  # deleted
        assert played("mail_star", star, "{first}", "click(8)", "click(8)") == 0.0  # and not again
        assert played("calendar_later", event, "{first}", "click(8)") == 0.0  # saved as it was
        wrong = 'type(4, "Bob")\ntype(5, "1 way")\nclick(9)'
        assert played("shop_order", order, "{first}", wrong) == 0.0


def test_an_id_names_one_task_in_every_process() -> None:
    for task_id in task_ids("train")[: 2 * len(FAMILIES)]:
        task = make_task(task_id)
        assert task == make_task(task_id) == pickle.loads(pickle.dumps(task))
        assert (task.id, task.split) == (task_id, "train")
    assert make_task("gui-shop_add-train-000001") != make_task("gui-shop_add-train-000002")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_heldout_request_is_met_in_training(family: str) -> None:
    reports = {
        split: {make_task(task_id).instruction for task_id in task_ids(split, (family,))[:SAMPLE]}
        for split in ("train", "heldout")
    }
    assert not reports["train"] & reports["heldout"]
    assert len(reports["train"]) > 50
    assert len(reports["heldout"]) > 9


def test_a_request_belongs_to_one_split_whatever_the_phrasing() -> None:
    from clawrl_gym.envs.draw import Draw

    for name, family in FAMILIES.items():
        splits: dict[str, set[str]] = {}
        for number in range(200):
            draft = family.draft(Draw(f"split/{number}"))
            splits.setdefault(draft.key, set()).add(split_of(name, draft))
        assert all(len(splits_of_key) == 1 for splits_of_key in splits.values())
        heldout_count = sum("heldout" in splits_of_key for splits_of_key in splits.values())
        assert heldout_count < len(splits) / 2


@pytest.mark.parametrize("family", EASY)
def test_easy_tasks_are_short_enough_for_a_small_policy(family: str) -> None:
    env = on_paper(family)
    for task_id in ids_of(family):
        first, _ = env.reset(options={"task": task_id})
        assert len(first) <= FIRST_CHARS, first
        pages_seen = [first.partition("\n\n")[2]]
        for played, action in enumerate(env.solve(), start=1):
            pages_seen.append(env.step(action)[0])
            assert played <= EASY_TURNS
        assert max(map(len, pages_seen)) <= PAGE_CHARS, max(pages_seen, key=len)


@pytest.mark.parametrize("app", APPS)
def test_every_application_has_easy_long_and_impossible_tasks(app: str) -> None:
    family_names = [name for name in FAMILIES if name.partition("_")[0] == app]
    easy = [name for name in family_names if name in EASY]
    assert len(family_names) >= 6
    assert 3 <= len(easy) < len(family_names)
    shares = {
        name: sum(map(is_infeasible, task_ids("train", (name,))[:60])) / 60 for name in family_names
    }
    assert any(0.1 < share < 0.6 for share in shares.values())
    assert not any(share > 0.6 for share in shares.values())


def test_wording_does_not_tell_what_cannot_be_done() -> None:
    """The same sentences are used where the task can be done."""
    for name in FAMILIES:
        cases = [(is_infeasible(task_id), task_id) for task_id in task_ids("train", (name,))[:200]]
        if len({case for case, _ in cases}) == 1:
            continue
        first_words = {
            case: {
                make_task(task_id).instruction.split()[0] for kind, task_id in cases if kind == case
            }
            for case in (True, False)
        }
        assert first_words[True] & first_words[False]


def test_turns_leave_room_for_one_mistake() -> None:
    for task in map(make_task, task_ids("train")[: len(FAMILIES)]):
        solution = solution_of(task.id)
        assert task.turns == len(solution) + 1
        assert [step.kind for step in solution[-1]][-1] in ("done", "answer", "give_up")
        assert max(len(turn) for turn in solution) <= 16


@pytest.mark.parametrize(
    "task_id",
    [
        "", "shop_add-train-000001", "gui-shop_add", "gui-shop_add-train-1", "gui-x-train-000001",
        "gui-shop_add-test-000001", "gui-shop_add-train-100000", "gui-shop_add-heldout-001000",
        "gui-shop_add-train-00000x", "gui-shop_add-train-0000001", "gui--train-000001",
    ],
)  # fmt: skip
def test_what_is_no_id_is_named(task_id: str) -> None:
    with pytest.raises(TaskError, match="expected"):
        make_task(task_id)


def test_ids_take_the_families_in_turn() -> None:
    ids = generated_tasks(("shop_add", "mail_star")).ids("heldout")
    assert len(ids) == 2000
    assert list(ids[:3]) == [
        f"{PREFIX}mail_star-heldout-000000",
        f"{PREFIX}shop_add-heldout-000000",
        f"{PREFIX}mail_star-heldout-000001",
    ]
    assert len(task_ids("train")) == 100_000 * len(FAMILIES)
    with pytest.raises(ConfigError, match=r"env\.families"):
        generated_tasks(("shop",)).ids("train")
