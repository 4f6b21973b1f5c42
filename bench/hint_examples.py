"""What hints are measured on: prompts, right replies to them, and what was said of wrong ones.

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

from clawrl_gym.agents.tool_calls import Reply, encode
from clawrl_gym.core.types import Message, Split, Tool
from clawrl_gym.envs.conversation.personas import PERSONAS
from clawrl_gym.envs.conversation.problems import draw_problem
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.report import report_of
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
    """A turn that went wrong, what was said of it, and what would have been right."""

    kind: str
    family: str
    """Hints of another family are about something else."""
    messages: list[Message]
    """The prompt."""
    wrong: str
    right: str
    words: str
    """What came back: a person's words, or an environment's."""
    hint: str
    """What the rules make of them."""


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


ANSWERS = (
    ("Why is the sky blue?", "Air scatters blue light more than red light. So blue light reaches us from all sides."),
    ("How do I boil an egg?", "Put the egg into boiling water. Wait eight minutes. Cool it under cold water."),
    ("What is a mortgage?", "A mortgage is a loan for a house. The house is the security. You pay it back over many years."),
    ("How do plants eat?", "Plants make sugar from light, water and air. Their roots bring water. Their leaves catch the light."),
    ("Why do cats purr?", "Cats purr when they are content. They also purr to calm themselves."),
    ("How do I change a tyre?", "Loosen the nuts. Lift the car with the jack. Swap the wheel and tighten the nuts."),
    ("What is an index fund?", "An index fund holds all shares of a market. Its costs are low."),
    ("Why do we sleep?", "Sleep lets the brain sort memories. The body repairs itself at night."),
    ("How do I clean a pan?", "Let the pan soak in warm water. Scrub it with salt. Dry it well."),
    ("What does a judge do?", "A judge hears both sides. Then the judge decides by the law."),
    ("How does a fridge work?", "A fluid takes heat from the inside. A pump moves the heat to the outside."),
    ("Why is the sea salty?", "Rivers wash salt out of rocks. The water leaves the sea as vapour and the salt stays."),
    ("How do I learn to swim?", "Begin in shallow water. Practise breathing out under water. Then learn to float."),
    ("What is inflation?", "Inflation means that prices rise. Money then buys less."),
    ("How do bees make honey?", "Bees collect nectar from flowers. In the hive they dry it until it is thick."),
    ("Why do leaves fall?", "In autumn there is little light. Trees drop their leaves to save water."),
)  # fmt: skip
"""Questions, and first replies in sentences that can be put otherwise."""


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
        wish, (question, answer) = WISHES[number % len(WISHES)], draw.pick(ANSWERS)
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


FACTS = (
    ("When does the museum open?", "The museum opens at nine.", "no, since May it opens at half past ten", "The museum opens at half past ten."),
    ("Who leads our team?", "Your team is led by Anna.", "Anna left. Priya leads it now.", "Your team is led by Priya."),
    ("What is the wifi password of the guest network?", "The password is guest2023.", "that one is old, it is blue-heron-7 now", "The password is blue-heron-7."),
    ("Which table is ours tonight?", "You have table four.", "They moved us to the one by the window, number twelve.", "You have table twelve."),
    ("How much is a ticket to the harbour?", "A ticket costs three euros.", "it went up, I just paid 4.20", "A ticket costs 4.20 euros."),
    ("What is my cat called?", "Your cat is called Luna.", "Luna was the old one. This one is Pixel.", "Your cat is called Pixel."),
    ("Where do we meet tomorrow?", "You meet at the station.", "No, at the bakery across the street.", "You meet at the bakery across the street."),
    ("Which branch do I deploy from?", "Deploy from main.", "we deploy from release/stable, never from main", "Deploy from release/stable."),
    ("What do I bring to the party?", "Bring a bottle of wine.", "They don't drink. I promised a lemon cake.", "Bring a lemon cake."),
    ("When is the rent due?", "The rent is due on the first.", "in my contract it says the fifteenth", "The rent is due on the fifteenth."),
    ("What size are my shoes?", "Your size is 42.", "it's 44.5", "Your size is 44.5."),
    ("Who won our chess match?", "Ivo won the match.", "It was a draw!", "The match was a draw."),
    ("Which port does the server use?", "The server uses port 8080.", "I changed it to 9443 last week", "The server uses port 9443."),
    ("What colour is the new door?", "The new door is green.", "We took the yellow one in the end.", "The new door is yellow."),
    ("Who feeds the fish this week?", "Maria feeds the fish.", "maria is away, it's Tomasz's turn", "Tomasz feeds the fish."),
    ("How long is the warranty?", "The warranty lasts two years.", "the receipt says five years", "The warranty lasts five years."),
    ("Which bus goes to the lake?", "Take bus 17.", "17 does not run anymore, it is the 63", "Take bus 63."),
    ("What is the dog allergic to?", "The dog is allergic to chicken.", "No, chicken is fine, it is beef", "The dog is allergic to beef."),
    ("When is my appointment?", "Your appointment is on Monday.", "they moved it to Thursday at four", "Your appointment is on Thursday at four."),
    ("What is the name of the new street?", "It is called Oak Street.", "it was renamed: Rosa Parks Avenue", "It is called Rosa Parks Avenue."),
)  # fmt: skip
"""A question, a first reply, what the person says, and the right reply."""


def _facts() -> Iterator[Example]:
    for question, wrong, words, right in itertools.cycle(FACTS):
        yield Example(
            "conversation",
            f"fact-{question}",
            [{"role": "user", "content": question}],
            wrong,
            right,
            words,
            hint_of_words(words),
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
    """What an environment says of an episode; the observations before a reply, and the tools."""
    env = ToolCallEnv()
    try:
        observation, info = env.reset(options={"split": split, "task": task_id})
        tools, observations, ended = info["tools"], [observation], False
        for reply in replies:
            if ended:
                break
            observation, _, ended, truncated, info = env.step(encode(reply))
            ended = ended or truncated
            observations.append(observation)
        if not ended:
            env.finish()
        report = info.get("report") or report_of(["the task was not finished"])
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
