"""Short general questions of a user with a plain wish about form: what a small chat model can do.

No sums, no files and no dialect of the shipped policies: a pretrained model knows many of the
answers, and the complaints are plain English. A wish is checked by code, as in IFEval: case,
length, how a reply begins or ends. Right is a reply with the answer's word and no other answer of
the same topic, so that a list of everything earns nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split, Tool
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.task_ids import NUMBERS, GeneratedTasks, parse_id

PREFIX = "plain-"
MAX_CHARS = 400
"""A longer reply is no answer."""
BRIEF_WORDS = 4


@dataclass(frozen=True, slots=True)
class Question:
    """A question with one word as its answer."""

    text: str
    answer: str
    others: frozenset[str]
    """Answers to the other questions of its topic."""


@dataclass(frozen=True, slots=True)
class PlainUser:
    """A user with one wish."""

    name: str
    kept: Callable[[str], bool]
    """Whether a reply has the form that is wished."""
    put: Callable[[str], str]
    """An answer in that form."""
    ways: tuple[str, ...]
    """Complaints: those at even places are said, the others stand for the same in other words."""
    wrong: tuple[str, ...] = (
        "that is wrong, please try again", "no, that's not the answer", "wrong answer, check it",
    )  # fmt: skip
    thanks: tuple[str, ...] = ("thanks, that is great", "perfect, thank you", "great, thanks!")
    leave: tuple[str, ...] = ("never mind, forget it", "this is useless, i give up")

    @property
    def dislike(self) -> tuple[str, ...]:
        """Complaints about a form that it does not want."""
        return self.ways[::2]

    @property
    def otherwise(self) -> tuple[str, ...]:
        """The same wish in words that it never says."""
        return self.ways[1::2]


def _letters(text: str) -> bool:
    return re.search(r"[^\W\d_]", text) is not None


USERS: Mapping[str, PlainUser] = MappingProxyType(
    {
        user.name: user
        for user in (
            PlainUser(
                "capitals",
                lambda text: _letters(text) and text == text.upper(),
                str.upper,
                (
                    "please write it in capital letters",
                    "no, i want everything in upper case",
                    "that is hard to read for me, use only capital letters",
                    "can you turn on caps lock?",
                    "not like that. all caps please",
                    "write big letters only, from the first to the last",
                    "my eyes are bad, please answer in UPPERCASE",
                    "wrong style, every letter must be a capital",
                    "i can't read small letters, rewrite it in capitals",
                    "it should be in block capitals",
                ),
            ),
            PlainUser(
                "brief",
                lambda text: 0 < len(text.split()) <= BRIEF_WORDS,
                lambda text: text,
                (
                    "too long, just the answer please",
                    "that is too many words, give me one word",
                    "please make it shorter, only the word itself",
                    "i don't need a whole sentence",
                    "not a sentence please, only the answer",
                    "cut it down to a word or two",
                    "too wordy. answer with a single word",
                    "shorter please, leave everything else out",
                    "no explanation, just name it",
                    "you talk too much, one or two words are enough",
                ),
            ),
            PlainUser(
                "cheerful",
                lambda text: text.rstrip().endswith("!"),
                lambda text: f"{text}!",
                (
                    "that sounds sad, please end with an exclamation mark",
                    "more excited please, put an exclamation mark at the end",
                    "not like that, say it with enthusiasm!",
                    "too flat. i want to hear how thrilled you are!",
                    "it should be more cheerful, finish it with !",
                    "boring, shout it out with joy!",
                    "please be enthusiastic and use an exclamation point",
                    "can you sound happier? end on an exclamation mark",
                    "that is so dull, rewrite it as an exclamation",
                    "please say it like great news!",
                ),
            ),
            PlainUser(
                "asking",
                lambda text: text.rstrip().endswith("?"),
                lambda text: f"{text}. What else would you like to know?",
                (
                    "please ask me something back at the end",
                    "you should end with a question to me",
                    "not like that, i want you to finish with a question",
                    "that ends the talk. ask me a question afterwards",
                    "it should close with a question so that we go on",
                    "please add a question for me at the end",
                    "don't just stop there, ask what i want to know next",
                    "rewrite it and end on a question mark",
                    "can you ask me one in return?",
                    "i like to be asked back, please end with a question",
                ),
            ),
        )
    }
)
"""Every plain user by name."""

_TOPICS: Mapping[str, Mapping[str, str]] = {
    "What is the capital of {}?": {
        "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
        "Japan": "Tokyo", "China": "Beijing", "England": "London", "Russia": "Moscow",
        "Egypt": "Cairo", "Greece": "Athens", "Portugal": "Lisbon", "Austria": "Vienna",
        "Poland": "Warsaw", "Sweden": "Stockholm", "Norway": "Oslo", "Denmark": "Copenhagen",
        "Ireland": "Dublin", "Cuba": "Havana", "Peru": "Lima", "Kenya": "Nairobi",
        "Canada": "Ottawa", "Hungary": "Budapest", "Finland": "Helsinki", "Thailand": "Bangkok",
    },
    "What is the opposite of {}?": {
        "hot": "cold", "big": "small", "up": "down", "fast": "slow", "day": "night",
        "rich": "poor", "hard": "soft", "young": "old", "open": "closed", "full": "empty",
        "happy": "sad", "early": "late", "left": "right", "dark": "light", "wet": "dry",
    },
    "What color is {}?": {
        "the sky on a clear day": "blue", "grass": "green", "fresh snow": "white",
        "coal": "black", "a ripe banana": "yellow", "blood": "red", "a carrot": "orange",
        "chocolate": "brown",
    },
    "On which continent is {}?": {
        "France": "Europe", "Egypt": "Africa", "China": "Asia", "Canada": "North America",
        "Brazil": "South America", "Kenya": "Africa", "India": "Asia", "Spain": "Europe",
        "Nigeria": "Africa",
    },
    "Which language do most people in {} speak?": {
        "France": "French", "Germany": "German", "Italy": "Italian", "Spain": "Spanish",
        "Japan": "Japanese", "Brazil": "Portuguese", "Russia": "Russian", "Poland": "Polish",
        "Greece": "Greek",
    },
}  # fmt: skip
_ASK = ("{}", "Hi! {}", "Quick question: {}", "I was wondering. {}", "Can you tell me this? {}")
_HELDOUT_EVERY = 3


def _questions() -> Mapping[Split, tuple[Question, ...]]:
    split: dict[Split, list[Question]] = {"train": [], "heldout": []}
    for form, answers in _TOPICS.items():
        for at, (thing, answer) in enumerate(answers.items()):
            others = frozenset(answers.values()) - {answer}
            question = Question(form.format(thing), answer, others)
            split["heldout" if at % _HELDOUT_EVERY == 0 else "train"].append(question)
    return MappingProxyType({name: tuple(questions) for name, questions in split.items()})


QUESTIONS = _questions()
"""Questions by split: every third of a topic is held out."""


@dataclass(frozen=True, slots=True)
class PlainTask:
    """One question of one user."""

    id: str
    family: str
    split: Split
    persona: PlainUser
    question: Question
    opening: str
    target: None = None
    files: Mapping[str, str] = field(default_factory=dict)
    tools: list[Tool] = field(default_factory=list)

    def has_answer(self, text: str) -> bool:
        """Whether it says anything at all."""
        return bool(text.strip()) and len(text) <= MAX_CHARS

    def score(self, text: str) -> float:
        """1 for the form that is wished, else 0."""
        return float(self.has_answer(text) and self.persona.kept(text.strip()))

    def is_right(self, text: str) -> bool:
        """Whether it has the answer, and no other one that the question does not mention."""
        others = {word for word in self.question.others if not _has(self.question.text, word)}
        return (
            self.has_answer(text)
            and _has(text, self.question.answer)
            and not any(_has(text, word) for word in others)
        )


def _has(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def plain_tasks(user: str, families: Sequence[str] | None = None) -> GeneratedTasks[PlainTask]:
    """A user's questions as a source. Raises ConfigError for an unknown user, or for families."""
    if user not in USERS:
        raise ConfigError(f"got env.persona={user!r}, expected one of: {', '.join(USERS)}")
    if families is not None:
        raise ConfigError(f"got env.families={list(families)} with env.tasks=plain, expected none")
    return GeneratedTasks((user,), make_task, PREFIX)


def make_task(task_id: str) -> PlainTask:
    """The task of an id, such as `plain-capitals-train-000012`. Raises TaskError for no id."""
    try:
        parsed = parse_id(task_id, USERS, PREFIX)
    except TaskError:
        raise TaskError(
            f"got task {task_id!r}, expected plain-USER-SPLIT-NUMBER such as "
            f"'plain-capitals-train-000012'; users: {', '.join(USERS)}; held-out numbers are below "
            f"{NUMBERS['heldout']}"
        ) from None
    draw = Draw(f"conversation/{task_id}")
    question = draw.pick(QUESTIONS[parsed.split])
    opening = draw.pick(_ASK).format(question.text)
    return PlainTask(task_id, parsed.family, parsed.split, USERS[parsed.family], question, opening)
