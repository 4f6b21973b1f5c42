"""The mail box: what it shows, moves, sends and refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.mail import ME, Mail, MailWorld, new_mail
from tests.support.gui_sites import state_of

WORLD: MailWorld = {
    "mails": {
        "1": new_mail("inbox", "Mia", ME, "kettle", "I like it.\nAnd you?"),
        "2": new_mail("archive", "Tom", ME, "lemon", "No <b>lemon</b>."),
        "3": new_mail("trash", "Mia", ME, "tiger", "Gone."),
        "4": new_mail("sent", ME, "Zoe", "Re: queen", "Yes."),
    },
    "labels": ["work"],
}


@pytest.fixture
def box() -> Mail:
    return Mail(copy.deepcopy(WORLD))


def get(box: Mail, path: str, **query: str) -> str:
    response = box.handle(Request("GET", path, query))
    assert response.status == 200
    return str(response.body)


def post(box: Mail, path: str, **form: str) -> Response:
    return box.handle(Request("POST", path, form=form))


def changes(box: Mail) -> dict[str, Any]:
    """Mails that are not as they were."""
    mails: dict[str, Any] = state_of(box)["mails"]
    return {number: mail for number, mail in mails.items() if WORLD["mails"].get(number) != mail}


def test_each_folder_lists_its_own_mails(box: Mail) -> None:
    assert "kettle" in get(box, "/")
    assert "lemon" not in get(box, "/")
    assert "lemon" in get(box, "/folder/archive")
    assert "to Zoe" in get(box, "/folder/sent")
    assert get(box, "/folders").count("<li>") == 4


def test_the_search_reads_all_folders_and_texts(box: Mail) -> None:
    assert "/mail/2" in get(box, "/search", q="LEMON")
    assert "/mail/3" in get(box, "/search", q="mia")
    assert "/mail/4" in get(box, "/search", q="yes")
    assert "No mails" in get(box, "/search", q="zebra")
    assert "No mails" in get(box, "/search", q="")


def test_a_text_of_several_lines_is_shown_line_by_line_and_as_text(box: Mail) -> None:
    assert "<p>I like it.</p>\n<p>And you?</p>" in get(box, "/mail/1")
    assert "&lt;b&gt;lemon" in get(box, "/mail/2")


@pytest.mark.parametrize(
    ("number", "wish", "change"),
    [
        ("1", "archive", {"folder": "archive"}),
        ("1", "delete", {"folder": "trash"}),
        ("2", "delete", {"folder": "trash"}),
        ("2", "restore", {"folder": "inbox"}),
        ("3", "restore", {"folder": "inbox"}),
        ("1", "star", {"star": True}),
    ],
)
def test_a_button_changes_its_mail_alone(
    box: Mail, number: str, wish: str, change: dict[str, Any]
) -> None:
    assert f'value="{wish}"' in get(box, f"/mail/{number}")
    assert post(box, f"/mail/{number}", do=wish).status == 303
    assert changes(box) == {number: WORLD["mails"][number] | change}


def test_stars_and_labels_come_and_go(box: Mail) -> None:
    post(box, "/mail/1", do="star")
    post(box, "/mail/1", do="label", label="work")
    assert "starred work" in get(box, "/")
    post(box, "/mail/1", do="unstar")
    post(box, "/mail/1", do="label", label="none")
    assert not changes(box)


def test_mails_are_written_answered_and_sent_on(box: Mail) -> None:
    assert post(box, "/write", to="Tom", subject="river", text="Hi.\r\nYou.").status == 303
    post(box, "/reply/1", text="Me, too.")
    post(box, "/reply/4", text="No.")
    post(box, "/forward/2", to="Ana")
    assert changes(box) == {
        "5": new_mail("sent", ME, "Tom", "river", "Hi.\nYou."),
        "6": new_mail("sent", ME, "Mia", "Re: kettle", "Me, too."),
        "7": new_mail("sent", ME, "Zoe", "Re: queen", "No."),
        "8": new_mail("sent", ME, "Ana", "Fwd: lemon", "No <b>lemon</b>."),
    }


def test_looking_changes_nothing(box: Mail) -> None:
    for path in ("/", "/folders", "/mail/1", "/mail/4", "/write", "/reply/1", "/forward/1"):
        get(box, path)
    assert not changes(box)


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/", {}, 405),
        ("/search", {"q": "a"}, 405),
        ("/nothing", {}, 404),
        ("/mail/9", {"do": "delete"}, 404),
        ("/mail/", {"do": "delete"}, 404),
        ("/mail/1", {}, 400),
        ("/mail/1", {"do": "burn"}, 400),
        ("/mail/1", {"do": "restore"}, 400),
        ("/mail/1", {"do": "label"}, 400),
        ("/mail/1", {"do": "label", "label": "'\"><b>"}, 400),
        ("/write", {"to": "Tom", "subject": "a"}, 400),
        ("/write", {"to": " ", "subject": "a", "text": "b"}, 400),
        ("/write", {"to": "Tom", "subject": "a", "text": "b" * 9999}, 400),
        ("/reply/1", {}, 400),
        ("/reply/9", {"text": "a"}, 404),
        ("/forward/9", {"to": "Tom"}, 404),
        ("/forward/1", {"to": ""}, 400),
    ],
)
def test_what_is_refused_changes_nothing(
    box: Mail, path: str, form: dict[str, str], status: int
) -> None:
    answer = post(box, path, **form)
    assert answer.status == status
    assert "Sorry" in str(answer.body)
    assert not changes(box)


def test_a_folder_or_mail_that_is_not_there_is_not_found(box: Mail) -> None:
    for path in ("/folder/spam", "/mail/9", "/reply/9", "/forward/x", "/mail/<b>"):
        assert box.handle(Request("GET", path)).status == 404
