"""Wishes about the form of answers: how they are said, whether a reply keeps one, and exceptions.

A wish that was said, or complained about, holds for all later replies; an exception for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.conversation.composed.answers import visible
from clawrl_gym.envs.showcase.conversation.composed.numbers import in_words, numbers_in
from clawrl_gym.envs.showcase.conversation.problems import without_labels

Shape = Callable[[str, str], str]
"""A reply in the form of a wish with this word or number."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One kind; {x} stands for the word or number that belongs to one of it."""

    name: str
    said: Phrasings
    complaint: tuple[str, ...]
    excepted: Phrasings
    """Asks for one answer in the other form."""
    kept: Callable[[str, str], object]
    """True of a text, without paths, that has the form."""
    dropped: Callable[[str, str], object]
    """True of one in the form of the exception."""
    shape: Shape
    unshape: Shape
    choices: tuple[str, ...] = ("",)
    order: int = 0
    """Position of the form among those of a reply."""
    clashes: frozenset[str] = frozenset()
    inside: Callable[[str], str] | None = None
    """The part of a reply that has to hold the answers; None: anywhere."""
    only_answers: bool = False
    """It asks nothing of a reply to something that was only told, or done."""


_BETWEEN_WORDS = re.compile(r"[\s_\u2013\u2014\u200b-\u200d\u2060\ufeff]+|(?<=[^\W\d]),(?=[^\W\d])")
_AT_THE_END = re.compile(r"[.!][\W_]*(?:\s[^.!?]*\?[\W_]*)?$")
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|will|would|has|have|had|costs?|comes?|makes?|leaves?|remains?|needs?"
    r"|pay|gets?|starts?|ends?|said|told|equals?|can|should)\b|\w['\u2019](?:s|re|ll|d|ve)\b",
    re.IGNORECASE,
)


def _text(text: str) -> str:
    return visible(text).strip()


def _is_spelt(text: str, _: str) -> bool:
    return re.search(r"\d", without_labels(visible(text))) is None


def _spoken(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", _text(text).lower())


def _ends(text: str, word: str) -> bool:
    return _spoken(text)[-1:] == [word]


def _begins(text: str, word: str) -> bool:
    return _spoken(text)[:1] == [word.lower()]


def _misses(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text, re.IGNORECASE) is None


def _ends_nothing(text: str, word: str) -> bool:
    """Inside a sentence the word may stand: "It is over at five"."""
    return not _ends(text, word) and re.search(rf"(?i)\b{word}\b\W*[.!?\n]", text) is None


def _words(text: str) -> int:
    """However they are joined; "twenty-five" is one."""
    words = [word for word in _BETWEEN_WORDS.split(text) if re.search(r"\w", word)]
    return sum(word.count("-") + 1 if word.count("-") > 1 else 1 for word in words)


def _is_sentence(text: str, _: str) -> bool:
    """An offer at the end may be a question. What does not begin with a letter needs a verb."""
    plain = text.strip(" *_\"'\n")
    first = re.split(r"(?<=[.!?])[*\"']*\s", plain)[0]
    if _AT_THE_END.search(plain) is None or first.rstrip("*\"'").endswith("?"):
        return False
    if plain[:1].isupper() and _words(plain) >= 4:
        return True
    return not plain[:1].islower() and _words(first) >= 2 and _VERB.search(first) is not None


def _spelt(text: str, _: str) -> str:
    plain = re.sub(r"(\d+):00", r"\1 o'clock", text)
    spelt = re.sub(r"\d+", lambda number: in_words(int(number.group())), plain)
    return spelt[:1].upper() + spelt[1:]


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


_ALL = (
    Wish(
        "lower",
        Phrasings(
            (
                "Please write everything in lower case, I paste it into a form.",
                "One thing: only small letters in your answers, please, all of them.",
                "Please answer without any capital letters, always.",
                "No capitals in what you write to me, please.",
            ),
            ("Kindly keep to lower case letters throughout.", "Small letters only, from you."),
        ),
        ("No capital letters, please: small letters in every answer.",
         "Not like that, please use only lower case from now on."),
        Phrasings(
            (
                "Just this once in CAPITALS, it goes on a sign:",
                "This one answer all in capital letters, please:",
                "Only for this one, shout it in upper case:",
            ),
            ("For the banner, this single answer in upper case:",),
        ),
        lambda text, _: _text(text) == _text(text).lower(),
        lambda text, _: _text(text) == _text(text).upper(),
        lambda text, _: text.lower(),
        lambda text, _: text.upper(),
        order=9,
        clashes=frozenset({"capitals", "sentence"}),
    ),
    Wish(
        "capitals",
        Phrasings(
            (
                "Please write all in CAPITALS, my eyes are bad.",
                "Capital letters only, please, in everything you answer.",
                "I read better in upper case, so use nothing else, please.",
                "All your answers in capital letters, please.",
            ),
            ("Upper case throughout, if you please.", "Make every letter that you send a capital."),
        ),
        ("Not like that, please use capital letters in every answer.",
         "Please rewrite it: no small letters, all in capitals from now on."),
        Phrasings(
            (
                "Just this once in normal letters, please:",
                "This one answer not in capitals, I forward it:",
                "Only for this one, small letters are right:",
            ),
            ("This single time without the capitals:",),
        ),
        lambda text, _: _text(text) == _text(text).upper(),
        lambda text, _: re.search("[a-z]", _text(text)) or not re.search("[A-Z]", _text(text)),
        lambda text, _: text.upper(),
        lambda text, _: text,
        order=9,
        clashes=frozenset({"lower", "sentence"}),
    ),
    Wish(
        "ending",
        Phrasings(
            (
                'Please end every answer with the word "{x}".',
                'Always close with "{x}", as on the radio, please.',
                'The last word of each of your answers should be "{x}".',
                'When you answer, put "{x}" at the very end, each time.',
            ),
            ('Let "{x}" be the final word of all that you say.', 'Sign off with "{x}" each time.'),
        ),
        ('Not like that, please end each answer with the word "{x}".',
         'The word "{x}" is missing at the end, please put it there every time.'),
        Phrasings(
            (
                'Just this once without the "{x}" at the end:',
                'Leave off the "{x}" for this one answer, please:',
                'This one I forward, so no "{x}" this time:',
            ),
            ('Drop the "{x}" for this single reply:',),
        ),
        _ends,
        _ends_nothing,
        lambda text, word: f"{text} {word.capitalize()}.",
        lambda text, _: text,
        choices=("over", "roger", "cheers", "amen"),
        order=7,
        clashes=frozenset({"sentence"}),
    ),
    Wish(
        "name",
        Phrasings(
            (
                "Please begin every answer with my name, {x}.",
                "I am {x}. Start each of your answers with my name, please.",
                "My name is {x}, and I like it to be the first word of every answer.",
                "Call me {x}, at the very start of all your answers.",
            ),
            ("Let {x}, which is my name, open all that you say.", "Lead with my name, {x}."),
        ),
        ("Not like that, please begin each answer with my name, {x}.",
         "Please rewrite it: start with my name, {x}, and do so every time."),
        Phrasings(
            (
                "Just this once without my name:",
                "Leave my name out of this one answer, please:",
                "This one is for somebody else, so no name this time:",
            ),
            ("Omit my name for this single reply:",),
        ),
        _begins,
        _misses,
        lambda text, name: f"{name}, {_lower_first(text)}",
        lambda text, _: text,
        choices=("Ada", "Hugo", "Rosa", "Nils", "Vera", "Otto", "Lucy", "Emil"),
        order=6,
    ),
    Wish(
        "spelt",
        Phrasings(
            (
                "Please write numbers as words, not as digits.",
                "No digits in your answers, please: spell every number out.",
                "I have it read aloud, so spell all numbers as words, please.",
                "Numbers always in words, please, like 'fourteen'.",
            ),
            ("Every figure should be spelt out in letters.", "Kindly avoid digits and use words."),
        ),
        ("No digits, please: write numbers as words in every answer.",
         "Not like that, please spell numbers out as words from now on."),
        Phrasings(
            (
                "Just this once in digits:",
                "This one answer with digits, please, for the spreadsheet:",
                "Only for this one, digits are better than words:",
            ),
            ("This single time as a figure, in digits:",),
        ),
        _is_spelt,
        lambda text, _: re.search(r"\d", _text(text)) is not None,
        _spelt,
        lambda text, _: text,
        order=3,
        inside=lambda text: without_labels(visible(text)),
    ),
    Wish(
        "short",
        Phrasings(
            (
                "Keep it short, please: at most {x} words an answer.",
                "I have no time, so never more than {x} words.",
                "Please answer in {x} words or fewer, always.",
                "No answer of yours should be longer than {x} words.",
            ),
            ("Limit every reply to {x} words.", "{x} words are the most I read of an answer."),
        ),
        ("Too long, please use at most {x} words in every answer.",
         "Too many words, please: {x} at most from now on."),
        Phrasings(
            (
                "Just this once with the calculation shown, as long as it takes:",
                "For this one answer show me what you calculate, it may be longer:",
                "This time I want to see the numbers it is made from, forget the length:",
            ),
            ("This single time lay out the working, at any length:",),
        ),
        lambda text, most: _words(text) <= int(most),
        lambda text, _: True,
        lambda text, _: text,
        lambda text, _: text,
        choices=("6", "7", "8"),
        order=0,
        clashes=frozenset({"sentence", "brackets"}),
    ),
    Wish(
        "sentence",
        Phrasings(
            (
                "Please answer in full sentences, with a full stop.",
                "I want whole sentences as answers, please, never a bare number.",
                "Always in complete sentences, please, as for a letter.",
                "Make each answer a proper full sentence, please.",
            ),
            ("Kindly phrase all answers as full sentences.", "Nothing but complete sentences."),
        ),
        ("Not like that, please answer in a full sentence every time.",
         "I want a whole sentence with a full stop, please, in every answer."),
        Phrasings(
            (
                "Just this once only the bare answer, three words at most:",
                "This one answer without a sentence, at most three words:",
                "Only for this one, no sentence, three words are plenty:",
            ),
            ("This single time no more than three words:",),
        ),
        _is_sentence,
        lambda text, _: _words(text) <= 3,
        lambda text, _: text,
        lambda text, _: text,
        order=0,
        clashes=frozenset({"lower", "capitals", "ending", "short"}),
        only_answers=True,
    ),
    Wish(
        "brackets",
        Phrasings(
            (
                "Please put what you answer in square brackets, like [this].",
                "In every answer, set the result in [square brackets], please.",
                "Square brackets around the answer, please, each time.",
                "Please mark each result with square brackets.",
            ),
            ("Enclose every result in square brackets.", "Let results stand between [ and ]."),
        ),
        ("Not like that, please put the result in square brackets every time.",
         "Please rewrite it with square brackets around the result, and always use them."),
        Phrasings(
            (
                "Just this once without brackets:",
                "No brackets for this one answer, please:",
                "Only for this one, leave the brackets away:",
            ),
            ("This single time unbracketed:",),
        ),
        lambda text, _: re.search(r"\[[^\[\]]*\w[^\[\]]*\]", text),
        lambda text, _: "[" not in text and "]" not in text,
        lambda text, _: text,
        lambda text, _: text,
        order=0,
        clashes=frozenset({"short"}),
        inside=lambda text: " and ".join(re.findall(r"\[([^\[\]]*)\]", text)),
        only_answers=True,
    ),
)  # fmt: skip

WISHES: Mapping[str, Wish] = MappingProxyType({wish.name: wish for wish in _ALL})
"""Wishes by name."""


def shows(text: str, operands: frozenset[int]) -> bool:
    """Whether the numbers that a calculation begins with are named."""
    return operands <= numbers_in(text)
