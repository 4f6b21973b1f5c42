"""The office's tools: what they do, what they refuse, and what a wrong state is told."""

from __future__ import annotations

import json

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall import office
from clawrl_gym.envs.toolcall.office.toolset import TOOLS, OfficeTools
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
        "M3": {"title": "Tax talk", "day": "Friday", "hour": 9, "cancelled": True},
    },
    "tickets": {
        "T1": {"title": "Printer jams", "owner": "P1", "reporter": "P2", "links": ["T2"]},
        "T2": {"title": "Mail bounces", "status": "closed", "links": ["T1"]},
        "T3": {"title": "Mail is late", "merged_into": "T1"},
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
        ("change_room", {"meeting": "M1", "room": "Elm"}, r"taken on Monday at 10 by M2; free"),
        ("change_room", {"meeting": "M1", "room": "Fir"}, "rooms: Oak, Elm"),
        ("move_meeting", {"meeting": "M3", "day": "Monday", "hour": 9}, "M3 is cancelled"),
        ("change_host", {"meeting": "M1", "person": "P4"}, "the deputy is P3"),
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
)
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
        (["people"], "office"),
        (7, "office"),
    ],
)
def test_a_wrong_state_is_a_task_error_that_names_the_place(state: object, where: str) -> None:
    with pytest.raises(TaskError, match=where):
        opened(state)
