"""`ClawRL/ToolCall-v0`: calls, results, ends and grades, over tasks of a small file."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply, decode, encode
from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.core.plugins import load
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.showcase.toolcall.generated import make_task
from clawrl_gym.envs.toolcall import toolbox
from clawrl_gym.envs.toolcall.agent import ToolCallAgent
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.task import ExecutedCall
from clawrl_gym.envs.toolcall.toolset import ToolFailure, tool

SUM = {
    "id": "sum",
    "split": "train",
    "system": "Be brief.",
    "instruction": "What is 17 * 23?",
    "toolsets": ["calculator", "files"],
    "tools": ["calculate", "read_file"],
    "state": {"files": {"a.txt": "17 * 23"}},
    "goals": [{"type": "answer", "wanted": "391"}],
    "solution": [
        {"calls": [{"name": "calculate", "arguments": {"expression": "17 * 23"}}]},
        {"say": "391"},
    ],
}


def env_of(tmp_path, *tasks, **options):
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks or [SUM]))
    return ToolCallEnv(tasks=str(path), **options)


def started(tmp_path, *tasks, **options):
    env = env_of(tmp_path, *tasks, **options)
    env.reset(options={"task": (tasks or [SUM])[0]["id"]})
    return env


def calls(*wanted):
    made = [Call(str(n), name, arguments) for n, (name, arguments) in enumerate(wanted, 1)]
    return encode(Reply("", tuple(made)))


def contents(observation):
    return [result["content"] for result in json.loads(observation)]


def calculate(expression):
    return ("calculate", json.dumps({"expression": expression}))


def test_a_task_is_solved_by_a_call_and_an_answer(tmp_path):
    env = env_of(tmp_path)
    observation, info = env.reset(options={"task": "sum"})
    assert observation == "What is 17 * 23?"
    assert info["system"] == "Be brief."
    assert [t["function"]["name"] for t in info["tools"]] == ["calculate", "read_file"]
    observation, reward, terminated, truncated, info = env.step(calls(calculate("17 * 23")))
    assert json.loads(observation) == [{"tool_call_id": "1", "content": "391"}]
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["next_state_role"], info["report"]) == ("tool", "")
    observation, reward, terminated, truncated, info = env.step("It is 391.")
    assert (observation, reward, terminated, truncated) == ("(done)", 1.0, True, False)
    assert (info["next_state_role"], info["report"]) == ("user", "Test report: passed")


def test_calls_of_one_reply_are_answered_in_their_order(tmp_path):
    env = started(tmp_path)
    read = ("read_file", '{"path": "a.txt"}')
    observation = env.step(calls(calculate("1 + 1"), read, calculate("1 / 0"), calculate("3")))[0]
    broken = json.dumps({"status": "error", "tool": "calculate", "error": "division by zero"})
    assert contents(observation) == ["2", "17 * 23", broken, "3"]


def test_at_most_sixteen_calls_of_a_reply_are_carried_out(tmp_path):
    results = contents(started(tmp_path).step(calls(*[calculate("1")] * 40))[0])
    assert results[:16] == ["1"] * 16
    assert all("too many calls at once: at most 16" in result for result in results[16:])
    assert len(results) == 40


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("calculat", "{}", "there is no such tool; tools: calculate, read_file"),
        ("write_file", '{"path": "x", "content": ""}', "there is no such tool"),
        ("c\u0430lculate", '{"expression": "1"}', "there is no such tool"),
        ("", "", "there is no such tool"),
        ("x" * 10_000_000, "{}", "there is no such tool"),
        ("calculate", "1 + 1", "the arguments are not JSON; expected expression"),
        ("calculate", "{}", "'expression' is a required property"),
        ("calculate", '{"expression": 391}', "391 is not of type 'string'"),
        ("calculate", '{"expression": "' + "1" * 10_000_000 + '"}', "too long"),
        ("calculate", "[" * 100_000, "too long|not JSON"),
        ("calculate", "[" * 50_000, "not JSON"),
    ],
)
def test_s25_a_wrong_call_is_a_result_that_says_so(tmp_path, name, arguments, why):
    result = json.loads(contents(started(tmp_path).step(calls((name, arguments)))[0])[0])
    assert result["status"] == "error"
    assert any(one in result["error"] for one in why.split("|"))
    assert len(json.dumps(result)) < 1000


def test_a_wrong_answer_earns_nothing_and_is_not_told_the_right_one(tmp_path):
    env = started(tmp_path)
    *_, info = env.step("400")
    assert info["report"] == "Test report: failed\n- the answer is wrong"
    env.reset(options={"task": "sum"})
    assert env.report == ""
    assert env.finish() == 0.0
    assert env.report == "Test report: failed\n- no answer was given"


def test_too_many_turns_truncate_and_are_graded(tmp_path):
    env = started(tmp_path, max_turns=2)
    env.step(calls(calculate("1")))
    said = encode(Reply("391", (Call("1", *calculate("1")),)))
    _, reward, terminated, truncated, info = env.step(said)
    assert (reward, terminated, truncated) == (1.0, False, True)
    assert info["report"] == "Test report: passed"
    with pytest.raises(EnvError, match="expected reset"):
        env.step("again")


def test_a_tasks_own_number_of_turns_wins(tmp_path):
    env = started(tmp_path, SUM | {"turns": 3}, max_turns=1)
    ends = [env.step(calls(calculate("1")))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (True, False)]


class Clerk:
    """A toolset whose tool does what its task's state says."""

    def __init__(self, does):
        self.does = does
        self.closed = 0

    def tools(self):
        return [tool("read_file", "", {})]

    def call(self, name, arguments, timeout_s):
        if isinstance(self.does, Exception):
            raise self.does
        return self.does

    def state(self):
        return {"does": str(self.does)}

    def close(self):
        self.closed += 1


class ClerkMaker:
    """Makes clerks that do what it says at the time."""

    def __init__(self):
        self.does = "clerk"
        self.made = []

    def __call__(self, task, options):
        self.made.append(Clerk(self.does))
        return self.made[-1]


@pytest.fixture
def clerk(monkeypatch):
    make = ClerkMaker()
    module = type(toolbox)("clerk_toolset")
    module.__dict__["make"] = make
    monkeypatch.setitem(__import__("sys").modules, "clerk_toolset", module)
    monkeypatch.setattr(toolbox, "TOOLSETS", {**toolbox.TOOLSETS, "clerk": "clerk_toolset:make"})
    return make


CLERK = SUM | {"toolsets": ["files", "clerk"], "tools": None}


def test_a_name_that_is_taken_gets_its_toolsets_in_front(tmp_path, clerk):
    env = env_of(tmp_path, CLERK)
    _, info = env.reset(options={"task": "sum"})
    names = [t["function"]["name"] for t in info["tools"]]
    assert names == ["list_files", "read_file", "write_file", "clerk_read_file"]
    assert contents(env.step(calls(("clerk_read_file", "{}")))[0]) == ["clerk"]


def test_what_the_model_does_wrong_is_a_result_and_what_the_machine_does_an_error(tmp_path, clerk):
    clerk.does = ToolFailure("no such order")
    assert "no such order" in started(tmp_path, CLERK).step(calls(("clerk_read_file", "{}")))[0]
    clerk.does = OSError("disk is gone")
    with pytest.raises(EnvError, match="disk is gone"):
        started(tmp_path, CLERK).step(calls(("clerk_read_file", "{}")))


def test_a_flood_is_cut(tmp_path, clerk):
    clerk.does = "x" * 10_000_000
    result = contents(started(tmp_path, CLERK).step(calls(("clerk_read_file", "{}")))[0])[0]
    assert len(result) < 30_000
    assert result.endswith("\n(output cut)")


class Teller(Clerk):
    """A toolset with the tools that it is told, which says how it was called."""

    def __init__(self, *tools):
        super().__init__(None)
        self._tools = tools

    def tools(self):
        return list(self._tools)

    def call(self, name, arguments, timeout_s):
        return f"{name} {arguments} within {timeout_s:g} s"


def test_a_call_reaches_the_toolset_whose_tool_it_is_by_its_own_name_there():
    schemas = [tool("look", "", {}), tool("tell", "", {"x": {"type": "integer"}})]
    first, second = Teller(*schemas), Teller(*schemas)
    box = toolbox.Toolbox({"one": first, "two": second}, ["two_tell", "tell"])
    assert [one["function"]["name"] for one in box.schemas] == ["two_tell", "tell"]
    wanted = [
        Call("1", "two_tell", '{"x": 3}'), Call("2", "tell", '{"x": "3"}'), Call("3", "look", "{}")
    ]  # fmt: skip
    right, wrong, hidden = box.carry_out(wanted, 2.5)
    assert right == ExecutedCall(wanted[0], {"x": 3}, "tell {'x': 3} within 2.5 s", failed=False)
    assert (wrong.failed, wrong.arguments, hidden.failed) == (True, {}, True)
    assert "there is no such tool; tools: tell, two_tell" in hidden.result
    assert box.states() == {"one": {"does": "None"}, "two": {"does": "None"}}
    assert box.user_tools() is None
    box.close()
    box.close()
    assert (first.closed, second.closed, box.states()) == (1, 1, {})


def test_a_call_that_fails_keeps_the_arguments_it_was_made_with():
    clerk: Any = Clerk(ToolFailure("no such order"))
    clerk.tools = lambda: [tool("pay", "", {"x": {"type": "integer"}})]
    (made,) = toolbox.Toolbox({"clerk": clerk}, None).carry_out([Call("1", "pay", '{"x": 1}')], 1.0)
    assert (made.failed, made.arguments) == (True, {"x": 1})
    assert "no such order" in made.result


def test_a_name_of_any_length_is_told_short():
    (made,) = toolbox.Toolbox({}, None).carry_out([Call("1", "y" * 5000, "{}")], 1.0)
    assert made.result.count("y") == 100
    assert "tools: none" in made.result


def test_results_are_cut_at_twenty_thousand_characters():
    for length, result in ((20_000, "x" * 20_000), (20_001, "x" * 20_000 + "\n(output cut)")):
        clerk = Clerk("x" * length)
        (made,) = toolbox.Toolbox({"c": clerk}, None).carry_out([Call("1", "read_file", "{}")], 1.0)
        assert made.result == result


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([tool("look", "", {}), tool("look", "", {})], "'teller' has two tools named 'look'"),
        ([{"type": "function"}], "expected a function with a name"),
    ],
)
def test_a_toolset_whose_tools_cannot_be_offered_is_a_task_error(tools, why):
    other = Teller(tool("look", "", {}))
    with pytest.raises(TaskError, match=why):
        toolbox.Toolbox({"other": other, "teller": Teller(*tools)}, None)


def test_a_tool_whose_schema_cannot_be_read_is_offered_beside_the_others():
    odd = tool("look", "", {"x": {"type": "nothing"}, "y": {"type": "integer"}})
    tools = toolbox.Toolbox({"teller": Teller(odd, tool("see", "", {}))}, None)
    assert [schema["function"]["name"] for schema in tools.schemas] == ["look", "see"]
    fits, fails = tools.carry_out(
        [Call("1", "look", '{"x": 1, "y": 1}'), Call("2", "look", '{"x": 1, "y": "a"}')], 1.0
    )
    assert (fits.failed, fails.failed) == (False, True)


def test_a_toolset_that_breaks_over_a_call_fails_that_call_alone():
    class Broken(Teller):
        def call(self, name, arguments, timeout_s):
            raise KeyError("state")

    made = toolbox.Toolbox({"b": Broken(tool("look", "", {}))}, None).carry_out(
        [Call("1", "look", "{}"), Call("2", "other", "{}")], 1.0
    )
    assert [one.failed for one in made] == [True, True]
    assert "KeyError: 'state'" in made[0].result


def test_tools_are_closed_at_every_end(tmp_path, clerk):
    env = started(tmp_path, CLERK)
    env.step("391")
    env.reset(options={"task": "sum"})
    env.reset(options={"task": "sum"})
    env.finish()
    env.close()
    assert [one.closed for one in clerk.made] == [1, 1, 1, 1]  # the first tried the task


def test_a_toolset_that_cannot_be_made_closes_the_others(tmp_path, clerk):
    with pytest.raises(TaskError, match="got the toolset 'nonsense', expected one of: bfcl, calc"):
        env_of(tmp_path, SUM | {"toolsets": ["clerk", "nonsense"], "tools": None})
    assert clerk.made[0].closed == 1
    with pytest.raises(TaskError, match=r"got the tools \['fly'\], expected some of"):
        env_of(tmp_path, SUM | {"tools": ["fly"]})


def test_wrong_options_are_refused_at_once(tmp_path):
    for options in ({"max_turns": 0}, {"call_timeout_s": 0}, {"render_mode": "human"}):
        with pytest.raises(ConfigError):
            env_of(tmp_path, **options)
    with pytest.raises(ConfigError, match="sandbox"):
        env_of(tmp_path, sandbox={"memory": 5})
    env = env_of(tmp_path)
    for options in ({"tasks": "sum"}, {"split": "test"}):
        with pytest.raises(ConfigError, match="expected 'task'"):
            env.reset(options=options)
    with pytest.raises(TaskError, match="task 'other' cannot be used here: there is none"):
        env.reset(options={"task": "other"})
    with pytest.raises(TaskError, match="no task in the split 'heldout'"):
        env.reset(options={"split": "heldout"})
    with pytest.raises(EnvError, match="expected reset"):
        env.step("x")


def test_the_tasks_of_a_split_are_listed_without_an_episode(tmp_path):
    env = env_of(tmp_path, SUM, SUM | {"id": "other", "split": "heldout"})
    assert env.task_ids("train") == ["sum"]
    file = str(tmp_path / "tasks.json")
    options: dict[str, Any] = {"tasks": file, "families": None, "sandbox": {}}
    assert ToolCallEnvConfig.of(options).task_ids("heldout") == ["other"]


def test_the_transcript_can_be_rendered(tmp_path):
    env = started(tmp_path, render_mode="ansi")
    env.step("391")
    assert env.render() == "user: What is 17 * 23?\nassistant: 391\nuser: (done)"


CODE = SUM | {"toolsets": ["python"], "tools": None}


class MeetingSandbox:
    """A sandbox whose calls end only when all others have come as far."""

    def __init__(self, barrier):
        self.barrier = barrier

    def exec(self, command, timeout_s):
        if "PY[1]" in command:
            self.barrier.wait(30)
        return ExecResult("met", 0)

    def close(self):
        pass


async def test_s16_calls_of_many_environments_wait_side_by_side(tmp_path):
    """S16: a blocking call inside the event loop had made 32 sandboxes at once really one."""
    count = 32
    barrier = threading.Barrier(count)
    options = {"open_sandbox": lambda limits, **_: MeetingSandbox(barrier)}
    envs = [started(tmp_path, CODE, **options) for _ in range(count)]
    sleep = calls(("python", json.dumps({"code": "import time; time.sleep(1)"})))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(count) as threads:
        steps = [loop.run_in_executor(threads, env.step, sleep) for env in envs]
        results = await asyncio.gather(*steps)
    assert [contents(result[0]) for result in results] == [["met"]] * count
    for env in envs:
        env.close()


@pytest.mark.parametrize("name", toolbox.TOOLSETS)
def test_every_registered_toolset_is_there(name):
    assert callable(load(toolbox.TOOLSETS[name], name))


@pytest.mark.parametrize(
    ("task", "name", "arguments"),
    [
        ("call-cancel-train-000000", "cancel_order", '{"order": "W1", "reason": "r", "soon": 1}'),
        ("call-copy-train-000000", "read_file", '{"path": "a.txt", "mode": "r"}'),
        ("call-add-train-000000", "calculate", '{"expression": "1+1", "digits": 2}'),
    ],
)
def test_an_argument_that_a_tool_does_not_know_is_the_models_mistake(task, name, arguments):
    env = ToolCallEnv()
    env.reset(options={"task": task})
    observation, _, _, _, info = env.step(encode(Reply("", (Call("1", name, arguments),))))
    env.close()
    assert info["error"] is None
    assert "unexpected" in json.loads(observation)[0]["content"]


OPENAI_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "calculate", "arguments": '{"expression": "17 * 23"}'},
}
WITH_AN_OBJECT = {"function": {"name": "calculate", "arguments": {"expression": "17 * 23"}}}


@pytest.mark.parametrize(
    "action",
    [
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        json.dumps({"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}),
        json.dumps({"tool_calls": [OPENAI_CALL], "refusal": None}, indent=2),
        "\n " + json.dumps({"content": "", "tool_calls": [WITH_AN_OBJECT]}),
        json.dumps([OPENAI_CALL]),
    ],
)
def test_calls_in_openais_form_are_calls_and_no_speech(tmp_path, action):
    env = started(tmp_path)
    observation, _, terminated, truncated, _ = env.step(action)
    assert not terminated
    assert not truncated
    assert "391" in observation
    assert env.step("391")[1] == 1.0


@pytest.mark.parametrize("action", ["[1, 2]", '{"tool_calls": "none"}', '{"answer": 391}', "[]"])
def test_json_that_calls_nothing_is_said(tmp_path, action):
    env = started(tmp_path)
    assert env.step(action)[2]


def test_an_example_in_the_system_message_is_what_the_text_protocol_reads():
    env = ToolCallEnv(example=True)
    for task_id in env.task_ids("train")[:26]:
        observation, info = env.reset(options={"task": task_id})
        shown = str(info["system"]).partition("Request: ")[2]
        request, *replies = shown.split("\nReply: ")
        assert request != observation
        agent = ToolCallAgent(protocol="text")
        actions = [agent.action({"role": "assistant", "content": reply}) for reply in replies]
        sources = [make_task(f"call-{info['family']}-train-{number:06d}") for number in range(2)]
        task = next(task for task in sources if task.instruction == request)
        assert [
            [(call.name, call.arguments) for call in decode(getattr(action, "text", "")).calls]
            for action in actions
        ] == [[(call.name, call.arguments) for call in reply.calls] for reply in task.solution]


def test_the_system_text_of_a_task_comes_before_the_example(tmp_path):
    env = env_of(
        tmp_path, SUM, {**SUM, "id": "other", "instruction": "What is 2 * 3?"}, example=True
    )
    _, info = env.reset(options={"task": "sum"})
    assert info["system"].startswith("Be brief.\n\nAn example")
    assert "Request: What is 2 * 3?" in info["system"]
    with pytest.raises(ConfigError, match="at least two training tasks with a solution"):
        env_of(tmp_path, example=True)
