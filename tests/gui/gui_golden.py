"""What generated page tasks and their pages are, as hashes by family: nothing may move them.

Weights are trained on these tasks and on the text of these pages. `python -m tests.gui.gui_golden`
writes the file anew, for a change that is meant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.grading import InfeasibleGrader, StateGrader
from clawrl_gym.envs.gui.site import Request, Response, Site
from clawrl_gym.envs.gui.task import GuiTask, Locator, Step
from clawrl_gym.envs.gui.text import line_text
from clawrl_gym.envs.showcase.gui.families import FAMILIES
from clawrl_gym.envs.showcase.gui.generated import make_task, task_ids
from tools.tiny_policy.static_page import Node, StaticPage
from tools.tiny_policy.static_screen import StaticScreen

FILE = Path(__file__).parents[1] / "fixtures" / "gui_golden.json"
TRAIN_TASKS, HELDOUT_TASKS = 10, 5
"""Tasks of each family whose content is hashed."""
PAGED_TASKS = 2
"""Tasks of each family and split whose pages are hashed."""
MOST_PAGES = 25
"""Pages of one task that are looked at by following its links."""
INLINE = frozenset({"a", "button", "input", "label", "select", "option", "textarea"})


def golden() -> dict[str, dict[str, str]]:
    """Hashes of tasks, and of pages, by family, and which families are easy."""
    return {
        "easy": {family: "yes" for family, kind in FAMILIES.items() if kind.easy},
        "tasks": {family: hash_of(task_contents(family)) for family in FAMILIES},
        "pages": {family: hash_of(pages_of_family(family)) for family in FAMILIES},
    }


def hash_of(contents: object) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]


def task_contents(family: str) -> list[object]:
    """Everything that follows from an id, for tasks of both splits."""
    train = task_ids("train", (family,))[:TRAIN_TASKS]
    return [
        task_content(make_task(task_id))
        for task_id in [*train, *task_ids("heldout", (family,))[:HELDOUT_TASKS]]
    ]


def task_content(task: GuiTask) -> object:
    grader = task.grader
    assert isinstance(grader, StateGrader | InfeasibleGrader)
    if isinstance(grader, StateGrader):
        grade: object = [grader.expected, grader.answer]
    else:
        grade = grader.unchanged
    assert not callable(task.solution)
    return [
        task.id, task.family, task.split, task.instruction, task.start, task.tabs, task.turns,
        task.seed, task.viewport, task.scale, grade,
        [[step_content(step) for step in turn] for turn in task.solution],
        {host: make_site().state() for host, make_site in task.sites.items()},
    ]  # fmt: skip


def step_content(step: Step) -> object:
    return [step.kind, find_content(step.locator), find_content(step.to), step.text, step.keys]


def find_content(find: Locator | None) -> object:
    return None if find is None else [find.role, find.name, find.nth, find.near]


def pages_of_family(family: str) -> list[object]:
    """What the policy reads along the oracle's way, and the HTML of all pages that are linked."""
    contents: list[object] = []
    for split in ("train", "heldout"):
        for task_id in task_ids(split, (family,))[:PAGED_TASKS]:
            contents += [observations(task_id), *linked_pages(make_task(task_id))]
    return contents


def observations(task_id: str) -> list[str]:
    """Everything that the environment shows while the oracle solves the task."""
    env = GuiEnv(open_screen=StaticScreen.open)
    first, _ = env.reset(options={"task": task_id})
    return [first, *(env.step(action)[0] for action in env.solve())]


def linked_pages(task: GuiTask) -> Iterator[object]:
    """Pages by following links from the first one, and what each form's fields as they are give."""
    host = urlsplit(task.start).netloc
    site = task.sites[host]()
    paths = [task.start.removeprefix(f"http://{host}"), "/", "/nowhere"]
    posted: set[str] = set()
    for place in range(MOST_PAGES):
        if place >= len(paths):
            break
        html = page_html(get(site, paths[place]))
        yield [paths[place], normal(html), page_text(html)]
        for node in StaticPage(html).root.walk():
            if node.tag == "a" and (path := urljoin(paths[place], node.attributes["href"])):
                paths += [path] if path not in paths else []
            if node.tag == "form":
                for form in form_contents(node):
                    action = node.attributes["action"]
                    if node.attributes["method"] == "get":
                        path = f"{action}?{urlencode(form)}"
                        paths += [path] if path not in paths else []
                    elif (content := f"{action} {sorted(form.items())}") not in posted:
                        posted.add(content)
                        yield [content, *post_contents(task.sites[host](), action, form)]


def form_contents(form: Node) -> Iterator[dict[str, str]]:
    """What is sent by each button of a form that nobody has filled."""
    fields = {
        node.attributes["name"]: node.value
        for node in form.walk()
        if "name" in node.attributes and node.tag in ("input", "select", "textarea")
        if node.attributes.get("type") not in ("checkbox", "radio") or node.checked
    }
    for node in form.walk():
        if node.tag == "button":
            name = node.attributes.get("name")
            yield fields | ({name: node.attributes["value"]} if name else {})


def post_contents(site: Site, path: str, form: Mapping[str, str]) -> list[object]:
    response = site.handle(Request("POST", path, form=form))
    if response.status == 303:
        location = response.headers["location"]
        return [303, location, page_text(page_html(get(site, location))), site.state()]
    return [response.status, normal(page_html(response)), site.state()]


def get(site: Site, path: str) -> Response:
    parts = urlsplit(path)
    return site.handle(Request("GET", parts.path, dict(parse_qsl(parts.query))))


def page_html(response: Response) -> str:
    assert isinstance(response.body, str)
    return response.body


def page_text(html: str) -> Sequence[str]:
    """The page as the policy reads it."""
    return [line_text(line) for line in StaticPage(html).lines()]


def normal(html: str) -> list[object]:
    """Tags with attributes and texts; white space that no browser shows does not count."""
    reader = Normal()
    reader.feed(html)
    reader.close()
    reader.end_text(at_block=True)
    return reader.parts


class Normal(HTMLParser):
    """Collects what `normal` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[object] = []
        self._text = ""
        self._after_block = True
        self._verbatim = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.end_text(at_block=tag not in INLINE)
        self.parts.append([tag, sorted((name, value or "") for name, value in attrs)])
        self._after_block = tag not in INLINE or tag in ("select", "option")
        self._verbatim = tag if tag in ("style", "textarea") else ""

    def handle_endtag(self, tag: str) -> None:
        self.end_text(at_block=tag not in INLINE)
        self.parts.append(f"/{tag}")
        self._after_block = tag not in INLINE or tag == "option"
        self._verbatim = ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def end_text(self, at_block: bool) -> None:
        """Runs of white space are one space, none beside a block."""
        text, self._text = self._text, ""
        if self._verbatim == "style":
            return
        if not self._verbatim:
            space_before = text[:1].isspace() and not self._after_block
            space_after = text[-1:].isspace() and not at_block
            words = " ".join(text.split())
            text = (
                f"{' ' * space_before}{words}{' ' * space_after}"
                if words
                else " " * (space_before and space_after)
            )
        if text:
            self.parts.append(text)


if __name__ == "__main__":
    FILE.write_text(json.dumps(golden(), indent=1, sort_keys=True) + "\n")
