"""Hints of the demonstrator: what a reply should have been, and replies to requests with a hint.

A hint stands at the end of the last user message, where the teacher of on-policy distillation reads
it. It is in a judge's words or, as the rules make it, in those of the user or of a test report.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from clawrl_gym.config import HintConfig
from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.report import report_of
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS, Persona
from clawrl_gym.envs.showcase.conversation.styles import CASUAL, FORMAL, FRIENDLY, STORY, TERSE
from clawrl_gym.envs.terminal.task import Task
from clawrl_gym.judge.enhance import with_hint
from clawrl_gym.judge.rule_hints import hint_of_error, hint_of_report, hint_of_words
from tools.tiny_policy.conversations import Conversation, Source
from tools.tiny_policy.talk import CONFIRMATION, NO_HABITS, Habits, TalkDemonstrations
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations

STYLE_HINTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        CASUAL.name: (
            "Write one short casual sentence in lower case.",
            "Say it in short casual words, no bold and no lists.",
        ),
        FRIENDLY.name: (
            "Be friendly: use the name of the pupil and say which step was right.",
            "Write something nice, with the name and the step.",
        ),
        TERSE.name: ("Write only the number and the unit.",),
        STORY.name: ("Tell it like a little story with the name in it.",),
        FORMAL.name: (
            "Write one full and formal sentence.",
            "Write it as one formal sentence, without lists.",
        ),
    }
)
"""Hints that a judge makes of a complaint about a style."""
SUM_HINT = "Check the sum before you answer."
FILE_HINT = "Write the text to the file with the write tool."
ERRORS = (
    "cat: {file}: No such file or directory",
    "bash: line 1: {file}: No such file or directory",
    "cp: cannot stat '{file}': No such file or directory",
    "chown: invalid user: '755'",
    "fatal: pathspec '{file}' did not match any files",
    "tar: {file}: Cannot open: No such file or directory",
)
"""Output of commands that fail."""


def hinted_at_end(messages: Sequence[Message], hint: str) -> list[Message]:
    """The messages as a teacher reads them; one of them must be the user's."""
    hinted = with_hint(messages, HintConfig().form.format(hint=hint))
    if hinted is None:
        raise ValueError(f"got messages without a user's, expected one for the hint {hint!r}")
    return hinted


def persona_hint(persona: Persona, chance: random.Random) -> str:
    """Hint on a reply that this person disliked: the judge's words, or the person's own."""
    if chance.random() < 0.5:
        return hint_of_words(chance.choice(persona.dislike))
    return chance.choice(STYLE_HINTS[persona.style.name])


def task_failures(task: Task, chance: random.Random) -> list[str]:
    """Some of what a test report may say of a task."""
    failing = [check for check in task.checks if chance.random() < 0.5] or list(task.checks[:1])
    return [chance.choice(check.possible_failures()) for check in failing]


def error_output(chance: random.Random, task: Task) -> str:
    """Output of a failing command, exit code included."""
    file = chance.choice([*task.files, "out.txt"])
    return f"{chance.choice(ERRORS).format(file=file)}\n(exit code {chance.choice((1, 1, 2, 128))})"


@dataclass(frozen=True, slots=True)
class HintedTalk:
    """Conversations up to one reply that follows a hint; only that reply is imitated."""

    split: Split = "train"
    habits: Habits = field(default_factory=lambda: Habits(unasked=0.0, wished=1.0, wrong=0.0))

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        chance = random.Random(seed)
        for conversation in TalkDemonstrations(self.split, self.habits).conversations(seed + 1):
            persona = PERSONAS[conversation.family.partition("-")[0]]
            replies = [at for at, m in enumerate(conversation.messages) if m["role"] == "assistant"]
            with_text = [at for at in replies if conversation.messages[at].get("content")]
            at = (
                with_text[0]
                if chance.random() < 0.8
                else chance.choice(with_text[:-1] or with_text)
            )
            is_file = (
                conversation.messages[at].get("tool_calls")
                or conversation.messages[at]["content"] == CONFIRMATION
            )
            hint = FILE_HINT if is_file else persona_hint(persona, chance)
            yield with_hint_before(conversation, at, hint, f"hinted-{persona.name}")


@dataclass(frozen=True, slots=True)
class UnheededTalk:
    """First replies to requests with a hint that is about something else: as if it were not there.

    Without them any hint would be followed as the last one was, whatever it says.
    """

    split: Split = "train"

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        chance = random.Random(seed)
        others = TerminalDemonstrations(self.split, careless=False).tasks(seed + 1)
        habits = replace(NO_HABITS, wrong=0.0)
        for conversation in TalkDemonstrations(self.split, habits).conversations(seed + 2):
            replies = [at for at, m in enumerate(conversation.messages) if m["role"] == "assistant"]
            at = next(at for at in replies if conversation.messages[at].get("content"))
            hint = SUM_HINT if chance.random() < 0.3 else task_hint(next(others), chance)
            yield with_hint_before(conversation, at, hint, "unheeded")


@dataclass(frozen=True, slots=True)
class HintedCommands:
    """Terminal tasks whose last command follows a hint: it has no slip."""

    split: Split = "train"

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        chance = random.Random(seed)
        source = TerminalDemonstrations(self.split, careless=False)
        for task, conversation in zip(
            source.tasks(seed + 1), source.conversations(seed + 1), strict=True
        ):
            family = f"hinted-{task.family}"
            last = len(conversation.messages) - 1
            yield with_hint_before(conversation, last, task_hint(task, chance), family)


def task_hint(task: Task, chance: random.Random) -> str:
    """Hint that the rules make of a failed task: mostly of its report, else of an error."""
    failures = task_failures(task, chance)
    if failures and chance.random() < 0.8:
        return hint_of_report(report_of(failures))
    return hint_of_error(error_output(chance, task))


def with_hint_before(conversation: Conversation, at: int, hint: str, family: str) -> Conversation:
    """The conversation up to the reply at a place, with a hint before it; it alone is imitated."""
    before, reply = conversation.messages[:at], conversation.messages[at]
    early = frozenset(place for place, m in enumerate(before) if m["role"] == "assistant")
    messages = [*hinted_at_end(before, hint), reply]
    return replace(conversation, messages=messages, family=family, unlearned=early)


def hinted(split: Split = "train") -> tuple[tuple[Source, float], ...]:
    """Both, by weight."""
    return ((HintedTalk(split), 0.5), (HintedCommands(split), 0.5))
