"""The space of the shop's tasks: `shop-FAMILY-SPLIT-NUMBER`, and everything follows from the id.

The state that is wanted is what the solution's own calls leave. A customer's first words belong to
one split by their hash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.toolcall.shop.case import ShopCase, ShopRequest
from clawrl_gym.envs.showcase.toolcall.shop.families import FAMILIES, RULES
from clawrl_gym.envs.showcase.toolcall.shop.goals import IdentificationGoal
from clawrl_gym.envs.showcase.toolcall.shop.toolset import ShopTools
from clawrl_gym.envs.showcase.toolcall.shop.world import read_world
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)
from clawrl_gym.envs.toolcall.goals import StateGoal
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolFailure

PREFIX = "shop-"
MAX_TURNS = 20
"""Replies of an episode, its calls among them."""


def shop_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[ToolTask]:
    """The shop's tasks as a source; None takes all families.

    Raises ConfigError for an unknown family or an empty list.
    """
    return GeneratedTasks(select_families(FAMILIES, families), make_task, PREFIX)


def make_task(task_id: str) -> ToolTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, FAMILIES, PREFIX)
    case, request = draw_content(
        parsed.split, task_id, FAMILIES[parsed.family], lambda content: split_of(content[1])
    )
    return _task(task_id, parsed.family, parsed.split, case, request)


def split_of(request: ShopRequest) -> Split:
    """The one split that a customer's first words belong to."""
    return split_of_content(request.opening)


def _task(
    task_id: str, family: str, split: Split, case: ShopCase, request: ShopRequest
) -> ToolTask:
    state = case.world.model_dump()
    identification = (IdentificationGoal(case.user_id),) if request.is_user else ()
    return ToolTask(
        id=task_id,
        family=family,
        split=split,
        instruction=request.opening,
        goals=(StateGoal("shop", _left_by(request, state)), *identification, *request.goals),
        toolsets=("shop",),
        system=RULES,
        state={"shop": state},
        customer=request.customer,
        solution=request.solution,
        turns=MAX_TURNS,
    )


def _left_by(request: ShopRequest, state: dict[str, object]) -> dict[str, object]:
    """The state after the solution's calls."""
    shop = ShopTools(read_world(state))
    for reply in request.solution:
        for call in reply.calls:
            try:
                shop.call(call.name, json.loads(call.arguments), 1.0)
            except ToolFailure:
                if call.name != "find_user":  # of somebody who is none
                    raise
    return shop.state()
