"""A data set and reward functions instead of an environment."""

import csv
import json
import math
import sys
import textwrap
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import clawrl_gym as cg
from clawrl_gym.cluster.admission import archives_of
from clawrl_gym.cluster.modules import foreign_modules
from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.envs.dataset.__main__ import _arguments, _make
from clawrl_gym.envs.dataset.agent import DatasetAgent, decode_messages, encode_messages
from clawrl_gym.envs.dataset.config import DatasetEnvConfig
from clawrl_gym.envs.dataset.env import DatasetEnv
from clawrl_gym.envs.validate import main
from clawrl_gym.rollout.collection.worker import plugins_of
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, run_episode
from clawrl_gym.rollout.episodes.stage import Stage
from tests.rollout.test_episode import ScriptedChat

ROWS: list[dict[str, Any]] = [
    {"prompt": "What is 17 * 23?", "answer": "391", "split": "train"},
    {"prompt": "What is 2 + 2?", "answer": 4, "split": "train", "solution": "It is 4."},
    {"id": "sum", "family": "sums", "prompt": "What is 1 + 1?", "answer": "2", "split": "test"},
]
FUNCTIONS = """
    import asyncio
    import threading

    calls = []
    go = threading.Event()

    def right(reply, answer):
        return str(answer) in reply

    def everything(reply, prompt, messages, answer, family="none", **columns):
        calls.append((reply, prompt, messages, answer, family, columns))
        return 1.0

    def parts(reply):
        return {"short": len(reply) < 5, "bonus": 0.5}

    def near(reply, answer, tolerance):
        return abs(float(reply) - float(answer)) <= tolerance

    async def waits(reply):
        await asyncio.sleep(0)
        return True

    async def waits_for_ever(reply):
        await asyncio.Event().wait()

    def hangs(reply):
        go.wait()
        return 1.0

    def raises(reply, answer):
        raise KeyError("no such key")

    def is_late_itself(reply):
        raise TimeoutError("the server is away")

    def leaves(reply):
        raise SystemExit(3)

    def changes(reply, tags):
        tags.append("x")
        return float(len(tags))

    def needs_more(reply, label):
        return 1.0

    def positional(reply, /):
        return 1.0

    def trl(prompts, completions, answer, **columns):
        return [float(a in text) for text, a in zip(completions, answer)]

    def trl_chat(prompts, completions, **columns):
        assert prompts[0][-1]["role"] == "user", prompts
        return [float(completion[0]["content"] == "hello") for completion in completions]

    def trl_none(prompts, completions, **columns):
        return None

    def trl_two(prompts, completions, **columns):
        return [1.0, 1.0]

    class Grader:
        pass

    thing = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Makes an environment of rows in a file; a reward without a colon is of `my_rewards`."""
    (tmp_path / "my_rewards.py").write_text(textwrap.dedent(FUNCTIONS))
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(reward="my_rewards:right", rows=ROWS, **options):
        data = write(tmp_path / "rows.jsonl", rows)
        return DatasetEnv(data=str(data), reward=reward, **options)

    yield make
    if "my_rewards" in sys.modules:
        sys.modules["my_rewards"].go.set()
        del sys.modules["my_rewards"]


def write(path, rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def played(env, task, reply):
    env.reset(options={"task": task})
    return env.step(reply)


def test_a_reward_function_grades_the_rows_of_a_file(own):
    env = own()
    assert env.task_ids("train") == ["line-1", "line-2"]
    assert env.task_ids("heldout") == ["sum"]
    assert env.reset(options={"task": "sum"})[0] == "What is 1 + 1?"
    _, reward, terminated, _, info = env.step("That is 2.")
    assert (reward, terminated, info["family"], info["report"], info["success"]) == (
        1.0, True, "sums", "Test report: passed", True,
    )  # fmt: skip
    assert info["scores"] == {"rewards/right": 1.0}
    _, reward, _, _, info = played(env, "line-1", "392")
    assert (reward, info["success"]) == (0.0, False)
    assert "right gave 0" in env.report
    info = env.reset(options={"task": "line-2"})[1]
    assert (info["success"], info["scores"], info["report"]) == (False, {}, "")


def test_a_function_gets_what_its_parameters_name(own):
    system = {"role": "system", "content": "Be short."}
    turns = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "What is 1 + 1?"},
    ]
    row = {"messages": [system, *turns], "answer": "2", "level": 3, "split": "train"}
    env = own("my_rewards:everything", [row])
    observation, info = env.reset(options={"task": "line-1"})
    assert info["system"] == "Be short."
    assert DatasetAgent().messages([observation], []) == turns
    assert env.step("2")[1] == 1.0
    ((reply, prompt, messages, answer, family, columns),) = sys.modules["my_rewards"].calls
    assert (reply, prompt, answer, family) == ("2", "What is 1 + 1?", "2", "none")
    assert messages == [system, *turns]
    assert columns == {"level": 3, "split": "train"}


def test_a_column_of_another_name_is_the_prompt_or_the_answer(own):
    rows = [{"question": "What is 2 + 2?", "label": "4", "split": "train"}]
    env = own("exact", rows, prompt="question", answer="label")
    assert env.reset(options={"task": "line-1"})[0] == "What is 2 + 2?"
    assert env.step(env_solution(env))[1] == 1.0


def env_solution(env):
    (reply,) = env.solve()
    return reply


def test_several_rewards_are_a_weighted_sum_and_the_first_decides_on_success(own):
    env = own(
        [
            "my_rewards:right",
            {"use": "my_rewards:parts", "weight": 0.5},
            {"use": "length", "weight": 0, "most": 10, "name": "size"},
        ]
    )
    _, reward, _, _, info = played(env, "line-1", "391")
    assert reward == 1.0 + 0.5 * 1.5
    assert info["scores"] == {
        "rewards/right": 1.0, "rewards/parts/short": 1.0, "rewards/parts/bonus": 0.5,
        "rewards/size": 1.0,
    }  # fmt: skip
    _, reward, _, _, info = played(env, "line-1", "no")
    assert (reward, info["success"]) == (0.75, False)


def test_other_keys_of_a_reward_are_arguments_of_its_function(own):
    near = {"use": "my_rewards:near", "tolerance": 2}
    assert played(own([near]), "line-1", "390")[1] == 1.0
    assert played(own([near]), "line-1", "388")[1] == 0.0
    with pytest.raises(ConfigError, match="'tolerence', expected some of its parameters: reply"):
        own([{"use": "my_rewards:near", "tolerance": 2, "tolerence": 1}])


def test_success_begins_at_a_value_of_ones_own(own):
    env = own("my_rewards:parts", success=0.5)
    assert played(env, "line-1", "much too long")[4]["success"] is True


def test_functions_of_trl_are_called_as_trl_calls_them(own):
    assert played(own("my_rewards:trl"), "line-1", "it is 391")[1] == 1.0
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Greet."}]
    env = own("my_rewards:trl_chat", [{"prompt": messages, "split": "train"}])
    assert played(env, "line-1", "hello")[1] == 1.0


def test_async_functions_are_awaited(own):
    assert played(own("my_rewards:waits"), "line-1", "x")[1] == 1.0


def test_a_function_that_changes_its_arguments_changes_no_row(own):
    env = own("my_rewards:changes", [{"prompt": "x", "tags": ["a"], "split": "train"}])
    assert played(env, "line-1", "x")[1] == played(env, "line-1", "x")[1] == 2.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "raises",
            r"raised KeyError: 'no such key' \(.*my_rewards.py, line \d+\) for row 'line-1'",
        ),
        ("is_late_itself", "raised TimeoutError: the server is away"),
        ("leaves", "raised SystemExit: 3"),
        ("trl_none", "raised TypeError: got None, expected a list of one reward"),
        ("trl_two", r"raised TypeError: got \[1.0, 1.0\], expected a list of one reward"),
    ],
)
def test_a_function_that_fails_is_an_error_that_names_it_and_the_row(own, function, message):
    env = own(f"my_rewards:{function}")
    env.reset(options={"task": "line-1"})
    with pytest.raises(EnvError, match=f"reward function 'my_rewards:{function}' {message}"):
        env.step("anything")


@pytest.mark.parametrize("function", ["hangs", "waits_for_ever"])
def test_a_function_that_hangs_is_an_error_that_names_it_and_the_row(own, function):
    env = own(f"my_rewards:{function}", reward_timeout_s=0.2)
    env.reset(options={"task": "line-1"})
    message = f"'my_rewards:{function}' gave nothing for row 'line-1' within 0.2 s"
    with pytest.raises(EnvError, match=message):
        env.step("anything")


class Returns:
    """A module whose function returns one thing."""

    def __init__(self, value):
        self.value = value

    def function(self, reply):
        return self.value


@pytest.mark.parametrize(
    "value",
    [None, math.nan, math.inf, 10**400, "1.0", b"1", [1.0], {}, {"a": None}, {"a": "1"}, {1: 1.0}],
    ids=lambda value: f"{value!r:.20}",
)
def test_what_is_no_reward_is_an_error(own, monkeypatch, value):
    env = own("my_rewards:right")
    monkeypatch.setattr(sys.modules["my_rewards"], "gives", Returns(value).function, raising=False)
    env = own("my_rewards:gives", reward_timeout_s=29)
    env.reset(options={"task": "line-1"})
    with pytest.raises(
        EnvError, match=r"'my_rewards:gives' returned .* for row 'line-1', expected"
    ):
        env.step("x")


@pytest.mark.parametrize("value", [1, 0.5, -3, True, np.float32(0.5), np.bool_(True), np.array(2)])
def test_any_finite_number_is_a_reward(own, monkeypatch, value):
    own("my_rewards:right")
    monkeypatch.setattr(sys.modules["my_rewards"], "gives", Returns(value).function, raising=False)
    env = own("my_rewards:gives", rows=[*ROWS, {"prompt": repr(value)}])
    assert played(env, "line-1", "x")[1] == float(value)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("nope", "got env.reward='nope', expected one of exact, contains, number"),
        ("my_rewards:nope", "module 'my_rewards' has no 'nope'"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("my_rewards:thing", "int, expected a function"),
        ("my_rewards:Grader", "a class, expected a function"),
        (
            "my_rewards:needs_more",
            "'label' is no column of .*rows.jsonl, expected parameters among reply, prompt, "
            "messages and its columns: answer, family, id, prompt, solution, split",
        ),
        ("my_rewards:positional", "'reply' is positional only"),
        ([], "reward"),
        ([3], "reward"),
        ([{"weight": 2}], "reward.0.use: got nothing"),
        ([{"use": "exact", "weight": "nan"}], "reward.0.weight"),
        (["exact", "exact"], "two rewards with the name 'exact'"),
        ([{"use": "judge", "criterion": "better"}], "got env.reward with a judge alone"),
        (["exact", {"use": "judge"}], "expected a criterion"),
        (["exact", {"use": "judge", "criterion": "x", "votes": 3}], "expected a criterion"),
    ],
)
def test_rewards_that_cannot_be_are_refused_before_a_start(own, reward, message):
    with pytest.raises(ConfigError, match=message):
        own(reward)


BAD = [
    ("no json", "not a row: Expecting value"),
    ("[1]", "got list, expected an object"),
    ({"answer": "1"}, "got no column 'prompt'"),
    ({"prompt": " "}, "got an empty prompt"),
    ({"prompt": 3, "answer": 1}, "prompt: got int, expected a text or messages"),
    ({"prompt": None}, "prompt: got NoneType"),
    ({"prompt": []}, "got the roles of nobody"),
    ({"messages": ["x"]}, "expected a role and a text"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "expected a role and a text"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]}, "with 'tool_calls'"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "got the roles assistant"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "got the roles tool"),
    (
        {"messages": [{"role": r, "content": "x"} for r in ("user", "system", "user")]},
        "got the roles user, system, user",
    ),
    (
        {"messages": [{"role": r, "content": "x"} for r in ("user", "assistant")]},
        "got the roles user, assistant",
    ),
    (
        {"system": "a", "prompt": [{"role": r, "content": "x"} for r in ("system", "user")]},
        "a system message beside the column 'system'",
    ),
    ({"prompt": "x", "system": 3}, "system: got int, expected a text"),
    ({"prompt": "x", "split": "dev", "answer": 1}, "got the split 'dev'"),
    ({"prompt": "x", "split": ["train"], "answer": 1}, "got the split"),
    ({"prompt": "x", "id": 1.5}, "id: got 1.5"),
    ({"prompt": "x", "id": ""}, "id: got ''"),
    ({"prompt": "x" * (4 * 2**20 + 1)}, "got 4,194,305 characters"),
    ({"prompt": "half \ud83d"}, "half of a surrogate pair"),
    ({"prompt": "another", "id": "sum", "answer": 1}, "the id 'sum' is taken already"),
    ({"prompt": "no answer"}, "no column 'answer', which env.reward=my_rewards:right needs"),
    ({"prompt": "What is 1 + 1?", "answer": "2", "split": "train"}, "its prompt is held out"),
]


@pytest.mark.parametrize(("row", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_row_is_left_out_and_named_by_its_line(own, row, reason):
    env = own(rows=[*ROWS, row])
    assert env.selection is not None
    (left_out,) = env.selection.left_out
    assert left_out.name == "line-4"
    assert reason in left_out.reason
    assert env.selection.used == 3
    with pytest.raises(TaskError, match="task 'line-4' cannot be used here"):
        env.reset(options={"task": "line-4"})


def test_a_data_set_without_a_good_row_is_refused_with_the_reasons(own):
    with pytest.raises(TaskError, match=r"no task of .*rows.jsonl can be used here.*empty prompt"):
        own(rows=["no json", {"prompt": ""}])


def test_held_out_prompts_follow_from_their_hash_and_stay_where_they_are(own):
    rows = [{"prompt": f"What is {n} + 1?", "answer": n + 1} for n in range(200)]
    env = own(rows=rows)
    heldout = env.task_ids("heldout")
    assert 20 <= len(heldout) <= 60
    assert not set(heldout) & set(env.task_ids("train"))
    more = own(rows=[*rows, *({"prompt": f"Say {n}.", "answer": n} for n in range(50))])
    assert more.task_ids("heldout")[: len(heldout)] == heldout
    assert len(own(rows=rows, heldout=0.5).task_ids("heldout")) > 70


def test_a_prompt_that_stands_twice_is_in_one_split(own):
    rows = [{"prompt": f"What is {n % 40} + 1?", "answer": n % 40 + 1} for n in range(80)]
    env = own(rows=rows)
    prompts = {
        split: {env.reset(options={"task": task})[0] for task in env.task_ids(split)}
        for split in ("train", "heldout")
    }
    assert not prompts["train"] & prompts["heldout"]


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_of_two_prompts_one_is_held_out_and_one_is_not(own, share):
    env = own(rows=[{"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 1}], heldout=share)
    assert (len(env.task_ids("train")), len(env.task_ids("heldout"))) == (1, 1)


def test_a_file_may_hold_what_is_held_out(own, tmp_path):
    held = write(
        tmp_path / "held.jsonl", [{"prompt": "b", "answer": 1}, {"prompt": "c", "answer": 2}]
    )
    rows = [{"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 1}]
    env = own(rows=rows, heldout=str(held))
    assert env.task_ids("train") == ["line-1"]
    assert env.task_ids("heldout") == ["heldout-line-1", "heldout-line-2"]
    assert "its prompt is held out" in env.selection.reason_of("line-2")


@pytest.mark.parametrize("share", [0, 1, -1, "nan"])
def test_a_share_that_is_none_is_refused(own, share):
    with pytest.raises(ConfigError, match=r"heldout|expected a file"):
        own(heldout=share)


def test_files_of_all_kinds_hold_the_same_tasks(own, tmp_path):
    rows = [{"prompt": row["prompt"], "answer": str(row["answer"])} for row in ROWS]
    write(tmp_path / "a.jsonl", rows)
    (tmp_path / "a.json").write_text(json.dumps(rows))
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["prompt", "answer"])
        writer.writeheader()
        writer.writerows(rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    found: list[Any] = []
    for kind in ("jsonl", "json", "csv", "parquet"):
        env = DatasetEnv(data=str(tmp_path / f"a.{kind}"))
        tasks = [*env.task_ids("train"), *env.task_ids("heldout")]
        found.append(sorted((env.reset(options={"task": task})[0], env.solve()) for task in tasks))
    assert found == [sorted((row["prompt"], (row["answer"],)) for row in rows)] * 4


def test_a_csv_row_of_another_length_is_left_out(tmp_path):
    (tmp_path / "a.csv").write_text('prompt,answer\n"a,\nb",1\nc\nd,2\n')
    env = DatasetEnv(data=str(tmp_path / "a.csv"))
    assert env.selection is not None
    (left_out,) = env.selection.left_out
    assert (left_out.name, env.selection.used) == ("line-4", 2)
    assert "got 1 cells, expected 2" in left_out.reason


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "x", "expected a file that ends in .jsonl, .json, .csv, .parquet"),
        ("a.json", "{", "not JSON tasks"),
        ("a.jsonl", "", "expected a list of tasks"),
        ("a.csv", "", "no task of"),
        ("a.csv", 'prompt\n"a', "not a readable CSV file"),
        ("a.parquet", "x", "not a readable Parquet file"),
        (None, "", r"cannot read '.*gone.jsonl': No such file"),
    ],
)
def test_a_file_that_holds_no_rows_is_refused(tmp_path, name, content, message):
    path = tmp_path / (name or "gone.jsonl")
    if name is not None:
        path.write_text(content)
    with pytest.raises((ConfigError, TaskError), match=message):
        DatasetEnv(data=str(path))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "got env=dataset without data"),
        ("hub:no_owner", "expected hub:ORG/NAME, hub:ORG/NAME@SPLIT"),
        ("hub:a/b/c/d", "expected hub:ORG/NAME"),
    ],
)
def test_a_data_set_that_cannot_be_named_so_is_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        DatasetEnv(data=data)


def test_a_changed_file_is_read_again(own):
    assert own().task_ids("train") == ["line-1", "line-2"]
    assert own(rows=ROWS[1:]).task_ids("train") == ["line-1"]


@pytest.mark.parametrize(
    ("reward", "answer", "good", "bad"),
    [
        ("exact", "Paris", [" Paris\n"], ["paris", "", "Paris."]),
        ("contains", "Paris", ["It is paris."], ["Parisian", ""]),
        ("contains", "C++", ["in C++, say"], ["C"]),
        ("number", "#### 1,000", ["so 1000", "3, then 1000.0", "1e3"], ["1000 or 2", "", "ten"]),
        ("number", -2, ["-2", "x = -2.0"], ["2"]),
        ({"use": "regex", "pattern": "^<a>.*</a>$"}, "", ["<a>x</a>"], ["<a>x", ""]),
        ("json", "", ['{"a": 1}', '```json\n{"a": 1}\n```', "[]"], ["{", "", 'x {"a": 1}']),
        ({"use": "json", "keys": ["a", "b"]}, "", ['{"b": 1, "a": 2}'], ['{"a": 1}', '["a", "b"]']),
        ({"use": "length", "most": 4}, "", ["abcd", ""], ["abcde"]),
    ],
)  # fmt: skip
def test_the_usual_rewards_have_names(own, reward, answer, good, bad):
    env = own([reward], [{"prompt": "x", "answer": answer, "split": "train"}])
    for reply in good:
        assert played(env, "line-1", reply)[4]["success"], reply
    for reply in bad:
        assert not played(env, "line-1", reply)[4]["success"], reply


@pytest.mark.parametrize(
    ("reward", "answer", "message"),
    [
        ("contains", " ", "an empty answer"),
        ("number", "none", "expected one with a number"),
        ({"use": "length", "most": 0}, "", "got most=0"),
        ({"use": "regex", "pattern": "("}, "", "raised"),
    ],
)
def test_a_usual_reward_that_cannot_grade_says_so(own, reward, answer, message):
    env = own([reward], [{"prompt": "x", "answer": answer, "split": "train"}])
    env.reset(options={"task": "line-1"})
    with pytest.raises(EnvError, match=message):
        env.step("x")


def test_an_example_is_another_row_with_its_answer(own):
    env = own(example=True)
    system = env.reset(options={"task": "line-1"})[1]["system"]
    assert "Request: What is 2 + 2?\nReply: It is 4." in system
    assert "17 * 23" not in system


def test_an_episode_that_ends_without_a_reply_is_graded_as_an_empty_one(own):
    env = own("length")
    env.reset(options={"task": "line-1"})
    assert env.finish() == 1.0
    assert env.finish() == 0.0, "once"


@pytest.mark.parametrize("text", ["plain", '{"messages": [', '{"messages": [1]}', ""])
def test_a_prompt_that_reads_like_several_messages_is_one(text):
    messages = [{"role": "user", "content": text}]
    assert decode_messages(encode_messages(messages)) == messages


def test_a_run_takes_it_from_a_command_line(own, tmp_path):
    own()
    config = cg.load_config(
        ["env=dataset", f"env.data={tmp_path / 'rows.jsonl'}",
         'env.reward=[{use:my_rewards:right},{use:judge,weight:0.5,criterion:"clearer words"}]',
         "env.heldout=0.3"]
    )  # fmt: skip
    assert isinstance(config.env, DatasetEnvConfig)
    assert [one.use for one in config.env.reward] == ["my_rewards:right", "judge"]
    (comparison,) = config.env.comparisons
    assert (comparison.criterion, comparison.weight) == ("clearer words", 0.5)
    assert cg.TaskSampler.of(config.env, seed=0).train(0).id in ("line-1", "line-2")
    short = cg.load_config(["env=dataset", "env.data=rows.jsonl", "env.reward=my_rewards:right"])
    assert isinstance(short.env, DatasetEnvConfig)
    assert [one.use for one in short.env.reward] == ["my_rewards:right"]
    stages = {"": Stage(short.env, short.agent, 60.0)}
    assert list(plugins_of(stages)) == ["my_rewards:right"]
    assert foreign_modules(short, [short.env]) == {"my_rewards"}
    assert list(archives_of(config.env)) == ["data"]


def test_validate_plays_the_answers(own, tmp_path, capsys):
    own(rows=[*ROWS, {"prompt": "no answer"}])
    command = ["validate", str(tmp_path / "rows.jsonl"), "--reward", "my_rewards:right", "--json"]
    assert main("x", _arguments, _make, command) == 1
    rows = {row["task"]: row for row in json.loads(capsys.readouterr().out)}
    assert [rows[task]["ok"] for task in ("line-1", "line-2", "sum", "line-4")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_a_call_that_hangs_holds_no_other_up(own):
    env = own("my_rewards:hangs", reward_timeout_s=0.2)
    env.reset(options={"task": "line-1"})
    with pytest.raises(EnvError, match="gave nothing"):
        env.step("x")
    sys.modules["my_rewards"].go.set()
    assert played(own("my_rewards:hangs"), "line-2", "x")[1] == 1.0
    assert all(t.daemon for t in threading.enumerate() if t.name == "my_rewards:hangs")


def test_rows_of_the_hub_are_those_of_its_split(monkeypatch):
    asked = []

    def load_dataset(name, subset, split):
        asked.append((name, subset, split))
        return [{"question": f"{split} {n}", "answer": str(n)} for n in range(3)]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    env = DatasetEnv(
        data="hub:my_org/rows/main", heldout="hub:my_org/rows/main@test", prompt="question"
    )
    assert asked == [("my_org/rows", "main", "train"), ("my_org/rows", "main", "test")]
    assert env.task_ids("train") == ["row-1", "row-2", "row-3"]
    assert env.reset(options={"task": "heldout-row-2"})[0] == "test 1"


def test_a_hub_that_does_not_answer_is_a_wrong_configuration(monkeypatch):
    def load_dataset(name, subset, split):
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(
        ConfigError, match=r"split 'train' of the data set 'my_org/gone': OSError: no network"
    ):
        DatasetEnv(data="hub:my_org/gone")


async def in_place(function, *args, **kwargs):
    return function(*args, **kwargs)


async def an_episode(env, reply, task="line-1"):
    spec = EpisodeSpec("s", 1, cg.TaskRef(task, 0, "train"), max_turns=1, timeout_s=5.0)
    chat = ScriptedChat(reply)
    return await run_episode(spec, env, DatasetAgent(), chat, in_place), chat


async def test_an_episode_asks_with_the_whole_prompt_and_keeps_the_values(own):
    turns = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "What is 1 + 1?"},
    ]
    row = {"prompt": turns, "system": "Be short.", "answer": "2", "split": "train"}
    episode, chat = await an_episode(own(["number", "my_rewards:parts"], [row]), "2")
    assert chat.requests == [[{"role": "system", "content": "Be short."}, *turns]]
    assert (episode.reward, episode.success) == (2.5, True)
    assert episode.scores == {
        "rewards/number": 1.0, "rewards/parts/short": 1.0, "rewards/parts/bonus": 0.5,
    }  # fmt: skip


async def test_an_episode_whose_function_fails_has_no_reward(own):
    episode, _ = await an_episode(own("my_rewards:raises"), "x")
    assert (episode.stop_reason, episode.reward, episode.scores) == (
        cg.StopReason.ENV_ERROR, None, {},
    )  # fmt: skip
    assert "reward function 'my_rewards:raises' raised KeyError" in episode.error
