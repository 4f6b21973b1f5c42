"""The SWE agent: which replies hold an action, and what the policy is told."""

from __future__ import annotations

import pytest

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.types import Message
from clawrl_gym.envs.swe.agent import SYSTEM, SweAgent, reply_text
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.observation import LONGEST, observation_text
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK
from clawrl_gym.rollout.collection.worker import build_agent


def action(content: str | None) -> Action | ParseFailure:
    return SweAgent().action({"role": "assistant", "content": content})


@pytest.mark.parametrize(
    "command",
    [
        "ls", "cat <<'EOF' > a.py\nx = 1\n\nEOF", "echo '``'", "printf '%s' \"$x\"",
        "cat > README.md <<'EOF'\n```python\nx\n```\nEOF", "````", "echo a\\\n  b",
    ],
)  # fmt: skip
def test_a_command_survives_the_reply_format(command: str) -> None:
    assert action(reply_text(command)) == Action(command)
    assert action(f"THOUGHT: first.\n\n{reply_text(command)}\nThen more.") == Action(command)


@pytest.mark.parametrize("fence", ["bash", "sh", "BASH", "mswea_bash_command", " bash "])
def test_the_names_of_bash_are_one(fence: str) -> None:
    assert action(f"```{fence}\nls\n```") == Action("ls")


def test_blocks_of_other_languages_are_talk() -> None:
    said = (
        "It says\n```python\nreturn a - b\n```\nand should not.\n\n```bash\nls\n```\n```\nout\n```"
    )
    assert action(said) == Action("ls")
    assert action("``\n`a`\n```bash `x`\n```bash\nls\n```") == Action("ls")
    assert action("````bash\nls\n```\n````` \nls") == Action("ls\n```")
    assert action("```bash\nls\n```x\n```") == Action("ls\n```x")


@pytest.mark.parametrize(
    "thinking",
    ["<think>\n```bash\nrm x\n```\n</think>\n", "I could\n```bash\nrm x\n```\n</think>\n",
     "<think>a</think><think>\n```bash\nrm x\n```\n</think>"],
)  # fmt: skip
def test_blocks_that_are_only_thought_of_do_not_count(thinking: str) -> None:
    assert action(thinking + "\n```bash\nls\n```") == Action("ls")


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (None, "got 0 bash blocks"), ("", "got 0 bash blocks"), ("ls", "got 0 bash blocks"),
        ("```bash\nls\n```\n```bash\nls\n```", "got 2 bash blocks"),
        ("```bash\nls", "got 0 bash blocks"), ("```\nls\n```", "got 0 bash blocks"),
        ("`ls`", "got 0 bash blocks"), ("<think>\n```bash\nls\n```", "got 0 bash blocks"),
        ("```bash\n\n```", "got an empty bash block"),
    ],
)  # fmt: skip
def test_a_reply_without_exactly_one_command_is_told_what_was_got(
    content: str | None, got: str
) -> None:
    failure = action(content)
    assert isinstance(failure, ParseFailure)
    assert failure.message.startswith(got)
    assert "expected" in failure.message


def test_a_reply_of_a_megabyte_of_fences_is_read_quickly_and_holds_no_action() -> None:
    assert isinstance(action("```bash\n" * 125_000), ParseFailure)
    assert isinstance(action("<think>" * 100_000 + "</think>" * 100_000), ParseFailure)


def test_the_system_prompt_begins_with_a_line_that_is_enough_by_itself() -> None:
    first = SYSTEM.split("\n")[0]
    assert len(first) <= 160
    assert f"echo {SUBMIT_MARK}" in first
    assert "one bash block" in first


def test_the_issue_is_the_first_message_and_outputs_come_back_as_the_users() -> None:
    agent = SweAgent("be careful")
    reply: Message = {"role": "assistant", "content": reply_text("ls")}
    assert agent.messages(["fix it", "<returncode>0</returncode>"], [reply]) == [
        {"role": "system", "content": "be careful"},
        {"role": "user", "content": "fix it"},
        reply,
        {"role": "user", "content": "<returncode>0</returncode>"},
    ]
    assert agent.tools([{"function": {"name": "shell"}}]) == []


def test_the_agent_of_the_environment_is_this_one() -> None:
    agent = build_agent(AgentConfig(), SweEnvConfig())
    assert isinstance(agent, SweAgent)
    assert agent.messages(["x"], [])[0]["content"] == SYSTEM


def test_an_observation_holds_the_exit_code_and_the_output() -> None:
    assert observation_text(0, "a\nb\n") == (
        "<returncode>0</returncode>\n<output>\na\nb\n</output>"
    )
    assert "a" * 10_000 in observation_text(0, "a" * 10_000)
    assert observation_text(1, "a" * 5_000 + "b" + "c" * 5_000, "stopped").split("\n") == [
        "<exception>stopped</exception>",
        "<returncode>1</returncode>",
        "<warning>",
        "The output is too long: its middle is left out. Print less, for example with head, tail, "
        "sed or grep, or write the output to a file and look for what you need.",
        "</warning>",
        "<output_head>",
        "a" * 5_000,
        "</output_head>",
        "<elided_chars>",
        "1 characters left out",
        "</elided_chars>",
        "<output_tail>",
        "c" * 5_000,
        "</output_tail>",
    ]
    assert observation_text(2, "") == "<returncode>2</returncode>\n<output>\n</output>"
    assert observation_text(-1, "a", "stopped: it ran too long") == (
        "<exception>stopped: it ran too long</exception>\n<returncode>-1</returncode>\n"
        "<output>\na\n</output>"
    )


def test_a_long_output_keeps_its_head_and_its_tail() -> None:
    text = observation_text(1, "a" * LONGEST + "b" * 7000)
    head, tail = "a" * 5000, "b" * 5000
    assert f"<output_head>\n{head}\n</output_head>" in text
    assert "<elided_chars>\n7000 characters left out\n</elided_chars>" in text
    assert f"<output_tail>\n{tail}\n</output_tail>" in text
    assert "too long" in text
    assert observation_text(0, "a" * LONGEST).count("a" * LONGEST) == 1
