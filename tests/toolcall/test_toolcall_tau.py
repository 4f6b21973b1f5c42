from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.benchmarks.tau import is_domain, open_tau
from clawrl_gym.envs.toolcall.benchmarks.tau_retail import TauRetail
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.source import open_source
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure

PLACE = {"address1": "1 A St", "address2": "", "city": "B", "state": "C", "country": "D"}


def variant(item: str, price: float, available: bool = True) -> dict[str, Any]:
    return {"item_id": item, "options": {}, "available": available, "price": price}


def order(order_id: str, status: str, paid_by: str = "card_1") -> dict[str, Any]:
    items = [{"name": "Mug", "product_id": "9", "item_id": "11", "price": 10.5, "options": {}}]
    paid = {"transaction_type": "payment", "amount": 10.5, "payment_method_id": paid_by}
    return {
        "order_id": order_id, "user_id": "ana", "address": {**PLACE, "zip": "1"}, "items": items,
        "status": status, "payment_history": [paid],
    }  # fmt: skip


DATA: Any = {
    "users": {
        "ana": {
            "name": {"first_name": "Ana", "last_name": "Lee"},
            "address": {**PLACE, "zip": "10234"},
            "email": "ana@example.com",
            "payment_methods": {
                "card_1": {"source": "credit_card", "id": "card_1"},
                "gift_card_1": {"source": "gift_card", "id": "gift_card_1", "balance": 12},
            },
            "orders": ["#W1", "#W2", "#W3"],
        }
    },
    "orders": {
        "#W1": order("#W1", "pending"),
        "#W2": order("#W2", "delivered"),
        "#W3": order("#W3", "pending", "gift_card_1"),
    },
    "products": {
        "9": {
            "name": "Mug",
            "product_id": "9",
            "variants": {
                "11": variant("11", 10.5),
                "12": variant("12", 20.25),
                "13": variant("13", 30.0),
                "14": variant("14", 1.0, available=False),
            },
        }
    },
}
CANCEL = ("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})


def first(folder: Path, *tasks: str, split: str = "test", data: Any = DATA) -> Path:
    """A domain's folder as tau-bench has it."""
    (folder / "data").mkdir(exist_ok=True)
    for name, table in data.items():
        (folder / "data" / f"{name}.json").write_text(json.dumps(table))
    (folder / "wiki.md").write_text("# Rules")
    name = f"TASKS_{split.upper()}"
    text = f"from tau_bench.types import Task, Action\n{name} = [{', '.join(tasks)}]\n"
    (folder / f"tasks_{split}.py").write_text(text)
    return folder


def task(*actions: tuple[str, dict[str, Any]], outputs: tuple[str, ...] = ()) -> str:
    made = ", ".join(f"Action(name={name!r}, kwargs={given!r})" for name, given in actions)
    return (
        f'Task(annotator="0", user_id="ana", instruction="You are Ana.", actions=[{made}], '
        f"outputs={list(outputs)!r})"
    )


def second(
    folder: Path, *tasks: dict[str, Any], splits: dict[str, list[str]] | None = None
) -> Path:
    """A domain's folder as tau2-bench has it."""
    (folder / "db.json").write_text(json.dumps(DATA))
    (folder / "policy.md").write_text("# Policy")
    (folder / "tasks.json").write_text(json.dumps(tasks))
    if splits is not None:
        (folder / "split_tasks.json").write_text(json.dumps(splits))
    return folder


def task2(task_id: str = "0", **criteria: Any) -> dict[str, Any]:
    instructions = {"reason_for_call": "Cancel it.", "known_info": "You are Ana.", "domain": "x"}
    actions = [{"action_id": "a", "name": CANCEL[0], "arguments": CANCEL[1]}]
    return {
        "id": task_id,
        "user_scenario": {"instructions": instructions},
        "evaluation_criteria": {"actions": actions, "communicate_info": ["10.5"], **criteria},
    }


def play(path: Path, *actions: Reply) -> float:
    env = ToolCallEnv(tasks=str(path))
    try:
        env.reset(options={"task": "tau-test-0"})
        for action in actions:
            _, reward, terminated, truncated, _ = env.step(encode(action))
            if terminated or truncated:
                return float(reward)
        return env.finish()
    finally:
        env.close()


def calling(name: str, arguments: dict[str, Any]) -> Reply:
    return Reply("", (Call("c", name, json.dumps(arguments)),))


def test_the_gold_actions_solve_a_task_and_nothing_else_does(tmp_path: Path) -> None:
    path = first(tmp_path, task(CANCEL, outputs=("10.5",)))
    solution = open_tau(path, ToolContext()).load("tau-test-0").solution
    other = calling("cancel_pending_order", {"order_id": "#W3", "reason": "no longer needed"})
    assert play(path, *solution) == 1.0
    assert play(path, calling(*CANCEL), Reply("You get 10.5 back.")) == 1.0
    assert play(path, calling(*CANCEL), Reply("You get 110.5 back.")) == 0.0
    assert play(path, calling(*CANCEL), other, Reply("You get 10.5 back.")) == 0.0
    assert play(path, Reply("You get 10.5 back.")) == 0.0
    assert play(path) == 0.0


def test_a_task_that_changes_nothing_is_not_solved_by_doing_nothing(tmp_path: Path) -> None:
    path = first(tmp_path, task(("get_user_details", {"user_id": "ana"})))
    assert play(path) == 0.0
    assert play(path, Reply("That cannot be.")) == 1.0


def test_the_policy_is_the_system_message_and_the_user_tells_who_it_is(tmp_path: Path) -> None:
    path = first(tmp_path, task(CANCEL))
    scripted, played = (
        open_tau(path, ToolContext(ToolCallEnvConfig(user=user))).load("tau-test-0")
        for user in ("scripted", "model")
    )
    assert scripted.system == "# Rules"
    assert scripted.instruction.endswith("You are Ana.")
    assert "Ana" not in played.instruction
    assert played.customer == {"type": "role", "instruction": "You are Ana."}


def test_train_and_test_files_are_the_splits(tmp_path: Path) -> None:
    first(tmp_path, task(CANCEL), split="train")
    tasks = str(first(tmp_path, task(CANCEL), task(CANCEL)))
    source = open_source(ToolContext(ToolCallEnvConfig(tasks=tasks)))
    assert source.ids("train") == ["tau-train-0"]
    assert source.ids("heldout") == ["tau-test-0", "tau-test-1"]


def test_tasks_of_the_second_benchmark_are_read_too(tmp_path: Path) -> None:
    splits = {"train": ["0"], "test": ["1"]}
    source = open_tau(second(tmp_path, task2("0"), task2("1"), splits=splits), ToolContext())
    assert (source.ids("train"), source.ids("heldout")) == (["tau-0"], ["tau-1"])
    one = source.load("tau-0")
    assert (one.system, one.instruction.endswith("Cancel it.\nYou are Ana.")) == ("# Policy", True)


@pytest.mark.parametrize(
    ("criteria", "why"),
    [
        ({"reward_basis": ["DB", "NL_ASSERTION"], "nl_assertions": ["It is kind."]}, "judge"),
        ({"reward_basis": ["ENV_ASSERTION"], "env_assertions": [
            {"env_type": "user", "func_name": "assert_x", "arguments": {}}]}, "not built in"),
        ({"env_assertions": [{"x": 1}]}, "cannot be read"),
        ({"reward_basis": ["TASTE"]}, "TASTE"),
        ({"actions": [{"name": "book_flight", "arguments": {}}]}, "book_flight"),
        ({"actions": [{"name": CANCEL[0], "arguments": {"order_id": 3}}]}, "gold action"),
        ({"actions": [{"name": CANCEL[0], "arguments": CANCEL[1], "requestor": "user"}]},
         "not built in"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_here_is_left_out(
    criteria: dict[str, Any], why: str, tmp_path: Path
) -> None:
    source = open_tau(second(tmp_path, task2("0"), task2("1", **criteria)), ToolContext())
    assert list(source.tasks) == ["tau-0"]
    assert why in str(source.selection.reason_of("tau-1"))
    with pytest.raises(TaskError, match=why):
        source.load("tau-1")
    with pytest.raises(TaskError, match=f"no task of .*{why}"):
        open_tau(second(tmp_path, task2("1", **criteria)), ToolContext())


def test_one_row_that_cannot_be_read_does_not_refuse_the_others(tmp_path: Path) -> None:
    rows: list[Any] = [task2("0"), 3, {"id": "1"}, task2("0")]
    source = open_tau(second(tmp_path, *rows), ToolContext())
    assert list(source.tasks) == ["tau-0"]
    assert [one.name for one in source.selection.left_out] == ["task 2", "tau-1", "task 4"]


ODD_TASKS = (
    "Task()",
    "Task(instruction=5, actions=[], outputs=[])",
    "Task(instruction=' ', actions=[], outputs=[])",
    "Task(instruction=f'{x}', actions=[], outputs=[])",
    "Task(instruction='a', actions=None, outputs=[])",
    "Task(instruction='a', actions=[5], outputs=[])",
    "Task(instruction='a', actions=[Action()], outputs=[])",
    "Task(instruction='a', actions=[Action(name=5, kwargs={})], outputs=[])",
    "Task(instruction='a', actions=[Action(name=['x'], kwargs={})], outputs=[])",
    "Task(instruction='a', actions=[Action(name='calculate', kwargs=5)], outputs=[])",
    "Task(instruction='a', actions=[Action(name='fly', kwargs={})], outputs=[])",
    "Task(instruction='a', actions=[Action(name='calculate', kwargs={'x': 1})], outputs=[])",
    "Task(instruction='a', actions=[Action(name='calculate', kwargs={1, 2})], outputs=[])",
    "Task(instruction='a', actions=[], outputs=5)",
    "Task(instruction='a', actions=[], outputs=open('x'))",
    "Task('a', [], [])",
    "Task(**{})",
    "Task(instruction=open('x'), actions=[], outputs=[])",
    "Task(instruction='a', actions=(), outputs=None)",
    "Task(instruction=b'a', actions=[], outputs=[])",
)


@pytest.mark.parametrize("odd", ODD_TASKS)
def test_one_task_of_python_that_cannot_be_read_leaves_the_others(odd: str, tmp_path: Path) -> None:
    good = "Task(instruction='Cancel it.', actions=[], outputs=[])"
    source = open_tau(first(tmp_path, odd, good), ToolContext())
    assert list(source.tasks) == ["tau-test-1"]
    assert [one.name for one in source.selection.left_out] == ["tau-test-0"]


def test_task_files_are_read_and_never_run(tmp_path: Path) -> None:
    path = first(tmp_path, 'Task(instruction=open("owned", "w"), actions=[], outputs=[])')
    with pytest.raises(TaskError, match="literal values"):
        open_tau(path, ToolContext())
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda f: (f / "data" / "orders.json").unlink(), "retail"),
        (lambda f: (f / "data" / "orders.json").write_text("{"), "not JSON"),
        (lambda f: (f / "tasks_test.py").unlink(), "no tasks_train"),
        (lambda f: (f / "tasks_test.py").write_text("Task("), "SyntaxError"),
        (lambda f: (f / "tasks_test.py").write_text("Task(actions=[])"), "KeyError"),
        (lambda f: (f / "wiki.md").unlink(), "wiki.md"),
    ],
)
def test_a_folder_with_something_missing_is_a_task_error(
    spoil: Any, why: str, tmp_path: Path
) -> None:
    first(tmp_path, task(CANCEL))
    spoil(tmp_path)
    with pytest.raises(TaskError, match=why):
        open_tau(tmp_path, ToolContext())


def test_each_change_leaves_what_it_should_and_the_shared_data_as_it_was() -> None:
    before = json.dumps(DATA)
    shop = TauRetail(DATA)
    swap = {"item_ids": ["11"], "new_item_ids": ["12"]}
    shop.call("cancel_pending_order", {"order_id": "#W3", "reason": "ordered by mistake"}, 1.0)
    shop.call("modify_user_address", {"user_id": "ana", **PLACE, "zip": "7"}, 1.0)
    shop.call(
        "modify_pending_order_payment", {"order_id": "#W1", "payment_method_id": "gift_card_1"}, 1.0
    )
    shop.call(
        "exchange_delivered_order_items",
        {"order_id": "#W2", **swap, "payment_method_id": "card_1"},
        1.0,
    )
    state = shop.state()
    # 12 and 10.5 back for #W3, less 10.5 for #W1.
    assert state["users"]["ana"]["payment_methods"]["gift_card_1"]["balance"] == 12
    assert state["users"]["ana"]["address"]["zip"] == "7"
    assert state["orders"]["#W3"]["status"] == "cancelled"
    assert len(state["orders"]["#W1"]["payment_history"]) == 3
    assert state["orders"]["#W2"]["exchange_price_difference"] == 9.75
    assert state["products"] == {}
    assert json.dumps(DATA) == before


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("find_user_id_by_email", {"email": "x"}, "user not found"),
        ("get_order_details", {"order_id": "W1"}, "order not found"),
        ("cancel_pending_order", {"order_id": "#W2", "reason": "x"}, "delivered, not pending"),
        ("cancel_pending_order", {"order_id": "#W1", "reason": "x"}, "expected the reason"),
        ("modify_pending_order_payment", {"order_id": "#W1", "payment_method_id": "card_1"}, "al"),
        ("modify_pending_order_payment", {"order_id": "#W1", "payment_method_id": "x"}, "payment"),
        ("modify_pending_order_items", {"order_id": "#W1", "item_ids": ["11"],
         "new_item_ids": ["13"], "payment_method_id": "gift_card_1"}, "too low"),
        ("modify_pending_order_items", {"order_id": "#W1", "item_ids": ["11"],
         "new_item_ids": ["14"], "payment_method_id": "card_1"}, "not available"),
        ("exchange_delivered_order_items", {"order_id": "#W2", "item_ids": ["11"],
         "new_item_ids": [], "payment_method_id": "card_1"}, "as many"),
        ("return_delivered_order_items", {"order_id": "#W2", "item_ids": ["11", "11"],
         "payment_method_id": "card_1"}, "no item"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(
    name: str, arguments: dict[str, Any], why: str
) -> None:
    shop = TauRetail(DATA)
    with pytest.raises(ToolFailure, match=why):
        shop.call(name, arguments, 1.0)
    assert not any(shop.state().values())


def test_a_task_of_the_first_benchmark_is_read_in_whole(tmp_path: Path) -> None:
    look = ("get_user_details", {"user_id": "ana"})
    path = first(tmp_path, task(look, CANCEL, outputs=("10.5", "12")), task(look))
    source = open_tau(path, ToolContext())
    one, bare = source.load("tau-test-0"), source.load("tau-test-1")
    assert (one.family, one.toolsets, one.turns) == ("tau_retail", ("tau_retail",), 30)
    assert one.instruction == "This is who I am and what I want. You are Ana."
    assert one.state == {"tau_retail": DATA}
    assert one.solution == (
        Reply("", (Call("call-1", look[0], json.dumps(look[1])),)),
        Reply("", (Call("call-2", CANCEL[0], json.dumps(CANCEL[1])),)),
        Reply("Everything is done. 10.5, 12"),
    )
    assert bare.solution[-1] == Reply("Everything is done.")
    assert (len(one.goals), len(bare.goals)) == (3, 2)
    played = open_tau(path, ToolContext(ToolCallEnvConfig(user="model"))).load("tau-test-0")
    assert played.instruction == "Hi, I need some help."


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (("fly", {}), "its gold actions call 'fly', which is not built in"),
        (("get_user_details", {"user_id": 3}), "its gold action get_user_details: "),
        (("get_user_details", {}), "its gold action get_user_details: "),
    ],
)
def test_gold_actions_that_are_no_calls_leave_their_task_out(
    action: tuple[str, dict[str, Any]], why: str, tmp_path: Path
) -> None:
    source = open_tau(first(tmp_path, task(CANCEL), task(action)), ToolContext())
    assert list(source.tasks) == ["tau-test-0"]
    (left_out,) = source.selection.left_out
    assert left_out.name == "tau-test-1"
    assert left_out.reason.startswith(why)


def test_a_gold_action_that_fails_is_passed_over(tmp_path: Path) -> None:
    failing = ("cancel_pending_order", {"order_id": "#W2", "reason": "no longer needed"})
    path = first(tmp_path, task(failing, CANCEL))
    assert play(path, calling(*CANCEL), Reply("Done.")) == 1.0
    assert play(path, calling(*failing), calling(*CANCEL), Reply("Done.")) == 1.0


def test_what_is_a_domain_is_told_by_its_files(tmp_path: Path) -> None:
    assert not is_domain(tmp_path)
    assert is_domain(first(tmp_path, task(CANCEL)))
    other = tmp_path / "other"
    other.mkdir()
    assert not is_domain(other)
    assert is_domain(second(other, task2()))
