"""A mail box: folders, a search, mails to read, answer, forward, file, star and label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import (
    RequestRefused,
    filled,
    list_part,
    next_number,
    page,
    see_other,
    serve,
)

HOST = "mail"
MENU = (("Inbox", "/"), ("Folders", "/folders"), ("Write", "/write"))
ME = "me"
"""The owner of the box."""
FOLDERS = ("inbox", "archive", "sent", "trash")
MOVES = {"archive": "archive", "delete": "trash", "restore": "inbox"}
"""Names of a mail's buttons, and the folder that each moves it to."""
PAGE_SIZE = 5
"""Mails on one page of a list."""

StoredMail = TypedDict(
    "StoredMail",
    {
        "folder": str,
        "from": str,
        "to": str,
        "subject": str,
        "text": str,
        "star": bool,
        "label": str,
    },
)
"""One mail; without a label it is empty."""


class MailWorld(TypedDict):
    """Stored state: mails by number in digits, and names of labels."""

    mails: dict[str, StoredMail]
    labels: NotRequired[list[str]]


class Mail:
    """The site."""

    def __init__(self, world: MailWorld) -> None:
        self._mails = world["mails"]
        self._labels = world.get("labels", [])

    def handle(self, request: Request) -> Response:
        """Answer a request; what is refused changes nothing."""
        pages = {
            "": self._inbox_page,
            "folders": self._folders_page,
            "folder": self._folder_page,
            "search": self._search_page,
            "mail": self._mail_page,
            "write": self._write_page,
            "reply": self._reply_page,
            "forward": self._forward_page,
        }
        changes = {
            "mail": self._change,
            "write": self._send,
            "reply": self._send_reply,
            "forward": self._send_on,
        }
        return serve(request, pages, changes, "Mail", MENU)

    def state(self) -> object:
        """All mails."""
        return {"mails": self._mails}

    def _inbox_page(self, request: Request, rest: str) -> Response:
        return self._list_page("Inbox", "/", self._numbers_in("inbox"), request)

    def _folders_page(self, request: Request, rest: str) -> Response:
        counts = {folder: len(self._numbers_in(folder)) for folder in FOLDERS}
        return page("mail/folders", "Folders", MENU, counts=counts)

    def _folder_page(self, request: Request, rest: str) -> Response:
        if rest not in FOLDERS:
            raise RequestRefused("There is no such folder.", 404)
        return self._list_page(
            rest.capitalize(), f"/folder/{rest}", self._numbers_in(rest), request
        )

    def _numbers_in(self, folder: str) -> list[str]:
        """Numbers of the mails of a folder, the newest first."""
        numbers = [number for number, mail in self._mails.items() if mail["folder"] == folder]
        return sorted(numbers, key=int, reverse=True)

    def _search_page(self, request: Request, rest: str) -> Response:
        query = " ".join(request.query.get("q", "").casefold().split())
        numbers = [
            number
            for number, mail in self._mails.items()
            if query
            and any(
                query in text.casefold()
                for text in (mail["from"], mail["to"], mail["subject"], mail["text"])
            )
        ]
        newest_first = sorted(numbers, key=int, reverse=True)
        return self._list_page("Search", "/search", newest_first, request, query)

    def _list_page(
        self, title: str, path: str, numbers: Sequence[str], request: Request, query: str = ""
    ) -> Response:
        numbers_of_page, turns = list_part(request, path, numbers, PAGE_SIZE, query)
        return page(
            "mail/list",
            title,
            MENU,
            query=query,
            mails=[(number, self._mails[number]) for number in numbers_of_page],
            turns=turns,
        )

    def _mail(self, number: str) -> StoredMail:
        if number not in self._mails:
            raise RequestRefused("There is no such mail.", 404)
        return self._mails[number]

    def _mail_page(self, request: Request, rest: str) -> Response:
        mail = self._mail(rest)
        return page(
            "mail/mail",
            mail["subject"],
            MENU,
            number=rest,
            mail=mail,
            actions=_actions(mail),
            labels=["none", *self._labels] if self._labels else [],
        )

    def _change(self, request: Request, rest: str) -> Response:
        mail, change = self._mail(rest), request.form.get("do", "")
        if change in MOVES and mail["folder"] != MOVES[change]:
            mail["folder"] = MOVES[change]
            return see_other("/")
        if change in ("star", "unstar"):
            mail["star"] = change == "star"
        elif change == "label" and request.form.get("label") in ("none", *self._labels):
            label = request.form["label"]
            mail["label"] = "" if label == "none" else label
        else:
            raise RequestRefused("This cannot be done with this mail.")
        return see_other(f"/mail/{rest}")

    def _write_page(self, request: Request, rest: str) -> Response:
        return _compose_page("Write", "/write", "to", "subject", "text")

    def _reply_page(self, request: Request, rest: str) -> Response:
        self._mail(rest)
        return _compose_page("Reply", f"/reply/{rest}", "text")

    def _forward_page(self, request: Request, rest: str) -> Response:
        self._mail(rest)
        return _compose_page("Forward", f"/forward/{rest}", "to")

    def _send(self, request: Request, rest: str) -> Response:
        subject, text = filled(request, "subject", "The subject"), filled(request, "text", "Text")
        return self._store_sent(filled(request, "to", "The one to write to"), subject, text)

    def _send_reply(self, request: Request, rest: str) -> Response:
        mail = self._mail(rest)
        subject = "Re: " + mail["subject"].removeprefix("Re: ")
        partner = mail["to"] if mail["from"] == ME else mail["from"]
        return self._store_sent(partner, subject, filled(request, "text", "The text"))

    def _send_on(self, request: Request, rest: str) -> Response:
        mail = self._mail(rest)
        subject = "Fwd: " + mail["subject"].removeprefix("Fwd: ")
        return self._store_sent(filled(request, "to", "The one to write to"), subject, mail["text"])

    def _store_sent(self, to: str, subject: str, text: str) -> Response:
        self._mails[next_number(self._mails)] = new_mail("sent", ME, to, subject, text)
        return see_other("/folder/sent")


def new_mail(folder: str, sender: str, to: str, subject: str, text: str) -> StoredMail:
    """A mail without star and label."""
    return {
        "folder": folder,
        "from": sender,
        "to": to,
        "subject": subject,
        "text": text,
        "star": False,
        "label": "",
    }


def _compose_page(title: str, path: str, *parts: str) -> Response:
    """A form for these parts of a mail."""
    return page("mail/compose", title, MENU, path=path, parts=parts)


def _actions(mail: StoredMail) -> tuple[str, ...]:
    """Actions that a mail allows in its folder."""
    star = "unstar" if mail["star"] else "star"
    return {
        "inbox": ("archive", "delete", star),
        "archive": ("restore", "delete", star),
        "sent": ("delete", star),
        "trash": ("restore",),
    }[mail["folder"]]
