"""Rules in the system message: some always hold, others forbid an action or need a yes first.
Whether one applies has to be looked up: tools carry out what it forbids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from clawrl_gym.envs.phrasing import Choices, Phrasings
from clawrl_gym.envs.showcase.toolcall.composed.lookups import shown
from clawrl_gym.envs.showcase.toolcall.composed.skill import Kind
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.showcase.toolcall.office.toolset import APPROVED_ABOVE
from clawrl_gym.envs.showcase.toolcall.office.world import Office

Args = Mapping[str, object]
Mode = Literal["forbids", "asks"]

ALWAYS = (
    "You are the assistant of an office. People write to you; you have tools.",
    "Do what is asked and nothing beyond it. Ids are found out, never guessed.",
    "Things are done in the order that is asked for. What a tool refuses can mostly be done with "
    "other arguments: read why.",
    "Who is away gets no ticket and hosts no meeting: their deputy takes their place. If a ticket "
    "was merged, the one it was merged into takes its place. If a tool refuses a closed ticket, "
    "reopen it first.",
    "If a room is taken, take the smallest free room with at least as many seats.",
    "What comes in packs is ordered in full packs: round up. An order of more than "
    f"{APPROVED_ABOVE} coins is approved by the buyer's manager.",
    "When all is done, say so without a call. A number that was asked for ends your last reply.",
)

_SAID: Mapping[Mode, Choices] = MappingProxyType(
    {
        "forbids": {
            "train": (
                "Never {verb}: if that is asked for, say that you cannot, and do the rest.",
                "It is forbidden to {verb}. Say so to whoever wants it; do what else is asked.",
            ),
            "heldout": ("You may not {verb}; tell the user so, and do everything else.",),
        },
        "asks": {
            "train": (
                "Before you {verb}, ask the user to confirm it; without a yes, leave it.",
                "To {verb} takes a yes of the user's: ask for it first, and leave it after a no.",
            ),
            "heldout": ("Only {verb} once the user has confirmed it when you asked.",),
        },
    }
)


@dataclass(frozen=True, slots=True)
class Rule:
    """An action that is forbidden with one skill, or needs a question first."""

    skill: str
    words: tuple[str, ...]
    """Words that show that a question is about this."""
    verbs: Phrasings
    applies: Callable[[Office, Args], bool]
    looks: Callable[[Office, Args], tuple[CallSpec, ...]]
    """Calls that say whether it applies."""

    def text(self, mode: Mode, way: int, split: str) -> str:
        """The rule in one of its ways."""
        heldout = split == "heldout"
        verbs = self.verbs.heldout if heldout else self.verbs.train
        forms = _SAID[mode]["heldout" if heldout else "train"]
        return forms[way % len(forms)].format(verb=verbs[way % len(verbs)])


def _of(kind: Kind, argument: str) -> Callable[[Office, Args], tuple[CallSpec, ...]]:
    return lambda office, args: shown(kind)(str(args[argument]))


def _stranger(office: Office, args: Args) -> bool:
    reporter = office.tickets[str(args["ticket"])].reporter
    return office.people[reporter].team != office.people[str(args["person"])].team


def _reporter_and_owner(office: Office, args: Args) -> tuple[CallSpec, ...]:
    reporter = office.tickets[str(args["ticket"])].reporter
    return (
        ("get_ticket", {"ticket": args["ticket"]}),
        ("get_person", {"person": reporter}),
        ("get_person", {"person": args["person"]}),
    )


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "crowd": Rule(
            "cancel_meeting",
            ("cancel", "cancelling", "canceling", "call off", "calling off"),
            Phrasings(
                (
                    "cancel a meeting that has three guests or more",
                    "cancel a meeting with more than two guests",
                ),
                ("cancel a meeting to which at least three guests are invited",),
            ),
            lambda office, args: len(office.meetings[str(args["meeting"])].guests) >= 3,
            _of(Kind.MEETING, "meeting"),
        ),
        "dear_item": Rule(
            "change_keeper",
            ("keeper", "keep", "look after", "looks after"),
            Phrasings(
                (
                    "give an item that costs more than 20 coins a piece another keeper",
                    "change the keeper of an item that costs more than 20 coins a piece",
                ),
                ("hand an item dearer than 20 coins a piece to another keeper",),
            ),
            lambda office, args: office.items[str(args["item"])].price > 20,
            _of(Kind.ITEM, "item"),
        ),
        "large_order": Rule(
            "cancel_order",
            ("cancel", "cancelling", "canceling", "withdraw", "call off"),
            Phrasings(
                (
                    "cancel an order of more than six pieces",
                    "cancel an order for seven pieces or more",
                ),
                ("cancel an order whose quantity is above six",),
            ),
            lambda office, args: office.orders[str(args["order"])].quantity > 6,
            _of(Kind.ORDER, "order"),
        ),
        "own_manager": Rule(
            "set_deputy",
            ("deputy", "stand in", "stands in"),
            Phrasings(
                (
                    "make somebody the deputy of a person whose manager they are",
                    "make a person's manager the deputy of that person",
                ),
                ("let anybody be stood in for by their own manager",),
            ),
            lambda office, args: office.people[str(args["person"])].manager == args["deputy"],
            _of(Kind.PERSON, "person"),
        ),
        "small_room": Rule(
            "change_room",
            ("room", "move", "moving", "relocate"),
            Phrasings(
                (
                    "put a meeting into a room with fewer than ten seats",
                    "move a meeting to a room that has fewer than ten seats",
                ),
                ("let a meeting go to a room of nine seats or less",),
            ),
            lambda office, args: office.rooms[str(args["room"])].seats < 10,
            _of(Kind.ROOM, "room"),
        ),
        "stranger": Rule(
            "assign_ticket",
            ("assign", "assigning", "owner"),
            Phrasings(
                (
                    "assign a ticket to somebody who is not in the team of its reporter",
                    "give a ticket an owner of another team than its reporter's",
                ),
                ("let a ticket be owned outside of the team that its reporter is in",),
            ),
            _stranger,
            _reporter_and_owner,
        ),
        "urgent": Rule(
            "close_ticket",
            ("close", "closing"),
            Phrasings(
                (
                    "close a ticket whose priority is high or urgent",
                    "close a ticket of high or urgent priority",
                ),
                ("close a ticket ranked above normal",),
            ),
            lambda office, args: office.tickets[str(args["ticket"])].priority in ("high", "urgent"),
            _of(Kind.TICKET, "ticket"),
        ),
    }
)
"""Rules by name."""
