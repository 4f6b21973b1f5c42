"""The ticket system: lists, search, comments, closing, what it refuses, and its tasks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clawrl_gym.envs.gui.grading import InfeasibleGrader
from clawrl_gym.envs.gui.site import Request
from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.gui.apps.tickets import LONGEST_LINE, PAGE_SIZE, Tickets, TicketsWorld
from clawrl_gym.envs.showcase.gui.families.family import (
    answer,
    done,
    give_up,
    link,
    press,
    select,
    write,
)
from clawrl_gym.envs.showcase.gui.families.tickets import TICKETS
from clawrl_gym.envs.showcase.gui.generated import make_task, task_ids
from tests.support.gui_sites import get, paper_env, post, reward_of, solution_of, state_of, text_of

FAMILIES = TICKETS
EACH = 8
"""Tasks looked at of each family and split."""


def ticket(title: str, **fields: Any) -> Any:
    return {
        "title": title,
        "status": "open",
        "priority": "low",
        "owner": "Ana",
        "label": "",
        "comments": [],
        "reason": "",
        "duplicate_of": None,
    } | fields


def world(more: int = 0) -> TicketsWorld:
    tickets = {
        "11": ticket("slow kettle"),
        "12": ticket("slow lemon", owner="Ben", status="waiting", comments=[["Ben", "amber"]]),
        "13": ticket("lost kettle", status="closed", reason="solved"),
    }
    tickets |= {str(20 + place): ticket(f"old zebra {place}") for place in range(more)}
    return {"people": ["Ana", "Ben"], "tickets": tickets}


EDIT = {"status": "waiting", "priority": "high", "owner": "Ben", "label": "<b>'x'</b>"}


def test_an_edited_ticket_is_stored_and_nothing_else_changes() -> None:
    site = Tickets(world())
    before = state_of(site)
    response = post(site, "/edit/11", **EDIT)
    assert (response.status, response.headers["location"]) == (303, "/ticket/11")
    assert site.state() == before | {"11": before["11"] | EDIT}
    page_html = get(site, "/ticket/11").body
    assert isinstance(page_html, str)
    assert "<b>" not in page_html


def test_comments_new_tickets_closing_and_opening_again() -> None:
    site = Tickets(world())
    assert post(site, "/comment/12", text=" brick ").status == 303
    assert state_of(site)["12"]["comments"] == [["Ben", "amber"], ["You", "brick"]]
    response = post(site, "/new", title="cold maple", priority="high", owner="nobody")
    assert response.headers["location"] == "/ticket/14"
    assert state_of(site)["14"] == ticket("cold maple", priority="high", owner="nobody")
    assert post(site, "/close/14", reason="duplicate", of="11").status == 303
    closed = state_of(site)["14"]
    assert (closed["status"], closed["reason"], closed["duplicate_of"]) == (
        "closed",
        "duplicate",
        11,
    )
    assert post(site, "/reopen/14", number="14").status == 303
    assert state_of(site)["14"] == ticket("cold maple", priority="high", owner="nobody")


def test_looking_changes_nothing() -> None:
    site = Tickets(world())
    for path in ("/", "/new", "/search", "/found", "/ticket/13", "/edit/11", "/close/11"):
        assert get(site, path).status == 200, path
    assert site.state() == Tickets(world()).state()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["slow kettle", "slow lemon", "lost kettle"]),
        ("q=KETTLE", ["slow kettle", "lost kettle"]),
        ("q=kettle+slow", ["slow kettle"]),
        ("q=kettle&status=closed", ["lost kettle"]),
        ("owner=Ben&status=any", ["slow lemon"]),
        ("q=nosuch", []),
        ("q=%3Cscript%3E", []),
    ],
)
def test_search_takes_words_status_and_owner(query: str, found: list[str]) -> None:
    text = text_of(get(Tickets(world()), f"/found?{query}"))
    titles = [entry["title"] for entry in world()["tickets"].values()]
    assert [title for title in titles if title in text] == found
    assert ("There is no such ticket." in text) == (not found)


def test_long_lists_go_on_and_keep_what_was_searched() -> None:
    site = Tickets(world(more=PAGE_SIZE + 1))
    first = get(site, "/found?q=zebra").body
    assert isinstance(first, str)
    assert "old zebra 0" in first
    assert f"old zebra {PAGE_SIZE}" not in first
    assert f"from={PAGE_SIZE}" in first
    rest = text_of(get(site, f"/found?q=zebra&from={PAGE_SIZE}"))
    assert f"old zebra {PAGE_SIZE}" in rest
    assert "More" not in rest
    assert get(site, "/found?from=-1").status == 400


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/comment/11", {}),
        ("/comment/11", {"text": "   "}),
        ("/comment/11", {"text": "x" * (LONGEST_LINE + 1)}),
        ("/comment/11", {"text": "9" * 10_000}),
        ("/edit/11", {}),
        ("/edit/11", EDIT | {"owner": "Zoe"}),
        ("/edit/11", EDIT | {"status": "closed"}),
        ("/edit/11", EDIT | {"priority": "'\"><b>"}),
        ("/edit/13", EDIT),
        ("/close/13", {"reason": "solved", "of": ""}),
        ("/close/11", {"reason": "tired", "of": ""}),
        ("/close/11", {"reason": "duplicate", "of": ""}),
        ("/close/11", {"reason": "duplicate", "of": "11"}),
        ("/close/11", {"reason": "solved", "of": "12"}),
        ("/reopen/11", {"number": "11"}),
        ("/new", {"title": "", "priority": "low", "owner": "Ana"}),
        ("/new", {"title": "cold maple"}),
        ("/new", {"title": "two\nlines", "priority": "low", "owner": "Ana"}),
    ],
)
def test_a_form_that_is_wrong_is_refused_in_words_and_changes_nothing(
    path: str, form: dict[str, str]
) -> None:
    site = Tickets(world())
    response = post(site, path, **form)
    assert response.status == 400
    assert "Sorry" in text_of(response)
    assert site.state() == Tickets(world()).state()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/ticket", 404),
        ("GET", "/ticket/99", 404),
        ("GET", "/ticket/²", 404),
        ("GET", "/ticket/" + "9" * 10_000, 404),
        ("GET", "/comment/11", 405),
        ("GET", "/new/x", 404),
        ("POST", "/ticket/11", 405),
        ("POST", "/close/99", 404),
        ("DELETE", "/ticket/11", 405),
    ],
)
def test_strange_requests_are_answered_in_words(method: str, path: str, status: int) -> None:
    site = Tickets(world())
    response = site.handle(Request(method, path, form={"reason": "solved"}))
    assert response.status == status
    assert "Sorry" in text_of(response)
    assert site.state() == Tickets(world()).state()


def test_the_sites_world_is_not_the_tasks() -> None:
    world_before = world()
    world_copy = copy.deepcopy(world_before)
    site = Tickets(copy.deepcopy(world_before))
    state = state_of(site)
    post(site, "/comment/12", text="brick")
    post(site, "/edit/11", **EDIT)
    assert world_before == world_copy
    assert state == Tickets(world_copy).state()


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_the_oracle_solves_what_doing_nothing_does_not(family: str) -> None:
    env = paper_env()
    for split in ("train", "heldout"):
        for task_id in task_ids(split, (family,))[:EACH]:
            assert reward_of(env, task_id) == 1.0, (task_id, env.report)
            assert reward_of(env, task_id, [done()]) == 0.0, task_id


def test_the_wrong_reason_owner_or_comment_earns_nothing() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("tickets_close",))[:EACH]:
        first, (reason, close), ending = solution_of(task_id)
        wrong = select("Reason", "solved" if reason.text != "solved" else "not ours")
        assert reward_of(env, task_id, [first, (wrong, close), ending]) == 0.0
    for task_id in task_ids("train", ("tickets_comment",))[:EACH]:
        (comment, add), ending = solution_of(task_id)
        assert reward_of(env, task_id, [(comment,), ending]) == 0.0
        assert reward_of(env, task_id, [(comment, add), (comment, add), ending]) == 0.0
        more = Step("type", comment.locator, text=f"{comment.text}!")
        assert reward_of(env, task_id, [(more, add), ending]) == 0.0
    for task_id in task_ids("train", ("tickets_priority",))[:EACH]:
        first, (change, save), ending = solution_of(task_id)
        besides = (change, write("Label", "x!"), save)
        assert reward_of(env, task_id, [first, besides, ending]) == 0.0


def test_the_earlier_of_two_duplicates_stays_open() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("tickets_duplicate",))[:EACH]:
        search, locator, (duplicate_link,), close, (reason, of, press_close), ending = solution_of(
            task_id
        )
        assert duplicate_link.locator
        later = max(make_task(task_id).grader.expected["tickets"].items(),  # type: ignore[attr-defined]
                    key=lambda entry: (entry[1]["reason"], int(entry[0])))[0]  # fmt: skip
        swapped = [search, locator, (link(duplicate_link.locator.name),), close,
                   (reason, Step("type", of.locator, text=later), press_close), ending]  # fmt: skip
        assert reward_of(env, task_id, swapped) == 0.0


def test_an_answer_has_to_be_right() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("tickets_count",))[:EACH]:
        (ending,) = solution_of(task_id)[-1]
        assert reward_of(env, task_id, [answer(int(ending.text) + 1)]) == 0.0
        assert reward_of(env, task_id, [answer(f" {ending.text}. ")]) == 1.0


@pytest.mark.parametrize("family", ["tickets_find", "tickets_hand"])
def test_what_cannot_be_done_is_known_by_looking_alone(family: str) -> None:
    env = paper_env()
    kinds = [
        isinstance(make_task(task_id).grader, InfeasibleGrader)
        for task_id in task_ids("train", (family,))[:100]
    ]
    assert 25 < sum(kinds) < 75
    for task_id in task_ids("heldout", (family,))[:20]:
        infeasible = isinstance(make_task(task_id).grader, InfeasibleGrader)
        reward = reward_of(env, task_id, [give_up("no")])
        assert reward == 1.0 if infeasible else reward < 0
        meddled = [(link("New"),), (write("Title", "x"), press("Create")), give_up("no")]
        assert reward_of(env, task_id, meddled) <= 0


def test_easy_tasks_are_short() -> None:
    env = paper_env()
    for family in FAMILIES:
        for task_id in task_ids("train", (family.name,))[: EACH if family.easy else 0]:
            observation, _ = env.reset(options={"task": task_id})
            assert len(observation) <= 480, task_id
            assert len(solution_of(task_id)) <= 3
            assert len(observation) - len(env.task.instruction) <= 332
