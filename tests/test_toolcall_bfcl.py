from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.benchmarks.bfcl import open_bfcl
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


def test_where_a_tool_helps_any_valid_call_is_right(tmp_path: Path) -> None:
    path = written(tmp_path, "live_relevance", [row("live_relevance_0-0-0")])
    (solution,) = open_bfcl(path).load("live_relevance_0-0-0").solution
    assert reward(path, solution) == 1.0
    assert reward(path, Reply("", (call(artist="Abba"),))) == 0.0
    assert reward(path, Reply("Which one?")) == 0.0


def test_an_answer_that_its_own_schema_forbids_is_left_out(tmp_path: Path) -> None:
    wrong = {"id": "parallel_1", "ground_truth": [{"music.play": {"artist": [3], "minutes": [1]}}]}
    rows = [row("parallel_0"), row("parallel_1")]
    source = open_bfcl(written(tmp_path, "parallel", rows, [ANSWER, wrong]))
    assert (list(source.tasks), len(source.selection.left_out)) == (["parallel_0"], 1)


def test_a_folder_gives_all_that_can_be_read_and_every_question_one_split(tmp_path: Path) -> None:
    rows = [row(f"irrelevance_{n}", f"Question {n // 2}") for n in range(60)]
    written(tmp_path, "irrelevance", rows)
    written(tmp_path, "multi_turn_base", [{"id": "multi_turn_base_0"}])
    source = open_bfcl(tmp_path)
    train, heldout = set(source.ids("train")), set(source.ids("heldout"))
    assert len(train | heldout) == 60
    assert heldout
    assert {source.load(i).instruction for i in train}.isdisjoint(
        source.load(i).instruction for i in heldout
    )


@pytest.mark.parametrize(
    "category", ["multi_turn_base", "memory", "web_search", "simple_java", "simple_javascript"]
)
def test_what_needs_more_than_its_data_is_a_task_error(category: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="a single turn"):
        open_bfcl(written(tmp_path, category, [row("x")], [ANSWER]))


@pytest.mark.parametrize(
    ("rows", "answers", "why"),
    [
        ([row("parallel_0")], None, "expected BFCL's answers"),
        ([row("parallel_0")], [], "KeyError: 'parallel_0'"),
        ([{"id": "parallel_0"}], [ANSWER], "'question'"),
        ([{"question": []}], [ANSWER], "field 'id' is missing"),
        (["no object"], [ANSWER], "line 1 is no JSON object"),
        ([row("parallel_0"), row("parallel_0")], [ANSWER], "taken already"),
        ([{**row("parallel_0"), "function": "x"}], [ANSWER], "TypeError"),
        ([{**row("parallel_0"), "question": [[], []]}], [ANSWER], "got 2 turns"),
        ([row("parallel_0")], [{"id": "parallel_0", "ground_truth": [{"other": {}}]}], "other"),
    ],
)
def test_wrong_rows_are_task_errors_that_say_where(
    rows: list[Any], answers: list[Any] | None, why: str, tmp_path: Path
) -> None:
    with pytest.raises(TaskError, match=why):
        open_bfcl(written(tmp_path, "parallel", rows, answers))
