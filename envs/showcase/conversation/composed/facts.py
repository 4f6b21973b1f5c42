"""Facts that a user tells of the occasion: how each kind is told, corrected, and asked back; and
irrelevant remarks beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.conversation.composed.scenes import DAYS, DIETS, PEOPLE

Value = int | str
_NEVER = Phrasings((), ())
Facts = Mapping[str, Value]
"""Current values by kind."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One kind. {v} is its value, {old} what it replaces; {people}, {item}, {items} and {name} are
    the occasion's."""

    name: str
    draw: Callable[[Draw], Value]
    told: Phrasings
    recalled: Phrasings
    """Asks for it."""
    noun: str
    """Noun of the request to write it down."""
    corrected: Phrasings = _NEVER
    distracted: Phrasings = _NEVER
    """Something alike that does not count."""
    unit: str = ""
    others: tuple[str, ...] = ()
    """Words that it could also be."""

    def word(self, value: Value) -> str:
        """Word for a value in the user's text."""
        return f"{value}:00" if self.name == "start" else str(value)


def _fix(train: str, heldout: str) -> Phrasings:
    """Ways to put a value right; the templates have {v}, {old} and what belongs to them."""
    new, old = train.split("|")
    other_new, other_old = heldout.split("|")
    return Phrasings(
        (
            f"Sorry, I meant {new}, not {old}.",
            f"Correction, {new} instead of {old}.",
            f"Oh, I mixed something up before, I meant {new}, not {old}.",
            f"Wait, I misspoke: {new} and not {old}.",
        ),
        (
            f"I misread my own notes: {other_new} rather than {other_old}.",
            f"Scratch {other_old}, I should have said {other_new}.",
        ),
    )


_ALL = (
    Fact(
        "people",
        lambda draw: draw.between(11, 48),
        Phrasings(
            (
                "We will be {v} {people}.",
                "I expect {v} {people}.",
                "There will be {v} {people}.",
                "{v} {people} are coming.",
            ),
            ("Count on {v} {people}.", "My list has {v} {people} on it."),
        ),
        Phrasings(
            (
                "How many {people} did I say there would be?",
                "Remind me, how many {people} are we?",
                "What was the number of {people} again?",
                "How many {people} was it?",
            ),
            (
                "I lost track: how many {people} are there?",
                "Which number of {people} did I give you?",
            ),
        ),
        "the number of {people}",
        _fix("{v} {people}|{old}", "it is {v} {people}|{old}"),
        Phrasings(
            (
                "Last year there were {v} {people}, by the way.",
                "My cousin once had {v} {people} at hers, what a crowd.",
                "The room could take {v} {people}, which will never happen.",
            ),
            ("A friend of mine had {v} {people} once, can you imagine.",),
        ),
        "people",
    ),
    Fact(
        "price",
        lambda draw: draw.between(3, 19),
        Phrasings(
            (
                "One {item} costs {v} euros.",
                "The {items} cost {v} euros each.",
                "I get the {items} for {v} euros apiece.",
                "They want {v} euros for one {item}.",
            ),
            ("Each {item} sets me back {v} euros.", "For one {item} I pay {v} euros."),
        ),
        Phrasings(
            (
                "What does one {item} cost again?",
                "How much did I say a single {item} was?",
                "What was the price of one {item}?",
                "Remind me, how many euros is one {item}?",
            ),
            (
                "Which price did I name for one {item}?",
                "What do I pay for a single {item}, once more?",
            ),
        ),
        "the price of one {item}",
        _fix("{v} euros for one {item}|{old}", "{v} euros is what one {item} costs|{old} euros"),
        Phrasings(
            (
                "My sister paid {v} euros for such {items}, but that was elsewhere.",
                "Across the street the {items} are {v} euros each, but they are closed.",
                "Ten years ago a {item} was {v} euros, imagine.",
            ),
            ("In the capital they would ask {v} euros for one {item}, madness.",),
        ),
        "euros",
    ),
    Fact(
        "budget",
        lambda draw: 10 * draw.between(41, 98),
        Phrasings(
            (
                "My budget is {v} euros.",
                "I can spend {v} euros in all.",
                "I have {v} euros for all of it.",
                "We have put {v} euros aside for it.",
            ),
            ("No more than {v} euros may be spent.", "The purse for this holds {v} euros."),
        ),
        Phrasings(
            (
                "What did I say my budget was?",
                "How many euros can I spend, did I say?",
                "Remind me, what is my budget?",
                "What was the budget again?",
            ),
            ("Which budget did I give you?", "How much money did I say there is?"),
        ),
        "my budget",
        _fix("a budget of {v} euros|{old}", "the budget is {v} euros|{old} euros"),
        Phrasings(
            (
                "The year before we had {v} euros, those were the days.",
                "My boss has a budget of {v} euros for her own things.",
                "Somebody else asked for {v} euros and got nothing.",
            ),
            ("The other group was given {v} euros, which is not our business.",),
        ),
        "euros",
    ),
    Fact(
        "stock",
        lambda draw: draw.between(2, 9),
        Phrasings(
            (
                "I already have {v} {items}.",
                "{v} {items} are here already.",
                "There are {v} {items} in the cupboard.",
                "We own {v} {items}.",
            ),
            ("In the shed I found {v} {items}.", "{v} {items} are left from before."),
        ),
        Phrasings(
            (
                "How many {items} did I say I have?",
                "Remind me, how many {items} are here already?",
                "How many {items} do I own?",
                "What was the number of {items} that I already have?",
            ),
            ("Which number of {items} did I find?", "How many {items} are there so far?"),
        ),
        "how many {items} I already have",
        _fix("{v} {items} that are here|{old}", "there are {v} {items} here|{old}"),
        Phrasings(
            (
                "My neighbour has {v} {items}, but keeps them to herself.",
                "I threw {v} broken {items} away last spring.",
                "I once lost {v} {items} on a bus.",
            ),
            ("An uncle of mine collects {items}, he is at {v}.",),
        ),
        "pieces",
    ),
    Fact(
        "day",
        lambda draw: draw.pick(DAYS),
        Phrasings(
            (
                "It is on {v}.",
                "It takes place on {v}.",
                "We do it on {v}.",
                "The day is {v}.",
            ),
            ("{v} is the day.", "It is set for {v}."),
        ),
        Phrasings(
            (
                "Which day did I say it is on?",
                "What day is it on again?",
                "Remind me, which weekday is it?",
                "On which day do we do it?",
            ),
            ("For which weekday is it set?", "Which weekday did I name?"),
        ),
        "the weekday",
        _fix("{v}|{old}", "it is {v}|{old}"),
        Phrasings(
            (
                "Last time it was on a {v}, which was no good.",
                "My mother always does such things on a {v}.",
                "On {v} I am at the dentist, alas.",
            ),
            ("A {v} would have been nicer, but never mind.",),
        ),
        others=DAYS,
    ),
    Fact(
        "start",
        lambda draw: draw.between(13, 17),
        Phrasings(
            (
                "It starts at {v}.",
                "We begin at {v}.",
                "The start is at {v}.",
                "It begins at {v} sharp.",
            ),
            ("At {v} we get going.", "Doors open at {v}, and that is the start."),
        ),
        Phrasings(
            (
                "When did I say it starts?",
                "At what time do we begin?",
                "What time is the start again?",
                "Remind me, when does it begin?",
            ),
            ("Which hour did I name for the start?", "From when on is it?"),
        ),
        "the time of the start",
        _fix("a start at {v}|{old}", "the start is at {v}|{old}"),
        Phrasings(
            (
                "Last year we began at {v}, far too late.",
                "My bus gets in at {v}, but that does not matter.",
                "The shop next door closes at {v}, by the way.",
            ),
            ("The caretaker has his coffee at {v}, by the way.",),
        ),
    ),
    Fact(
        "ahead",
        lambda draw: draw.between(2, 6),
        Phrasings(
            (
                "{name} joins by phone from abroad, where clocks are {v} hours ahead of mine.",
                "{name} lives {v} hours ahead of my time zone and calls in.",
                "The clock of {name} is {v} hours ahead of mine.",
                "{name} is abroad, {v} hours ahead of me.",
            ),
            ("From where {name} dials in, it is {v} hours later than here.",
             "{name} sits in a time zone {v} hours ahead of ours."),
        ),
        Phrasings(
            (
                "How many hours is {name} ahead of me?",
                "What is the time difference to {name} again?",
                "Remind me, by how many hours is {name} ahead?",
                "How many hours did I say lie between {name} and me?",
            ),
            ("By how much is the clock of {name} ahead?", "What offset did I give you for {name}?"),
        ),
        "the time difference to {name}",
        unit="hours",
    ),
    Fact(
        "keeper",
        lambda draw: draw.pick(PEOPLE),
        Phrasings(
            (
                "{v} has the key to the store room.",
                "The key of the store room is with {v}.",
                "I gave {v} the key to the store room.",
                "{v} looks after the key of the store room.",
            ),
            ("Whoever needs the key of the store room has to ask {v}.",
             "{v} is the one who keeps the store room key."),
        ),
        Phrasings(
            (
                "Who has the key to the store room?",
                "Remind me, who has the key?",
                "With whom is the key again?",
                "Whom did I give the key?",
            ),
            ("Whom do I ask for the key?", "Who keeps the key, did I say?"),
        ),
        "who has the key",
        _fix("{v} for the key|{old}", "{v} has the key|{old}"),
        Phrasings(
            (
                "{v} had the key two years ago and lost it.",
                "{v} would have liked to have the key, but no.",
                "{v} never wants anything to do with keys.",
            ),
            ("{v} asked for the key, too, in vain.",),
        ),
        others=PEOPLE,
    ),
    Fact(
        "diet",
        lambda draw: draw.pick(sorted(DIETS)),
        Phrasings(
            (
                "{name} {v}.",
                "{name} will be there and {v}.",
                "You should know that {name} {v}.",
                "By the way, {name} {v}.",
            ),
            ("Mind that {name} {v}.", "As for {name}: {name} {v}."),
        ),
        _NEVER,
        "",
    ),
)  # fmt: skip

FACTS: Mapping[str, Fact] = MappingProxyType({fact.name: fact for fact in _ALL})
"""Kinds of facts by name."""
CORRECTED = tuple(name for name, fact in FACTS.items() if fact.corrected.train)
RECALLED = tuple(name for name, fact in FACTS.items() if fact.recalled.train)
