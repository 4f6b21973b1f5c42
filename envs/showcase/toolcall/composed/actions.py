"""The skills that change the office, by name: each is one tool."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.toolcall.composed.skill import Kind, Skill

_TICKETS = (
    Skill(
        "open_ticket",
        {"title": Kind.TITLE, "priority": Kind.PRIORITY, "reporter": Kind.PERSON},
        Phrasings(
            (
                "open a ticket called {title} with the priority {priority}, reported by {reporter}",
                "file a new ticket {title} for {reporter}, who reports it; priority {priority}",
                "put in a ticket titled {title}, priority {priority}, with {reporter} as reporter",
                "make a ticket named {title}: reporter {reporter}, priority {priority}",
            ),
            (
                "create the ticket {title}, with {reporter} reporting it and priority {priority}",
                "enter a ticket {title} that {reporter} reports, with the priority {priority}",
            ),
        ),
        makes=Kind.TICKET,
    ),
    Skill(
        "assign_ticket",
        {"ticket": Kind.TICKET, "person": Kind.PERSON},
        Phrasings(
            (
                "assign {ticket} to {person}",
                "give {ticket} to {person} to work on",
                "hand {ticket} to {person}",
                "make {person} the owner of {ticket}",
            ),
            ("let {person} take on {ticket}", "put {ticket} into the hands of {person}"),
        ),
    ),
    Skill(
        "set_priority",
        {"ticket": Kind.TICKET, "priority": Kind.PRIORITY},
        Phrasings(
            (
                "set the priority of {ticket} to {priority}",
                "change the priority of {ticket} to {priority}",
                "see to it that the priority of {ticket} is {priority}",
                "turn the priority of {ticket} into {priority}",
            ),
            (
                "let the priority of {ticket} be {priority}",
                "bring the priority of {ticket} to {priority}",
            ),
        ),
    ),
    Skill(
        "close_ticket",
        {"ticket": Kind.TICKET, "resolution": Kind.RESOLUTION},
        Phrasings(
            (
                "close {ticket} as {resolution}",
                "close {ticket} with the resolution {resolution}",
                "mark {ticket} as closed, resolution {resolution}",
                "finish {ticket} off as {resolution}",
            ),
            ("put {ticket} to rest as {resolution}", "settle {ticket}, saying it is {resolution}"),
        ),
    ),
    Skill(
        "reopen_ticket",
        {"ticket": Kind.TICKET},
        Phrasings(
            (
                "reopen {ticket}",
                "open {ticket} again",
                "undo the closing of {ticket}",
                "bring {ticket} back to open",
            ),
            ("take {ticket} up again by reopening it", "set {ticket} back to open"),
        ),
    ),
    Skill(
        "tag_ticket",
        {"ticket": Kind.TICKET, "tag": Kind.TAG},
        Phrasings(
            (
                "tag {ticket} with {tag}",
                "add the tag {tag} to {ticket}",
                "put the tag {tag} on {ticket}",
                "label {ticket} with the tag {tag}",
            ),
            ("attach the tag {tag} to {ticket}", "let {ticket} carry the tag {tag}"),
        ),
    ),
    Skill(
        "link_tickets",
        {"ticket": Kind.TICKET, "other": Kind.TICKET},
        Phrasings(
            (
                "link {ticket} to {other}",
                "connect {ticket} with {other}",
                "add a link between {ticket} and {other}",
                "record that {ticket} and {other} belong together by a link",
            ),
            ("tie {ticket} to {other}", "let {ticket} and {other} be linked"),
        ),
    ),
)
_MEETINGS = (
    Skill(
        "book_meeting",
        {
            "title": Kind.TITLE,
            "day": Kind.DAY,
            "hour": Kind.HOUR,
            "room": Kind.ROOM,
            "host": Kind.PERSON,
        },
        Phrasings(
            (
                "book a meeting {title} on {day} at {hour} in {room}, hosted by {host}",
                "schedule a meeting called {title}, hosted by {host} in {room} on {day} at {hour}",
                "set up the meeting {title} in {room} on {day} at {hour}, with {host} as host",
                "plan a meeting titled {title} that {host} hosts in {room} on {day} at {hour}",
            ),
            (
                "put a meeting {title} in the calendar, {day} at {hour}, in {room}, host {host}",
                "arrange for {host} to host a meeting {title} in {room} on {day} at {hour}",
            ),
        ),
        makes=Kind.MEETING,
    ),
    Skill(
        "move_meeting",
        {"meeting": Kind.MEETING, "day": Kind.DAY, "hour": Kind.HOUR},
        Phrasings(
            (
                "move {meeting} to {day} at {hour}",
                "reschedule {meeting} for {day} at {hour}",
                "shift {meeting} to {day}, at {hour}",
                "put {meeting} on {day} at {hour} instead",
            ),
            (
                "let {meeting} take place on {day} at {hour}",
                "transfer {meeting} to {day} at {hour}",
            ),
        ),
    ),
    Skill(
        "change_room",
        {"meeting": Kind.MEETING, "room": Kind.ROOM},
        Phrasings(
            (
                "move {meeting} into {room}",
                "change the room of {meeting} to {room}",
                "have {meeting} in {room} instead",
                "switch {meeting} to another room, namely {room}",
            ),
            ("let {meeting} take place in {room}", "relocate {meeting} to {room}"),
        ),
    ),
    Skill(
        "change_host",
        {"meeting": Kind.MEETING, "person": Kind.PERSON},
        Phrasings(
            (
                "make {person} the host of {meeting}",
                "let {person} host {meeting}",
                "change the host of {meeting} to {person}",
                "hand the hosting of {meeting} to {person}",
            ),
            ("put {person} in charge of {meeting}", "have {meeting} hosted by {person}"),
        ),
    ),
    Skill(
        "invite",
        {"meeting": Kind.MEETING, "person": Kind.PERSON},
        Phrasings(
            (
                "invite {person} to {meeting}",
                "add {person} to the guests of {meeting}",
                "put {person} on the guest list of {meeting}",
                "ask {person} along to {meeting} as a guest",
            ),
            ("include {person} in {meeting}", "let {person} be a guest of {meeting}"),
        ),
    ),
    Skill(
        "uninvite",
        {"meeting": Kind.MEETING, "person": Kind.PERSON},
        Phrasings(
            (
                "take {person} off the guest list of {meeting}",
                "remove {person} from the guests of {meeting}",
                "uninvite {person} from {meeting}",
                "drop {person} from {meeting}",
            ),
            ("excuse {person} from {meeting}", "cross {person} off the guests of {meeting}"),
        ),
    ),
    Skill(
        "cancel_meeting",
        {"meeting": Kind.MEETING},
        Phrasings(
            (
                "cancel {meeting}",
                "call off {meeting}",
                "take {meeting} out of the calendar by cancelling it",
                "see that {meeting} is cancelled",
            ),
            ("scrap {meeting}", "let {meeting} not take place: cancel it"),
        ),
    ),
)
_PEOPLE = (
    Skill(
        "change_team",
        {"person": Kind.PERSON, "team": Kind.TEAM},
        Phrasings(
            (
                "move {person} to {team}",
                "put {person} into {team}",
                "change the team of {person} to {team}",
                "record that {person} is now in {team}",
            ),
            ("transfer {person} to {team}", "let {person} join {team}"),
        ),
    ),
    Skill(
        "change_manager",
        {"person": Kind.PERSON, "manager": Kind.PERSON},
        Phrasings(
            (
                "make {manager} the manager of {person}",
                "change the manager of {person} to {manager}",
                "let {person} report to {manager}",
                "record that {manager} now manages {person}",
            ),
            ("put {person} under {manager} as manager", "have {manager} be the boss of {person}"),
        ),
    ),
    Skill(
        "set_deputy",
        {"person": Kind.PERSON, "deputy": Kind.PERSON},
        Phrasings(
            (
                "make {deputy} the deputy of {person}",
                "set the deputy of {person} to {deputy}",
                "record that {deputy} stands in for {person}",
                "name {deputy} as the deputy of {person}",
            ),
            ("let {deputy} cover for {person}", "appoint {deputy} to stand in for {person}"),
        ),
    ),
    Skill(
        "mark_away",
        {"person": Kind.PERSON},
        Phrasings(
            (
                "mark {person} as away",
                "set {person} to away",
                "record that {person} is away",
                "note in the directory that {person} is away",
            ),
            ("list {person} as absent", "show {person} as out of the office, that is, away"),
        ),
    ),
    Skill(
        "mark_back",
        {"person": Kind.PERSON},
        Phrasings(
            (
                "mark {person} as back",
                "set {person} to back, no longer away",
                "record that {person} is back",
                "note in the directory that {person} is back",
            ),
            ("list {person} as present again", "end the absence of {person}"),
        ),
    ),
    Skill(
        "notify",
        {"person": Kind.PERSON, "about": Kind.TICKET},
        Phrasings(
            (
                "notify {person} about {about}",
                "send {person} a notice about {about}",
                "let {person} know about {about}",
                "tell {person} about {about} by a notice",
            ),
            ("inform {person} of {about}", "bring {about} to the notice of {person}"),
        ),
    ),
)
_STORE = (
    Skill(
        "order_item",
        {"item": Kind.ITEM, "quantity": Kind.QUANTITY, "buyer": Kind.PERSON},
        Phrasings(
            (
                "order {quantity} pieces of {item} for {buyer}",
                "place an order for {quantity} pieces of {item}, with {buyer} as buyer",
                "buy {quantity} pieces of {item} in the name of {buyer}",
                "have {quantity} pieces of {item} ordered, buyer {buyer}",
            ),
            (
                "get {quantity} pieces of {item} on order for {buyer}",
                "put in an order by {buyer}: {item}, {quantity} pieces",
            ),
        ),
        makes=Kind.ORDER,
    ),
    Skill(
        "change_quantity",
        {"order": Kind.ORDER, "quantity": Kind.QUANTITY},
        Phrasings(
            (
                "change {order} to {quantity} pieces",
                "set the quantity of {order} to {quantity}",
                "correct the number of pieces of {order} to {quantity}",
                "make it {quantity} pieces in {order}",
            ),
            ("let {order} be for {quantity} pieces", "adjust {order} so that it has {quantity}"),
        ),
    ),
    Skill(
        "cancel_order",
        {"order": Kind.ORDER},
        Phrasings(
            (
                "cancel {order}",
                "call {order} off",
                "withdraw {order}",
                "see that {order} is cancelled",
            ),
            ("take back {order}", "let nothing come of {order}: cancel it"),
        ),
    ),
    Skill(
        "change_keeper",
        {"item": Kind.ITEM, "person": Kind.PERSON},
        Phrasings(
            (
                "make {person} the keeper of {item}",
                "let {person} look after {item}",
                "change the keeper of {item} to {person}",
                "record that {person} keeps {item}",
            ),
            ("entrust {item} to {person} as keeper", "have {person} take care of {item}"),
        ),
    ),
)

ACTIONS: Mapping[str, Skill] = MappingProxyType(
    {skill.name: skill for skill in (*_TICKETS, *_MEETINGS, *_PEOPLE, *_STORE)}
)
"""Skills that all families chain, by name."""
