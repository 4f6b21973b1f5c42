"""Families about a mail box: several pages and mails to look at, and mails that are not there."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from clawrl_gym.envs.conversation.problems import NAMES
from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.apps.mail import ME, PAGE_SIZE, new_mail
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    select,
    write,
)
from clawrl_gym.envs.gui.families.mail import (
    URL,
    World,
    inbox,
    task_draft,
    with_change,
    with_sent,
)

LABELS = ("home", "work", "money", "later")


def forward(draw: Draw) -> TaskDraft:
    """A mail of a full box goes on to somebody; it may not be there."""
    world, _ = _full_box(draw, [])
    present = {mail["subject"] for mail in world["mails"].values()}
    number = draw.pick(sorted(world["mails"]))
    subject, text = world["mails"][number]["subject"], world["mails"][number]["text"]
    feasible = draw.below(3) > 0
    if not feasible:
        subject = draw.pick([stem for stem in STEMS if stem not in present])
    name = draw.pick(NAMES)
    told = draw.pick(
        (
            "Forward the mail about {s} to {n}.",
            "{n} needs the mail about {s}: find it and forward it.",
            "Please send the {s} mail on to {n}, or give up if there is none.",
        )
    )
    searched = (write("Search", subject), press("Search"))
    turns: Turns = (
        searched,
        (link(subject),),
        (link("Forward"),),
        (write("To", name), press("Send")),
        done(),
    )
    if not feasible:
        turns = (searched, give_up(f"there is no mail about {subject}"))
    return task_draft(
        key=f"{subject} {name}",
        instruction=told.format(s=subject, n=name),
        world=world,
        start=URL,
        solution=turns,
        after=with_sent(world, name, f"Fwd: {subject}", text) if feasible else None,
        feasible=feasible,
    )


def reply(draw: Draw) -> TaskDraft:
    """A mail is answered with a few words."""
    world = inbox(draw, 4)
    asked = draw.pick(list(world["mails"].values()))
    name, subject, text = asked["from"], asked["subject"], " ".join(draw.some(WORDS, 2))
    told = draw.pick(
        (
            "Reply to the mail of {n} about {s}. Write: {t}",
            "Answer the {s} mail of {n}. The text is: {t}",
            "Please reply to {n} about {s} with these words: {t}",
        )
    )
    return task_draft(
        key=f"{name} {subject} {text}",
        instruction=told.format(n=name, s=subject, t=text),
        world=world,
        start=URL,
        solution=((link(subject),), (link("Reply"),), (write("Text", text), press("Send")), done()),
        after=with_sent(world, name, f"Re: {subject}", text),
    )


def label(draw: Draw) -> TaskDraft:
    """All mails of somebody get a label."""
    world = inbox(draw, 4) | {"labels": list(LABELS)}
    name, numbers = _repeated(world)
    wanted = draw.pick(LABELS)
    told = draw.pick(
        (
            "All mails of {n} need the label {w}.",
            "Give each mail that {n} sent the label {w}.",
            "Please label every mail of {n} with {w}.",
        )
    )
    after, turns = world, []
    for number in numbers:
        labelled = (select("Label", wanted), press("Set"))
        turns += [(link(world["mails"][number]["subject"]),), labelled, (link("Inbox"),)]
        after = with_change(after, number, {"label": wanted})
    return task_draft(
        key=f"{name} {wanted}",
        instruction=told.format(n=name, w=wanted),
        world=world,
        start=URL,
        solution=(*turns[:-1], done()),
        after=after,
    )


def clean(draw: Draw) -> TaskDraft:
    """All mails of somebody go away; those of others stay."""
    world = inbox(draw, 5)
    name, numbers = _repeated(world)
    others = [mail["from"] for mail in world["mails"].values() if mail["from"] != name]
    kept = draw.pick(others)
    told = draw.pick(
        (
            "Delete all mails of {n}. Keep those of {k}.",
            "I do not need what {n} wrote: delete it all, but nothing of {k}.",
            "Please delete every mail that {n} sent. Those of {k} stay.",
        )
    )
    after, turns = world, []
    for number in numbers:
        turns += [(link(world["mails"][number]["subject"]),), (press("Delete"),)]
        after = with_change(after, number, {"folder": "trash"})
    return task_draft(
        key=f"{name} {kept}",
        instruction=told.format(n=name, k=kept),
        world=world,
        start=URL,
        solution=(*turns, done()),
        after=after,
    )


def restore(draw: Draw) -> TaskDraft:
    """A mail comes back out of the trash or the archive; the request does not say which."""
    folder = draw.pick(("trash", "archive"))
    world = inbox(draw, 5)
    for mail in world["mails"].values():
        mail["folder"] = draw.pick(("trash", "archive"))
    number = draw.pick(sorted(world["mails"]))
    world["mails"][number]["folder"] = folder
    name, subject = world["mails"][number]["from"], world["mails"][number]["subject"]
    told = draw.pick(
        (
            "The mail of {n} about {s} is no more in the inbox. Bring it back.",
            "I want the {s} mail of {n} in the inbox again.",
            "Please find the mail that {n} wrote about {s} and restore it to the inbox.",
        )
    )
    return task_draft(
        key=f"{name} {subject}",
        instruction=told.format(n=name, s=subject),
        world=world,
        start=URL,
        solution=(
            (write("Search", subject), press("Search")),
            (link(subject),),
            (press("Restore"),),
            done(),
        ),
        after=with_change(world, number, {"folder": "inbox"}),
    )


def note(draw: Draw) -> TaskDraft:
    """What is to be done stands in a mail."""
    world = inbox(draw, 4)
    number = draw.pick(sorted(world["mails"]))
    boss, subject = world["mails"][number]["from"], world["mails"][number]["subject"]
    name = draw.pick([other for other in NAMES if other != boss])
    about, word = draw.pick(STEMS), draw.pick(WORDS)
    world["mails"][number]["text"] = f"Please write to {name} about {about}.\nThe text is {word}."
    told = draw.pick(
        (
            "Do what {n} asks for in the mail about {s}.",
            "{n} wants something in the {s} mail: read it and do it.",
            "Read the mail of {n} about {s} and follow it.",
        )
    )
    return task_draft(
        key=f"{boss} {subject}",
        instruction=told.format(n=boss, s=subject),
        world=world,
        start=URL,
        solution=(
            (link(subject),),
            (link("Write"),),
            (write("To", name), write("Subject", about), write("Text", word), press("Send")),
            done(),
        ),
        after=with_sent(world, name, about, word),
    )


def count(draw: Draw) -> TaskDraft:
    """How many mails of two people lie in the archive; its list takes several pages."""
    one, two, *others = draw.some(NAMES, 4)
    many = draw.between(3, 9)
    wrote = [one, two, *(draw.pick((one, two)) for _ in range(many - 2))]
    senders = wrote + [draw.pick(others) for _ in range(13 - many)]
    world, order = _full_box(draw, senders)
    for mail in world["mails"].values():
        mail["folder"] = "archive"
    told = draw.pick(
        (
            "How many mails in the archive are of {a} or {b}?",
            "Count the mails in the archive that {a} and {b} sent. Answer with the number.",
            "The archive has mails of {a} and of {b}. Answer how many both are.",
        )
    )
    pages = -(-len(order) // PAGE_SIZE)
    return task_draft(
        key=" ".join(sorted((one, two))),
        instruction=told.format(a=one, b=two),
        world=world,
        start=URL,
        solution=(
            (link("Folders"),),
            (link("archive"),),
            *(((link("More"),),) * (pages - 1)),
            answer(many),
        ),
        answer=str(many),
    )


MAIL_LONG = (
    Family("mail_clean", clean),
    Family("mail_count", count),
    Family("mail_forward", forward),
    Family("mail_label", label),
    Family("mail_note", note),
    Family("mail_reply", reply),
    Family("mail_restore", restore),
)


def _full_box(draw: Draw, senders: Sequence[str]) -> tuple[World, list[str]]:
    """An inbox of several pages with mails of these senders, or of anybody; and the numbers."""
    who = draw.some(senders, len(senders)) or [draw.pick(NAMES) for _ in range(13)]
    mails = {
        str(number): new_mail("inbox", sender, ME, subject, f"I like the {word} {subject}.")
        for number, (sender, subject, word) in enumerate(
            zip(who, draw.some(STEMS, len(who)), draw.some(WORDS, len(who)), strict=True), start=1
        )
    }
    return {"mails": mails}, list(mails)


def _repeated(world: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Who sent several mails, and their numbers, the newest first."""
    senders = [mail["from"] for mail in copy.copy(world["mails"]).values()]
    name = next(name for name in senders if senders.count(name) > 1)
    mine = [number for number, mail in world["mails"].items() if mail["from"] == name]
    return name, sorted(mine, key=int, reverse=True)
