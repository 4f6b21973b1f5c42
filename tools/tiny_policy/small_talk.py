"""Demonstrations of what a personal assistant hears besides problems: files, greetings, anything.

Mostly copying: a name into a call, what a file says into a reply. What the policy does not
understand gets a polite sentence; OpenClaw's polls get the word that it takes for "nothing new".
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clawrl_gym.core.types import Message
from clawrl_gym.envs.conversation.tools import READ, WRITE
from clawrl_gym.envs.draw import EXTENSIONS, STEMS, WORDS
from clawrl_gym.envs.showcase.conversation.problems import LARGEST, SMALLEST
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.surroundings import draw_surroundings
from tools.tiny_policy.talk import CONFIRMATION, SORRY, WELCOME, tool_call

HELLO = "Hello! How can I help?"
CAN = "I can read and write files and solve small sums."
NOTHING_NEW = "NO_REPLY"
POLL = "[OpenClaw heartbeat poll]"
TITLE = "Generate a concise session title (3-6 words, max 60 characters)."

_GREETINGS = ("Hello", "Hi", "Hi there", "Good morning", "Hello, who are you?", "hey", "Hi!")
_READ = (
    "Read the file {}", "Read the file {} please", "Read {}", "read {} please",
    "Read the file {} and tell me what it says.", "What is in {}?", "Show me the file {}",
    "Please read {} and tell me what it says", "can you read {} to me?",
)  # fmt: skip
_READ_BOTH = ("Read both {} and {} please", "Read {} and {}", "Read the files {} and {}")
_WRITE = (
    "Write {words} to {file}", "Write {words} to {file} now", "write {words} into {file} please",
    "Please write {words} to the file {file}.", "Save {words} in {file}",
)  # fmt: skip
_WRITTEN = ("wrote {file}", "Successfully wrote {size} bytes to {file}")
_MISSING = (
    '{{"status": "error", "tool": "read", "error": "File not found: {file}"}}',
    '{{\n  "status": "error",\n  "tool": "read",\n  "error": "File not found: /me/{file}."\n}}',
)  # fmt: skip
_SUMS = ("What is {a} {word} {b}?", "{a} {sign} {b}", "What is {a} {sign} {b}?", "{a}{sign}{b}=")
THANKS = ("thanks", "Thanks, that is right.", "thank you!", "perfect, thanks", "Good, thanks.")
COMPLAINTS = (
    "No, that is wrong.", "That is wrong, try again.", "no, not like that",
    "No, that is wrong. It must be one line.", "Wrong. I wanted something else.",
)  # fmt: skip
_OPENERS = (
    "what is", "tell me about", "how do I", "why is", "Please help me with", "I want to know",
    "Which one is", "can you", "Are you", "Ask a helper to", "Remember that", "Count", "And of",
    "Now add", "And how", "Check", "I live in", "And now", "What did we say about", "Back in",
    "Help me write",
)  # fmt: skip
_ODD_WORDS = (
    "the", "a", "my", "of", "in", "for", "to", "and", "city", "weather", "trip", "spring",
    "poem", "capital", "buy", "it", "what", "is", "I", "like", "tea", "short", "carefully",
    "plan", "session", "other", "first", "again", "here", "today", "best", "month", "second",
    "thing", "rain", "talk", "code", "music", "book", "work", "week", "name",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SmallTalkDemonstrations:
    """Short chats of one to three exchanges."""

    nonsense: float = 0.25
    """Share of copied words that no dictionary has."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh chats, endlessly, from the seed alone."""
        chance = random.Random(seed)
        while True:
            if chance.random() < 0.05:
                yield _title(chance)
            else:
                yield _Chat(chance, self.nonsense).talk()


def _title(chance: random.Random) -> Conversation:
    """A label of the message instead of an answer to it."""
    text = _anything(chance)
    label = " ".join(text.split()[:5])
    messages: list[Message] = [
        {"role": "system", "content": TITLE},
        {"role": "user", "content": text},
        {"role": "assistant", "content": label[:1].upper() + label[1:]},
    ]
    return Conversation(messages, "title")


class _Chat:
    """One chat while it is held."""

    def __init__(self, chance: random.Random, nonsense: float) -> None:
        self._chance = chance
        self._nonsense = nonsense
        self._around = draw_surroundings(chance, (READ, WRITE))
        self._messages: list[Message] = [*self._around.before]
        self._kind = ""

    def talk(self) -> Conversation:
        exchanges = {
            self._greet: 1, self._read: 4, self._read_both: 1, self._miss: 1, self._write: 3,
            self._wonder: 2, self._add: 2, self._thank: 1, self._complain: 1, self._poll: 1,
        }  # fmt: skip
        for _ in range(self._chance.choice((1, 1, 2, 2, 3, 5))):
            (exchange,) = self._chance.choices(list(exchanges), list(exchanges.values()))
            exchange()
        return Conversation(self._messages, f"chat-{self._kind}", self._around.tools)

    def _greet(self) -> None:
        self._exchange("greet", self._chance.choice(_GREETINGS), HELLO)

    def _wonder(self) -> None:
        self._exchange("wonder", _anything(self._chance), CAN)

    def _thank(self) -> None:
        self._exchange("thank", self._chance.choice(THANKS), WELCOME)

    def _complain(self) -> None:
        self._exchange("complain", self._chance.choice(COMPLAINTS), SORRY)

    def _poll(self) -> None:
        request, reply = self._chance.choice(((POLL, NOTHING_NEW), ("Reply with OK.", "OK")))
        self._exchange("poll", request, reply)

    def _add(self) -> None:
        first, second = (self._chance.randint(SMALLEST, LARGEST - SMALLEST) for _ in range(2))
        larger, smaller = max(first, second), min(first, second)
        sums = [("minus", "-", larger, smaller, larger - smaller)]
        if first + second <= LARGEST:
            sums.append(("plus", "+", first, second, first + second))
        word, sign, a, b, answer = self._chance.choice(sums)
        request = self._chance.choice(_SUMS).format(a=a, b=b, word=word, sign=sign)
        self._exchange("sum", request, f"{a} {sign} {b} = {answer}")

    def _read(self) -> None:
        name, content = self._file(), self._content()
        request = self._chance.choice(_READ).format(name)
        if self._chance.random() < 0.25:
            request = f"{request.rstrip('.?!')} and {_words(self._chance)}"
        self._hear("read", request)
        self._call([("read", {"path": name})], [content])
        self._say(f"It says: {content}")

    def _read_both(self) -> None:
        names, contents = [self._file(), self._file()], [self._content(), self._content()]
        self._hear("read both", self._chance.choice(_READ_BOTH).format(*names))
        self._call([("read", {"path": name}) for name in names], contents)
        self._say(f"It says: {contents[0]}\nIt says: {contents[1]}")

    def _miss(self) -> None:
        name = self._file()
        self._hear("miss", self._chance.choice(_READ).format(name))
        self._call([("read", {"path": name})], [self._chance.choice(_MISSING).format(file=name)])
        self._say(f"I cannot find {name}.")

    def _write(self) -> None:
        name, words = self._file(), self._line()
        self._hear("write", self._chance.choice(_WRITE).format(words=words, file=name))
        result = self._chance.choice(_WRITTEN).format(file=name, size=len(words))
        self._call([("write", {"path": name, "content": words})], [result])
        self._say(CONFIRMATION)

    def _exchange(self, kind: str, request: str, reply: str) -> None:
        self._hear(kind, request)
        self._say(reply)

    def _hear(self, kind: str, text: str) -> None:
        self._kind = kind
        self._messages.append({"role": "user", "content": text})

    def _say(self, text: str) -> None:
        self._messages.append({"role": "assistant", "content": text})

    def _call(self, calls: list[tuple[str, dict[str, str]]], results: list[str]) -> None:
        numbers = [f"{len(self._messages)}-{i}" for i in range(len(calls))]
        tool_calls = [
            tool_call(n, *call)["tool_calls"][0] for n, call in zip(numbers, calls, strict=True)
        ]
        self._messages.append({"role": "assistant", "content": None, "tool_calls": tool_calls})
        self._messages += [
            {"role": "tool", "tool_call_id": number, "content": result}
            for number, result in zip(numbers, results, strict=True)
        ]

    def _file(self) -> str:
        stem = self._word((self._chance.choice(STEMS), self._chance.choice(_ODD_NAMES)))
        folder = self._chance.choice(("", "", f"{self._chance.choice(STEMS)}/"))
        return f"{folder}{stem}.{self._chance.choice(EXTENSIONS)}"

    def _content(self) -> str:
        """Content of a file: mostly one line."""
        lines = 1 if self._chance.random() < 0.75 else self._chance.choice((2, 3))
        return "\n".join(self._line() for _ in range(lines))

    def _line(self) -> str:
        count = self._chance.choice((1, 2, 3))
        line = " ".join(self._word((*WORDS, *_ODD_WORDS)) for _ in range(count))
        return line.capitalize() if self._chance.random() < 0.3 else line

    def _word(self, words: Sequence[str]) -> str:
        return (
            self._letters()
            if self._chance.random() < self._nonsense
            else self._chance.choice(words)
        )

    def _letters(self) -> str:
        """A word that no dictionary has."""
        return "".join(self._chance.choices(string.ascii_lowercase, k=self._chance.randrange(2, 8)))


_ODD_NAMES = ("notes", "todo", "out")


def _anything(chance: random.Random) -> str:
    """A line that nobody prepared the policy for."""
    text = f"{chance.choice((*_OPENERS, ''))} {_words(chance)}".strip()
    return text + chance.choice(("?", ".", "!", ""))


def _words(chance: random.Random) -> str:
    return " ".join(chance.choice(_ODD_WORDS) for _ in range(chance.randrange(1, 6)))
