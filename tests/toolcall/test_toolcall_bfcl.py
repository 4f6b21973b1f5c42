from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.benchmarks.bfcl import any_call, open_bfcl, right_call
from clawrl_gym.envs.toolcall.benchmarks.bfcl_grading import Answer
from clawrl_gym.envs.toolcall.env import ToolCallEnv

PLAY = {
    "name": "music.play",
    "description": "Play songs",
    "parameters": {
        "type": "dict",
        "properties": {
            "artist": {"type": "string"},
            "minutes": {"type": "float"},
            "where": {"type": "tuple", "items": {"type": "any"}},
            "options": {"type": "dict", "properties": {"loud": {"type": "boolean"}}},
        },
        "required": ["artist", "minutes"],
    },
}


def row(task_id: str, text: str = "Play Abba for 20 minutes and Blur for 15") -> dict[str, Any]:
    question = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]]
    return {"id": task_id, "question": question, "function": [PLAY]}


def call(**arguments: Any) -> Call:
    return Call("c", "music_play", json.dumps(arguments))


ANSWER = {
    "id": "parallel_0",
    "ground_truth": [
        {
            "music.play": {
                "artist": ["Abba"],
                "minutes": [20],
                "options": [{"loud": [True, ""]}, ""],
            }
        },
        {"music.play": {"artist": ["Blur", "The Blur"], "minutes": [15]}},
    ],
}


def written(folder: Path, category: str, rows: list[Any], answers: list[Any] | None = None) -> Path:
    file = folder / f"BFCL_v4_{category}.json"
    file.write_text("\n".join(map(json.dumps, rows)))
    if answers is not None:
        (folder / "possible_answer").mkdir(exist_ok=True)
        (folder / "possible_answer" / file.name).write_text("\n".join(map(json.dumps, answers)))
    return file


def reward(path: Path, reply: Reply) -> float:
    env = ToolCallEnv(tasks=str(path))
    try:
        env.reset(options={"task": json.loads(path.read_text().splitlines()[0])["id"]})
        _, earned, terminated, truncated, _ = env.step(encode(reply))
        assert terminated or truncated
        return float(earned)
    finally:
        env.close()


def test_names_lose_their_dots_and_types_become_those_of_json(tmp_path: Path) -> None:
    path = written(tmp_path, "parallel", [row("parallel_0")], [ANSWER])
    task = open_bfcl(path).load("parallel_0")
    function = task.state["bfcl"]["functions"][0]["function"]
    assert function["name"] == "music_play"
    properties = function["parameters"]["properties"]
    assert function["parameters"]["type"] == "object"
    assert properties["minutes"] == {"type": "number"}
    assert properties["where"] == {"type": "array", "items": {}}
    assert (task.system, task.turns) == ("Be brief.", 1)


@pytest.mark.parametrize(
    ("calls", "earned"),
    [
        ([call(artist="Abba", minutes=20), call(artist="Blur", minutes=15.0)], 1.0),
        ([call(artist="the blur", minutes=15), call(artist="Abba", minutes=20)], 1.0),
        ([call(artist="Abba", minutes=20, options={}), call(artist="Blur", minutes=15)], 1.0),
        ([call(artist="Abba", minutes=20)], 0.0),
        ([call(artist="Abba", minutes=20), call(artist="Abba", minutes=20)], 0.0),
        ([call(artist="Abba", minutes=20), call(artist="Blur", minutes=16)], 0.0),
        ([call(artist="Abba", minutes="20"), call(artist="Blur", minutes=15)], 0.0),
        ([call(artist="Abba", minutes=20), call(artist="Blur", minutes=15, where=[1])], 0.0),
        ([call(artist="Abba", minutes=20)] * 2 + [call(artist="Blur", minutes=15)], 0.0),
        ([call(artist="Abba", minutes=20, spare=1), call(artist="Blur", minutes=15)], 0.0),
        ([call(artist="Abba", minutes=20), Call("c", "other", "{}")], 0.0),
        ([call(artist="Abba", minutes=20), Call("c", "music_play", "[]")], 0.0),
        ([call(artist="Abba", minutes=20), Call("c", "music_play", '{"artist": "Blur"')], 0.0),
        ([], 0.0),
    ],
)
def test_calls_are_right_when_each_wanted_one_is_made_and_no_other(
    calls: list[Call], earned: float, tmp_path: Path
) -> None:
    path = written(tmp_path, "parallel", [row("parallel_0")], [ANSWER])
    assert reward(path, Reply("", tuple(calls))) == earned


def test_the_first_allowed_values_are_the_solution(tmp_path: Path) -> None:
    path = written(tmp_path, "parallel", [row("parallel_0")], [ANSWER])
    (solution,) = open_bfcl(path).load("parallel_0").solution
    assert json.loads(solution.calls[0].arguments) == {"artist": "Abba", "minutes": 20}
    assert reward(path, solution) == 1.0


def test_where_no_tool_helps_a_word_is_right_and_a_call_or_nothing_is_not(tmp_path: Path) -> None:
    path = written(tmp_path, "irrelevance", [row("irrelevance_0")])
    assert reward(path, Reply("I cannot do that.")) == 1.0
    assert reward(path, Reply("")) == 0.0
    assert reward(path, Reply("", (call(artist="Abba", minutes=20),))) == 0.0


def test_where_a_tool_helps_any_call_with_arguments_is_right(tmp_path: Path) -> None:
    path = written(tmp_path, "live_relevance", [row("live_relevance_0-0-0")])
    (solution,) = open_bfcl(path).load("live_relevance_0-0-0").solution
    assert reward(path, solution) == 1.0
    assert reward(path, Reply("", (call(artist="Abba"),))) == 1.0
    assert reward(path, Reply("", (Call("c", "music_play", "no JSON"),))) == 0.0
    assert reward(path, Reply("Which one?")) == 0.0


def declared(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


LIST_OF_TEXTS = declared("array", items={"type": "string"})
LIST_OF_OBJECTS = declared("array", items={"type": "dict"})


@pytest.mark.parametrize(
    ("parameter", "allowed", "right", "wrong"),
    [
        (declared("string"), ["New York, NY"], ["new york ny", "New-York.NY"], ["New York", 1]),
        (declared("string", enum=["small"]), ["small"], ["Small", "SM ALL"], ["tiny"]),
        (declared("string"), [True], [True], ["true", False]),
        (declared("string"), ["a", ""], ["a", "", "-"], [None]),
        (declared("string"), [None, "a"], [None], ["b"]),
        (declared("any"), ["x"], ["X"], [1]),
        (declared("integer"), [5, ""], [5], [5.0, "5", True, None]),
        (declared("float"), [5], [5, 5.0], ["5", 5.1, True]),
        (declared("float"), [0.5], [0.5], ["0.5"]),
        (declared("boolean"), [True], [True], [1, "true", False]),
        (declared("integer"), ["count"], ["count"], ["Count", 7]),
        (LIST_OF_TEXTS, [["a b", "c"]], [["AB", "c."]], [["c", "a b"], ["a b"], "a b", [1, 2]]),
        (declared("array", items={"type": "float"}), [[1, 2]], [[1, 2], [1.0, 2.0]], [["1", 2]]),
        (LIST_OF_TEXTS, [["a"], ""], [["a"], []], [None]),
        (declared("dict"), [{"k": ["V"], "n": [1, ""]}], [{"k": "v"}], [{"k": "x"}, {}, {"n": 1}]),
        (declared("dict"), [{"k": [{"in": [1]}]}], [{"k": {"in": [1]}}], [{"k": {"in": 1}}]),
        (
            LIST_OF_OBJECTS,
            [[{"k": ["V"]}, {"k": ["w"]}]],
            [[{"k": "v"}, {"k": "W"}]],
            [[{"k": "w"}, {"k": "v"}], [{"k": "v"}], [1, 2], [[], []]],
        ),
        (declared("nonsense"), ["a"], [], ["a", 1]),
        (declared("array"), [["a"]], [], [["a"]]),
    ],
)
def test_a_value_counts_as_it_does_for_bfcl(
    parameter: dict[str, Any], allowed: list[Any], right: list[Any], wrong: list[Any]
) -> None:
    parameters = {"type": "dict", "properties": {"x": parameter}, "required": []}
    answer = Answer("f", {"x": allowed}, parameters)
    assert [value for value in right if answer.problem("f", {"x": value}) is not None] == []
    assert [value for value in wrong if answer.problem("f", {"x": value}) is None] == []


def test_parallel_calls_go_to_the_first_answer_that_they_fit(tmp_path: Path) -> None:
    first = {"music.play": {"artist": ["Abba", "Blur"], "minutes": [1]}}
    second = {"music.play": {"artist": ["Abba"], "minutes": [1]}}
    answers = [{"id": "parallel_0", "ground_truth": [first, second]}]
    path = written(tmp_path, "parallel", [row("parallel_0")], answers)
    abba, blur = call(artist="Abba", minutes=1), call(artist="Blur", minutes=1)
    assert reward(path, Reply("", (blur, abba))) == 1.0
    assert reward(path, Reply("", (abba, blur))) == 0.0


def test_no_report_gives_an_answer_away(tmp_path: Path) -> None:
    path = written(tmp_path, "parallel", [row("parallel_0")], [ANSWER])
    env = ToolCallEnv(tasks=str(path))
    env.reset(options={"task": "parallel_0"})
    calls = (call(artist="Abba", minutes=20), call(artist="Queen", minutes=15))
    env.step(encode(Reply("", calls)))
    assert env.report == "Test report: failed\n- the argument 'artist' is wrong"


def test_an_answer_is_used_when_bfcl_takes_it_whatever_its_schema_says(tmp_path: Path) -> None:
    odd = {"id": "parallel_1", "ground_truth": [{"music.play": {"artist": [3], "minutes": [1]}}]}
    never = {"id": "parallel_2", "ground_truth": [{"music.play": {"artist": ["a"]}}]}
    rows = [row("parallel_0"), row("parallel_1"), row("parallel_2")]
    path = written(tmp_path, "parallel", rows, [ANSWER, odd, never])
    source = open_bfcl(path)
    assert list(source.tasks) == ["parallel_0", "parallel_1"]
    assert source.selection.reason_of("parallel_2") == (
        "no call is right by the rules of BFCL: the argument 'minutes' is missing"
    )
    assert json.loads(source.load("parallel_1").solution[0].calls[0].arguments) == {
        "artist": 3,
        "minutes": 1,
    }
    with pytest.raises(TaskError, match=r"'parallel_2' .* cannot be used here: no call is right"):
        source.load("parallel_2")


def test_a_folder_gives_all_that_can_be_read_and_every_question_one_split(tmp_path: Path) -> None:
    rows = [row(f"irrelevance_{n}", f"Question {n // 2}") for n in range(60)]
    written(tmp_path, "irrelevance", rows)
    written(tmp_path, "multi_turn_base", [{"id": "multi_turn_base_0"}])
    source = open_bfcl(tmp_path)
    train, heldout = set(source.ids("train")), set(source.ids("heldout"))
    assert len(train | heldout) == 60
    assert source.selection.summary == "60 tasks used, 1 left out"
    assert heldout
    assert {source.load(i).instruction for i in train}.isdisjoint(
        source.load(i).instruction for i in heldout
    )


@pytest.mark.parametrize(
    ("category", "why"),
    [
        ("multi_turn_base", "it takes several turns"),
        ("memory", "it takes several turns"),
        ("web_search", "it takes several turns"),
        ("simple_java", "written in Java"),
        ("simple_javascript", "written in JavaScript"),
        ("poetry", "the category 'poetry' is unknown"),
    ],
)
def test_what_needs_more_than_its_data_is_left_out(category: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=f"no task of .* can be used here: 1: .*{why}"):
        open_bfcl(written(tmp_path, category, [row("x")], [ANSWER]))


CLASH = {**PLAY, "name": "music_play"}
ODD_SCHEMA = {"name": "f", "parameters": {"type": "dict", "properties": {}, "minLength": "x"}}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("no object", "it is not a JSON object"),
        ({"question": []}, "the field 'id' is missing"),
        ({"id": "x"}, "KeyError: 'question'"),
        (row("x"), "possible_answer has no row of its id"),
        ({**row("parallel_1"), "function": "x"}, "TypeError"),
        ({**row("parallel_1"), "function": []}, "expected a function of the question"),
        ({**row("parallel_1"), "function": [PLAY, CLASH]}, "two of its functions have the same"),
        ({**row("parallel_1"), "function": [PLAY, ODD_SCHEMA]}, "are no JSON schema"),
        (
            {**row("parallel_1"), "function": [{"name": "f", "parameters": 5}]},
            "expected a function of the question",
        ),
        ({**row("parallel_2"), "function": [PLAY]}, "doing nothing would be right"),
        ({**row("parallel_1"), "question": [[], []]}, "got 2 turns"),
        ({**row("parallel_1"), "question": [[{"role": "system", "content": "x"}]]}, "no user"),
        (row("parallel_0"), "the id is taken already"),
    ],
)
def test_one_bad_row_is_left_out_with_its_reason(bad: Any, why: str, tmp_path: Path) -> None:
    answers = [ANSWER, {**ANSWER, "id": "parallel_1"}, {"id": "parallel_2", "ground_truth": []}]
    source = open_bfcl(written(tmp_path, "parallel", [row("parallel_0"), bad], answers))
    assert list(source.tasks) == ["parallel_0"]
    (left_out,) = source.selection.left_out
    assert why in left_out.reason


def test_a_file_without_its_answers_is_left_out_of_a_folder(tmp_path: Path) -> None:
    written(tmp_path, "irrelevance", [row("irrelevance_0")])
    lonely = written(tmp_path, "parallel", [row("parallel_0")])
    source = open_bfcl(tmp_path)
    assert list(source.tasks) == ["irrelevance_0"]
    assert source.selection.left_out[0].name == lonely.name
    assert "expected BFCL's answers there" in source.selection.left_out[0].reason
    with pytest.raises(TaskError, match="expected BFCL's answers there"):
        open_bfcl(lonely)


def sampled(**properties: Any) -> Any:
    """The arguments of some call of a function with these parameters, all of them required."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    made = any_call({"type": "function", "function": {"name": "f", "parameters": parameters}})
    assert (made.id, made.name) == ("call-1", "f")
    return json.loads(made.arguments)


def test_some_call_has_a_value_of_each_type() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {}}, "required": ["n"]}
    assert sampled(
        a={"type": "string", "enum": ["small", "big"]}, b={"type": "array"}, c={"type": "number"},
        d={"type": "integer"}, e={"type": "boolean"}, f={"type": "string"}, g={}, h=inner,
        i={"type": "object"}, j={"type": "string", "enum": []},
    ) == {
        "a": "small", "b": [], "c": 1.0, "d": 1, "e": True, "f": "x", "g": "x", "h": {"n": 1},
        "i": {}, "j": "x",
    }  # fmt: skip
    assert sampled() == {}


def test_what_is_not_required_is_not_sampled() -> None:
    parameters: Any = {"properties": {"a": {"type": "string"}}, "required": ["b"]}
    made = any_call({"type": "function", "function": {"name": "f", "parameters": parameters}})
    assert json.loads(made.arguments) == {"b": "x"}


@pytest.mark.parametrize(
    ("allowed", "declared", "required", "arguments"),
    [
        (["a", "b"], {"type": "string"}, True, {"x": "a"}),
        (["", "b"], {"type": "string"}, True, {"x": "b"}),
        (["b", ""], {"type": "string"}, False, {}),
        ([""], {"type": "string"}, True, {"x": ""}),
        ([5], {"type": "float"}, False, {"x": 5}),
        ([{"k": ["", "v"], "l": ["w", "u"]}], {"type": "dict"}, True, {"x": {"l": "w"}}),
        ([[{"k": ["v"]}, {"k": ["w"]}]], {"type": "array", "items": {"type": "dict"}}, True,
         {"x": [{"k": "v"}, {"k": "w"}]}),
        ([[1, "a"], ["b"]], {"type": "array", "items": {"type": "string"}}, True,
         {"x": [1, "a"]}),
    ],
)  # fmt: skip
def test_a_right_call_has_the_first_value_that_is_taken(
    allowed: list[Any], declared: dict[str, Any], required: bool, arguments: dict[str, Any]
) -> None:
    parameters = {"properties": {"x": declared}, "required": ["x"] if required else []}
    made = right_call(Answer("f", {"x": allowed}, parameters), 7)
    assert (made.id, made.name, json.loads(made.arguments)) == ("call-7", "f", arguments)


def test_a_schema_becomes_one_of_json(tmp_path: Path) -> None:
    function: Any = {
        "name": "a.b c-d_e", "parameters": {
            "type": "DICT", "optional": True, "required": "x", "properties": {
                "any": {"type": "any", "description": "d"},
                "list": {"type": "array", "items": {"type": "float", "optional": False}},
                "inner": {"type": "dict", "properties": {"n": {"type": "Integer"}}},
                "odd": "text",
            },
        },
    }  # fmt: skip
    path = written(tmp_path, "live_relevance", [{**row("r"), "function": [function]}])
    with pytest.raises(TaskError, match="are no JSON schema: 'text' is not of type"):
        open_bfcl(path)
    del function["parameters"]["properties"]["odd"]
    path = written(tmp_path, "live_relevance", [{**row("r"), "function": [function]}])
    (offered,) = open_bfcl(path).load("r").state["bfcl"]["functions"]
    assert offered == {
        "type": "function",
        "function": {
            "name": "a_b_c-d_e", "description": "", "parameters": {
                "type": "object", "properties": {
                    "any": {"description": "d"},
                    "list": {"type": "array", "items": {"type": "number"}},
                    "inner": {"type": "object", "properties": {"n": {"type": "integer"}}},
                },
            },
        },
    }  # fmt: skip
