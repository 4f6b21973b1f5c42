"""What models write who learned other tools, in our words."""

import pytest

from clawrl_gym.envs.gui.aliases import FIELDS, NAMES, normalize_fields
from clawrl_gym.envs.gui.schema import FORMS


def ours(action, **fields):
    return normalize_fields({"action": action, **fields}, 400.0)


def test_every_name_is_that_of_an_action():
    assert set(NAMES.values()) == {*FORMS, "terminate"}
    for alias, name in NAMES.items():
        meant = ours(f" {alias.upper()} ")["action"]
        assert meant == ("done" if name == "terminate" else name)
    assert ours("fly") == {"action": "fly"}
    assert normalize_fields({"action": 3, "key": "a"}, 400.0) == {"action": 3, "key": "a"}


@pytest.mark.parametrize("alias", FIELDS)
def test_a_field_has_our_name_unless_it_is_given_too(alias):
    field = FIELDS[alias]
    assert ours("click", **{alias: "x"}) == {"action": "click", field: "x"}
    both = ours("click", **{alias: "x", field: "y"})
    assert both == {"action": "click", alias: "x", field: "y"}
    assert ours("click", **{alias: None}) == {"action": "click"}


@pytest.mark.parametrize(
    ("theirs", "meant"),
    [
        ({"action": "terminate", "status": "success", "text": "ok"}, {"action": "done"}),
        ({"action": "terminate", "status": "FAILURE", "text": "no"},
         {"action": "give_up", "text": "no"}),
        ({"action": "click", "button": "left"}, {"action": "click"}),
        ({"action": "click", "button": "right"}, {"action": "right_click"}),
        ({"action": "click", "button": "middle"}, {"action": "click", "button": "middle"}),
        ({"action": "hover", "button": "left"}, {"action": "hover", "button": "left"}),
        ({"action": "click", "coordinate": [1, 2]}, {"action": "click", "x": 1, "y": 2}),
        ({"action": "click", "coordinate": {"x": 1, "y": 2}}, {"action": "click", "x": 1, "y": 2}),
        ({"action": "click", "coordinate": {"x": 1}}, {"action": "click", "coordinate": {"x": 1}}),
        ({"action": "click", "coordinate": [1]}, {"action": "click", "coordinate": [1]}),
        ({"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": (3, 4)},
         {"action": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4}),
        ({"action": "drag", "start_coordinate": [1, 2], "end_coordinate": [3, 4]},
         {"action": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4}),
        ({"action": "drag", "path": [{"x": 1, "y": 2}, [9, 9], [3, 4]]},
         {"action": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4}),
        ({"action": "drag", "path": [[1, 2], [3, 4]]},
         {"action": "drag", "x": 1, "y": 2, "to_x": 3, "to_y": 4}),
        ({"action": "drag", "path": [[1, 2]]}, {"action": "drag", "path": [[1, 2]]}),
        ({"action": "scroll", "scroll_amount": 3, "scroll_direction": "up"},
         {"action": "scroll", "amount": 0.75, "direction": "up"}),
        ({"action": "scroll", "scroll_amount": True}, {"action": "scroll", "scroll_amount": True}),
        ({"action": "scroll", "pixels": 100},
         {"action": "scroll", "amount": 0.25, "direction": "up"}),
        ({"action": "scroll", "pixels": -100},
         {"action": "scroll", "amount": 0.25, "direction": "down"}),
        ({"action": "scroll", "pixels": 0},
         {"action": "scroll", "amount": 0.0, "direction": "up"}),
        ({"action": "hscroll", "pixels": -100},
         {"action": "scroll", "amount": 0.25, "direction": "left"}),
        ({"action": "hscroll", "pixels": 40},
         {"action": "scroll", "amount": 0.1, "direction": "right"}),
        ({"action": "scroll", "scroll_x": 0, "scroll_y": 200},
         {"action": "scroll", "amount": 0.5, "direction": "down"}),
        ({"action": "scroll", "scroll_y": -200},
         {"action": "scroll", "amount": 0.5, "direction": "up"}),
        ({"action": "scroll", "scroll_x": 200},
         {"action": "scroll", "amount": 0.5, "direction": "right"}),
        ({"action": "scroll", "scroll_x": -200, "scroll_y": 100},
         {"action": "scroll", "amount": 0.5, "direction": "left"}),
        ({"action": "scroll", "scroll_x": 100, "scroll_y": 100},
         {"action": "scroll", "amount": 0.25, "direction": "down"}),
        ({"action": "scroll", "scroll_x": "far"}, {"action": "scroll", "scroll_x": "far"}),
        ({"action": "wait", "pixels": 3}, {"action": "wait", "pixels": 3}),
        ({"action": "keypress", "keys": ["ctrl", "a"]}, {"action": "press", "keys": "ctrl+a"}),
        ({"action": "key", "text": "Return"}, {"action": "press", "keys": "Return"}),
        ({"action": "press", "text": "a", "keys": "b"},
         {"action": "press", "text": "a", "keys": "b"}),
        ({"action": "type", "text": "a"}, {"action": "type", "text": "a"}),
        ({"action": "type", "keys": ["a"]}, {"action": "type", "keys": ["a"]}),
        ({"action": "select_option", "options": ["red"]}, {"action": "select", "text": "red"}),
        ({"action": "select", "options": ["red", "blue"]}, {"action": "select"}),
        ({"action": "select", "options": "red"}, {"action": "select", "options": "red"}),
        ({"action": "click", "options": ["red"]}, {"action": "click", "options": ["red"]}),
    ],
)  # fmt: skip
def test_an_action_of_another_tool_means_one_of_ours(theirs, meant):
    assert normalize_fields(theirs, 400.0) == meant
