"""Families about a mail box: short ones."""

from __future__ import annotations

import copy
from typing import Any

from clawrl_gym.envs.conversation.problems import NAMES
from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.apps.mail import HOST, ME, Mail, new_mail
from clawrl_gym.envs.gui.families.family import (
    Family,
    Served,
    TaskDraft,
    Turns,
    answer,
    done,
    link,
    press,
    write,
)

URL = f"http://{HOST}/"
World = dict[str, Any]


def archive(draw: Draw) -> TaskDraft:
    """One mail goes out of the inbox, and stays."""
    told = (
        "Archive the mail of {n} about {s}.",
        "Move the {s} mail of {n} to the archive.",
        "Please put the mail about {s} that {n} sent into the archive.",
    )
    return _filed(draw, told, "Archive", {"folder": "archive"})


def delete(draw: Draw) -> TaskDraft:
    """One mail goes away."""
    told = (
        "Delete the mail of {n} about {s}.",
        "I do not need the {s} mail of {n}: delete it.",
        "Please delete the mail about {s} that {n} sent.",
    )
    return _filed(draw, told, "Delete", {"folder": "trash"})


def star(draw: Draw) -> TaskDraft:
    """One mail gets a star."""
    told = (
        "Star the mail of {n} about {s}.",
        "The {s} mail of {n} needs a star.",
        "Please put a star on the mail about {s} that {n} sent.",
    )
    return _filed(draw, told, "Star", {"star": True})


def send(draw: Draw) -> TaskDraft:
    """A new mail; the form is open."""
    world = inbox(draw, 2)
    name, subject, word = draw.pick(NAMES), draw.pick(STEMS), draw.pick(WORDS)
    told = draw.pick(
        (
            "Write to {n} about {s}. The text is {w}.",
            "Send {n} a mail. The subject is {s} and the text is {w}.",
            "Please write a mail about {s} to {n} that says {w}.",
        )
    )
    filled = (write("To", name), write("Subject", subject), write("Text", word), press("Send"))
    return task_draft(
        key=f"{name} {subject}",
        instruction=told.format(n=name, s=subject, w=word),
        world=world,
        start=f"{URL}write",
        solution=(filled, done()),
        after=with_sent(world, name, subject, word),
    )


def code(draw: Draw) -> TaskDraft:
    """A word that stands in one mail."""
    world = inbox(draw, 3)
    asked = world["mails"][draw.pick(sorted(world["mails"]))]
    for one in world["mails"].values():
        one["text"] = f"The code is {draw.pick(WORDS)}."
    told = draw.pick(
        (
            "What is the code in the mail about {s}?",
            "Which code does the mail of {n} about {s} say? Answer with the word.",
            "Answer with the code in the {s} mail.",
        )
    )
    word = asked["text"].removeprefix("The code is ").removesuffix(".")
    return task_draft(
        key=asked["subject"],
        instruction=told.format(n=asked["from"], s=asked["subject"]),
        world=world,
        start=URL,
        solution=((link(asked["subject"]),), answer(word)),
        answer=word,
    )


def _filed(draw: Draw, told: tuple[str, ...], pressed: str, change: World) -> TaskDraft:
    world = inbox(draw, draw.between(3, 4))
    number = draw.pick(sorted(world["mails"]))
    name, subject = world["mails"][number]["from"], world["mails"][number]["subject"]
    return task_draft(
        key=f"{name} {subject}",
        instruction=draw.pick(told).format(n=name, s=subject),
        world=world,
        start=URL,
        solution=((link(subject),), (press(pressed),), done()),
        after=with_change(world, number, change),
    )


MAIL = (
    Family("mail_archive", archive, easy=True),
    Family("mail_code", code, easy=True),
    Family("mail_delete", delete, easy=True),
    Family("mail_send", send, easy=True),
    Family("mail_star", star, easy=True),
)


def task_draft(
    key: str,
    instruction: str,
    world: World,
    start: str,
    solution: Turns,
    after: World | None = None,
    answer: str | None = None,
    feasible: bool = True,
) -> TaskDraft:
    """A task in one mail box."""
    return TaskDraft(
        key=key,
        instruction=instruction,
        start=start,
        sites={HOST: Served(Mail, world)},
        solution=solution,
        after={HOST: after} if after else {},
        answer=answer,
        feasible=feasible,
    )


def inbox(draw: Draw, count: int) -> World:
    """A box with so many mails of different subjects; two are of the same sender."""
    first, *others = draw.some(NAMES, count - 1)
    senders = draw.some((first, first, *others), count)
    mails = (
        new_mail("inbox", sender, ME, subject, f"I like the {draw.pick(WORDS)} {subject}.")
        for sender, subject in zip(senders, draw.some(STEMS, count), strict=True)
    )
    return {"mails": {str(number): one for number, one in enumerate(mails, start=1)}}


def with_change(world: World, number: str, change: World) -> World:
    """The box when one mail is changed."""
    after = copy.deepcopy(world)
    after["mails"][number] |= change
    return after


def with_sent(world: World, to: str, subject: str, text: str) -> World:
    """The box when a mail was sent, too."""
    number = str(max(map(int, world["mails"]), default=0) + 1)
    return world | {"mails": world["mails"] | {number: new_mail("sent", ME, to, subject, text)}}
