"""Who talks to the policy: a wish that the first message does not say, and what is said when.

Every sentence is scripted and drawn; a person complains in words that say what is wanted instead.
The same people talk in two wordings: see `heldout_wording.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from clawrl_gym.envs.showcase.conversation.heldout_wording import HELDOUT_WORDING, Wording
from clawrl_gym.envs.showcase.conversation.problems import Problem, is_correct, is_fair
from clawrl_gym.envs.showcase.conversation.styles import (
    ASSISTANT,
    CASUAL,
    FORMAL,
    FRIENDLY,
    GRADER,
    STORY,
    TERSE,
    Style,
)


@dataclass(frozen=True, slots=True)
class Persona:
    """One kind of user. In the sentences {file} is the file to read, {target} the one to write."""

    name: str
    wish: str
    """The wish in words, for a model that plays this person; never said in the first message."""
    style: Style
    unasked: Style
    """Style of a chat model that does not know the wish yet."""
    right: Callable[[str, Problem], bool]
    """Whether a text does what was asked for, whatever its style."""
    task: str
    """The task in words; {text} is the problem."""
    ask: tuple[str, ...]
    """First message that states the problem; {task} is the task."""
    read: tuple[str, ...]
    """First message when the problem is in a file."""
    dislike: tuple[str, ...]
    """The style is not what this person wants."""
    wrong: tuple[str, ...]
    """The answer is not right."""
    thanks: tuple[str, ...]
    """The last word of a satisfied person."""
    save: tuple[str, ...]
    """Accepts, and wants the text in a file."""
    missing: tuple[str, ...]
    """The file is not there, or does not hold what was accepted."""
    leave: tuple[str, ...] = ("never mind, i will do it myself", "forget it, i give up")
    """Last words of a person who has complained often enough."""


_STUDENT = Persona(
    name="student",
    wish=(
        "You are a pupil who hands in the homework as your own. It must not look as if an AI "
        "wrote it: lower case, one short casual sentence, no bold, no lists, no 'final answer'."
    ),
    style=CASUAL,
    unasked=ASSISTANT,
    right=is_correct,
    task="{text}",
    ask=("{task}", "help me with this: {task}", "my homework: {task}"),
    read=("Read {file} and solve it.", "Solve the homework in {file}."),
    dislike=(
        "that sounds like an AI wrote it, please rewrite it in short casual words",
        "too much like a robot, rewrite it like i talk, no bold and no lists",
        "my teacher will see that an AI wrote this. rewrite it in lower case, one short sentence",
    ),
    wrong=("that is wrong, please check the sum", "no, the number is wrong, try again"),
    thanks=("thanks, that is great", "perfect, thanks"),
    save=("thanks, now write it to {target}", "good, now write that to {target}"),
    missing=("it is not in {target}, please write it there",),
)

_TEACHER = Persona(
    name="teacher",
    wish=(
        "You are a teacher who wants a comment for a pupil: friendly and specific. It names the "
        "pupil, praises or encourages, and says which step was right or went wrong."
    ),
    style=FRIENDLY,
    unasked=GRADER,
    right=is_fair,
    task="{text} {name} wrote {claimed}.",
    ask=("{task} Comment on it.", "Comment on this homework: {task}"),
    read=("Read {file} and comment on it.", "Comment on the homework in {file}."),
    dislike=(
        "That is too cold. Please rewrite it: use the name of the pupil and say something nice.",
        "Please rewrite it in a friendly way, with the name and the step, without bold and lists.",
    ),
    wrong=("That is wrong, please check the sum.", "No, your comment is wrong, try again."),
    thanks=("Thanks, that is great.", "Perfect, thanks."),
    save=("Thanks, now write it to {target}.", "Good, now write that to {target}."),
    missing=("It is not in {target}, please write it there.",),
)

_ENGINEER = Persona(
    name="engineer",
    wish="You are an engineer without time. You want the number and its unit, not a word more.",
    style=TERSE,
    unasked=ASSISTANT,
    right=is_correct,
    task="{text}",
    ask=("Question: {task}", "Work this out: {task}"),
    read=("Read {file}, work it out.", "Work out {file}."),
    dislike=(
        "Too long. Rewrite it: only the number and the unit.",
        "Too many words, rewrite it with just the number and the unit.",
    ),
    wrong=("Wrong, check the sum.", "Wrong number, try again."),
    thanks=("Thanks.", "Good, thanks."),
    save=("Good, now write it to {target}.", "Thanks, write that to {target}."),
    missing=("Not in {target}, write it there.",),
)

_CHILD = Persona(
    name="child",
    wish="You are a child who wants to hear everything as a little story with a cheerful end.",
    style=STORY,
    unasked=ASSISTANT,
    right=is_correct,
    task="{text}",
    ask=("tell me: {task}", "i want to know this: {task}"),
    read=("can you read {file} to me and solve it?", "what is in {file}? tell me the answer"),
    dislike=(
        "that is boring, please tell it like a little story",
        "no, not like that, tell me a story with the name in it!",
    ),
    wrong=("no, that is wrong, count again", "my mom says the number is wrong, try again"),
    thanks=("yay, thanks!", "i like it, thanks!"),
    save=("yay, now write it to {target}", "i like it, now write it to {target}"),
    missing=("it is not in {target}, write it there",),
)

_CLERK = Persona(
    name="clerk",
    wish="You are a clerk who files everything. You want one full, formal, plain sentence.",
    style=FORMAL,
    unasked=ASSISTANT,
    right=is_correct,
    task="{text}",
    ask=("Please settle this matter: {task}", "For the record: {task}"),
    read=("Please settle the matter in {file}.", "Please read {file} and settle it."),
    dislike=(
        "This is not fit for the record. Please rewrite it as one full and formal sentence.",
        "Please rewrite this without lists and bold, in one formal sentence.",
    ),
    wrong=("This is wrong, please check the sum.", "The number is wrong, please try again."),
    thanks=("Thank you, that is accepted.", "Thank you, the matter is settled."),
    save=("Thank you, now write it to {target}.", "Accepted. Now write it to {target}."),
    missing=("It is not in {target}, please write it there.",),
)

PERSONAS: Mapping[str, Persona] = MappingProxyType(
    {p.name: p for p in (_STUDENT, _TEACHER, _ENGINEER, _CHILD, _CLERK)}
)
"""Every persona by name, with the sentences that the shipped policies were supervised on."""

HELDOUT_PERSONAS: Mapping[str, Persona] = MappingProxyType(
    {
        name: replace(
            persona,
            **{part.name: getattr(HELDOUT_WORDING[name], part.name) for part in fields(Wording)},
        )
        for name, persona in PERSONAS.items()
    }
)
"""The same people, in words that no shipped policy was supervised on."""
