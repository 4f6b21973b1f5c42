"""Do our databases and rewards agree with tau2-bench's own, on gold actions and on changed ones?

    git clone https://github.com/sierra-research/tau2-bench && python -m venv /tmp/tau2
    /tmp/tau2/bin/pip install ./tau2-bench
    python bench/tau2_agreement.py tau2-bench /tmp/tau2/bin/python [--cases 1600] [--seed 0]

A case is a task, a list of calls and a last message. Both sides carry it out on the same data and
grade it: ours with the goals of the task, tau2-bench with its evaluator, in a process of that
Python. Two lists, made in different ways: `changes` edits gold actions (dropped, repeated, moved,
other arguments, others' actions), `random` calls any tool with ids from anywhere in the data.
Assertions in words are left out of `reward_basis` on both sides: they are a model's. The data is
cut to the rows that some task names and a few more, so that the other side loads it in a moment;
`--whole` leaves it whole.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.envs.toolcall.benchmarks.tau import open_tau
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.grading import grade
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome, ToolTask
from clawrl_gym.envs.toolcall.toolbox import Toolbox, UserTools
from clawrl_gym.envs.toolcall.toolset import ToolContext

DOMAINS = ("retail", "airline", "telecom")
SPARE_ROWS = 20
_OTHER_SIDE = """\
import json, sys
from loguru import logger
logger.remove()
out, sys.stdout = sys.stdout, sys.stderr
from tau2.registry import registry
from tau2.data_model.message import AssistantMessage, ToolCall, UserMessage
from tau2.data_model.simulation import SimulationRun
from tau2.data_model.tasks import Task
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

from copy import deepcopy
from tau2.domains.telecom.user_tools import TelecomUserTools
vpn = deepcopy(TelecomUserTools.default_vpn_details)

def dumps(env):
    both = {"agent": env.tools.db.model_dump(mode="json")}
    if env.user_tools is not None:
        both["user"] = env.user_tools.db.model_dump(mode="json")
    return both

for line in sys.stdin:
    case = json.loads(line)
    # A VPN that one task breaks stays broken for all later ones of a process there.
    TelecomUserTools.default_vpn_details = deepcopy(vpn)
    task = Task.model_validate(case["task"])
    env = registry.get_env_constructor(case["domain"])(solo_mode=case["alone"])
    before = dumps(env)
    initial = task.initial_state
    env.set_state(None, initial.initialization_actions if initial else None, [])
    messages, failed = [], []
    for number, call in enumerate(case["calls"]):
        side = "assistant" if case["alone"] else call["side"]
        one = ToolCall(
            id=str(number), name=call["name"], arguments=call["arguments"], requestor=side
        )
        kind = UserMessage if side == "user" else AssistantMessage
        answer = env.get_response(one)
        failed.append(answer.error)
        messages += [kind(role=side, tool_calls=[one]), answer]
    messages.append(AssistantMessage(role="assistant", content=case["last_message"]))
    run = SimulationRun(
        id="x", task_id=task.id, timestamp="", start_time="", end_time="", duration=0.0,
        termination_reason="agent_stop", messages=messages,
    )
    try:
        info = evaluate_simulation(run, task, EvaluationType.ALL, case["alone"], case["domain"])
        reward = info.reward
    except Exception as error:
        reward = f"{type(error).__name__}: {error}"[:300]
    after = dumps(env)
    print(json.dumps({"reward": reward, "failed": failed, "before": before if case["first"] else
          None, "after": after}), file=out, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A case that is carried out on both sides."""

    domain: str
    task: ToolTask
    row: dict[str, Any]
    """The row of the file."""
    calls: list[dict[str, Any]]
    last_message: str
    kind: str
    alone: bool


def cut_data(checkout: Path, root: Path, whole: bool) -> None:
    """The files of the three domains, their tables with the rows that tasks name and a few more."""
    for domain in DOMAINS:
        source = checkout / "data" / "tau2" / "domains" / domain
        place = root / "tau2" / "domains" / domain
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("*voice*", "audio*", "*full*"))
        if whole or domain == "telecom":
            continue
        tables = json.loads((place / "db.json").read_text())
        kept = cut_tables(tables, (place / "tasks.json").read_text())
        (place / "db.json").write_text(json.dumps(kept))
    guidelines = checkout / "data" / "tau2" / "user_simulator"
    if guidelines.is_dir():
        shutil.copytree(guidelines, root / "tau2" / "user_simulator")


def cut_tables(tables: dict[str, Any], text: str) -> dict[str, Any]:
    """Tables with every row that the text names, and every row that one of those names."""
    kept: dict[str, Any] = {}
    for name in ("products", "flights", "orders", "reservations", "users"):
        rows = tables.get(name, {})
        others = [key for key in rows if key not in text][:SPARE_ROWS]
        keys = [key for key in rows if name == "products" or key in text or key in others]
        kept[name] = {key: rows[key] for key in keys}
        text += json.dumps(kept[name]) if name != "products" else ""
    return {name: kept[name] for name in tables}


def plain_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a domain, without assertions in words."""
    rows: list[dict[str, Any]] = json.loads((folder / "tasks.json").read_text())
    for row in rows:
        basis = row["evaluation_criteria"].get("reward_basis")
        if basis is not None:
            row["evaluation_criteria"]["reward_basis"] = [b for b in basis if b != "NL_ASSERTION"]
    return rows


def gold_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "side": action.get("requestor") or "assistant",
            "name": action["name"],
            "arguments": action["arguments"],
        }
        for action in row["evaluation_criteria"].get("actions") or ()
    ]


def last_message_of(row: dict[str, Any]) -> str:
    outputs = row["evaluation_criteria"].get("communicate_info") or ()
    return f"Everything is done. {', '.join(outputs)}".strip()


def changed(
    row: dict[str, Any], others: Sequence[dict[str, Any]], draw: random.Random
) -> tuple[str, list[dict[str, Any]], str]:
    """A gold list with one or two edits, and what kind they are."""
    calls, last_message = copy.deepcopy(gold_of(row)), last_message_of(row)
    kind = draw.choice(["drop", "repeat", "move", "argument", "argument", "foreign", "said"])
    if kind == "said":
        others_said = ["Done.", last_message.upper(), last_message.replace(".", ". ,"), ""]
        return kind, calls, draw.choice(others_said)
    if kind == "foreign" or not calls:
        foreign = gold_of(draw.choice(others))
        at = draw.randrange(len(calls) + 1)
        calls[at:at] = copy.deepcopy(draw.sample(foreign, min(len(foreign), draw.choice([1, 2]))))
        return "foreign", calls, last_message
    at = draw.randrange(len(calls))
    if kind == "drop":
        del calls[at]
    elif kind == "repeat":
        calls.insert(draw.randrange(len(calls) + 1), copy.deepcopy(calls[at]))
    elif kind == "move":
        calls.insert(draw.randrange(len(calls)), calls.pop(at))
    else:
        call = calls[at]
        if call["arguments"]:
            name = draw.choice(list(call["arguments"]))
            call["arguments"][name] = other_value(call["arguments"][name], others, draw)
    return kind, calls, last_message


def other_value(value: Any, others: Sequence[dict[str, Any]], draw: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return draw.choice([value + 1, 0, -value, value * 2])
    if isinstance(value, list):
        edits = [value[::-1], value[:-1], value + value[:1]]
        if value:
            edits.append([other_value(value[0], others, draw), *value[1:]])
        return draw.choice(edits)
    if isinstance(value, dict):
        if not value:
            return value
        key = draw.choice(list(value))
        return {**value, key: other_value(value[key], others, draw)}
    texts = [
        text
        for row in draw.sample(list(others), min(4, len(others)))
        for call in gold_of(row)
        for text in call["arguments"].values()
        if isinstance(text, str)
    ]
    return draw.choice([*texts, f"{value}x", value.upper(), "", value])


class Anything:
    """Calls of any tool with values from anywhere in the data: no gold list is looked at."""

    def __init__(self, task: ToolTask, tables: object, context: ToolContext) -> None:
        box = Toolbox.open(task, context)
        self._schemas = [one["function"] for one in box.schemas]
        self._texts = [text for text in _leaves(tables) if isinstance(text, str)]
        box.close()

    def calls(self, draw: random.Random) -> list[dict[str, Any]]:
        chosen = draw.choices(self._schemas, k=draw.randrange(1, 6))
        return [
            {
                "side": "assistant",
                "name": schema["name"],
                "arguments": {
                    name: self._value(part, draw)
                    for name, part in schema["parameters"]["properties"].items()
                },
            }
            for schema in chosen
        ]

    def _value(self, schema: dict[str, Any], draw: random.Random) -> Any:
        if "enum" in schema:
            return draw.choice(schema["enum"])
        kind = schema["type"]
        if kind == "array":
            return [self._value(schema["items"], draw) for _ in range(draw.randrange(1, 3))]
        if kind == "object":
            parts = schema.get("properties", {})
            return {name: self._value(part, draw) for name, part in parts.items()}
        if kind == "boolean":
            return draw.choice([True, False])
        if kind in ("integer", "number"):
            return draw.choice([0, 1, 2, 50])
        return draw.choice(self._texts)


def _leaves(tables: Any) -> Iterator[object]:
    if isinstance(tables, dict):
        yield from tables
        for value in tables.values():
            yield from _leaves(value)
    elif isinstance(tables, list):
        for value in tables:
            yield from _leaves(value)
    else:
        yield tables


def cases_of(domain: str, folder: Path, alone: bool, count: int, seed: int) -> Iterator[Case]:
    """Gold of every task, then so many changed and half as many random ones."""
    draw = random.Random(f"{seed} {domain} {alone}")
    rows = plain_rows(folder)
    (folder / "tasks.json").write_text(json.dumps(rows))
    context = context_of(alone)
    table = open_tau(folder, context)
    by_task = [(table.tasks[f"tau-{row['id']}"], row) for row in rows if _is_in(row, table)]
    for task, row in by_task:
        yield Case(domain, task, row, gold_of(row), last_message_of(row), "gold", alone)
    others = [row for _, row in by_task]
    for _ in range(count):
        task, row = draw.choice(by_task)
        kind, calls, last_message = changed(row, others, draw)
        yield Case(domain, task, row, calls, last_message, kind, alone)
    if not alone and domain == "telecom":
        return  # whose calls they are, random ones do not say
    tables = next(iter(by_task[0][0].state.values()))
    anything = Anything(by_task[0][0], tables, context)
    for _ in range(count // 2):
        task, row = draw.choice(by_task)
        yield Case(domain, task, row, anything.calls(draw), last_message_of(row), "random", alone)


def _is_in(row: dict[str, Any], table: Any) -> bool:
    return f"tau-{row['id']}" in table.tasks


def context_of(alone: bool) -> ToolContext:
    return ToolContext(ToolCallEnvConfig(user="scripted" if alone else "model"))


def ours(case: Case) -> tuple[float, list[bool], Any]:
    """Reward, which calls failed, and the state that was left."""
    box = Toolbox.open(case.task, context_of(case.alone))
    shared = box.user_tools()
    executed: list[tuple[ExecutedCall, ...]] = []
    failed: list[bool] = []
    for number, call in enumerate(case.calls):
        wire = Call(str(number), call["name"], json.dumps(call["arguments"]))
        if call["side"] == "user" and not case.alone and isinstance(shared, UserTools):
            failed.append('"status": "error"' in shared.carry_out(wire, 1.0))
        else:
            executed.append(box.carry_out([wire], 1.0))
            failed.append(executed[-1][0].failed)
    user_calls = tuple(shared.calls) if shared else ()
    states = box.states()
    replies = (case.last_message,) if case.last_message else ()
    outcome = Outcome(replies, tuple(executed), states, user_calls)
    reward = grade([goal for goal in case.task.goals if not _is_ours(goal)], outcome).reward
    return reward, failed, next(iter(states.values()))


def _is_ours(goal: object) -> bool:
    """Whether its caller checks a goal, not the evaluator: it ended by itself, and it spoke."""
    return type(goal).__name__ in ("EndedGoal", "AnyReplyGoal")


def same_state(domain: str, mine: Any, before: Any, after: Any) -> bool:
    if domain == "telecom":
        theirs = {"operator": after["agent"], "phone": after["user"]}
        return bool(_even(mine) == _even(theirs))
    agent_before, agent = before["agent"], after["agent"]
    theirs = {
        table: {
            key: row for key, row in agent[table].items() if agent_before[table].get(key) != row
        }
        for table in mine
    }
    return bool(_even(mine) == _even(theirs))


def _even(value: Any) -> Any:
    """The value without nulls, and with one name for the bills that are drawn at random there."""
    if isinstance(value, dict):
        is_draft = value.get("status") == "Draft" and "bill_id" in value
        kept = {
            key: _even(part)
            for key, part in value.items()
            if part is not None
            and not (is_draft and key == "bill_id")
            and key not in ("created_at", "activation_date", "last_esim_transfer_date")
            and not (key == "description" and str(part).startswith("Data refueling"))
        }
        if isinstance(kept.get("bill_ids"), list):
            kept["bill_ids"] = len(kept["bill_ids"])
        return kept
    if isinstance(value, list):
        return [_even(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class OtherSide:
    """tau2-bench in a process of its own."""

    def __init__(self, python: str, checkout: Path, data: Path) -> None:
        env = {
            **os.environ,
            "TAU2_DATA_DIR": str(data),
            "PYTHONPATH": str(checkout / "src"),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        self._process = subprocess.Popen(
            [python, "-c", _OTHER_SIDE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=env,
        )  # fmt: skip
        self._before: dict[tuple[str, bool], Any] = {}

    def run(self, case: Case) -> tuple[Any, list[bool], Any, Any]:
        """Reward or error, which calls failed, and the databases before and after."""
        key = (case.domain, case.alone)
        request = {
            "domain": case.domain, "task": case.row, "calls": case.calls,
            "last_message": case.last_message,
            "alone": case.alone and case.domain == "telecom", "first": key not in self._before,
        }  # fmt: skip
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the other side has no pipes")
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise SystemExit("tau2-bench's process ended: does its Python have its dependencies?")
        answer = json.loads(line)
        if answer["before"] is not None:
            self._before[key] = answer["before"]
        return answer["reward"], answer["failed"], self._before[key], answer["after"]

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("python")
    parser.add_argument("--cases", type=int, default=1600, help="changed ones, of all domains")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=DOMAINS)
    parser.add_argument("--show", type=int, default=10, help="disagreements to show")
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    count: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        cut_data(options.checkout, Path(folder), options.whole)
        other = OtherSide(options.python, options.checkout.resolve(), Path(folder))
        disagreements = 0
        for domain in options.domains:
            for alone in (True, False) if domain == "telecom" else (False,):
                place = Path(folder) / "tau2" / "domains" / domain
                each = options.cases // (len(DOMAINS) + 1)
                for case in cases_of(domain, place, alone, each, options.seed):
                    reward, failed, state = ours(case)
                    wanted, wanted_failed, before, after = other.run(case)
                    name = domain + (" alone" if alone else "")
                    list_name = case.kind if case.kind in ("gold", "random") else "changes"
                    is_same = same_state(domain, state, before, after)
                    row = (name, list_name)
                    count[*row, "cases"] += 1
                    count[*row, "reward"] += reward == wanted
                    count[*row, "state"] += is_same
                    count[*row, "failed"] += failed == wanted_failed
                    count[*row, "worth 1"] += wanted == 1.0
                    if not (reward == wanted and is_same) and disagreements < options.show:
                        disagreements += 1
                        print(json.dumps({
                            "domain": name, "task": case.task.id, "kind": case.kind,
                            "ours": [reward, failed], "theirs": [wanted, wanted_failed],
                            "same_state": is_same, "calls": case.calls,
                        })[:1500])  # fmt: skip
        other.close()
    show(count)


def show(count: Counter[tuple[str, str, str]]) -> None:
    columns = ("cases", "worth 1", "reward", "state", "failed")
    print("\n| domain | list | cases | worth 1 | same reward | same databases | same failures |")
    print("|---|---|---|---|---|---|---|")
    for name, kind in dict.fromkeys((name, kind) for name, kind, _ in count):
        figures = [count[name, kind, column] for column in columns]
        print(f"| {name} | {kind} | {' | '.join(map(str, figures))} |")
    totals = {c: sum(n for (_, _, x), n in count.items() if x == c) for c in columns}
    print(f"| all | | {' | '.join(str(totals[c]) for c in columns)} |")


if __name__ == "__main__":
    main()
