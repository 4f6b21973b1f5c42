"""Long walks through the domains of tau-bench and tau2-bench: what every tool answers and changes.

Each walk calls one function after the other with arguments that fit and such that do not. What it
left is kept as a hash for each function: an answer, a refusal in words, and the state afterwards.
The single rules have tests of their own in test_toolcall_tau.py and test_toolcall_tau2.py; here
none of them changes unseen. `python -m tests.project.benchmark_walks` writes the hashes anew.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.benchmarks.tau_airline import TauAirline
from clawrl_gym.envs.toolcall.benchmarks.tau_operator import TauOperator
from clawrl_gym.envs.toolcall.benchmarks.tau_phone_tools import TauPhone
from clawrl_gym.envs.toolcall.benchmarks.tau_retail import Tau2Retail, TauRetail
from clawrl_gym.envs.toolcall.benchmarks.tau_retail_tools import REASONS
from clawrl_gym.envs.toolcall.benchmarks.tau_telecom import TauTelecom, start_of
from clawrl_gym.envs.toolcall.toolset import ToolFailure
from tests.toolcall.test_toolcall_tau import DATA
from tests.toolcall.test_toolcall_tau2 import AIRLINE, ANA, BOOKING, TELECOM

FILE = Path(__file__).parents[1] / "fixtures" / "golden" / "benchmark_walks.json"
STEPS = 40
"""Calls of one walk, before the world begins anew."""
Pools = Mapping[str, Sequence[Any]]
"""Values of each argument, right ones first."""
Choose = Callable[[int], int]
Do = Callable[[str, dict[str, Any]], object]


def chooser(seed: str) -> Choose:
    """Numbers below a bound, the same on every Python."""
    numbers = _numbers(seed)
    return lambda below: next(numbers) % below


def _numbers(seed: str) -> Iterator[int]:
    block = seed.encode()
    while True:
        block = hashlib.sha256(block).digest()
        yield from block


def walked(
    start: Callable[[], tuple[Do, Callable[[], object]]],
    functions: Mapping[str, Sequence[str]],
    pools: Pools,
    walks: int,
) -> dict[str, str]:
    """A hash of all that happened, by function. `start`: how to call one, and the state."""
    seen = defaultdict[str, list[object]](list)
    names = sorted(functions)
    for walk in range(walks):
        do, state = start()
        choose = chooser(f"{walk}")
        for _ in range(STEPS):
            name = names[choose(len(names))]
            arguments = {one: drawn(pools[one], choose) for one in functions[name]}
            try:
                answer = do(name, copy.deepcopy(arguments))
            except (ToolFailure, TaskError) as error:
                answer = f"refused: {error}"
            seen[name].append([arguments, answer, copy.deepcopy(state())])
    return {name: _hash(seen[name]) for name in names}


def drawn(pool: Sequence[Any], choose: Choose) -> Any:
    """Mostly what fits."""
    return pool[choose(len(pool)) if choose(2) else 0]


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def parameters_of(owner: type, names: Sequence[str]) -> dict[str, list[str]]:
    return {name: list(inspect.signature(getattr(owner, name)).parameters)[1:] for name in names}


def tools_of(tools: Sequence[Any]) -> dict[str, list[str]]:
    functions = [one["function"] for one in tools]
    return {one["name"]: list(one["parameters"].get("properties", {})) for one in functions}


# -- shops -----------------------------------------------------------------------------------------
def _order(number: int, status: str, items: Sequence[str], *paid: tuple[float, str]) -> Any:
    prices = {"11": 10.5, "12": 20.25, "21": 5.0}
    return {
        "order_id": f"#W{number}", "user_id": "ana", "address": {"zip": "1"}, "status": status,
        "items": [{"name": "Mug", "product_id": "9" if one < "20" else "8", "item_id": one,
                   "price": prices[one], "options": {"made": one}} for one in items],
        "payment_history": [{"transaction_type": "payment", "amount": amount,
                             "payment_method_id": method} for amount, method in paid],
    }  # fmt: skip


RETAIL: Any = {
    **DATA,
    "orders": {
        "#W1": _order(1, "pending", ["11", "12", "11"], (41.25, "card_1")),
        "#W2": _order(2, "delivered", ["12", "21"], (25.25, "card_1")),
        "#W3": _order(3, "pending", ["21"], (5.0, "gift_card_1")),
        "#W4": _order(4, "pending", ["11"], (5.0, "card_1"), (5.5, "card_1")),
        "#W5": _order(5, "delivered", ["11"], (10.5, "gift_card_1")),
        "#W6": _order(6, "pending", ["12"], (12.0, "card_1")),
        "#W7": _order(7, "pending", ["11"], (10.5, "gift_card_1"), (0.5, "card_1")),
    },
    "products": {
        **DATA["products"],
        "8": {
            "name": "Bowl", "product_id": "8",
            "variants": {
                one: {"item_id": one, "options": {"size": one}, "available": True, "price": price}
                for one, price in (("21", 5.0), ("22", 4.0), ("23", 16.995))
            },
        },
    },
}  # fmt: skip
RETAIL_POOLS: Pools = {
    "order_id": ["#W1", "#W2", "#W3", "#W4", "#W5", "#W6", "#W7", "#W9"],
    "user_id": ["ana", "bo"],
    "item_ids": [["11"], ["12"], ["21"], ["11", "12"], ["11", "11"], ["12", "12"], ["99"], []],
    "new_item_ids": [["12"], ["13"], ["22"], ["12", "13"], ["23"], ["14"], ["11"], ["99"], []],
    "payment_method_id": ["gift_card_1", "card_1", "card_9"],
    "reason": [*REASONS, "none"],
    "email": ["ANA@example.com", "bo@example.com"],
    "first_name": ["ana", "Bo"],
    "last_name": ["LEE", "X"],
    "zip": ["10234", "1"],
    "product_id": ["9", "8", "7"],
    "item_id": ["11", "21", "99"],
    "expression": ["1 + 2 * 3", "(4 - 1) / 2", "x", "2 ** 3"],
    "thought": ["hm"],
    "summary": ["She asks."],
    **{name: [name, ""] for name in ("address1", "address2", "city", "state", "country")},
}


def shop_walk(kind: type[TauRetail], walks: int) -> dict[str, str]:
    def start() -> tuple[Do, Callable[[], object]]:
        shop = kind(RETAIL)
        return lambda name, arguments: shop.call(name, arguments, 1.0), shop.state

    return walked(start, tools_of(kind(RETAIL).tools()), RETAIL_POOLS, walks)


# -- airline ---------------------------------------------------------------------------------------
def _airline() -> Any:
    world = copy.deepcopy(AIRLINE)
    world["flights"]["HAT4"] = {
        **world["flights"]["HAT1"], "flight_number": "HAT4", "destination": "ORD",
        "scheduled_arrival_time_est": "02:00:00+1",
    }  # fmt: skip
    day = world["flights"]["HAT1"]["dates"]["2024-05-20"]
    world["flights"]["HAT5"] = {
        **world["flights"]["HAT2"], "flight_number": "HAT5", "origin": "ORD",
        "dates": {"2024-05-21": day, "2024-05-22": day},
    }  # fmt: skip
    world["flights"]["HAT2"]["scheduled_departure_time_est"] = "10:00:00"
    two = {**world["reservations"]["OLD"], "reservation_id": "TWO", "passengers": [ANA, ANA]}
    world["reservations"]["TWO"] = {**two, "cabin": "basic_economy", "nonfree_baggages": 2}
    return copy.deepcopy(world)


_LEGS = [{"flight_number": name, "date": "2024-05-20"} for name in ("HAT1", "HAT2")]
AIRLINE_POOLS: Pools = {
    "user_id": ["ana", "bo"],
    "reservation_id": ["OLD", "TWO", "HATHAT", "NONE"],
    "origin": ["SFO", "DEN", "ORD"],
    "destination": ["JFK", "DEN", "ORD"],
    "date": ["2024-05-20", "2024-05-21", "2024-05-22", "soon"],
    "flight_number": ["HAT1", "HAT4", "HAT9"],
    "flight_type": ["one_way", "round_trip"],
    "cabin": ["economy", "basic_economy", "business"],
    "flights": [
        _LEGS[:1], _LEGS, _LEGS[1:], [],
        [{"flight_number": "HAT1", "date": "2024-05-21"}],
        [{"flight_number": "HAT5", "date": "2024-05-22"}],
    ],
    "passengers": [[ANA], [{**ANA, "last_name": "Wu"}, ANA]],
    "payment_methods": [
        BOOKING["payment_methods"],
        [{"payment_id": "card", "amount": 180}],
        [{"payment_id": "card", "amount": 100}],
        [{"payment_id": "gift", "amount": 60}, {"payment_id": "card", "amount": 90}],
        [{"payment_id": "paper", "amount": 40}, {"payment_id": "paper", "amount": 40},
         {"payment_id": "card", "amount": 100}],
        [{"payment_id": "certificate_3221322", "amount": 60},
         {"payment_id": "card", "amount": 120}],
        [],
    ],
    "total_baggages": [1, 0, 3],
    "nonfree_baggages": [1, 0, 2, 3],
    "insurance": ["yes", "no"],
    "payment_id": ["gift", "card", "paper", "none"],
    "amount": [60, 5],
    "expression": ["1 + 2", "x"],
    "summary": ["She asks."],
}  # fmt: skip


def airline_walk() -> dict[str, str]:
    world = _airline()

    def start() -> tuple[Do, Callable[[], object]]:
        airline = TauAirline(world)
        return lambda name, arguments: airline.call(name, arguments, 1.0), airline.state

    return walked(start, tools_of(TauAirline(world).tools()), AIRLINE_POOLS, 30)


# -- telecom ---------------------------------------------------------------------------------------
def _telecom() -> Any:
    world = copy.deepcopy(TELECOM)
    world["customers"][0].update(line_ids=["L1", "L2"], bill_ids=["B1", "B3"])
    world["customers"].append({
        **TELECOM["customers"][0], "customer_id": "C2", "full_name": "ana lee",
        "phone_number": "777", "line_ids": [], "bill_ids": [],
    })  # fmt: skip
    line = {**TELECOM["lines"][0], "line_id": "L2", "phone_number": "555-2"}
    world["lines"].append({**line, "status": "Pending Activation"})
    paid = {**TELECOM["bills"][0], "bill_id": "B3", "issue_date": "2025-02-01", "status": "Paid"}
    world["bills"].append(paid)
    return world


TELECOM_POOLS: Pools = {
    "phone_number": ["555-1", "555", "777", "555-9"],
    "customer_id": ["C1", "C2", "C9"],
    "line_id": ["L1", "L2", "L9"],
    "bill_id": ["B1", "B3", "B9"],
    "id": ["L2", "C1", "B1", "P1", "D1", "X1", ""],
    "full_name": ["ANA LEE", "Bo"],
    "dob": ["1990-01-01", "1990-01-02"],
    "limit": [12, 1, 2],
    "reason": ["a trip"],
    "summary": ["She asks."],
    "gb_amount": [2.0, 0.5, 0.0, -1.0],
    "data_used_gb": [5.0, 6.0, 4.99, 7.0],
    "new_bill_id": ["B2"],
    "overdue_bill_id": ["B1", "B2", "B3", "B9"],
    "contract_ended": [True, False],
    "expected_amount": [2.0, 0.0, 2.0000005, 2.1],
    "app_name": ["messaging", "browser", "radio"],
    "permission": ["SMS", "storage", "camera"],
    "apn_settings": [{}, {"apn_name": "broken"}, {"apn_name": "x"}, {"mmsc_url": None}, {"y": 1}],
    "abroad": [True, False],
    "enabled": [True, False],
    "mms_over_wifi": [True, None, False],
    "expected_speed": [22.0, 220.0, 0.0, 275.0],
    "expected_desc": [None, "fair", "EXCELLENT"],
    "name": ["Ana Lee"],
}
_MODES = {
    "set_network_mode_preference": ["3g_only", "2g_only", "4g_only", "4g_5g_preferred", "6g"],
    "lock_sim_card": ["pin", "puk"],
}
_STATUSES = {
    "assert_service_status": ["connected", "no_service"],
    "assert_line_status": ["Active", "Suspended"],
}
_SETS_UP = (
    "set_user_location", "turn_airplane_mode_on", "turn_airplane_mode_off", "turn_data_on",
    "turn_data_off", "turn_roaming_on", "turn_roaming_off", "turn_data_saver_mode_on",
    "turn_data_saver_mode_off", "unseat_sim_card", "lock_sim_card", "break_apn_settings",
    "break_apn_mms_setting", "break_vpn", "remove_app_permission", "set_wifi_calling",
    "simulate_network_search",
)  # fmt: skip
_OF_OPERATOR = ("set_data_usage", "suspend_line_for_overdue_bill")
_PHONE = {"device": {"wifi_enabled": True, "wifi_connected": True, "wifi_ssid": "home"}}
_LOOKED_AT = ("check_status_bar", "check_network_status", "run_speed_test", "can_send_mms")


def _asserts(owner: type) -> list[str]:
    return [name for name in dir(owner) if name.startswith("assert_")]


def telecom_walk() -> dict[str, str]:
    """After each call all that is looked at in the end is looked at."""
    world = _telecom()
    sides = {
        "user": parameters_of(TauPhone, [*_SETS_UP, *_asserts(TauPhone)]),
        "assistant": parameters_of(TauOperator, [*_OF_OPERATOR, *_asserts(TauOperator)]),
    }
    tools = tools_of(TauTelecom(start_of(world, {}), True).tools())
    side_of = {name: side for side, names in sides.items() for name in names}
    pools = {**TELECOM_POOLS, "mode": (), "expected_status": (True, False)}
    for name in (*_MODES, *_STATUSES):
        pools[f"{name}.mode"] = _MODES.get(name, ())
        pools[f"{name}.expected_status"] = _STATUSES.get(name, ())
    functions = {
        name: [f"{name}.{one}" if pools.get(f"{name}.{one}") else one
               for one in parameters]
        for name, parameters in {**sides["user"], **sides["assistant"], **tools}.items()
    }  # fmt: skip

    def start() -> tuple[Do, Callable[[], object]]:
        both = TauTelecom(start_of(world, _PHONE), True)
        both.run("user", "set_user_info", {"name": "Ana Lee", "phone_number": "555-1"})

        def do(name: str, arguments: dict[str, Any]) -> object:
            given = {key.rpartition(".")[2]: value for key, value in arguments.items()}
            if name in side_of:
                return both.run(side_of[name], name, given)
            return both.call(name, given, 1.0)

        def state() -> object:
            return [both.state(), [both.call(name, {}, 1.0) for name in _LOOKED_AT]]

        return do, state

    return walked(start, functions, pools, 60)


WALKS: Mapping[str, Callable[[], dict[str, str]]] = {
    "retail": lambda: shop_walk(TauRetail, 30),
    "tau2 retail": lambda: shop_walk(Tau2Retail, 15),
    "tau2 airline": airline_walk,
    "tau2 telecom": telecom_walk,
}

if __name__ == "__main__":
    hashes = {name: walk() for name, walk in WALKS.items()}
    FILE.write_text(json.dumps(hashes, indent=0) + "\n")
