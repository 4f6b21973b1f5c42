"""Kinds of questions: what has to be known for one, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.conversation.composed.answers import Answer
from clawrl_gym.envs.showcase.conversation.composed.facts import FACTS, Facts, Value
from clawrl_gym.envs.showcase.conversation.composed.scenes import BAD_FOR_BOTH, DAYS, DIETS, is_bad


@dataclass(frozen=True, slots=True)
class Ask:
    """One kind. {k} is a number that the question brings, {options} a choice."""

    name: str
    needs: tuple[str, ...]
    """Kinds of facts."""
    asked: Phrasings
    answer: Callable[[Facts, int], Answer]
    least: int = 2
    most: int = 9
    """Largest k."""


def _int(value: Value) -> int:
    return int(value)


def _number(value: int, unit: str, operands: tuple[int, ...], *between: int) -> Answer:
    quotes = frozenset({*operands, *between}) - {value}
    return Answer(value, f"{value} {unit}".strip(), quotes, operands=frozenset(operands))


def _cost(facts: Facts, k: int) -> Answer:
    price = _int(facts["price"])
    return _number(k * price, "euros", (k, price))


def _cost_of_all(facts: Facts, _: int) -> Answer:
    people, price = _int(facts["people"]), _int(facts["price"])
    return _number(people * price, "euros", (people, price))


def _left(facts: Facts, k: int) -> Answer:
    budget, price = _int(facts["budget"]), _int(facts["price"])
    return _number(budget - k * price, "euros", (budget, k, price), k * price)


def _left_of(facts: Facts, k: int) -> Answer:
    budget = _int(facts["budget"])
    return _number(budget - 10 * k, "euros", (budget, 10 * k))


def _missing(facts: Facts, _: int) -> Answer:
    people, stock = _int(facts["people"]), _int(facts["stock"])
    return _number(people - stock, "pieces", (people, stock))


def _each(facts: Facts, k: int) -> Answer:
    people = _int(facts["people"])
    return _number(people * k, "pieces", (people, k))


def _absent(facts: Facts, k: int) -> Answer:
    people = _int(facts["people"])
    return _number(people - k, "people", (people, k))


def _more(facts: Facts, k: int) -> Answer:
    stock = _int(facts["stock"])
    return _number(stock + k, "pieces", (stock, k))


def _end(facts: Facts, k: int) -> Answer:
    start = _int(facts["start"])
    return Answer(
        start + k, f"{start + k}:00", frozenset({start, k}), operands=frozenset({start, k})
    )


def _abroad(facts: Facts, _: int) -> Answer:
    return _end(facts, _int(facts["ahead"]))


def _before(facts: Facts, k: int) -> Answer:
    day = DAYS.index(str(facts["day"]))
    value = DAYS[(day - k) % len(DAYS)]
    others = tuple(other for other in DAYS if other != value)
    between = frozenset(DAYS[(day - n) % len(DAYS)] for n in range(k))
    return Answer(value, value, frozenset(range(1, k + 1)), between, others)


def recall(kind: str, facts: Facts) -> Answer:
    """The fact itself."""
    fact, value = FACTS[kind], facts[kind]
    if isinstance(value, int):
        said = fact.word(value) if kind == "start" else f"{value} {fact.unit}".strip()
        return Answer(value, said)
    return Answer(value, value, others=tuple(other for other in fact.others if other != value))


def dish(diet: str, options: tuple[str, ...]) -> Answer:
    """The one that fits."""
    (good,) = (option for option in options if not is_bad(option, diet))
    others = tuple(option for option in options if option != good)
    counts = frozenset({len(others), len(options)})  # "the other two"
    return Answer(good, f"the {good}", counts, others=others, reasons=DIETS[diet].reasons)


def draw_options(diet: str, draw: Draw) -> tuple[str, ...]:
    """Three, of which one fits; for another diet another one would, so that none is the odd one."""
    other = draw.pick([name for name in sorted(DIETS) if name != diet])
    both = BAD_FOR_BOTH[frozenset((diet, other))]
    options = [draw.pick(DIETS[diet].bad), draw.pick(both), draw.pick(DIETS[other].bad)]
    return tuple(draw.some(options, 3))


_ALL = (
    Ask(
        "cost", ("price",),
        Phrasings(
            (
                "What do {k} {items} cost?",
                "How much do I pay for {k} {items}?",
                "How many euros are {k} {items}?",
                "What would {k} {items} come to?",
            ),
            ("{k} {items}, what is that in euros?", "If I take {k} {items}, what is the bill?"),
        ),
        _cost, 6, 19,
    ),
    Ask(
        "cost_of_all", ("people", "price"),
        Phrasings(
            (
                "What do I pay if all {people} get one {item} each?",
                "How much is one {item} for every one of the {people}?",
                "One {item} for each of the {people}, how many euros is that?",
                "What does it cost to give all the {people} a {item}?",
            ),
            ("Suppose each of the {people} receives one {item}: what is the bill?",
             "What is the price of one {item} for all of the {people} together?"),
        ),
        _cost_of_all,
    ),
    Ask(
        "left", ("budget", "price"),
        Phrasings(
            (
                "How much of my whole budget would be left after {k} {items} alone?",
                "If I bought {k} {items} and nothing else, what would remain of the budget?",
                "What would I have left of all the money after just {k} {items}?",
                "Take only {k} {items} off the full budget: how many euros are left?",
            ),
            ("With {k} {items} paid and nothing else, what would still be in the purse?",
             "After paying for {k} {items} only, how many euros of the budget would stay?"),
        ),
        _left, 6, 14,
    ),
    Ask(
        "left_of", ("budget",),
        Phrasings(
            (
                "Say the hall alone takes {k}0 euros of the budget. What would be left?",
                "If the music cost {k}0 euros, what would remain of my whole budget?",
                "If I paid {k}0 euros for insurance only, how much of the budget would be left?",
                "Take just {k}0 euros for the bus off my full budget: what remains?",
            ),
            ("Should the driver want {k}0 euros and nobody else a cent, what stays of the budget?",
             "If only {k}0 euros went to cleaning, what would my full budget still hold?"),
        ),
        _left_of, 5, 19,
    ),
    Ask(
        "missing", ("people", "stock"),
        Phrasings(
            (
                "How many {items} do I still need so that all {people} get one?",
                "How many more {items} do I have to get for one each?",
                "One {item} for each of the {people}: how many are missing?",
                "How many {items} are lacking if everybody is to have one?",
            ),
            ("To have one {item} a head, how many must I add?",
             "What is the shortfall of {items}, at one for each of the {people}?"),
        ),
        _missing,
    ),
    Ask(
        "each", ("people",),
        Phrasings(
            (
                "If each of the {people} gets {k} {others}, how many is that?",
                "All {people} get {k} {others}. How many do I need?",
                "How many {others} are {k} for each of the {people}?",
                "I want {k} {others} for everybody. How many in all?",
            ),
            ("At {k} {others} a head, how many are needed?",
             "Every one of the {people} receives {k} {others}: what is the total?"),
        ),
        _each,
    ),
    Ask(
        "absent", ("people",),
        Phrasings(
            (
                "If {k} of the {people} stay at home, how many are left?",
                "Say {k} of the {people} fall ill. How many come then?",
                "Should {k} of the {people} miss the bus, how many would be there?",
                "How many {people} would it be without {k} of them?",
            ),
            ("Imagine {k} of the {people} cancel: how many remain?",
             "Minus {k} who might not make it, how many {people} is that?"),
        ),
        _absent, 2, 8,
    ),
    Ask(
        "more", ("stock",),
        Phrasings(
            (
                "If I bought {k} more, how many {items} would I have then?",
                "With {k} new {items}, how many would there be?",
                "Say I got {k} {items} as a gift. How many would I have then?",
                "How many {items} would it be after I bought another {k}?",
            ),
            ("Should {k} {items} be added, what is the total?",
             "If another {k} {items} arrived, how many would there be?"),
        ),
        _more, 11, 29,
    ),
    Ask(
        "end", ("start",),
        Phrasings(
            (
                "If it takes {k} hours, when is it over?",
                "When would it end if it lasted {k} hours?",
                "Say it goes on for {k} hours. At what time are we done?",
                "Suppose we stop after {k} hours. What time is that?",
            ),
            ("Given {k} hours, at what time does it close?",
             "Should it run for {k} hours, until when is that?"),
        ),
        _end, 2, 6,
    ),
    Ask(
        "abroad", ("start", "ahead"),
        Phrasings(
            (
                "What time is the start for {name}?",
                "At what time does it start on the clock of {name}?",
                "When is the start in the time zone of {name}?",
                "What does the clock of {name} show at the start?",
            ),
            ("What will the clock of {name} show when we start?",
             "On the time of {name}, when is the start?"),
        ),
        _abroad,
    ),
    Ask(
        "before", ("day",),
        Phrasings(
            (
                "I want to send a reminder {k} days before. Which weekday is that?",
                "The shopping is {k} days earlier. Which day is that?",
                "What weekday is {k} days before it?",
                "I bake {k} days ahead of it. On which day is that?",
            ),
            ("Counting {k} days back from it, which weekday do I land on?",
             "My call is due {k} days prior. What day of the week is that?"),
        ),
        _before, 2, 5,
    ),
)  # fmt: skip

ASKS: Mapping[str, Ask] = MappingProxyType({ask.name: ask for ask in _ALL})
"""Questions that are worked out from facts, by name."""
PICKS = Phrasings(
    (
        "For {name}, which of these is right: {options}?",
        "I can offer {name} one of these: {options}. Which one?",
        "There is {options}. What do I serve {name}?",
        "Which one can {name} have: {options}?",
    ),
    ("Out of {options}, what suits {name}?", "One of these goes to {name}: {options}. Which?"),
)
"""A choice for somebody with a diet."""
FIRST = Phrasings(
    (
        "What was the first answer that you gave me today?",
        "Remind me of the very first answer you gave me.",
        "What did you answer to my first question?",
        "What was the result of the first thing I asked?",
    ),
    ("Go back to my first question: what was your answer?", "Which answer did you begin with?"),
)
"""Asks for an answer once more."""
