"""The tiny policy's demonstrations with tools: true to agent and environment, with slips."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from clawrl_gym.agents.agent import Action
from clawrl_gym.agents.tool_calls import Reply, encode
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Message, Tool
from clawrl_gym.envs.showcase.swe.corpus.corpus import easy_families
from clawrl_gym.envs.showcase.terminal.families import FAMILIES as TERMINAL
from clawrl_gym.envs.showcase.toolcall.families import FAMILIES
from clawrl_gym.envs.showcase.toolcall.generated import make_task, task_ids
from clawrl_gym.envs.toolcall.agent import ToolCallAgent
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.inference.models.shipped import shipped_dir
from tools.tiny_policy.conversations import encode as encode_rows
from tools.tiny_policy.conversations import render
from tools.tiny_policy.evaluation import MAX_REPLY_TOKENS, prompts_of
from tools.tiny_policy.phases import more_phases, phases
from tools.tiny_policy.tool_slips import SLIPS, demonstrated_replies
from tools.tiny_policy.tool_tasks import ToolDemonstrations, demonstrate

SANDBOXED = "range"
OTHERS = tuple(name for name in FAMILIES if name != SANDBOXED)
NEVER, ALWAYS = 0.999, 0.0
"""Luck that leads to a slip never or always."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(shipped_dir())


def held(env: ToolCallEnv, task: ToolTask, replies: Sequence[Reply]) -> tuple[list[Message], float]:
    """The messages of an episode in which the agent's policy gives these replies; its reward."""
    shown_to = demonstrate(task, replies).messages
    answers = [message for message in shown_to if message["role"] == "assistant"]
    agent = ToolCallAgent()
    opening, info = env.reset(options={"task": task.id})
    observations, reward = [opening], 0.0
    for answer in answers:
        action = agent.action(answer)
        assert isinstance(action, Action)
        observation, reward, _, _, info = env.step(action.text)
        observations.append(observation)
    assert demonstrate(task, replies).tools == agent.tools(cast(Sequence[Tool], info["tools"]))
    return [*agent.messages(observations[:-1], answers[:-1]), answers[-1]], reward


@pytest.mark.parametrize("family", OTHERS)
@pytest.mark.parametrize(("luck", "wanted"), [(NEVER, 1.0), (ALWAYS, 0.0)])
def test_demonstrations_show_what_an_episode_shows_and_slips_fail(
    family: str, luck: float, wanted: float
) -> None:
    env = ToolCallEnv(families=[family])
    for task_id in env.task_ids("train")[:10]:
        task = make_task(task_id)
        replies = demonstrated_replies(task, luck)
        messages, reward = held(env, task, replies)
        assert messages == demonstrate(task, replies).messages
        assert reward == wanted, (task_id, env.report)


@pytest.mark.sandbox
@pytest.mark.parametrize(("luck", "wanted"), [(NEVER, 1.0), (ALWAYS, 0.0)])
def test_the_interpreter_prints_what_is_demonstrated(luck: float, wanted: float) -> None:
    env = ToolCallEnv(families=[SANDBOXED])
    for task_id in env.task_ids("train")[:2]:
        task = make_task(task_id)
        messages, reward = held(env, task, demonstrated_replies(task, luck))
        assert messages == demonstrate(task, demonstrated_replies(task, luck)).messages
        assert reward == wanted
    env.close()


def test_every_family_has_a_slip_and_its_share_leaves_both_answers() -> None:
    assert set(SLIPS) == set(FAMILIES)
    for task in map(make_task, task_ids("heldout")[: 5 * len(FAMILIES)]):
        assert demonstrated_replies(task, ALWAYS) != task.solution
        assert demonstrated_replies(task, NEVER) == task.solution
    shares = [share for _, share in SLIPS.values()]
    assert sum(share > 0.5 for share in shares) / len(shares) > 0.6


def test_demonstrations_follow_from_the_seed() -> None:
    first, again, other = (
        list(itertools.islice(ToolDemonstrations().conversations(seed), 20)) for seed in (1, 1, 2)
    )
    assert first == again != other
    careful = list(itertools.islice(ToolDemonstrations(careless=False).conversations(1), 20))
    tasks = list(itertools.islice(ToolDemonstrations().tasks(1), 20))
    assert careful == [demonstrate(task, task.solution) for task in tasks]
    assert careful != first


def test_code_that_only_a_sandbox_may_run_is_refused() -> None:
    task = make_task("call-range-train-000000")
    (call,) = task.solution[0].calls
    wrong = type(call)(call.id, call.name, json.dumps({"code": "__import__('os')"}))
    with pytest.raises(TaskError, match="no sandbox runs here"):
        demonstrate(task, (Reply("", (wrong,)), Reply("Done.")))


def test_demonstrations_are_short_and_learned_reply_by_reply(tokenizer: Any) -> None:
    conversations = list(itertools.islice(ToolDemonstrations().conversations(5), 150))
    for row, conversation in zip(encode_rows(tokenizer, conversations), conversations, strict=True):
        assert len(row.ids_T) < 400
        texts = [text for _, text in prompts_of(tokenizer, conversation)]
        learned = [i for i, mask in zip(row.ids_T, row.mask_T, strict=True) if mask]
        assert tokenizer.decode(learned) == "".join(texts)
        for text in texts:
            assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= MAX_REPLY_TOKENS


def test_the_digest_shows_every_offered_tool(tokenizer: Any) -> None:
    for family in FAMILIES:
        source = ToolDemonstrations(families=(family,))
        (conversation,) = itertools.islice(source.conversations(1), 1)
        text = render(tokenizer, conversation.messages, conversation.tools)
        for tool in conversation.tools or []:
            assert f"\n{tool['function']['name']}(" in text
        assert str(conversation.messages[1]["content"]) in text


def test_calls_with_arguments_as_text_or_as_an_object_read_the_same(tokenizer: Any) -> None:
    task = make_task("call-append-train-000000")
    conversation = demonstrate(task, task.solution)
    parsed = json.loads(json.dumps(conversation.messages))
    for message in parsed:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    assert render(tokenizer, parsed, conversation.tools) == render(
        tokenizer, conversation.messages, conversation.tools
    )


def test_phases_for_tools_have_all_that_came_before() -> None:
    names = [phase.name for phase in phases()]
    assert len(set(names)) == len(names)
    tools = more_phases()[0].source.conversations(3)
    families = {conversation.family for conversation in itertools.islice(tools, 400)}
    assert {f"call-{name}" for name in FAMILIES} <= families
    assert families & set(TERMINAL)
    assert families & set(easy_families())


def test_the_shipped_policy_starts_imperfect_and_capable_with_tools() -> None:
    facts = json.loads((shipped_dir() / "recipe.json").read_text())
    assert 0.1 <= facts["heldout_tools_greedy"]["all"] <= 0.5
    assert min(facts["heldout_tools_temperature_1"].values()) > 0


def test_an_action_of_a_demonstration_is_the_oracles() -> None:
    task = make_task("call-both-train-000000")
    (first, *_) = (m for m in demonstrate(task, task.solution).messages if m["role"] == "assistant")
    action = ToolCallAgent().action(first)
    assert isinstance(action, Action)
    assert action.text == encode(task.solution[0])
