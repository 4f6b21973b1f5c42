"""The operator's tools of tau2-bench's telecom domain over its tables.

Names, arguments and what they do are tau2-bench's. Methods that are not offered set a task up or
look at its end.
"""

from __future__ import annotations

from clawrl_gym.envs.toolcall.benchmarks.tau_domain import offered
from clawrl_gym.envs.toolcall.benchmarks.tau_phone import State
from clawrl_gym.envs.toolcall.toolset import ToolFailure

_TODAY, _CYCLE_END = "2025-02-25", "2025-02-28"
_LAST_MONTH = ("2025-01-01", "2025-01-31", "2025-01-15")
"""First day, last day, day on which its bill is due."""
_NEXT_MONTH = ("2025-03-01", "2025-03-31", "2025-03-15")
_ID_FIELDS = {
    "L": ("lines", "line_id"),
    "D": ("devices", "device_id"),
    "B": ("bills", "bill_id"),
    "C": ("customers", "customer_id"),
    "P": ("plans", "plan_id"),
}
"""Tables by the letter with which their ids begin."""


class TauOperator:
    """The operator's side; it writes to the tables that it is given."""

    def __init__(self, tables: dict[str, list[State]]) -> None:
        self._tables = tables

    @offered
    def get_customer_by_phone(self, phone_number: str) -> State:
        """The customer with this phone number, as contact or as a line."""
        for customer in self._tables["customers"]:
            lines = [self.row(line_id) for line_id in customer["line_ids"]]
            if phone_number in (customer["phone_number"], *(one["phone_number"] for one in lines)):
                return dict(customer)
        raise ToolFailure("customer not found")

    @offered
    def get_customer_by_id(self, customer_id: str) -> State:
        """The customer with this id."""
        return self._customer(customer_id)

    @offered
    def get_customer_by_name(self, full_name: str, dob: str) -> list[State]:
        """The customers with this name and date of birth (YYYY-MM-DD)."""
        return [
            customer
            for customer in self._tables["customers"]
            if customer["full_name"].lower() == full_name.lower()
            and customer["date_of_birth"] == dob
        ]

    @offered
    def get_details_by_id(self, id: str) -> State:
        """The customer, line, device, bill or plan with this id."""
        return self.row(id)

    @offered
    def suspend_line(self, customer_id: str, line_id: str, reason: str) -> State:
        """Suspend a line that is active, for at most 6 months."""
        line = self._line(customer_id, line_id)
        if line["status"] != "Active":
            raise ToolFailure("the line must be active to be suspended")
        line.update(status="Suspended", suspension_start_date=_TODAY)
        return {"message": "Line suspended. A fee of $5 a month applies.", "line": line}

    @offered
    def resume_line(self, customer_id: str, line_id: str) -> State:
        """Resume a line that is suspended or waits to be activated."""
        line = self._line(customer_id, line_id)
        if line["status"] not in ("Suspended", "Pending Activation"):
            raise ToolFailure("the line must be suspended to be resumed")
        line.update(status="Active", suspension_start_date=None)
        return {"message": "Line resumed successfully", "line": line}

    @offered
    def get_bills_for_customer(self, customer_id: str, limit: int = 12) -> list[State]:
        """A customer's bills, the latest first."""
        bills = [self.row(bill_id) for bill_id in self._customer(customer_id)["bill_ids"]]
        return sorted(bills, key=lambda bill: str(bill["issue_date"]), reverse=True)[:limit]

    @offered
    def send_payment_request(self, customer_id: str, bill_id: str) -> str:
        """Ask the customer to pay a bill; one at a time. Look at the bill before: whether it is
        paid already is not checked."""
        customer = self._customer(customer_id)
        if self.awaiting_payment(customer):
            raise ToolFailure("a bill is already awaiting payment for this customer")
        if bill_id not in customer["bill_ids"]:
            raise ToolFailure("bill not found for this customer")
        self.row(bill_id)["status"] = "Awaiting Payment"
        return f"Payment request sent to the customer for bill {bill_id}"

    @offered
    def get_data_usage(self, customer_id: str, line_id: str) -> State:
        """How much data a line has used in this cycle, its limit, and when the cycle ends."""
        line = self._line(customer_id, line_id)
        return {
            "line_id": line_id,
            "data_used_gb": line["data_used_gb"],
            "data_limit_gb": self.row(line["plan_id"])["data_limit_gb"],
            "data_refueling_gb": line["data_refueling_gb"],
            "cycle_end_date": _CYCLE_END,
        }

    @offered
    def enable_roaming(self, customer_id: str, line_id: str) -> str:
        """Let a line roam abroad."""
        line = self._line(customer_id, line_id)
        was_enabled, line["roaming_enabled"] = line["roaming_enabled"], True
        return "Roaming was already enabled" if was_enabled else "Roaming enabled successfully"

    @offered
    def disable_roaming(self, customer_id: str, line_id: str) -> str:
        """Let a line roam abroad no more."""
        line = self._line(customer_id, line_id)
        was_enabled, line["roaming_enabled"] = line["roaming_enabled"], False
        return "Roaming disabled successfully" if was_enabled else "Roaming was already disabled"

    @offered
    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the user over to a colleague: when the user asks for one, or when neither the
        policy nor the tools let you help."""
        return "Transfer successful"

    @offered
    def refuel_data(self, customer_id: str, line_id: str, gb_amount: float) -> State:
        """Add data to a line; the customer's next bill has it at the plan's price."""
        line = self._line(customer_id, line_id)
        if gb_amount <= 0:
            raise ToolFailure("the amount must be positive")
        dollars = gb_amount * self.row(line["plan_id"])["data_refueling_price_per_gb"]
        line["data_refueling_gb"] += gb_amount
        self._charge(customer_id, dollars, f"Data refueling: {gb_amount} GB")
        return {
            "message": f"{gb_amount} GB of data were added to line {line_id} for ${dollars:.2f}",
            "new_data_refueling_gb": line["data_refueling_gb"],
            "charge": dollars,
        }

    def set_data_usage(self, customer_id: str, line_id: str, data_used_gb: float) -> None:
        self._line(customer_id, line_id)["data_used_gb"] = data_used_gb

    def suspend_line_for_overdue_bill(
        self, customer_id: str, line_id: str, new_bill_id: str, contract_ended: bool
    ) -> None:
        line, customer = self.row(line_id), self._customer(customer_id)
        if line["status"] != "Active":
            raise ToolFailure("the line must be active to be suspended")
        if any(self.row(bill)["status"] == "Overdue" for bill in customer["bill_ids"]):
            raise ToolFailure("the customer already has an overdue bill")
        bill = self._add_bill(customer, new_bill_id, _LAST_MONTH, "Overdue")
        dollars = self.row(line["plan_id"])["price_per_month"]
        _add_item(bill, dollars, f"Charge for line {line_id}")
        line.update(status="Suspended", suspension_start_date=_TODAY)
        if contract_ended:
            line["contract_end_date"] = _LAST_MONTH[1]

    def assert_data_refueling_amount(
        self, customer_id: str, line_id: str, expected_amount: float
    ) -> bool:
        line = self._line(customer_id, line_id)
        return bool(abs(line["data_refueling_gb"] - expected_amount) < 1e-6)

    def assert_line_status(self, customer_id: str, line_id: str, expected_status: str) -> bool:
        return bool(self._line(customer_id, line_id)["status"] == expected_status)

    def assert_overdue_bill_exists(self, customer_id: str, overdue_bill_id: str) -> bool:
        has_bill: bool = overdue_bill_id in self._customer(customer_id)["bill_ids"]
        return has_bill and bool(self.row(overdue_bill_id)["status"] == "Overdue")

    def assert_no_overdue_bill(self, overdue_bill_id: str) -> bool:
        bills = {bill["bill_id"]: bill["status"] for bill in self._tables["bills"]}
        return bool(bills.get(overdue_bill_id, "Paid") == "Paid")

    def row(self, row_id: str) -> State:
        """A row of any table, to be read or written. Raises ToolFailure."""
        table, field = _ID_FIELDS.get(row_id[:1], ("", ""))
        for row in self._tables.get(table, ()):
            if row[field] == row_id:
                return row
        raise ToolFailure(f"there is nothing with the id {row_id[:40]!r}")

    def line_of_number(self, phone_number: str) -> State:
        for line in self._tables["lines"]:
            if line["phone_number"] == phone_number:
                return line
        raise ToolFailure(f"line with phone number {phone_number} not found")

    def awaiting_payment(self, customer: State) -> list[State]:
        """The customer's bills that are to be paid now."""
        bills = [self.row(bill_id) for bill_id in customer["bill_ids"]]
        return [bill for bill in bills if bill["status"] == "Awaiting Payment"]

    def _customer(self, customer_id: str) -> State:
        for customer in self._tables["customers"]:
            if customer["customer_id"] == customer_id:
                return customer
        raise ToolFailure("customer not found")

    def _line(self, customer_id: str, line_id: str) -> State:
        if line_id not in self._customer(customer_id)["line_ids"]:
            raise ToolFailure("line not found for this customer")
        return self.row(line_id)

    def _charge(self, customer_id: str, dollars: float, words: str) -> None:
        """On the customer's next bill, which is begun when there is none."""
        customer = self._customer(customer_id)
        bills = [self.row(bill_id) for bill_id in customer["bill_ids"]]
        draft = next((bill for bill in bills if bill["status"] == "Draft"), None)
        if draft is None:
            # tau2-bench draws its id at random, so no state with one is ever like another there.
            draft = self._add_bill(customer, f"B-next-{customer_id}", _NEXT_MONTH, "Draft")
        _add_item(draft, dollars, words)

    def _add_bill(
        self, customer: State, bill_id: str, days: tuple[str, str, str], status: str
    ) -> State:
        first, last, due = days
        bill = {
            "bill_id": bill_id, "customer_id": customer["customer_id"], "period_start": first,
            "period_end": last, "issue_date": first, "total_due": 0, "due_date": due,
            "line_items": [], "status": status,
        }  # fmt: skip
        self._tables["bills"].append(bill)
        customer["bill_ids"].append(bill_id)
        return bill


def _add_item(bill: State, dollars: float, words: str) -> None:
    kind = "Credit" if dollars < 0 else "Charge"
    bill["line_items"].append(
        {"description": words, "amount": dollars, "date": _TODAY, "item_type": kind}
    )
    bill["total_due"] += dollars
