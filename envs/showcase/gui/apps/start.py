"""The first page of a task in several applications: a link to each, with its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import page, refuse_rest, serve

HOST = "start"
TITLE = "Start"


class StartWorld(TypedDict):
    """Stored state: names of applications by host."""

    names: dict[str, str]


class Start:
    """The site. Nothing can be changed here."""

    def __init__(self, world: StartWorld) -> None:
        self._names: Mapping[str, str] = world["names"]

    def handle(self, request: Request) -> Response:
        return serve(request, {"": self._page}, {}, TITLE, ())

    def state(self) -> object:
        return {}

    def _page(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        addresses = [(name, f"http://{host}/") for host, name in self._names.items()]
        return page("start/start", TITLE, addresses=addresses)
