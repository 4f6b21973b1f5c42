"""Skills with a mail, and writing one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.mail import HOST, ME, MOVES, StoredMail, new_mail
from clawrl_gym.envs.showcase.gui.apps.serving import next_number
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Kind, Refused, Skill
from clawrl_gym.envs.showcase.gui.composed.ways import to, to_mail
from clawrl_gym.envs.showcase.gui.families.family import Turns, link, press, select, write


def _mail(desk: Desk, args: Args) -> StoredMail:
    return desk.mail["mails"][str(args["mail"])]


def _on_mail(*steps: Step) -> Callable[[Desk, Args], Turns]:
    return lambda desk, args: (*to_mail(desk, args["mail"]), steps)


def _moved(action: str, desk: Desk, args: Args) -> None:
    mail = _mail(desk, args)
    offered = {"inbox": ("archive", "delete"), "archive": ("restore", "delete"),
               "sent": ("delete",), "trash": ("restore",)}  # fmt: skip
    if action not in offered[mail["folder"]]:
        raise Refused
    mail["folder"] = MOVES[action]


def _starred(star: bool, desk: Desk, args: Args) -> None:
    mail = _mail(desk, args)
    if mail["folder"] == "trash":
        raise Refused
    mail["star"] = star


def _labelled(desk: Desk, args: Args) -> None:
    _mail(desk, args)["label"] = str(args["label"])


def _sent(desk: Desk, to_whom: str, subject: str, text: str) -> None:
    mails = desk.mail["mails"]
    mails[next_number(mails)] = new_mail("sent", ME, to_whom, subject, text)


def _replied(desk: Desk, args: Args) -> None:
    mail = _mail(desk, args)
    _sent(desk, mail["from"], f"Re: {mail['subject']}", str(args["text"]))


def _forwarded(desk: Desk, args: Args) -> None:
    mail = _mail(desk, args)
    _sent(desk, str(args["person"]), f"Fwd: {mail['subject']}", mail["text"])


def _written(desk: Desk, args: Args) -> None:
    _sent(desk, str(args["person"]), str(args["title"]), str(args["text"]))


MAIL = (
    Skill(
        "star_mail", HOST, {"mail": Kind.MAIL},
        Phrasings(
            (
                "star {mail}", "put a star on {mail}", "see that {mail} has a star",
                "mark {mail} with a star",
            ),
            ("let {mail} have a star", "give a star to {mail}"),
        ),
        partial(_starred, True), _on_mail(press("Star")), settles=True,
    ),
    Skill(
        "unstar_mail", HOST, {"mail": Kind.MAIL},
        Phrasings(
            (
                "take the star off {mail}", "unstar {mail}", "see that {mail} has no star",
                "remove the star of {mail}",
            ),
            ("let {mail} be without a star", "clear the star from {mail}"),
        ),
        partial(_starred, False), _on_mail(press("Unstar")), settles=True,
    ),
    Skill(
        "archive_mail", HOST, {"mail": Kind.MAIL},
        Phrasings(
            (
                "archive {mail}", "put {mail} into the archive", "move {mail} to the archive",
                "file {mail} away in the archive",
            ),
            ("let {mail} go to the archive", "store {mail} in the archive"),
        ),
        partial(_moved, "archive"), _on_mail(press("Archive")),
    ),
    Skill(
        "delete_mail", HOST, {"mail": Kind.MAIL},
        Phrasings(
            (
                "delete {mail}", "throw {mail} away", "put {mail} into the trash",
                "get rid of {mail}",
            ),
            ("let {mail} go to the trash", "bin {mail}"),
        ),
        partial(_moved, "delete"), _on_mail(press("Delete")),
    ),
    Skill(
        "restore_mail", HOST, {"mail": Kind.MAIL},
        Phrasings(
            (
                "bring {mail} back to the inbox", "restore {mail} to the inbox",
                "put {mail} into the inbox again", "get {mail} back into the inbox",
            ),
            ("let {mail} return to the inbox", "fetch {mail} back into the inbox"),
        ),
        partial(_moved, "restore"), _on_mail(press("Restore")),
    ),
    Skill(
        "label_mail", HOST, {"mail": Kind.MAIL, "label": Kind.LABEL},
        Phrasings(
            (
                "label {mail} as {label}", "give {mail} the label {label}",
                "set the label of {mail} to {label}", "put the label {label} on {mail}",
            ),
            ("let {mail} carry the label {label}", "mark {mail} with the label {label}"),
        ),
        _labelled,
        lambda desk, args: (
            *to_mail(desk, args["mail"]), (select("Label", str(args["label"])), press("Set"))
        ),
        settles=True,
    ),
    Skill(
        "reply_mail", HOST, {"mail": Kind.MAIL, "text": Kind.TEXT},
        Phrasings(
            (
                "reply to {mail} with the text {text}", "answer {mail}; the text is {text}",
                "send a reply to {mail} that says {text}", "reply to {mail}, saying {text}",
            ),
            ("write back to {mail}, in these words: {text}", "respond to {mail} with {text}"),
        ),
        _replied,
        lambda desk, args: (
            *to_mail(desk, args["mail"]),
            (link("Reply"),),
            (write("Text", str(args["text"])), press("Send")),
        ),
    ),
    Skill(
        "forward_mail", HOST, {"mail": Kind.MAIL, "person": Kind.PERSON},
        Phrasings(
            (
                "forward {mail} to {person}", "send {mail} on to {person}",
                "let {person} have {mail} by forwarding it", "pass {mail} on to {person}",
            ),
            ("see that {mail} is forwarded to {person}", "relay {mail} to {person}"),
        ),
        _forwarded,
        lambda desk, args: (
            *to_mail(desk, args["mail"]),
            (link("Forward"),),
            (write("To", str(args["person"])), press("Send")),
        ),
    ),
    Skill(
        "write_mail", HOST, {"person": Kind.PERSON, "title": Kind.SUBJECT, "text": Kind.TEXT},
        Phrasings(
            (
                "write a mail to {person} with the subject {title} and the text {text}",
                "send {person} a mail; its subject is {title} and its text {text}",
                "mail {person} about {title}, with the text {text}",
                "send a mail to {person}: subject {title}, text {text}",
            ),
            (
                "let {person} have a mail with {title} as subject and {text} as text",
                "drop {person} a mail under the subject {title} that reads {text}",
            ),
        ),
        _written,
        lambda desk, args: (
            *to(HOST),
            (link("Write"),),
            (
                write("To", str(args["person"])), write("Subject", str(args["title"])),
                write("Text", str(args["text"])), press("Send"),
            ),
        ),
    ),
)  # fmt: skip
