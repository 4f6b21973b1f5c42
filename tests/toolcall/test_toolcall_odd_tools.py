"""One odd tool, schema, content part or result of an MCP server costs only itself."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.toolcall import readable_schema
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.schema import arguments_of, say_what_is_unchecked
from clawrl_gym.envs.toolcall.toolset import ToolFailure
from clawrl_gym.envs.toolcall.toolsets import mcp_repair
from clawrl_gym.envs.toolcall.toolsets.mcp import McpToolset, read_servers

SERVER = Path(__file__).parents[1] / "fixtures" / "mcp_odd_server.py"
INTEGER = {"type": "integer"}
ADD = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": INTEGER}}}
TIMEOUT_S = 20.0


def with_property(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"n": INTEGER, "odd": schema}, **more}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"in": schema}}
    return schema


ODD_SCHEMAS = {
    "unicode-pattern": with_property({"type": "string", "pattern": "^[\\p{L}]+$"}),
    "broken-pattern": with_property({"type": "string", "pattern": "("}),
    "broken-pattern-property": with_property({}, patternProperties={"(": INTEGER}),
    "required-true": with_property({"type": "string", "required": True}),
    "required-true-above": with_property({}, required=True),
    "required-numbers": with_property({}, required=[1]),
    "tuple-items": with_property({"type": "array", "items": [INTEGER, INTEGER]}),
    "draft-4-bounds": with_property({"minimum": 0, "exclusiveMinimum": True}),
    "draft-4-named": with_property(
        {"minimum": 0, "exclusiveMinimum": True},
        **{"$schema": "http://json-schema.org/draft-04/schema#"},
    ),
    "unknown-draft": with_property({}, **{"$schema": "http://127.0.0.1:9/mine.json"}),
    "draft-no-text": with_property({}, **{"$schema": 7, "$id": 7}),
    "dangling-ref": with_property({"$ref": "#/$defs/Nothing"}),
    "remote-ref": with_property({"$ref": "http://127.0.0.1:9/q.json"}),
    "self-ref": with_property({"$ref": "#/properties/odd"}),
    "ref-to-all": with_property({"$ref": "#"}),
    "ref-in-a-round": with_property(
        {"$ref": "#/$defs/A"},
        **{"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
    ),
    "tree": with_property(
        {"$ref": "#/$defs/T"},
        **{"$defs": {"T": {"properties": {"kids": {"items": {"$ref": "#/$defs/T"}}}}}},
    ),
    "definitions": with_property(
        {"$ref": "#/definitions/S"}, definitions={"S": {"type": "string"}}
    ),
    "broken-definition": with_property(
        {"oneOf": [{"$ref": "#/$defs/S"}, INTEGER]}, **{"$defs": {"S": {"type": "texts"}}}
    ),
    "definitions-no-object": with_property({"$ref": "#/$defs/S"}, **{"$defs": [1]}),
    "type-list": with_property({"type": ["string", "null"]}),
    "type-unknown": with_property({"type": "file"}),
    "type-missing": {"properties": {"n": INTEGER}},
    "type-not-object": {"type": "string", "properties": {"n": INTEGER}},
    "any-of-above": {"anyOf": [{"type": "object", "properties": {"n": INTEGER}}, {"x": 1}]},
    "boolean": with_property(True),
    "boolean-whole": True,
    "list-whole": [1],
    "text-whole": "object",
    "null-whole": None,
    "empty": {},
    "property-text": with_property("string"),
    "properties-list": {"type": "object", "properties": ["n"]},
    "nullable": with_property({"type": "string", "nullable": True}),
    "const": with_property({"const": {"x": [1]}}),
    "format": with_property({"type": "string", "format": "anything"}),
    "pattern-properties": with_property({}, patternProperties={"^x-": INTEGER}),
    "closed": with_property({"type": "texts"}, additionalProperties=False),
    "condition": with_property({}, **{"if": {"required": ["x"]}, "then": {"required": 5}}),
    "enum-empty": with_property({"enum": []}),
    "deep": deep(20),
    "too-deep": deep(200),
    "huge": with_property({"enum": [f"value {number}" for number in range(20_000)]}),
}
LEFT_OUT = {"no name": {"inputSchema": {}}, "number": {"name": 5}, "text": "add", "null": None,
            "empty": {"name": " "}}  # fmt: skip
ODD_NAMES = {
    "fs.read/file": "fs_read_file",
    "fs.read.file": "fs_read_file_2",
    "x" * 90: "x" * 64,
    "x" * 91: "x" * 62 + "_2",
    "größe": "gr__e",
}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


RESULTS: dict[str, tuple[Any, str]] = {
    "image": ({"content": [{"type": "image", "data": "QUJD", "mimeType": "image/png"}]}, "3 bytes"),
    "image-odd": ({"content": [{"type": "image", "data": 5}, text("and")]}, '"data": 5}\nand'),
    "resource": ({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "R"}}]}, "R"),
    "link": ({"content": [{"type": "resource_link", "uri": "x:y", "name": "n"}]}, "resource x:y"),
    "unknown-part": ({"content": [{"type": "video", "url": "u"}]}, '"video"'),
    "part-text": ({"content": ["words"]}, "words"),
    "part-null": ({"content": [None, text("x")]}, "null\nx"),
    "text-null": ({"content": [{"type": "text", "text": None}]}, "null"),
    "text-number": ({"content": [{"type": "text", "text": 5}]}, "5"),
    "content-text": ({"content": "words"}, "words"),
    "content-null": ({"content": None}, ""),
    "annotations-odd": ({"content": [{**text("x"), "annotations": 5, "_meta": 5}]}, "x"),
    "structured": ({"content": [], "structuredContent": {"t": 1}}, '{"t": 1}'),
    "structured-only": ({"structuredContent": {"t": 1}}, '{"t": 1}'),
    "structured-list": ({"content": [], "structuredContent": [1]}, "[1]"),
    "structured-beside-schema": (
        {"content": [text("ok")], "structuredContent": {"t": "warm"}},
        "ok",
    ),
    "result-text": ("words", "words"),
    "result-list": ([1], "[1]"),
    "result-null": (None, "null"),
    "meta-odd": ({"content": [text("x")], "_meta": 5}, "x"),
    "half-a-pair": ({"content": [text("a\ud83d b")]}, "a? b"),
    "truth-as-text": ({"content": [text("x")], "isError": "false"}, "x"),
}
FAILURES: dict[str, tuple[Any, str]] = {
    "is-error": ({"result": {"content": [text("broke")], "isError": True}}, "broke"),
    "is-error-text": ({"result": {"content": [text("broke")], "isError": "true"}}, "broke"),
    "is-error-silent": ({"result": {"content": [], "isError": True}}, "did not say why"),
    "error": ({"error": {"code": -32000, "message": "broke"}}, "broke"),
    "error-text": ({"error": "broke"}, "broke"),
    "error-code": ({"error": {"code": "E1", "message": "broke"}}, "broke"),
    "error-null": ({"error": None}, "null"),
    "empty-result": ({"result": {}}, "cannot be read"),
    "mute": ("mute", "longer than 0.5 s"),
    "late": ("late", "longer than 0.5 s"),
}


def server(
    *pages: Any, results: dict[str, Any] | None = None, habit: str = "", name: str = "odd"
) -> dict[str, Any]:
    env = {"TOOLS": json.dumps(pages or [[ADD]]), "RESULTS": json.dumps(results or {}),
           "HABIT": habit}  # fmt: skip
    return {"name": name, "command": sys.executable, "args": [str(SERVER)], "env": env}


def opened(*servers: dict[str, Any]) -> closing[McpToolset]:
    return closing(McpToolset(read_servers(servers)))


def names(toolset: McpToolset) -> list[str]:
    return [tool["function"]["name"] for tool in toolset.tools()]


def listing(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "description": 5 if name == "empty" else "odd", "inputSchema": schema}


FITTING: dict[str, Any] = {
    "tuple-items": [1, 2], "draft-4-bounds": 0, "draft-4-named": 1, "ref-to-all": {"n": 2},
    "tree": {"kids": [{}]}, "nullable": None, "type-list": None, "const": {"x": [1]},
    "broken-definition": "x", "huge": "value 7",
}  # fmt: skip
"""Values of the property `odd` that the schema's author would take; "x" for the others."""
SAY_NOTHING_OF_N = frozenset(
    ("boolean-whole", "list-whole", "text-whole", "null-whole", "empty", "properties-list",
     "deep", "too-deep", "any-of-above", "huge")
)  # fmt: skip
CLOSED_TO_ALL = frozenset(("type-not-object", "enum-empty"))
"""Schemas that can be read, and that nothing fits."""


def offered(name: str) -> Any:
    """As `mcp_repair.py` hands on what a server lists."""
    listed = mcp_repair.repaired_result({"tools": [listing(name, ODD_SCHEMAS[name])]}, "odd")
    parameters = listed["tools"][0]["_meta"][mcp_repair.LISTED_SCHEMA]
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def test_all_odd_tools_of_a_server_are_offered_and_called_in_an_episode() -> None:
    odd = sorted(ODD_SCHEMAS.keys() - {"huge"})  # too long for the server's environment
    listed = [listing(name, ODD_SCHEMAS[name]) for name in odd]
    page = [ADD, *LEFT_OUT.values(), *listed, {"name": "bare"}]
    with closing(ToolCallEnv(mcp=[server(page)])) as env:
        info: dict[str, Any] = dict(env.reset(seed=1)[1])
        offers = [tool["function"]["name"] for tool in info["tools"]]
        assert {"add", "bare", *odd} <= set(offers)
        for name in ("add", "bare", *odd):
            call = Call("1", name, json.dumps({"n": 1, "odd": FITTING.get(name, "x")}))
            observation, _, terminated, truncated, _ = env.step(encode(Reply("", (call,))))
            if name not in CLOSED_TO_ALL:
                assert json.loads(observation)[0]["content"] == name
            if terminated or truncated:
                env.reset(seed=1)


@pytest.mark.parametrize("name", sorted(ODD_SCHEMAS.keys() - CLOSED_TO_ALL))
def test_arguments_that_an_odd_schema_means_are_let_through(name: str) -> None:
    arguments = {"n": 1, "odd": FITTING.get(name, "x")}
    assert arguments_of(json.dumps(arguments), offered(name)) == arguments


@pytest.mark.parametrize("name", sorted(ODD_SCHEMAS.keys() - SAY_NOTHING_OF_N))
def test_what_can_be_read_of_an_odd_schema_is_still_checked(name: str) -> None:
    arguments = {"n": "one", "odd": FITTING.get(name, "x")}
    with pytest.raises(ToolFailure, match="wrong arguments"):
        arguments_of(json.dumps(arguments), offered(name))


def test_a_closed_schema_with_an_unreadable_property_still_knows_its_name() -> None:
    assert arguments_of('{"odd": 1}', offered("closed")) == {"odd": 1}
    with pytest.raises(ToolFailure, match="'more' was unexpected"):
        arguments_of('{"more": 1}', offered("closed"))


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [("^(a+)+$", True), ("^(\\w+\\s?)*$", True), ("((ab)*c)*", True), ("(a|a)*b", True),
     ("(?:[a-z]+-)*[a-z]+", True), ("([a-z]+){2,}", True), ("(x(y(z*))){0,9}", True),
     ("^[a-z]+$", False), ("(ab)+", False), ("\\(a+\\)+", False), ("[(a+)]+", False),
     ("^(\\d{4})-(\\d{2})$", False), ("a*b*c*", False), ("(?:a|b)c", False)],
)  # fmt: skip
def test_a_pattern_that_may_take_years_says_nothing_about_a_long_text(
    pattern: str, is_slow: bool
) -> None:
    assert readable_schema.may_be_slow(pattern) is is_slow
    schema = with_property({"type": "string", "pattern": pattern})
    tool: Any = {"type": "function", "function": {"name": "slow", "parameters": schema}}
    long = json.dumps({"odd": "a" * 200 + "!"})
    if is_slow:
        assert arguments_of(long, tool)
    if not re.search(pattern, "?!"):
        with pytest.raises(ToolFailure, match="does not match"):
            arguments_of('{"odd": "?!"}', tool)


@pytest.mark.parametrize("name", ["unicode-pattern", "dangling-ref", "self-ref", "required-true"])
def test_the_log_names_a_schema_that_is_not_checked_whole_once(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable_schema, "_said", set())
    for _ in range(3):
        say_what_is_unchecked(offered(name))
        arguments_of('{"odd": "x"}', offered(name))
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"the tool '{name}' is offered"
    ]


def test_nothing_of_a_schema_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*arguments: object) -> None:
        raise AssertionError("something was fetched")

    for name in ("remote-ref", "unknown-draft"):
        tool = offered(name)
        with monkeypatch.context() as patched:
            patched.setattr(socket.socket, "connect", refuse)
            assert arguments_of('{"odd": "x"}', tool)


def test_a_result_s_schema_is_never_read() -> None:
    out = {"type": "object", "properties": {"t": {"$ref": "http://127.0.0.1:9/t.json"}}}
    tool = {**ADD, "name": "structured", "outputSchema": out}
    results = {"structured": {"result": RESULTS["structured"][0]}}
    with opened(server([tool], results=results)) as toolset:
        assert toolset.call("structured", {}, TIMEOUT_S) == RESULTS["structured"][1]


def test_entries_that_are_no_tools_are_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mcp_repair.say_once.cache_clear()
    with opened(server([ADD, *LEFT_OUT.values(), ADD, listing("rest", {})])) as toolset:
        assert names(toolset) == ["add", "rest"]
    said = [record.getMessage() for record in caplog.records]
    assert sum("it is no tool with a name" in line for line in said) == len(LEFT_OUT)
    assert sum("the second tool of the name 'add'" in line for line in said) == 1


@pytest.mark.parametrize("listed", [None, "add", 5, {"add": {}}])
def test_a_listing_that_is_no_list_leaves_the_other_servers_tools(listed: Any) -> None:
    with opened(server(listed), server(name="other")) as toolset:
        assert names(toolset) == ["add"]


def test_odd_names_are_offered_as_names_of_their_own_and_called_as_listed() -> None:
    page = [listing(name, {}) for name in ODD_NAMES]
    with opened(server(page)) as toolset:
        assert names(toolset) == list(ODD_NAMES.values())
        for name, offer in ODD_NAMES.items():
            assert toolset.call(offer, {}, TIMEOUT_S) == name


@pytest.mark.parametrize(
    ("habit", "pages", "expected"),
    [
        ("", [[ADD], [listing("second", {})], [listing("third", {})]], 3),
        ("round", [[ADD], [listing("second", {})]], 1),
        ("page too many", [[ADD], [listing("second", {})]], 2),
        ("banner", [[ADD]], 1),
        ("chatty", [[ADD]], 1),
        ("", [[listing(f"tool-{number}", {}) for number in range(700)]], 512),
        ("", [[listing(f"tool-{number}", {})] for number in range(70)], 50),
    ],
)
def test_a_listing_is_read_as_far_as_it_goes(habit: str, pages: Any, expected: int) -> None:
    with opened(server(*pages, habit=habit)) as toolset:
        assert len(names(toolset)) == expected
        assert toolset.call(names(toolset)[0], {}, TIMEOUT_S) == names(toolset)[0]


@pytest.fixture(scope="module")
def answering() -> Any:
    results = {name: {"result": result} for name, (result, _) in RESULTS.items()}
    results |= {name: result for name, (result, _) in FAILURES.items()} | {"print": "print"}
    page = [listing(name, {}) for name in results]
    with opened(server(page, results=results)) as toolset:
        yield toolset


@pytest.mark.parametrize("name", RESULTS)
def test_an_odd_result_is_read_as_far_as_it_can(name: str, answering: McpToolset) -> None:
    assert RESULTS[name][1] in answering.call(name, {}, TIMEOUT_S)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_any_form_is_a_result_in_words(name: str, answering: McpToolset) -> None:
    with pytest.raises(ToolFailure, match=FAILURES[name][1]):
        answering.call(name, {}, 0.5)


def test_lines_that_are_no_messages_are_left_out(answering: McpToolset) -> None:
    assert answering.call("print", {}, TIMEOUT_S) == "print"


def test_a_server_that_dies_in_a_call_is_started_again_and_the_episode_goes_on() -> None:
    servers = [server([ADD, listing("die", {})], results={"die": "die"})]
    with closing(ToolCallEnv(mcp=servers)) as env:
        env.reset(seed=1)
        calls = tuple(Call(name, name, "{}") for name in ("add", "die", "add"))
        results = json.loads(env.step(encode(Reply("", calls)))[0])
        assert "was started again" in results[1]["content"]
        assert [results[0]["content"], results[2]["content"]] == ["add", "add"]
        assert env.finish() == 0.0


def test_a_server_that_does_not_start_again_makes_no_grade(tmp_path: Path) -> None:
    once = tmp_path / "started"
    command = f"[ -e {once} ] && exit 1; touch {once}; exec {sys.executable} {SERVER}"
    config = {**server([listing("die", {})], results={"die": "die"}), "command": "bash"}
    with closing(ToolCallEnv(mcp=[{**config, "args": ["-c", command]}])) as env:
        env.reset(seed=1)
        for why in ("does not start again", "is gone"):
            call = Call("1", "die", "{}")
            assert why in json.loads(env.step(encode(Reply("", (call,))))[0])[0]["content"]
        with pytest.raises(EnvError, match="could not be used"):
            env.finish()
