"""`ClawRL/Conversation-v0`: what the user hears, says and is satisfied by."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.agents.tool_calls import Call, Reply, decode, encode
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.conversation.agent import ConversationAgent
from clawrl_gym.envs.conversation.config import ConversationEnvConfig
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.envs.conversation.tools import MAX_CALLS, arguments_of
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.showcase.conversation.generated import FAMILIES, ConversationTask, make_task
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.collection.worker import build_agent

WRONG = "tom has 99 and gets 98 more so its 77"


def begin(task_id: str, **options) -> tuple[ConversationEnv, ConversationTask]:
    task = make_task(task_id)
    env = ConversationEnv(persona=task.persona.name, render_mode="ansi", **options)
    observation, _ = env.reset(seed=5, options={"task": task_id})
    assert observation == task.opening
    return env, task


def unasked(task: ConversationTask) -> str:
    return task.persona.unasked.render(task.problem, Draw("said"))


def liked(task: ConversationTask) -> str:
    return task.persona.style.render(task.problem, Draw("said"))


def call(name: str, **arguments: str) -> str:
    return encode(Reply("", (Call("c1", name, arguments_of(**arguments)),)))


def result(observation: str) -> str:
    (only,) = json.loads(observation)
    assert only["tool_call_id"] == "c1"
    return str(only["content"])


def said(act: str, task: ConversationTask) -> list[str]:
    return [form.format(target=task.target) for form in getattr(task.persona, act)]


@pytest.mark.parametrize("persona", PERSONAS)
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_the_oracle_satisfies_every_kind_of_user(persona: str, split: Split) -> None:
    env = ConversationEnv(persona=persona)
    for task_id in env.task_ids(split)[:60]:
        env.reset(seed=1, options={"task": task_id, "split": split})
        steps = [env.step(action) for action in env.solve()]
        assert [step[1] for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
        assert [step[2] for step in steps] == [False] * (len(steps) - 1) + [True]
        info = steps[-1][-1]
        assert info["satisfied"]
        assert info["correct"]
        assert info["scores"] == {"liked": 1.0, "personalization": 1.0, "correct": 1.0}


@pytest.mark.parametrize("family", FAMILIES)
def test_who_says_nothing_gets_nothing(family: str) -> None:
    env, _ = begin(f"student-{family}-train-000001")
    steps = [env.step("") for _ in range(3)]
    assert [step[1] for step in steps] == [0.0, 0.0, 0.0]
    assert steps[-1][2]
    scores = {"liked": 0.0, "personalization": 0.0, "correct": 0.0}
    assert steps[-1][-1]["scores"] == scores


@pytest.mark.parametrize("persona", PERSONAS.values(), ids=PERSONAS)
def test_no_first_message_says_the_wish(persona) -> None:
    tellers = {"lower", "casual", "bold", "list", "friendly", "nice", "story", "formal", "only"}
    for family in FAMILIES:
        for number in range(40):
            task = make_task(f"{persona.name}-{family}-train-{number:06d}")
            assert not tellers & set(task.opening.lower().replace(".", " ").split())


def test_a_disliked_style_is_named_and_a_rewrite_makes_up_for_it() -> None:
    env, task = begin("student-ask-train-000003")
    observation, reward, terminated, _, info = env.step(unasked(task))
    assert observation in said("dislike", task)
    assert (reward, terminated, info["correct"]) == (0.0, False, True)
    first = float(str(info["first_reply_score"]))
    assert first <= 0.2
    observation, reward, terminated, _, info = env.step(liked(task))
    assert observation in said("thanks", task)
    assert (reward, terminated, info["satisfied"]) == (1.0, True, True)
    assert info["first_reply_score"] == first


def test_a_wrong_answer_is_named_however_well_it_is_put() -> None:
    env, task = begin("student-ask-train-000003")
    observation, reward, terminated, _, info = env.step(
        liked(task).replace(str(task.problem.answer), "77")
    )
    assert observation in said("wrong", task)
    assert (reward, terminated, info["correct"]) == (0.0, False, False)


def test_a_user_leaves_when_a_third_complaint_would_be_due() -> None:
    env, task = begin("teacher-ask-train-000003")
    for _ in range(2):
        observation, _, terminated, _, _ = env.step(unasked(task))
        assert observation in said("dislike", task)
        assert not terminated
    observation, reward, terminated, truncated, info = env.step(unasked(task))
    assert observation in said("leave", task)
    assert (reward, terminated, truncated, info["satisfied"]) == (0.0, True, False, False)


def test_the_turn_budget_truncates_without_a_reward() -> None:
    env, task = begin("student-read-train-000003", max_turns=2)
    assert not env.step(call("read", path=task.source or ""))[3]
    _, reward, terminated, truncated, _ = env.step(unasked(task))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert env.finish() == 0.0
    with pytest.raises(EnvError, match="expected reset"):
        env.step("more")


def test_reading_shows_the_problem_as_a_tools_result() -> None:
    env, task = begin("child-read-train-000003")
    observation, _, terminated, truncated, info = env.step(call("read", path=task.source or ""))
    assert result(observation) == task.files[task.source or ""]
    assert info["next_state_role"] == "tool"
    assert not terminated
    assert not truncated
    _, _, _, _, info = env.step(liked(task))
    assert info["next_state_role"] == "user"


def test_s20_saying_done_does_not_write_the_file() -> None:
    """The reference counts a sentinel in the text; here the file itself is looked at."""
    env, task = begin("student-save-train-000003")
    assert env.step(liked(task))[0] in said("save", task)
    for claim in ("HOMEWORK_DONE", "i wrote it to the file"):
        observation, reward, terminated, _, _ = env.step(claim)
        assert observation in said("missing", task)
        assert (reward, terminated) == (0.0, False)
    assert env.step("GRADING_DONE")[1:3] == (0.0, True)


@pytest.mark.parametrize("spoil", ["path", "number", "style"])
def test_the_file_must_be_where_and_what_was_wanted(spoil: str) -> None:
    env, task = begin("student-save-train-000003")
    path, text = task.target or "", liked(task)
    env.step(text)
    if spoil == "path":
        path = "answers/other.txt"
    elif spoil == "number":
        text = text.replace(str(task.problem.answer), "77")
    else:
        text = unasked(task)
    env.step(call("write", path=path, content=text))
    observation, reward, *_ = env.step("done")
    assert observation in said("missing", task)
    assert reward == 0.0
    env.step(call("write", path=f"./{task.target}", content=liked(task)))
    assert env.step("done")[1:3] == (1.0, True)


def test_several_calls_at_once_are_carried_out_in_order() -> None:
    env, task = begin("student-homework-train-000003")
    calls = (
        Call("a", "read", arguments_of(path=task.source or "")),
        Call("b", "write", arguments_of(path="x.txt", content="hello")),
        Call("c", "read", arguments_of(path="x.txt")),
    )
    observation, *_ = env.step(encode(Reply("let me see", calls)))
    results = json.loads(observation)
    assert [r["tool_call_id"] for r in results] == ["a", "b", "c"]
    assert [r["content"] for r in results[1:]] == ["wrote x.txt", "hello"]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("delete", "{}", "there is no such tool; tools: read, write"),
        ("read", "", "the arguments are not JSON; expected path"),
        ("read", "[]", "expected the arguments path, each a text"),
        ("read", "[" * 100_000, "the arguments are not JSON"),
        ("read", '{"path": 7}', "expected the arguments path, each a text"),
        ("read", '{"path": "nothing.txt"}', "File not found: nothing.txt"),
        ("read", '{"path": "/etc/passwd"}', "expected a path below the workspace"),
        ("read", '{"path": "../../etc/passwd"}', "expected a path below the workspace"),
        ("read", '{"path": "a\\u0000b"}', "expected a path below the workspace"),
        ("read", json.dumps({"path": "a" * 300}), "the path is too long"),
        ("write", '{"path": "a.txt"}', "expected the arguments path, content, each a text"),
        ("write", json.dumps({"path": "a", "content": "x" * 70_000}), "the content is too long"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_to_the_model(
    name: str, arguments: str, error: str
) -> None:
    env, _ = begin("student-homework-train-000003")
    observation, reward, terminated, *_ = env.step(
        encode(Reply("", (Call("c1", name, arguments),)))
    )
    told = json.loads(result(observation))
    assert told["status"] == "error"
    assert told["tool"] == name
    assert error in told["error"]
    assert (reward, terminated) == (0.0, False)


def test_a_tool_that_was_not_offered_is_not_there() -> None:
    env, task = begin("student-ask-train-000003")
    told = result(env.step(call("read", path="homework/1.txt"))[0])
    assert "tools: none" in json.loads(told)["error"]
    assert env.step(liked(task))[1] == 1.0


def test_calls_beyond_the_limit_are_not_carried_out() -> None:
    env, _ = begin("student-save-train-000003")
    calls = tuple(
        Call(str(n), "write", arguments_of(path=f"{n}.txt", content="x"))
        for n in range(MAX_CALLS + 1)
    )
    results = json.loads(env.step(encode(Reply("", calls)))[0])
    assert results[MAX_CALLS - 1]["content"] == "wrote 15.txt"
    assert "too many calls" in results[MAX_CALLS]["content"]


def test_the_same_seed_says_the_same_and_another_seed_something_else() -> None:
    def talk(seed: int) -> list[str]:
        env = ConversationEnv()
        heard = [env.reset(seed=seed, options={"task": "student-ask-train-000007"})[0]]
        return heard + [env.step("no idea")[0] for _ in range(3)]

    assert talk(3) == talk(3)
    assert len({tuple(talk(seed)) for seed in range(12)}) > 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply("plain words"),
        Reply(""),
        Reply('{"not": "the form"}'),
        Reply('{"content": null, "tool_calls": []}'),
        Reply("", (Call("1", "read", '{"path": "a"}'),)),
        Reply("both", (Call("", "", "not json"), Call("2", "write", "{}"))),
    ],
)
def test_a_reply_survives_its_text_form(reply: Reply) -> None:
    assert decode(encode(reply)) == reply


@pytest.mark.parametrize(
    "text",
    [
        '{"content": 3, "tool_calls": []}',
        '{"content": "", "tool_calls": [{"id": 1}]}',
        '{"content": "", "tool_calls": {}}',
        '{"tool_calls": []}',
        "{" * 100_000,
    ],
)
def test_what_is_not_the_form_is_something_said(text: str) -> None:
    assert decode(text) == Reply(text)


def test_the_configuration_builds_the_environment_and_its_tasks() -> None:
    config = ConversationEnvConfig(persona="clerk", families=["read", "ask"], max_turns=4)
    env = config.make()
    tasks = TaskSampler.of(config, seed=3)
    drawn = [tasks.train(n) for n in range(50)]
    families = {(ref.id or "").rsplit("-", 2)[0] for ref in drawn}
    assert families == {"clerk_heldout-ask", "clerk_heldout-read"}
    held = tasks.heldout(10)
    assert all("-heldout-" in (ref.id or "") for ref in held)
    for ref in held:
        options = {"task": ref.id, "split": ref.split}
        assert env.reset(seed=ref.seed, options=options)[1]["task"] == ref.id
    env.close()


def test_a_conversation_gets_its_own_agent_unless_another_one_is_chosen() -> None:
    chosen = AgentConfig(type="conversation")
    assert isinstance(build_agent(AgentConfig(), ConversationEnvConfig()), ConversationAgent)
    assert isinstance(build_agent(chosen, GymEnvConfig(id="X-v0")), ConversationAgent)
    other = build_agent(AgentConfig(type="text"), ConversationEnvConfig())
    assert not isinstance(other, ConversationAgent)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"persona": "pirate"}, "env.persona='pirate'"),
        ({"families": ["sing"]}, "env.families="),
        ({"source": "dream"}, "env.source: got 'dream': Input should be 'simulated' or 'live'"),
        ({"source": "live"}, "no env.gateway_url"),
        ({"user": "ghost"}, "env.user: got 'ghost': Input should be 'scripted' or 'model'"),
        ({"user": "model"}, "no env.user_base_url"),
        ({"user": "model", "user_base_url": "localhost:1"}, "expected one such as http://"),
        ({"user": "model", "user_base_url": "http://h:99999"}, "Port out of range"),
        ({"max_turns": 0}, "env.max_turns: got 0"),
        ({"render_mode": "human"}, "expected None or 'ansi'"),
    ],
)
def test_a_wrong_option_says_what_was_expected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ConversationEnv(**options)
    assert message in str(caught.value)


def test_training_on_live_sessions_is_refused_with_the_way_to_do_it() -> None:
    config = ConversationEnvConfig(source="live", gateway_url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"clawrl_gym\.serve"):
        TaskSampler.of(config, seed=0)


@pytest.mark.parametrize("options", [{"taks": "x"}, {"split": "test"}])
def test_unknown_reset_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected 'task'"):
        ConversationEnv().reset(seed=1, options=options)


def test_an_unknown_task_is_a_task_error_and_a_step_before_reset_an_env_error() -> None:
    env = ConversationEnv()
    with pytest.raises(TaskError, match="expected PERSONA-FAMILY-SPLIT-NUMBER"):
        env.reset(seed=1, options={"task": "nothing"})
    with pytest.raises(EnvError, match="expected reset"):
        env.step("hello")
    with pytest.raises(EnvError, match="expected reset"):
        env.solve()


def test_the_environment_travels_between_processes_in_mid_conversation() -> None:
    env, task = begin("student-save-train-000003")
    env.step(unasked(task))
    copy = pickle.loads(pickle.dumps(env))
    assert copy.step(liked(task)) == env.step(liked(task))
    assert copy.render() == env.render()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text() | st.from_regex(r"[-*. #]*\d{1,400}[^a]*"), min_size=1, max_size=6))
def test_nothing_that_a_model_says_is_an_error_of_the_environment(texts: list[str]) -> None:
    env, _ = begin("teacher-save-train-000003")
    for text in texts:
        _, reward, terminated, truncated, _ = env.step(text)
        assert reward == 0.0
        if terminated or truncated:
            break


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text(), st.text() | st.from_regex(r'\{"(path|content)": .*\}'))
def test_no_call_that_a_model_makes_is_an_error_of_the_environment(
    id: str, name: str, arguments: str
) -> None:
    env, _ = begin("student-homework-train-000003")
    calls = (Call(id, name, arguments), Call(id, "read", arguments), Call(id, "write", arguments))
    observation, reward, terminated, *_ = env.step(encode(Reply("", calls)))
    assert [r["tool_call_id"] for r in json.loads(observation)] == [id] * 3
    assert (reward, terminated) == (0.0, False)
