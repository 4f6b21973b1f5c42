"""tau2-bench's telecom domain: the operator's side and the user's phone, and how they meet.

Two sides share one state: what the operator does reaches the phone after each call (`_sync`), and
a bill that the user pays is paid here. Played alone, the assistant has the tools of both sides;
with a model as user, the user has those of the phone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.toolcall.benchmarks.tau_domain import call_offered, tools_of
from clawrl_gym.envs.toolcall.benchmarks.tau_operator import TauOperator
from clawrl_gym.envs.toolcall.benchmarks.tau_phone import State, new_state
from clawrl_gym.envs.toolcall.benchmarks.tau_phone_tools import TauPhone
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext

NAME = "tau2_telecom"
TABLES = ("plans", "customers", "lines", "bills", "devices")

_DEFAULTS: Mapping[str, State] = {
    "customers": {
        "account_status": "Pending Verification", "payment_methods": [], "line_ids": [],
        "bill_ids": [], "created_at": "2025-01-01", "last_extension_date": None,
        "goodwill_credit_used_this_year": 0.0,
    },
    "lines": {
        "status": "Pending Activation", "device_id": None, "data_used_gb": 0.0,
        "data_refueling_gb": 0.0, "roaming_enabled": False, "contract_end_date": None,
        "last_plan_change_date": None, "last_sim_replacement_date": None,
        "suspension_start_date": None,
    },
    "bills": {"line_items": [], "status": "Draft"},
    "devices": {
        "imei": None, "activated": False, "activation_date": None, "last_esim_transfer_date": None,
    },
}  # fmt: skip
"""tau2-bench's, for what db.toml leaves out."""


def start_of(db: Mapping[str, Any], user_db: Mapping[str, Any]) -> State:
    """The state with which tasks begin, before they are set up. Raises TaskError."""
    missing = [table for table in TABLES if not isinstance(db.get(table), list)]
    if missing:
        raise TaskError(f"db.toml: got no {', '.join(missing)}, expected tau2-bench's telecom data")
    operator = {
        table: [{**_DEFAULTS.get(table, {}), **row} for row in db[table]] for table in TABLES
    }
    return copy.deepcopy({"operator": operator, "phone": new_state(user_db)})


class TauTelecom:
    """Both sides in one episode."""

    def __init__(self, state: State, alone: bool) -> None:
        """`alone`: the assistant has the phone's tools, too. The state is written."""
        self._state = state
        self._operator = TauOperator(state["operator"])
        self._phone = TauPhone(state["phone"])
        self._is_alone = alone

    def tools(self) -> list[Tool]:
        return [*tools_of(TauOperator), *(self.user_tools() if self._is_alone else ())]

    def user_tools(self) -> list[Tool]:
        return list(tools_of(TauPhone))

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        if self._is_alone and hasattr(TauPhone, name):
            return self.call_as_user(name, arguments, timeout_s)
        return self._synced(lambda: call_offered(self._operator, name, arguments))

    def call_as_user(self, name: str, arguments: Json, timeout_s: float) -> str:
        return self._synced(lambda: call_offered(self._phone, name, arguments))

    def run(self, side: str, name: str, arguments: Json) -> object:
        """Run a function that sets a task up or looks at its end. Raises ToolFailure, TaskError."""
        owner = self._phone if side == "user" else self._operator
        method = None if name.startswith("_") else getattr(type(owner), name, None)
        if method is None:
            raise TaskError(f"tau2-bench's telecom domain has no function {name!r} of the {side}")
        try:
            result = method(owner, **arguments)
        except (TypeError, KeyError, ValueError) as error:
            raise TaskError(f"{name}({dict(arguments)}): {error}") from error
        self._sync()
        return result

    def state(self) -> State:
        return copy.deepcopy(self._state)

    def close(self) -> None:
        """Nothing is open."""

    def _synced(self, call: Callable[[], str]) -> str:
        result = call()
        self._sync()
        return result

    def _sync(self) -> None:
        """Update what each side sees of the other."""
        surroundings = self._phone.surroundings
        if surroundings["phone_number"] is None:
            return
        line = self._operator.line_of_number(surroundings["phone_number"])
        limit_gb = self._operator.row(line["plan_id"])["data_limit_gb"] + line["data_refueling_gb"]
        surroundings["line_active"] = line["status"] == "Active"
        surroundings["roaming_allowed"] = line["roaming_enabled"]
        surroundings["mobile_data_usage_exceeded"] = line["data_used_gb"] >= limit_gb
        request = surroundings["payment_request"]
        if request is not None and request["paid"]:
            self._operator.row(request["bill_id"])["status"] = "Paid"
            surroundings["payment_request"] = request = None
        if request is None:
            customer = self._operator.get_customer_by_phone(surroundings["phone_number"])
            for bill in self._operator.awaiting_payment(customer)[:1]:
                surroundings["payment_request"] = {
                    "bill_id": bill["bill_id"], "amount_due": bill["total_due"], "paid": False,
                }  # fmt: skip


def make(task: ToolTask, context: ToolContext) -> TauTelecom:
    """Both sides over the task's state. Raises TaskError when there is none."""
    state = task.state.get(NAME, {})
    if set(state) != {"operator", "phone"}:
        raise TaskError(f"task {task.id!r}: expected its state to have tau2-bench's telecom data")
    return TauTelecom(copy.deepcopy(state), alone=context.config.user == "scripted")
