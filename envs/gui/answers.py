"""Whether an answer says the value that is expected, however it is written, and no other.

An expected number, date or time is compared by its value: the answer must hold that value and none
besides it. Words may stand around it that change no value: articles, forms of "be", what the
question itself says, and what is counted (words that end with an s). Any other word ("not", "or",
"half") makes it another answer: unknown words are refused, as nothing wrong may pass. A list is
compared item by item in its order. Other texts are compared whole, or behind "... is".
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

_FRAME_WORDS = (
    "the a an is are was were be it it's its there there's that that's this these those here "
    "you i i've we they have has had found see shows show says say answer result value total "
    "final of for in on at to by from with your my our as and exactly only just altogether "
    "left remaining available currently now so correct number count amount sum price cost "
    "date time day name listed shown given page contains holds includes le der den am el il"
)
_FRAME = frozenset(_FRAME_WORDS.split())
"""Words that change no value."""
_CHANGES_WORDS = (
    "not no never neither nor none nothing without except excluding but or either maybe "
    "perhaps possibly probably might may could would should unlikely doubt about around "
    "approximately roughly almost nearly over under above below more less fewer least most up "
    "down than minus plus times half double twice before after until since between if unless "
    "wrong incorrect false other others another else instead rather both all any zero one two "
    "three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred hundreds thousand thousands million millions billion dozen dozens first second "
    "third last next previous always besides unlike versus"
)
_CHANGES = frozenset(_CHANGES_WORDS.split())
"""Words that may change a value: they count even where the question has them."""
_ENDS_WELL = frozenset(["is", "are", "was", "were", "says", "say", "called", "named"])
_AFTER_TEXT = frozenset(["is", "it", "the", "answer", "that", "there", "are", "correct"])
_PLACES = frozenset(["in", "on", "of", "at", "from", "for"])
_OWNERS = frozenset(["the", "this", "that", "your", "my"])
_UNITS = {
    "usd": "$", "dollar": "$", "dollars": "$", "$": "$", "eur": "€", "euro": "€", "euros": "€",
    "€": "€", "gbp": "£", "pound": "£", "pounds": "£", "£": "£", "jpy": "¥", "yen": "¥", "¥": "¥",
    "%": "%", "percent": "%", "kg": "kg", "kilogram": "kg", "kilograms": "kg", "g": "g",
    "gram": "g", "grams": "g", "km": "km", "m": "m", "cm": "cm", "mm": "mm", "mi": "mi",
    "mile": "mi", "miles": "mi", "h": "h", "hour": "h", "hours": "h", "min": "min",
    "minute": "min", "minutes": "min", "s": "s", "sec": "s", "seconds": "s", "days": "day",
    "weeks": "week", "months": "month", "years": "year", "kb": "kb", "mb": "mb", "gb": "gb",
    "tb": "tb", "l": "l", "ml": "ml", "°c": "°c", "°f": "°f", "people": "",
    "d": "day", "day": "day", "week": "week", "chf": "chf", "cent": "%",
}  # fmt: skip
_IN_BASE_UNITS = {
    "kg": ("g", 1000), "g": ("g", 1), "km": ("mm", 1_000_000), "m": ("mm", 1000),
    "cm": ("mm", 10), "mm": ("mm", 1), "l": ("ml", 1000), "ml": ("ml", 1), "s": ("s", 1),
    "min": ("s", 60), "h": ("s", 3600), "day": ("s", 86_400), "week": ("s", 604_800),
}  # fmt: skip
_MULTIPLES = {
    "k": 1000, "thousand": 1000, "million": 1_000_000, "bn": 1_000_000_000,
    "billion": 1_000_000_000,
}  # fmt: skip
_TRUTHS = {"yes": True, "true": True, "no": False, "false": False}
_OTHER_MONTH_NAMES = (
    "januar jänner janvier enero gennaio janeiro", "februar février febrero febbraio fevereiro",
    "märz mars marzo março", "avril abril aprile", "mai mayo maggio maio",
    "juni juin junio giugno junho", "juli juillet julio luglio julho", "août agosto",
    "septembre septiembre settembre setembro", "oktober octobre octubre ottobre outubro",
    "novembre noviembre novembro", "dezember décembre diciembre dicembre dezembro",
)  # fmt: skip
_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
_MONTHS |= {
    name: number for number, names in enumerate(_OTHER_MONTH_NAMES, 1) for name in names.split()
}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH = f"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.|er)?"
_YEAR = r"(?:(?:,?\s+(?:de\s+)?|-)(?P<year>\d{4}))?"
_DATES = (
    re.compile(
        r"(?P<year>\d{4})(?P<sign>[-/.])(?P<month>\d{1,2})(?P=sign)(?P<day>\d{1,2})(?!(?!t\d)\w)"
    ),
    re.compile(r"(?P<one>\d{1,2})(?P<sign>[-/.])(?P<other>\d{1,2})(?P=sign)(?P<year>\d{4})(?!\w)"),
    re.compile(rf"{_MONTH}\s+(?:the\s+)?{_DAY}(?!\d){_YEAR}(?!\w)"),
    re.compile(rf"{_DAY}(?:\s+(?:of\s+|de\s+)?|-){_MONTH}(?![^\W\d_]){_YEAR}(?!\w)"),
)
_TIME = re.compile(
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2})(?::00)?)?\s*(?P<half>[ap])\.?m\b\.?"
    r"|(?P<hour24>\d{1,2})[:h](?P<minute24>\d{2})(?::00)?(?![\w:])(?:\s?(?:h|uhr)\b)?"
)
_NUMBER = re.compile(
    r"(?P<minus>-|minus\s)?\s?(?:us(?=\$))?(?P<sign>[$€£¥]|(?:usd|eur|gbp|jpy|chf)\b)?\s?(?P<inner>-)?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:(?P<group>[ '])\d{3})(?:(?P=group)\d{3})*"
    r"(?:[.,]\d{1,2})?|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}\.\d{3},\d+|\d+,\d{1,2}"
    r"|\d*\.?\d+(?:e[+-]?\d{1,3})?)"
    r"(?P<unit>\s?%|[a-z°]+)?(?!\w|[.,/:]\d|-\d)"
)
_UNIT_WORD = re.compile(r"\s+(?:per\s+(?=cent))?(°?[a-z]+|[%$€£¥])(?![^\W_])")
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_SEPARATOR = re.compile(r"\s*(?:[;\n|&]|,(?!\d{3}(?!\d))|\band\b)\s*")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+", re.MULTILINE)
_HARMLESS = frozenset(" .,:;!\"'()[]*_`=\n")
_QUOTES = " \t\n\"'`*_"
_SIGNS = {
    ord(sign): plain
    for sign, plain in zip(
        "\u2212\u2013\u2019\u2018\u201c\u201d\u201e\u00ab\u00bb", '--\'\'"""""', strict=True
    )
}
"""Dashes and quotation marks, and what they are compared as."""
_SET = re.compile(r"(?<![\w&])#(?=\d)")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-_](?=[^\W\d_])")
_ADDRESS = re.compile(r"\w@\w|://|/\w|\d-[^\W\d_]")
_JOINT = re.compile(r"\s*(?:-|,|\bto\b|\bat\b|t(?=\d))?\s*")
_JOINT_WORDS = frozenset(["to", "until", "till", "at", "and", "between", "t"])
"""Words that may stand where two moments are expected."""
_AFTER_TRUTH_WORDS = "it is are was were there do does did has have can i they he she"
_AFTER_TRUTH = frozenset(_AFTER_TRUTH_WORDS.split())


@dataclass(frozen=True, slots=True)
class _Number:
    value: Decimal
    unit: str = ""

    def is_said_by(self, other: object) -> bool:
        if not isinstance(other, _Number):
            return False
        if self.unit in _IN_BASE_UNITS and other.unit in _IN_BASE_UNITS:
            return self._in_base == other._in_base
        if self.value != other.value:
            return False
        if "%" in (self.unit, other.unit):
            return self.unit == other.unit or (self.unit == "%" and not other.unit)
        if not self.unit and other.unit == "m":
            return False  # metres, or millions
        return not self.unit or not other.unit or self.unit == other.unit

    @property
    def _in_base(self) -> tuple[str, Decimal]:
        base, factor = _IN_BASE_UNITS[self.unit]
        return base, self.value * factor


@dataclass(frozen=True, slots=True)
class _Date:
    readings: frozenset[tuple[int, int, int]]
    """Year (0: not said), month, day; two where day and month may be swapped."""
    written: tuple[int, int] = (0, 0)

    def is_said_by(self, other: object) -> bool:
        if not isinstance(other, _Date) or self.readings != other.readings:
            return False
        return len(self.readings) == 1 or self.written == other.written

    @property
    def weekday(self) -> str:
        (year, month, day), *_ = self.readings
        return _DAYS[datetime.date(year, month, day).weekday()] if year else ""


@dataclass(frozen=True, slots=True)
class _Time:
    minute: int

    def is_said_by(self, other: object) -> bool:
        return self == other


_Value = _Number | _Date | _Time


def same_answer(expected: str, answer: str | None, question: str = "") -> bool:
    """Whether `answer` says what is expected, and nothing else. `question`: what was asked."""
    if answer is None:
        return False
    if _plain(expected) == _plain(answer):
        return True
    if (truth := _TRUTHS.get(_plain(expected))) is not None:
        return _says_truth(truth, _plain(answer))
    value = _value(_plain(expected))
    if value is not None:
        return _says_only([value], _plain(answer), question)
    moments = _moments(_plain(expected))
    if moments:
        return _says_only(moments, _plain(answer), question)
    items = _items(expected)
    if len(items) > 1:
        return _same_items(items, answer, question)
    return _is_framed(_plain(expected), _plain(answer), question)


def _moments(text: str) -> list[_Value]:
    """The dates and times that a whole text is, in their order: a day with a time, or a span."""
    values, at = list[_Value](), 0
    while (found := _read(text, at)) is not None and not isinstance(found[0], _Number):
        values.append(found[0])
        at = found[1]
        if at == len(text):
            return values
        joint = _JOINT.match(text, at)
        at = joint.end() if joint is not None else at
    return []


def _says_truth(truth: bool, text: str) -> bool:
    """Yes, true, or "No, it isn't.": one word of truth, and nothing against it."""
    first, *rest = [match[0] for match in _WORD.finditer(text)] or [""]
    if _TRUTHS.get(first) is not truth or any(
        char not in _HARMLESS for char in _WORD.sub("", text)
    ):
        return False
    negates = any(word == "not" or word.endswith("n't") for word in rest)
    plain = {word.removesuffix("n't") for word in rest} - {"not", "ca", "wo"}
    return plain <= _AFTER_TRUTH and (negates is not truth or not rest)


def _plain(text: str) -> str:
    """The text without typesetting: case, spaces, quotes, a full stop, the sign before a number."""
    text = _SET.sub("", unicodedata.normalize("NFKC", text).translate(_SIGNS))
    text = " ".join(text.casefold().split())
    if not _ADDRESS.search(text):
        text = _HYPHEN.sub(" ", text)
    while text != (stripped := text.strip(_QUOTES).rstrip(".!").rstrip()):
        text = stripped
    return text


def _value(text: str) -> _Value | None:
    """The one value that a whole text is."""
    found = _read(text, 0)
    return found[0] if found is not None and found[1] == len(text) else None


def _read(text: str, at: int) -> tuple[_Value, int] | None:
    """The date, time or number that stands at a place, and where it ends."""
    for pattern in _DATES:
        match = pattern.match(text, at)
        date = _date(match) if match is not None else None
        if match is not None and date is not None:
            return date, match.end()
    if (match := _TIME.match(text, at)) is not None and (time := _time(match)) is not None:
        return time, match.end()
    return _read_number(text, at)


def _read_number(text: str, at: int) -> tuple[_Value, int] | None:
    match = _NUMBER.match(text, at)
    if match is None or (match["minus"] and match["inner"]):
        return None
    unit, times, end = (match["unit"] or "").strip(), 1, match.end()
    if unit in _MULTIPLES:
        unit, times = "", _MULTIPLES[unit]
    if unit and unit not in _UNITS:
        return None
    if not unit and (word := _UNIT_WORD.match(text, end)):
        if word[1] in _MULTIPLES:
            times, end = times * _MULTIPLES[word[1]], word.end()
        elif word[1] in _UNITS:
            unit, end = word[1], word.end()
    number = _decimal(match["digits"]) * times
    negative = match["minus"] or match["inner"]
    units = {_UNITS[one] for one in (match["sign"], unit) if one}
    if len(units) > 1:
        return None
    return _Number(-number if negative else number, next(iter(units), "")), end


def _decimal(digits: str) -> Decimal:
    """A number in the writing of any country: 1,234.5, 1.234,5, 1 234,5, 1'234.5."""
    digits = digits.replace(" ", "").replace("'", "")
    if digits.count(".") > 1 or ("." in digits and "," in digits[digits.index(".") :]):
        digits = digits.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"\d+,\d{1,2}", digits):
        digits = digits.replace(",", ".")
    return Decimal(digits.replace(",", ""))


def _date(match: re.Match[str]) -> _Date | None:
    parts = match.groupdict()
    year = int(parts.get("year") or 0)
    if parts.get("one"):
        one, other = int(match["one"]), int(match["other"])
        pairs, written = {(one, other), (other, one)}, (one, other)
        if match["sign"] == ".":  # nobody puts the month first there
            pairs = {(other, one)}
    else:
        month = match["month"]
        pairs = {(_MONTHS[month] if month in _MONTHS else int(month), int(match["day"]))}
        written = (0, 0)
    readings = set()
    for month_number, day in pairs:
        try:
            datetime.date(year or 2000, month_number, day)
        except ValueError:
            continue
        readings.add((year, month_number, day))
    return _Date(frozenset(readings), written) if readings else None


def _time(match: re.Match[str]) -> _Time | None:
    hour = int(match["hour"] or match["hour24"])
    minute = int(match["minute"] or match["minute24"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"] == "p" else 0)
    return _Time(60 * hour + minute) if hour < 24 and minute < 60 else None


def _says_only(values: Sequence[_Value], text: str, question: str) -> bool:
    """The values of the text are these, one as often as one likes and several in their order; and
    all words around them change nothing."""
    words, at, said = list[str](), 0, 0
    known = _words_of(question)
    several = len(values) > 1
    while at < len(text):
        starts = not at or not (text[at - 1].isalnum() or text[at - 1] in ".,/:-$€£¥")
        joins = several and bool(words) and words[-1] in ("", "t")
        found = _read(text, at) if starts or text[at - 1] == ":" or joins else None
        if found is not None:
            expected = values[said] if several and said < len(values) else values[0]
            if (several and said == len(values)) or not expected.is_said_by(found[0]):
                return False
            said, at = said + 1, found[1]
            words.append("")
            continue
        word = re.compile("t(?=\\d)").match(text, at) if joins else None
        word = word or _WORD.match(text, at)
        if word is not None:
            is_joint = several and word[0] in _JOINT_WORDS
            if not is_joint and not _changes_nothing(word[0], words, values[0], known):
                return False
            words.append(word[0])
            at = word.end()
        elif text[at] in _HARMLESS or (joins and text[at] == "-"):
            at += 1
        else:
            return False
    return said == len(values) if several else said > 0


def _changes_nothing(
    word: str, before: Sequence[str], value: _Value, known: frozenset[str]
) -> bool:
    if word in _CHANGES or "n't" in word:
        return False
    if word in _FRAME or word in known or _stem(word) in known:
        return True
    day = next((day for day in _DAYS if word in (day, day[:3])), "")
    if day:
        return isinstance(value, _Date) and day == value.weekday
    if word.endswith("s") and len(word) > 3:  # what is counted, or what it does
        return not (isinstance(value, _Number) and value.unit == "%")
    return (
        isinstance(value, _Number)
        and "" in before
        and len(before) > 1
        and before[-1] in _OWNERS
        and before[-2] in _PLACES
    )


def _words_of(question: str) -> frozenset[str]:
    words = [match[0] for match in _WORD.finditer(_plain(question))]
    return frozenset(words) | {_stem(word) for word in words}


def _stem(word: str) -> str:
    return word.removesuffix("s")


def _is_framed(expected: str, text: str, question: str) -> bool:
    """The expected text behind words that end with "is" or a colon, or before "is the answer"."""
    if not expected:
        return False
    at = text.rfind(expected)
    if at < 0:
        return False
    before, after = text[:at].rstrip(_QUOTES), text[at + len(expected) :].lstrip(_QUOTES)
    known = _FRAME | _words_of(question)
    first = [match[0] for match in _WORD.finditer(before)]
    rest = [match[0] for match in _WORD.finditer(after)]
    if any(char not in _HARMLESS for char in _WORD.sub("", before + after)):
        return False
    if any(word in _CHANGES or word not in known for word in first):
        return False
    if before and not (before.endswith((":", "=")) or (first and first[-1] in _ENDS_WELL)):
        return False
    if not after:
        return True
    ends = after[0] in _HARMLESS or text[at + len(expected)] in _HARMLESS
    return ends and not before and all(word in _AFTER_TEXT for word in rest)


def _items(text: str) -> list[str]:
    """The items of a list in any of the usual forms."""
    bare = _BULLET.sub("\n", unicodedata.normalize("NFKC", text)).strip().strip("[]{}()")
    return [item for one in _SEPARATOR.split(bare) if (item := _plain(one))]


def _same_items(expected: Sequence[str], answer: str, question: str) -> bool:
    said = _items(answer)
    if len(said) != len(expected):
        return False
    first, *rest = zip(expected, said, strict=True)
    begins = _same_item(*first) or _is_framed(*first, question)
    return begins and all(_same_item(*pair) for pair in rest)


def _same_item(expected: str, item: str) -> bool:
    value, said = _value(expected), _value(item)
    return expected == item or (value is not None and value.is_said_by(said))
