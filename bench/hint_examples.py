"""Examples that hints are measured on: prompts, right replies, and what was said of wrong ones.

Conversations of three kinds (the personas' wishes about style; wishes about form, where the right
reply follows from the first one; facts that a person sets right), terminal tasks and tool calls,
both with their oracles' actions and the reports that their checks give.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from clawrl_gym.agents.tool_calls import Reply, encode
from clawrl_gym.core.types import Message, Split, Tool
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.problems import draw_problem
from clawrl_gym.envs.toolcall.agent import ToolCallAgent
from clawrl_gym.envs.toolcall.env import ToolCallEnv
from clawrl_gym.judge.rule_hints import hint_of_error, hint_of_report, hint_of_words
from tools.tiny_policy.careless import demonstrated
from tools.tiny_policy.hints import task_failures
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations
from tools.tiny_policy.tool_slips import SLIPS
from tools.tiny_policy.tool_tasks import ToolDemonstrations

KINDS = ("conversation", "terminal", "tools")


@dataclass(frozen=True, slots=True)
class Example:
    """A turn that went wrong, the feedback on it, and what would have been right."""

    kind: str
    family: str
    """Hints of another family are about something else."""
    messages: list[Message]
    """The prompt."""
    wrong: str
    right: str
    words: str
    """Feedback: a person's words, or an environment's."""
    hint: str
    """Hint that the rules make of them."""


def examples(kind: str, count: int, split: Split = "heldout") -> list[Example]:
    """So many of a kind, of as many families as there are; the same ones each time."""
    if kind == "conversation":
        sources = [_styles(split), _wishes(), _facts()]
        mixed = (next(source) for source in itertools.cycle(sources))
        return list(itertools.islice(mixed, count))
    source = _commands(split) if kind == "terminal" else _calls(split)
    return list(itertools.islice(source, count))


def unrelated(drawn: Sequence[Example], at: int, chance: random.Random) -> Example:
    """Another example of the same kind whose hint says nothing about this one."""
    own = drawn[at]
    return chance.choice([other for other in drawn if other.family != own.family])


# Conversations.


def _styles(split: Split) -> Iterator[Example]:
    """Held-out problems; each person's complaints in turn."""
    for number in itertools.count():
        draw = Draw(f"hint styles/{split}/{number}")
        persona = list(PERSONAS.values())[number % len(PERSONAS)]
        problem = draw_problem(split, draw)
        task = persona.task.format(text=problem.text, name=problem.name, claimed=problem.claimed)
        words = draw.pick(persona.dislike)
        yield Example(
            "conversation",
            f"style-{persona.name}",
            [{"role": "user", "content": draw.pick(persona.ask).format(task=task)}],
            persona.unasked.render(problem, draw),
            persona.style.render(problem, draw),
            words,
            hint_of_words(words),
        )


EXCHANGES: Any = yaml.safe_load((Path(__file__).parent / "hint_exchanges.yaml").read_text())


def _sentences(text: str) -> list[str]:
    return [f"{part.rstrip('.')}." for part in text.split(". ")]


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish about form: how the first reply is put right, and how a person asks for it."""

    name: str
    put: Callable[[str], str]
    words: tuple[str, ...]


WISHES = (
    Wish("capitals", str.upper, (
        "WRITE EVERYTHING IN CAPITAL LETTERS PLEASE", "my eyes are bad, use upper case only",
        "I asked for block capitals, please use them",
    )),
    Wish("small", str.lower, (
        "no capital letters at all please", "write it all in lower case",
        "I want only small letters, also at the beginning of a sentence",
    )),
    Wish("short", lambda text: _sentences(text)[0], (
        "One sentence is enough.", "too long, I only need the first sentence",
        "Shorter please, a single sentence.",
    )),
    Wish("bullets", lambda text: "\n".join(f"- {line}" for line in _sentences(text)), (
        "Please make that a bulleted list.", "give it to me as bullet points with dashes",
        "I prefer a list, each point on its own line after a dash",
    )),
    Wish("numbers", lambda text: "\n".join(
        f"{n}. {line}" for n, line in enumerate(_sentences(text), 1)
    ), (
        "Number the sentences, please.", "as a numbered list, starting with 1",
        "I need it in numbered steps",
    )),
    Wish("json", lambda text: json.dumps({"answer": text}), (
        'Answer in JSON with the one key "answer".', "my script reads JSON: put it under answer",
        "please return a JSON object with the field answer and nothing else",
    )),
    Wish("letter", lambda text: f"Dear Mrs. Miller,\n\n{text}\n\nBest regards", (
        "Make it a letter to Mrs. Miller.", "it should begin with Dear Mrs. Miller, like a letter",
        "Write it as a letter: address Mrs. Miller and end with best regards.",
    )),
    Wish("quote", lambda text: f'"{text}"', (
        "Put the whole answer in quotation marks.", "I want it between double quotes",
        "quote it please, with a quotation mark at the beginning and at the end",
    )),
)  # fmt: skip


def _wishes() -> Iterator[Example]:
    for number in itertools.count():
        draw = Draw(f"hint wishes/{number}")
        wish, (question, answer) = (
            WISHES[number % len(WISHES)],
            draw.pick(list(EXCHANGES["answers"].items())),
        )
        words = draw.pick(wish.words)
        yield Example(
            "conversation",
            f"wish-{wish.name}",
            [{"role": "user", "content": question}],
            answer,
            wish.put(answer),
            words,
            hint_of_words(words),
        )


def _facts() -> Iterator[Example]:
    for fact in itertools.cycle(EXCHANGES["facts"]):
        yield Example(
            "conversation",
            f"fact-{fact['question']}",
            [{"role": "user", "content": fact["question"]}],
            fact["first"],
            fact["right"],
            fact["said"],
            hint_of_words(fact["said"]),
        )


# Tasks.


def _commands(split: Split) -> Iterator[Example]:
    """The last command of each; what failed is drawn from what its checks may say."""
    source, chance = TerminalDemonstrations(split, careless=False), random.Random(0)
    for task, shown in zip(source.tasks(0), source.conversations(0), strict=True):
        right = str(shown.messages[-1]["content"])
        slip = demonstrated(task.family, task.solution[-1], 0.0)
        failures = task_failures(task, chance)
        report = report_of(failures)
        if failures:
            yield Example(
                "terminal",
                task.family,
                shown.messages[:-1],
                right.replace(task.solution[-1], slip),
                right,
                report,
                hint_of_report(report),
            )


def _calls(split: Split) -> Iterator[Example]:
    """The first reply in which a slip differs from the oracle, and what came of the slip."""
    for task in ToolDemonstrations(split, careless=False).tasks(0):
        slipped = SLIPS[task.family][0](task) if task.family in SLIPS else task.solution
        if "python" in task.toolsets:
            continue
        pairs = enumerate(zip(slipped, task.solution, strict=False))
        at = next((at for at, (slip, right) in pairs if slip != right), None)
        if at is None:
            continue
        words, observations, tools = _outcome(task.id, split, slipped, at)
        agent = ToolCallAgent(protocol="text")
        replies: list[Message] = [
            {"role": "assistant", "content": text_form(reply)} for reply in slipped[:at]
        ]
        messages = agent.messages(observations, replies)
        system = f"{messages[0]['content']}\n\n{agent.instructions(tools)}"
        yield Example(
            "tools",
            task.family,
            [{"role": "system", "content": system}, *messages[1:]],
            text_form(slipped[at]),
            text_form(task.solution[at]),
            words,
            hint_of_report(words) or hint_of_error(words),
        )


def _outcome(
    task_id: str, split: Split, replies: Sequence[Reply], at: int
) -> tuple[str, list[str], list[Tool]]:
    """An environment's report on an episode; the observations before a reply, and the tools."""
    env = ToolCallEnv()
    try:
        observation, info = env.reset(options={"split": split, "task": task_id})
        tools: Any = info["tools"]
        observations, ended = [observation], False
        for reply in replies:
            if ended:
                break
            observation, _, ended, truncated, info = env.step(encode(reply))
            ended = ended or truncated
            observations.append(observation)
        if not ended:
            env.finish()
        report = str(info.get("report") or report_of(["the task was not finished"]))
    finally:
        env.close()
    return report, observations[: at + 1], tools


def text_form(reply: Reply) -> str:
    """A reply as a model without a template for tools writes it."""
    calls = [
        f'<tool_call>{{"name": "{call.name}", "arguments": {call.arguments}}}</tool_call>'
        for call in reply.calls
    ]
    return "\n".join([*([reply.content] if reply.content else []), *calls])
