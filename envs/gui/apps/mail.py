"""A mail box: folders, a search, mails to read, answer, forward, file, star and label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clawrl_gym.envs.gui.apps.html import (
    Html,
    bullets,
    button,
    choice,
    form,
    heading,
    link,
    notice,
    page,
    paragraph,
    path_to,
    see_other,
    table,
    text_area,
    text_field,
)
from clawrl_gym.envs.gui.apps.serving import Refused, filled, serve, whole
from clawrl_gym.envs.gui.site import Request, Response

HOST = "mail"
MENU = (link("Inbox", "/"), link("Folders", "/folders"), link("Write", "/write"))
ME = "me"
"""The owner of the box."""
FOLDERS = ("inbox", "archive", "sent", "trash")
MOVES = {"archive": "archive", "delete": "trash", "restore": "inbox"}
"""What the buttons of a mail are called, and where they put it."""
ROWS = 5
"""Mails on one page of a list."""


class Mail:
    """World: mails by number (folder, from, to, subject, text, star, label), names of labels."""

    def __init__(self, world: Any) -> None:
        self._mails: dict[str, dict[str, Any]] = world["mails"]
        self._labels: Sequence[str] = world.get("labels", ())

    def handle(self, request: Request) -> Response:
        """Answer a request; what is refused changes nothing."""
        pages = {
            "": self._inbox,
            "folders": self._folders,
            "folder": self._folder,
            "search": self._search,
            "mail": self._show,
            "write": self._write,
            "reply": self._reply,
            "forward": self._forward,
        }
        changes = {
            "mail": self._change,
            "write": self._send,
            "reply": self._send_reply,
            "forward": self._send_on,
        }
        return serve(request, pages, changes, "Mail", MENU)

    def state(self) -> Any:
        """All mails."""
        return {"mails": self._mails}

    def _inbox(self, request: Request, rest: str) -> Response:
        return self._listed("Inbox", "/", self._in("inbox"), request)

    def _folders(self, request: Request, rest: str) -> Response:
        rows = [(link(name, f"/folder/{name}"), f"{len(self._in(name))}") for name in FOLDERS]
        return page("Folders", heading("Folders"), bullets(rows), menu=MENU)

    def _folder(self, request: Request, rest: str) -> Response:
        if rest not in FOLDERS:
            raise Refused("There is no such folder.", 404)
        return self._listed(rest.capitalize(), f"/folder/{rest}", self._in(rest), request)

    def _in(self, folder: str) -> list[str]:
        """Numbers of the mails of a folder, the newest first."""
        found = [number for number, mail in self._mails.items() if mail["folder"] == folder]
        return sorted(found, key=int, reverse=True)

    def _search(self, request: Request, rest: str) -> Response:
        query = " ".join(request.query.get("q", "").casefold().split())
        found = [
            number
            for number, mail in self._mails.items()
            if query
            and any(query in mail[part].casefold() for part in ("from", "to", "subject", "text"))
        ]
        numbers = sorted(found, key=int, reverse=True)
        return self._listed("Search", "/search", numbers, request, query)

    def _listed(
        self, title: str, path: str, numbers: Sequence[str], request: Request, query: str = ""
    ) -> Response:
        pages = max(1, -(-len(numbers) // ROWS))
        place = whole(request.query.get("page", "1"), "The page", 1, pages)
        rows = [self._row(number) for number in numbers[(place - 1) * ROWS : place * ROWS]]
        asked = {"q": query} if query else {}
        turns = [
            link(text, path_to(path, **asked, page=other))
            for text, other in (("Back", place - 1), ("More", place + 1))
            if 1 <= other <= pages
        ]
        fields = paragraph(text_field("Search", "q", query), button("Search"))
        return page(
            title,
            heading(title),
            form("/search", fields, method="get"),
            table(rows) if rows else notice("No mails."),
            *([paragraph(*turns)] if turns else []),
            menu=MENU,
        )

    def _row(self, number: str) -> tuple[Html | str, ...]:
        mail = self._mails[number]
        who = f"to {mail['to']}" if mail["folder"] == "sent" else mail["from"]
        marks = " ".join([*(["starred"] if mail["star"] else []), mail["label"]]).strip()
        return (link(mail["subject"], f"/mail/{number}"), who, *([marks] if marks else []))

    def _known(self, number: str) -> dict[str, Any]:
        if number not in self._mails:
            raise Refused("There is no such mail.", 404)
        return self._mails[number]

    def _show(self, request: Request, rest: str) -> Response:
        mail = self._known(rest)
        told = [paragraph(line) for line in mail["text"].split("\n") if line]
        where = "" if mail["folder"] == "inbox" else f" ({mail['folder']})"
        return page(
            mail["subject"],
            heading(mail["subject"]),
            paragraph(f"From {mail['from']} to {mail['to']}{where}"),
            *told,
            paragraph(link("Reply", f"/reply/{rest}"), link("Forward", f"/forward/{rest}")),
            form(f"/mail/{rest}", paragraph(*_moves(mail))),
            *self._label_form(rest, mail),
            menu=MENU,
        )

    def _label_form(self, number: str, mail: Mapping[str, Any]) -> list[Html]:
        if not self._labels:
            return []
        field = choice("Label", "label", ("none", *self._labels), mail["label"] or "none")
        return [form(f"/mail/{number}", paragraph(field, button("Set", "do", "label")))]

    def _change(self, request: Request, rest: str) -> Response:
        mail, wish = self._known(rest), request.form.get("do", "")
        if wish in MOVES and mail["folder"] != MOVES[wish]:
            mail["folder"] = MOVES[wish]
            return see_other("/")
        if wish in ("star", "unstar"):
            mail["star"] = wish == "star"
        elif wish == "label" and request.form.get("label") in ("none", *self._labels):
            chosen = request.form["label"]
            mail["label"] = "" if chosen == "none" else chosen
        else:
            raise Refused("This cannot be done with this mail.")
        return see_other(f"/mail/{rest}")

    def _write(self, request: Request, rest: str) -> Response:
        fields = (text_field("To", "to"), text_field("Subject", "subject"))
        return self._composed("Write", "/write", *fields, text_area("Text", "text"))

    def _reply(self, request: Request, rest: str) -> Response:
        self._known(rest)
        return self._composed("Reply", f"/reply/{rest}", text_area("Text", "text"))

    def _forward(self, request: Request, rest: str) -> Response:
        self._known(rest)
        return self._composed("Forward", f"/forward/{rest}", text_field("To", "to"))

    def _composed(self, title: str, path: str, *fields: Html) -> Response:
        lines = (*(paragraph(field) for field in fields), paragraph(button("Send")))
        return page(title, heading(title), form(path, *lines), menu=MENU)

    def _send(self, request: Request, rest: str) -> Response:
        subject, text = filled(request, "subject", "The subject"), filled(request, "text", "Text")
        return self._sent(filled(request, "to", "The one to write to"), subject, text)

    def _send_reply(self, request: Request, rest: str) -> Response:
        mail = self._known(rest)
        subject = "Re: " + mail["subject"].removeprefix("Re: ")
        other = mail["to"] if mail["from"] == ME else mail["from"]
        return self._sent(other, subject, filled(request, "text", "The text"))

    def _send_on(self, request: Request, rest: str) -> Response:
        mail = self._known(rest)
        subject = "Fwd: " + mail["subject"].removeprefix("Fwd: ")
        return self._sent(filled(request, "to", "The one to write to"), subject, mail["text"])

    def _sent(self, to: str, subject: str, text: str) -> Response:
        number = str(max(map(int, self._mails), default=0) + 1)
        self._mails[number] = new_mail("sent", ME, to, subject, text)
        return see_other("/folder/sent")


def new_mail(folder: str, sender: str, to: str, subject: str, text: str) -> dict[str, Any]:
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


def _moves(mail: Mapping[str, Any]) -> tuple[Html, ...]:
    """What can be done with a mail where it is."""
    star = button("Unstar", "do", "unstar") if mail["star"] else button("Star", "do", "star")
    back = button("Restore", "do", "restore")
    archive, delete = button("Archive", "do", "archive"), button("Delete", "do", "delete")
    return {
        "inbox": (archive, delete, star),
        "archive": (back, delete, star),
        "sent": (delete, star),
        "trash": (back,),
    }[mail["folder"]]
