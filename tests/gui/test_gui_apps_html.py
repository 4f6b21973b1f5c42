"""Pages of the shipped applications: text is text, fields have labels, HTML keeps to a subset."""

from __future__ import annotations

from html.parser import HTMLParser

import jinja2
import pytest

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import (
    LONGEST_TEXT,
    TEMPLATES,
    Menu,
    RequestRefused,
    filled,
    page,
    path_to,
    serve,
    whole,
)
from clawrl_gym.envs.showcase.gui.families import FAMILIES
from clawrl_gym.envs.showcase.gui.generated import make_task, task_ids

NASTY = "\"'><script>alert(1)</script>{id}}{0}\0 & </textarea></option>"
VOID = {"meta", "input"}
ATTRIBUTES = {
    "html": {"lang"}, "meta": {"charset"}, "a": {"href"}, "p": {"class"},
    "form": {"method", "action", "novalidate"}, "button": {"type", "name", "value"},
    "label": {"for"}, "input": {"id", "type", "name", "value", "checked"},
    "textarea": {"id", "name"}, "select": {"id", "name"}, "option": {"value", "selected"},
    "head": set(), "title": set(), "style": set(), "body": set(), "nav": set(), "main": set(),
    "h1": set(), "h2": set(), "ul": set(), "li": set(), "table": set(), "tr": set(), "th": set(),
    "td": set(),
}  # fmt: skip
"""The whole subset."""


class Reader(HTMLParser):
    """Collects tags, attributes and text; fails at what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def ids(self) -> list[str | None]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    def labelled(self) -> list[str | None]:
        return [attributes["for"] for tag, attributes in self.tags if tag == "label"]


def read(response: Response) -> Reader:
    assert isinstance(response.body, str)
    return Reader(response.body)


def rendered(
    main: str, monkeypatch: pytest.MonkeyPatch, menu: Menu = (), title: str = "t"
) -> Reader:
    """A page whose template has this in its middle; `nasty` is a text to show."""
    source = (
        '{% extends "layout.html.j2" %}{% import "fields.html.j2" as fields with context %}'
        f"{{% block main %}}{main}{{% endblock %}}"
    )
    monkeypatch.setattr(TEMPLATES, "loader", _with(source))
    return read(page("page_of_a_test", title, menu, nasty=NASTY))


def _with(source: str) -> jinja2.BaseLoader:
    loader = TEMPLATES.loader
    assert loader is not None
    return jinja2.ChoiceLoader([jinja2.DictLoader({"page_of_a_test.html.j2": source}), loader])


def test_whatever_text_stands_on_a_page_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = rendered(
        """<h1>{{ nasty }}</h1><h2>{{ nasty }}</h2><p class="notice">{{ nasty }}</p>
        <ul><li>{{ nasty }}</li></ul>
        <form method="post" action="{{ nasty }}" novalidate><p>{{ nasty }}
        {{ fields.text(nasty, nasty, nasty) }}
        {{ fields.number(nasty, nasty, nasty) }}
        {{ fields.text_area(nasty, nasty, nasty) }}
        {{ fields.choice(nasty, nasty, [nasty], nasty) }}
        {{ fields.check_box(nasty, nasty, true, nasty) }}
        {{ fields.radio(nasty, nasty, nasty) }}
        {{ fields.hidden(nasty, nasty) }}
        {{ fields.button(nasty, nasty, nasty) }}</p></form>
        <table><tr><th>{{ nasty }}</th><th>{{ nasty }}</th></tr>
        <tr><td>{{ nasty }}</td><td><a href="{{ nasty }}">{{ nasty }}</a></td></tr></table>""",
        monkeypatch,
        menu=((NASTY, NASTY),),
        title=NASTY,
    )
    assert "script" not in {tag for tag, _ in reader.tags}
    clean = NASTY.replace("\0", "")
    values = [attributes["value"] for tag, attributes in reader.tags if tag == "input"]
    assert values == [clean] * 5
    assert sum(clean in text for text in reader.texts) == 20
    assert "\0" not in "".join(reader.texts)
    assert reader.ids() == [f"f{number}" for number in range(1, 7)]


def test_each_field_has_the_label_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = rendered(
        """<p>{{ fields.text("a", "a") }} {{ fields.radio("b", "b", "1") }}
        {{ fields.radio("c", "b", "2", true) }}
        {{ fields.choice("d", "d", ["x", "y"], "y") }}</p>""",
        monkeypatch,
    )
    assert reader.ids() == reader.labelled() == ["f1", "f2", "f3", "f4"]
    assert [tag for tag, attributes in reader.tags if "selected" in attributes] == ["option"]
    assert [attributes["value"] for _, attributes in reader.tags if "checked" in attributes] == [
        "2"
    ]


def test_the_first_line_break_of_a_long_text_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = rendered("""{{ fields.text_area("a", "a", "\n" ~ "x") }}""", monkeypatch)
    assert "\n\nx" in reader.texts


def test_a_template_that_lacks_a_value_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(jinja2.UndefinedError, match="missing_name"):
        rendered("{{ missing_name }}", monkeypatch)


def test_a_path_with_a_query_is_encoded() -> None:
    assert path_to("/search", q="a&b c", page=2) == "/search?q=a%26b+c&page=2"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_first_page_keeps_to_the_subset(family: str) -> None:
    task = make_task(task_ids("train", (family,))[0])
    host, path = task.start.removeprefix("http://").split("/", 1)
    response = task.sites[host]().handle(Request("GET", f"/{path}"))
    assert response.status == 200
    reader = read(response)
    for tag, attributes in reader.tags:
        assert tag in ATTRIBUTES, tag
        assert set(attributes) <= ATTRIBUTES[tag]
    assert sorted(map(str, reader.ids())) == sorted(map(str, reader.labelled()))


def test_what_is_refused_is_a_page_that_says_why() -> None:
    def fails(request: Request, rest: str) -> Response:
        raise RequestRefused(f"no <{rest}>", 404)

    def served(method: str, path: str) -> Response:
        return serve(Request(method, path), {"a": fails}, {"b": fails}, "Shop", ())

    requests = [("GET", "/a/x/y"), ("POST", "/a"), ("GET", "/b"), ("PUT", "/a"), ("GET", "/c")]
    answers = [served(*one) for one in requests]
    assert [answer.status for answer in answers] == [404, 405, 405, 405, 404]
    assert "no &lt;x/y&gt;" in str(answers[0].body)


@pytest.mark.parametrize(
    "text", ["", "-1", "0", "10", "1.5", "1e3", "²", "٣", "9" * 5000, "a", "nan"]
)
def test_a_number_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused, match="must be"):
        whole(text, "The number", 1, 9)


def test_a_missing_or_endless_field_is_refused() -> None:
    with pytest.raises(RequestRefused, match="missing"):
        filled(Request("POST", "/", form={"a": " \n"}), "a", "A")
    with pytest.raises(RequestRefused, match="too long"):
        filled(Request("POST", "/", form={"a": "x" * (LONGEST_TEXT + 1)}), "a", "A")
    assert filled(Request("POST", "/", form={"a": " x\r\ny "}), "a", "A") == "x\ny"
