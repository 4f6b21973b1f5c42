"""Families about a mail box: one mail, then several pages, and mails that are not there."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypedDict, Unpack

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.showcase.conversation.problems import NAMES
from clawrl_gym.envs.showcase.gui.apps.mail import HOST, ME, PAGE_SIZE, Mail, MailWorld, new_mail
from clawrl_gym.envs.showcase.gui.apps.serving import next_number
from clawrl_gym.envs.showcase.gui.families.family import (
    Application,
    Family,
    TaskContent,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    select,
    write,
)

SITE = Application(HOST, Mail)


def archive(draw: Draw) -> TaskContent:
    """One mail goes out of the inbox, and stays."""
    phrasings = (
        "Archive the mail of {n} about {s}.",
        "Move the {s} mail of {n} to the archive.",
        "Please put the mail about {s} that {n} sent into the archive.",
    )
    return _filed(draw, phrasings, "Archive", folder="archive")


def delete(draw: Draw) -> TaskContent:
    """One mail goes away."""
    phrasings = (
        "Delete the mail of {n} about {s}.",
        "I do not need the {s} mail of {n}: delete it.",
        "Please delete the mail about {s} that {n} sent.",
    )
    return _filed(draw, phrasings, "Delete", folder="trash")


def star(draw: Draw) -> TaskContent:
    """One mail gets a star."""
    phrasings = (
        "Star the mail of {n} about {s}.",
        "The {s} mail of {n} needs a star.",
        "Please put a star on the mail about {s} that {n} sent.",
    )
    return _filed(draw, phrasings, "Star", star=True)


def send(draw: Draw) -> TaskContent:
    """A new mail; the form is open."""
    world = inbox(draw, 2)
    name, subject, word = draw.pick(NAMES), draw.pick(STEMS), draw.pick(WORDS)
    phrasing = draw.pick(
        (
            "Write to {n} about {s}. The text is {w}.",
            "Send {n} a mail. The subject is {s} and the text is {w}.",
            "Please write a mail about {s} to {n} that says {w}.",
        )
    )
    filled = (write("To", name), write("Subject", subject), write("Text", word), press("Send"))
    return SITE.task(
        key=f"{name} {subject}",
        instruction=phrasing.format(n=name, s=subject, w=word),
        world=world,
        path="write",
        solution=(filled, done()),
        after=with_sent(world, name, subject, word),
    )


def code(draw: Draw) -> TaskContent:
    """A word that stands in one mail."""
    world = inbox(draw, 3)
    mail = world["mails"][draw.pick(sorted(world["mails"]))]
    for each in world["mails"].values():
        each["text"] = f"The code is {draw.pick(WORDS)}."
    phrasing = draw.pick(
        (
            "What is the code in the mail about {s}?",
            "Which code does the mail of {n} about {s} say? Answer with the word.",
            "Answer with the code in the {s} mail.",
        )
    )
    word = mail["text"].removeprefix("The code is ").removesuffix(".")
    return SITE.task(
        key=mail["subject"],
        instruction=phrasing.format(n=mail["from"], s=mail["subject"]),
        world=world,
        solution=((link(mail["subject"]),), answer(word)),
        answer=word,
    )


def _filed(
    draw: Draw, phrasings: tuple[str, ...], button: str, **fields: Unpack[MailChange]
) -> TaskContent:
    world = inbox(draw, draw.between(3, 4))
    number = draw.pick(sorted(world["mails"]))
    name, subject = world["mails"][number]["from"], world["mails"][number]["subject"]
    return SITE.task(
        key=f"{name} {subject}",
        instruction=draw.pick(phrasings).format(n=name, s=subject),
        world=world,
        solution=((link(subject),), (press(button),), done()),
        after=with_change(world, number, **fields),
    )


def inbox(draw: Draw, count: int) -> MailWorld:
    """A box with `count` mails of different subjects; two are of the same sender."""
    first, *rest = draw.some(NAMES, count - 1)
    senders = draw.some((first, first, *rest), count)
    mails = (
        new_mail("inbox", sender, ME, subject, f"I like the {draw.pick(WORDS)} {subject}.")
        for sender, subject in zip(senders, draw.some(STEMS, count), strict=True)
    )
    return {"mails": {str(number): mail for number, mail in enumerate(mails, start=1)}}


class MailChange(TypedDict, total=False):
    """Fields of a mail that a task changes."""

    folder: str
    star: bool
    label: str


def with_change(world: MailWorld, number: str, **fields: Unpack[MailChange]) -> MailWorld:
    """The box when one mail is changed."""
    after = copy.deepcopy(world)
    after["mails"][number] = {**after["mails"][number], **fields}
    return after


def with_sent(world: MailWorld, to: str, subject: str, text: str) -> MailWorld:
    """The box when a mail was sent, too."""
    mail = new_mail("sent", ME, to, subject, text)
    return {**world, "mails": world["mails"] | {next_number(world["mails"]): mail}}


LABELS = ("home", "work", "money", "later")


def forward(draw: Draw) -> TaskContent:
    """Forward a mail of a full box to somebody; it may not be there."""
    world, _ = _full_box(draw, [])
    present = {mail["subject"] for mail in world["mails"].values()}
    number = draw.pick(sorted(world["mails"]))
    subject, text = world["mails"][number]["subject"], world["mails"][number]["text"]
    feasible = draw.below(3) > 0
    if not feasible:
        subject = draw.pick([stem for stem in STEMS if stem not in present])
    name = draw.pick(NAMES)
    phrasing = draw.pick(
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
    return SITE.task(
        key=f"{subject} {name}",
        instruction=phrasing.format(s=subject, n=name),
        world=world,
        solution=turns,
        after=with_sent(world, name, f"Fwd: {subject}", text) if feasible else None,
        feasible=feasible,
    )


def reply(draw: Draw) -> TaskContent:
    """A mail is answered with a few words."""
    world = inbox(draw, 4)
    mail = draw.pick(list(world["mails"].values()))
    name, subject, text = mail["from"], mail["subject"], " ".join(draw.some(WORDS, 2))
    phrasing = draw.pick(
        (
            "Reply to the mail of {n} about {s}. Write: {t}",
            "Answer the {s} mail of {n}. The text is: {t}",
            "Please reply to {n} about {s} with these words: {t}",
        )
    )
    return SITE.task(
        key=f"{name} {subject} {text}",
        instruction=phrasing.format(n=name, s=subject, t=text),
        world=world,
        solution=((link(subject),), (link("Reply"),), (write("Text", text), press("Send")), done()),
        after=with_sent(world, name, f"Re: {subject}", text),
    )


def label(draw: Draw) -> TaskContent:
    """All mails of somebody get a label."""
    world: MailWorld = {**inbox(draw, 4), "labels": list(LABELS)}
    name, numbers = _repeated(world)
    label_name = draw.pick(LABELS)
    phrasing = draw.pick(
        (
            "All mails of {n} need the label {w}.",
            "Give each mail that {n} sent the label {w}.",
            "Please label every mail of {n} with {w}.",
        )
    )
    after, turns = world, []
    for number in numbers:
        labelled = (select("Label", label_name), press("Set"))
        turns += [(link(world["mails"][number]["subject"]),), labelled, (link("Inbox"),)]
        after = with_change(after, number, label=label_name)
    return SITE.task(
        key=f"{name} {label_name}",
        instruction=phrasing.format(n=name, w=label_name),
        world=world,
        solution=(*turns[:-1], done()),
        after=after,
    )


def clean(draw: Draw) -> TaskContent:
    """All mails of somebody go away; those of others stay."""
    world = inbox(draw, 5)
    name, numbers = _repeated(world)
    senders = [mail["from"] for mail in world["mails"].values() if mail["from"] != name]
    spared = draw.pick(senders)
    phrasing = draw.pick(
        (
            "Delete all mails of {n}. Keep those of {k}.",
            "I do not need what {n} wrote: delete it all, but nothing of {k}.",
            "Please delete every mail that {n} sent. Those of {k} stay.",
        )
    )
    after, turns = world, []
    for number in numbers:
        turns += [(link(world["mails"][number]["subject"]),), (press("Delete"),)]
        after = with_change(after, number, folder="trash")
    return SITE.task(
        key=f"{name} {spared}",
        instruction=phrasing.format(n=name, k=spared),
        world=world,
        solution=(*turns, done()),
        after=after,
    )


def restore(draw: Draw) -> TaskContent:
    """A mail comes back out of the trash or the archive; the request does not say which."""
    folder = draw.pick(("trash", "archive"))
    world = inbox(draw, 5)
    for mail in world["mails"].values():
        mail["folder"] = draw.pick(("trash", "archive"))
    number = draw.pick(sorted(world["mails"]))
    world["mails"][number]["folder"] = folder
    name, subject = world["mails"][number]["from"], world["mails"][number]["subject"]
    phrasing = draw.pick(
        (
            "The mail of {n} about {s} is no more in the inbox. Bring it back.",
            "I want the {s} mail of {n} in the inbox again.",
            "Please find the mail that {n} wrote about {s} and restore it to the inbox.",
        )
    )
    return SITE.task(
        key=f"{name} {subject}",
        instruction=phrasing.format(n=name, s=subject),
        world=world,
        solution=(
            (write("Search", subject), press("Search")),
            (link(subject),),
            (press("Restore"),),
            done(),
        ),
        after=with_change(world, number, folder="inbox"),
    )


def note(draw: Draw) -> TaskContent:
    """The work is described in a mail."""
    world = inbox(draw, 4)
    number = draw.pick(sorted(world["mails"]))
    boss, subject = world["mails"][number]["from"], world["mails"][number]["subject"]
    name = draw.pick([name for name in NAMES if name != boss])
    about, word = draw.pick(STEMS), draw.pick(WORDS)
    world["mails"][number]["text"] = f"Please write to {name} about {about}.\nThe text is {word}."
    phrasing = draw.pick(
        (
            "Do what {n} asks for in the mail about {s}.",
            "{n} wants something in the {s} mail: read it and do it.",
            "Read the mail of {n} about {s} and follow it.",
        )
    )
    return SITE.task(
        key=f"{boss} {subject}",
        instruction=phrasing.format(n=boss, s=subject),
        world=world,
        solution=(
            (link(subject),),
            (link("Write"),),
            (write("To", name), write("Subject", about), write("Text", word), press("Send")),
            done(),
        ),
        after=with_sent(world, name, about, word),
    )


def count(draw: Draw) -> TaskContent:
    """Count the mails of two people in the archive; its list takes several pages."""
    first, second, *rest = draw.some(NAMES, 4)
    many = draw.between(3, 9)
    counted = [first, second, *(draw.pick((first, second)) for _ in range(many - 2))]
    senders = counted + [draw.pick(rest) for _ in range(13 - many)]
    world, order = _full_box(draw, senders)
    for mail in world["mails"].values():
        mail["folder"] = "archive"
    phrasing = draw.pick(
        (
            "How many mails in the archive are of {a} or {b}?",
            "Count the mails in the archive that {a} and {b} sent. Answer with the number.",
            "The archive has mails of {a} and of {b}. Answer how many both are.",
        )
    )
    pages = -(-len(order) // PAGE_SIZE)
    return SITE.task(
        key=" ".join(sorted((first, second))),
        instruction=phrasing.format(a=first, b=second),
        world=world,
        solution=(
            (link("Folders"),),
            (link("archive"),),
            *(((link("More"),),) * (pages - 1)),
            answer(many),
        ),
        answer=str(many),
    )


def _full_box(draw: Draw, senders: Sequence[str]) -> tuple[MailWorld, list[str]]:
    """An inbox of several pages with mails of these senders, or of anybody; and the numbers."""
    box_senders = draw.some(senders, len(senders)) or [draw.pick(NAMES) for _ in range(13)]
    mails = {
        str(number): new_mail("inbox", sender, ME, subject, f"I like the {word} {subject}.")
        for number, (sender, subject, word) in enumerate(
            zip(
                box_senders,
                draw.some(STEMS, len(box_senders)),
                draw.some(WORDS, len(box_senders)),
                strict=True,
            ),
            start=1,
        )
    }
    return {"mails": mails}, list(mails)


def _repeated(world: MailWorld) -> tuple[str, list[str]]:
    """A sender of several mails, and the mails' numbers, the newest first."""
    senders = [mail["from"] for mail in world["mails"].values()]
    name = next(name for name in senders if senders.count(name) > 1)
    numbers = [number for number, mail in world["mails"].items() if mail["from"] == name]
    return name, sorted(numbers, key=int, reverse=True)


MAIL = (
    Family("mail_archive", archive, easy=True),
    Family("mail_clean", clean),
    Family("mail_code", code, easy=True),
    Family("mail_count", count),
    Family("mail_delete", delete, easy=True),
    Family("mail_forward", forward, may_be_infeasible=True),
    Family("mail_label", label),
    Family("mail_note", note),
    Family("mail_reply", reply),
    Family("mail_restore", restore),
    Family("mail_send", send, easy=True),
    Family("mail_star", star, easy=True),
)
