"""A browser on paper: what an episode holds instead of Chromium while the recipe shows it.

Follows links and sends forms to the task's own sites. Only the actions that oracles of the
shipped applications take are known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.observation import View
from clawrl_gym.envs.gui.site import Request, Response, Site
from clawrl_gym.envs.gui.task import FinalState, GuiTask
from tools.tiny_policy.static_page import Node, StaticPage

MAX_REDIRECTS = 5


@dataclass(frozen=True, slots=True)
class _Sent:
    """Target of a click."""

    url: str
    method: str = "GET"
    form: tuple[tuple[str, str], ...] = ()


class StaticScreen:
    """The screen of one episode."""

    page_instruction = ""

    def __init__(self, sites: dict[str, Site], start: str, viewport: tuple[int, int]) -> None:
        self._sites = sites
        self.viewport = viewport
        self.left_document = False
        self._url = start
        self._load(_Sent(start))

    @classmethod
    def open(cls, task: GuiTask, options: GuiEnvConfig) -> StaticScreen:
        """Fresh sites, and the task's first page."""
        sites = {host: make() for host, make in task.sites.items()}
        return cls(sites, task.start, task.viewport or (options.width, options.height))

    def look(self) -> View:
        """The page as it is now."""
        return View(self._url, self._paper.title, self._paper.lines())

    def act(self, action: GuiAction) -> str | None:
        """Carry out an action. Raises EnvError for one that paper does not know."""
        self.left_document = False
        if action.kind == "goto":
            return self._go_to(action.text)
        node = self._paper.node(action.id)
        if node is None:
            return f"there is no element [{action.id}] on this page"
        sent = self._carry_out(node, action)
        if sent is not None:
            self._load(sent)
            self.left_document = True
        return None

    def notices(self) -> list[str]:
        """Nothing happens beside the page."""
        return []

    def page_result(self) -> None:
        """No page of ours says anything of itself."""

    def shot(self) -> bytes:
        """Paper has no picture."""
        raise EnvError("a page on paper has no picture")

    def final_state(self, answer: str | None, gave_up: bool, needs_pages: bool) -> FinalState:
        """Final state."""
        states = {host: site.state() for host, site in self._sites.items()}
        return FinalState(states, answer, gave_up)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _go_to(self, url: str) -> str | None:
        """A page of one of the task's sites; why not, else."""
        if not any(url.startswith(f"http://{host}/") for host in self._sites):
            return f"{url[:80]!r} is outside of this task"
        self._load(_Sent(url))
        self.left_document = True
        return None

    def _carry_out(self, node: Node, action: GuiAction) -> _Sent | None:
        self._paper.focused = node if action.kind == "type" else None
        match action.kind, node.tag:
            case "click", "a":
                return _Sent(node.attributes["href"])
            case "click", "button":
                return _sent(node)
            case "click", "input" if node.attributes.get("type") == "checkbox":
                node.checked = not node.checked
            case "click", "input" if node.attributes.get("type") == "radio":
                _choose(node)
            case "type", "input" | "textarea":
                node.value = action.text
            case "select", "select":
                node.value = action.text
            case _:
                raise EnvError(f"got {action.kind} on <{node.tag}>, which paper does not know")
        return None

    def _load(self, sent: _Sent) -> None:
        for _ in range(MAX_REDIRECTS):
            url = sent.url if sent.url.startswith("http") else urljoin(self._url, sent.url)
            self._url = url
            response = self._answer(sent, url)
            location = response.headers.get("location")
            if not 300 <= response.status < 400 or location is None:
                body = response.body
                self._paper = StaticPage(body if isinstance(body, str) else body.decode())
                return
            sent = _Sent(location)
        raise EnvError(f"got more than {MAX_REDIRECTS} redirects at {self._url!r}")

    def _answer(self, sent: _Sent, url: str) -> Response:
        parts = urlsplit(url)
        site = self._sites.get(parts.netloc)
        if site is None:
            raise EnvError(f"got {url!r}, expected a page of {sorted(self._sites)}")
        headers = {"host": parts.netloc}
        body = b""
        if sent.method == "POST":
            body = urlencode(sent.form).encode()
            headers["content-type"] = "application/x-www-form-urlencoded"
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        form: dict[str, Any] = dict(sent.form) if sent.method == "POST" else {}
        return site.handle(Request(sent.method, parts.path or "/", query, form, headers, body))


def _sent(button: Node) -> _Sent | None:
    """Form fields that a button sends, and itself where it has a name."""
    form = button.within("form")
    if form is None:
        return None
    fields = [(node.attributes["name"], _value(node)) for node in form.walk() if _counts(node)]
    if button.attributes.get("name"):
        fields.append((button.attributes["name"], button.attributes.get("value", "")))
    action = form.attributes.get("action", "")
    if form.attributes.get("method", "get").lower() == "post":
        return _Sent(action, "POST", tuple(fields))
    return _Sent(f"{action.partition('?')[0]}?{urlencode(fields)}")


def _counts(node: Node) -> bool:
    """A field that is sent."""
    if node.tag not in ("input", "select", "textarea") or not node.attributes.get("name"):
        return False
    return node.attributes.get("type") not in ("checkbox", "radio") or node.checked


def _value(node: Node) -> str:
    """Lines end as a browser sends them."""
    return "\r\n".join(node.value.split("\n")) if node.tag == "textarea" else node.value


def _choose(radio: Node) -> None:
    form = radio.within("form")
    for node in form.walk() if form is not None else ():
        same = node.attributes.get("name") == radio.attributes.get("name")
        if node.attributes.get("type") == "radio" and same:
            node.checked = node is radio
