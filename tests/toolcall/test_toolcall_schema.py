"""S25: whatever a model writes as arguments is a result in words, never an exception."""

import json

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Tool
from clawrl_gym.envs.toolcall.schema import MAX_CHARS, MAX_DEPTH, arguments_of, check_tool
from clawrl_gym.envs.toolcall.toolset import ToolFailure, tool

TEXT = {"type": "string"}
FIND = tool("find", "", {"city": TEXT, "days": {"type": "integer", "maximum": 9}}, "city")
LOOSE: Tool = {"type": "function", "function": {"name": "loose"}}


def test_arguments_that_fit_are_parsed():
    assert arguments_of('{"city": "Bern", "days": 3}', FIND) == {"city": "Bern", "days": 3}
    assert arguments_of("  ", LOOSE) == {}
    assert arguments_of('{"any": [1, null]}', LOOSE) == {"any": [1, None]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "wrong arguments: 'city' is a required property"),
        ("{}", "'city' is a required property"),
        ("city=Bern", "not JSON; expected city"),
        ("[]", "no JSON object; expected city"),
        ("null", "no JSON object"),
        ('"Bern"', "no JSON object"),
        ('{"city": 5}', "at city: 5 is not of type 'string'"),
        ('{"city": "a", "days": "3"}', "at days: '3' is not of type 'integer'"),
        ('{"city": "a", "days": 10}', "at days: 10 is greater than the maximum of 9"),
        ('{"city": "a", "days": NaN}', "NaN is not a JSON number"),
        ('{"city": "a", "days": -Infinity}', "-Infinity is not a JSON number"),
        ('{"city": "a", "city": "b"}', "the argument 'city' is given twice"),
        ('{"city": "a", "x": {"y": 1, "y": 2}}', "the argument 'y' is given twice"),
        ('{"city": "\\ud800"}', "not valid Unicode"),
        ('{"city": "a", "\\udfff": 1}', "not valid Unicode"),
        ('{"city": ' + "[" * 100_00 + "]" * 100_00 + "}", "not JSON|nested too deeply"),
        ('{"city": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}", "nested too deeply"),
        ('{"city": "a", "days": ' + "9" * 5000 + "}", "not JSON"),
        ('{"city": "' + "x" * 10_000_000 + '"}', f"at most {MAX_CHARS} characters"),
        ('{"c\u0456ty": "Bern"}', "was unexpected"),
    ],
)
def test_arguments_that_do_not_fit_are_told_why(text, why):
    with pytest.raises(ToolFailure, match=why) as failure:
        arguments_of(text, FIND)
    assert len(str(failure.value)) < 400


def test_arguments_as_long_and_as_deep_as_may_be_are_read():
    for text in ("[" * 31 + "]" * 31, '{"a": ' * 30 + "1" + "}" * 30):
        arguments_of(f'{{"a": {text}}}', LOOSE)
        with pytest.raises(ToolFailure, match="at most 32 levels"):
            arguments_of(f'{{"a": [{text}]}}', LOOSE)
    text = '{"city": "Bern"}'
    assert arguments_of(text.ljust(100_000), FIND) == {"city": "Bern"}
    with pytest.raises(ToolFailure, match="at most 100000 characters"):
        arguments_of(text.ljust(100_001), FIND)


def test_what_is_expected_is_named():
    optional = tool("find", "", {"city": TEXT, "days": TEXT}, "days")
    for schema, names in ((optional, "days$"), (FIND, "city$"), (LOOSE, "{}$")):
        with pytest.raises(ToolFailure, match=f"not JSON; expected {names}"):
            arguments_of("x", schema)
    optional["function"]["parameters"]["required"] = []
    with pytest.raises(ToolFailure, match=r"not JSON; expected city, days$"):
        arguments_of("x", optional)


def test_a_long_value_is_not_given_back_whole():
    with pytest.raises(ToolFailure) as failure:
        arguments_of(json.dumps({"city": "a", "days": "x" * 90_000}), FIND)
    assert len(str(failure.value)) < 400


def test_a_tool_that_is_no_schema_is_an_error_of_its_task():
    with pytest.raises(TaskError, match="the tool 'bad' are no JSON schema"):
        check_tool(tool("bad", "", {"x": {"type": "texts"}}))
    with pytest.raises(TaskError, match="expected a function with a name"):
        check_tool({"type": "function"})  # type: ignore[typeddict-item]
