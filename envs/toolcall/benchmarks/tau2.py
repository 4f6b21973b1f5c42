"""Tasks of tau2-bench's retail, airline and telecom domains, from a copy of its files.

A folder `data/tau2/domains/NAME` (or a file of tasks in it, such as tasks_small.json) is read and
never run; tools and evaluation are ours, after its own (bench/tau2.py compares them). A reward is
the product over the task's `reward_basis`, as there. What cannot be graded here is left out and
says why. Without a model that plays the user, telecom is played alone, from the task's ticket.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import TaskError, boundary
from clawrl_gym.core.types import Split
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.task_ids import split_of_content
from clawrl_gym.envs.toolcall.benchmarks import tau_airline, tau_retail, tau_telecom
from clawrl_gym.envs.toolcall.benchmarks.task_table import (
    AnyReplyGoal,
    TaskTable,
    read_json,
    read_text,
)
from clawrl_gym.envs.toolcall.benchmarks.tau2_goals import (
    AssertionJudge,
    AssertionsGoal,
    CommunicatedGoal,
    EndedGoal,
    HoldsGoal,
    WantedCall,
    WantedCallsGoal,
)
from clawrl_gym.envs.toolcall.benchmarks.tau2_rows import (
    Action,
    Assertion,
    Criteria,
    FunctionCall,
    InitialState,
    TaskRow,
    Unusable,
    has_id,
    read_row,
    read_rows,
    read_toml,
    splits_of,
    tasks_file,
)
from clawrl_gym.envs.toolcall.benchmarks.tau_operator import TauOperator
from clawrl_gym.envs.toolcall.benchmarks.tau_phone_tools import TauPhone
from clawrl_gym.envs.toolcall.benchmarks.tau_telecom import TauTelecom
from clawrl_gym.envs.toolcall.goals import StateGoal
from clawrl_gym.envs.toolcall.schema import arguments_of
from clawrl_gym.envs.toolcall.task import Goal, ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolFailure, Toolset

OPENING = "Hi, I need some help."
"""The first message where a model plays the user; it tells the rest when asked."""
TURNS = 100
"""Replies of the assistant; tau2-bench counts 200 steps of both sides."""
BASES = ("DB", "ENV_ASSERTION", "ACTION", "COMMUNICATE", "NL_ASSERTION")
_CALL_TIMEOUT_S = 1.0
_MARKS = ("db.json", "db.toml", "policy.md", "main_policy.md", "split_tasks.json")
"""Files that a domain's folder has some of."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain as its folder has it."""

    name: str
    toolset: str
    state: Any
    """State with which its tasks begin, before they are set up."""
    policy: str
    open: Callable[[Any], Toolset]
    """The tools over a state; what is loaded is not written."""
    guidelines: str = ""
    """Guidelines for a model that plays the user, where the folder has tau2-bench's own words."""
    alone: bool = False
    """No user answers: the assistant has the user's tools and a ticket."""


def is_second(path: Path) -> bool:
    """Whether a path is a domain's folder of tau2-bench, or a file of tasks in one."""
    if path.is_file():
        return path.name.startswith("tasks") and is_second(path.parent)
    return any((path / name).is_file() for name in _MARKS)


def domains_in(path: Path) -> list[Path]:
    """The domains' folders of a checkout of tau2-bench, or of the folder that holds them."""
    places = [place for place in (path / "data" / "tau2" / "domains", path) if place.is_dir()]
    inner = [one for place in places for one in sorted(place.iterdir()) if is_second(one)]
    return [one for one in inner if any(one.glob("tasks*.json"))]


def open_second(path: Path, is_played: bool, judge: AssertionJudge | None) -> TaskTable:
    """The usable tasks of a domain; `is_played`: a model plays the user.

    Raises TaskError for another domain, or with none usable.
    """
    file = path if path.is_file() else tasks_file(path)
    with boundary(TaskError, f"the data of {file.parent}"):
        domain = domain_of(file.parent, is_played)
    split_of = splits_of(file)
    tasks: dict[str, ToolTask] = {}
    left_out: list[LeftOut] = []
    for number, content in enumerate(read_rows(file), 1):
        name = f"tau-{content['id']}" if has_id(content) else f"task {number}"
        try:
            row = read_row(content)
            split = split_of(str(row.id)) or split_of_content(row.user_scenario.text)
            if name in tasks:
                raise Unusable("its id is taken already")
            tasks[name] = _task(name, row, split, domain, judge, is_played)
        except Unusable as why:
            left_out.append(LeftOut(f"task {number}" if name in tasks else name, str(why)))
    selection = Selection(len(tasks), tuple(left_out))
    selection.require_some(str(file))
    return TaskTable(tasks, str(path), selection)


def domain_of(folder: Path, is_played: bool) -> Domain:
    """Which domain a folder is, told by its data. Raises TaskError for one that is not here."""
    if (folder / "db.toml").is_file():
        return _telecom(folder, is_played)
    if not (folder / "db.json").is_file():
        raise TaskError(f"{folder} has neither db.json nor db.toml: is your copy whole?")
    tables = read_json(folder / "db.json")
    names = {*tables} if isinstance(tables, dict) else set()
    for name, module, open_tools in (
        ("retail", tau_retail, tau_retail.Tau2Retail),
        ("airline", tau_airline, tau_airline.TauAirline),
    ):
        if {*module.TABLES} <= names:
            toolset = tau_retail.NAME_2 if name == "retail" else tau_airline.NAME
            return Domain(
                name=name,
                toolset=toolset,
                state={table: tables[table] for table in module.TABLES},
                policy=read_text(folder / "policy.md"),
                open=open_tools,
                guidelines=_guidelines(folder, "simulation_guidelines.md"),
            )
    raise TaskError(
        f"{folder}: got data with {', '.join(sorted(names)) or 'nothing'}, expected that of "
        "tau2-bench's retail, airline or telecom domain: the tools of others are not built in"
    )


def _telecom(folder: Path, is_played: bool) -> Domain:
    alone = not is_played
    main = read_text(folder / ("main_policy_solo.md" if alone else "main_policy.md"))
    manual = read_text(folder / "tech_support_manual.md")
    policy = (
        f"<main_policy>\n{main}\n</main_policy>\n"
        f"<tech_support_policy>\n{manual}\n</tech_support_policy>"
    )
    tables, phone = read_toml(folder / "db.toml"), read_toml(folder / "user_db.toml")
    return Domain(
        name="telecom",
        toolset=tau_telecom.NAME,
        state=tau_telecom.start_of(tables, phone),
        policy=policy,
        open=partial(_open_telecom, alone=alone),
        guidelines=_guidelines(folder, "simulation_guidelines_tools.md"),
        alone=alone,
    )


def _open_telecom(state: Any, alone: bool) -> TauTelecom:
    return TauTelecom(copy.deepcopy(state), alone)


def _task(
    name: str,
    row: TaskRow,
    split: Split,
    domain: Domain,
    judge: AssertionJudge | None,
    is_played: bool,
) -> ToolTask:
    """Raises Unusable."""
    criteria = row.evaluation_criteria
    if criteria is None:
        raise Unusable("it has no evaluation_criteria")
    domain = replace(domain, state=_set_up(row.initial_state, domain))
    _check_gold(criteria.actions or (), domain)
    instruction, persona = row.user_scenario.text, row.user_scenario.persona
    role = f"{persona.strip()}\n\n{instruction}" if persona else instruction
    return ToolTask(
        id=name,
        family=f"tau_{domain.name}",
        split=split,
        instruction=_opening(row, domain, is_played),
        goals=tuple(_goals(criteria, domain, judge)),
        toolsets=(domain.toolset,),
        system=domain.policy,
        state={domain.toolset: domain.state},
        customer=None
        if domain.alone
        else {"type": "role", "instruction": role, "guidelines": domain.guidelines},
        solution=_solution(criteria, domain),
        turns=TURNS,
    )


def _opening(row: TaskRow, domain: Domain, is_played: bool) -> str:
    """The first message. Raises Unusable."""
    if is_played:
        return OPENING
    if not domain.alone:
        return f"This is who I am and what I want. {row.user_scenario.text}"
    if not row.ticket:
        raise Unusable("it has no ticket to be played from without a user: set env.user=model")
    return row.ticket


def _goals(criteria: Criteria, domain: Domain, judge: AssertionJudge | None) -> Iterator[Goal]:
    """A factor of the reward each; an empty one is worth 1, as tau2-bench has it."""
    unknown = set(criteria.reward_basis) - set(BASES)
    if unknown:
        raise Unusable(f"its reward_basis has {', '.join(sorted(unknown))}")
    yield EndedGoal()
    yield AnyReplyGoal()
    actions, basis = criteria.actions, criteria.reward_basis
    has_end = actions is not None or criteria.env_assertions is not None
    if "DB" in basis and has_end:
        yield StateGoal(domain.toolset, _left_by(actions or (), domain))
    if "ENV_ASSERTION" in basis and criteria.env_assertions:
        yield HoldsGoal(domain.toolset, _checks(criteria.env_assertions, domain))
    if "ACTION" in basis and actions:
        yield WantedCallsGoal(
            tuple(WantedCall(one.name, one.arguments, one.compare_args) for one in actions)
        )
    if "COMMUNICATE" in basis and criteria.communicate_info:
        yield CommunicatedGoal(criteria.communicate_info)
    if "NL_ASSERTION" in basis and criteria.nl_assertions:
        if judge is None:
            raise Unusable(
                "a model has to judge its assertions: set env.judge_base_url and env.judge_model"
            )
        yield AssertionsGoal(criteria.nl_assertions, judge)


def _set_up(initial: InitialState | None, domain: Domain) -> Any:
    """The state with which a task begins. Raises Unusable."""
    if initial is None:
        return domain.state
    if initial.initialization_data or initial.message_history:
        raise Unusable("it begins with data or messages of its own")
    if not initial.initialization_actions:
        return domain.state
    toolset = domain.open(domain.state)
    if not isinstance(toolset, TauTelecom):
        raise Unusable(f"it is set up by calls, which is not built in for {domain.name}")
    try:
        for step in initial.initialization_actions:
            toolset.run(step.env_type, step.func_name, step.arguments)
    except (TaskError, ToolFailure) as why:
        raise Unusable(f"it cannot be set up: {why}") from None
    return toolset.state()


def _checks(
    assertions: Sequence[Assertion], domain: Domain
) -> tuple[Callable[[object], bool], ...]:
    if domain.toolset != tau_telecom.NAME:
        raise Unusable(f"it has env_assertions, which are not built in for {domain.name}")
    for one in assertions:
        if not one.func_name.startswith("assert_") or not _has_function(one):
            raise Unusable(f"there is no assertion {one.func_name!r} of the {one.env_type}")
    return tuple(partial(_is_true, one) for one in assertions)


def _has_function(one: FunctionCall) -> bool:
    side = TauPhone if one.env_type == "user" else TauOperator
    return hasattr(side, one.func_name)


def _is_true(assertion: Assertion, state: object) -> bool:
    telecom = _open_telecom(state, alone=True)
    result = telecom.run(assertion.env_type, assertion.func_name, assertion.arguments)
    return result is assertion.assert_value


def _check_gold(actions: Sequence[Action], domain: Domain) -> None:
    """Raises Unusable unless all gold actions are calls of tools that there are."""
    toolset = domain.open(domain.state)
    users = toolset.user_tools() if isinstance(toolset, TauTelecom) else []
    for action in actions:
        tools = users if action.requestor == "user" else toolset.tools()
        schema = next((one for one in tools if one["function"]["name"] == action.name), None)
        if schema is None:
            raise Unusable(f"its gold actions call {action.name!r}, which is not built in")
        try:
            arguments_of(json.dumps(action.arguments), schema)
        except ToolFailure as why:
            raise Unusable(f"its gold action {action.name}: {why}") from None


def _left_by(actions: Sequence[Action], domain: Domain) -> object:
    """The state that the gold actions leave; some of them fail, and are meant to."""
    toolset = domain.open(domain.state)
    for action in actions:
        call = toolset.call
        if isinstance(toolset, TauTelecom) and action.requestor == "user":
            call = toolset.call_as_user
        try:
            call(action.name, action.arguments, _CALL_TIMEOUT_S)
        except ToolFailure:
            continue
    return toolset.state()


def _solution(criteria: Criteria, domain: Domain) -> tuple[Reply, ...]:
    """The gold actions, and a last message; none where a user has to act, too."""
    actions = criteria.actions or ()
    if not domain.alone and any(action.requestor == "user" for action in actions):
        return ()
    calls = tuple(
        Reply("", (Call(f"call-{number}", action.name, json.dumps(action.arguments)),))
        for number, action in enumerate(actions, 1)
    )
    outputs = ", ".join(criteria.communicate_info or ())
    return (*calls, Reply(f"Everything is done. {outputs}".strip()))


def _guidelines(folder: Path, name: str) -> str:
    """tau2-bench's own words to the player of the user, from `data/tau2/user_simulator`."""
    file = folder.resolve().parent.parent / "user_simulator" / name
    return read_text(file) if file.is_file() else ""
