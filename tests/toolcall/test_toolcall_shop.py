from __future__ import annotations

import json
from itertools import product

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.showcase.toolcall import shop
from clawrl_gym.envs.showcase.toolcall.shop.families import FAMILIES
from clawrl_gym.envs.showcase.toolcall.shop.generated import shop_tasks
from clawrl_gym.envs.showcase.toolcall.shop.toolset import ShopTools
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.source import open_source
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure

WORLD = {
    "users": {
        "u1": {"name": "Ana Lee", "zip": "10234", "address": "3 River Road"},
        "u2": {"name": "Bo Roe", "zip": "20234"},
    },
    "orders": {
        "W1": {"user": "u1", "items": ["p1", "p2"], "address": "3 River Road"},
        "W2": {"user": "u1", "items": ["p1", "p1"], "status": "delivered", "days": 3},
        "W3": {"user": "u2", "items": ["p1"], "status": "shipped"},
    },
    "products": {
        "p1": {"name": "red lamp", "kind": "lamp", "price": 20, "stock": 1},
        "p2": {"name": "blue chair", "kind": "chair", "price": 30, "stock": 1},
        "p3": {"name": "blue lamp", "kind": "lamp", "price": 25, "stock": 0},
        "p4": {"name": "black lamp", "kind": "lamp", "price": 15, "stock": 2},
    },
}


def opened(state: object = WORLD) -> ShopTools:
    task = ToolTask("t", "f", "train", "hello", (), toolsets=("shop",), state={"shop": state})
    return shop.make(task, ToolContext())


def call(toolset: ShopTools, tool: str, **arguments: object) -> str:
    return toolset.call(tool, arguments, 1.0)


def play(env: ToolCallEnv, task_id: str, actions: tuple[str, ...]) -> float:
    env.reset(options={"task": task_id})
    reward, over = 0.0, False
    for action in actions:
        assert not over, f"{task_id} ended before {action}"
        _, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    return float(reward) if over else env.finish()


def env_of_shop() -> ToolCallEnv:
    return ToolCallEnv(tasks="shop")


def test_a_user_is_found_in_any_case_and_not_with_another_zip() -> None:
    toolset = opened()
    assert json.loads(call(toolset, "find_user", name=" ana LEE", zip="10234"))["orders"] == [
        "W1",
        "W2",
    ]
    with pytest.raises(ToolFailure, match="no user"):
        call(toolset, "find_user", name="Ana Lee", zip="1")


def test_cancelling_gives_the_stock_back_and_cannot_be_done_twice() -> None:
    toolset = opened()
    assert call(toolset, "cancel_order", order="W1", reason="no longer needed") == "cancelled W1"
    state = toolset.state()
    assert state["orders"]["W1"]["status"] == "cancelled"
    assert state["products"]["p1"]["stock"] == 2
    with pytest.raises(ToolFailure, match="W1 is cancelled, not pending"):
        call(toolset, "cancel_order", order="W1", reason="again")


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("get_order", {"order": "W9"}, "no order W9"),
        ("change_address", {"order": "W3", "address": "x"}, "shipped"),
        ("change_address", {"order": "W1", "address": " "}, "1 to 200"),
        ("move_user", {"user": "u1", "address": "x" * 201}, "1 to 200"),
        ("exchange_item", {"order": "W2", "item": "p2", "product": "p4"}, "has no p2"),
        ("exchange_item", {"order": "W2", "item": "p1", "product": "p2"}, "is a lamp"),
        ("exchange_item", {"order": "W2", "item": "p1", "product": "p3"}, "not in stock"),
        ("exchange_item", {"order": "W2", "item": "p1", "product": "p1"}, "already"),
        ("exchange_item", {"order": "W3", "item": "p1", "product": "p4"}, "shipped"),
        ("return_items", {"order": "W2", "items": []}, "at least one"),
        ("return_items", {"order": "W2", "items": ["p1", "p1", "p1"]}, "no p1 left"),
        ("return_items", {"order": "W1", "items": ["p1"]}, "not delivered"),
        ("list_products", {"kind": "car"}, "kinds: chair, lamp"),
        ("steal", {}, "no such tool"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    tool: str, arguments: dict[str, object], why: str
) -> None:
    toolset = opened()
    before = toolset.state()
    with pytest.raises(ToolFailure, match=why):
        toolset.call(tool, arguments, 1.0)
    assert toolset.state() == before


def test_items_that_come_back_are_the_same_whatever_the_order_of_the_calls() -> None:
    one, other = opened(), opened()
    call(one, "return_items", order="W2", items=["p1", "p1"])
    call(other, "return_items", order="W2", items=["p1"])
    call(other, "return_items", order="W2", items=["p1"])
    assert one.state() == other.state()
    with pytest.raises(ToolFailure, match="it has: nothing"):
        call(one, "return_items", order="W2", items=["p1"])


def test_a_task_s_state_is_not_what_its_episode_changes() -> None:
    before = json.dumps(WORLD)
    call(opened(), "exchange_item", order="W2", item="p1", product="p4")
    assert json.dumps(WORLD) == before


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"orders": {"W1": {"user": "u9", "items": []}}}, "W1"),
        ({"users": {"u1": {"name": 3}}}, "users.u1.name"),
        ({"planets": {}}, "planets"),
        ([], "shop"),
    ],
)
def test_a_wrong_state_is_a_task_error_that_names_the_place(state: object, where: str) -> None:
    with pytest.raises(TaskError, match=where):
        opened(state)


def test_the_solution_of_every_family_earns_one_and_doing_nothing_earns_none() -> None:
    env = env_of_shop()
    for family, split, number in product(FAMILIES, ("train", "heldout"), (0, 7)):
        task_id = f"shop-{family}-{split}-{number:06d}"
        env.reset(options={"task": task_id})
        solution = env.solve()
        assert play(env, task_id, solution) == 1.0, (task_id, env.report)
        assert play(env, task_id, ()) == 0.0, task_id
        assert play(env, task_id, (encode(Reply("All done, bye.")),)) == 0.0, task_id
    env.close()


def test_there_are_ten_templates_and_more_and_some_can_only_be_refused() -> None:
    assert len(FAMILIES) >= 10
    refused = [name for name in FAMILIES if not _changes_anything(name)]
    assert {"cancel_shipped", "cancel_stranger", "return_late", "wrong_zip"} <= set(refused)


def _changes_anything(family: str) -> bool:
    task = shop_tasks().load(f"shop-{family}-train-000001")
    goal = next(goal for goal in task.goals if hasattr(goal, "expected"))
    return bool(goal.expected != task.state["shop"])


def test_doing_what_the_rules_forbid_earns_nothing_even_if_the_tool_allows_it() -> None:
    task = shop_tasks().load("shop-return_late-train-000003")
    order = next(
        name for name, row in task.state["shop"]["orders"].items() if row["status"] == "delivered"
    )
    item = task.state["shop"]["orders"][order]["items"][0]
    asked, found, looked, refused, again = map(encode, task.solution)
    env = env_of_shop()
    taken = encode(Reply("", (_call("return_items", order=order, items=[item]),)))
    assert play(env, task.id, (asked, found, looked, taken, refused, again)) == 0.0
    assert "returned" in env.report
    env.close()


def test_changing_an_order_before_the_customer_is_known_earns_nothing() -> None:
    task = shop_tasks().load("shop-two_wishes-train-000003")
    asked, found, *rest = map(encode, task.solution)
    env = env_of_shop()
    env.reset(options={"task": task.id})
    reordered = (asked, rest[0], found, *rest[1:])
    assert play(env, task.id, reordered) == 0.0
    assert "looked up" in env.report
    env.close()


def test_the_same_id_is_the_same_task_and_no_wish_is_in_both_splits() -> None:
    tasks = shop_tasks()
    for family in FAMILIES:
        train, again = (tasks.load(f"shop-{family}-train-000005") for _ in range(2))
        assert train == again
    told = {
        split: {tasks.load(task_id).instruction for task_id in tasks.ids(split)[:300]}
        for split in ("train", "heldout")
    }
    assert not told["train"] & told["heldout"]


@pytest.mark.parametrize(
    "task_id",
    ["", "shop-", "shop-cancel-train-5", "shop-steal-train-000001", "shop-cancel-test-000001",
     "shop-cancel-heldout-001000", "cancel-train-000001", "shop-cancel-train-00000\u0661"],
)  # fmt: skip
def test_what_is_no_id_is_a_task_error(task_id: str) -> None:
    with pytest.raises(TaskError, match="expected shop-FAMILY"):
        shop_tasks().load(task_id)


def test_the_source_names_families_and_refuses_unknown_ones() -> None:
    source = open_source(
        ToolContext(ToolCallEnvConfig.of({"tasks": "shop", "families": ["cancel"]}, "env."))
    )
    assert source.ids("train")[0] == "shop-cancel-train-000000"
    with pytest.raises(ConfigError, match="expected some of"):
        open_source(
            ToolContext(ToolCallEnvConfig.of({"tasks": "shop", "families": ["steal"]}, "env."))
        )
    with pytest.raises(ConfigError, match="there is no"):
        open_source(ToolContext(ToolCallEnvConfig.of({"tasks": "/nowhere/at/all.json"}, "env.")))
    with pytest.raises(ConfigError, match="generated tasks only"):
        open_source(
            ToolContext(
                ToolCallEnvConfig.of(
                    {"tasks": "/nowhere/at/all.json", "families": ["cancel"]}, "env."
                )
            )
        )


def _call(tool: str, **arguments: object) -> Call:
    return Call("x", tool, json.dumps(arguments))
