"""Draws ticket systems: who works there, and what tickets there are."""

from __future__ import annotations

import copy
from typing import Any

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.apps.tickets import HOST, ME, PRIORITIES, Tickets
from clawrl_gym.envs.gui.families.family import Served, TaskDraft, Turns

World = dict[str, Any]

PEOPLE = ("Ana", "Ben", "Eva", "Ida", "Kim", "Lea", "Max", "Sam", "Tom", "Zoe")
TROUBLES = ("broken", "lost", "slow", "cold", "wrong", "old", "loud", "dirty", "empty")


def draw_world(draw: Draw, count: int, people: int = 3) -> World:
    """So many open tickets, with different titles and numbers."""
    names = draw.some(PEOPLE, people)
    numbers = sorted(draw.some(range(10, 100), count))
    tickets: World = {
        str(number): {
            "title": f"{draw.pick(TROUBLES)} {thing}",
            "status": draw.pick(("open", "waiting")),
            "priority": draw.pick(PRIORITIES),
            "owner": draw.pick(names),
            "label": "",
            "comments": [],
            "reason": "",
            "duplicate_of": None,
        }
        for number, thing in zip(numbers, draw.some(STEMS, count), strict=True)
    }
    return {"people": names, "tickets": tickets}


def draw_ticket(draw: Draw, comments: int = 1) -> tuple[World, str]:
    """A few tickets, and the number of one that some comments were made on."""
    world = draw_world(draw, 3)
    number = draw.pick(list(world["tickets"]))
    ticket = world["tickets"][number]
    ticket["label"] = draw.pick(("", draw.pick(WORDS)))
    for _ in range(comments):
        ticket["comments"].append([draw.pick(world["people"]), " ".join(draw.some(WORDS, 2))])
    return world, number


def changed(world: World, number: str, **fields: Any) -> World:
    """The world with these fields of a ticket set."""
    after = copy.deepcopy(world)
    after["tickets"][number] |= fields
    return after


def task_draft(
    world: World,
    told: tuple[str, str],
    turns: Turns,
    *,
    after: World | None = None,
    path: str = "",
    answer: str | None = None,
    feasible: bool = True,
) -> TaskDraft:
    """A draft of key and instruction that begins at a path."""
    return TaskDraft(
        key=told[0],
        instruction=told[1],
        start=f"http://{HOST}/{path}",
        sites={HOST: Served(Tickets, world)},
        solution=turns,
        after={HOST: after} if after is not None else {},
        answer=answer,
        feasible=feasible,
    )


def commented(world: World, number: str, words: str) -> World:
    comments = [*world["tickets"][number]["comments"], [ME, words]]
    return changed(world, number, comments=comments)


def other_than(draw: Draw, choices: tuple[str, ...] | list[str], now: str) -> str:
    return draw.pick([choice for choice in choices if choice != now])


def draw_words(draw: Draw) -> str:
    return " ".join(draw.some(WORDS, draw.between(1, 2)))


def unused(world: World) -> list[str]:
    """Things that no ticket is about."""
    about = {it["title"].partition(" ")[2] for it in world["tickets"].values()}
    return [thing for thing in STEMS if thing not in about]
