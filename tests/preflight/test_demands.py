"""What an environment asks of a model, and what is said where the model cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import clawrl_gym as cg
from clawrl_gym.cluster.extra_evaluations import extra_evaluations
from clawrl_gym.config import AgentConfig, PolicyConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.config.envs import EnvConfig
from clawrl_gym.config.run import RunConfig
from clawrl_gym.envs.conversation.config import ConversationEnvConfig
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.terminal.agent import FORM, SYSTEM, TerminalAgent
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.inference.models.abilities import Abilities, abilities_of
from clawrl_gym.inference.models.chat_template import look_at
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.preflight.demands import demands, unmet, unseen_tools
from tests.inference.test_chat_template import NO_SYSTEM, PLAIN
from tests.support.tiny_models import TEMPLATE

NATIVE, TEXT = AgentConfig(), AgentConfig(protocol="text")
POLICY = PolicyConfig(model="some/model")


def able(template: str, *, pictures: bool = False) -> Abilities:
    return Abilities(look_at(template, {}), pictures, 2048, ("<|im_end|>",))


@pytest.mark.parametrize(
    ("env", "agent", "template", "says"),
    [
        (ToolCallEnvConfig(), NATIVE, PLAIN, ["take mine.agent.protocol=text"]),
        (ToolCallEnvConfig(), NATIVE, TEMPLATE, []),
        (ToolCallEnvConfig(), TEXT, PLAIN, []),
        (ToolCallEnvConfig(), TEXT, NO_SYSTEM, ["whose chat template takes none"]),
        (GuiEnvConfig(), NATIVE, PLAIN, ["take mine.agent.protocol=text"]),
        (TerminalEnvConfig(), NATIVE, PLAIN, []),
        (TerminalEnvConfig(), NATIVE, NO_SYSTEM, ["take mine.agent.system=''"]),
        (TerminalEnvConfig(), AgentConfig(system=""), NO_SYSTEM, []),
        (ConversationEnvConfig(), NATIVE, NO_SYSTEM, []),
    ],
)
def test_what_a_model_cannot_do_is_refused_with_what_to_do(
    env: EnvConfig, agent: AgentConfig, template: str, says: list[str]
) -> None:
    lines = [*unmet(POLICY, env, agent, able(template), "mine.")]
    assert len(lines) == len(says), lines
    for line, part in zip(lines, says, strict=True):
        assert part in line
        assert "'some/model'" in line


def test_a_page_that_is_shown_as_a_picture_takes_a_model_that_sees() -> None:
    env = GuiEnvConfig(observation="both")
    (line,) = unmet(POLICY, env, NATIVE, able(TEMPLATE))
    assert "env.observation=tree" in line
    assert not [*unmet(POLICY, env, NATIVE, able(TEMPLATE, pictures=True))]


def test_nothing_is_known_of_a_model_that_is_not_here() -> None:
    assert not [*unmet(POLICY, ToolCallEnvConfig(), NATIVE, None)]
    assert not [*unseen_tools(ConversationEnvConfig(), None)]


def test_tools_of_some_tasks_that_go_unseen_are_noted() -> None:
    (line,) = unseen_tools(ConversationEnvConfig(), able(PLAIN))
    assert "it acts there without" in line
    assert not [*unseen_tools(ConversationEnvConfig(), able(TEMPLATE))]
    assert not [*unseen_tools(ToolCallEnvConfig(), able(PLAIN))], "that is refused"


def test_what_an_environment_asks_is_said() -> None:
    assert [*demands(ToolCallEnvConfig(), TEXT)] == [
        "calls of tools that the system message describes (agent.protocol=text)",
        "a system message",
    ]
    assert "chat template shows" in next(demands(ToolCallEnvConfig(), NATIVE))
    assert next(demands(ConversationEnvConfig(), TEXT)).startswith("in some tasks calls of tools")
    assert [*demands(TerminalEnvConfig(), NATIVE)] == ["a system message"]


def test_what_a_model_can_do_is_said(tmp_path: Path) -> None:
    shutil.copytree(shipped_dir("tiny"), tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(PLAIN)
    abilities = abilities_of(tmp_path / "model")
    assert abilities is not None
    first, system, end = abilities.words()
    for part in ("tools: no (", "thinking: no", "pictures: no", "tokens", "system message: yes"):
        assert part in first
    assert "'You are a helpful AI assistant named SmolLM'" in system
    assert end == "a reply ends with '<|im_end|>'"
    assert abilities_of(tmp_path) is None


def test_the_terminal_shows_the_form_of_a_reply_to_policies_that_are_not_shipped(
    tmp_path: Path,
) -> None:
    def shown(*arguments: str, command: str = "train") -> bool:
        config = cg.load_config(["env=terminal", *arguments], command)  # type: ignore[call-overload]
        return bool(config.agent.show_form)

    assert not shown()
    assert shown("policy=qwen3_0_6b")
    assert shown("policy=smollm2", command="evaluate")
    assert shown("endpoint.base_url=http://127.0.0.1:9/v1", command="evaluate")
    assert not shown("policy=qwen3_0_6b", "agent.show_form=false")
    assert shown("agent.show_form=true")
    mixed = cg.load_config(["env=[terminal,conversation]", "policy=qwen3_0_6b"])
    assert [domain.agent.show_form for domain in mixed.domains.values()] == [True, True]
    with_others = cg.load_config(["env=toolcall", "policy=smollm2", "eval.also=[terminal]"])
    (other,) = extra_evaluations(with_others)
    agent = other.agent(with_others)
    assert (agent.show_form, agent.protocol, agent.type) == (True, "text", "auto")
    assert not compose("train", ["policy=qwen3_0_6b"], RunConfig).agent.show_form


def test_the_form_is_one_that_the_agent_reads() -> None:
    usual, shown = (
        TerminalAgent.from_config(AgentConfig(show_form=form)).messages(["Do it."], [])[0]
        for form in (False, True)
    )
    assert usual["content"] == SYSTEM, "the shipped policies' prompt stays"
    assert shown["content"] == SYSTEM + FORM
    agent = TerminalAgent()
    for block in FORM.split("like this")[1:]:
        reply = "```" + block.partition("```")[2].rpartition("```")[0] + "```"
        action = agent.action({"role": "assistant", "content": reply})
        assert isinstance(action, cg.Action)
        assert action.text in ("ls -l", "submit")
