"""Numbers in what is said: in digits or in words, with separators and units, as hours of a day.

An hour is its number on a clock of 24: "5 pm", "17:00" and "five in the afternoon" are 17.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clawrl_gym.envs.showcase.conversation.problems import NUMBER_WORDS

_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL = {"one": 1, **NUMBER_WORDS, **{word: 10 * n for n, word in enumerate(_TENS, start=2)}}
_LARGE = {"hundred": 100, "thousand": 1000}
_WORD = "|".join([*_SMALL, *_LARGE])
_RUN = re.compile(
    rf"\b(?:an? (?=hundred|thousand))?(?:{_WORD})\b(?:(?:[ -]| and (?=\w)|-and-)(?:{_WORD})\b)*",
    re.IGNORECASE,
)
_NIGHT = r"in the (?:afternoon|evening)|at night"
_LONE_HOUR = re.compile(rf"\bone(?=(?: o.clock)? ?(?:[ap]\.?m\b|{_NIGHT}))", re.IGNORECASE)
_HOUR = re.compile(
    rf"(?<![\w.:])(\d{{1,2}})(?:[:.](\d\d))?(?: o.clock)? ?(?:([ap])\.?m\b\.?|({_NIGHT}))"
    r"|(?<![\w.:])(\d{1,2})(?::(\d\d)(?::00)?(?: ?h(?:rs|ours)?)?|h(\d\d)?)(?![\w:])",
    re.IGNORECASE,
)
_DOZEN = re.compile(rf"\b(?:(half) a|an?|one|({_WORD}|\d+))? ?dozen\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:[,'\u00a0\u202f]\d{3})+|\d+)(?:\.\d+|,00)?(?!\d)(?!(?:st|nd|rd|th)\b)"
)


def in_digits(text: str) -> str:
    """The text with all numbers in digits, and hours as numbers from 0 to 23."""
    text = _DOZEN.sub(_dozen, _LONE_HOUR.sub("1", text))
    return _HOUR.sub(_hour, _RUN.sub(lambda run: " ".join(_values(run.group())), text))


def numbers_in(text: str) -> set[float]:
    """Every number that is said; "one" alone is none."""
    return _figures(in_digits(text))


def figures_in(text: str) -> set[float]:
    """Likewise, of those in digits alone."""
    return _figures(_HOUR.sub(_hour, text))


def in_words(number: int) -> str:
    """A number as it is spelt, up to 9,999."""
    if number >= 1000:
        head, rest = divmod(number, 1000)
        return f"{in_words(head)} thousand" + (f" {in_words(rest)}" if rest else "")
    if number >= 100:
        head, rest = divmod(number, 100)
        return f"{in_words(head)} hundred" + (f" and {in_words(rest)}" if rest else "")
    if number > 20 and number % 10:
        return f"{in_words(number - number % 10)}-{in_words(number % 10)}"
    return next((word for word, value in _SMALL.items() if value == number), "zero")


def _values(run: str) -> Iterator[str]:
    """The numbers of words that follow each other, each as digits; a lone "one" stays a word."""
    total, part, last = 0, 0, 0
    words = re.findall(r"[a-z]+", run.lower())
    if words == ["one"]:
        yield run
        return
    for at, word in enumerate(words):
        if word in ("a", "an"):
            part = 1
        elif word == "hundred":
            part = max(part, 1) * 100
        elif word == "thousand":
            total, part = total + max(part, 1) * 1000, 0
        elif word in _SMALL:
            value = _SMALL[word]
            before = [word for word in words[:at] if word != "and"][-1:]
            follows = at == 0 or before[0] in ("a", "an", *_LARGE) or (last >= 20 and value < 10)
            if not follows:
                yield str(total + part)
                total = part = 0
            part += value
            last = value
            continue
        last = 0
    yield str(total + part)


def _dozen(match: re.Match[str]) -> str:
    half, count = match.groups()
    if half is not None:
        return "6"
    if count is None:
        return "12"
    return str(12 * int(count if count.isdigit() else next(iter(_values(count)))))


def _figures(text: str) -> set[float]:
    text = re.sub(r"(?<=\d)[x_](?=\d)", " ", text)
    found = [re.sub(r",00$", "", number) for number in _NUMBER.findall(text)]
    return {float(re.sub(r"[,'\u00a0\u202f]", "", number)) for number in found}


def _hour(match: re.Match[str]) -> str:
    clock, minutes, half, night, hour, more, french = match.groups()
    if clock is not None:
        late = night is not None or half.lower() == "p"
        base = int(clock) % 12 if late or half else int(clock)
        value, left = base + (12 if late else 0), minutes
    else:
        value, left = int(hour), more or french
    after = match.string[match.end() - 1] if match.group().endswith(".") else ""
    return f"{value}{'' if left in (None, '00') else '.' + left}{' ' if after else ''}"
