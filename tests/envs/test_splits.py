"""No request of a shipped family stands in both splits; where a request only points at something,
such as a note, what it points at does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import pytest

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation import generated as conversations
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.gui import generated as pages
from clawrl_gym.envs.showcase.gui.families import FAMILIES as PAGE_FAMILIES
from clawrl_gym.envs.showcase.swe.corpus import corpus
from clawrl_gym.envs.showcase.swe.corpus.repository import (
    draw_repository,
    families,
    repository_family,
)
from clawrl_gym.envs.showcase.terminal import generated as commands
from clawrl_gym.envs.showcase.terminal.families import FAMILIES as COMMAND_FAMILIES
from clawrl_gym.envs.showcase.toolcall import generated as tools
from clawrl_gym.envs.showcase.toolcall.families import FAMILIES as TOOL_FAMILIES
from clawrl_gym.envs.showcase.toolcall.shop import generated as shop
from clawrl_gym.envs.showcase.toolcall.shop.families import FAMILIES as SHOP_FAMILIES

Asked = tuple[str, str]
"""What is asked, and the split that it was drawn for."""


def of_command(name: str, draw: Draw) -> Asked:
    content = COMMAND_FAMILIES[name].draw(draw)
    asked = content.files["note.txt"].decode() if name == "note" else content.instruction
    return asked, commands.split_of(content)


def of_tool(name: str, draw: Draw) -> Asked:
    content = TOOL_FAMILIES[name].draft(draw)
    return content.instruction, tools.split_of(content)


def of_customer(name: str, draw: Draw) -> Asked:
    _, request = SHOP_FAMILIES[name](draw)
    return request.opening, shop.split_of(request)


def of_page(name: str, draw: Draw) -> Asked:
    content = PAGE_FAMILIES[name].draft(draw)
    return content.instruction, pages.split_of(name, content)


def of_repository(name: str, draw: Draw) -> Asked:
    content = draw_repository(repository_family(name), draw)
    return repr(sorted(content.broken.items())), corpus.split_of(content)


KINDS: dict[str, tuple[Callable[[str, Draw], Asked], Iterable[str], int]] = {
    "terminal": (of_command, COMMAND_FAMILIES, 400),
    "toolcall": (of_tool, TOOL_FAMILIES, 400),
    "shop": (of_customer, SHOP_FAMILIES, 200),
    "gui": (of_page, PAGE_FAMILIES, 200),
    "swe": (of_repository, families(), 200),
}
"""How a family draws, all families, and draws of each that are looked at."""


def splits(kind: str, times: int) -> dict[str, dict[str, set[str]]]:
    """By family, the splits of everything that is asked in so many draws."""
    draw_of, names, count = KINDS[kind]
    by_family: dict[str, dict[str, set[str]]] = {}
    for name in names:
        by_asked: dict[str, set[str]] = defaultdict(set)
        for number in range(count * times):
            asked, split = draw_of(name, Draw(f"splits/{kind}/{name}/{number}"))
            by_asked[asked].add(split)
        by_family[name] = by_asked
    return by_family


def in_both(by_family: dict[str, dict[str, set[str]]]) -> list[str]:
    asked_of = (by_asked.items() for by_asked in by_family.values())
    return [asked for items in asked_of for asked, drawn_for in items if len(drawn_for) > 1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_belongs_to_one_split(kind: str) -> None:
    by_family = splits(kind, 1)
    assert in_both(by_family) == []
    for name, by_asked in by_family.items():
        assert set().union(*by_asked.values()) == {"train", "heldout"}, name


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_belongs_to_one_split_in_many_draws(kind: str) -> None:
    assert in_both(splits(kind, 10)) == []


@pytest.mark.parametrize("persona", PERSONAS)
def test_a_problem_of_a_conversation_stands_in_one_split(persona: str) -> None:
    told = {}
    for split in ("train", "heldout"):
        ids = conversations.task_ids(persona, "train" if split == "train" else "heldout")
        tasks = [conversations.make_task(task_id) for task_id in ids[:800]]
        told[split] = {"\n".join(task.files.values()) or task.opening for task in tasks}
    assert len(told["heldout"]) > 400
    assert not told["train"] & told["heldout"]
