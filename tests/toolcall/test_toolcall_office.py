"""The office's tools: what they do, what they refuse, and what a wrong state is told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, cast

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.showcase.toolcall import office
from clawrl_gym.envs.showcase.toolcall.office.toolset import TOOLS, OfficeTools
from clawrl_gym.envs.showcase.toolcall.office.world import Room, new_id, read_office
from clawrl_gym.envs.toolcall.schema import check_tool, name_of
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure

OFFICE = {
    "people": {
        "P1": {"name": "Ana Keller", "team": "Sales", "manager": "P2", "deputy": "P3"},
        "P2": {"name": "Ben Costa", "team": "Sales"},
        "P3": {"name": "Carla Novak", "team": "Legal"},
        "P4": {"name": "Dario Toth", "team": "Legal", "away": True, "deputy": "P3"},
    },
    "rooms": {"Oak": {"floor": 1, "seats": 8}, "Elm": {"floor": 2, "seats": 4}},
    "meetings": {
        "M1": {"title": "Budget review", "day": "Monday", "hour": 10, "room": "Oak", "host": "P1"},
        "M2": {"title": "Town hall", "day": "Monday", "hour": 10, "room": "Elm", "guests": ["P1"]},
        "M3": {"title": "Tax talk", "day": "Friday", "hour": 9, "room": "Oak", "cancelled": True},
        "M4": {"title": "Stand-up", "day": "Tuesday", "hour": 10, "room": "Oak", "host": "P2"},
    },
    "tickets": {
        "T1": {"title": "Printer jams", "owner": "P1", "reporter": "P2", "links": ["T2"]},
        "T2": {"title": "Mail bounces", "status": "closed", "links": ["T1"]},
        "T3": {"title": "Mail is late", "merged_into": "T1"},
        "T4": {"title": "Door squeaks", "status": "closed", "resolution": "declined"},
    },
    "items": {"I1": {"name": "oak desk", "kind": "desk", "price": 100, "stock": 1, "pack": 2}},
    "orders": {
        "O1": {"item": "I1", "quantity": 2, "buyer": "P1"},
        "O2": {"item": "I1", "quantity": 2, "buyer": "P1", "cancelled": True},
    },
}


def opened(state: object = OFFICE) -> OfficeTools:
    task = ToolTask("t", "f", "train", "hello", (), toolsets=("office",), state={"office": state})
    return office.make(task, ToolContext())


def test_nobody_is_told_the_same_twice() -> None:
    tools, about = opened(), {"person": "P1", "about": "T2"}
    tools.call("notify", about, 1.0)
    told = tools.state()
    with pytest.raises(ToolFailure, match="told P1 about T2 already"):
        tools.call("notify", about, 1.0)
    assert tools.state() == told


def test_every_tool_has_a_schema_and_looking_changes_nothing() -> None:
    toolset = opened()
    before = toolset.state()
    for schema in TOOLS:
        check_tool(schema)
    looks: dict[str, dict[str, object]] = {
        "find_people": {"name": "ana"}, "list_people": {"team": "sales"},
        "get_person": {"person": "P1"}, "find_tickets": {"title": "MAIL"},
        "list_tickets": {"owner": "P1"}, "get_ticket": {"ticket": "T3"},
        "find_meetings": {"title": "review"}, "list_meetings": {"host": "P1"},
        "get_meeting": {"meeting": "M3"}, "list_rooms": {"floor": 1}, "get_room": {"room": "oak"},
        "find_items": {"name": "desk"}, "list_items": {"kind": "Desk"}, "get_item": {"item": "I1"},
        "list_orders": {"buyer": "P1"}, "get_order": {"order": "O1"},
    }  # fmt: skip
    assert set(looks) == {
        name for name in map(name_of, TOOLS) if name.startswith(("find_", "get_", "list_"))
    }
    for name, arguments in looks.items():
        assert json.loads(toolset.call(name, arguments, 1.0)), name
    assert toolset.state() == before
    assert set(json.loads(toolset.call("find_tickets", {"title": "MAIL"}, 1.0))) == {"T2", "T3"}


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("find_people", {"name": "Ana Kller"}, "like it: Ana Keller"),
        ("find_people", {"name": " "}, "no people are called"),
        ("get_person", {"person": "P9"}, "there is no person P9"),
        ("list_people", {"team": "Tax"}, "teams: Legal, Sales"),
        ("change_manager", {"person": "P1", "manager": "P1"}, "expected two people"),
        ("assign_ticket", {"ticket": "T1", "person": "P4"}, "P4 is away: the deputy is P3"),
        ("assign_ticket", {"ticket": "T2", "person": "P1"}, "reopened first"),
        ("set_priority", {"ticket": "T3", "priority": "low"}, "merged into T1"),
        ("notify", {"person": "P1", "about": "T3"}, "merged into T1"),
        ("notify", {"person": "P1", "about": "O1"}, "no ticket or meeting O1"),
        ("reopen_ticket", {"ticket": "T1"}, "open already"),
        ("link_tickets", {"ticket": "T1", "other": "T2"}, "T2 is there already"),
        ("link_tickets", {"ticket": "T1", "other": "T1"}, "to itself"),
        ("tag_ticket", {"ticket": "T1", "tag": " "}, "1 to 200"),
        ("open_ticket", {"title": "x" * 201, "priority": "low", "reporter": "P1"}, "1 to 200"),
        ("change_room", {"meeting": "M1", "room": "Elm"}, r"taken .* by M2; free then: none$"),
        ("change_room", {"meeting": "M1", "room": "Fir"}, "rooms: Oak, Elm"),
        ("move_meeting", {"meeting": "M3", "day": "Monday", "hour": 9}, "M3 is cancelled"),
        ("change_host", {"meeting": "M1", "person": "P4"}, "the deputy is P3"),
        ("book_meeting", {"title": "x", "day": "Monday", "hour": 10, "room": "oak", "host": "P1"},
         r"^Oak \(8 seats\) is taken on Monday at 10 by M1; free then: none$"),
        ("book_meeting", {"title": "x", "day": "Friday", "hour": 10, "room": "oak", "host": "P4"},
         "P4 is away"),
        ("move_meeting", {"meeting": "M4", "day": "Monday", "hour": 10}, "taken .* by M1"),
        ("change_quantity", {"order": "O1", "quantity": 5}, "I1 comes in packs of 2"),
        ("tag_ticket", {"ticket": "T2", "tag": "x"}, "T2 is closed"),
        ("link_tickets", {"ticket": "T1", "other": "T3"}, "merged into T1"),
        ("cancel_order", {"order": "O2"}, "O2 is cancelled"),
        ("invite", {"meeting": "M3", "person": "P1"}, "M3 is cancelled"),
        ("uninvite", {"meeting": "M2", "person": "P2"}, "no guest of M2: P1"),
        ("invite", {"meeting": "M2", "person": "P1"}, "there already"),
        ("list_rooms", {"floor": 7}, "floors: 1, 2"),
        ("list_items", {"kind": "car"}, "kinds: desk"),
        ("order_item", {"item": "I1", "quantity": 3, "buyer": "P1"}, "packs of 2"),
        ("order_item", {"item": "I1", "quantity": 6, "buyer": "P1"}, "the manager of P1"),
        (
            "order_item",
            {"item": "I1", "quantity": 6, "buyer": "P1", "approver": "P3"},
            "the manager of P1",
        ),
        ("change_quantity", {"order": "O2", "quantity": 2}, "O2 is cancelled"),
        ("steal", {}, "no such tool"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(
    tool: str, arguments: dict[str, object], why: str
) -> None:
    toolset = opened()
    before = toolset.state()
    with pytest.raises(ToolFailure, match=why):
        toolset.call(tool, arguments, 1.0)
    assert toolset.state() == before


def test_what_is_made_has_the_same_id_whenever_it_is_made() -> None:
    calls: list[tuple[str, dict[str, object]]] = [
        ("open_ticket", {"title": "Lift is stuck", "priority": "low", "reporter": "P1"}),
        ("open_ticket", {"title": "Map is old", "priority": "low", "reporter": "P2"}),
        ("order_item", {"item": "I1", "quantity": 6, "buyer": "P1", "approver": "P2"}),
        ("tag_ticket", {"ticket": "T1", "tag": "B"}),
        ("tag_ticket", {"ticket": "T1", "tag": "a"}),
        ("invite", {"meeting": "M1", "person": "P3"}),
        ("invite", {"meeting": "M1", "person": "P2"}),
    ]
    one, other = opened(), opened()
    for call in calls:
        one.call(*call, 1.0)
    for call in reversed(calls):
        other.call(*call, 1.0)
    assert one.state() == other.state()


def test_a_task_s_state_is_not_what_its_episode_changes() -> None:
    before = json.dumps(OFFICE)
    toolset = opened()
    toolset.call("close_ticket", {"ticket": "T1", "resolution": "fixed"}, 1.0)
    assert json.dumps(OFFICE) == before
    assert opened().state() != toolset.state()


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"people": {"P1": {"name": 3}}}, r"people\.P1\.name"),
        ({"people": {"P1": {"name": "Ana", "age": 3}}}, r"people\.P1\.age"),
        ({"planets": {}}, "planets"),
        ({"tickets": {"T1": {"title": "x", "status": "lost"}}}, r"tickets\.T1\.status"),
        ({"tickets": {"T1": {"title": "x", "owner": "P9"}}}, "T1.owner or reporter is 'P9'"),
        ({"meetings": {"M1": {"title": "x", "day": "Monday", "hour": 9, "room": "Oak"}}}, "'Oak'"),
        ({"orders": {"O1": {"item": "I1", "quantity": 1, "buyer": "P1"}}}, "O1.item is 'I1'"),
        ({"people": {"P1": {"name": "Ana", "manager": "P9"}}}, "people.P1.manager is 'P9'"),
        ({"people": {"P1": {"name": "Ana", "deputy": "P9"}}}, "people.P1.deputy is 'P9'"),
        ({"meetings": {"M1": {"title": "x", "day": "Monday", "hour": 9, "host": "P9"}}},
         "M1.host or guest is 'P9'"),
        ({"meetings": {"M1": {"title": "x", "day": "Monday", "hour": 9, "guests": ["P9"]}}},
         "M1.host or guest is 'P9'"),
        ({"tickets": {"T1": {"title": "x", "reporter": "P9"}}}, "T1.owner or reporter is 'P9'"),
        ({"tickets": {"T1": {"title": "x", "links": ["T9"]}}}, "T1.links or merged_into is 'T9'"),
        ({"tickets": {"T1": {"title": "x", "merged_into": "T9"}}}, "merged_into is 'T9'"),
        ({"items": {"I1": {"name": "x", "keeper": "P9"}}}, "items.I1.keeper is 'P9'"),
        ({**OFFICE, "orders": {"O1": {"item": "I1", "quantity": 1, "buyer": "P9"}}},
         "O1.buyer or approver is 'P9'"),
        ({**OFFICE, "orders": {"O1": {"item": "I1", "quantity": 1, "buyer": "P1",
                                      "approver": "P9"}}}, "O1.buyer or approver is 'P9'"),
        (["people"], "office"),
        (7, "office"),
    ],
)  # fmt: skip
def test_a_wrong_state_is_a_task_error_that_names_the_place(state: object, where: str) -> None:
    with pytest.raises(TaskError, match=where):
        opened(state)


DONE: list[tuple[str, dict[str, object], str, dict[str, dict[str, object]]]] = [
    ("find_people", {"name": "keller ANA"}, '{"P1": {"name": "Ana Keller", "team": "Sales"}}', {}),
    ("list_people", {"team": " legal"}, '{"P3": "Carla Novak", "P4": "Dario Toth"}', {}),
    ("get_person", {"person": "P4"},
     '{"name": "Dario Toth", "team": "Legal", "deputy": "P3", "away": true}', {}),
    ("change_team", {"person": "P1", "team": "legal"}, "P1 is in Legal", {"P1": {"team": "Legal"}}),
    ("change_manager", {"person": "P2", "manager": "P3"}, "P3 manages P2",
     {"P2": {"manager": "P3"}}),
    ("set_deputy", {"person": "P2", "deputy": "P4"}, "P4 stands in for P2",
     {"P2": {"deputy": "P4"}}),
    ("mark_away", {"person": "P1"}, "P1 is away", {"P1": {"away": True}}),
    ("mark_back", {"person": "P4"}, "P4 is back", {"P4": {"away": False}}),
    ("notify", {"person": "P4", "about": "M3"}, "told P4 about M3",
     {"P4 about M3": {"": "P4 about M3"}}),
    ("notify", {"person": "P1", "about": "T2"}, "told P1 about T2",
     {"P1 about T2": {"": "P1 about T2"}}),
    ("find_tickets", {"title": "mail late"}, '{"T3": {"title": "Mail is late", "status": "open"}}',
     {}),
    ("list_tickets", {"owner": "P1"}, '{"T1": {"title": "Printer jams", "status": "open"}}', {}),
    ("get_ticket", {"ticket": "T2"}, '{"title": "Mail bounces", "status": "closed", '
     '"priority": "normal", "links": ["T1"]}', {}),
    ("open_ticket", {"title": " Lift is stuck. ", "priority": "low", "reporter": "P4"},
     "opened T313",
     {"T313": {"title": "Lift is stuck.", "status": "open", "priority": "low", "owner": "",
               "reporter": "P4", "resolution": "", "tags": [], "links": [], "merged_into": ""}}),
    ("assign_ticket", {"ticket": "T1", "person": "P2"}, "P2 owns T1", {"T1": {"owner": "P2"}}),
    ("set_priority", {"ticket": "T1", "priority": "urgent"}, "T1 has the priority urgent",
     {"T1": {"priority": "urgent"}}),
    ("close_ticket", {"ticket": "T1", "resolution": "fixed"}, "closed T1",
     {"T1": {"status": "closed", "resolution": "fixed"}}),
    ("reopen_ticket", {"ticket": "T4"}, "T4 is open again",
     {"T4": {"status": "open", "resolution": ""}}),
    ("tag_ticket", {"ticket": "T1", "tag": " Floor  TWO "}, "T1 has the tag floor two",
     {"T1": {"tags": ["floor two"]}}),
    ("link_tickets", {"ticket": "T1", "other": "T4"}, "linked T1 and T4",
     {"T1": {"links": ["T2", "T4"]}, "T4": {"links": ["T1"]}}),
    ("find_meetings", {"title": "talk"},
     '{"M3": {"title": "Tax talk", "day": "Friday", "hour": 9, "cancelled": true}}', {}),
    ("list_meetings", {"host": "P1"},
     '{"M1": {"title": "Budget review", "day": "Monday", "hour": 10}}', {}),
    ("get_meeting", {"meeting": "M2"}, '{"title": "Town hall", "day": "Monday", "hour": 10, '
     '"room": "Elm", "guests": ["P1"], "cancelled": false}', {}),
    ("list_rooms", {"floor": 2}, '{"Elm": {"seats": 4}}', {}),
    ("get_room", {"room": "elm"}, '{"floor": 2, "seats": 4}', {}),
    ("book_meeting",
     {"title": "Kick off", "day": "Friday", "hour": 9.0, "room": "oak", "host": "P2"},
     "booked M851", {"M851": {"title": "Kick off", "day": "Friday", "hour": 9, "room": "Oak",
                              "host": "P2", "guests": [], "cancelled": False}}),
    ("move_meeting", {"meeting": "M1", "day": "Friday", "hour": 9.0}, "M1 is on Friday at 9",
     {"M1": {"day": "Friday", "hour": 9}}),
    ("move_meeting", {"meeting": "M1", "day": "Monday", "hour": 10}, "M1 is on Monday at 10", {}),
    ("change_room", {"meeting": "M1", "room": "OAK"}, "M1 is in Oak", {}),
    ("change_room", {"meeting": "M4", "room": "elm"}, "M4 is in Elm", {"M4": {"room": "Elm"}}),
    ("change_host", {"meeting": "M1", "person": "P3"}, "P3 hosts M1", {"M1": {"host": "P3"}}),
    ("invite", {"meeting": "M2", "person": "P4"}, "P4 is invited to M2",
     {"M2": {"guests": ["P1", "P4"]}}),
    ("uninvite", {"meeting": "M2", "person": "P1"}, "P1 is no guest of M2 any more",
     {"M2": {"guests": []}}),
    ("cancel_meeting", {"meeting": "M1"}, "cancelled M1", {"M1": {"cancelled": True}}),
    ("find_items", {"name": "DESK"}, '{"I1": {"name": "oak desk", "price": 100, "stock": 1}}', {}),
    ("list_items", {"kind": " DESK"},
     '{"I1": {"name": "oak desk", "price": 100, "stock": 1}}', {}),
    ("get_item", {"item": "I1"},
     '{"name": "oak desk", "kind": "desk", "price": 100, "stock": 1, "pack": 2}', {}),
    ("change_keeper", {"item": "I1", "person": "P4"}, "P4 looks after I1",
     {"I1": {"keeper": "P4"}}),
    ("list_orders", {"buyer": "P1"}, '{"O1": {"item": "I1", "quantity": 2, "cancelled": false}, '
     '"O2": {"item": "I1", "quantity": 2, "cancelled": true}}', {}),
    ("get_order", {"order": "O2"},
     '{"item": "I1", "quantity": 2, "buyer": "P1", "cancelled": true}', {}),
    ("order_item", {"item": "I1", "quantity": 4.0, "buyer": "P1", "approver": "P2"}, "placed O846",
     {"O846": {"item": "I1", "quantity": 4, "buyer": "P1", "approver": "", "cancelled": False}}),
    ("order_item", {"item": "I1", "quantity": 6, "buyer": "P1", "approver": "P2"}, "placed O846",
     {"O846": {"item": "I1", "quantity": 6, "buyer": "P1", "approver": "P2", "cancelled": False}}),
    ("change_quantity", {"order": "O1", "quantity": 6.0}, "O1 is for 6 pieces",
     {"O1": {"quantity": 6}}),
    ("cancel_order", {"order": "O1"}, "cancelled O1", {"O1": {"cancelled": True}}),
]  # fmt: skip
"""Tool, arguments, its answer, and the fields that are other than before."""


def changed(before: dict[str, object], after: dict[str, object]) -> dict[str, dict[str, object]]:
    """The fields that are other ones, by id; of what is no record the whole."""
    found = {}
    for table, rows in after.items():
        former = cast("dict[str, Any]", before[table])
        assert isinstance(rows, dict)
        assert former.keys() <= rows.keys()
        for key, row in rows.items():
            fields = row if isinstance(row, dict) else {"": row}
            old = former.get(key, {})
            if row != old:
                found[key] = {name: value for name, value in fields.items()
                              if name not in old or value != old[name]}  # fmt: skip
    return found


@pytest.mark.parametrize(("tool", "arguments", "answer", "changes"), DONE)
def test_each_tool_answers_and_changes_this_and_nothing_else(
    tool: str, arguments: dict[str, object], answer: str, changes: dict[str, dict[str, object]]
) -> None:
    toolset = opened()
    before = toolset.state()
    assert toolset.call(tool, arguments, 1.0) == answer
    assert changed(before, toolset.state()) == changes


def test_every_tool_is_among_those_whose_work_is_held() -> None:
    assert {tool for tool, *_ in DONE} == set(map(name_of, TOOLS))


@pytest.mark.parametrize(("tool", "arguments"), [(tool, given) for tool, given, *_ in DONE])
def test_an_id_that_is_not_there_is_refused_whatever_it_is_for(
    tool: str, arguments: dict[str, object]
) -> None:
    named = [
        name for name, value in arguments.items()
        if re.fullmatch(r"[A-Z]\d", str(value)) or name in ("room", "team")
    ]  # fmt: skip
    dear = {"quantity": 6} if tool == "order_item" else {}
    for name in named:
        toolset = opened()
        before = toolset.state()
        with pytest.raises(ToolFailure, match=r"there is no|is no guest|has to be the manager"):
            toolset.call(tool, {**arguments, **dear, name: "Z" * 50}, 1.0)
        assert toolset.state() == before, name


def test_a_new_id_that_is_taken_is_the_next_that_is_free() -> None:
    first = new_id("T", "lift is stuck", ())
    assert first == "T313"
    assert new_id("T", "lift is stuck", (first, "T315")) == "T314"
    assert new_id("T", "lift is stuck", (first, "T314")) == "T315"
    assert new_id("M", "lift is stuck", (first,)) == "M313"
    numbers = [int(new_id("T", str(one), ())[1:]) for one in range(5000)]
    assert (min(numbers), max(numbers)) == (100, 999)


def test_what_changed_are_the_ids_of_records_that_are_new_other_or_gone() -> None:
    before = read_office(OFFICE)
    after = before.copy()
    assert after.changed_since(before) == frozenset()
    del after.tickets["T4"]
    after.rooms["Fir"] = Room(1, 2)
    after.people["P2"] = replace(after.people["P2"], away=True)
    assert after.changed_since(before) == before.changed_since(after) == {"T4", "Fir", "P2"}
    assert before == read_office(OFFICE)


def test_at_most_twenty_are_found_and_a_near_name_is_named() -> None:
    rows = {f"T{number}": {"title": f"Lamp {number}"} for number in range(30)}
    toolset = opened({"tickets": rows, "rooms": {}})
    found = json.loads(toolset.call("find_tickets", {"title": "lamp"}, 1.0))
    assert list(found) == list(rows)[:20]
    with pytest.raises(ToolFailure) as refused:
        toolset.call("find_tickets", {"title": "lamb  7"}, 1.0)
    assert (
        str(refused.value) == "no tickets are called 'lamb  7'; like it: Lamp 7, Lamp 27, Lamp 17"
    )
    with pytest.raises(ToolFailure) as refused:
        toolset.call("get_room", {"room": "x" * 50}, 1.0)
    assert str(refused.value) == f"there is no room {'x' * 40}; rooms: none"


def test_who_is_away_without_a_deputy_is_only_away() -> None:
    toolset = opened({"people": {"P1": {"name": "Ana", "away": True}}, "tickets": {"T1": {
        "title": "x"}}})  # fmt: skip
    with pytest.raises(ToolFailure) as refused:
        toolset.call("assign_ticket", {"ticket": "T1", "person": "P1"}, 1.0)
    assert str(refused.value) == "P1 is away"


def test_an_order_above_the_limit_of_who_has_no_manager_is_refused() -> None:
    toolset = opened()
    for approver in ("", "P1", "P2"):
        with pytest.raises(ToolFailure, match="costs 600 coins: above 500"):
            toolset.call("order_item", {"item": "I1", "quantity": 6, "buyer": "P2",
                                        "approver": approver}, 1.0)  # fmt: skip
    five = opened({**OFFICE, "items": {"I1": {"name": "lamp", "price": 100}}})
    five.call("order_item", {"item": "I1", "quantity": 5, "buyer": "P2"}, 1.0)


def test_what_may_be_said_is_in_the_schemas() -> None:
    said: dict[str, Any] = {}
    for schema in TOOLS:
        parameters: Any = schema["function"]["parameters"]
        said |= parameters["properties"]
        optional = set(parameters["properties"]) - set(parameters["required"])
        assert optional == ({"approver"} if name_of(schema) == "order_item" else set())
    number = {"type": "integer", "minimum": 1, "maximum": 10_000}
    assert (said["quantity"], said["floor"]) == (number, number)
    assert said["hour"] == {"type": "integer", "minimum": 8, "maximum": 17}
    assert said["day"]["enum"] == ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
    assert said["priority"]["enum"] == ["low", "normal", "high", "urgent"]
    assert said["resolution"]["enum"] == ["answered", "declined", "fixed", "obsolete"]
