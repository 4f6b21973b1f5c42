"""One task in OSWorld's JSON: what of it is not here, and the rest as a task of ours."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.browser.network import Allowed
from clawrl_gym.envs.gui.folder_site import FolderSite
from clawrl_gym.envs.gui.osworld import Opaque, RawTask
from clawrl_gym.envs.gui.osworld.grading import OsworldGrader, grader_of
from clawrl_gym.envs.gui.task import GuiTask

PREFIX = "osworld-"
MAX_TABS = 8
NAME = re.compile(r"[\w.-]+")
"""Allowed ids and hosts."""
_BROWSERS = ("chrome", "chromium", "google-chrome", "chromium-browser", "socat")
"""Browsers that `launch` may name; socat only forwards OSWorld's debugging port."""
_COMMANDS = ("launch", "execute", "command")
"""Steps that run a program: only those that start or end the browser, or wait, are carried out."""
_IGNORED = ("sleep", "activate_window", "update_browse_history")
"""No page shows what they do."""
_ENDS_BROWSER = ("pkill", "killall")
_SHELL = re.compile(r"[|;<>`]|&&|\$\(")
_BLANK = "about:blank"


def malformed(raw: RawTask) -> Iterator[str]:
    """Fields of another type than expected."""
    if not isinstance(raw.get("instruction"), str) or not raw["instruction"].strip():
        yield "instruction: expected a text"
    for key, kind in (("config", list), ("evaluator", dict), ("sites", dict)):
        if not isinstance(raw.get(key) or kind(), kind):
            yield f"{key}: expected a {kind.__name__}"


def missing(raw: RawTask, file: Path, allow: Sequence[Allowed]) -> Iterator[str]:
    """Everything that a task needs and that is not here."""
    if any(True for _ in malformed(raw)):
        return
    evaluator = raw.get("evaluator") or {}
    steps = list(_missing_steps("config", raw.get("config") or []))
    yield from steps
    yield from _missing_steps("evaluator.postconfig", evaluator.get("postconfig") or [])
    try:
        grader = grader_of(evaluator)
        sites = _sites(raw, file)
        tabs = [] if steps else [*_tabs(raw), *(_relaunch(raw) or ()), *grader.end_pages]
    except TaskError as error:
        yield str(error)
        return
    if not steps:
        yield from _unreachable(tabs, sites, allow, grader)
        yield from _elsewhere(raw, grader)
    yield from _undeletable(grader, sites)


def _undeletable(grader: OsworldGrader, sites: Mapping[str, Path]) -> Iterator[str]:
    """Cookies of the net are deleted in the browser's own windows; a site's own page may do it."""
    for check in grader.checks:
        domains = check.rules.get("domains", ()) if check.metric == "is_cookie_deleted" else ()
        foreign = [one for one in domains if str(one).lstrip(".") not in sites]
        if foreign:
            yield (
                f"evaluator: cookies of {', '.join(map(repr, foreign))} are deleted in the "
                "browser's own windows, which no page shows"
            )


def _unreachable(
    tabs: Sequence[str], sites: Mapping[str, Path], allow: Sequence[Allowed], grader: OsworldGrader
) -> Iterator[str]:
    if len(tabs) > MAX_TABS:
        yield f"config: got {len(tabs)} tabs, expected at most {MAX_TABS}"
    closed = [url for url in dict.fromkeys(tabs) if not _reached(url, sites, allow)]
    if closed:
        hosts = ", ".join(dict.fromkeys(urlsplit(url).netloc for url in closed))
        yield (
            f"it begins at {', '.join(closed)}, which is no page of its own sites (http://HOST/): "
            f"set env.allow=[{hosts}] to let the browser reach it"
        )
    if not tabs and not sites and not allow and not grader.infeasible:
        yield "it opens no page, and env.allow names no host that could be reached"


def _elsewhere(raw: RawTask, grader: OsworldGrader) -> Iterator[str]:
    """A task for another program says nothing about what can be done in a browser."""
    is_browser = _family(raw) in _BROWSERS or any(map(_starts, raw.get("config") or []))
    if grader.infeasible and not is_browser and not _tabs(raw):
        yield f"it starts no browser: it is to be given up in {_family(raw)!r}"


def _missing_steps(where: str, steps: Opaque) -> Iterator[str]:
    for step in steps if isinstance(steps, list) else [None]:
        step = step if isinstance(step, dict) else {}
        kind = step.get("type")
        if not isinstance(step.get("parameters") or {}, dict):
            yield f"{where}: {kind!r} has parameters that are no object"
        elif kind in _COMMANDS:
            command = _command(step)
            if not _is_launch(command) and not _is_end(command) and not _is_wait(command):
                yield f"{where}: {kind} of {command[0] if command else None!r} is not supported"
        elif kind not in (*_IGNORED, "chrome_open_tabs", "chrome_close_tabs") or (
            where != "config" and kind not in _IGNORED
        ):
            yield f"{where}: {kind!r} is not supported"


def _is_launch(command: Sequence[str]) -> bool:
    return bool(command) and _program(command[0]) in _BROWSERS


def _is_end(command: Sequence[str]) -> bool:
    """Whether a command ends the browser: a launch after it starts it again."""
    return (
        bool(command)
        and _program(command[0]) in _ENDS_BROWSER
        and any(_program(part) in _BROWSERS for part in command[1:])
    )


def _is_wait(command: Sequence[str]) -> bool:
    return len(command) > 1 and _program(command[0]) == "sleep"


def _starts(step: Mapping[str, Opaque]) -> bool:
    return step["type"] in _COMMANDS and _is_launch(_command(step))


def _ends(step: Mapping[str, Opaque]) -> bool:
    return step["type"] in _COMMANDS and _is_end(_command(step))


def _command(step: Mapping[str, Opaque]) -> list[str]:
    command = (step.get("parameters") or {}).get("command")
    parts = command.split() if isinstance(command, str) else [str(part) for part in command or ()]
    # What a shell would make of it is another program's work.
    return ["a shell", *parts] if _SHELL.search(" ".join(parts)) else parts


def _program(command: str) -> str:
    return re.split(r"[/\\]", command)[-1].lower().removesuffix(".exe").removesuffix("-stable")


def _sites(raw: RawTask, file: Path) -> dict[str, Path]:
    """Folders by host, each beside the task's file."""
    beside = file.parent.resolve()
    folders = {}
    for host, folder in (raw.get("sites") or {}).items():
        if not NAME.fullmatch(host):
            raise TaskError(f"sites: got the host {host!r}, expected a name such as 'shop.test'")
        place = (beside / str(folder)).resolve()
        if not place.is_relative_to(beside) or not place.is_dir():
            raise TaskError(f"sites: got {folder!r}, expected a folder beside {file.name}")
        folders[host] = place
    return folders


def _tabs(raw: RawTask) -> list[str]:
    """URLs of the tabs that are open when the task begins."""
    return _opened(raw.get("config") or [])


def _relaunch(raw: RawTask) -> tuple[str, ...] | None:
    """Pages of a browser that was restarted before the grade; None when it was not."""
    steps = raw["evaluator"].get("postconfig") or []
    if not any(map(_ends, steps)):
        return None
    return tuple(_opened(steps))


def _opened(steps: Sequence[Mapping[str, Opaque]]) -> list[str]:
    """URLs of the tabs that steps leave open, one after the other."""
    tabs: list[str] = []
    for step in steps:
        parameters = step.get("parameters") or {}
        if _ends(step):
            tabs = []
        elif _starts(step) and _program(_command(step)[0]) != "socat":
            tabs += _urls([part for part in _command(step)[1:] if not part.startswith("-")])
        elif step["type"] == "chrome_open_tabs":
            tabs += _urls(parameters.get("urls_to_open"))
        elif step["type"] == "chrome_close_tabs":
            closed = [url.rstrip("/") for url in _urls(parameters.get("urls_to_close"))]
            tabs = [url for url in tabs if url.rstrip("/") not in closed]
    return tabs


def _urls(entry: Opaque) -> list[str]:
    urls = entry if isinstance(entry, list) else [entry]
    wrong = [url for url in urls if not str(url).startswith(("http://", "https://"))]
    if wrong:
        raise TaskError(f"config: got the URL {wrong[0]!r}, expected http:// or https://")
    return urls


def _reached(url: str, sites: Mapping[str, Path], allow: Sequence[Allowed]) -> bool:
    """Whether the browser may go there."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    at_site = host in sites and port == 80 and not secure
    return at_site or any(entry.admits(host, port) for entry in allow)


def task_of(name: str, raw: RawTask, file: Path, split: Split) -> GuiTask:
    """A task of which nothing is missing."""
    tabs = _tabs(raw) or [_BLANK]
    grader: OsworldGrader = grader_of(raw["evaluator"])
    return GuiTask(
        id=name,
        family=f"{PREFIX}{_family(raw)}",
        split=split,
        instruction=raw["instruction"].strip(),
        start=tabs[0],
        tabs=tuple(tabs[1:]),
        grader=grader,
        sites={
            host: functools.partial(FolderSite, folder)
            for host, folder in _sites(raw, file).items()
        },
        facts_script=grader.facts_script,
        relaunch=_relaunch(raw),
        end_pages=grader.end_pages,
    )


def _family(raw: RawTask) -> str:
    return re.sub(r"[^\w.-]", "_", str(raw.get("snapshot") or "chrome"))
